"""The bot's tables. Rows hold what is queried; documents (diagnosis, evidence, case, decision, …) are kept whole beside them.

All instants are UTC. `cluster_uid` is part of every key. Nothing here is shared with the executor, which has its own journal.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    DateTime,
    Dialect,
    Index,
    Integer,
    LargeBinary,
    Text,
    TypeDecorator,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import registry
from sqlmodel import Field, SQLModel


class UtcDateTime(TypeDecorator[datetime]):
    """Aware UTC datetimes on every database: SQLite gives back naive ones."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a naive datetime cannot be stored")
        value = value.astimezone(UTC)
        return value.replace(tzinfo=None) if dialect.name == "sqlite" else value

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Row(SQLModel, registry=registry()):
    """What these tables have in common: metadata of their own, apart from any other tables in the process."""


METADATA = Row.metadata


def _instant(*, nullable: bool = False, index: bool = False) -> Any:
    return Field(default=None, sa_column=Column(UtcDateTime, nullable=nullable, index=index))


def _text(default: str = "") -> Any:
    return Field(default=default, sa_column=Column(Text, nullable=False, default=default))


_BIG_KEY = BigInteger().with_variant(Integer, "sqlite")


def _serial() -> Any:
    return Field(default=None, sa_column=Column(_BIG_KEY, primary_key=True, autoincrement=True))


class AlertRow(Row, table=True):
    """One alert; key (cluster, fingerprint, starts_at). `stored → attached | unresolved | dropped`.

    `contradicted_at` is when a firing copy of the same start last arrived after the resolve: a late copy of a peer, or a
    resolve that was no end. It re-opens nothing; whoever closes the incident asks the source first.
    """

    __tablename__ = "alert"
    __table_args__ = (
        UniqueConstraint("cluster_uid", "fingerprint", "starts_at", name="alert_key"),
        Index("alert_seen", "state", "last_seen_at"),
        Index("alert_due", "state", "id", sqlite_where=text("state = 'stored'"), postgresql_where=text("state = 'stored'")),
    )

    id: int | None = _serial()
    cluster_uid: str = Field(default="", description="'' while no cluster maps")
    fingerprint: str
    starts_at: datetime = _instant()
    status: str
    state: str
    reason: str = _text()
    incident_id: str | None = Field(default=None, index=True)
    name: str
    severity: str
    labels: str = _text("{}")
    annotations: str = _text("{}")
    generator_url: str = _text()
    dialect: str = "alertmanager"
    token_id: str = ""
    received_at: datetime = _instant()
    last_seen_at: datetime = _instant()
    resolved_at: datetime | None = _instant(nullable=True)
    contradicted_at: datetime | None = _instant(nullable=True)
    resends: int = 0

    @property
    def began_at(self) -> datetime:
        """Start of the alert for people and cases: a start in the future is clamped to when we first heard of it.

        `starts_at` stays as it was sent, for it is part of the key: a resend must find its first copy.
        """
        return min(self.starts_at, self.received_at)


class IncidentRow(Row, table=True):
    """One incident: a phase, a version and when it is next due. At most one open per target."""

    __tablename__ = "incident"
    __table_args__ = (
        Index(
            "incident_one_open",
            "cluster_uid",
            "namespace",
            "kind",
            "name",
            unique=True,
            sqlite_where=text("phase <> 'closed'"),
            postgresql_where=text("phase <> 'closed'"),
        ),
        Index("incident_due", "next_at", sqlite_where=text("phase <> 'closed'"), postgresql_where=text("phase <> 'closed'")),
        Index("incident_closed_at", "closed_at"),
        Index(
            "incident_unerased",
            "closed_at",
            sqlite_where=text("phase = 'closed' AND erased_at IS NULL"),
            postgresql_where=text("phase = 'closed' AND erased_at IS NULL"),
        ),
        Index("incident_would_auto", "scope", "action", sqlite_where=text("would_auto"), postgresql_where=text("would_auto")),
    )

    id: str = Field(primary_key=True)
    number: int = Field(sa_column=Column(_BIG_KEY, unique=True, nullable=False))
    cluster_uid: str
    cluster: str
    namespace: str
    kind: str
    name: str
    uid: str | None = None
    origin: str = "alert"
    phase: str
    version: int = 1
    next_at: datetime | None = _instant(nullable=True)
    claimed_by: str | None = None
    claimed_until: datetime | None = _instant(nullable=True)
    severity: str = "warning"
    alert_names: str = _text("[]")
    opened_at: datetime = _instant()
    updated_at: datetime = _instant()
    closed_at: datetime | None = _instant(nullable=True)
    close_reason: str | None = None
    erased_at: datetime | None = _instant(nullable=True)
    strongest: str | None = Field(default=None, description="close reason that the strongest thing so far calls for")
    linked_to: str | None = Field(default=None, index=True)
    taken_by: str | None = None
    scope: str | None = None
    family: str | None = None
    action: str | None = None
    route: str | None = None
    would_auto: bool = Field(default=False, description="rung and calibration alone kept a decision from acting by itself")
    diagnosis_id: str | None = None
    evidence_id: str | None = None
    case_id: str | None = None
    decision_id: str | None = None
    proposal_id: str | None = None
    order_id: str | None = None
    attempt: int = 0
    proposals_expired: int = 0
    refusals: int = 0
    first_severity: float | None = None
    watch_until: datetime | None = _instant(nullable=True)
    decided_at: datetime | None = _instant(nullable=True)
    last_seq: int = 0
    last_hash: str = "0" * 64
    trouble: str = _text()
    failures: int = Field(default=0, description="failed tries of the present phase in a row; each one waits longer")
    judged_names: str = _text("[]")
    judged_severity: str = ""
    again: str = Field(default="", description="why it is judged again (`incidents.transitions.Again`); '' the first time")


