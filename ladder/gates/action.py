"""Gate 3: the action is executable, fits this object as it stands now, and its parameters are in bounds."""

from __future__ import annotations

from catalog.actions import NoAction, RemediationAction, RestartPod, RestartWorkload, Scale, describe
from catalog.decisions import GateResult
from catalog.limits import scale_breach
from ladder.questions import Question, capitalised, first_objection

LISTED_PODS = 50


def ask(question: Question) -> GateResult:
    """The catalogue first, then anti-actions, then the live object."""
    found = first_objection(question, (_described, _kind, _anti_action, _moving, _pod, _restart, _scale))
    if found is not None:
        return found
    return question.passed(
        f"{capitalised(describe(question.case.action))} is executable and fits a {question.case.target.kind.value}."
    )


def _described(question: Question) -> GateResult | None:
    action, spec = question.case.action, question.spec
    if spec.executable:
        return None
    if isinstance(action, NoAction):
        return question.blocked("No action of the catalogue is recommended.")
    if action.action is RemediationAction.ESCALATE:
        return question.blocked("The recommendation is to hand over to people.")
    danger = f" {spec.no_undo}" if spec.no_undo else ""
    return question.blocked(
        f"{capitalised(describe(action))} is described, never executed.{danger}",
        setting="catalogue",
        unblock="people do it by hand",
    )


def _kind(question: Question) -> GateResult | None:
    kind, kinds = question.case.target.kind, question.spec.target_kinds
    if kind in kinds:
        return None
    fitting = " or ".join(one.value for one in kinds)
    return question.blocked(f"{capitalised(question.spec.title)} is for a {fitting}; this is a {kind.value}.", setting="catalogue")


def _anti_action(question: Question) -> GateResult | None:
    wanted = question.case.action.action
    against = next((anti for anti in question.case.anti_actions if anti.action is wanted), None)
    return (
        None
        if against is None
        else question.blocked(f"It would do harm here: {against.reason.rstrip('.')}.", unblock="people decide")
    )


def _moving(question: Question) -> GateResult | None:
    facts = question.case.facts
    if facts is None:
        return question.unknown("The object could not be read.", unblock="the Kubernetes API must answer")
    if None in (facts.paused, facts.rolling_out, facts.generation, facts.observed_generation, facts.desired):
        return question.unknown("Whether a roll-out is in progress could not be read.")
    if facts.paused:
        return question.blocked("The Deployment is paused.", unblock="whoever paused it resumes it")
    if facts.observed_generation != facts.generation:
        return question.blocked("The controller has not observed the latest change yet.", unblock="wait until it has")
    if facts.rolling_out:
        return question.blocked("A roll-out is in progress.", unblock="wait until it ends")
    return None


def _pod(question: Question) -> GateResult | None:
    action, facts = question.case.action, question.case.facts
    if not isinstance(action, RestartPod) or facts is None:
        return None
    if action.pod not in facts.pods:
        if len(facts.pods) >= LISTED_PODS or "pods" in facts.unread:
            return question.unknown(f"Whether {action.pod} is a pod of the target could not be read.")
        return question.blocked(f"{action.pod} is not a live pod of {question.case.target.title}.")
    if "budgets" in facts.unread:
        return question.unknown("Whether a PodDisruptionBudget allows an eviction could not be read.")
    if facts.disruptions_allowed is not None and facts.disruptions_allowed < 1:
        return question.blocked(
            "A PodDisruptionBudget allows no eviction now.", unblock="more healthy pods, or its owner changes it"
        )
    return None


def _restart(question: Question) -> GateResult | None:
    action, facts = question.case.action, question.case.facts
    if facts is None or not isinstance(action, RestartPod | RestartWorkload):
        return None
    if facts.desired == 0:
        return question.blocked("It is scaled to 0: there is nothing to restart.")
    if isinstance(action, RestartPod):
        return None
    if "budgets" in facts.unread:
        return question.unknown("Whether a PodDisruptionBudget covers its pods could not be read.")
    if facts.disruptions_allowed is None:
        return None
    if facts.ready is None or facts.max_unavailable is None or facts.desired is None:
        return question.unknown("Whether the roll-out would break a PodDisruptionBudget could not be read.")
    floor, healthy = facts.desired - facts.max_unavailable, facts.ready - facts.disruptions_allowed
    if floor < healthy:
        return question.blocked(
            f"The roll-out may go down to {floor} pods, and a PodDisruptionBudget wants {healthy}.",
            unblock="a smaller maxUnavailable, or its owner changes the budget",
        )
    return None


def _scale(question: Question) -> GateResult | None:
    action, facts, scope = question.case.action, question.case.facts, question.scope
    if not isinstance(action, Scale) or facts is None:
        return None
    if "autoscalers" in facts.unread:
        return question.unknown("Whether an autoscaler owns the number of replicas could not be read.")
    if facts.autoscaler is not None:
        return question.blocked(
            f"{facts.autoscaler} owns the number of replicas and would undo it.", unblock="change the autoscaler's bounds"
        )
    if facts.replicas_manager is not None:
        return question.blocked(
            f"{facts.replicas_manager} owns the number of replicas and would revert it.", unblock="change it in Git"
        )
    if facts.desired != action.from_replicas:
        return question.blocked(f"It has {facts.desired} replicas now, not {action.from_replicas}.", unblock="a new diagnosis")
    numbers = question.numbers
    breach = scale_breach(
        action.from_replicas,
        action.to_replicas,
        minimum=scope.scale_min if scope else 1,
        maximum=scope.scale_max if scope else numbers.scale_cap,
        step=scope.scale_step if scope else numbers.scale_step,
        cap=numbers.scale_cap,
    )
    return None if breach is None else question.blocked(f"{breach.sentence}.", setting="scale:", unblock="other bounds, or by hand")
