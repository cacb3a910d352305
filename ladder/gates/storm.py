"""Gate 11: when too much is unhealthy at once, new work is withheld until an owner releases it."""

from __future__ import annotations

from catalog.decisions import GateResult
from ladder.questions import Question


def ask(question: Question) -> GateResult:
    """Latched until released. Rollback, verification and recovery messages do not pass this way, so it never blocks them."""
    storm = question.case.storm
    if storm.latched is None:
        return question.unknown("Whether a storm is on could not be read.", unblock="the database must answer")
    if not storm.latched:
        return question.passed("No storm.")
    since = f" since {storm.since:%Y-%m-%d %H:%M} UTC" if storm.since else ""
    return question.blocked(
        f"Withheld in a storm{since}: {storm.reason}.", setting="numbers.storm_*", unblock="an owner: /sre release WHY"
    )
