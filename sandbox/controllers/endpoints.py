"""Endpoints and EndpointSlices: which pods a Service reaches."""

from __future__ import annotations

from typing import Any

from sandbox.controllers.engine import Engine, Key
from sandbox.controllers.facts import is_finished, is_ready, is_terminating, labels_of
from sandbox.kinds import ENDPOINT_SLICES, ENDPOINTS, PODS, SERVICES, Kind
from sandbox.selecting import object_selector
from sandbox.store import Store

Json = dict[str, Any]


class EndpointsController:
    """Keeps one Endpoints object and one EndpointSlice for each Service with a selector."""

    name = "endpoints"

    def __init__(self, store: Store, engine: Engine) -> None:
        self._store = store
        self._engine = engine

    def services_of(self, pod: Json) -> list[Key]:
        """The Services of its namespace that select a pod."""
        labels = labels_of(pod)
        namespace = pod["metadata"]["namespace"]
        return [
            (namespace, service["metadata"]["name"])
            for service in self._store.list(SERVICES, namespace)
            if service["spec"].get("selector") and service["spec"]["selector"].items() <= labels.items()
        ]

    def sync(self, key: Key) -> float | None:
        service = self._store.find(SERVICES, *key)
        if service is None:
            self._remove(ENDPOINTS, key)
            self._remove(ENDPOINT_SLICES, _slice_key(key))
            return None
        if not service["spec"].get("selector"):
            return None
        selects = object_selector({"matchLabels": service["spec"]["selector"]})
        pods = [
            pod
            for pod in self._store.list(PODS, key[0])
            if selects(labels_of(pod)) and (pod.get("status") or {}).get("podIP") and not is_finished(pod)
        ]
        ports = _ports(service)
        self._put(ENDPOINTS, key, service, {"subsets": _subsets(pods, ports)} if pods else {})
        self._put(ENDPOINT_SLICES, _slice_key(key), service, _slice(pods, ports))
        return None

    def _put(self, kind: Kind, key: Key, service: Json, body: Json) -> None:
        found = self._store.find(kind, *key)
        labels = {**labels_of(service)}
        metadata: Json = {"name": key[1], "namespace": key[0]}
        if kind.key == ENDPOINT_SLICES.key:
            labels |= {
                "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
                "kubernetes.io/service-name": service["metadata"]["name"],
            }
            metadata["ownerReferences"] = [
                {
                    "apiVersion": "v1",
                    "kind": "Service",
                    "name": service["metadata"]["name"],
                    "uid": service["metadata"]["uid"],
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ]
        if labels:
            metadata["labels"] = labels
        if found is None:
            self._store.create(kind, {"metadata": metadata, **body})
        else:
            self._store.update(kind, {"metadata": {**found["metadata"], **metadata}, **body})

    def _remove(self, kind: Kind, key: Key) -> None:
        if self._store.find(kind, *key) is not None:
            self._store.delete(kind, *key)


def _slice_key(key: Key) -> Key:
    return (key[0], f"{key[1]}-sbx01")


def _ports(service: Json) -> list[Json]:
    ports = []
    for item in service["spec"].get("ports") or ():
        target = item.get("targetPort", item["port"])
        port: Json = {"name": item["name"]} if item.get("name") else {}
        port["port"] = target if isinstance(target, int) else item["port"]
        port["protocol"] = item.get("protocol", "TCP")
        ports.append(port)
    return ports


def _target(pod: Json) -> Json:
    metadata = pod["metadata"]
    return {"kind": "Pod", "namespace": metadata["namespace"], "name": metadata["name"], "uid": metadata["uid"]}


def _subsets(pods: list[Json], ports: list[Json]) -> list[Json]:
    subset: Json = {}
    for field, wanted in (("addresses", True), ("notReadyAddresses", False)):
        addresses = [
            {"ip": pod["status"]["podIP"], "nodeName": pod["spec"]["nodeName"], "targetRef": _target(pod)}
            for pod in pods
            if (is_ready(pod) and not is_terminating(pod)) == wanted
        ]
        if addresses:
            subset[field] = addresses
    return [subset | {"ports": ports}]


def _slice(pods: list[Json], ports: list[Json]) -> Json:
    endpoints = []
    for pod in pods:
        ready, leaving = is_ready(pod), is_terminating(pod)
        endpoints.append(
            {
                "addresses": [pod["status"]["podIP"]],
                "conditions": {"ready": ready and not leaving, "serving": ready, "terminating": leaving},
                "targetRef": _target(pod),
                "nodeName": pod["spec"]["nodeName"],
            }
        )
    return {"addressType": "IPv4", "endpoints": endpoints, "ports": ports}
