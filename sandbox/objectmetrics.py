"""kube_* series: the stored objects in the names of kube-state-metrics.

Like the original, the series of an object are made once per version of it and kept, so that a scrape of ten thousand unchanged
pods is a concatenation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from sandbox.controllers.facts import condition_of, controller_of, instant, labels_of
from sandbox.controllers.quantities import quantity
from sandbox.controllers.rollouts import bounds, replicas_of
from sandbox.exposition import Sample, label_name, sample
from sandbox.kinds import (
    AUTOSCALERS,
    BUDGETS,
    CONFIG_MAPS,
    DEPLOYMENTS,
    NAMESPACES,
    NODES,
    PODS,
    REPLICA_SETS,
    RESOURCE_QUOTAS,
    SECRETS,
    SERVICES,
    Kind,
)
from sandbox.store import Store

Json = dict[str, Any]

_UNITS = {"cpu": "core", "memory": "byte", "ephemeral-storage": "byte", "pods": "integer"}
_PHASES = ("Pending", "Succeeded", "Failed", "Unknown", "Running")


class ObjectMetrics:
    """The series of every object in the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: dict[str, tuple[str, list[Sample]]] = {}

    def samples(self) -> Iterator[Sample]:
        """All series, now."""
        kept: dict[str, tuple[str, list[Sample]]] = {}
        for kind, describe in _DESCRIBED:
            for obj in self._store.list(kind):
                uid, version = obj["metadata"]["uid"], obj["metadata"]["resourceVersion"]
                known = self._kept.get(uid)
                if known is None or known[0] != version:
                    known = (version, list(describe(obj)))
                kept[uid] = known
                yield from known[1]
        self._kept = kept


def _named(obj: Json, word: str) -> dict[str, str]:
    metadata = obj["metadata"]
    place = {"namespace": metadata["namespace"]} if metadata.get("namespace") else {}
    return {**place, word: metadata["name"]}


def _created(obj: Json) -> float:
    return instant(obj["metadata"]["creationTimestamp"]).timestamp()


def _deployment(obj: Json) -> Iterator[Sample]:
    labels = _named(obj, "deployment")
    status = obj.get("status") or {}
    surge, unavailable = bounds(obj)
    yield sample("kube_deployment_created", labels, _created(obj))
    yield sample("kube_deployment_metadata_generation", labels, obj["metadata"]["generation"])
    yield sample("kube_deployment_spec_replicas", labels, replicas_of(obj))
    yield sample("kube_deployment_spec_paused", labels, bool(obj["spec"].get("paused")))
    yield sample("kube_deployment_spec_strategy_rollingupdate_max_surge", labels, surge)
    yield sample("kube_deployment_spec_strategy_rollingupdate_max_unavailable", labels, unavailable)
    yield sample("kube_deployment_status_observed_generation", labels, status.get("observedGeneration", 0))
    for suffix, field in (
        ("replicas", "replicas"),
        ("replicas_ready", "readyReplicas"),
        ("replicas_available", "availableReplicas"),
        ("replicas_unavailable", "unavailableReplicas"),
        ("replicas_updated", "updatedReplicas"),
    ):
        yield sample(f"kube_deployment_status_{suffix}", labels, status.get(field, 0))
    yield from _conditions("kube_deployment_status_condition", labels, status.get("conditions") or (), reason=True)
    yield sample("kube_deployment_labels", labels | _label_set(obj), 1)


def _conditions(family: str, labels: dict[str, str], conditions: Any, *, reason: bool = False) -> Iterator[Sample]:
    for item in conditions:
        for value in ("true", "false", "unknown"):
            more = {"reason": item.get("reason", "")} if reason else {}
            held = item["status"].lower() == value
            yield sample(family, {**labels, **more, "condition": item["type"], "status": value}, held)


def _label_set(obj: Json) -> dict[str, str]:
    return {label_name("label", key): value for key, value in sorted(labels_of(obj).items())}


def _replica_set(obj: Json) -> Iterator[Sample]:
    labels = _named(obj, "replicaset")
    status = obj.get("status") or {}
    yield sample("kube_replicaset_created", labels, _created(obj))
    yield sample("kube_replicaset_spec_replicas", labels, replicas_of(obj))
    yield sample("kube_replicaset_metadata_generation", labels, obj["metadata"]["generation"])
    yield sample("kube_replicaset_status_replicas", labels, status.get("replicas", 0))
    yield sample("kube_replicaset_status_ready_replicas", labels, status.get("readyReplicas", 0))
    yield sample("kube_replicaset_status_observed_generation", labels, status.get("observedGeneration", 0))
    yield sample("kube_replicaset_owner", labels | _owner(obj), 1)


