"""From samples to the state of checks: debounce, Kubernetes facts, severity. Pure.

A check changes state only after `debounce` equal samples. A sample that could not be told is unknown, never good.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pydantic import Field

from catalog.documents import Document
from catalog.evidence import Oracle
from catalog.orders import Check, KubernetesFact, Order
from catalog.outcomes import CheckReading, CheckState
from sources.condensing import instant
from sources.rollouts import desired_replicas, observed
from sources.workloads import pod_ready, pod_restarts

JsonObject = dict[str, Any]

UNSTABLE_FOR = timedelta(minutes=10)
UNSCHEDULABLE_FOR = 20.0
"""Seconds that a fresh pod may wait for the scheduler before that ends the roll-out."""


@dataclass(frozen=True)
class Debounced:
    """A check's state and the run of equal samples that may change it. `state` None: not determined yet."""

    state: CheckState | None
    run: CheckState | None = None
    length: int = 0

    def after(self, sample: CheckState, needed: int) -> Debounced:
        """The state after one more sample."""
        length = self.length + 1 if sample is self.run else 1
        return Debounced(state=sample if length >= needed else self.state, run=sample, length=length)


class WorkloadBase(Document):
    """One workload at the checkpoint. Restarts by the pod's UID, so that a successor starts at zero."""

    desired: int
    ready: int
    pods: dict[str, int] = Field(default_factory=dict)
    services: tuple[str, ...] = ()


class Baseline(Document):
    """What the samples of a transaction are compared with; kept in the journal, so that it survives the process."""

    workloads: dict[str, WorkloadBase] = Field(default_factory=dict)
    readings: tuple[CheckReading, ...] = ()
    dip: int = 0
    mark: str | None = None

    def reading(self, name: str) -> CheckReading | None:
        return next((reading for reading in self.readings if reading.name == name), None)


@dataclass(frozen=True)
class Look:
    """One workload as read just now. A part that is None could not be read."""

    workload: JsonObject | None
    pods: tuple[JsonObject, ...] | None
    ready_endpoints: Mapping[str, int] | None = None
    nodes: Mapping[str, bool] | None = None
    missing: bool = False

    @property
    def ready_pods(self) -> int | None:
        return None if self.pods is None else sum(pod_ready(pod) for pod in self.pods)


Told = tuple[CheckState, str]


def fact_of(check: Check, look: Look, base: WorkloadBase | None, *, dip: int = 0, scaled_to: int | None = None) -> Told:
    """The sample of a Kubernetes check. `base` None: the baseline itself is being taken."""
    if look.missing:
        return CheckState.FAILING, "it does not exist"
    match check.fact:
        case KubernetesFact.AVAILABILITY:
            return _availability(look, base, dip, scaled_to)
        case KubernetesFact.RESTARTS:
            return _restarts(look, base)
        case KubernetesFact.ENDPOINTS:
            return _endpoints(look)
        case KubernetesFact.NODES_READY:
            return _nodes(look)
        case None:
            return CheckState.UNKNOWN, "the check names no fact"


def _availability(look: Look, base: WorkloadBase | None, dip: int, scaled_to: int | None) -> Told:
    if look.workload is None or look.ready_pods is None:
        return CheckState.UNKNOWN, "could not be read"
    wanted = desired_replicas(look.workload)
    if base is not None:
        wanted = min(wanted, base.desired)
    if scaled_to is not None:
        wanted = min(wanted, scaled_to)
    floor = wanted - dip
    told = f"{look.ready_pods} of {wanted} ready"
    return (CheckState.PASSING if look.ready_pods >= floor else CheckState.FAILING), told


def _restarts(look: Look, base: WorkloadBase | None) -> Told:
    if look.pods is None:
        return CheckState.UNKNOWN, "could not be read"
    before = base.pods if base is not None else {uid_of(pod): pod_restarts(pod) for pod in look.pods}
    grown = sum(max(0, pod_restarts(pod) - before.get(uid_of(pod), 0)) for pod in look.pods)
    return (CheckState.FAILING, f"{grown} restarts since begin") if grown else (CheckState.PASSING, "no restart since begin")


def _endpoints(look: Look) -> Told:
    if look.ready_endpoints is None:
        return CheckState.UNKNOWN, "could not be read"
    if not look.ready_endpoints:
        return CheckState.UNKNOWN, "no Service selects its pods"
    empty = sorted(name for name, count in look.ready_endpoints.items() if count == 0)
    if empty:
        return CheckState.FAILING, f"no ready endpoint of {', '.join(empty)}"
    return CheckState.PASSING, f"{sum(look.ready_endpoints.values())} ready endpoints"


