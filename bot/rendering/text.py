"""The card as plain text, for the terminal."""

from __future__ import annotations

import textwrap

from bot.showing import shown
from incidents.answers import Answer
from incidents.cards import Card

WIDTH = 110


def render_answer(answer: Answer) -> str:
    """An answer as one text: its sentence, or the card it is about."""
    if answer.card is None:
        return answer.text
    return render_why(answer.card) if answer.view == "why" else render_text(answer.card)


def render_text(card: Card) -> str:
    """The whole card: headline, fixed fields, evidence, gates, checks, timeline."""
    parts = [shown(card.headline), f"#{card.number} {card.incident_id}"]
    if card.cause:
        parts.append(_wrapped(card.cause))
    parts.append(_columns([(field.name, field.value) for field in card.fields]))
    parts.extend(f"! {shown(text)}" for text in (*card.warnings, *card.anti_actions, *card.degraded))
    if card.evidence:
        lines = [f"  {line.answer:<12} {shown(line.text)} ({line.source} {line.observed_at:%H:%M:%S})" for line in card.evidence]
        parts.append("Evidence\n" + "\n".join(lines))
        if card.evidence_cut:
            parts.append(f"  … {card.evidence_cut} more in the record")
    if card.checks:
        lines = [f"  {shown(check.name):<32} {check.before:>8} → {check.after}" for check in card.checks]
        parts.append("Before and after\n" + "\n".join(lines))
    parts.extend(f"not undone: {shown(text)}" for text in card.not_undone)
    parts.append("Timeline\n" + "\n".join(f"  {line.at:%H:%M:%S} {line.actor:<14} {shown(line.text)}" for line in card.timeline))
    return "\n\n".join(part for part in parts if part)


def render_why(card: Card) -> str:
    """Every gate in one line each, with what would unblock it."""
    if not card.gates:
        return f"#{card.number}: nothing has been decided yet. {shown(card.headline)}"
    lines = [shown(card.headline)]
    if card.deciding_gate is not None:
        lines.append(f"decided by {card.deciding_gate.gate.value}: {shown(card.deciding_gate.sentence)}")
    for gate in card.gates:
        mark = {"passed": "✓", "blocked": "✗", "unknown": "?"}[gate.state.value]
        unblock = f" — {shown(gate.unblock)}" if gate.unblock else ""
        lines.append(f"  {mark} {gate.route:<7} {gate.gate.value:<13} {shown(gate.sentence)}{unblock}")
    return "\n".join(lines)


def _wrapped(text: str) -> str:
    return textwrap.fill(shown(text), WIDTH)


def _columns(rows: list[tuple[str, str]]) -> str:
    width = max(len(name) for name, _ in rows)
    indent = " " * (width + 4)
    return "\n".join(
        textwrap.fill(shown(value), WIDTH, initial_indent=f"  {name:<{width}}  ", subsequent_indent=indent) for name, value in rows
    )