def _owner(obj: Json) -> dict[str, str]:
    owner = controller_of(obj)
    if owner is None:
        return {"owner_kind": "", "owner_name": "", "owner_is_controller": ""}
    return {"owner_kind": owner["kind"], "owner_name": owner["name"], "owner_is_controller": "true"}


def _pod(obj: Json) -> Iterator[Sample]:
    labels = _named(obj, "pod") | {"uid": obj["metadata"]["uid"]}
    status = obj.get("status") or {}
    owner = controller_of(obj) or {}
    place = {"node": obj["spec"].get("nodeName", ""), "host_ip": status.get("hostIP", ""), "pod_ip": status.get("podIP", "")}
    made = {"created_by_kind": owner.get("kind", ""), "created_by_name": owner.get("name", "")}
    yield sample("kube_pod_info", labels | place | made, 1)
    yield sample("kube_pod_owner", labels | _owner(obj), 1)
    yield sample("kube_pod_created", labels, _created(obj))
    yield sample("kube_pod_labels", labels | _label_set(obj), 1)
    if "startTime" in status:
        yield sample("kube_pod_start_time", labels, instant(status["startTime"]).timestamp())
    if "deletionTimestamp" in obj["metadata"]:
        yield sample("kube_pod_deletion_timestamp", labels, instant(obj["metadata"]["deletionTimestamp"]).timestamp())
    for phase in _PHASES:
        yield sample("kube_pod_status_phase", {**labels, "phase": phase}, status.get("phase") == phase)
    for type_, family in (("Ready", "kube_pod_status_ready"), ("PodScheduled", "kube_pod_status_scheduled")):
        condition = condition_of(obj, type_)
        if condition is not None:
            for value in ("true", "false", "unknown"):
                yield sample(family, {**labels, "condition": value}, condition["status"].lower() == value)
            if type_ == "PodScheduled" and condition.get("reason") == "Unschedulable":
                yield sample("kube_pod_status_unschedulable", labels, 1)
    for item in status.get("containerStatuses") or ():
        yield from _container("kube_pod_container", labels, item)
    for item in status.get("initContainerStatuses") or ():
        yield from _container("kube_pod_init_container", labels, item)
    for item in obj["spec"].get("containers") or ():
        yield from _resources(labels | {"container": item["name"], "node": place["node"]}, item.get("resources") or {})


def _container(prefix: str, pod: dict[str, str], item: Json) -> Iterator[Sample]:
    labels = pod | {"container": item["name"]}
    yield sample(f"{prefix}_info", labels | {"image": item.get("image", ""), "container_id": item.get("containerID", "")}, 1)
    yield sample(f"{prefix}_status_restarts_total", labels, item.get("restartCount", 0))
    yield sample(f"{prefix}_status_ready", labels, bool(item.get("ready")))
    for state in ("running", "waiting", "terminated"):
        yield sample(f"{prefix}_status_{state}", labels, state in item["state"])
    for state, family in (("waiting", "waiting_reason"), ("terminated", "terminated_reason")):
        reason = (item["state"].get(state) or {}).get("reason")
        if reason:
            yield sample(f"{prefix}_status_{family}", labels | {"reason": reason}, 1)
    last = (item.get("lastState") or {}).get("terminated")
    if last:
        yield sample(f"{prefix}_status_last_terminated_reason", labels | {"reason": last["reason"]}, 1)
        yield sample(f"{prefix}_status_last_terminated_exitcode", labels, last["exitCode"])
        yield sample(f"{prefix}_status_last_terminated_timestamp", labels, instant(last["finishedAt"]).timestamp())


def _resources(labels: dict[str, str], resources: Json) -> Iterator[Sample]:
    for which in ("limits", "requests"):
        for resource, value in (resources.get(which) or {}).items():
            unit = {"resource": resource.replace("-", "_"), "unit": _UNITS.get(resource, "integer")}
            yield sample(f"kube_pod_container_resource_{which}", labels | unit, float(quantity(value)))


