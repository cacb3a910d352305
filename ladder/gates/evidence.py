"""Gate 6: what the read-only verifier found carries the action. No evidence is not half a confidence; it is none."""

from __future__ import annotations

from catalog.cases import EvidenceSummary
from catalog.decisions import GateResult
from catalog.evidence import Oracle
from ladder.numbers import shown
from ladder.questions import Question, first_objection

SOURCES_NEEDED = 2


def ask(question: Question) -> GateResult:
    """Weight against its threshold; for auto also age, taint, independent sources and one check per oracle."""
    if question.case.origin == "follow_up":
        return _follow_up(question)
    evidence = question.case.evidence
    if evidence is not None and evidence.family is not question.case.family:
        return question.unknown(f"The evidence is about {evidence.family.value}, not about {question.case.family.value}.")
    if evidence is not None and evidence.refuted:
        return question.blocked(f"The evidence refutes {question.case.family.value}.", unblock="another diagnosis")
    if evidence is None or evidence.evidence_weight is None:
        return _unverified(question)
    return _weighed(question, evidence, evidence.evidence_weight)


def _follow_up(question: Question) -> GateResult:
    justification, needed = question.follow_up, question.numbers.follow_up_hold
    if question.auto:
        return question.blocked("A follow-up is proposed at most.", unblock="a person approves it")
    if justification is None:
        return question.blocked("A follow-up may only take back a scale-up, and its check must be named.")
    held = f"{justification.check} has held {shown(justification.held_for)}"
    if justification.held_for < needed:
        return question.blocked(f"{held}; {shown(needed)} are needed.", setting=question.number("follow_up_hold"), unblock="wait")
    return question.passed(f"{held} after incident {justification.of_incident}.")


def _unverified(question: Question) -> GateResult:
    allowed = question.scope is not None and question.scope.propose_unverified
    if allowed and not question.auto:
        return question.passed(
            "NOT VERIFIED: no prediction was answered; proposed because propose_unverified is true.",
            setting="propose_unverified: true",
        )
    return question.unknown("Nothing verified: no prediction was answered.", unblock="the sources answer, or people look")


def _weighed(question: Question, evidence: EvidenceSummary, weight: float) -> GateResult:
    name = "weight_auto" if question.auto else "weight_propose"
    threshold = getattr(question.numbers, name)
    counted = f"{evidence.supporting} supporting, {evidence.refuting} refuting, {evidence.inconclusive} inconclusive"
    if weight < threshold:
        return question.blocked(
            f"Evidence weight {weight:.2f} is below {threshold:.2f} ({counted}).",
            setting=question.number(name),
            unblock="more or better evidence",
        )
    if question.auto:
        found = first_objection(question, (_tainted, _age, _sources, _oracles))
        if found is not None:
            return found
    tainted = f" Tainted: {evidence.tainted}." if evidence.tainted else ""
    return question.passed(f"Evidence weight {weight:.2f} ({counted}).{tainted}", setting=question.number(name))


def _tainted(question: Question) -> GateResult | None:
    tainted = question.case.evidence.tainted if question.case.evidence else "no evidence"
    return question.blocked(f"The evidence is tainted: {tainted}.", unblock="it is read again") if tainted is not None else None


def _age(question: Question) -> GateResult | None:
    oldest = question.case.evidence.oldest_at if question.case.evidence else None
    if oldest is None:
        return question.unknown("How old the evidence is, is not known.")
    age, numbers = question.case.now - oldest, question.numbers
    if age < -numbers.clock_skew:
        return question.unknown("The evidence is dated in the future: clocks differ too much.", unblock="correct the clocks")
    if age > numbers.evidence_freshness:
        return question.blocked(
            f"The oldest evidence is {age.total_seconds():.0f} s old; at most {numbers.evidence_freshness.total_seconds():.0f} s.",
            setting=question.number("evidence_freshness"),
            unblock="it is read again",
        )
    return None


def _sources(question: Question) -> GateResult | None:
    sources = set(question.case.evidence.sources) if question.case.evidence else set()
    if "kubernetes" not in sources:
        return question.blocked("No supporting evidence comes from the Kubernetes API.")
    if len(sources) < SOURCES_NEEDED:
        return question.blocked("All supporting evidence comes from one source; two are needed.", unblock="a second source answers")
    return None


def _oracles(question: Question) -> GateResult | None:
    missing = sorted(oracle.value.replace("_", " ") for oracle in Oracle if not _covered(question, oracle))
    if not missing:
        return None
    return question.blocked(
        f"Nothing would watch the {' and the '.join(missing)}; automatic actions need a check of each.",
        setting="checks:",
        unblock="a service-level check in the scope, and alert and component evidence",
    )


def _covered(question: Question, oracle: Oracle) -> bool:
    answered = question.case.evidence is not None and oracle in question.case.evidence.oracles
    match oracle:
        case Oracle.SERVICE_LEVEL:
            # Only the scope's own expressions can be sampled during a transaction, so nothing else stands in for them.
            return question.scope is not None and bool(question.scope.checks)
        case Oracle.ALERT:
            return answered or any(alert.firing_at_source is True for alert in question.case.alerts)
        case Oracle.COMPONENT:
            return answered
