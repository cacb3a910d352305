"""Gate 10: how many pods may be unready at the same time, against the namespace, and who depends on them."""

from __future__ import annotations

from catalog.actions import RestartPod, RestartWorkload, Scale
from catalog.decisions import GateResult
from catalog.limits import allowed_dip, pods_at_risk, radius_breach
from catalog.targets import TargetFacts, TargetKind
from ladder.questions import Question, first_objection


def ask(question: Question) -> GateResult:
    """A hard share for proposals, a stricter one for auto, which also needs spare replicas and one pod within the allowed dip."""
    facts = question.case.facts
    if facts is None:
        return question.unknown("The target could not be read.", unblock="the Kubernetes API must answer")
    if not question.spec.executable:
        return question.blocked("The action is not executable, so it has no known radius.")
    at_risk = pods_unready(question, facts)
    if at_risk is None or facts.namespace_ready_pods is None:
        return question.unknown("How many pods could become unready is not known.", unblock="the Kubernetes API must answer")
    name = "radius_auto" if question.auto else "radius_propose"
    breach = radius_breach(at_risk, facts.namespace_ready_pods, getattr(question.numbers, name), "The blast radius")
    if breach is not None:
        return question.blocked(f"{breach.sentence}.", setting=question.number(name), unblock="a smaller roll-out step, or by hand")
    if question.auto:
        found = first_objection(question, (_replicas, _outage, _dip, _services))
        if found is not None:
            return found
    return question.passed(f"At most {at_risk} pods unready at once.{_dependants(question, facts)}", setting=question.number(name))


def pods_unready(question: Question, facts: TargetFacts) -> int | None:
    """Pods that may be unready or gone at the same time; None when it cannot be told."""
    action = question.case.action
    match action:
        case Scale():
            return 0 if action.upward else action.from_replicas - action.to_replicas
        case RestartPod():
            return 1
        case RestartWorkload() if facts.target.kind is TargetKind.STATEFULSET:
            return 1
        case RestartWorkload() if facts.strategy == "Recreate":
            return facts.desired
        case RestartWorkload() if facts.max_unavailable is not None and facts.strategy:
            return pods_at_risk("restart_workload", max_unavailable=facts.max_unavailable, one_pod_first=question.auto)
        case _:
            return None


def full_outage(facts: TargetFacts) -> bool:
    """Whether a restart may leave no pod ready: strategy Recreate, or nothing stays up."""
    if facts.strategy == "Recreate":
        return True
    return facts.desired is not None and facts.max_unavailable is not None and facts.max_unavailable >= facts.desired


def _replicas(question: Question) -> GateResult | None:
    facts = question.case.facts
    name = "min_replicas_scale" if isinstance(question.case.action, Scale) else "min_replicas_restart"
    least = getattr(question.numbers, name)
    if facts is None or facts.desired is None:
        return question.unknown("The number of replicas is not known.")
    if facts.desired < least:
        return question.blocked(
            f"It has {facts.desired} replicas; without a person at least {least}.", setting=question.number(name)
        )
    return None


def _outage(question: Question) -> GateResult | None:
    facts = question.case.facts
    if facts is None or isinstance(question.case.action, Scale) or not full_outage(facts):
        return None
    return question.blocked("No pod would stay ready.", unblock="a person approves it: the card says full outage")


def _dip(question: Question) -> GateResult | None:
    facts = question.case.facts
    if facts is None or isinstance(question.case.action, Scale):
        return None
    if facts.max_unavailable is None or facts.ready is None:
        return question.unknown("Whether losing one pod is within the allowed dip is not known.")
    if allowed_dip(facts.max_unavailable, facts.ready, facts.disruptions_allowed) < 1:
        return question.blocked(
            f"Losing one of {facts.ready} ready pods is not within the allowed dip.", unblock="a person approves it"
        )
    return None


def _services(question: Question) -> GateResult | None:
    facts = question.case.facts
    if facts is None or "services" not in facts.unread:
        return None
    return question.unknown("Which Services depend on its pods could not be read.", unblock="the Kubernetes API must answer")


def _dependants(question: Question, facts: TargetFacts) -> str:
    names = [*(f"Service {name}" for name in facts.services), *(question.scope.dependants if question.scope else ())]
    return f" Depending on it: {', '.join(names)}." if names else ""