def _node(obj: Json) -> Iterator[Sample]:
    labels = _named(obj, "node")
    status = obj.get("status") or {}
    version = (status.get("nodeInfo") or {}).get("kubeletVersion", "")
    yield sample("kube_node_info", labels | {"kubelet_version": version}, 1)
    yield sample("kube_node_created", labels, _created(obj))
    yield sample("kube_node_spec_unschedulable", labels, bool(obj["spec"].get("unschedulable")))
    for taint in obj["spec"].get("taints") or ():
        inside = {"key": taint["key"], "value": taint.get("value", ""), "effect": taint["effect"]}
        yield sample("kube_node_spec_taint", labels | inside, 1)
    yield from _conditions("kube_node_status_condition", labels, status.get("conditions") or ())
    for which in ("allocatable", "capacity"):
        for resource, value in (status.get(which) or {}).items():
            unit = {"resource": resource.replace("-", "_"), "unit": _UNITS.get(resource, "integer")}
            yield sample(f"kube_node_status_{which}", labels | unit, float(quantity(value)))


def _quota(obj: Json) -> Iterator[Sample]:
    labels = _named(obj, "resourcequota")
    for type_ in ("hard", "used"):
        for resource, value in ((obj.get("status") or {}).get(type_) or {}).items():
            yield sample("kube_resourcequota", labels | {"resource": resource, "type": type_}, float(quantity(value)))


def _budget(obj: Json) -> Iterator[Sample]:
    labels = _named(obj, "poddisruptionbudget")
    status = obj.get("status") or {}
    for suffix, field in (
        ("current_healthy", "currentHealthy"),
        ("desired_healthy", "desiredHealthy"),
        ("pod_disruptions_allowed", "disruptionsAllowed"),
        ("expected_pods", "expectedPods"),
        ("observed_generation", "observedGeneration"),
    ):
        yield sample(f"kube_poddisruptionbudget_status_{suffix}", labels, status.get(field, 0))


def _autoscaler(obj: Json) -> Iterator[Sample]:
    labels = _named(obj, "horizontalpodautoscaler")
    spec, status = obj["spec"], obj.get("status") or {}
    target = {"scaletargetref_kind": spec["scaleTargetRef"]["kind"], "scaletargetref_name": spec["scaleTargetRef"]["name"]}
    prefix = "kube_horizontalpodautoscaler"
    yield sample(f"{prefix}_info", labels | target, 1)
    yield sample(f"{prefix}_spec_max_replicas", labels, spec["maxReplicas"])
    yield sample(f"{prefix}_spec_min_replicas", labels, spec.get("minReplicas", 1))
    yield sample(f"{prefix}_status_current_replicas", labels, status.get("currentReplicas", 0))
    yield sample(f"{prefix}_status_desired_replicas", labels, status.get("desiredReplicas", 0))
    yield from _conditions(f"{prefix}_status_condition", labels, status.get("conditions") or ())


def _namespace(obj: Json) -> Iterator[Sample]:
    labels = {"namespace": obj["metadata"]["name"]}
    yield sample("kube_namespace_created", labels, _created(obj))
    yield sample("kube_namespace_labels", labels | _label_set(obj), 1)
    for phase in ("Active", "Terminating"):
        held = (obj.get("status") or {}).get("phase", "Active") == phase
        yield sample("kube_namespace_status_phase", {**labels, "phase": phase}, held)


def _service(obj: Json) -> Iterator[Sample]:
    yield sample("kube_service_info", _named(obj, "service") | {"cluster_ip": obj["spec"].get("clusterIP", "")}, 1)


def _version(prefix: str, word: str) -> Callable[[Json], Iterator[Sample]]:
    def describe(obj: Json) -> Iterator[Sample]:
        labels = _named(obj, word)
        yield sample(f"kube_{prefix}_created", labels, _created(obj))
        yield sample(f"kube_{prefix}_metadata_resource_version", labels, int(obj["metadata"]["resourceVersion"]))

    return describe


_DESCRIBED: tuple[tuple[Kind, Callable[[Json], Iterator[Sample]]], ...] = (
    (DEPLOYMENTS, _deployment),
    (REPLICA_SETS, _replica_set),
    (PODS, _pod),
    (NODES, _node),
    (RESOURCE_QUOTAS, _quota),
    (BUDGETS, _budget),
    (AUTOSCALERS, _autoscaler),
    (NAMESPACES, _namespace),
    (SERVICES, _service),
    (CONFIG_MAPS, _version("configmap", "configmap")),
    (SECRETS, _version("secret", "secret")),
)
