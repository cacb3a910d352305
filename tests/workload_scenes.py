"""Scenes for the judging rooms: one Deployment and what surrounds it, as the API would answer, with statuses from recordings.

A scene is raw objects and measures; `reading()` reduces the objects exactly as the product does. So what a test states is what a
cluster shows, never what triage or the verifier would conclude of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from catalog.alerts import Alert
from catalog.diagnoses import Diagnosis
from catalog.documents import instant_text
from catalog.evidence import SourceName
from catalog.targets import Target, TargetKind
from sources.condensing import condense
from sources.readings import LevelReading, Measure, RuleReading, WorkloadReading
from sources.redaction import Redactor
from sources.workloads import WorkloadView
from triage.quoting import annotation_texts, places_with_orders
from triage.symptoms import AlertSymptom, Symptoms
from verifier.observations import FiringReading, Observations

RECORDINGS = Path(__file__).parent / "data" / "kubernetes"
NOW = datetime(2026, 3, 4, 10, 0, tzinfo=UTC)
TARGET = Target(cluster_uid="c1", cluster="eu-1", namespace="shop", kind=TargetKind.DEPLOYMENT, name="api", uid="d-1")
MIB = 2**20
HASHES = {1: "6bd86f5796", 2: "7bc478b4c9", 3: "56f77f8496"}
Raw = dict[str, Any]


def recording(name: str) -> Any:
    """One recorded answer of a real API server, by path below the recordings."""
    return json.loads((RECORDINGS / f"{name}.json").read_text())


def ago(**parts: float) -> datetime:
    return NOW - timedelta(**parts)


@dataclass
class Scene:
    """One Deployment `shop/api` as the API shows it, and what Prometheus has of it."""

    replicas: int = 3
    pods: list[Raw] = field(default_factory=list)
    replica_sets: list[Raw] = field(default_factory=list)
    events: list[Raw] = field(default_factory=list)
    nodes: list[Raw] = field(default_factory=lambda: [node("n1")])
    autoscalers: list[Raw] = field(default_factory=list)
    budgets: list[Raw] = field(default_factory=list)
    quotas: list[Raw] = field(default_factory=list)
    volumes: list[Raw] = field(default_factory=list)
    environment: list[Raw] = field(default_factory=list)
    conditions: list[Raw] = field(default_factory=list)
    managed_fields: list[Raw] = field(default_factory=list)
    status: Raw | None = None
    paused: bool = False
    unreadable: dict[str, Any] = field(default_factory=dict)
    measures: dict[str, Measure] = field(default_factory=dict)
    rules: list[RuleReading] = field(default_factory=list)
    levels: list[LevelReading] = field(default_factory=list)
    firing: list[FiringReading] = field(default_factory=list)
    alerts: list[Alert] = field(default_factory=list)
    configured: tuple[SourceName, ...] = ("kubernetes", "prometheus", "alertmanager")
    faults: dict[SourceName, str] = field(default_factory=dict)
    target: Target = TARGET

    def names(self) -> list[str]:
        return [pod["metadata"]["name"] for pod in self.pods]

    def deployment(self) -> Raw:
        ready = sum(1 for pod in self.pods if condition(pod["status"]["conditions"], "Ready") == "True")
        counts = {"replicas": len(self.pods), "updatedReplicas": len(self.pods), "readyReplicas": ready, "availableReplicas": ready}
        status = {"observedGeneration": 2, **{key: value for key, value in counts.items() if value}, "conditions": self.conditions}
        containers = [{"name": "app", "image": "registry.local/api:1", "env": self.environment}]
        return {
            "metadata": {
                "name": self.target.name, "namespace": self.target.namespace, "uid": "d-1", "generation": 2,
                "annotations": {"deployment.kubernetes.io/revision": str(len(self.replica_sets) or 1)},
                "managedFields": self.managed_fields,
            },
            "spec": {
                "replicas": self.replicas, "paused": self.paused, "selector": {"matchLabels": {"app": "api"}},
                "template": {"metadata": {"labels": {"app": "api"}}, "spec": {"containers": containers, "volumes": self.volumes}},
            },
            "status": self.status if self.status is not None else status,
        }  # fmt: skip

    def view(self) -> WorkloadView:
        parts: dict[str, Any] = {
            name: getattr(self, name) for name in ("pods", "replica_sets", "events", "nodes", "autoscalers", "budgets", "quotas")
        }
        workload = self.nodes[0] if self.target.kind is TargetKind.NODE else self.deployment()
        return WorkloadView(target=self.target, observed_at=NOW, workload=workload, **(parts | self.unreadable))

    def reading(self) -> WorkloadReading:
        return condense(self.view(), Redactor(b"k" * 32))

    def symptoms(self) -> Symptoms:
        """What triage would have gathered."""
        reading = None if "kubernetes" in self.faults else self.reading()
        texts = [pair for alert in self.alerts for pair in annotation_texts(alert.name, alert.annotations)]
        texts += [(f"an event of {event.kind} {event.name}", event.message) for event in (reading.events if reading else ())]
        return Symptoms(
            incident_id="01JNINCIDENT", at=NOW, target=self.target, alerts=tuple(_symptom(alert) for alert in self.alerts),
            workload=reading, measures=self.measures, rules=tuple(self.rules), configured=self.configured, faults=self.faults,
            instructions_in=places_with_orders(texts),
        )  # fmt: skip

    def observations(self, diagnosis: Diagnosis, **changes: Any) -> Observations:
        """What the verifier would have read for this diagnosis."""
        marks = (None, 2, "hash")
        fields: dict[str, Any] = {
            "incident_id": "01JNINCIDENT", "began_at": NOW, "at": NOW, "target": self.target, "family": diagnosis.best.family,
            "rivals": tuple(one.family for one in diagnosis.hypotheses[1:]),
            "alerts_since": min(alert.starts_at for alert in self.alerts),
            "workload": None if "kubernetes" in self.faults else self.reading(), "measures": self.measures,
            "rules": tuple(self.rules), "levels": tuple(self.levels), "firing": tuple(self.firing), "faults": self.faults,
            "marks_before": marks, "marks_after": marks,
        }  # fmt: skip
        return Observations(**(fields | changes))


def _symptom(alert: Alert) -> AlertSymptom:
    return AlertSymptom(
        name=alert.name, fingerprint=alert.fingerprint, status=alert.status, severity=alert.severity, starts_at=alert.starts_at,
        labels=alert.labels,
    )  # fmt: skip


def healthy(replicas: int = 3, *, memory: str = "192Mi", cpu: str = "500m", age: timedelta = timedelta(hours=6)) -> Scene:
    """All pods of one old revision, ready; nothing wrong, no measures yet."""
    scene = Scene(replicas=replicas)
    scene.replica_sets = [replica_set(1, replicas, created=NOW - age, memory=memory)]
    scene.pods = [pod(index, created=NOW - age, memory=memory, cpu=cpu) for index in range(replicas)]
    scene.conditions = [
        {
            "type": "Available", "status": "True", "reason": "MinimumReplicasAvailable",
            "lastTransitionTime": instant_text(NOW - age),
        },
        {
            "type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable",
            "lastTransitionTime": instant_text(NOW - age), "lastUpdateTime": instant_text(NOW - age),
        },
    ]  # fmt: skip
    return scene


def pod(
    index: int,
    *,
    revision: int = 1,
    created: datetime | None = None,
    memory: str = "192Mi",
    cpu: str = "500m",
    ready: bool = True,
    node_name: str = "n1",
    container: Mapping[str, Any] | None = None,
    phase: str = "Running",
) -> Raw:
    """A pod of the Deployment. `container` replaces fields of its container status."""
    created = created or ago(hours=6)
    running: Raw = {"running": {"startedAt": instant_text(created)}}
    status = {"name": "app", "ready": ready, "restartCount": 0, "state": running, "lastState": {}} | dict(container or {})
    name = f"api-{HASHES[revision]}-{'bcdfg'[index % 5]}{index:04d}"[: len(f"api-{HASHES[revision]}-") + 5]
    return {
        "metadata": {
            "name": name, "namespace": "shop", "uid": f"p-{revision}-{index}", "creationTimestamp": instant_text(created),
            "ownerReferences": [
                {"kind": "ReplicaSet", "name": f"api-{HASHES[revision]}", "uid": f"rs-{revision}", "controller": True}
            ],
        },
        "spec": {
            "nodeName": node_name,
            "containers": [{"name": "app", "resources": {"limits": {"memory": memory, "cpu": cpu}, "requests": {"cpu": cpu}}}],
        },
        "status": {
            "phase": phase,
            "conditions": [
                {"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": instant_text(created)},
                {"type": "PodScheduled", "status": "True"},
            ],
            "containerStatuses": [status],
        },
    }  # fmt: skip


def recorded_pod(index: int, name: str, *, revision: int = 1, shift: bool = True) -> Raw:
    """A pod with the status that a real kubelet wrote in the fault recording `name`, moved in time to end now."""
    found = recording(f"02-faults/{name}")
    status = deepcopy(found["GET status after 90 s"]["status"])
    if shift:
        status = _moved(status, _newest(status))
    made = pod(index, revision=revision)
    made["spec"]["containers"] = found["spec.containers"]
    made["spec"]["nodeName"] = "n1" if status.get("containerStatuses") else ""
    made["status"] = status
    return made


def recorded_events(name: str, pod_name: str) -> list[Raw]:
    """The events of a fault recording as events of the pod `pod_name`, of a minute ago."""
    return [
        event(
            entry["reason"], entry["message"], name=pod_name, count=entry.get("count") or 1, warning=entry.get("type") == "Warning"
        )
        for entry in recording(f"02-faults/{name}")["events"]
    ]


def event(reason: str, message: str, *, name: str, kind: str = "Pod", count: int = 1, warning: bool = True) -> Raw:
    return {
        "reason": reason, "message": message, "type": "Warning" if warning else "Normal", "count": count,
        "involvedObject": {"kind": kind, "name": name}, "lastTimestamp": instant_text(ago(minutes=1)), "metadata": {},
    }  # fmt: skip


def replica_set(
    revision: int, replicas: int, *, created: datetime, image: str = "registry.local/api:1", memory: str = "192Mi", stamp: str = ""
) -> Raw:
    """A revision; `stamp` marks its template as a mere restart."""
    annotations = {"sre-ladder.dev/restart": stamp} if stamp else {}
    containers = [{"name": "app", "image": image, "resources": {"limits": {"memory": memory}}}]
    return {
        "metadata": {
            "name": f"api-{HASHES[revision]}", "uid": f"rs-{revision}", "creationTimestamp": instant_text(created),
            "annotations": {"deployment.kubernetes.io/revision": str(revision)},
        },
        "spec": {
            "replicas": replicas,
            "template": {"metadata": {"labels": {"app": "api"}, "annotations": annotations}, "spec": {"containers": containers}},
        },
        "status": {"replicas": replicas, "readyReplicas": replicas},
    }  # fmt: skip


def node(name: str, *, ready: str = "True") -> Raw:
    return {
        "metadata": {"name": name, "uid": f"node-{name}"},
        "spec": {},
        "status": {"conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": instant_text(ago(minutes=5))}]},
    }


def alert(name: str, *, minutes_ago: float = 3, severity: str = "warning", status: str = "firing", **labels: str) -> Alert:
    marks = {"alertname": name, "severity": severity, "namespace": "shop", **labels}
    return Alert.model_validate(
        {"fingerprint": f"{abs(hash(tuple(sorted(marks.items())))):016x}"[:16], "status": status, "labels": marks,
         "starts_at": ago(minutes=minutes_ago)}
    )  # fmt: skip


def measure(name: str, by_pod: Mapping[str, float] | float | None, *, unknown: str = "", window: float = 120) -> Measure:
    """A measure: values by pod, or one value for the whole, or none and why."""
    values = {} if by_pod is None else {"": float(by_pod)} if isinstance(by_pod, int | float) else dict(by_pod)
    return Measure(name=name, by_pod=values, unknown=unknown or ("" if values else "empty"), at=NOW, window_seconds=window)


def with_measures(scene: Scene, **values: Mapping[str, float] | float | None) -> Scene:
    scene.measures |= {name: measure(name, value) for name, value in values.items()}
    return scene


def each(scene: Scene, *values: float) -> dict[str, float]:
    """One value per pod of the scene; a single value goes to all."""
    names = scene.names()
    return dict(zip(names, values * len(names) if len(values) == 1 else values, strict=False))


def leaking(scene: Scene, *, used: float = 0.7, per_minute: float = 8) -> Scene:
    """Memory at a share of the limit, growing by so many MiB per minute, over enough samples."""
    limit = 192 * MIB
    return with_measures(
        scene,
        memory=each(scene, used * limit),
        memory_slope=each(scene, per_minute * MIB / 60),
        memory_samples=each(scene, 30),
    )


def crashing(image: str = "registry.local/api:2") -> Scene:
    """Revision 2 crash-loops beside two healthy pods of revision 1."""
    scene = healthy(2)
    scene.replica_sets.append(replica_set(2, 1, created=ago(minutes=6), image=image))
    crash = {
        "ready": False,
        "restartCount": 5,
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s restarting failed container"}},
        "lastState": {
            "terminated": {
                "reason": "Error",
                "exitCode": 1,
                "startedAt": instant_text(ago(seconds=62)),
                "finishedAt": instant_text(ago(seconds=60)),
            }
        },
    }
    scene.pods.append(pod(9, revision=2, created=ago(minutes=6), ready=False, container=crash))
    scene.status = {"observedGeneration": 2, "replicas": 3, "updatedReplicas": 1, "readyReplicas": 2, "availableReplicas": 2}
    scene.conditions[1] |= {"status": "False", "reason": "ProgressDeadlineExceeded"}
    scene.status["conditions"] = scene.conditions
    scene.alerts = [alert("KubePodCrashLooping", severity="critical", pod=scene.names()[-1])]
    return scene


def outlier() -> Scene:
    scene = healthy(4)
    names = scene.names()
    with_measures(
        scene,
        latency=each(scene, 2.5, 0.2, 0.21, 0.19),
        requests=each(scene, 9, 10, 10, 10),
        errors=None,
        cpu=each(scene, 0.1),
        requests_usual=40,
    )
    scene.alerts = [alert("PodLatencyOutlier", pod=names[0])]
    scene.rules = [holds("PodLatencyOutlier", 2.5)]
    return scene


def loaded(replicas: int = 2, *, cpu: float = 0.475, growth: float = 3.0) -> Scene:
    scene = healthy(replicas)
    with_measures(
        scene,
        cpu=each(scene, cpu),
        requests=each(scene, 30),
        errors=None,
        requests_usual=30.0 * replicas / growth,
        latency=each(scene, 0.9),
    )
    scene.alerts = [alert("CPUSaturation", deployment="api"), alert("HighLatency", deployment="api")]
    scene.rules = [holds("CPUSaturation", 0.95), holds("HighLatency", 0.9)]
    return scene


def holds(name: str, value: float = 1.0) -> RuleReading:
    return RuleReading(alert=name, expression=f"{name.lower()}_metric > 0", holds=True, value=value, at=NOW)


def over(name: str) -> RuleReading:
    return RuleReading(alert=name, expression=f"{name.lower()}_metric > 0", holds=False, at=NOW)


def condition(conditions: Iterable[Mapping[str, Any]], type_: str) -> str:
    return str(next((one["status"] for one in conditions if one["type"] == type_), ""))


def _newest(status: Any) -> datetime:
    return max(_instants(status), default=NOW)


def _instants(value: Any) -> list[datetime]:
    if isinstance(value, dict):
        return [at for item in value.values() for at in _instants(item)]
    if isinstance(value, list):
        return [at for item in value for at in _instants(item)]
    if isinstance(value, str) and value.endswith("Z") and value[:2] == "20":
        return [datetime.fromisoformat(value)]
    return []


def _moved(value: Any, newest: datetime) -> Any:
    """All instants shifted so that the newest lies ten seconds ago."""
    if isinstance(value, dict):
        return {key: _moved(item, newest) for key, item in value.items()}
    if isinstance(value, list):
        return [_moved(item, newest) for item in value]
    found = _instants(value)
    return instant_text(found[0] - newest + NOW - timedelta(seconds=10)) if found else value
