"""PodDisruptionBudgets: how many pods may go now."""

from __future__ import annotations

from typing import Any

from sandbox.controllers.engine import Engine, Key
from sandbox.controllers.facts import (
    condition_of,
    controller_of,
    instant,
    is_finished,
    is_ready,
    is_terminating,
    labels_of,
    stamp,
)
from sandbox.controllers.rollouts import replicas_of, share_of
from sandbox.kinds import BUDGETS, PODS, REPLICA_SETS, STATEFUL_SETS, Kind
from sandbox.selecting import object_selector
from sandbox.store import Store

Json = dict[str, Any]

DISRUPTED_S = 120.0
"""Model seconds for which an evicted pod counts as gone though it is still there."""
_OWNERS: dict[str, Kind] = {"ReplicaSet": REPLICA_SETS, "StatefulSet": STATEFUL_SETS}


class BudgetController:
    """Keeps the status of budgets, which is all that evictions look at."""

    name = "budgets"

    def __init__(self, store: Store, engine: Engine) -> None:
        self._store = store
        self._engine = engine

    def budgets_of(self, pod: Json) -> list[Key]:
        """The budgets of its namespace that select a pod."""
        labels = labels_of(pod)
        namespace = pod["metadata"]["namespace"]
        return [
            (namespace, budget["metadata"]["name"])
            for budget in self._store.list(BUDGETS, namespace)
            if object_selector(budget["spec"].get("selector"))(labels)
        ]

    def sync(self, key: Key) -> float | None:
        budget = self._store.find(BUDGETS, *key)
        if budget is None:
            return None
        selects = object_selector(budget["spec"].get("selector"))
        pods = [pod for pod in self._store.list(PODS, key[0]) if selects(labels_of(pod)) and not is_finished(pod)]
        names = {pod["metadata"]["name"] for pod in pods if not is_terminating(pod)}
        disrupted = self._disrupted(budget, names)
        healthy = sum(1 for pod in pods if is_ready(pod) and not is_terminating(pod) and pod["metadata"]["name"] not in disrupted)
        expected = self._expected(pods)
        wanted = _desired(budget["spec"], expected)
        allowed = max(0, healthy - wanted) if expected else 0
        status: Json = {"observedGeneration": budget["metadata"]["generation"]}
        if disrupted:
            status["disruptedPods"] = disrupted
        status |= {"disruptionsAllowed": allowed, "currentHealthy": healthy, "desiredHealthy": wanted, "expectedPods": expected}
        status["conditions"] = [self._condition(budget, allowed)]
        self._store.patch_status(BUDGETS, *key, status)
        return DISRUPTED_S if disrupted else None

    def _disrupted(self, budget: Json, names: set[str]) -> dict[str, str]:
        """Evicted pods that are still there, for a while."""
        now = self._engine.clock.now()
        known = (budget.get("status") or {}).get("disruptedPods") or {}
        return {
            name: since
            for name, since in known.items()
            if name in names and self._engine.model((now - instant(since)).total_seconds()) < DISRUPTED_S
        }

    def _expected(self, pods: list[Json]) -> int:
        """What the owners of the pods want in all; a pod without an owner counts for itself."""
        owners: dict[str, int] = {}
        loose = 0
        for pod in pods:
            owner = controller_of(pod)
            kind = _OWNERS.get(owner["kind"]) if owner else None
            found = self._store.find(kind, pod["metadata"]["namespace"], owner["name"]) if owner and kind else None
            if found is None:
                loose += 1
            else:
                owners[found["metadata"]["uid"]] = replicas_of(found)
        return loose + sum(owners.values())

    def _condition(self, budget: Json, allowed: int) -> Json:
        known = condition_of(budget, "DisruptionAllowed")
        value = "True" if allowed else "False"
        same = known is not None and known["status"] == value
        return {
            "type": "DisruptionAllowed",
            "status": value,
            "observedGeneration": budget["metadata"]["generation"],
            "lastTransitionTime": known["lastTransitionTime"] if known is not None and same else stamp(self._engine.clock.now()),
            "reason": "SufficientPods" if allowed else "InsufficientPods",
            "message": "",
        }


def _desired(spec: Json, expected: int) -> int:
    if "maxUnavailable" in spec:
        return max(0, expected - share_of(spec["maxUnavailable"], expected, up=True))
    least = spec.get("minAvailable", 1)
    if isinstance(least, str):
        return share_of(least, expected, up=True)
    return int(least)
