"""The journaled state of a transaction, the effects it can ask for, and what can be observed.

All times are seconds of *transaction time*: wall time when the process started, advanced by the monotonic clock. So intervals do
not jump with the wall clock, and instants of an earlier process can still be compared.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field

from catalog.actions import RemediationAction
from catalog.documents import Document
from catalog.orders import PlanStep, StepKind
from catalog.outcomes import CheckReading, CheckState, End, StepRecord


class Phase(StrEnum):
    """Where a transaction is. `intended` is the only one in which a call to the cluster may be under way."""

    LIMITS = "limits"
    PREFLIGHT = "preflight"
    CHECKPOINT = "checkpoint"
    READY = "ready"
    INTENDED = "intended"
    IN_DOUBT = "in_doubt"
    APPLYING = "applying"
    SETTLING = "settling"
    VERIFYING_UNDO = "verifying_undo"
    PARKED = "parked"
    ENDED = "ended"


BEFORE_WRITES = frozenset({Phase.LIMITS, Phase.PREFLIGHT, Phase.CHECKPOINT})

WriteKind = Literal["open", "evict", "stamp", "scale", "undo", "close", "fence"]
FORWARD: frozenset[str] = frozenset({"open", "evict", "stamp", "scale"})
ANNOTATION_ONLY: frozenset[str] = frozenset({"open", "close", "fence"})


class Timing(Document):
    """Durations in seconds, fixed at the checkpoint."""

    sample: float = 2.0
    apply: float = 480.0
    settle: float = 60.0
    undo: float = 300.0
    doubt: float = 120.0
    eviction_doubt: float = 30.0
    retry: float = 2.0


class Before(Document):
    """The checkpoint in short: what undo restores and what the end is compared with. The template itself is kept beside it."""

    uid: str
    mark: str | None = None
    replicas: int
    available: int = 0
    severity: float = Field(description="µ at the checkpoint")
    readings: tuple[CheckReading, ...] = ()


class Write(Document):
    """One call as intended. `n` is unique in the transaction; `mark_after` is how the cluster shows that it took effect."""

    n: int
    kind: WriteKind
    mark_before: str | None = None
    mark_after: str | None = None
    from_replicas: int | None = None
    to_replicas: int | None = None
    pod: str | None = None
    pod_uid: str | None = None
    attempt: int = 1
    lost: bool = Field(default=False, description="at least one attempt got no answer: it may take effect late")


class Window(Document):
    """One settle window and what was seen in it."""

    began: float
    until: float
    unknown: str = Field(default="", description="first thing that could not be told of a check that may veto, or of µ")
    opening_true: bool = Field(default=False, description="the expression that opened the incident was true in it")
    opening_unknown: bool = False


class Transaction(Document):
    """All that is needed to go on after a crash, but for the checkpoint's template and the order."""

    id: str
    order_id: str
    action: RemediationAction
    adds_capacity_when_undone: bool = False
    steps: tuple[PlanStep, ...]
    first_severity: float | None = None
    has_opening: bool = Field(default=True, description="False: a follow-up, which nothing opened; no regression is enough")
    timing: Timing = Timing()
    phase: Phase = Phase.LIMITS
    began: float = 0.0
    touched: float = Field(default=0.0, description="last journal entry")
    before: Before | None = None
    step: int = 0
    n: int = 0
    mark: str | None = Field(default=None, description="our annotation as the cluster has it, to the best of our knowledge")
    pending: Write | None = None
    fenced: Write | None = Field(default=None, description="the lost write that the pending fence makes harmless")
    writes: tuple[StepRecord, ...] = ()
    disrupted: bool = Field(default=False, description="a write that touches pods or replicas took effect")
    stop: tuple[str, str] | None = Field(default=None, description="(reason, sentence): no further forward step")
    improved: bool = Field(default=False, description="the opening expression was false all through the last settle window")
    apply_until: float = 0.0
    doubt_until: float = 0.0
    send_after: float = 0.0
    window: Window | None = None
    extended: bool = False
    restarted: bool = False
    late: bool = Field(default=False, description="the process was away for longer than a settle window")
    after_undo: End | None = Field(default=None, description="end to declare once the undo is verified")
    undo_until: float = 0.0
    parked_from: Phase | None = None
    unparked: bool = Field(default=False, description="an owner resumed it: a hard halt does not park it again")
    end: End | None = None
    reason: str = ""
    sentence: str = ""
    not_undone: tuple[str, ...] = ()
    readings: tuple[CheckReading, ...] = ()
    severity_after: float | None = None

    @property
    def wrote(self) -> bool:
        """Whether any write, annotation-only ones included, took effect or may have."""
        return any(record.result in ("done", "in_doubt") for record in self.writes)

    @property
    def current_step(self) -> PlanStep | None:
        return self.steps[self.step] if self.step < len(self.steps) else None

    def done(self, kind: WriteKind) -> bool:
        """Whether a write of that kind is known to have taken effect."""
        return any(record.kind == kind and record.result == "done" for record in self.writes)

    @property
    def mark_is_ours(self) -> bool:
        return self.mark is not None and self.mark.startswith(f"open/{self.id}/")


