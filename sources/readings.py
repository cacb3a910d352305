"""What was read of a workload and its metrics, reduced to what a diagnosis needs: typed, compact, redacted, fit to be stored.

Triage and the verifier both keep such readings as their input, so that any judgement can be made again later from the same
facts. A part that could not be read is named in `unreadable`; an empty tuple there means "read, and there is none".
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from catalog.documents import Document, Instant
from catalog.targets import Target


class Termination(Document):
    """How a container ended."""

    reason: str
    exit_code: int | None = None
    at: Instant | None = None
    ran_seconds: float | None = Field(default=None, description="None: the container never started")


class ContainerReading(Document):
    """One container of a live pod. Memory in bytes, CPU in cores."""

    name: str
    init: bool = False
    ready: bool = False
    state: Literal["running", "waiting", "terminated", "unknown"] = "unknown"
    waiting: str = Field(default="", description="reason of the waiting state")
    message: str = ""
    running_since: Instant | None = None
    restarts: int = 0
    ended: Termination | None = Field(default=None, description="the latest end: of the present state, else of lastState")
    memory_limit: int | None = None
    cpu_limit: float | None = None
    cpu_request: float | None = None


class PodReading(Document):
    """One live pod (not being deleted)."""

    name: str
    uid: str
    phase: str = ""
    ready: bool = False
    unready_since: Instant | None = None
    created_at: Instant | None = None
    node: str = ""
    owner_uid: str = ""
    revision: int | None = Field(default=None, description="revision of the ReplicaSet that made it")
    newest: bool | None = Field(default=None, description="made by the newest revision; None: not known")
    unschedulable: str = Field(default="", description="the scheduler's message, '' when scheduled")
    containers: tuple[ContainerReading, ...] = ()

    @property
    def memory_limit(self) -> int | None:
        """Sum over its containers, None when any of them has no limit."""
        limits = [container.memory_limit for container in self.containers if not container.init]
        return None if not limits or None in limits else sum(limit for limit in limits if limit is not None)

    @property
    def cpu_bound(self) -> float | None:
        """Cores it may use: sum of limits, else of requests, None when neither is complete."""
        for sizes in (
            [container.cpu_limit for container in self.containers if not container.init],
            [container.cpu_request for container in self.containers if not container.init],
        ):
            if sizes and None not in sizes:
                return sum(size for size in sizes if size is not None) or None
        return None


class EventReading(Document):
    """One event, newest occurrence. Writers limit their own rate: an old event never means that something stopped."""

    reason: str
    kind: str
    name: str
    message: str = ""
    count: int = 1
    at: Instant | None = None
    warning: bool = False


class RevisionReading(Document):
    """One revision of a Deployment."""

    revision: int
    replica_set: str
    created_at: Instant | None = None
    replicas: int = 0
    ready: int = 0
    reused: bool = Field(default=False, description="an older ReplicaSet taken up again: it was created long before")
    content: str = Field(default="", description="digest of the template without restart stamps: equal content is the same release")
    images: tuple[str, ...] = ()
    memory_limits: dict[str, int] = Field(default={})


class ConditionReading(Document):
    """A condition of an object."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    at: Instant | None = None


class NodeReading(Document):
    """A node that runs, or is, the target."""

    name: str
    ready: Literal["True", "False", "Unknown", ""] = ""
    ready_since: Instant | None = None
    pressures: tuple[str, ...] = ()
    cordoned: bool = False


class AutoscalerReading(Document):
    """A HorizontalPodAutoscaler (or what made it) that owns the replicas."""

    name: str
    minimum: int = 1
    maximum: int = 0
    current: int = 0
    desired: int = 0
    limited: str = Field(default="", description="reason of ScalingLimited when True")
    blind: str = Field(default="", description="reason of ScalingActive when False")

    @property
    def at_maximum(self) -> bool:
        return self.maximum > 0 and self.desired >= self.maximum


class QuotaReading(Document):
    """A ResourceQuota of the namespace."""

    name: str
    full: tuple[str, ...] = Field(default=(), description="resources used up, as `pods 3 of 3`")


class BudgetReading(Document):
    """A PodDisruptionBudget that matches the pods."""

    name: str
    allowed: int | None = None