class EventRow(Row, table=True):
    """Append-only; (incident, seq) with the previous event's hash."""

    __tablename__ = "event"
    __table_args__ = (Index("event_at", "recorded_at"),)

    incident_id: str = Field(primary_key=True)
    seq: int = Field(primary_key=True)
    kind: str
    at: datetime = _instant()
    recorded_at: datetime = _instant()
    actor: str
    payload: str | None = Field(default=None, sa_column=Column(Text, nullable=True))
    payload_digest: str
    previous: str
    hash: str


class DocumentRow(Row, table=True):
    """A stored document: diagnosis, evidence, case, decision, triage input, verifier input."""

    __tablename__ = "document"

    id: str = Field(primary_key=True)
    incident_id: str = Field(index=True)
    kind: str
    schema_version: int = 1
    at: datetime = _instant(index=True)
    body: str | None = Field(default=None, sa_column=Column(Text, nullable=True), description="None once erased")
    digest: str


class ProposalRow(Row, table=True):
    """One immutable proposal and the fate of its approval."""

    __tablename__ = "proposal"

    id: str = Field(primary_key=True)
    incident_id: str = Field(index=True)
    decision_id: str
    scope: str
    action: str = _text()
    state: str = "pending"
    state_reason: str = _text()
    decided_by: str | None = None
    decided_at: datetime | None = _instant(nullable=True)
    requested_by: str | None = None
    quorum: int = 1
    target_uid: str
    fingerprint: str = Field(description="template hash for restarts, replicas for a scale")
    override_reason: str | None = None
    created_at: datetime = _instant()
    expires_at: datetime = _instant()
    remind_at: datetime | None = _instant(nullable=True)


class ApprovalRow(Row, table=True):
    """One person's consent to one proposal."""

    __tablename__ = "approval"

    proposal_id: str = Field(primary_key=True)
    person: str = Field(primary_key=True)
    via: str
    at: datetime = _instant()


class OrderRow(Row, table=True):
    """A minted order, as signed. `minted → delivered → ended`, or `minted → expired`."""

    __tablename__ = "execution_order"
    __table_args__ = (
        Index("order_deliverable", "cluster_uid", "state"),
        Index("order_target", "cluster_uid", "namespace", "kind", "name", "minted_at"),
        Index("order_cluster", "cluster_uid", "minted_at"),
        Index("order_scope", "scope", "action", "minted_at"),
        Index(
            "order_one_open",
            "cluster_uid",
            "namespace",
            "kind",
            "name",
            unique=True,
            sqlite_where=text("ended_at IS NULL"),
            postgresql_where=text("ended_at IS NULL"),
        ),
    )

    id: str = Field(primary_key=True)
    incident_id: str = Field(index=True)
    decision_id: str
    proposal_id: str | None = None
    cluster_uid: str
    cluster: str = ""
    namespace: str
    kind: str
    name: str
    scope: str
    match_digest: str
    family: str
    action: str
    mode: str
    state: str = "minted"
    key_id: str
    body: str = _text()
    signature: str
    domain: str | None = None
    attempt: int = 1
    minted_at: datetime = _instant()
    expires_at: datetime = _instant()
    delivered_at: datetime | None = _instant(nullable=True)
    delivered_to: str | None = None
    ended_at: datetime | None = _instant(nullable=True)
    end: str | None = None
    taken_over: bool = False
    resume: str | None = None


