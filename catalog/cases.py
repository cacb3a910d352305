"""`Case`: everything `ladder.decide` may look at, gathered once and stored, so that any decision can be replayed.

Whatever could not be read is None, never a default: each gate says what it does with the unknown.
"""

from __future__ import annotations

from datetime import timedelta
from enum import IntEnum, StrEnum
from typing import Literal

from pydantic import Field

from catalog.actions import Action, RemediationAction
from catalog.alerts import AlertSeverity
from catalog.diagnoses import AntiAction, Family
from catalog.documents import Document, Instant, StoredDocument
from catalog.evidence import Evidence, Oracle, SourceName
from catalog.outcomes import End
from catalog.targets import Provenance, Target, TargetFacts


class Rung(IntEnum):
    """The six rungs on their substrate (R0)."""

    R0 = 0
    R1 = 1
    R2 = 2
    R3 = 3
    R4 = 4
    R5 = 5
    R6 = 6

    def __str__(self) -> str:
        return self.name


class CaseAlert(Document):
    """One alert of the incident as the gates see it."""

    name: str
    severity: AlertSeverity
    starts_at: Instant
    firing_at_source: bool | None = Field(default=None, description="asked of Alertmanager just now; None: could not ask")
    silenced: bool | None = Field(default=None, description="a silence covers it now; None: could not ask")


class EvidenceSummary(Document):
    """The figures of an `Evidence` that gates use."""

    family: Family
    evidence_weight: float | None
    refuted: bool = False
    tainted: str | None = None
    supporting: int = 0
    refuting: int = 0
    inconclusive: int = 0
    sources: tuple[SourceName, ...] = ()
    oracles: tuple[Oracle, ...] = Field(default=(), description="oracles with at least one answered item")
    oldest_at: Instant | None = None

    @classmethod
    def of(cls, evidence: Evidence) -> EvidenceSummary:
        answered = [item for item in evidence.items if item.answer != "inconclusive"]
        return cls(
            family=evidence.family,
            evidence_weight=evidence.evidence_weight,
            refuted=evidence.refuted,
            tainted=evidence.tainted,
            supporting=evidence.supporting,
            refuting=evidence.refuting,
            inconclusive=evidence.inconclusive,
            sources=evidence.sources,
            oracles=tuple(sorted({item.oracle for item in answered})),
            oldest_at=evidence.oldest_at,
        )


class StandingChange(Document):
    """A person's promotion or demotion of (scope, action), as stored."""

    id: str
    scope: str
    match_digest: str
    action: RemediationAction
    rung: Rung
    by: tuple[str, ...] = Field(description="identities of the owners who said it")
    at: Instant
    why: str


class ScoredOutcome(Document):
    """The end of one ordered action, as standing sees it."""

    incident_id: str
    scope: str
    match_digest: str
    action: RemediationAction
    end: End
    at: Instant
    right: bool | None = Field(default=None, description="None: not settled; a wrong end is wrong whatever its label")
    labelled: bool = False


class StandingRecord(Document):
    """Promotions minus outcomes: what standing is computed from. Only entries of scopes that match the target."""

    changes: tuple[StandingChange, ...] = ()
    outcomes: tuple[ScoredOutcome, ...] = Field(default=(), description="oldest first, at most the last 50 per scope and action")


class Calibration(Document):
    """State of the gate of one (family, action), from labels of the whole installation."""

    family: Family
    action: RemediationAction
    open: bool = False
    settled: int = Field(default=0, ge=0, description="episodes that count")
    right: int = Field(default=0, ge=0)
    wrong_of_last_ten: int = Field(default=0, ge=0, le=10)
    last_look: int | None = Field(default=None, description="n of the look evaluated last")
    next_look: int | None = None
    lower_bound: float | None = Field(default=None, description="one-sided 95 % Clopper-Pearson; shown, opens nothing")
    probability: float | None = Field(default=None, description="number on the card; opens nothing")
    reason: str = Field(default="", description="why closed, for people")


class LedgerEntry(Document):
    """One order that was reserved or carried out."""

    order_id: str
    incident_id: str
    target: Target
    action: RemediationAction
    mode: Literal["auto", "approved"]
    at: Instant
    end: End | None = Field(default=None, description="None while open")
    domain: str | None = Field(default=None, description="zone, else node, the target ran in")


class TargetBlock(Document):
    """What an end left behind on the target."""

    forbids: Literal["auto", "all"]
    reason: str
    since: Instant
    until: Instant | None = Field(default=None, description="None: until a person unblocks")


class Ledger(Document):
    """Orders of the last 24 hours that touch this target, its namespace or its cluster, and what is open."""

    entries: tuple[LedgerEntry, ...] = ()
    block: TargetBlock | None = None
    contested: str | None = Field(default=None, description="who else keeps changing the field, if anybody does")
    complete: bool = Field(default=True, description="False: the ledger could not be read in full")


class Freeze(Document):
    """A freeze in force now."""

    name: str
    until: Instant | None = None
    reason: str = ""


class Switches(Document):
    """Halt and freezes. `halted` None: could not be read, which counts as halted."""

    halted: bool | None = False
    halt_reason: str = ""
    halted_by: str = ""
    freezes: tuple[Freeze, ...] = Field(default=(), description="set by command; those of autonomy.yaml are computed from now")
    override_reason: str | None = Field(default=None, description="typed by a person for a proposal under a freeze")


class Storm(Document):
    """Whether too much is unhealthy at once. Latched until an owner releases it."""

    latched: bool | None = False
    reason: str = ""
    since: Instant | None = None


class FollowUp(Document):
    """A scale-down after a committed scale-up: gates 6, 7 and 12 are replaced by this justification."""

    of_incident: str
    check: str
    held_for: timedelta


class Case(StoredDocument):
    """Input of one decision."""

    incident_id: str
    now: Instant
    origin: Literal["alert", "follow_up"] = "alert"
    alerts: tuple[CaseAlert, ...]
    target: Target
    target_invalid: str | None = Field(default=None, description="why the names are not acceptable")
    provenance: Provenance = Provenance.OWN
    edge: str | None = None
    facts: TargetFacts | None = None
    action: Action
    requested_by: str | None = Field(default=None, description="identity of the person who changed or requested it")
    family: Family
    statement: str = ""
    confidence: float = 0.0
    severity: AlertSeverity = AlertSeverity.WARNING
    anti_actions: tuple[AntiAction, ...] = ()
    evidence: EvidenceSummary | None = None
    standing: StandingRecord = StandingRecord()
    calibration: Calibration | None = Field(default=None, description="None: could not be read")
    ledger: Ledger | None = Field(default=None, description="None: could not be read")
    switches: Switches = Switches()
    storm: Storm = Storm()
    follow_up: FollowUp | None = None
    unchanged: bool = Field(default=False, description="same verdict as the last decision of this incident")
    rejected_by: str | None = Field(default=None, description="who rejected this action for the present alerts")


class Notability(StrEnum):
    """Why a `notify` says something that Alertmanager does not."""

    NAMED_CAUSE = "named_cause"
    REFUTED_SUSPICION = "refuted_suspicion"
    ANTI_ACTION = "anti_action"
    LABEL_REQUEST = "label_request"
    REFUSED_ACTION = "refused_action"
