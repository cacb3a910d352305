"""Whether a `notify` says something that Alertmanager does not, and whether an incident is worth more than its record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from catalog.alerts import AlertSeverity
from catalog.cases import Case, Notability
from catalog.decisions import GateName, GateResult, GateState
from catalog.diagnoses import Family
from ladder.gates.scope import membership
from ladder.questions import Question

NAMED_CAUSE_WEIGHT = 0.6
EARNED_GATES = frozenset({GateName.SCOPE, GateName.CALIBRATION})
_NO_CAUSE = frozenset({Family.UNKNOWN, Family.SELF_RESOLVED, Family.INTENDED})


def _only_unearned(states: Mapping[GateName, GateState]) -> bool:
    """Whether nothing but rung and calibration keeps the proposal back: only labels can change that, so people are asked."""
    return {gate for gate, state in states.items() if state is not GateState.PASSED} <= EARNED_GATES


def informational(case: Case) -> bool:
    """Whether every alert is of severity none or info. A follow-up has no alert and is not informational."""
    return bool(case.alerts) and all(alert.severity.rank <= AlertSeverity.INFO.rank for alert in case.alerts)


def notability(question: Question, proposals: Iterable[GateResult]) -> tuple[Notability, ...]:
    """Reasons for a message of its own; none of them: the digest is enough. `proposals` are the gates asked for propose."""
    case, evidence = question.case, question.case.evidence
    found: list[Notability] = []
    weight = evidence.evidence_weight if evidence is not None and evidence.family is case.family else None
    if weight is not None and weight >= NAMED_CAUSE_WEIGHT and not (evidence and evidence.refuted) and case.family not in _NO_CAUSE:
        found.append(Notability.NAMED_CAUSE)
    if evidence is not None and evidence.refuted:
        found.append(Notability.REFUTED_SUSPICION)
    if case.anti_actions:
        found.append(Notability.ANTI_ACTION)
    states = {result.gate: result.state for result in proposals}
    if question.spec.executable and membership(question) is None and _only_unearned(states):
        found.append(Notability.LABEL_REQUEST)
    # Worth a message only where people have let the bot propose: elsewhere "refused" would follow every alert.
    if question.spec.executable and states.get(GateName.SCOPE) is GateState.PASSED and set(states.values()) != {GateState.PASSED}:
        found.append(Notability.REFUSED_ACTION)
    return tuple(found)
