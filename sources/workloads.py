"""One workload with everything around it that a decision needs, read in two rounds of parallel requests.

The cost does not grow with the cluster: the only list of pods is that of the workload's own selector, nodes are read one by
one, events by the UID of what they are about, and the ready pods of the namespace are summed from a bounded page of its
workloads. A part that could not be read is a `SourceUnavailable` in its place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeVar

from catalog.clocks import Clock
from catalog.targets import WORKLOAD_KINDS, Target, TargetFacts, TargetKind
from sources.errors import SourceUnavailable
from sources.events import event_count, event_time
from sources.facts import facts_of
from sources.kubernetes import JsonObject, KubernetesReader, object_path
from sources.namespaces import namespace_ready
from sources.rollouts import deployment_complete, template_hash
from sources.selectors import SelectorInvalid, selector_text, selects, service_selects

__all__ = [
    "WorkloadView",
    "deployment_complete",
    "event_count",
    "event_time",
    "facts_of",
    "read_facts",
    "read_marks",
    "read_workload",
    "taint",
    "template_hash",
]

Objects = list[JsonObject]
Marks = tuple[str | None, int | None, str | None]
_T = TypeVar("_T")

MAX_NODES = 32
MAX_CLAIMS = 16
MAX_TROUBLED_PODS = 3  # a server without an index looks through all events of the namespace for each
MAX_EVENTS_EACH = 100

PLACES: dict[TargetKind, tuple[str, str]] = {
    TargetKind.DEPLOYMENT: ("apps/v1", "deployments"),
    TargetKind.STATEFULSET: ("apps/v1", "statefulsets"),
    TargetKind.DAEMONSET: ("apps/v1", "daemonsets"),
    TargetKind.REPLICASET: ("apps/v1", "replicasets"),
    TargetKind.JOB: ("batch/v1", "jobs"),
    TargetKind.CRONJOB: ("batch/v1", "cronjobs"),
    TargetKind.POD: ("v1", "pods"),
    TargetKind.NODE: ("v1", "nodes"),
    TargetKind.NAMESPACE: ("v1", "namespaces"),
    TargetKind.SERVICE: ("v1", "services"),
    TargetKind.PERSISTENT_VOLUME_CLAIM: ("v1", "persistentvolumeclaims"),
    TargetKind.PERSISTENT_VOLUME: ("v1", "persistentvolumes"),
    TargetKind.HORIZONTAL_POD_AUTOSCALER: ("autoscaling/v2", "horizontalpodautoscalers"),
    TargetKind.POD_DISRUPTION_BUDGET: ("policy/v1", "poddisruptionbudgets"),
    TargetKind.RESOURCE_QUOTA: ("v1", "resourcequotas"),
}
"""API version and plural of each kind that can be read; a custom resource or the cluster as a whole cannot."""


@dataclass(frozen=True)
class WorkloadView:
    """Raw objects of one target. A part that is a `SourceUnavailable` could not be read; `[]` was read and there is none.

    `workload` None: the object does not exist. `pods` are live ones: a pod that is being deleted is left out.
    `namespace_ready` is a lower bound where the namespace has more workloads than one page.
    """

    target: Target
    observed_at: datetime
    workload: JsonObject | SourceUnavailable | None
    replica_sets: Objects | SourceUnavailable = field(default_factory=list)
    pods: Objects | SourceUnavailable = field(default_factory=list)
    events: Objects | SourceUnavailable = field(default_factory=list)
    nodes: Objects | SourceUnavailable = field(default_factory=list)
    services: Objects | SourceUnavailable = field(default_factory=list)
    endpoint_slices: Objects | SourceUnavailable = field(default_factory=list)
    autoscalers: Objects | SourceUnavailable = field(default_factory=list)
    budgets: Objects | SourceUnavailable = field(default_factory=list)
    quotas: Objects | SourceUnavailable = field(default_factory=list)
    limit_ranges: Objects | SourceUnavailable = field(default_factory=list)
    claims: Objects | SourceUnavailable = field(default_factory=list)
    namespace: JsonObject | SourceUnavailable | None = None
    namespace_ready: int | SourceUnavailable | None = None


async def read_facts(reader: KubernetesReader, target: Target, clock: Clock) -> TargetFacts:
    """What the gates need to know of the live target.

    Raises:
        SourceUnavailable: the object itself could not be read. Parts around it are named in `unread` instead.
    """
    view = await read_workload(reader, target, only_for_facts=True)
    return facts_of(view, clock.now())


async def read_workload(reader: KubernetesReader, target: Target, *, only_for_facts: bool = False) -> WorkloadView:
    """The target and what surrounds it. Never raises for a part; `workload` says whether the object itself was read.

    `only_for_facts` leaves out what `facts_of` does not look at: events, nodes, endpoint slices, quotas, limit ranges.

    Raises:
        ValueError: the target's names are not Kubernetes names.
    """
    now = reader.clock.now()
    if target.kind not in PLACES:
        return WorkloadView(target=target, observed_at=now, workload=_unreadable(target))
    workload = await _part(_get(reader, target))
    if not isinstance(workload, dict):
        return WorkloadView(target=target, observed_at=now, workload=workload)
    if target.kind in WORKLOAD_KINDS | {TargetKind.REPLICASET, TargetKind.POD, TargetKind.JOB}:
        return await _with_pods(reader, target, workload, now, only_for_facts)
    uid = workload["metadata"].get("uid", "")
    namespace, events = await asyncio.gather(
        _part(_namespace(reader, target)), _part(_events(reader, target.namespace or "default", [uid]))
    )
    nodes = [workload] if target.kind is TargetKind.NODE else []
    return WorkloadView(target=target, observed_at=now, workload=workload, namespace=namespace, events=events, nodes=nodes)


async def _with_pods(
    reader: KubernetesReader, target: Target, workload: JsonObject, now: datetime, only_for_facts: bool
) -> WorkloadView:
    space = target.namespace
    async with asyncio.TaskGroup() as first:
        reading_sets = first.create_task(_part(_replica_sets(reader, target, workload)))
        reading_pods = first.create_task(_part(_pods(reader, target, workload)))
        reading_services = first.create_task(_part(reader.list(object_path("v1", "services", namespace=space))))
        autoscalers = first.create_task(_part(_autoscalers(reader, target)))
        reading_budgets = first.create_task(_part(reader.list(object_path("policy/v1", "poddisruptionbudgets", namespace=space))))
        claims = first.create_task(_part(_claims(reader, space, workload)))
        namespace = first.create_task(_part(_namespace(reader, target)))
        ready = first.create_task(_part(namespace_ready(reader, target, workload)))
    replica_sets = reading_sets.result()
    pods = _owned_pods(target, workload, replica_sets, reading_pods.result())
    labels = _pod_labels(workload, pods)
    services = _chosen(reading_services.result(), lambda one: service_selects((one.get("spec") or {}).get("selector"), labels))
    budgets = _chosen(reading_budgets.result(), lambda one: selects((one.get("spec") or {}).get("selector"), labels))
    view = WorkloadView(
        target=target,
        observed_at=now,
        workload=workload,
        replica_sets=replica_sets,
        pods=pods,
        services=services,
        autoscalers=autoscalers.result(),
        budgets=budgets,
        claims=claims.result(),
        namespace=namespace.result(),
        namespace_ready=ready.result(),
    )
    if only_for_facts:
        return view
    async with asyncio.TaskGroup() as second:
        quotas = second.create_task(_part(reader.list(object_path("v1", "resourcequotas", namespace=space))))
        limit_ranges = second.create_task(_part(reader.list(object_path("v1", "limitranges", namespace=space))))
        slices = second.create_task(_part(_endpoint_slices(reader, space, services)))
        nodes = second.create_task(_part(_nodes(reader, pods)))
        events = second.create_task(_part(_events(reader, space, _event_subjects(workload, replica_sets, pods))))
    return replace(
        view,
        events=events.result(),
        nodes=nodes.result(),
        endpoint_slices=slices.result(),
        quotas=quotas.result(),
        limit_ranges=limit_ranges.result(),
    )


async def read_marks(reader: KubernetesReader, target: Target) -> Marks:
    """(txn annotation, generation, template hash) of the live target, in one request; all None when it does not exist.

    Raises:
        SourceUnavailable: it could not be read.
    """
    if target.kind not in PLACES:
        raise _unreadable(target)
    workload = await _get(reader, target)
    if workload is None:
        return (None, None, None)
    return facts_of(
        WorkloadView(target=target, observed_at=reader.clock.now(), workload=workload), reader.clock.now()
    ).changed_marks


def taint(before: TargetFacts | Marks, after: TargetFacts | Marks) -> str | None:
    """Why evidence read between `before` and `after` cannot be trusted; None when the target stood still.

    Somebody wrote to the target meanwhile: a transaction was open or began, the spec or the template changed, or it is gone.
    """
    first = before.changed_marks if isinstance(before, TargetFacts) else before
    last = after.changed_marks if isinstance(after, TargetFacts) else after
    if (first[0] or "").startswith("open/") or (last[0] or "").startswith("open/"):
        return "a transaction was open on the target while it was read"
    names = ("the transaction mark", "the generation", "the pod template")
    changed = [name for name, old, new in zip(names, first, last, strict=True) if old != new]
    return f"{' and '.join(changed)} changed while the target was read" if changed else None


def _unreadable(target: Target) -> SourceUnavailable:
    return SourceUnavailable("kubernetes", "malformed", f"{target.kind.value} is not a kind that can be read")


async def _part(read: Awaitable[_T]) -> _T | SourceUnavailable:
    try:
        return await read
    except SourceUnavailable as error:
        return error
    except SelectorInvalid as error:
        return SourceUnavailable("kubernetes", "malformed", str(error))


async def _get(reader: KubernetesReader, target: Target) -> JsonObject | None:
    version, plural = PLACES[target.kind]
    return await reader.get(object_path(version, plural, target.name, target.namespace or None))


async def _namespace(reader: KubernetesReader, target: Target) -> JsonObject | None:
    return await reader.get(object_path("v1", "namespaces", target.namespace)) if target.namespace else None


async def _pods(reader: KubernetesReader, target: Target, workload: JsonObject) -> Objects:
    if target.kind is TargetKind.POD:
        return [workload]
    selector = (workload.get("spec") or {}).get("selector") or {}
    text = selector_text(selector)
    if not text:  # an empty selector would list the whole namespace
        raise SourceUnavailable("kubernetes", "malformed", f"{target.title} has no selector")
    return await reader.list(object_path("v1", "pods", namespace=target.namespace), label_selector=text)


async def _replica_sets(reader: KubernetesReader, target: Target, workload: JsonObject) -> Objects:
    if target.kind is not TargetKind.DEPLOYMENT:
        return []
    text = selector_text((workload.get("spec") or {}).get("selector") or {})
    if not text:
        raise SourceUnavailable("kubernetes", "malformed", f"{target.title} has no selector")
    uid = workload["metadata"].get("uid")
    found = await reader.list(object_path("apps/v1", "replicasets", namespace=target.namespace), label_selector=text)
    return [one for one in found if controller_uid(one) == uid]


def controller_uid(child: JsonObject) -> str | None:
    """UID of the controller that owns an object."""
    for owner in (child.get("metadata") or {}).get("ownerReferences") or ():
        if owner.get("controller"):
            return str(owner.get("uid"))
    return None


def _owned_pods(
    target: Target, workload: JsonObject, replica_sets: Objects | SourceUnavailable, pods: Objects | SourceUnavailable
) -> Objects | SourceUnavailable:
    """Live pods of the workload: owned by UID, not being deleted."""
    if isinstance(pods, SourceUnavailable):
        return pods
    live = [pod for pod in pods if not (pod.get("metadata") or {}).get("deletionTimestamp")]
    if target.kind is TargetKind.POD:
        return live
    owners = {workload["metadata"].get("uid")}
    if target.kind is TargetKind.DEPLOYMENT:
        if isinstance(replica_sets, SourceUnavailable):
            return replica_sets
        owners = {(one.get("metadata") or {}).get("uid") for one in replica_sets}
    return [pod for pod in live if controller_uid(pod) in owners]


def _pod_labels(workload: JsonObject, pods: Objects | SourceUnavailable) -> dict[str, str]:
    """Labels that all pods of the workload carry: those of the template, or of the pod itself."""
    template = ((workload.get("spec") or {}).get("template") or {}).get("metadata") or {}
    if template.get("labels"):
        return dict(template["labels"])
    first = pods[0] if isinstance(pods, list) and pods else workload
    return dict((first.get("metadata") or {}).get("labels") or {})


def _chosen(found: Objects | SourceUnavailable, belongs: Callable[[JsonObject], bool]) -> Objects | SourceUnavailable:
    if isinstance(found, SourceUnavailable):
        return found
    try:
        return [one for one in found if belongs(one)]
    except SelectorInvalid as error:
        return SourceUnavailable("kubernetes", "malformed", str(error))


async def _autoscalers(reader: KubernetesReader, target: Target) -> Objects:
    """HPAs and KEDA's ScaledObjects that scale the target. Nothing on the target itself tells of them."""
    scalers, scaled = await asyncio.gather(
        reader.list(object_path("autoscaling/v2", "horizontalpodautoscalers", namespace=target.namespace)),
        _scaled_objects(reader, target.namespace),
    )
    return [one for one in scalers + scaled if _scales(one, target)]


