"""From raw objects to `TargetFacts`: pure. What could not be read is None and named in `unread`, never a default."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from catalog.limits import resolved_roll_out, rounded_pods
from catalog.marks import OPT_IN_LABEL, OPT_IN_VALUE, TXN_ANNOTATION
from catalog.targets import WORKLOAD_KINDS, OwnerRef, TargetFacts, TargetKind
from sources.errors import SourceUnavailable
from sources.rollouts import (
    count,
    daemon_set_rolling,
    deployment_rolling,
    desired_replicas,
    stateful_set_rolling,
    template_hash,
)

if TYPE_CHECKING:
    from sources.workloads import WorkloadView

JsonObject = dict[str, Any]

MAX_POD_NAMES = 50
REVISION = "deployment.kubernetes.io/revision"
REVISION_HISTORY = "deployment.kubernetes.io/revision-history"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
OUR_MANAGERS = "sre-"

_PARTS = (
    "replica_sets", "pods", "events", "nodes", "services", "endpoint_slices", "autoscalers", "budgets", "quotas",
    "limit_ranges", "claims", "namespace", "namespace_ready",
)  # fmt: skip
BUILT_IN_GROUPS = frozenset({"", "apps", "batch", "autoscaling", "policy", "networking.k8s.io", "storage.k8s.io"})
_GITOPS_MANAGERS = (
    "argocd",
    "argo-cd",
    "kustomize-controller",
    "helm-controller",
    "helm",
    "flux",
    "fleet",
    "gitops",
    "config-sync",
)
_GITOPS_MARKS = (
    "argocd.argoproj.io/",
    "kustomize.toolkit.fluxcd.io/",
    "helm.toolkit.fluxcd.io/",
    "objectset.rio.cattle.io/",
    "configsync.gke.io/",
)


def facts_of(view: WorkloadView, now: datetime) -> TargetFacts:
    """The facts of one reading.

    An object that is being deleted counts as not existing: nothing must be built on it.

    Raises:
        SourceUnavailable: the object itself could not be read.
    """
    if isinstance(view.workload, SourceUnavailable):
        raise view.workload
    unread = tuple(part for part in _PARTS if isinstance(getattr(view, part), SourceUnavailable))
    if view.workload is None:
        return TargetFacts(target=view.target, exists=False, observed_at=view.observed_at, unread=unread)
    metadata = view.workload.get("metadata") or {}
    owners = tuple(_owner(owner) for owner in metadata.get("ownerReferences") or ())
    facts = {
        "target": view.target.model_copy(update={"uid": metadata.get("uid")}),
        "exists": not metadata.get("deletionTimestamp"),
        "observed_at": view.observed_at,
        "owners": owners,
        "custom_owner": next((owner.kind for owner in owners if not _built_in(owner)), None),
        "opted_in": _opted_in(view.namespace) if view.target.namespace else None,
        "txn": (metadata.get("annotations") or {}).get(TXN_ANNOTATION),
        "generation": metadata.get("generation"),
        "unread": unread,
    }
    if view.target.kind in WORKLOAD_KINDS:
        facts |= _workload_facts(view, view.workload)
    if view.target.kind is TargetKind.NODE:
        facts["nodes"] = (view.target.name,)
    return TargetFacts.model_validate(facts | _pod_facts(view))


def _workload_facts(view: WorkloadView, workload: JsonObject) -> dict[str, Any]:
    spec, status, metadata = (workload.get(key) or {} for key in ("spec", "status", "metadata"))
    daemon = view.target.kind is TargetKind.DAEMONSET
    desired = desired_replicas(workload)
    strategy, surge, unavailable = _strategy(view.target.kind, spec, desired)
    template = (spec.get("template") or {}).get("spec") or {}
    return {
        "desired": desired,
        "ready": count(status, "numberReady" if daemon else "readyReplicas"),
        "available": count(status, "numberAvailable" if daemon else "availableReplicas"),
        "updated": count(status, "updatedNumberScheduled" if daemon else "updatedReplicas"),
        "observed_generation": status.get("observedGeneration"),
        "paused": bool(spec.get("paused")),
        "rolling_out": _rolling(view.target.kind, workload),
        "strategy": strategy,
        "max_unavailable": unavailable,
        "max_surge": surge,
        "template_hash": template_hash(workload),
        "autoscaler": _autoscaler(view),
        "replicas_manager": replicas_manager(workload),
        "empty_dir": any(
            "emptyDir" in volume and (volume["emptyDir"] or {}).get("medium") != "Memory"
            for volume in template.get("volumes") or ()
        ),
        "read_write_once": _read_write_once(view, spec),
        "namespace_ready_pods": _known(view.namespace_ready),
        "disruptions_allowed": _disruptions_allowed(view),
        "revision": (metadata.get("annotations") or {}).get(REVISION) or status.get("updateRevision"),
        "last_rollout_at": _last_rollout_at(view, workload),
        "scaled_to_zero": desired == 0,
    }


def _pod_facts(view: WorkloadView) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    if isinstance(view.services, list):
        facts["services"] = tuple(sorted(str(one["metadata"]["name"]) for one in view.services))
    if isinstance(view.pods, list) and (view.target.kind in WORKLOAD_KINDS or view.pods):
        names = sorted(str(pod["metadata"]["name"]) for pod in view.pods)
        nodes = {str((pod.get("spec") or {}).get("nodeName") or "") for pod in view.pods}
        statuses = [one for pod in view.pods for one in (pod.get("status") or {}).get("containerStatuses") or ()]
        facts |= {
            "pods": tuple(names[:MAX_POD_NAMES]),
            "nodes": tuple(sorted(nodes - {""})),
            "restarts": sum(int(one.get("restartCount") or 0) for one in statuses),
        }
    return facts


def _owner(owner: JsonObject) -> OwnerRef:
    return OwnerRef(
        kind=str(owner.get("kind", "")),
        api_version=str(owner.get("apiVersion", "")),
        name=str(owner.get("name", "")),
        uid=str(owner.get("uid", "")),
    )


def _built_in(owner: OwnerRef) -> bool:
    group = owner.api_version.rpartition("/")[0]
    return group in BUILT_IN_GROUPS


def _opted_in(namespace: JsonObject | SourceUnavailable | None) -> bool | None:
    if namespace is None or isinstance(namespace, SourceUnavailable):
        return None
    labels = (namespace.get("metadata") or {}).get("labels") or {}
    return bool(labels.get(OPT_IN_LABEL) == OPT_IN_VALUE)


def _known(value: int | SourceUnavailable | None) -> int | None:
    return None if isinstance(value, SourceUnavailable) else value


def _rolling(kind: TargetKind, workload: JsonObject) -> bool:
    match kind:
        case TargetKind.STATEFULSET:
            return stateful_set_rolling(workload)
        case TargetKind.DAEMONSET:
            return daemon_set_rolling(workload)
        case _:
            return deployment_rolling(workload)


Strategy = Literal["RollingUpdate", "Recreate", "OnDelete", ""]


def _strategy(kind: TargetKind, spec: JsonObject, desired: int) -> tuple[Strategy, int | None, int | None]:
    """(strategy, surge, unavailable) in pods, rounded as Kubernetes rounds for this kind; None for a value that is no count."""
    raw = spec.get("strategy" if kind is TargetKind.DEPLOYMENT else "updateStrategy") or {}
    name = raw.get("type", "RollingUpdate")
    rolling = raw.get("rollingUpdate") or {}
    if name == "Recreate":
        return "Recreate", 0, desired
    if name == "OnDelete":
        return "OnDelete", 0, None
    if name != "RollingUpdate":
        return "", None, None
    try:
        if kind is TargetKind.DEPLOYMENT:
            surge, unavailable = resolved_roll_out(rolling.get("maxSurge"), rolling.get("maxUnavailable"), desired)
        else:
            surge = rounded_pods(rolling.get("maxSurge", 0), desired, rounding="up")
            unavailable = rounded_pods(rolling.get("maxUnavailable", 0 if surge else 1), desired, rounding="up")
    except ValueError:
        return "RollingUpdate", None, None
    return "RollingUpdate", surge, unavailable


def _autoscaler(view: WorkloadView) -> str | None:
    if isinstance(view.autoscalers, SourceUnavailable) or not view.autoscalers:
        return None
    first = next((one for one in view.autoscalers if one.get("kind") == "ScaledObject"), view.autoscalers[0])
    kind = first.get("kind") or "HorizontalPodAutoscaler"
    return f"{kind}/{first['metadata']['name']}"


def replicas_manager(workload: JsonObject) -> str | None:
    """The GitOps manager that owns `spec.replicas` and would set it back; None when nobody of that kind owns it.

    An owner by server-side apply counts whatever its name (its manifest states the number), and a known GitOps tool counts
    however it writes. The kubectl record of the last applied manifest counts only on an object that such a tool looks after.
    """
    metadata = workload.get("metadata") or {}
    entries = metadata.get("managedFields") or []
    for entry in entries:
        manager = str(entry.get("manager", ""))
        if manager.startswith(OUR_MANAGERS) or not _owns_replicas(entry):
            continue
        if entry.get("operation") == "Apply" or manager.lower().startswith(_GITOPS_MANAGERS):
            return manager or "server-side apply"
    applied = _last_applied_replicas(metadata)
    tool = _gitops_tool(metadata, entries)
    return tool if applied and tool else None


def _owns_replicas(entry: JsonObject) -> bool:
    return "f:replicas" in ((entry.get("fieldsV1") or {}).get("f:spec") or {})


def _last_applied_replicas(metadata: JsonObject) -> bool:
    text = (metadata.get("annotations") or {}).get(LAST_APPLIED)
    try:
        manifest = json.loads(text) if isinstance(text, str) else None
    except ValueError:
        return True  # an unreadable manifest may well state the number
    return isinstance(manifest, dict) and (manifest.get("spec") or {}).get("replicas") is not None


def _gitops_tool(metadata: JsonObject, entries: list[JsonObject]) -> str | None:
    for entry in entries:
        if str(entry.get("manager", "")).lower().startswith(_GITOPS_MANAGERS):
            return str(entry["manager"])
    marks = [*(metadata.get("labels") or {}), *(metadata.get("annotations") or {})]
    return next((mark.split("/")[0] for mark in marks if mark.startswith(_GITOPS_MARKS)), None)


def _read_write_once(view: WorkloadView, spec: JsonObject) -> bool | None:
    """Whether a volume of the workload can be used on one node only, so that a surge pod elsewhere would wait for ever."""
    templates = spec.get("volumeClaimTemplates") or []
    if isinstance(view.claims, SourceUnavailable):
        return None
    modes = {mode for claim in [*view.claims, *templates] for mode in (claim.get("spec") or {}).get("accessModes") or ()}
    return bool(modes & {"ReadWriteOnce", "ReadWriteOncePod"})


def _disruptions_allowed(view: WorkloadView) -> int | None:
    if isinstance(view.budgets, SourceUnavailable) or not view.budgets:
        return None
    return min(count(budget.get("status") or {}, "disruptionsAllowed") for budget in view.budgets)


def _last_rollout_at(view: WorkloadView, workload: JsonObject) -> datetime | None:
    """When the present template began to roll: creation of its ReplicaSet, or, where an older one was taken up again, the
    last progress that the Deployment reports."""
    revision = ((workload.get("metadata") or {}).get("annotations") or {}).get(REVISION)
    if not isinstance(view.replica_sets, list) or revision is None:
        return None
    for one in view.replica_sets:
        metadata = one.get("metadata") or {}
        annotations = metadata.get("annotations") or {}
        if annotations.get(REVISION) != revision:
            continue
        if REVISION_HISTORY not in annotations:
            return _instant(metadata.get("creationTimestamp"))
        conditions = (workload.get("status") or {}).get("conditions") or ()
        progressing: JsonObject = next((one for one in conditions if one.get("type") == "Progressing"), {})
        return _instant(progressing.get("lastUpdateTime"))
    return None


def _instant(text: object) -> datetime | None:
    try:
        return datetime.fromisoformat(str(text)).astimezone(UTC) if text else None
    except ValueError:
        return None
