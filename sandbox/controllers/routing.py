"""All controllers of one cluster put together, and who looks at what when an object changes."""

from __future__ import annotations

import random
from typing import Any

from sandbox.controllers.autoscaling import AutoscalerController
from sandbox.controllers.budgets import BudgetController
from sandbox.controllers.cleaning import GarbageCollector, NamespaceController
from sandbox.controllers.deployment import DeploymentController
from sandbox.controllers.endpoints import EndpointsController
from sandbox.controllers.engine import Engine, Key
from sandbox.controllers.environments import Environments
from sandbox.controllers.facts import annotations_of, controller_of, is_ready
from sandbox.controllers.kubelet import Kubelet, KubeletParts
from sandbox.controllers.nodes import NodeController
from sandbox.controllers.quotas import QuotaController
from sandbox.controllers.recorder import Recorder
from sandbox.controllers.replicaset import ReplicaSetController
from sandbox.controllers.scheduler import Scheduler
from sandbox.faults import Faults
from sandbox.kinds import (
    AUTOSCALERS,
    BUDGETS,
    CONFIG_MAPS,
    DEPLOYMENTS,
    EVENTS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    REPLICA_SETS,
    RESOURCE_QUOTAS,
    SECRETS,
    SERVICES,
)
from sandbox.shelves import Change
from sandbox.store import Store
from sandbox.traffic import Traffic, Workload
from sandbox.workloads import PREFIX

Json = dict[str, Any]

OFFERED = f"{PREFIX}offered-rps"
"""Annotation of a Deployment: requests (or messages) per second offered to its pods."""
_UNWATCHED = frozenset({EVENTS.key, LEASES.key})
_OWN_KEY = {
    DEPLOYMENTS.key: "deployment",
    REPLICA_SETS.key: "replicaset",
    NODES.key: "nodes",
    NAMESPACES.key: "namespaces",
    SERVICES.key: "endpoints",
    BUDGETS.key: "budgets",
    RESOURCE_QUOTAS.key: "quotas",
    AUTOSCALERS.key: "autoscalers",
}


