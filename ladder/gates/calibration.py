"""Gate 7: people's labels have shown that this kind of incident and action goes well together."""

from __future__ import annotations

from catalog.decisions import GateResult
from ladder.questions import Question


def ask(question: Question) -> GateResult:
    """Open gate of the (family, action) cell; a proposal may go without it where the scope says so, loudly."""
    if question.follow_up is not None and not question.auto:
        return question.passed("A follow-up is justified by its check, not by calibration.")
    case, cell = question.case, question.case.calibration
    pair = f"({case.family.value}, {case.action.action.value})"
    if cell is not None and (cell.family, cell.action) != (case.family, case.action.action):
        return question.unknown(f"The calibration that was read is not of {pair}.")
    if cell is not None and cell.open:
        bound = "" if cell.lower_bound is None else f", at least {cell.lower_bound:.3f} right with 95 % confidence"
        return question.passed(f"{cell.right} of {cell.settled} labelled episodes of {pair} were right{bound}.")
    if not question.auto and question.scope is not None and question.scope.propose_uncalibrated:
        return question.passed(
            f"UNCALIBRATED: {pair} has not shown itself yet; proposed because propose_uncalibrated is true.",
            setting="propose_uncalibrated: true",
        )
    if cell is None:
        return question.unknown(f"The calibration of {pair} could not be read.")
    following = f"next look at {cell.next_look} labels" if cell.next_look else "no later look is declared"
    reason = f": {cell.reason}" if cell.reason else ""
    return question.blocked(
        f"The gate of {pair} is closed with {cell.right} of {cell.settled} labelled episodes right{reason}.",
        setting="defaults.target_precision",
        unblock=f"human labels; {following}",
    )