async def _scaled_objects(reader: KubernetesReader, namespace: str) -> Objects:
    """KEDA's objects. Where KEDA is not installed its resource is unknown (404), or our account has no rule for it (403);
    a ScaledObject that is at work shows as an HPA as well."""
    try:
        found = await reader.list(object_path("keda.sh/v1alpha1", "scaledobjects", namespace=namespace), missing_ok=True)
    except SourceUnavailable as error:
        if error.kind == "forbidden":
            return []
        raise
    return [{"kind": "ScaledObject", **one} for one in found]


def _scales(scaler: JsonObject, target: Target) -> bool:
    aim = (scaler.get("spec") or {}).get("scaleTargetRef") or {}
    return aim.get("name") == target.name and aim.get("kind", "Deployment") == target.kind.value


async def _claims(reader: KubernetesReader, namespace: str, workload: JsonObject) -> Objects:
    spec = workload.get("spec") or {}
    pod_spec = (spec.get("template") or {}).get("spec") or spec
    names = {
        claim["claimName"]
        for volume in pod_spec.get("volumes") or ()
        if (claim := volume.get("persistentVolumeClaim")) and claim.get("claimName")
    }
    found = await asyncio.gather(
        *(reader.get(object_path("v1", "persistentvolumeclaims", name, namespace)) for name in sorted(names)[:MAX_CLAIMS])
    )
    if any(one is None for one in found):
        raise SourceUnavailable("kubernetes", "malformed", "a PersistentVolumeClaim that the template names does not exist")
    return [one for one in found if one is not None]


