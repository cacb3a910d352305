"""Raw Kubernetes objects reduced to readings: objects in, one `WorkloadReading` out.

Counts that the API omits are 0; instants that it leaves null are None; a pod with a deletion timestamp is no symptom and is
left out. Free text passes the redactor, names do not: identity is needed whole.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Literal

from catalog.marks import RESTART_ANNOTATION, TXN_ANNOTATION
from catalog.names import is_dns_label, is_dns_subdomain
from catalog.targets import WORKLOAD_KINDS, Target, TargetFacts, TargetKind
from sources.errors import SourceUnavailable
from sources.facts import facts_of
from sources.kubernetes import KubernetesReader
from sources.readings import (
    AutoscalerReading,
    BudgetReading,
    ConditionReading,
    ContainerReading,
    EventReading,
    NodeReading,
    PodReading,
    QuotaReading,
    RevisionReading,
    Termination,
    WorkloadReading,
)
from sources.redaction import Redactor
from sources.rollouts import deployment_complete, observed, template_hash
from sources.workloads import Marks, WorkloadView, event_count, event_time, read_marks, read_workload

MAX_PODS = 20
MAX_POD_NAMES = 100
MAX_EVENTS = 25
MAX_REVISIONS = 6
MAX_MESSAGE = 240

Raw = Mapping[str, Any]

_PARTS = ("replica_sets", "pods", "events", "nodes", "services", "endpoint_slices", "autoscalers", "budgets", "quotas")

_NONSENSE = (AttributeError, KeyError, TypeError, ValueError)
_RESTART_STAMPS = frozenset({RESTART_ANNOTATION, "kubectl.kubernetes.io/restartedAt"})
_SUFFIXES = {
    "": Decimal(1), "m": Decimal("0.001"), "k": Decimal(10) ** 3, "M": Decimal(10) ** 6, "G": Decimal(10) ** 9,
    "T": Decimal(10) ** 12, "P": Decimal(10) ** 15, "E": Decimal(10) ** 18, "Ki": Decimal(2) ** 10, "Mi": Decimal(2) ** 20,
    "Gi": Decimal(2) ** 30, "Ti": Decimal(2) ** 40, "Pi": Decimal(2) ** 50, "Ei": Decimal(2) ** 60,
}  # fmt: skip


def instant(text: object) -> datetime | None:
    """An RFC 3339 instant of the API; None for null, for nonsense and for the zero of 1970 that a failed start carries."""
    if not isinstance(text, str) or not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    found = found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    return found if found.year > 1970 else None


def quantity(text: object) -> Decimal | None:
    """A Kubernetes quantity (`192Mi`, `500m`, `1e3`) as a number; None when it is none."""
    if isinstance(text, int | float):
        return Decimal(str(text))
    if not isinstance(text, str):
        return None
    digits = text.rstrip("KMGTPEimk") if not text[-1:].isdigit() else text
    suffix = text[len(digits) :]
    if suffix not in _SUFFIXES:
        return None
    try:
        return Decimal(digits) * _SUFFIXES[suffix]
    except InvalidOperation:
        return None


def content_digest(template: Raw) -> str:
    """What a pod template releases: its digest without restart stamps and the hash label that the controller adds."""
    metadata = template.get("metadata") or {}
    labels = {key: value for key, value in (metadata.get("labels") or {}).items() if key != "pod-template-hash"}
    annotations = {key: value for key, value in (metadata.get("annotations") or {}).items() if key not in _RESTART_STAMPS}
    body = {"labels": labels, "annotations": annotations, "spec": template.get("spec") or {}}
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:16]


def condition_readings(conditions: Sequence[Raw], redactor: Redactor) -> tuple[ConditionReading, ...]:
    return tuple(
        ConditionReading(
            type=str(condition.get("type", "")),
            status=str(condition.get("status", "")),
            reason=str(condition.get("reason") or ""),
            message=_words(condition.get("message"), redactor),
            at=instant(condition.get("lastTransitionTime")),
        )
        for condition in conditions
    )


def container_readings(pod: Raw, redactor: Redactor) -> tuple[ContainerReading, ...]:
    """Its init containers, then its containers, each with its sizes from the spec and its state from the status."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    readings = []
    for init, specs, states in (
        (True, spec.get("initContainers"), status.get("initContainerStatuses")),
        (False, spec.get("containers"), status.get("containerStatuses")),
    ):
        by_name = {state.get("name"): state for state in states or ()}
        names = [container.get("name") for container in specs or ()] or list(by_name)
        sizes = {container.get("name"): container for container in specs or ()}
        readings += [
            _container(str(name), init, sizes.get(name, {}), by_name.get(name, {}), redactor) for name in names if name is not None
        ]
    return tuple(readings)


