"""The steps and deadlines of an order, from the action and the live facts. Pure."""

from __future__ import annotations

from typing import Literal

from catalog.actions import Action, RestartPod, RestartWorkload, Scale
from catalog.orders import MAX_PLAN_STEPS, Deadlines, PlanStep, StepKind
from catalog.targets import TargetFacts, TargetKind
from ladder.errors import NotPlannable
from ladder.numbers import Numbers


def plan(action: Action, facts: TargetFacts, mode: Literal["auto", "approved"]) -> tuple[PlanStep, ...]:
    """What is written, in order.

    A restart that a person approved is one stamp. An automatic one first evicts one pod (the one the evidence names, else the
    oldest, which the executor picks from what it reads), settles, and only then stamps. A StatefulSet goes by evictions alone,
    highest ordinal first, as its own controller would.

    Raises:
        NotPlannable: no plan for this action on this object.
    """
    match action:
        case Scale():
            return (PlanStep(kind=StepKind.SCALE, from_replicas=action.from_replicas, to_replicas=action.to_replicas),)
        case RestartPod():
            return (PlanStep(kind=StepKind.OPEN), PlanStep(kind=StepKind.EVICT, pod=action.pod, pod_uid=action.pod_uid))
        case RestartWorkload() if facts.target.kind is TargetKind.DEPLOYMENT:
            return _roll_out(action, facts, mode)
        case RestartWorkload() if facts.target.kind is TargetKind.STATEFULSET:
            return _evictions(facts, mode)
        case _:
            raise NotPlannable(f"{action.action.value} on a {facts.target.kind.value} has no plan: it is never executed")


def deadlines(numbers: Numbers, *, scrape_interval: float, evaluation_interval: float) -> Deadlines:
    """Numbers the transaction runs by, in seconds. Intervals are Prometheus' own, as read."""
    return Deadlines(
        settle_floor=numbers.settle_floor.total_seconds(),
        settle_cap=max(numbers.settle_cap, numbers.settle_floor).total_seconds(),
        apply_cap=numbers.apply_cap.total_seconds(),
        scrape_interval=scrape_interval,
        evaluation_interval=evaluation_interval,
        kubernetes_sample=numbers.kubernetes_sample.total_seconds(),
    )


def _roll_out(action: RestartWorkload, facts: TargetFacts, mode: Literal["auto", "approved"]) -> tuple[PlanStep, ...]:
    stamp = PlanStep(kind=StepKind.STAMP)
    if mode == "approved":
        return (stamp,)
    first = action.first_pod if action.first_pod in facts.pods else None
    return (PlanStep(kind=StepKind.OPEN), PlanStep(kind=StepKind.EVICT, pod=first), stamp)


def _evictions(facts: TargetFacts, mode: Literal["auto", "approved"]) -> tuple[PlanStep, ...]:
    if mode == "auto":
        raise NotPlannable("a StatefulSet is never restarted without a person")
    if not facts.pods:
        raise NotPlannable(f"{facts.target.title} has no pod to evict")
    if len(facts.pods) + 1 > MAX_PLAN_STEPS:
        raise NotPlannable(
            f"{facts.target.title} has {len(facts.pods)} pods; at most {MAX_PLAN_STEPS - 1} are evicted in one order"
        )
    pods = sorted(facts.pods, key=_ordinal, reverse=True)
    return (PlanStep(kind=StepKind.OPEN), *(PlanStep(kind=StepKind.EVICT, pod=pod) for pod in pods))


def _ordinal(pod: str) -> tuple[int, str]:
    tail = pod.rpartition("-")[2]
    return (int(tail), pod) if tail.isdecimal() else (-1, pod)