async def _endpoint_slices(reader: KubernetesReader, namespace: str, services: Objects | SourceUnavailable) -> Objects:
    if isinstance(services, SourceUnavailable):
        raise services
    if not services:
        return []
    names = ",".join(sorted(one["metadata"]["name"] for one in services))
    path = object_path("discovery.k8s.io/v1", "endpointslices", namespace=namespace)
    return await reader.list(path, label_selector=f"kubernetes.io/service-name in ({names})")


async def _nodes(reader: KubernetesReader, pods: Objects | SourceUnavailable) -> Objects:
    """Nodes that the pods run on, those of pods that are not ready first."""
    if isinstance(pods, SourceUnavailable):
        raise pods
    names = dict.fromkeys(
        (pod.get("spec") or {}).get("nodeName", "")
        for pod in sorted(pods, key=lambda pod: (pod_ready(pod), pod["metadata"].get("name", "")))
    )
    found = await asyncio.gather(*(reader.get(object_path("v1", "nodes", name)) for name in list(filter(None, names))[:MAX_NODES]))
    return [one for one in found if one is not None]


def pod_ready(pod: JsonObject) -> bool:
    """Whether the pod's Ready condition is True. Container flags stay true on a lost node, the condition does not."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(condition.get("type") == "Ready" and condition.get("status") == "True" for condition in conditions)


def _event_subjects(
    workload: JsonObject, replica_sets: Objects | SourceUnavailable, pods: Objects | SourceUnavailable
) -> list[str]:
    """UIDs whose events matter: the workload, its live ReplicaSets, and its pods that are not well."""
    live_sets = [one for one in _known(replica_sets) if any((one.get(part) or {}).get("replicas") for part in ("spec", "status"))]
    troubled = [pod for pod in _known(pods) if not pod_ready(pod) or pod_restarts(pod)]
    subjects = [workload, *live_sets, *sorted(troubled, key=pod_ready)[:MAX_TROUBLED_PODS]]
    return list(dict.fromkeys(str(one["metadata"].get("uid")) for one in subjects))


def _known(part: Objects | SourceUnavailable) -> Objects:
    return part if isinstance(part, list) else []


def pod_restarts(pod: JsonObject) -> int:
    """Restarts of all containers of a pod."""
    return sum(int(one.get("restartCount") or 0) for one in (pod.get("status") or {}).get("containerStatuses") or ())


async def _events(reader: KubernetesReader, namespace: str, uids: list[str]) -> Objects:
    path = object_path("v1", "events", namespace=namespace)
    found = await asyncio.gather(
        *(reader.list(path, field_selector=f"involvedObject.uid={uid}", limit=MAX_EVENTS_EACH) for uid in uids if uid)
    )
    return [event for events in found for event in events]
