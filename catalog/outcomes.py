"""How a transaction ended, as the executor signs it."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field

from catalog.documents import Document, Instant, StoredDocument
from catalog.evidence import Oracle
from catalog.targets import Target


class End(StrEnum):
    """The terminal states. What each does to the target, people and standing is the table of transaction.md."""

    COMMITTED = "committed"
    REFUSED = "refused"
    INEFFECTIVE = "ineffective"
    ROLLED_BACK = "rolled_back"
    CONFLICT = "conflict"
    REGRESSED = "regressed"
    UNVERIFIED = "unverified"
    UNDO_INCOMPLETE = "undo_incomplete"

    @property
    def harmful(self) -> bool:
        """Demotes at once and blocks the target until an owner unblocks it."""
        return self in (End.REGRESSED, End.UNVERIFIED, End.UNDO_INCOMPLETE)

    @property
    def wrong(self) -> bool:
        """Counts as wrong for standing and calibration whatever the label says."""
        return self.harmful or self in (End.INEFFECTIVE, End.ROLLED_BACK)


class CheckState(StrEnum):
    PASSING = "passing"
    FAILING = "failing"
    UNKNOWN = "unknown"


class CheckReading(Document):
    """A check before and after."""

    name: str
    oracle: Oracle
    before: CheckState
    after: CheckState | None = None
    unstable: bool = Field(default=False, description="changed in the ten minutes before begin: shown, cannot veto")
    detail: str = ""


class StepRecord(Document):
    """One write as the journal has it."""

    n: int
    kind: Literal["open", "evict", "stamp", "scale", "undo", "close", "fence"]
    at: Instant
    result: Literal["done", "refused", "in_doubt", "not_sent"]
    detail: str = ""


class PodSnapshot(Document):
    """What the checkpoint kept of one pod before anything was touched: status in short and last log lines, redacted."""

    name: str
    uid: str
    phase: str = ""
    status: str = ""
    logs: tuple[str, ...] = ()
    previous_logs: tuple[str, ...] = ()


class Outcome(StoredDocument):
    """The end of one order. A second delivery of the order answers with the same outcome."""

    id: str
    order_id: str
    transaction_id: str | None = Field(default=None, description="None: refused before a transaction began")
    executor_id: str
    cluster_uid: str
    target: Target
    end: End
    reason: str = Field(description="class of the reason: expired, paused, not_opted_in, budget, check_failed, …")
    sentence: str = Field(description="for people: what happened and what to do")
    severity_before: float | None = None
    severity_after: float | None = None
    checks: tuple[CheckReading, ...] = ()
    steps: tuple[StepRecord, ...] = ()
    not_undone: tuple[str, ...] = Field(default=(), description="what undo could not bring back")
    snapshot: tuple[PodSnapshot, ...] = ()
    snapshot_events: tuple[str, ...] = ()
    began_at: Instant | None = None
    ended_at: Instant
