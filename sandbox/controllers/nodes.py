"""Nodes: their heartbeat, what happens when it stops, cordons, and eviction by taint.

A kubelet that dies stays unnoticed for `GRACE_S` model seconds. Then all conditions become Unknown, the node gets the
unreachable taints, and its pods turn not Ready *in their condition only*: container statuses stay as last written, and are
stale. Tolerations run out later and pods are marked as deleted; nobody confirms. When every node is lost, none is tainted
NoExecute and nothing is evicted.
"""

from __future__ import annotations

from typing import Any

from sandbox.controllers.engine import Engine, Key
from sandbox.controllers.facts import condition_of, is_finished, is_terminating, stamp
from sandbox.controllers.recorder import Recorder
from sandbox.faults import Faults
from sandbox.kinds import NODES, PODS
from sandbox.shelves import copied
from sandbox.store import Store

Json = dict[str, Any]

GRACE_S = 52.0
"""Model seconds from the last heartbeat to Unknown."""
COMPONENT = "node-controller"
_PREFIX = "node.kubernetes.io/"
_HEALTHY = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)


def node_object(name: str, *, cpu: str = "8", memory: str = "32Gi", pods: str = "110", index: int = 1) -> Json:
    """A Node that has not reported yet."""
    size = {"cpu": cpu, "memory": memory, "pods": pods}
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "topology.kubernetes.io/zone": f"zone-{'abc'[(index - 1) % 3]}",
    }
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {},
        "status": {
            "capacity": dict(size),
            "allocatable": dict(size),
            "addresses": [
                {"type": "InternalIP", "address": f"10.0.{index // 250}.{index % 250 + 10}"},
                {"type": "Hostname", "address": name},
            ],
            "nodeInfo": {"kubeletVersion": "v1.36.2", "osImage": "sandbox", "architecture": "amd64", "operatingSystem": "linux"},
        },
    }


