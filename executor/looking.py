"""One look at a workload: the object, its live pods and, where a check needs them, its endpoints and nodes.

What could not be read is None in its place. The cost does not grow with the cluster: pods come by the workload's own selector,
nodes one by one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from catalog.orders import KubernetesFact
from catalog.targets import Target, TargetKind
from executor.judging import JsonObject, Look, live
from sources.errors import SourceUnavailable
from sources.kubernetes import KubernetesReader, object_path
from sources.selectors import SelectorInvalid, selector_text, service_selects
from sources.workloads import PLACES, pod_ready

MAX_NODES = 32


async def look_at(reader: KubernetesReader, target: Target, facts: set[KubernetesFact]) -> Look:
    """The workload now, with what `facts` need beside it."""
    if target.kind not in PLACES:
        return Look(workload=None, pods=None)
    version, plural = PLACES[target.kind]
    try:
        workload = await reader.get(object_path(version, plural, target.name, target.namespace))
    except SourceUnavailable:
        return Look(workload=None, pods=None)
    if workload is None:
        return Look(workload=None, pods=None, missing=True)
    pods = await _pods(reader, target, workload)
    endpoints = await _endpoints(reader, target, workload) if KubernetesFact.ENDPOINTS in facts else None
    nodes = await _nodes(reader, pods) if KubernetesFact.NODES_READY in facts else None
    return Look(workload=workload, pods=pods, ready_endpoints=endpoints, nodes=nodes)


async def node_objects(reader: KubernetesReader, looks: Iterable[Look]) -> list[JsonObject]:
    """The nodes of these looks; empty when they cannot be read."""
    names = {name for look in looks for name in look.nodes or ()}
    try:
        found = await asyncio.gather(*(reader.get(object_path("v1", "nodes", name)) for name in sorted(names)))
    except SourceUnavailable:
        return []
    return [node for node in found if node is not None]


async def _pods(reader: KubernetesReader, target: Target, workload: JsonObject) -> tuple[JsonObject, ...] | None:
    try:
        selector = selector_text((workload.get("spec") or {}).get("selector") or {})
        pods = await reader.list(object_path("v1", "pods", namespace=target.namespace), label_selector=selector)
    except (SourceUnavailable, SelectorInvalid):
        return None
    return tuple(pod for pod in pods if live(pod) and _belongs(pod, target))


async def _endpoints(reader: KubernetesReader, target: Target, workload: JsonObject) -> dict[str, int] | None:
    template = (workload.get("spec") or {}).get("template") or {}
    labels = (template.get("metadata") or {}).get("labels") or {}
    try:
        services = await reader.list(object_path("v1", "services", namespace=target.namespace))
        chosen = [one for one in services if service_selects((one.get("spec") or {}).get("selector"), labels)]
        names = sorted(str(one["metadata"]["name"]) for one in chosen)
        if not names:
            return {}
        path = object_path("discovery.k8s.io/v1", "endpointslices", namespace=target.namespace)
        slices = await reader.list(path, label_selector=f"kubernetes.io/service-name in ({','.join(names)})")
    except SourceUnavailable:
        return None
    ready = dict.fromkeys(names, 0)
    for one in slices:
        name = (one["metadata"].get("labels") or {}).get("kubernetes.io/service-name", "")
        if name in ready:
            ready[name] += sum(map(_serves, one.get("endpoints") or ()))
    return ready


async def _nodes(reader: KubernetesReader, pods: tuple[JsonObject, ...] | None) -> dict[str, bool] | None:
    if pods is None:
        return None
    names = sorted({str((pod.get("spec") or {}).get("nodeName") or "") for pod in pods} - {""})[:MAX_NODES]
    try:
        found = await asyncio.gather(*(reader.get(object_path("v1", "nodes", name)) for name in names))
    except SourceUnavailable:
        return None
    return {name: node is not None and pod_ready(node) for name, node in zip(names, found, strict=True)}


def _serves(endpoint: JsonObject) -> bool:
    """Ready, or said nothing of it, which the API defines as ready."""
    return (endpoint.get("conditions") or {}).get("ready") is not False


def _belongs(pod: JsonObject, target: Target) -> bool:
    """Whether the pod's controller is the workload, or for a Deployment a ReplicaSet named after it."""
    owners = [one for one in (pod.get("metadata") or {}).get("ownerReferences") or () if one.get("controller")]
    if target.kind is TargetKind.DEPLOYMENT:
        return any(one.get("kind") == "ReplicaSet" and str(one.get("name")).rpartition("-")[0] == target.name for one in owners)
    return any(one.get("kind") == target.kind.value and one.get("name") == target.name for one in owners)
