"""HorizontalPodAutoscalers: keep a Deployment's replicas within bounds, and follow CPU utilization where requests are stated.

An autoscaler leaves no mark on its target. Whoever scales the target beyond the bounds is undone within one sync.
"""

from __future__ import annotations

import math
from typing import Any

from sandbox.controllers.engine import Engine, Key
from sandbox.controllers.facts import condition_of, stamp
from sandbox.controllers.quantities import quantity
from sandbox.controllers.recorder import Recorder
from sandbox.controllers.rollouts import replicas_of
from sandbox.kinds import AUTOSCALERS, DEPLOYMENTS, PODS, REPLICA_SETS
from sandbox.shelves import copied
from sandbox.store import Store
from sandbox.traffic import Traffic

Json = dict[str, Any]

PERIOD_S = 15.0
"""Model seconds between two looks."""
TOLERANCE = 0.1
CALM_S = 300.0
"""Model seconds over which the highest recommendation counts before scaling down."""
_UNKNOWN = "the HPA was unable to compute the replica count: failed to get cpu utilization: missing request for cpu"


class AutoscalerController:
    """The controller `autoscalers`."""

    name = "autoscalers"

    def __init__(self, store: Store, engine: Engine, recorder: Recorder, traffic: Traffic) -> None:
        self._store = store
        self._engine = engine
        self._recorder = recorder
        self._traffic = traffic
        self._next: dict[Key, float] = {}
        self._wanted: dict[Key, list[tuple[float, int]]] = {}

    def sync(self, key: Key) -> float | None:
        autoscaler = self._store.find(AUTOSCALERS, *key)
        if autoscaler is None:
            self._next.pop(key, None)
            self._wanted.pop(key, None)
            return None
        now = self._engine.model(self._engine.monotonic())
        due = self._next.setdefault(key, now)
        if now < due - 1e-9:
            return due - now
        self._next[key] = now + PERIOD_S
        self._look(key, autoscaler, now)
        return PERIOD_S

    def _look(self, key: Key, autoscaler: Json, now: float) -> None:
        target = autoscaler["spec"]["scaleTargetRef"]
        deployment = self._store.find(DEPLOYMENTS, key[0], target["name"]) if target["kind"] == "Deployment" else None
        if deployment is None:
            what = f'{target["kind"].lower()}s.apps "{target["name"]}" not found'
            message = f"the HPA controller was unable to get the target's current scale: {what}"
            self._write(
                autoscaler, {"currentReplicas": 0, "desiredReplicas": 0}, [("AbleToScale", "False", "FailedGetScale", message)]
            )
            return
        current = replicas_of(deployment)
        if current == 0:
            message = "scaling is disabled since the replica count of the target is zero"
            self._write(
                autoscaler, {"currentReplicas": 0, "desiredReplicas": 0}, [("ScalingActive", "False", "ScalingDisabled", message)]
            )
            return
        used = self._utilization(deployment)
        asked = self._recommended(autoscaler, current, used)
        low, high = int(autoscaler["spec"].get("minReplicas", 1)), int(autoscaler["spec"]["maxReplicas"])
        wanted = self._calm(key, now, current, min(high, max(low, asked)))
        self._apply(autoscaler, deployment, current, wanted, used, limited=asked > high)

    def _apply(self, autoscaler: Json, deployment: Json, current: int, wanted: int, used: float | None, *, limited: bool) -> None:
        conditions = [("AbleToScale", "True", "SucceededGetScale", "the HPA controller was able to get the target's current scale")]
        status: Json = {"currentReplicas": current, "desiredReplicas": wanted if used is not None or wanted != current else 0}
        if wanted != current:
            body = copied(deployment)
            body["spec"]["replicas"] = wanted
            self._store.update(DEPLOYMENTS, body)
            reason = (
                f"New size: {wanted}; reason: Current number of replicas {'above' if wanted < current else 'below'} the wanted one"
            )
            self._recorder.controller(autoscaler, "horizontal-pod-autoscaler", "Normal", "SuccessfulRescale", reason)
            message = f"the HPA controller was able to update the target scale to {wanted}"
            conditions = [("AbleToScale", "True", "SucceededRescale", message)]
            status["lastScaleTime"] = stamp(self._engine.clock.now())
        elif "lastScaleTime" in (autoscaler.get("status") or {}):
            status["lastScaleTime"] = autoscaler["status"]["lastScaleTime"]
        if used is None:
            conditions.append(("ScalingActive", "False", "FailedGetResourceMetric", _UNKNOWN))
        else:
            counted = "the HPA was able to successfully calculate a replica count from cpu resource utilization"
            conditions.append(("ScalingActive", "True", "ValidMetricFound", counted))
            bound = ("True", "TooManyReplicas", "the desired replica count is more than the maximum replica count")
            free = ("False", "DesiredWithinRange", "the desired count is within the acceptable range")
            conditions.append(("ScalingLimited", *(bound if limited else free)))
            value = {"averageUtilization": round(used * 100), "averageValue": "0"}
            status["currentMetrics"] = [{"type": "Resource", "resource": {"name": "cpu", "current": value}}]
        self._write(autoscaler, status, conditions)

    def _utilization(self, deployment: Json) -> float | None:
        """CPU used over CPU requested by the pods in service, or None where no request is stated."""
        metadata = deployment["metadata"]
        requested = used = 0.0
        for item in self._store.owned(REPLICA_SETS, metadata["uid"]):
            for pod in self._store.owned(PODS, item["metadata"]["uid"]):
                for container in pod["spec"]["containers"]:
                    requests = (container.get("resources") or {}).get("requests") or {}
                    instance = self._traffic.group((metadata["namespace"], metadata["name"])).instances.get(
                        (pod["metadata"]["uid"], container["name"])
                    )
                    if instance is not None and instance.in_service and "cpu" in requests:
                        requested += float(quantity(requests["cpu"]))
                        used += self._traffic.flow(instance).cpu
        return used / requested if requested else None

    def _recommended(self, autoscaler: Json, current: int, used: float | None) -> int:
        target = next(
            (
                item["resource"]["target"].get("averageUtilization")
                for item in autoscaler["spec"].get("metrics") or ()
                if item.get("type") == "Resource" and item["resource"]["name"] == "cpu"
            ),
            None,
        )
        if used is None or not target:
            return current
        ratio = used * 100 / float(target)
        return current if abs(ratio - 1) <= TOLERANCE else math.ceil(current * ratio)

    def _calm(self, key: Key, now: float, current: int, wanted: int) -> int:
        """Scale down only to the highest size recommended lately; a bound below the present size counts at once."""
        kept = [item for item in self._wanted.get(key, []) if now - item[0] <= CALM_S]
        kept.append((now, wanted))
        self._wanted[key] = kept
        return wanted if wanted >= current else max(size for _, size in kept)

    def _write(self, autoscaler: Json, status: Json, conditions: list[tuple[str, str, str, str]]) -> None:
        now = stamp(self._engine.clock.now())
        written = []
        for type_, value, reason, message in conditions:
            known = condition_of(autoscaler, type_)
            same = known is not None and known["status"] == value
            changed = known["lastTransitionTime"] if known is not None and same else now
            written.append({"type": type_, "status": value, "lastTransitionTime": changed, "reason": reason, "message": message})
        status.setdefault("currentMetrics", None)
        namespace, name = autoscaler["metadata"]["namespace"], autoscaler["metadata"]["name"]
        self._store.patch_status(AUTOSCALERS, namespace, name, status | {"conditions": written})