def pod_reading(pod: Raw, revisions: Mapping[str, int], newest: int | None, redactor: Redactor) -> PodReading:
    """One pod; `revisions` maps ReplicaSet UIDs to their revision."""
    metadata, status = pod.get("metadata") or {}, pod.get("status") or {}
    conditions = {condition.get("type"): condition for condition in status.get("conditions") or ()}
    ready = conditions.get("Ready", {})
    scheduled = conditions.get("PodScheduled", {})
    owner: Raw = next((owner for owner in metadata.get("ownerReferences") or () if owner.get("controller")), {})
    revision = revisions.get(owner.get("uid", ""))
    is_ready = ready.get("status") == "True"
    return PodReading(
        name=str(metadata.get("name", "")),
        uid=str(metadata.get("uid", "")),
        phase=str(status.get("phase", "")),
        ready=is_ready,
        unready_since=None if is_ready else instant(ready.get("lastTransitionTime")),
        created_at=instant(metadata.get("creationTimestamp")),
        node=str((pod.get("spec") or {}).get("nodeName") or ""),
        owner_uid=str(owner.get("uid", "")),
        revision=revision,
        newest=None if revision is None or newest is None else revision == newest,
        unschedulable=_words(scheduled.get("message"), redactor) or "Unschedulable" if scheduled.get("status") == "False" else "",
        containers=container_readings(pod, redactor),
    )


def event_readings(events: Iterable[Raw], redactor: Redactor) -> tuple[EventReading, ...]:
    """Events, warnings before others of the same age, newest first; at most one per (object, reason, message)."""
    readings: dict[tuple[str, str, str], EventReading] = {}
    for event in events:
        about = event.get("involvedObject") or event.get("regarding") or {}
        reading = EventReading(
            reason=str(event.get("reason") or ""),
            kind=str(about.get("kind") or ""),
            name=str(about.get("name") or ""),
            message=_words(event.get("message") or event.get("note"), redactor),
            count=event_count(dict(event)),
            at=event_time(dict(event)),
            warning=event.get("type") == "Warning",
        )
        key = (reading.name, reading.reason, reading.message)
        if key not in readings or _age_key(reading) > _age_key(readings[key]):
            readings[key] = reading
    return tuple(sorted(readings.values(), key=_age_key, reverse=True))


def revision_readings(replica_sets: Iterable[Raw]) -> tuple[RevisionReading, ...]:
    """Revisions of a Deployment, newest first."""
    readings = []
    for replica_set in replica_sets:
        metadata, spec, status = (replica_set.get(key) or {} for key in ("metadata", "spec", "status"))
        number = (metadata.get("annotations") or {}).get("deployment.kubernetes.io/revision", "")
        if not number.isdecimal():
            continue
        template = spec.get("template") or {}
        containers = (template.get("spec") or {}).get("containers") or ()
        limits = {str(container.get("name")): _size(container, "limits", "memory") for container in containers}
        readings.append(
            RevisionReading(
                revision=int(number),
                replica_set=str(metadata.get("name", "")),
                created_at=instant(metadata.get("creationTimestamp")),
                replicas=int(spec.get("replicas") or 0),
                ready=int(status.get("readyReplicas") or 0),
                reused="deployment.kubernetes.io/revision-history" in (metadata.get("annotations") or {}),
                content=content_digest(template),
                images=tuple(str(container.get("image", "")) for container in containers),
                memory_limits={name: int(limit) for name, limit in limits.items() if limit is not None},
            )
        )
    return tuple(sorted(readings, key=lambda reading: reading.revision, reverse=True))


