"""The scheduler: finds a node for each pod that has none, or says why there is none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from sandbox.controllers.engine import Engine, Key
from sandbox.controllers.facts import condition_of, controller_of, is_finished, is_terminating, labels_of, stamp
from sandbox.controllers.quantities import pod_total, quantity
from sandbox.controllers.recorder import Recorder
from sandbox.kinds import NODES, PERSISTENT_VOLUME_CLAIMS, PODS
from sandbox.shelves import Change, copied
from sandbox.store import Store

Json = dict[str, Any]

RETRY_S = 300.0
"""Model seconds after which an unschedulable pod is tried again though nothing changed."""
_RESOURCES = ("cpu", "memory")


@dataclass
class _Load:
    """What the pods on one node ask for."""

    cpu: Decimal = Decimal(0)
    memory: Decimal = Decimal(0)
    pods: int = 0


class Scheduler:
    """Binds pods. `observe` must see every change of pods, to know how full the nodes are."""

    name = "scheduler"

    def __init__(self, store: Store, engine: Engine, recorder: Recorder) -> None:
        self._store = store
        self._engine = engine
        self._recorder = recorder
        self._loads: dict[str, _Load] = {}
        self._siblings: dict[str, Counter[str]] = {}
        """Pods per node, by uid of their owner."""
        self._waiting: set[Key] = set()

    def observe(self, change: Change) -> None:
        """Keep the loads of nodes, and look at waiting pods again when a place may have become free."""
        before = change.previous.body if change.previous is not None else None
        after = change.object if change.type != "DELETED" else None
        if before is not None:
            self._count(before, -1)
        if after is not None:
            self._count(after, 1)
        if before is not None and _takes_place(before) and not (after is not None and _takes_place(after)):
            self.wake()

    def wake(self) -> None:
        """Nodes changed: try the waiting pods again."""
        for key in sorted(self._waiting):
            self._engine.changed(self.name, key)

    def sync(self, key: Key) -> float | None:
        pod = self._store.find(PODS, *key)
        if pod is None or pod["spec"].get("nodeName") or is_terminating(pod) or is_finished(pod):
            self._waiting.discard(key)
            return None
        nodes = self._store.list(NODES)
        problems: Counter[str] = Counter()
        fitting = []
        lasting = 0
        claim = self._claim_problem(pod)
        asked = {resource: pod_total(pod["spec"], "requests", resource) for resource in _RESOURCES}
        for node in nodes:
            problem = claim or self._problem(pod, node, asked)
            if problem:
                problems[problem[0]] += 1
                lasting += problem[1]
            else:
                fitting.append(node)
        if not fitting:
            self._waiting.add(key)
            self._refuse(pod, len(nodes), problems, lasting)
            return RETRY_S
        self._waiting.discard(key)
        self._bind(pod, self._best(pod, fitting))
        return None

    def _problem(self, pod: Json, node: Json, asked: Mapping[str, Decimal]) -> tuple[str, int] | None:
        """(why the pod does not fit, 1 if removing other pods would not help either)."""
        spec = node.get("spec") or {}
        if spec.get("unschedulable") and not _tolerates(pod, {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}):
            return "node(s) were unschedulable", 1
        for taint in spec.get("taints") or ():
            if taint["effect"] in ("NoSchedule", "NoExecute") and not _tolerates(pod, taint):
                return "node(s) had untolerated taint(s)", 1
        if not _selected(pod, node):
            return "node(s) didn't match Pod's node affinity/selector", 1
        allocatable = (node.get("status") or {}).get("allocatable") or {}
        load = self._loads.get(node["metadata"]["name"], _Load())
        for resource in _RESOURCES:
            if not asked[resource]:
                continue
            room = quantity(allocatable.get(resource, "0"))
            if asked[resource] + getattr(load, resource) > room:
                return f"Insufficient {resource}", int(asked[resource] > room)
        if load.pods + 1 > int(allocatable.get("pods", 110)):
            return "Too many pods", 0
        return None

    def _claim_problem(self, pod: Json) -> tuple[str, int] | None:
        for volume in pod["spec"].get("volumes") or ():
            name = (volume.get("persistentVolumeClaim") or {}).get("claimName")
            if not name:
                continue
            claim = self._store.find(PERSISTENT_VOLUME_CLAIMS, pod["metadata"]["namespace"], name)
            if claim is None:
                return f'persistentvolumeclaim "{name}" not found', 1
            if (claim.get("status") or {}).get("phase") != "Bound":
                return "pod has unbound immediate PersistentVolumeClaims", 1
        return None

    def _best(self, pod: Json, nodes: list[Json]) -> Json:
        """Spread the pods of one owner, then all pods; by name among equals."""
        owner = controller_of(pod)
        crowd = self._siblings.get(owner["uid"], Counter()) if owner else Counter()

        def rank(node: Json) -> tuple[int, int, str]:
            name = node["metadata"]["name"]
            return crowd[name], self._loads.get(name, _Load()).pods, name

        return min(nodes, key=rank)

    def _bind(self, pod: Json, node: Json) -> None:
        metadata = pod["metadata"]
        name = node["metadata"]["name"]
        body = copied(pod)
        body["spec"]["nodeName"] = name
        status = body.setdefault("status", {"phase": "Pending"})
        status["conditions"] = [self._condition(pod, "True", "", "")]
        bound = self._store.update(PODS, body)
        place = f"{metadata['namespace']}/{metadata['name']}"
        self._recorder.scheduler(bound, "Normal", "Scheduled", f"Successfully assigned {place} to {name}", "Binding")

    def _refuse(self, pod: Json, count: int, problems: Counter[str], lasting: int) -> None:
        message = "no nodes available to schedule pods"
        if count:
            reasons = ", ".join(f"{number} {text}" if _counts(text) else text for text, number in sorted(problems.items()))
            helpful = count - lasting
            why = [f"{lasting} Preemption is not helpful for scheduling"] if lasting else []
            why += [f"{helpful} No preemption victims found for incoming pod"] if helpful else []
            message = f"0/{count} nodes are available: {reasons}. no new claims to deallocate, preemption: "
            message += f"0/{count} nodes are available: {', '.join(sorted(why))}."
        self._recorder.scheduler(pod, "Warning", "FailedScheduling", message, "Scheduling")
        known = condition_of(pod, "PodScheduled")
        if known and known["status"] == "False" and known.get("message") == message:
            return
        condition = self._condition(pod, "False", "Unschedulable", message)
        status = {
            "phase": "Pending",
            "conditions": [condition],
            "qosClass": (pod.get("status") or {}).get("qosClass", "BestEffort"),
        }
        self._store.patch_status(PODS, pod["metadata"]["namespace"], pod["metadata"]["name"], status)

    def _condition(self, pod: Json, value: str, reason: str, message: str) -> Json:
        body: Json = {
            "type": "PodScheduled",
            "observedGeneration": pod["metadata"].get("generation", 1),
            "status": value,
            "lastProbeTime": None,
            "lastTransitionTime": stamp(self._engine.clock.now()),
        }
        return body | ({"reason": reason, "message": message} if reason else {})

    def _count(self, pod: Json, sign: int) -> None:
        if not _takes_place(pod):
            return
        load = self._loads.setdefault(pod["spec"]["nodeName"], _Load())
        load.cpu += sign * pod_total(pod["spec"], "requests", "cpu")
        load.memory += sign * pod_total(pod["spec"], "requests", "memory")
        load.pods += sign
        owner = controller_of(pod)
        if owner is not None:
            crowd = self._siblings.setdefault(owner["uid"], Counter())
            crowd[pod["spec"]["nodeName"]] += sign
            if not +crowd:
                del self._siblings[owner["uid"]]


def _takes_place(pod: Json) -> bool:
    return bool(pod["spec"].get("nodeName")) and not is_finished(pod)


def _counts(text: str) -> bool:
    return not text.startswith(("persistentvolumeclaim", "pod has"))


def _tolerates(pod: Json, taint: Mapping[str, Any]) -> bool:
    for toleration in pod["spec"].get("tolerations") or ():
        if toleration.get("effect") and toleration["effect"] != taint["effect"]:
            continue
        if toleration.get("operator") == "Exists":
            if not toleration.get("key") or toleration["key"] == taint["key"]:
                return True
        elif toleration.get("key") == taint["key"] and toleration.get("value", "") == taint.get("value", ""):
            return True
    return False


def _selected(pod: Json, node: Json) -> bool:
    labels = labels_of(node)
    if any(labels.get(key) != value for key, value in (pod["spec"].get("nodeSelector") or {}).items()):
        return False
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if not required:
        return True
    return any(
        all(_matches(term, labels) for term in item.get("matchExpressions") or ())
        for item in required.get("nodeSelectorTerms") or ()
    )


def _matches(term: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    value = labels.get(term["key"])
    match term["operator"]:
        case "In":
            return value in term.get("values", ())
        case "NotIn":
            return value not in term.get("values", ())
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return False