class Controllers:
    """The control loops over one store. `engine.run()` (or `engine.run_due()`) makes them work."""

    def __init__(self, store: Store, engine: Engine, *, faults: Faults | None = None, seed: int = 0) -> None:
        self.store = store
        self.engine = engine
        self.faults = faults or Faults()
        self.recorder = Recorder(store, engine)
        environments = Environments(store)
        self.traffic = Traffic(engine, self.offered, environments.secret_version)
        self.kubelet = Kubelet(
            KubeletParts(store, engine, self.recorder, self.traffic, self.faults, environments, random.Random(seed))
        )
        self.scheduler = Scheduler(store, engine, self.recorder)
        self.quotas = QuotaController(store, engine)
        self._endpoints = EndpointsController(store, engine)
        self._budgets = BudgetController(store, engine)
        self._garbage = GarbageCollector(store, engine)
        self._ready_since: dict[str, float] = {}
        engine.register(
            [
                DeploymentController(store, engine, self.recorder),
                ReplicaSetController(store, engine, self.recorder, self.ready_for),
                self.scheduler,
                self.kubelet,
                self.quotas,
                self._endpoints,
                self._budgets,
                self._garbage,
                NodeController(store, engine, self.recorder, self.faults),
                NamespaceController(store, engine),
                AutoscalerController(store, engine, self.recorder, self.traffic),
                self.recorder,
                _FaultClock(self),
            ]
        )
        store.admitters.append(self.quotas.admit)
        store.subscribe(self._changed)
        engine.changed(self.recorder.name, ("", ""))
        for kind in list(store.kinds()):
            for entry in store.entries(kind):
                self._changed(Change("ADDED", kind, entry, None))

    def ready_for(self, pod: Json) -> float:
        """Model seconds since a pod became Ready, 0 if it is not."""
        since = self._ready_since.get(pod["metadata"]["uid"])
        return 0.0 if since is None else self.engine.model(self.engine.monotonic() - since)

    def offered(self, workload: Workload) -> float:
        """The load offered to a workload: injected, or annotated on its Deployment; 0 if neither."""
        injected = self.faults.loads.get(workload)
        if injected is not None:
            return injected
        deployment = self.store.find(DEPLOYMENTS, *workload)
        text = annotations_of(deployment).get(OFFERED, "") if deployment else ""
        try:
            return max(0.0, float(text)) if text else 0.0
        except ValueError:
            return 0.0

    def disturb(self, workload: Workload) -> None:
        """Faults of a workload changed."""
        self.kubelet.disturb(workload)
        expiry = self.faults.next_expiry()
        if expiry is not None:
            self.engine.later(_FaultClock.name, ("", ""), self.engine.model(expiry - self.engine.monotonic()))

    def node_changed(self, node: str) -> None:
        """The kubelet of a node died or came back."""
        self.kubelet.node_changed(node)
        self.engine.changed("nodes", ("", node))
        for other in self.store.list(NODES):
            self.engine.changed("nodes", ("", other["metadata"]["name"]))

    # -- routes ------------------------------------------------------------------------------------------------------------

    def _changed(self, change: Change) -> None:
        kind = change.kind
        if kind.key in _UNWATCHED:
            return
        self._garbage.observe(change)
        metadata = change.object["metadata"]
        key: Key = (metadata.get("namespace", ""), metadata["name"])
        own = _OWN_KEY.get(kind.key)
        if own:
            self.engine.changed(own, key)
        if kind.key == PODS.key:
            self._pod_changed(change, key)
        elif kind.key == REPLICA_SETS.key:
            owner = controller_of(change.object)
            if owner is not None:
                self.engine.changed("deployment", (key[0], owner["name"]))
        elif kind.key == DEPLOYMENTS.key:
            self._deployment_changed(change, key)
        elif kind.key == NODES.key:
            self.scheduler.wake()
        elif kind.key in (CONFIG_MAPS.key, SECRETS.key):
            self._configuration_changed(change, key)
        elif metadata.get("namespace") and change.type == "DELETED":
            self._tell_namespace(metadata["namespace"])

    def _pod_changed(self, change: Change, key: Key) -> None:
        self.scheduler.observe(change)
        pod = change.object
        uid = pod["metadata"]["uid"]
        if change.type == "DELETED" or not is_ready(pod):
            self._ready_since.pop(uid, None)
        elif uid not in self._ready_since:
            self._ready_since[uid] = self.engine.monotonic()
        if pod["spec"].get("nodeName"):
            self.engine.changed("kubelet", key)
        elif change.type != "DELETED" and (change.previous is None or change.previous.body["spec"] != pod["spec"]):
            self.engine.changed("scheduler", key)
        owner = controller_of(pod)
        if owner is not None and owner["kind"] == "ReplicaSet":
            self.engine.changed("replicaset", (key[0], owner["name"]))
        for service in self._endpoints.services_of(pod):
            self.engine.changed("endpoints", service)
        for budget in self._budgets.budgets_of(pod):
            self.engine.changed("budgets", budget)
        for quota in self.store.list(RESOURCE_QUOTAS, key[0]):
            self.engine.changed("quotas", (key[0], quota["metadata"]["name"]))
        if change.type == "DELETED":
            self._tell_namespace(key[0])

    def _deployment_changed(self, change: Change, key: Key) -> None:
        before = annotations_of(change.previous.body).get(OFFERED) if change.previous else None
        if before != annotations_of(change.object).get(OFFERED) and key in self.traffic.groups:
            self.traffic.settle(key)
        for budget in self.store.list(BUDGETS, key[0]):
            self.engine.changed("budgets", (key[0], budget["metadata"]["name"]))
        if change.type == "DELETED":
            self.traffic.forget(key)
            self._tell_namespace(key[0])

    def _configuration_changed(self, change: Change, key: Key) -> None:
        if change.kind.key == SECRETS.key:
            self.traffic.settle()
        self.kubelet.configuration_changed(key[0])
        if change.type == "DELETED":
            self._tell_namespace(key[0])

    def _tell_namespace(self, namespace: str) -> None:
        found = self.store.find(NAMESPACES, "", namespace)
        if found is not None and "deletionTimestamp" in found["metadata"]:
            self.engine.changed("namespaces", ("", namespace))


class _FaultClock:
    """Ends faults that last for a time."""

    name = "faults"

    def __init__(self, controllers: Controllers) -> None:
        self._controllers = controllers

    def sync(self, key: Key) -> float | None:
        engine, faults = self._controllers.engine, self._controllers.faults
        for fault in faults.expire(engine.monotonic()):
            self._controllers.kubelet.disturb((fault.namespace, fault.workload))
        expiry = faults.next_expiry()
        return None if expiry is None else engine.model(expiry - engine.monotonic())
