"""Disruption budgets, the allowed dip and the blast radius. Evictions honour budgets; roll-outs do not, so we do it for them."""

from __future__ import annotations

from catalog.limits import allowed_dip, pods_at_risk, radius_breach
from executor.preflight.scene import Scene, known, reason


@reason("budget_floor")
def budget_floor(scene: Scene) -> str | None:
    """The roll-out's own floor must not be below what a budget wants healthy."""
    if not scene.restart:
        return None
    desired = known(scene.facts.desired, "the number of replicas")
    floor = desired - known(scene.facts.max_unavailable, "maxUnavailable")
    for budget in known(scene.view.budgets, "the disruption budgets"):
        wanted = known((budget.get("status") or {}).get("desiredHealthy"), "a budget's status")
        if floor < int(wanted):
            name = budget["metadata"]["name"]
            return f"The roll-out may go down to {floor} pods, the disruption budget {name} wants {wanted} healthy."
    return None


@reason("disruption_budget")
def disruption_budget(scene: Scene) -> str | None:
    """An eviction now would break a budget. It is never got round by deleting the pod."""
    if not scene.evictions:
        return None
    for budget in known(scene.view.budgets, "the disruption budgets"):
        status = budget.get("status") or {}
        if not status.get("disruptionsAllowed"):
            name, wanted = budget["metadata"]["name"], status.get("desiredHealthy", "?")
            return f"The disruption budget {name} allows no eviction now ({wanted} healthy wanted)."
    return None


@reason("dip")
def dip(scene: Scene) -> str | None:
    """Automatic only if losing one pod is within the allowed dip."""
    if not scene.auto or not scene.evictions:
        return None
    known(scene.view.budgets, "the disruption budgets")
    unavailable = known(scene.facts.max_unavailable, "maxUnavailable")
    allowed = allowed_dip(unavailable, known(scene.facts.ready, "the ready pods"), scene.facts.disruptions_allowed)
    return None if allowed >= 1 else f"{scene.title} may not lose a pod: the allowed dip is {allowed}; a person has to approve."


@reason("limit:radius")
def radius(scene: Scene) -> str | None:
    """The limits file's share of the namespace's ready pods."""
    if scene.scale is not None:
        return None
    unavailable = known(scene.facts.max_unavailable, "maxUnavailable") if scene.restart else 0
    at_risk = pods_at_risk(
        "restart_workload" if scene.restart else "restart_pod", max_unavailable=unavailable, one_pod_first=bool(scene.evictions)
    )
    ready = scene.facts.namespace_ready_pods
    if ready is None:
        # The target's own pods are a lower bound, which makes the limit stricter, never looser.
        ready = known(scene.facts.ready, "the ready pods")
    share = scene.bounds.radius.auto if scene.auto else scene.bounds.radius.approved
    breach = radius_breach(at_risk, ready, share, f"radius.{scene.order.mode}")
    return f"The executor's limits file refuses it: {breach.sentence}." if breach else None
