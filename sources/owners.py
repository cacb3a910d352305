"""From the labels of an alert to the one object it is about, or to the reason why that cannot be told.

Labels are read, names are checked, owners are followed by UID. Nothing is searched and nothing is assumed: no namespace means
no target. Where an exporter's own labels and the victim's meet (`pod` and `exported_pod`), the victim's win.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from catalog.clusters import Cluster
from catalog.documents import Document
from catalog.names import is_dns_label, is_dns_subdomain
from catalog.targets import Target, TargetKind
from sources.facts import BUILT_IN_GROUPS
from sources.kubernetes import JsonObject, KubernetesReader, object_path
from sources.matching import EXPORTED, NAMESPACE_LABELS, POD_LABELS
from sources.workloads import PLACES

UnresolvedReason = Literal["no_labels", "no_namespace", "invalid_name", "not_found", "owner_changed", "data_fault"]

_NAMED: tuple[tuple[str, TargetKind], ...] = (
    ("deployment", TargetKind.DEPLOYMENT),
    ("statefulset", TargetKind.STATEFULSET),
    ("daemonset", TargetKind.DAEMONSET),
    ("replicaset", TargetKind.REPLICASET),
    ("job_name", TargetKind.JOB),
    ("cronjob", TargetKind.CRONJOB),
    ("horizontalpodautoscaler", TargetKind.HORIZONTAL_POD_AUTOSCALER),
    ("hpa", TargetKind.HORIZONTAL_POD_AUTOSCALER),
    ("poddisruptionbudget", TargetKind.POD_DISRUPTION_BUDGET),
    ("persistentvolumeclaim", TargetKind.PERSISTENT_VOLUME_CLAIM),
    ("resourcequota", TargetKind.RESOURCE_QUOTA),
)
_CLUSTER_SCOPED = frozenset({TargetKind.NODE, TargetKind.NAMESPACE, TargetKind.PERSISTENT_VOLUME})
_EXPORTERS = ("kube-state-metrics", "node-exporter")
_NO_DATA = frozenset({"DatasourceNoData", "DatasourceError"})
_MAX_CLIMB = 4


class Unresolved(Document):
    """No target, and why: `reason` for counting, `sentence` for people."""

    reason: UnresolvedReason
    sentence: str


@dataclass(frozen=True)
class _Place:
    """What the labels name: one object, before the API was asked."""

    kind: TargetKind
    name: str
    namespace: str = ""


async def resolve_target(reader: KubernetesReader, cluster: Cluster, labels: Mapping[str, str]) -> Target | Unresolved:
    """The object that an alert with these labels is about: the top of the owner chain, with its UID.

    A pod or ReplicaSet made by a controller stands for that controller; one made by a custom resource for the custom resource.

    Raises:
        SourceUnavailable: the API could not be asked; try again later.
    """
    place = named_place({label: value for label, value in labels.items() if value})
    if isinstance(place, Unresolved):
        return place
    found = await _read(reader, place)
    if found is None:
        where = f"{place.namespace}/{place.name}" if place.namespace else place.name
        return Unresolved(reason="not_found", sentence=f"{place.kind.value} {where} does not exist in cluster {cluster.name}.")
    return await _climb(reader, cluster, place, found)


def named_place(labels: Mapping[str, str]) -> _Place | Unresolved:
    """What the labels name, by themselves. Empty labels are absent ones."""
    if labels.get("alertname") in _NO_DATA:
        return Unresolved(
            reason="data_fault",
            sentence="The alert says that its rule got no data; that is a fault of the data, not of a workload.",
        )
    namespace = _first(labels, [EXPORTED + label for label in NAMESPACE_LABELS]) or _first(labels, NAMESPACE_LABELS)
    foreign = any(EXPORTED + label in labels for label in NAMESPACE_LABELS)
    place = _named_workload(labels, namespace) or _named_pod_or_node(labels, namespace, foreign)
    if place is None and (volume := labels.get("persistentvolume")):
        place = _Place(TargetKind.PERSISTENT_VOLUME, volume)
    if place is None:
        place = _named_remainder(labels, namespace, foreign)
    if place is None:
        return Unresolved(reason="no_labels", sentence="No label of the alert names an object of the cluster.")
    return _checked(place)


def _first(labels: Mapping[str, str], names: Any) -> str:
    return next((labels[name] for name in names if labels.get(name)), "")


def _named_workload(labels: Mapping[str, str], namespace: str) -> _Place | None:
    for label, kind in _NAMED:
        name = labels.get(EXPORTED + label) or labels.get(label)
        if name:
            return _Place(kind, name, namespace)
    return None


def _named_pod_or_node(labels: Mapping[str, str], namespace: str, foreign: bool) -> _Place | None:
    """A pod, unless it is the exporter's own; a node."""
    exported = _first(labels, [EXPORTED + label for label in POD_LABELS])
    if exported:
        return _Place(TargetKind.POD, exported, namespace)
    pod, node = _first(labels, POD_LABELS), labels.get(EXPORTED + "node") or labels.get("node", "")
    if node and (not pod or foreign or any(exporter in pod for exporter in _EXPORTERS)):
        return _Place(TargetKind.NODE, node)
    if pod and not foreign:  # beside an exported namespace, the plain pod is the exporter's
        return _Place(TargetKind.POD, pod, namespace)
    return None