class OutcomeRow(Row, table=True):
    """A signed outcome, once per order."""

    __tablename__ = "outcome"

    order_id: str = Field(primary_key=True)
    incident_id: str = Field(index=True)
    end: str
    body: str = _text()
    key_id: str
    signature: str
    at: datetime = _instant()
    received_at: datetime = _instant()


class BlockRow(Row, table=True):
    """What an end left on a target: no `auto`, or neither `auto` nor `propose`, until a time or until a person unblocks."""

    __tablename__ = "target_block"
    __table_args__ = (Index("block_target", "cluster_uid", "namespace", "kind", "name"),)

    id: str = Field(primary_key=True)
    cluster_uid: str
    namespace: str
    kind: str
    name: str
    forbids: str
    reason: str = _text()
    incident_id: str
    owner_only: bool = True
    since: datetime = _instant()
    until: datetime | None = _instant(nullable=True)
    lifted_at: datetime | None = _instant(nullable=True)
    lifted_by: str | None = None
    lifted_why: str = _text()


class OutboxRow(Row, table=True):
    """A message to send or a card to bring up to date. Key is the idempotency key.

    `revision` grows each time the same row is asked for again, so that what changed while it was being sent is sent too.
    """

    __tablename__ = "outbox"
    __table_args__ = (Index("outbox_due", "next_at", sqlite_where=text("state = 'due'"), postgresql_where=text("state = 'due'")),)

    id: int | None = _serial()
    key: str = Field(unique=True)
    surface: str
    channel: str
    kind: str
    incident_id: str | None = Field(default=None, index=True)
    body: str = _text("{}")
    state: str = "due"
    priority: int = 5
    revision: int = 1
    attempts: int = 0
    next_at: datetime = _instant()
    created_at: datetime = _instant()
    sent_at: datetime | None = _instant(nullable=True)
    trouble: str = _text()


class MessageRow(Row, table=True):
    """Where a card stands on a surface, so that it is edited in place."""

    __tablename__ = "message"

    incident_id: str = Field(primary_key=True)
    surface: str = Field(primary_key=True)
    kind: str = Field(primary_key=True)
    channel: str
    reference: str
    body_digest: str
    at: datetime = _instant()


class PageRow(Row, table=True):
    """A page that is being posted to Alertmanager until somebody takes it; `settled_at`: Alertmanager knows that it ended."""

    __tablename__ = "page"

    key: str = Field(primary_key=True)
    name: str
    cluster_uid: str
    incident_id: str | None = Field(default=None, index=True)
    labels: str = _text("{}")
    annotations: str = _text("{}")
    since: datetime = _instant()
    next_at: datetime = _instant()
    last_posted_at: datetime | None = _instant(nullable=True)
    ended_at: datetime | None = _instant(nullable=True)
    ended_by: str | None = None
    settled_at: datetime | None = _instant(nullable=True)
    trouble: str = _text()


class LeaseRow(Row, table=True):
    """Who leads: phases, outbox, pages. Held 15 s, renewed every 2 s."""

    __tablename__ = "lease"

    name: str = Field(primary_key=True)
    holder: str
    until: datetime = _instant()
    term: int = 0


class SwitchRow(Row, table=True):
    """Halt, freezes and the storm latch. Set and lifted rows are both kept."""

    __tablename__ = "switch"
    __table_args__ = (
        Index("switch_in_force", "kind", sqlite_where=text("lifted_at IS NULL"), postgresql_where=text("lifted_at IS NULL")),
    )

    id: str = Field(primary_key=True)
    kind: str = Field(description="halt, freeze or storm")
    scope: str | None = None
    cluster_uid: str | None = None
    hard: bool = False
    reason: str = _text()
    set_by: str
    set_at: datetime = _instant()
    until: datetime | None = _instant(nullable=True)
    lifted_at: datetime | None = _instant(nullable=True)
    lifted_by: str | None = None
    lifted_why: str = _text()


class StandingRow(Row, table=True):
    """A promotion or demotion said by people. `pending` until a second owner joins where two are needed."""

    __tablename__ = "standing_change"
    __table_args__ = (Index("standing_scope", "scope", "action", "at"),)

    id: str = Field(primary_key=True)
    scope: str
    match_digest: str
    action: str
    rung: int
    by: str = _text("[]")
    at: datetime = _instant()
    why: str = _text()
    state: str = "in_force"


class LabelRow(Row, table=True):
    """A person's answer to one question about one incident; the latest of a person counts, all are kept."""

    __tablename__ = "label"
    __table_args__ = (Index("label_incident", "incident_id", "question"),)

    id: str = Field(primary_key=True)
    incident_id: str
    question: str
    right: bool
    person: str
    at: datetime = _instant()
    note: str = _text()
    origin: str = "human"
    settles: bool = False
    via: str = ""


