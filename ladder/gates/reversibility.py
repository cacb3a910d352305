"""Gate 4: irreversible needs two people and is never automatic; automatic are restarts and scaling up, nothing else."""

from __future__ import annotations

from catalog.actions import Scale
from catalog.decisions import GateResult
from ladder.questions import Question, capitalised

IRREVERSIBLE_QUORUM = 2


def ask(question: Question) -> GateResult:
    """Asked of the catalogue's row, never of what a model or an alert says about the action."""
    spec, action = question.spec, question.case.action
    if spec.irreversible:
        if question.auto:
            return question.blocked(f"{capitalised(spec.title)} is irreversible: never without people.", setting="catalogue")
        return question.passed(f"{capitalised(spec.title)} is irreversible: {IRREVERSIBLE_QUORUM} people must approve. {spec.undo}")
    if not question.auto:
        return question.passed(spec.undo)
    if not spec.auto_eligible:
        return question.blocked(
            f"{capitalised(spec.title)} is never automatic.", setting="catalogue", unblock="a person approves it"
        )
    if isinstance(action, Scale) and not action.upward:
        return question.blocked("Automatic scaling only goes up.", setting="catalogue", unblock="a person approves it")
    return question.passed(spec.undo)


def quorum(question: Question) -> int:
    """People who must approve a proposal of this action."""
    wanted = question.scope.quorum if question.scope else 1
    return max(wanted, IRREVERSIBLE_QUORUM) if question.spec.irreversible else wanted
