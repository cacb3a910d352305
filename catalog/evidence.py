"""What the read-only verifier found: answers to predictions, grouped by fact, and one weight.

A prediction is "if this is the cause, X must be visible, Y must not". Its answer is one of three; what could not be read is
inconclusive, by name. No good sample can never add up to support.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field

from catalog.diagnoses import Family
from catalog.documents import Document, Instant, StoredDocument


class Answer(StrEnum):
    SUPPORTS = "supports"
    REFUTES = "refutes"
    INCONCLUSIVE = "inconclusive"


class Oracle(StrEnum):
    """The three independent ways to see health. A transaction needs at least one check of each."""

    ALERT = "alert"
    SERVICE_LEVEL = "service_level"
    COMPONENT = "component"


SourceName = Literal["kubernetes", "prometheus", "alertmanager", "logs", "traces"]


class EvidenceItem(Document):
    """One prediction's answer: what was asked, what was seen, when, from which source."""

    id: str
    group: str = Field(description="checks of the same fact share a group; only the strongest of a group counts")
    family: Family
    question: str
    seen: str
    answer: Answer
    log_likelihood_ratio: float = Field(description="natural log; positive supports the family, 0 when inconclusive")
    source: SourceName
    oracle: Oracle
    observed_at: Instant
    link: str | None = None
    reason: str = Field(default="", description="why inconclusive, by name: nan, empty, stale, timeout, …")


class Evidence(StoredDocument):
    """The verifier's report on the hypothesis under test."""

    incident_id: str
    at: Instant
    family: Family
    evidence_weight: float | None = Field(default=None, ge=0, le=1, description="posterior; None: no prediction answered")
    supporting: int = Field(default=0, ge=0)
    refuting: int = Field(default=0, ge=0)
    inconclusive: int = Field(default=0, ge=0)
    refuted: bool = False
    tainted: str | None = Field(default=None, description="why: the target changed while it was being read")
    posterior: dict[str, float] = Field(default={}, description="per family and 'none of these'")
    items: tuple[EvidenceItem, ...] = ()
    sources: tuple[SourceName, ...] = Field(default=(), description="sources of supporting items, distinct")
    oldest_at: Instant | None = Field(default=None, description="oldest observation that counted")
    took_ms: int = Field(default=0, ge=0)
    note: str = ""
