"""What crosses to the executor: a signed order that a person or the ladder decided, complete in itself.

The executor needs nothing else to carry it out and to judge the result: target with UID, the change, the checks with their
queries and weights, both deadlines. The signature says who ordered; it does not say that the order is within the executor's
own limits.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field

from catalog.actions import Action
from catalog.documents import Document, Instant, Seconds, StoredDocument
from catalog.evidence import Oracle
from catalog.targets import Target

MAX_PLAN_STEPS = 20


class CheckSource(StrEnum):
    KUBERNETES = "kubernetes"
    PROMETHEUS = "prometheus"


class KubernetesFact(StrEnum):
    """What a Kubernetes check reads. The first three are of the workload, `nodes_ready` of the nodes its pods run on."""

    AVAILABILITY = "availability"
    RESTARTS = "restarts"
    ENDPOINTS = "endpoints"
    NODES_READY = "nodes_ready"


class SeriesMatcher(Document):
    """Keeps the series of a result that speak of the target: label equals `value`, or fully matches it as a regular expression."""

    label: str
    value: str
    regex: bool = False


class Check(Document):
    """One named element of the state whose regression a transaction must not leave behind.

    A Prometheus check compares each sample of `query` with `passing` (`"< 0.01"`, `"== 0"`, …); an alert check's query is the
    rule's expression for the target's labels and passes when it returns no series (`empty: passing`).
    """

    name: str
    oracle: Oracle
    source: CheckSource
    target: Target = Field(description="the target itself or a dependant")
    fact: KubernetesFact | None = None
    query: str | None = None
    series: tuple[SeriesMatcher, ...] = Field(default=(), description="applied to the result of `query`; empty keeps all")
    passing: str | None = Field(default=None, pattern=r"^(<|<=|>|>=|==|!=) -?[0-9]+(\.[0-9]+)?([eE]-?[0-9]+)?$")
    empty: Literal["unknown", "passing", "failing"] = "unknown"
    weight: float = Field(default=1.0, ge=0)
    debounce: int = Field(default=3, ge=1, le=10)
    longest_range: Seconds = Field(default=0.0, description="longest range selector in the query")
    opened: bool = Field(default=False, description="this expression opened the incident: improved = false all through settle")


class StepKind(StrEnum):
    """Forward writes, and the annotation-only open that a plan which evicts first begins with."""

    OPEN = "open"
    EVICT = "evict"
    STAMP = "stamp"
    SCALE = "scale"


class PlanStep(Document):
    kind: StepKind
    pod: str | None = None
    pod_uid: str | None = None
    from_replicas: int | None = None
    to_replicas: int | None = None


class Approval(Document):
    """A person's consent to exactly this proposal."""

    person: str
    via: str = Field(description="surface: web, terminal, slack, discord")
    at: Instant


class Deadlines(Document):
    """Numbers the transaction runs by, in seconds."""

    settle_floor: Seconds = 60
    settle_cap: Seconds = 600
    apply_cap: Seconds = 480
    scrape_interval: Seconds = 15
    evaluation_interval: Seconds = 15
    kubernetes_sample: Seconds = 2


class Order(StoredDocument):
    """One order. Its canonical bytes are stored and transmitted as signed, never re-made."""

    id: str
    key_id: str
    audience: str = Field(description="UID of the cluster's kube-system namespace")
    incident_id: str
    incident_number: int
    decision_id: str
    scope: str
    match_digest: str = ""
    mode: Literal["auto", "approved"]
    approvals: tuple[Approval, ...] = ()
    action: Action
    target: Target
    template_hash: str | None = None
    from_replicas: int | None = None
    to_replicas: int | None = None
    steps: tuple[PlanStep, ...] = Field(min_length=1, max_length=MAX_PLAN_STEPS)
    checks: tuple[Check, ...]
    severity_weights: tuple[float, float, float] = (1.0, 1.0, 1.0)
    first_severity: float | None = Field(default=None, description="µ of the incident's first attempt")
    deadlines: Deadlines = Deadlines()
    allowed_outage: bool = Field(default=False, description="the card said 'full outage' and a person approved")
    minted_at: Instant
    decided_at: Instant
    not_before: Instant
    expires_at: Instant
    attempt: int = Field(default=1, ge=1)
    parent: str | None = None
    policy_hash: str
    catalogue_version: str


class Signed(Document):
    """Bytes as signed, with the key that signed them. `body` is canonical JSON."""

    body: str
    key_id: str
    signature: str = Field(description="Ed25519 over body's UTF-8 bytes, base64")


class OpenTransaction(Document):
    """What an executor says of a transaction it has not ended."""

    order_id: str
    transaction_id: str
    phase: str
    since: Instant


class ClaimRequest(Document):
    """The executor's pull, which is its heartbeat too."""

    executor_id: str
    cluster_uid: str
    journal_id: str
    active: bool
    halted: bool = False
    halt_reason: str = ""
    draining: bool = False
    parked: tuple[str, ...] = ()
    open: tuple[OpenTransaction, ...] = ()
    limits_digest: str = ""
    room: int = Field(default=0, ge=0, description="orders it can begin now")


class HaltSwitch(Document):
    """The bot's halt row, read by the executor in every claim."""

    halted: bool
    hard: bool = False
    reason: str = ""
    by: str = ""


class ClaimAnswer(Document):
    """Orders delivered by this claim; `executing` was committed before this answer was written."""

    orders: tuple[Signed, ...] = ()
    switch: HaltSwitch
    taken_over: tuple[str, ...] = Field(default=(), description="ids of orders a person took over: no further forward step")
    resume: tuple[tuple[str, Literal["undo", "settle"]], ...] = Field(
        default=(), description="parked transactions an owner resumed"
    )
    at: Instant