class EpisodeRow(Row, table=True):
    """One finished incident, projected from its events, with how its labels settled.

    `origin` is human, imported, simulated or follow_up; only human ones ever settle. `right` and `settled_at` are None until then.
    """

    __tablename__ = "episode"
    __table_args__ = (
        Index("episode_cell", "family", "action", "settled_at"),
        Index("episode_scope", "scope", "action", "closed_at"),
    )

    incident_id: str = Field(primary_key=True)
    number: int = Field(sa_column=Column(_BIG_KEY, nullable=False))
    cluster_uid: str
    namespace: str
    kind: str
    name: str
    scope: str | None = None
    match_digest: str | None = None
    family: str
    action: str
    route: str
    proposed: bool = False
    executed: bool = False
    end: str | None = None
    close_reason: str
    origin: str = "human"
    approvers: str = _text("[]")
    opened_at: datetime = _instant()
    closed_at: datetime = _instant()
    confidence: float = 0.0
    evidence_weight: float | None = None
    settled_at: datetime | None = _instant(nullable=True)
    right: bool | None = None


class LookRow(Row, table=True):
    """A declared look of a calibration cell, evaluated once and kept."""

    __tablename__ = "look"

    id: str = Field(primary_key=True)
    family: str = Field(index=True)
    action: str
    n: int
    right: int
    opened: bool
    closed: bool = False
    reason: str = _text()
    target_precision: float = 0.9
    at: datetime = _instant()


class CellRow(Row, table=True):
    """Counters of one calibration cell, kept up with every settled label, so that a decision reads one row.

    `open_n` is the look that opened the gate. `bound` is the lower bound of `bound_right` of `bound_settled`: stale until a
    child process has computed it for the present figures.
    """

    __tablename__ = "calibration_cell"

    family: str = Field(primary_key=True)
    action: str = Field(primary_key=True)
    settled: int = 0
    right: int = 0
    proposals: int = 0
    proposals_settled: int = 0
    open: bool = False
    open_n: int | None = None
    last_look: int | None = None
    target_precision: float = 0.9
    reason: str = _text()
    bound: float | None = None
    bound_right: int | None = None
    bound_settled: int | None = None


class PersonRow(Row, table=True):
    """A person who may sign in. Roles come from autonomy.yaml, never from here."""

    __tablename__ = "person"

    id: str = Field(primary_key=True)
    added_at: datetime = _instant()
    removed_at: datetime | None = _instant(nullable=True)


class TokenRow(Row, table=True):
    """A bearer token, kept as SHA-256. Kinds: person, ingest (bound to clusters), executor (bound to one), login, session."""

    __tablename__ = "token"

    digest: str = Field(primary_key=True)
    id: str = Field(index=True)
    kind: str
    subject: str
    clusters: str = _text("[]")
    created_at: datetime = _instant()
    expires_at: datetime | None = _instant(nullable=True)
    used_at: datetime | None = _instant(nullable=True)
    revoked_at: datetime | None = _instant(nullable=True)


class ExecutorRow(Row, table=True):
    """What each executor last said of itself. An open order and no heartbeat for 60 s pages."""

    __tablename__ = "executor"

    executor_id: str = Field(primary_key=True)
    cluster_uid: str = Field(index=True)
    journal_id: str
    active: bool
    halted: bool = False
    body: str = _text("{}")
    heard_at: datetime = _instant()


class CommandRow(Row, table=True):
    """An answered command by idempotency key, so that a repeated delivery gets the same answer."""

    __tablename__ = "command"

    key: str = Field(primary_key=True)
    person: str
    line: str = _text()
    answer: str = _text("{}")
    at: datetime = _instant(index=True)


class CounterRow(Row, table=True):
    """Monotonic counters that must survive, such as the short incident number."""

    __tablename__ = "counter"

    name: str = Field(primary_key=True)
    value: int = Field(sa_column=Column(_BIG_KEY, nullable=False))


class SecretRow(Row, table=True):
    """Per-install keys that are not signing keys, such as the HMAC key of redaction tags."""

    __tablename__ = "secret"

    name: str = Field(primary_key=True)
    value: bytes = Field(sa_column=Column(LargeBinary, nullable=False))


class ChainHeadRow(Row, table=True):
    """Signed heads of the event chains, every ten minutes."""

    __tablename__ = "chain_head"

    id: str = Field(primary_key=True)
    at: datetime = _instant()
    body: str = _text()
    key_id: str
    signature: str
