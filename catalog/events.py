"""The append-only record of an incident. Cards, audit, post-mortem and episode are projections of it.

Each event carries the hash of the one before it, over the *digest* of its payload: a payload can be erased after its
retention and the chain still verifies.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import Any

from pydantic import Field

from catalog.documents import Document, Instant, digest, instant_text

GENESIS = "0" * 64


class EventKind(StrEnum):
    OPENED = "opened"
    ALERT_ATTACHED = "alert_attached"
    ALERT_RESENT = "alert_resent"
    ALERT_RESOLVED = "alert_resolved"
    DIAGNOSED = "diagnosed"
    VERIFIED = "verified"
    DECIDED = "decided"
    RECORDED = "recorded"
    NOTIFIED = "notified"
    PROPOSED = "proposed"
    REMINDED = "reminded"
    APPROVED = "approved"
    REJECTED = "rejected"
    CLICK_REFUSED = "click_refused"
    PROPOSAL_EXPIRED = "proposal_expired"
    PROPOSAL_SUPERSEDED = "proposal_superseded"
    PROPOSAL_WITHDRAWN = "proposal_withdrawn"
    PROPOSAL_STALE = "proposal_stale"
    ORDERED = "ordered"
    ORDER_WITHHELD = "order_withheld"
    ORDER_DELIVERED = "order_delivered"
    ORDER_EXPIRED = "order_expired"
    OUTCOME = "outcome"
    WATCHING = "watching"
    CAME_BACK = "came_back"
    TAKEN_OVER = "taken_over"
    LABELLED = "labelled"
    LABEL_REQUESTED = "label_requested"
    PAGED = "paged"
    BLOCKED = "blocked"
    UNBLOCKED = "unblocked"
    LINKED = "linked"
    REOPENED = "reopened"
    DEGRADED = "degraded"
    CLOSED = "closed"


class Event(Document):
    """One thing that happened to one incident."""

    incident_id: str
    seq: int = Field(ge=1)
    kind: EventKind
    at: Instant
    recorded_at: Instant
    actor: str = Field(description="person id, 'bot', 'executor:ID' or 'alertmanager'")
    payload: dict[str, Any] | None = Field(description="None once erased")
    payload_digest: str
    previous: str
    hash: str


def event_hash(incident_id: str, seq: int, kind: EventKind, at: Instant, actor: str, payload_digest: str, previous: str) -> str:
    """SHA-256 over the previous hash and this event without its payload."""
    text = "\n".join((previous, incident_id, str(seq), kind.value, instant_text(at), actor, payload_digest))
    return hashlib.sha256(text.encode()).hexdigest()


def verify_chain(events: list[Event]) -> str | None:
    """None when the chain of one incident's events holds, else a sentence that names the first break."""
    previous = GENESIS
    for expected, event in enumerate(events, start=1):
        if event.seq != expected:
            return f"event {expected} is missing (found {event.seq})"
        if event.previous != previous:
            return f"event {event.seq} does not follow event {event.seq - 1}"
        if event.payload is not None and digest(event.payload) != event.payload_digest:
            return f"payload of event {event.seq} was changed"
        found = event_hash(event.incident_id, event.seq, event.kind, event.at, event.actor, event.payload_digest, event.previous)
        if found != event.hash:
            return f"event {event.seq} was changed"
        previous = event.hash
    return None