def _named_remainder(labels: Mapping[str, str], namespace: str, foreign: bool) -> _Place | None:
    """The weak names, last: a Service (often the scrape's own), a Job behind the label that mostly names the scrape job."""
    exported_job = labels.get(EXPORTED + "job")
    if exported_job and namespace:
        return _Place(TargetKind.JOB, exported_job, namespace)
    service = labels.get(EXPORTED + "service") or ("" if foreign else labels.get("service", ""))
    if service and namespace:
        return _Place(TargetKind.SERVICE, service, namespace)
    return _Place(TargetKind.NAMESPACE, namespace) if namespace else None


def _checked(place: _Place) -> _Place | Unresolved:
    """The place, if its names are ones that Kubernetes could have given."""
    if place.kind not in _CLUSTER_SCOPED and not place.namespace:
        return Unresolved(
            reason="no_namespace",
            sentence=f"The alert names {place.kind.value} {_shown(place.name)} but no namespace; its rule must keep that label.",
        )
    if place.namespace and not is_dns_label(place.namespace):
        return _invalid("namespace", place.namespace)
    valid = is_dns_label if place.kind in (TargetKind.NAMESPACE, TargetKind.SERVICE) else is_dns_subdomain
    return place if valid(place.name) else _invalid(place.kind.value, place.name)


def _invalid(what: str, value: str) -> Unresolved:
    return Unresolved(reason="invalid_name", sentence=f"{_shown(value)} is not a Kubernetes name, so it names no {what}.")


def _shown(value: str) -> str:
    """An untrusted value for people: quoted, ASCII only, short."""
    return ascii(value if len(value) <= 80 else value[:79] + "…")


async def _read(reader: KubernetesReader, place: _Place) -> JsonObject | None:
    version, plural = PLACES[place.kind]
    return await reader.get(object_path(version, plural, place.name, place.namespace or None))


async def _climb(reader: KubernetesReader, cluster: Cluster, place: _Place, found: JsonObject) -> Target | Unresolved:
    """Follow controllers by UID: Pod → ReplicaSet → Deployment, Pod → Job → CronJob, and so on."""
    for _ in range(_MAX_CLIMB):
        owner = _controller(found)
        if owner is None or place.kind not in (TargetKind.POD, TargetKind.REPLICASET, TargetKind.JOB):
            break
        kind, uid = str(owner.get("kind", "")), str(owner.get("uid", ""))
        above = _Place(_kind_of(owner), str(owner.get("name", "")), place.namespace)
        if kind == TargetKind.NODE.value:  # a static pod is its node's, but it is the pod that is sick
            break
        if above.kind is TargetKind.CUSTOM:
            return _target(cluster, above, uid)
        parent = await _read(reader, above)
        if parent is None or (parent.get("metadata") or {}).get("uid") != uid:
            return Unresolved(
                reason="owner_changed",
                sentence=f"{place.kind.value} {place.namespace}/{place.name} belongs to a {kind} that no longer exists.",
            )
        place, found = above, parent
    return _target(cluster, place, str((found.get("metadata") or {}).get("uid") or "") or None)


def _controller(found: JsonObject) -> JsonObject | None:
    owners = (found.get("metadata") or {}).get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), None)


def _kind_of(owner: JsonObject) -> TargetKind:
    group = str(owner.get("apiVersion", "")).rpartition("/")[0]
    try:
        kind = TargetKind(str(owner.get("kind", "")))
    except ValueError:
        return TargetKind.CUSTOM
    return kind if group in BUILT_IN_GROUPS and kind in PLACES else TargetKind.CUSTOM


def _target(cluster: Cluster, place: _Place, uid: str | None) -> Target:
    return Target(
        cluster_uid=cluster.uid, cluster=cluster.name, namespace=place.namespace, kind=place.kind, name=place.name, uid=uid
    )