def node_readings(nodes: Iterable[Raw]) -> tuple[NodeReading, ...]:
    readings = []
    for node in nodes:
        conditions = {condition.get("type"): condition for condition in (node.get("status") or {}).get("conditions") or ()}
        ready = conditions.get("Ready", {})
        readings.append(
            NodeReading(
                name=str((node.get("metadata") or {}).get("name", "")),
                ready=_ready_status(ready.get("status")),
                ready_since=instant(ready.get("lastTransitionTime")),
                pressures=tuple(
                    sorted(
                        type_
                        for type_, condition in conditions.items()
                        if type_ and type_ != "Ready" and condition.get("status") == "True"
                    )
                ),
                cordoned=bool((node.get("spec") or {}).get("unschedulable")),
            )
        )
    return tuple(sorted(readings, key=lambda reading: reading.name))


def autoscaler_readings(autoscalers: Iterable[Raw]) -> tuple[AutoscalerReading, ...]:
    readings = []
    for autoscaler in autoscalers:
        metadata, spec, status = (autoscaler.get(key) or {} for key in ("metadata", "spec", "status"))
        conditions = {condition.get("type"): condition for condition in status.get("conditions") or ()}
        limited, active = conditions.get("ScalingLimited", {}), conditions.get("ScalingActive", {})
        readings.append(
            AutoscalerReading(
                name=str(metadata.get("name", "")),
                minimum=int(spec.get("minReplicas", spec.get("minReplicaCount", 1)) or 0),
                maximum=int(spec.get("maxReplicas", spec.get("maxReplicaCount", 0)) or 0),
                current=int(status.get("currentReplicas") or 0),
                desired=int(status.get("desiredReplicas") or 0),
                limited=str(limited.get("reason") or "") if limited.get("status") == "True" else "",
                blind=str(active.get("reason") or "") if active.get("status") == "False" else "",
            )
        )
    return tuple(readings)


def quota_readings(quotas: Iterable[Raw]) -> tuple[QuotaReading, ...]:
    readings = []
    for quota in quotas:
        status = quota.get("status") or {}
        used = status.get("used") or {}
        full = []
        for resource, hard in sorted((status.get("hard") or {}).items()):
            have, bound = quantity(used.get(resource)), quantity(hard)
            if have is not None and bound is not None and bound > 0 and have >= bound:
                full.append(f"{resource} {used.get(resource)} of {hard}")
        readings.append(QuotaReading(name=str((quota.get("metadata") or {}).get("name", "")), full=tuple(full)))
    return tuple(readings)


def budget_readings(budgets: Iterable[Raw]) -> tuple[BudgetReading, ...]:
    return tuple(
        BudgetReading(
            name=str((budget.get("metadata") or {}).get("name", "")),
            allowed=(budget.get("status") or {}).get("disruptionsAllowed", 0) if budget.get("status") else None,
        )
        for budget in budgets
    )


@dataclass(frozen=True)
class Condensed:
    """One read of a target: reduced, and as the gates need it."""

    workload: WorkloadReading
    facts: TargetFacts


async def read_condensed(
    reader: KubernetesReader, target: Target, redactor: Redactor, *, named: frozenset[str] = frozenset()
) -> Condensed:
    """Read a target with what surrounds it, and reduce it. Pods in `named` are kept before others when there are too many.

    Raises:
        SourceUnavailable: the object itself could not be read, its names are none, or what came is not what it says it is.
    """
    with _nonsense_is_unavailable(target):
        view = await read_workload(reader, target)
        return Condensed(condense(view, redactor, named=named), facts_of(view, view.observed_at))


async def read_marks_of(reader: KubernetesReader, target: Target) -> Marks:
    """(txn annotation, generation, template hash) of the live target.

    Raises:
        SourceUnavailable: as `read_condensed`.
    """
    with _nonsense_is_unavailable(target):
        return await read_marks(reader, target)


def condense(view: WorkloadView, redactor: Redactor, *, named: frozenset[str] = frozenset()) -> WorkloadReading:
    """Everything read of one target, reduced.

    Raises:
        SourceUnavailable: the object itself could not be read.
    """
    if isinstance(view.workload, SourceUnavailable):
        raise view.workload
    return _condensed(view, view.workload, redactor, named)


