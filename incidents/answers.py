"""Typed answers to commands and clicks: what was done or which rule refused it, in a sentence, and what would unblock it."""

from __future__ import annotations

from typing import Literal

from catalog.documents import Document
from incidents.cards import Card


class Answer(Document):
    """Answer to one command or click, the same on every surface."""

    ok: bool
    code: Literal["done", "refused", "not_found", "not_understood", "not_allowed", "unavailable"]
    text: str
    rule: str = ""
    unblock: str = ""
    incident_id: str | None = None
    card: Card | None = None
    view: Literal["", "story", "why"] = ""


def done(text: str, *, incident_id: str | None = None) -> Answer:
    return Answer(ok=True, code="done", text=text, incident_id=incident_id)


def refused(text: str, *, rule: str, unblock: str = "", incident_id: str | None = None) -> Answer:
    """Refused by a rule; the text ends with what would unblock it."""
    told = f"{text} To unblock: {unblock}" if unblock else text
    return Answer(ok=False, code="refused", text=told, rule=rule, unblock=unblock, incident_id=incident_id)
