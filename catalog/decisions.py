"""What `ladder.decide` answers: a route, and every gate that was asked, in sentences for people."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field

from catalog.actions import Action
from catalog.cases import Notability, Rung
from catalog.documents import Document, Instant, StoredDocument


class Route(StrEnum):
    """How far an incident goes by itself, least first."""

    RECORD = "record"
    NOTIFY = "notify"
    PROPOSE = "propose"
    AUTO = "auto"

    @property
    def rank(self) -> int:
        return list(Route).index(self)


class GateName(StrEnum):
    """The twelve gates in the order they are asked."""

    SWITCHES = "switches"
    TARGET = "target"
    ACTION = "action"
    REVERSIBILITY = "reversibility"
    SCOPE = "scope"
    EVIDENCE = "evidence"
    CALIBRATION = "calibration"
    REPETITION = "repetition"
    BUDGET = "budget"
    BLAST_RADIUS = "blast_radius"
    STORM = "storm"
    SOURCE = "source"


class GateState(StrEnum):
    """`unknown` never passes: it means the gate could not tell."""

    PASSED = "passed"
    BLOCKED = "blocked"
    UNKNOWN = "unknown"


class GateResult(Document):
    """One gate asked for one route."""

    gate: GateName
    route: Literal["propose", "auto"]
    state: GateState
    sentence: str = Field(description="which rule, which limit, for people")
    setting: str = Field(default="", description="whose setting: the key of autonomy.yaml or the default it comes from")
    unblock: str = Field(default="", description="what would unblock it")


class Decision(StoredDocument):
    """The route and why. Pure function of (case, policy)."""

    incident_id: str
    at: Instant
    route: Route
    action: Action
    gates: tuple[GateResult, ...]
    deciding_gate: GateResult | None = Field(default=None, description="first gate that kept the next higher route shut")
    would_auto: bool = Field(default=False, description="every gate but rung and calibration passed for auto")
    scope: str | None = Field(
        default=None,
        description="keeps the standing: the most specific matching scope whose ceiling names the action, else the most specific",
    )
    match_digest: str | None = None
    rung: Rung = Rung.R3
    ceiling: Rung = Rung.R3
    standing: Rung = Rung.R3
    quorum: int = Field(default=1, ge=1)
    notability: tuple[Notability, ...] = Field(default=(), description="why a notify is worth a message; empty: digest only")
    warnings: tuple[str, ...] = Field(
        default=(), description="shown on the card: numbers below their safety minimum, uncalibrated …"
    )
    policy_hash: str = ""

    @property
    def verdict(self) -> tuple[str, str, str]:
        """What is compared to tell an unchanged verdict: route, action, deciding gate."""
        gate = self.deciding_gate.gate.value if self.deciding_gate else ""
        return (self.route.value, self.action.to_json(), gate)
