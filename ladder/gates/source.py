"""Gate 12: the alert is firing now, at its source, and no silence covers it. Shown on a proposal, hard for auto."""

from __future__ import annotations

from catalog.decisions import GateResult
from ladder.questions import Question


def ask(question: Question) -> GateResult:
    """Asked of Alertmanager just before, not of the webhook that opened the incident."""
    if question.auto:
        return _hard(question)
    return question.passed(seen_at_source(question))


def seen_at_source(question: Question) -> str:
    """What the source said, for a card."""
    alerts = question.case.alerts
    if question.case.origin == "follow_up":
        return "A follow-up has no alert of its own."
    silenced = [alert.name for alert in alerts if alert.silenced]
    if silenced:
        return f"Silenced at its source: {', '.join(silenced)}."
    if any(alert.firing_at_source for alert in alerts):
        return "Firing now at its source."
    if any(alert.firing_at_source is None for alert in alerts):
        return "Whether it still fires at its source could not be asked."
    return "NOT firing at its source now."


def _hard(question: Question) -> GateResult:
    alerts = question.case.alerts
    if not alerts:
        return question.blocked("There is no alert that fires.")
    silenced = next((alert for alert in alerts if alert.silenced), None)
    if silenced is not None:
        return question.blocked(f"A silence covers {silenced.name}.", unblock="the silence ends")
    if any(alert.silenced is None for alert in alerts):
        return question.unknown("Whether a silence covers it could not be asked.", unblock="Alertmanager must answer")
    if any(alert.firing_at_source for alert in alerts):
        return question.passed("Firing now at its source, and not silenced.")
    if any(alert.firing_at_source is None for alert in alerts):
        return question.unknown("Whether it fires at its source could not be asked.", unblock="Alertmanager must answer")
    return question.blocked("It is not firing at its source now.")
