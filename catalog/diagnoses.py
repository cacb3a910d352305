"""What triage says: severity, ranked hypotheses, one recommended action, and who voted how."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field

from catalog.actions import Action, NoAction, RemediationAction
from catalog.alerts import AlertSeverity
from catalog.documents import Document, Instant, StoredDocument
from catalog.targets import Provenance, Target


class Family(StrEnum):
    """Family of causes. The calibration gate counts labels per (family, action)."""

    BAD_RELEASE = "bad_release"
    OUT_OF_MEMORY = "out_of_memory"
    WEDGED = "wedged"
    CAPACITY = "capacity"
    NODE_FAULT = "node_fault"
    DATA_FAULT = "data_fault"
    QUOTA = "quota"
    SCHEDULING = "scheduling"
    PROBE = "probe"
    DEPENDENCY = "dependency"
    NETWORK_POLICY = "network_policy"
    CERTIFICATE = "certificate"
    STORAGE = "storage"
    CONNECTION_EXHAUSTION = "connection_exhaustion"
    AUTOSCALER_LIMIT = "autoscaler_limit"
    INTENDED = "intended"
    SELF_RESOLVED = "self_resolved"
    UNKNOWN = "unknown"


class Vote(Document):
    """One specialist's answer. `fault`: configured but unreachable, never replaced by invented telemetry."""

    specialist: Literal["metrics", "logs", "kubernetes", "traces"]
    state: Literal["voted", "abstained", "fault"]
    weight: float = Field(ge=0, le=1, description="after redistribution; 0 unless voted")
    scores: dict[Family, float] = Field(default={}, description="each in [0, 1]")
    findings: tuple[str, ...] = Field(default=(), description="sentences for people, redacted")
    note: str = ""


class Hypothesis(Document):
    """One possible cause with the action it calls for."""

    family: Family
    statement: str = Field(max_length=500)
    confidence: float = Field(ge=0, le=1, description="consensus of the specialists; never a gate")
    action: Action = NoAction()
    target: Target
    provenance: Provenance = Provenance.OWN
    edge: str | None = Field(default=None, description="the named evidence edge of a derived target")


class AntiAction(Document):
    """An action that would do harm here, and why."""

    action: RemediationAction
    reason: str


class Diagnosis(StoredDocument):
    """Result of triage. `hypotheses` is ranked, best first; the first is the one recommended."""

    incident_id: str
    at: Instant
    severity: AlertSeverity
    hypotheses: tuple[Hypothesis, ...] = Field(min_length=1)
    votes: tuple[Vote, ...] = ()
    anti_actions: tuple[AntiAction, ...] = ()
    degraded: tuple[str, ...] = Field(default=(), description="sources that could not be read, one sentence each")
    notes: tuple[str, ...] = ()
    took_ms: int = Field(default=0, ge=0)

    @property
    def best(self) -> Hypothesis:
        return self.hypotheses[0]