@contextmanager
def _nonsense_is_unavailable(target: Target) -> Iterator[None]:
    """An API that answers with objects of another shape than their kind has is a source that cannot be read."""
    if not is_dns_subdomain(target.name) or not (target.namespace == "" or is_dns_label(target.namespace)):
        raise SourceUnavailable("kubernetes", "malformed", "the target's names are not Kubernetes names")
    try:
        yield
    except _NONSENSE as error:
        raise _nonsense() from error
    except ExceptionGroup as group:
        if group.split(_NONSENSE)[1] is not None:
            raise
        raise _nonsense() from group


def _nonsense() -> SourceUnavailable:
    return SourceUnavailable("kubernetes", "malformed", "objects that are not of the kind they say")


def _condensed(view: WorkloadView, workload: Raw | None, redactor: Redactor, named: frozenset[str]) -> WorkloadReading:
    parts = {name: getattr(view, name) for name in _PARTS}
    lists = {name: part for name, part in parts.items() if isinstance(part, list)}
    raw = workload or {}
    metadata, spec, status = (raw.get(key) or {} for key in ("metadata", "spec", "status"))
    template = spec.get("template") or {}
    revisions = revision_readings(lists.get("replica_sets", ()))
    pods = _live_pods(lists, revisions, redactor, named)
    events = event_readings(lists.get("events", ()), redactor)
    manager, written_at = _replicas_writer(metadata)
    return WorkloadReading(
        target=view.target,
        read_at=view.observed_at,
        exists=workload is not None,
        unreadable={name: str(part) for name, part in parts.items() if isinstance(part, SourceUnavailable)},
        marks=_marks(raw),
        **_counts(view),
        paused=bool(spec.get("paused")),
        generation_behind=bool(raw) and not observed(dict(raw)),
        conditions=condition_readings(status.get("conditions") or (), redactor),
        pods=pods[:MAX_PODS],
        pods_total=len(pods),
        pod_names=tuple(pod.name for pod in pods[:MAX_POD_NAMES]),
        events=events[:MAX_EVENTS],
        events_cut=max(0, len(events) - MAX_EVENTS),
        revisions=revisions[:MAX_REVISIONS],
        nodes=node_readings(lists.get("nodes", ())),
        autoscalers=autoscaler_readings(lists.get("autoscalers", ())),
        budgets=budget_readings(lists.get("budgets", ())),
        quotas=quota_readings(lists.get("quotas", ())),
        rolled_at=_rolled_at(status.get("conditions") or ()),
        replicas_set_by=manager,
        replicas_set_at=written_at,
        data_on_empty_dir=_disk_empty_dir(template),
        secrets=_start_secrets(template),
    )


def _live_pods(
    lists: Mapping[str, Sequence[Raw]], revisions: Sequence[RevisionReading], redactor: Redactor, named: frozenset[str]
) -> tuple[PodReading, ...]:
    numbers = {reading.replica_set: reading.revision for reading in revisions}
    owners = {
        str(metadata.get("uid", "")): numbers[metadata["name"]]
        for replica_set in lists.get("replica_sets", ())
        if (metadata := replica_set.get("metadata") or {}).get("name") in numbers
    }
    newest = revisions[0].revision if revisions else None
    readings = [pod_reading(pod, owners, newest, redactor) for pod in lists.get("pods", ()) if not _deleting(pod)]
    return tuple(sorted(readings, key=lambda pod: (pod.ready, pod.name not in named, pod.name)))


def _deleting(pod: Raw) -> bool:
    return bool((pod.get("metadata") or {}).get("deletionTimestamp"))


def _marks(raw: Raw) -> tuple[str | None, int | None, str | None]:
    metadata = raw.get("metadata") or {}
    hashed = template_hash(dict(raw)) if (raw.get("spec") or {}).get("template") else None
    return ((metadata.get("annotations") or {}).get(TXN_ANNOTATION), metadata.get("generation"), hashed)


