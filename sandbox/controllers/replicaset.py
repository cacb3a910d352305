"""The ReplicaSet controller: as many pods as asked for, and a status that counts them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sandbox.controllers.engine import Engine, Key
from sandbox.controllers.facts import (
    annotations_of,
    condition_of,
    instant,
    is_active,
    is_finished,
    is_ready,
    is_terminating,
    labels_of,
    stamp,
)
from sandbox.controllers.podspecs import pod_of
from sandbox.controllers.recorder import Recorder
from sandbox.kinds import PODS, REPLICA_SETS
from sandbox.statuses import NotFound, StatusError
from sandbox.store import Store

Json = dict[str, Any]
ReadyFor = Callable[[Json], float]

COMPONENT = "replicaset-controller"
BURST = 500
"""Pods created or deleted in one sync at most."""
_FIRST_RETRY_S = 0.005
_LAST_RETRY_S = 1000.0
_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"


class ReplicaSetController:
    """Creates and deletes pods. `ready_for` says how many model seconds a pod has been Ready (0 when it is not)."""

    name = "replicaset"

    def __init__(self, store: Store, engine: Engine, recorder: Recorder, ready_for: ReadyFor) -> None:
        self._store = store
        self._engine = engine
        self._recorder = recorder
        self._ready_for = ready_for
        self._failures: dict[Key, int] = {}

    def sync(self, key: Key) -> float | None:
        owner = self._store.find(REPLICA_SETS, *key)
        if owner is None:
            self._failures.pop(key, None)
            return None
        pods = [pod for pod in self._store.owned(PODS, owner["metadata"]["uid"]) if not is_finished(pod)]
        active = [pod for pod in pods if is_active(pod)]
        refusal = None if is_terminating(owner) else self._manage(owner, active)
        waiting = self._write_status(owner, pods, active, refusal)
        if refusal is None:
            self._failures.pop(key, None)
            return waiting
        tries = self._failures[key] = self._failures.get(key, 0) + 1
        return min(_LAST_RETRY_S, _FIRST_RETRY_S * float(2 ** min(tries, 20)))

    def _manage(self, owner: Json, active: Sequence[Json]) -> StatusError | None:
        missing = int(owner["spec"].get("replicas", 1)) - len(active)
        if missing > 0:
            return self._create(owner, min(missing, BURST))
        if missing < 0:
            for pod in self._victims(active, min(-missing, BURST)):
                self._delete(owner, pod)
        return None

    def _create(self, owner: Json, missing: int) -> StatusError | None:
        """Create pods in batches of 1, 2, 4, …; a batch with a refusal is the last. Returns the first refusal."""
        batch = 1
        while missing > 0:
            refusals = []
            for _ in range(min(batch, missing)):
                try:
                    pod = self._store.create(PODS, pod_of(owner, owner["spec"]["template"]))
                except StatusError as refusal:
                    self._event(owner, "Warning", "FailedCreate", f"Error creating: {refusal.message}")
                    refusals.append(refusal)
                else:
                    self._event(owner, "Normal", "SuccessfulCreate", f"Created pod: {pod['metadata']['name']}")
            if refusals:
                return refusals[0]
            missing -= min(batch, missing)
            batch *= 2
        return None

    def _delete(self, owner: Json, pod: Json) -> None:
        metadata = pod["metadata"]
        try:
            self._store.delete(PODS, metadata["namespace"], metadata["name"], uid=metadata["uid"])
        except NotFound:
            return
        self._event(owner, "Normal", "SuccessfulDelete", f"Deleted pod: {metadata['name']}")

    def _victims(self, active: Sequence[Json], surplus: int) -> list[Json]:
        """Pods to delete first: unassigned, pending, unready, cheap, crowded on one node, ready for a short time, young."""
        crowd: dict[str, int] = {}
        for pod in active:
            node = pod["spec"].get("nodeName", "")
            crowd[node] = crowd.get(node, 0) + 1

        def rank(pod: Json) -> tuple[Any, ...]:
            node = pod["spec"].get("nodeName", "")
            ready = is_ready(pod)
            return (
                bool(node),
                {"Pending": 0, "Unknown": 1}.get((pod.get("status") or {}).get("phase", "Pending"), 2),
                ready,
                int(annotations_of(pod).get(_DELETION_COST, "0")),
                -crowd[node],
                round(self._ready_for(pod), 3) if ready else 0.0,
                -_restarts(pod),
                -instant(pod["metadata"]["creationTimestamp"]).timestamp(),
                -int(pod["metadata"]["resourceVersion"]),
            )

        return sorted(active, key=rank)[:surplus]

    def _write_status(self, owner: Json, pods: Sequence[Json], active: Sequence[Json], refusal: StatusError | None) -> float | None:
        """Count, from the pods as they were when the sync began. Returns model seconds until a ready pod becomes available."""
        wanted = owner["spec"]["template"].get("metadata", {}).get("labels") or {}
        ready = [pod for pod in active if is_ready(pod)]
        needed = float(owner["spec"].get("minReadySeconds", 0))
        left = [max(0.0, needed - self._ready_for(pod)) if needed else 0.0 for pod in ready]
        counts = {
            "fullyLabeledReplicas": sum(1 for pod in active if wanted.items() <= labels_of(pod).items()),
            "readyReplicas": len(ready),
            "availableReplicas": sum(1 for seconds in left if seconds == 0),
        }
        status: Json = {"replicas": len(active)} | {key: value for key, value in counts.items() if value}
        status["terminatingReplicas"] = sum(1 for pod in pods if is_terminating(pod))
        status["observedGeneration"] = owner["metadata"]["generation"]
        failure = self._failure(owner, refusal)
        if failure:
            status["conditions"] = [failure]
        self._store.patch_status(REPLICA_SETS, owner["metadata"]["namespace"], owner["metadata"]["name"], status)
        return min((seconds for seconds in left if seconds), default=None)

    def _failure(self, owner: Json, refusal: StatusError | None) -> Json | None:
        if refusal is None:
            return None
        current = condition_of(owner, "ReplicaFailure")
        if current is not None:
            return current
        return {
            "type": "ReplicaFailure",
            "status": "True",
            "lastTransitionTime": stamp(self._engine.clock.now()),
            "reason": "FailedCreate",
            "message": refusal.message,
        }

    def _event(self, owner: Json, type_: str, reason: str, message: str) -> None:
        self._recorder.controller(owner, COMPONENT, type_, reason, message)


def _restarts(pod: Json) -> int:
    return max((int(item.get("restartCount", 0)) for item in (pod.get("status") or {}).get("containerStatuses") or ()), default=0)
