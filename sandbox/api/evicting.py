"""The eviction subresource: delete a pod unless a disruption budget forbids it."""

from __future__ import annotations

from sandbox.api.calls import Answer, Call
from sandbox.api.deleting import dry
from sandbox.api.plane import ControlPlane
from sandbox.decoding import parse_body
from sandbox.hooks import Review
from sandbox.kinds import BUDGETS, PODS
from sandbox.selecting import object_selector
from sandbox.statuses import BadRequest, Conflict, InternalError, Json, TooManyRequests

_BLOCKED = "Cannot evict pod as it would violate the pod's disruption budget."


def evict(plane: ControlPlane, call: Call) -> Answer:
    """POST pods/NAME/eviction: 201 and the pod is being deleted.

    Raises:
        NotFound: no such pod. TooManyRequests: a budget allows no disruption now (no Retry-After: it is not a matter of time).
        Conflict: the uid in the options is another's. InternalError: more than one budget selects the pod.
    """
    body = parse_body(call.body, call.content_type)
    if not isinstance(body, dict) or body.get("kind", "Eviction") != "Eviction":
        raise BadRequest("the object provided is unrecognized (must be of type Eviction)")
    named = (body.get("metadata") or {}).get("name", call.path.name)
    if named != call.path.name:
        raise BadRequest(f"name in URL does not match name in Eviction object: {call.path.name}")
    options = body.get("deleteOptions") or {}
    dry_run = dry(call, options)
    pod = plane.store.get(PODS, call.namespace, call.path.name)
    plane.hooks.admission(
        Review(call.account, "CREATE", PODS, "eviction", call.namespace, call.path.name, body, pod, options, dry_run=dry_run)
    )
    uid = (options.get("preconditions") or {}).get("uid")
    budget = None if _needs_no_budget(pod) else _budget_of(plane, pod)
    if budget is not None:
        _check(budget, pod)
    if uid is not None and uid != pod["metadata"]["uid"]:
        raise Conflict.precondition(PODS, call.path.name, "UID", uid, pod["metadata"]["uid"])
    if budget is not None and not dry_run:
        _spend(plane, budget, pod)
    plane.store.delete(PODS, call.namespace, call.path.name, uid=uid, grace=options.get("gracePeriodSeconds"), dry_run=dry_run)
    return Answer.of(201, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})


def _needs_no_budget(pod: Json) -> bool:
    return pod.get("status", {}).get("phase") in ("Pending", "Succeeded", "Failed") or "deletionTimestamp" in pod["metadata"]


def _budget_of(plane: ControlPlane, pod: Json) -> Json | None:
    labels = pod["metadata"].get("labels", {})
    found = [
        budget
        for budget in plane.store.list(BUDGETS, pod["metadata"]["namespace"])
        if object_selector(budget["spec"].get("selector"))(labels)
    ]
    if len(found) > 1:
        raise InternalError("This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.", {})
    return found[0] if found else None


def _check(budget: Json, pod: Json) -> None:
    name, status = budget["metadata"]["name"], budget.get("status", {})
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        cause = {
            "reason": "DisruptionBudget",
            "message": f"The disruption budget {name} is still being processed by the server.",
        }
        raise TooManyRequests(_BLOCKED, {"causes": [cause], "retryAfterSeconds": 10}, headers={"Retry-After": "10"})
    if not _ready(pod) and _unready_may_go(budget):
        return
    if status.get("disruptionsAllowed", 0) <= 0:
        desired, current = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
        cause = {
            "reason": "DisruptionBudget",
            "message": f"The disruption budget {name} needs {desired} healthy pods and has {current} currently",
        }
        raise TooManyRequests(_BLOCKED, {"causes": [cause]})


def _ready(pod: Json) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


def _unready_may_go(budget: Json) -> bool:
    if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget.get("status", {})
    desired: int = status.get("desiredHealthy", 0)
    return 0 < desired <= int(status.get("currentHealthy", 0))


def _spend(plane: ControlPlane, budget: Json, pod: Json) -> None:
    """Take one disruption from the budget now; its controller forgets the pod once it is gone."""
    if not _ready(pod) and _unready_may_go(budget):
        return
    status = budget.get("status", {})
    disrupted = {**status.get("disruptedPods", {}), pod["metadata"]["name"]: plane.store.now_text()}
    spent = {**status, "disruptionsAllowed": status["disruptionsAllowed"] - 1, "disruptedPods": disrupted}
    plane.store.patch_status(BUDGETS, budget["metadata"]["namespace"], budget["metadata"]["name"], spent)