class NodeController:
    """The controller `nodes`: the node lifecycle, and the part of kubelets that reports for the node itself."""

    name = "nodes"

    def __init__(self, store: Store, engine: Engine, recorder: Recorder, faults: Faults) -> None:
        self._store = store
        self._engine = engine
        self._recorder = recorder
        self._faults = faults
        self._silent_since: dict[str, float] = {}
        self._tainted_at: dict[str, float] = {}

    def sync(self, key: Key) -> float | None:
        node = self._store.find(NODES, *key)
        if node is None:
            self._silent_since.pop(key[1], None)
            self._tainted_at.pop(key[1], None)
            return None
        node = self._cordon(node)
        if key[1] not in self._faults.dead_nodes:
            self._report(node)
            return None
        now = self._engine.monotonic()
        silent = self._engine.model(now - self._silent_since.setdefault(key[1], now))
        if silent < GRACE_S:
            return GRACE_S - silent
        self._lose(node)
        return self._evict(key[1])

    def _report(self, node: Json) -> None:
        """The kubelet's own report: everything is well."""
        name = node["metadata"]["name"]
        self._silent_since.pop(name, None)
        self._tainted_at.pop(name, None)
        before = condition_of(node, "Ready")
        if before is None or before["status"] != "True":
            status = copied(node.get("status") or {})
            status["conditions"] = [self._condition(node, *item) for item in _HEALTHY]
            node = self._store.patch_status(NODES, "", name, status)
            self._recorder.controller(node, "kubelet", "Normal", "NodeReady", f"Node {name} status is now: NodeReady")
        taints = [item for item in node["spec"].get("taints") or () if item["key"] != f"{_PREFIX}unreachable"]
        self._set_taints(node, taints)

    def _lose(self, node: Json) -> None:
        name = node["metadata"]["name"]
        ready = condition_of(node, "Ready")
        if ready is not None and ready["status"] != "Unknown":
            status = copied(node["status"])
            status["conditions"] = [
                self._condition(node, item["type"], "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")
                for item in status.get("conditions") or ()
            ]
            node = self._store.patch_status(NODES, "", name, status)
            self._recorder.controller(node, COMPONENT, "Normal", "NodeNotReady", f"Node {name} status is now: NodeNotReady")
            for pod in self._pods_on(name):
                self._mark_unready(pod)
        effects = ["NoSchedule"] if self._all_lost() else ["NoSchedule", "NoExecute"]
        kept = [item for item in node["spec"].get("taints") or () if item["key"] != f"{_PREFIX}unreachable"]
        known = {item["effect"]: item for item in node["spec"].get("taints") or () if item["key"] == f"{_PREFIX}unreachable"}
        added = [known.get(effect) or self._taint("unreachable", effect) for effect in effects]
        if "NoExecute" in effects:
            self._tainted_at.setdefault(name, self._engine.monotonic())
        self._set_taints(node, [*kept, *added])

    def _evict(self, name: str) -> float | None:
        """Mark pods whose toleration of the taint ran out. Returns model seconds to the next one."""
        tainted = self._tainted_at.get(name)
        if tainted is None:
            return 1.0
        passed = self._engine.model(self._engine.monotonic() - tainted)
        waits = []
        for pod in self._pods_on(name):
            tolerated = _tolerated(pod)
            if is_terminating(pod) or tolerated is None:
                continue
            if tolerated > passed:
                waits.append(tolerated - passed)
            else:
                self._evict_pod(pod)
        return min(waits, default=None)

    def _evict_pod(self, pod: Json) -> None:
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        about = f"Marking for deletion Pod {namespace}/{name}"
        self._recorder.controller(pod, "taint-eviction-controller", "Normal", "TaintManagerEviction", about)
        status = copied(pod["status"])
        status.setdefault("conditions", []).append(
            {
                "type": "DisruptionTarget",
                "observedGeneration": pod["metadata"].get("generation", 1),
                "status": "True",
                "lastProbeTime": None,
                "lastTransitionTime": stamp(self._engine.clock.now()),
                "reason": "DeletionByTaintManager",
                "message": "Taint manager: deleting due to NoExecute taint",
            }
        )
        self._store.patch_status(PODS, namespace, name, status)
        self._store.delete(PODS, namespace, name, uid=pod["metadata"]["uid"])

    def _mark_unready(self, pod: Json) -> None:
        ready = condition_of(pod, "Ready")
        if ready is None or ready["status"] != "True":
            return
        status = copied(pod["status"])
        for item in status["conditions"]:
            if item["type"] == "Ready":
                item |= {"status": "False", "lastTransitionTime": stamp(self._engine.clock.now())}
        self._store.patch_status(PODS, pod["metadata"]["namespace"], pod["metadata"]["name"], status)
        self._recorder.controller(pod, COMPONENT, "Warning", "NodeNotReady", "Node is not ready")

    def _cordon(self, node: Json) -> Json:
        """The taint that goes with spec.unschedulable."""
        taints = node["spec"].get("taints") or []
        others = [item for item in taints if item["key"] != f"{_PREFIX}unschedulable"]
        cordoned = bool(node["spec"].get("unschedulable"))
        if cordoned == (len(others) != len(taints)):
            return node
        name = node["metadata"]["name"]
        reason = "NodeNotSchedulable" if cordoned else "NodeSchedulable"
        self._recorder.controller(node, "kubelet", "Normal", reason, f"Node {name} status is now: {reason}")
        return self._set_taints(node, [*others, self._taint("unschedulable", "NoSchedule")] if cordoned else others)

    def _set_taints(self, node: Json, taints: list[Json]) -> Json:
        if taints == (node["spec"].get("taints") or []):
            return node
        body = copied(node)
        body["spec"].pop("taints", None)
        if taints:
            body["spec"]["taints"] = taints
        return self._store.update(NODES, body)

    def _taint(self, what: str, effect: str) -> Json:
        return {"key": f"{_PREFIX}{what}", "effect": effect, "timeAdded": stamp(self._engine.clock.now())}

    def _condition(self, node: Json, type_: str, value: str, reason: str, message: str) -> Json:
        now = stamp(self._engine.clock.now())
        known = condition_of(node, type_)
        same = known is not None and known["status"] == value
        heartbeat = known["lastHeartbeatTime"] if known is not None and value == "Unknown" else now
        return {
            "type": type_,
            "status": value,
            "lastHeartbeatTime": heartbeat,
            "lastTransitionTime": known["lastTransitionTime"] if known is not None and same else now,
            "reason": reason,
            "message": message,
        }

    def _pods_on(self, name: str) -> list[Json]:
        return [pod for pod in self._store.list(PODS) if pod["spec"].get("nodeName") == name and not is_finished(pod)]

    def _all_lost(self) -> bool:
        return all(node["metadata"]["name"] in self._faults.dead_nodes for node in self._store.list(NODES))


def _tolerated(pod: Json) -> float | None:
    """Model seconds that a pod tolerates an unreachable node: None for ever, 0 not at all."""
    for item in pod["spec"].get("tolerations") or ():
        matches = item.get("key") == f"{_PREFIX}unreachable" or (not item.get("key") and item.get("operator") == "Exists")
        if matches and item.get("effect", "NoExecute") == "NoExecute":
            seconds = item.get("tolerationSeconds")
            return None if seconds is None else float(seconds)
    return 0.0