class Seen(Document):
    """One look at the cluster: the object as written by us and others, the roll-out, and the debounced checks."""

    readable: bool = True
    exists: bool = True
    uid: str = ""
    mark: str | None = None
    replicas: int | None = None
    template: Literal["before", "ours", "other"] = "before"
    complete: bool = False
    old_pods: int = Field(default=0, description="pods of an earlier template that are not terminating")
    replaced: bool = Field(default=False, description="the evicted pod is gone and as many are available as before")
    pod_gone: bool = Field(default=False, description="the pod of the pending eviction is gone or terminating")
    restored: bool = Field(default=False, description="after an undo: no pod of ours is left and as many are available as before")
    failure: str = Field(default="", description="failed check of the roll-out: failed_create, unschedulable, restarting")
    detail: str = ""
    readings: tuple[CheckReading, ...] = ()
    opening: CheckState | None = Field(default=None, description="of what opened the incident; None: undetermined yet")
    severity: float | None = None


# Effects: what `core.next_effect` asks for.


class CheckLimits(Document):
    """Apply the limits file to the order, counting from the journal."""


class RunPreflight(Document):
    """Read the live objects and ask every reason to refuse, then a server-side dry run."""


class TakeCheckpoint(Document):
    """Snapshot the evidence, sample the baseline, store both."""


class AskBrake(Document):
    """Ask halt, take-over and lease before a forward write."""

    not_before: float = 0.0


class Send(Document):
    """Make exactly this call once. Its intent is journaled."""

    write: Write
    not_before: float = 0.0


class ReadBack(Document):
    """Read the object to learn whether the pending call took effect."""

    write: Write
    not_before: float = 0.0


class Observe(Document):
    """Take the next sample."""


class AwaitResume(Document):
    """Wait for an owner's word on a parked transaction."""


class Finish(Document):
    """The transaction is over: store and report its outcome."""


Effect = CheckLimits | RunPreflight | TakeCheckpoint | AskBrake | Send | ReadBack | Observe | AwaitResume | Finish


# Observations: what comes back.


class Passed(Document):
    """Limits or preflight hold."""


class Refused(Document):
    """They do not. `reason` is the class, `sentence` is for people."""

    reason: str
    sentence: str
    foreign: bool = Field(default=False, description="somebody else's transaction is open on the target: a conflict")


class Checkpointed(Document):
    """The checkpoint is stored."""

    before: Before
    timing: Timing
    mark: str | None
    steps: tuple[PlanStep, ...] = Field(description="the plan with every eviction naming one pod by UID")
    needs_open: bool = Field(default=False, description="no /metadata/annotations: an annotation-only patch creates it")


class Brake(Document):
    """State of the brake for this transaction."""

    reason: str = Field(default="", description="'' = off; halted, halt_unreadable, taken_over, not_active")
    sentence: str = ""
    hard: bool = False


class Answered(Document):
    """The server's answer to a call: took effect, or certainly not."""

    done: bool
    retry: bool = Field(default=False, description="certainly not applied, and worth sending again later")
    maybe_fence: bool = Field(default=False, description="422: a test of the patch may have failed; read the object to learn")
    reason: str = ""
    sentence: str = ""


class Lost(Document):
    """No answer, or one that does not say: in doubt."""

    detail: str = ""


class Resumed(Document):
    """An owner's word."""

    to: Literal["undo", "settle"]


Observation = Passed | Refused | Checkpointed | Brake | Answered | Lost | Seen | Resumed


def plan_kind(step: PlanStep) -> WriteKind:
    """The write a plan step makes."""
    kinds: dict[StepKind, WriteKind] = {
        StepKind.OPEN: "open",
        StepKind.EVICT: "evict",
        StepKind.STAMP: "stamp",
        StepKind.SCALE: "scale",
    }
    return kinds[step.kind]
