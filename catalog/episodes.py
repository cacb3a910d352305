"""What is learnt from: one closed incident with its outcome and the labels that people gave it."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field

from catalog.actions import RemediationAction
from catalog.diagnoses import Family
from catalog.documents import Document, Instant, StoredDocument
from catalog.outcomes import End


class Phase(StrEnum):
    """Phases of an incident, in the order of the flow."""

    OPEN = "open"
    DIAGNOSED = "diagnosed"
    DECIDED = "decided"
    RECORDED = "recorded"
    NOTIFIED = "notified"
    PROPOSED = "proposed"
    ORDERED = "ordered"
    EXECUTING = "executing"
    WATCHING = "watching"
    CLOSED = "closed"


class CloseReason(StrEnum):
    """The strongest thing that happened to the incident."""

    SELF_RESOLVED = "self_resolved"
    PEOPLE = "people"
    HELD = "held"
    CAME_BACK = "came_back"
    INEFFECTIVE = "ineffective"
    ROLLED_BACK = "rolled_back"
    REGRESSED = "regressed"
    UNVERIFIED = "unverified"
    CONFLICT = "conflict"
    UNDO_INCOMPLETE = "undo_incomplete"
    REFUSED = "refused"
    REJECTED = "rejected"
    EXPIRED = "expired"
    TAKEN_OVER = "taken_over"
    UNKNOWN = "unknown"


class Question(StrEnum):
    DIAGNOSIS = "diagnosis"
    ACTION = "action"


class LabelOrigin(StrEnum):
    """Only `human` labels of this installation ever count."""

    HUMAN = "human"
    MACHINE = "machine"
    IMPORTED = "imported"
    SIMULATED = "simulated"


class Label(Document):
    """One person's answer to one question about one incident. The latest of a person counts."""

    id: str
    incident_id: str
    question: Question
    right: bool
    person: str
    at: Instant
    note: str = Field(default="", max_length=2000)
    origin: LabelOrigin = LabelOrigin.HUMAN
    settles: bool = Field(default=False, description="an owner settles a disagreement with it")


class Episode(StoredDocument):
    """Complete when the hold watch has ended."""

    incident_id: str
    number: int
    cluster: str
    namespace: str
    scope: str | None
    match_digest: str | None
    family: Family
    action: RemediationAction
    route: Literal["record", "notify", "propose", "auto"]
    executed: bool
    end: End | None
    close_reason: CloseReason
    approvers: tuple[str, ...] = ()
    opened_at: Instant
    closed_at: Instant
    labels: tuple[Label, ...] = ()
    confidence: float = 0.0
    evidence_weight: float | None = None