def _counts(view: WorkloadView) -> dict[str, Any]:
    """Replica counts, for kinds that have them."""
    if not isinstance(view.workload, dict) or view.target.kind not in WORKLOAD_KINDS:
        return {}
    facts = facts_of(view, view.observed_at)
    deployment = view.target.kind is TargetKind.DEPLOYMENT
    spec = view.workload.get("spec") or {}
    return {
        "desired": facts.desired,
        "ready": facts.ready,
        "available": facts.available,
        "rolling": bool(facts.rolling_out),
        "complete": deployment_complete(view.workload) if deployment else None,
        "progress_deadline_seconds": spec.get("progressDeadlineSeconds", 600) if deployment else None,
    }


def _container(name: str, init: bool, spec: Raw, status: Raw, redactor: Redactor) -> ContainerReading:
    state: Raw = status.get("state") or {}
    kind: Literal["running", "waiting", "terminated", "unknown"] = "unknown"
    if "running" in state:
        kind = "running"
    elif "waiting" in state:
        kind = "waiting"
    elif "terminated" in state:
        kind = "terminated"
    waiting: Raw = state.get("waiting") or {}
    ended: Raw = state.get("terminated") or (status.get("lastState") or {}).get("terminated") or {}
    cpu_limit, cpu_request = _size(spec, "limits", "cpu"), _size(spec, "requests", "cpu")
    memory = _size(spec, "limits", "memory")
    return ContainerReading(
        name=name,
        init=init,
        ready=bool(status.get("ready")),
        state=kind,
        waiting=str(waiting.get("reason") or ""),
        message=_words(waiting.get("message") or ended.get("message"), redactor),
        running_since=instant((state.get("running") or {}).get("startedAt")),
        restarts=int(status.get("restartCount") or 0),
        ended=_termination(ended) if ended else None,
        memory_limit=None if memory is None else int(memory),
        cpu_limit=None if cpu_limit is None else float(cpu_limit),
        cpu_request=None if cpu_request is None else float(cpu_request),
    )


def _termination(ended: Raw) -> Termination:
    started, finished = instant(ended.get("startedAt")), instant(ended.get("finishedAt"))
    return Termination(
        reason=str(ended.get("reason") or ""),
        exit_code=ended.get("exitCode"),
        at=finished,
        ran_seconds=max(0.0, (finished - started).total_seconds()) if started and finished else None,
    )


def _size(container: Raw, bound: str, resource: str) -> Decimal | None:
    return quantity(((container.get("resources") or {}).get(bound) or {}).get(resource))


def _words(text: object, redactor: Redactor) -> str:
    return redactor.text(str(text))[:MAX_MESSAGE] if text else ""


def _age_key(event: EventReading) -> tuple[float, bool]:
    return (event.at.timestamp() if event.at else 0.0, event.warning)


def _rolled_at(conditions: Sequence[Raw]) -> datetime | None:
    progressing = next((condition for condition in conditions if condition.get("type") == "Progressing"), {})
    return instant(progressing.get("lastUpdateTime"))


def _ready_status(text: object) -> Literal["True", "False", "Unknown", ""]:
    match text:
        case "True" | "False" | "Unknown":
            return text
        case _:
            return ""


def _replicas_writer(metadata: Raw) -> tuple[str, datetime | None]:
    """Field manager that owns `spec.replicas`, with the time of its last write."""
    owners = [
        (str(entry.get("manager", "")), instant(entry.get("time")))
        for entry in metadata.get("managedFields") or ()
        if "f:replicas" in ((entry.get("fieldsV1") or {}).get("f:spec") or {})
    ]
    return max(owners, key=lambda owner: owner[1] or datetime.min.replace(tzinfo=UTC), default=("", None))


def _disk_empty_dir(template: Raw) -> bool:
    """Whether a restart would lose files: an emptyDir that is not memory (which dies with the process that fills it)."""
    volumes = (template.get("spec") or {}).get("volumes") or ()
    return any("emptyDir" in volume and (volume["emptyDir"] or {}).get("medium") != "Memory" for volume in volumes)


def _start_secrets(template: Raw) -> tuple[str, ...]:
    names = set()
    for container in (template.get("spec") or {}).get("containers") or ():
        for entry in container.get("env") or ():
            names.add((((entry.get("valueFrom") or {}).get("secretKeyRef")) or {}).get("name"))
        for entry in container.get("envFrom") or ():
            names.add((entry.get("secretRef") or {}).get("name"))
    return tuple(sorted(name for name in names if name))