class WorkloadReading(Document):
    """One reading of a target and what surrounds it in Kubernetes."""

    target: Target
    read_at: Instant
    exists: bool = True
    unreadable: dict[str, str] = Field(default={}, description="part → why it could not be read")
    marks: tuple[str | None, int | None, str | None] = Field(
        default=(None, None, None), description="(txn, generation, template hash)"
    )
    desired: int | None = None
    ready: int | None = None
    available: int | None = None
    paused: bool = False
    rolling: bool = Field(default=False, description="a roll-out has begun and not ended")
    complete: bool | None = Field(default=None, description="the roll-out has nothing left to do")
    generation_behind: bool = False
    progress_deadline_seconds: int | None = None
    conditions: tuple[ConditionReading, ...] = ()
    pods: tuple[PodReading, ...] = Field(default=(), description="unhealthy first, then those that alerts name; the rest is cut")
    pods_total: int = 0
    pod_names: tuple[str, ...] = Field(default=(), description="names of all live pods, at most 100")
    events: tuple[EventReading, ...] = Field(default=(), description="newest first")
    events_cut: int = 0
    revisions: tuple[RevisionReading, ...] = Field(default=(), description="newest first")
    nodes: tuple[NodeReading, ...] = ()
    autoscalers: tuple[AutoscalerReading, ...] = ()
    budgets: tuple[BudgetReading, ...] = ()
    quotas: tuple[QuotaReading, ...] = ()
    rolled_at: Instant | None = Field(default=None, description="last progress of a roll-out, as the Progressing condition has it")
    replicas_set_by: str = Field(default="", description="field manager that wrote spec.replicas last")
    replicas_set_at: Instant | None = None
    data_on_empty_dir: bool = Field(default=False, description="an emptyDir on disk, which a restart would empty")
    secrets: tuple[str, ...] = Field(
        default=(), description="names of Secrets whose values were taken into the environment at start"
    )

    @property
    def healthy(self) -> bool:
        """Every wanted pod is ready and nothing is waiting or unscheduled. False when the pods could not be read."""
        return (
            self.exists
            and "pods" not in self.unreadable
            and self.desired is not None
            and self.desired > 0
            and self.pods_total >= self.desired
            and all(pod.ready for pod in self.pods)
        )

    def condition(self, type_: str) -> ConditionReading | None:
        """The condition of that type, None when the object has none."""
        return next((condition for condition in self.conditions if condition.type == type_), None)

    @property
    def release(self) -> RevisionReading | None:
        """The newest revision that changed the template's content; None when all revisions kept are the same release.

        Restart stamps make revisions too: they are not releases. When only one revision is left nothing is known of a change.
        """
        for newer, older in zip(self.revisions, self.revisions[1:], strict=False):
            if newer.content != older.content:
                return newer
        return None

    @property
    def released_at(self) -> datetime | None:
        """When the release began to roll out; None when there is none or its time is not known."""
        release = self.release
        if release is None:
            return None
        return self.rolled_at if release.reused else release.created_at

    @property
    def before_release(self) -> RevisionReading | None:
        """The revision that the release replaced: where a rollback would go."""
        release = self.release
        if release is None:
            return None
        older = [revision for revision in self.revisions if revision.revision < release.revision]
        return older[0] if older else None

    def restarts_since(self, instant: datetime) -> int:
        """Roll-outs of unchanged content since `instant`: somebody, or we, restarted it that often."""
        pairs = zip(self.revisions, self.revisions[1:], strict=False)
        return sum(
            1
            for newer, older in pairs
            if newer.content == older.content and newer.created_at is not None and newer.created_at >= instant
        )


class Measure(Document):
    """One query's answer for the target: a value per pod, or for the whole, or the name of why there is none."""

    name: str
    query: str = ""
    unit: str = ""
    window_seconds: float = Field(default=0, description="the range its rates or trends are taken over")
    by_pod: dict[str, float] = Field(
        default={}, description="finite samples by pod; the empty name holds a result without a pod label"
    )
    unknown: str = Field(default="", description="why there is no good sample: nan, inf, empty, stale, timeout, unreachable, …")
    unknown_pods: dict[str, str] = Field(default={}, description="pods whose sample is not good, by reason")
    pods_cut: int = Field(default=0, description="pods between the extremes, left out")
    whole: float | None = Field(default=None, description="sum over all pods where some were cut")
    at: Instant
    link: str | None = None

    @property
    def values(self) -> tuple[float, ...]:
        return tuple(self.by_pod.values())

    @property
    def total(self) -> float | None:
        """Sum over all good samples, None when there is none."""
        if self.whole is not None:
            return self.whole
        return sum(self.by_pod.values()) if self.by_pod else None


class RuleReading(Document):
    """An alert rule asked again, now, for the target: whether its expression holds, not whether its `for` has passed."""

    alert: str
    expression: str = ""
    holds: bool | None = Field(default=None, description="None: could not be told, see `unknown`")
    value: float | None = None
    unknown: str = Field(default="", description="no_rule, nan, inf, absent_metric, timeout, …")
    detail: str = ""
    at: Instant
    link: str | None = None


class LevelReading(Document):
    """A service-level check of the policy, evaluated now."""

    name: str
    state: Literal["passing", "failing", "unknown"]
    query: str = ""
    seen: str = ""
    unknown: str = ""
    at: Instant
    link: str | None = None