def _nodes(look: Look) -> Told:
    if look.nodes is None:
        return CheckState.UNKNOWN, "could not be read"
    lost = sorted(name for name, ready in look.nodes.items() if not ready)
    return (CheckState.FAILING, f"not Ready: {', '.join(lost)}") if lost else (CheckState.PASSING, f"{len(look.nodes)} nodes Ready")


def unstable_fact(check: Check, look: Look, nodes: Iterable[JsonObject], now: datetime) -> bool:
    """Whether a Kubernetes check changed in the last ten minutes, by transition and restart times. No time = stable."""
    match check.fact:
        case KubernetesFact.AVAILABILITY:
            return _recent(_transition(look.workload or {}, "Available"), now)
        case KubernetesFact.RESTARTS:
            return any(_recent(at, now) for pod in look.pods or () for at in _restart_times(pod))
        case KubernetesFact.NODES_READY:
            return any(_recent(_transition(node, "Ready"), now) for node in nodes)
        case _:
            return False


def _transition(workload: JsonObject, condition: str) -> datetime | None:
    conditions = (workload.get("status") or {}).get("conditions") or ()
    return next((instant(one.get("lastTransitionTime")) for one in conditions if one.get("type") == condition), None)


def _restart_times(pod: JsonObject) -> list[datetime | None]:
    statuses = [one for one in (pod.get("status") or {}).get("containerStatuses") or () if one.get("restartCount")]
    return [instant(((one.get("lastState") or {}).get("terminated") or {}).get("finishedAt")) for one in statuses]


def _recent(at: datetime | None, now: datetime) -> bool:
    return at is not None and now - at < UNSTABLE_FOR


def severity_before(order: Order, readings: Iterable[CheckReading], lost_nodes: int) -> float:
    """µ at the checkpoint: what is known to be wrong, weighted."""
    failing = {reading.name for reading in readings if reading.before is CheckState.FAILING}
    return _weighted(order, failing, lost_nodes)


def severity_after(order: Order, readings: Iterable[CheckReading], lost_nodes: int) -> float | None:
    """µ now; None where it cannot be told. An unstable check counts at most what it counted at the checkpoint."""
    failing: set[str] = set()
    for reading in readings:
        state = reading.after if reading.after is not None else reading.before
        was_failing = reading.before is CheckState.FAILING
        if reading.unstable:
            state = CheckState.FAILING if was_failing and state is not CheckState.PASSING else CheckState.PASSING
        if state is CheckState.UNKNOWN and reading.before is not CheckState.UNKNOWN:
            return None
        if state is CheckState.FAILING:
            failing.add(reading.name)
    return _weighted(order, failing, lost_nodes)


def _weighted(order: Order, failing: set[str], lost_nodes: int) -> float:
    alerts, levels, nodes = order.severity_weights
    total = 0.0
    for check in order.checks:
        if check.name not in failing:
            continue
        if check.oracle is Oracle.ALERT:
            total += alerts * check.weight
        elif check.oracle is Oracle.SERVICE_LEVEL:
            total += levels * check.weight
    return total + nodes * lost_nodes


def fresh_pod_failure(workload: JsonObject, pods: Iterable[JsonObject], waited: Mapping[str, float]) -> tuple[str, str]:
    """(reason, detail) of a failed Kubernetes check of a roll-out, ('', '') while there is none.

    `waited`: seconds for which each pod, by UID, has been seen unschedulable.
    """
    conditions = (workload.get("status") or {}).get("conditions") or ()
    if observed(workload) and any(one.get("type") == "ReplicaFailure" and one.get("status") == "True" for one in conditions):
        return "failed_create", "fresh pods are not admitted (FailedCreate)"
    for pod in pods:
        name = pod["metadata"].get("name", "")
        if pod_restarts(pod):
            return "restarting", f"pod {name} restarts"
        if waited.get(uid_of(pod), 0.0) >= UNSCHEDULABLE_FOR:
            return "unschedulable", f"no node takes pod {name}"
    return "", ""


def unschedulable(pod: JsonObject) -> bool:
    """Whether the scheduler found no node for a pending pod."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(one.get("type") == "PodScheduled" and one.get("reason") == "Unschedulable" for one in conditions)


def uid_of(item: JsonObject) -> str:
    """UID of an object, '' when it has none."""
    return str((item.get("metadata") or {}).get("uid") or "")


def live(pod: JsonObject) -> bool:
    """Whether a pod is not being deleted and has not ended."""
    ended = (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded")
    return not (pod.get("metadata") or {}).get("deletionTimestamp") and not ended
