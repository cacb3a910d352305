"""Reads the cluster and Prometheus at their own pace and turns the answers into `Seen`.

Kubernetes checks are sampled at every look (2 s), Prometheus checks once per evaluation interval. What cannot be read is an
unknown sample, debounced like any other. Before begin, Prometheus is asked by a range query over ten minutes, so the baseline
needs no waiting there; Kubernetes is looked at as often as its checks need equal samples.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from catalog.actions import Scale
from catalog.clocks import Clock
from catalog.limits import allowed_dip
from catalog.marks import RESTART_ANNOTATION, TXN_ANNOTATION
from catalog.orders import Check, CheckSource, KubernetesFact, Order
from catalog.outcomes import CheckReading, CheckState
from catalog.targets import Target, TargetFacts
from executor.effects import stamped_template
from executor.instants import Timeline
from executor.judging import (
    UNSTABLE_FOR,
    Baseline,
    Debounced,
    JsonObject,
    Look,
    WorkloadBase,
    fact_of,
    fresh_pod_failure,
    severity_after,
    severity_before,
    uid_of,
    unschedulable,
    unstable_fact,
)
from executor.looking import look_at, node_objects
from executor.transactions import Phase, Seen, Transaction
from sources.errors import SourceUnavailable
from sources.kubernetes import KubernetesReader
from sources.prometheus import PrometheusReader
from sources.rollouts import deployment_complete, desired_replicas, observed
from sources.samples import Matrix, Series, Vector
from sources.telemetry import level_of
from sources.workloads import pod_ready, pod_restarts

Sleep = Callable[[float], Awaitable[None]]
Told = tuple[CheckState, str]

_STATES = {"passing": CheckState.PASSING, "failing": CheckState.FAILING, "unknown": CheckState.UNKNOWN}
MAX_NODES = 32


class BaselineImpossible(Exception):
    """The target, or what opened the incident, could not be told before the first write. Refuse; the message is for people."""


@dataclass
class Sampler:
    """Samples of one transaction. Its memory (debounce, last Prometheus answers) may be lost: a settle window starts anew."""

    order: Order
    transaction_id: str
    reader: KubernetesReader
    prometheus: PrometheusReader | None
    clock: Clock
    timeline: Timeline
    baseline: Baseline | None = None
    template: JsonObject = field(default_factory=dict)
    _states: dict[str, Debounced] = field(default_factory=dict)
    _told: dict[str, Told] = field(default_factory=dict)
    _asked_at: float = float("-inf")
    _completed: float | None = None
    _openings: dict[str, Debounced] = field(default_factory=dict)
    _waiting_since: dict[str, float] = field(default_factory=dict)
    _lost_nodes: int = 0

    # Baseline

    async def take_baseline(self, facts: TargetFacts, sleep: Sleep) -> tuple[Baseline, float]:
        """The baseline window: as many Kubernetes looks as the checks need, and the last ten minutes of Prometheus.

        Returns the baseline and µ at the checkpoint.

        Raises:
            BaselineImpossible: what the result would be judged by could not be told now.
        """
        history = asyncio.create_task(self._histories())
        try:
            needed = max((check.debounce for check in self._kubernetes_checks()), default=1)
            states: dict[str, Debounced] = {}
            bases: dict[str, WorkloadBase] = {}
            for turn in range(needed):
                if turn:
                    await sleep(self.order.deadlines.kubernetes_sample)
                looks = await self._looks()
                for title, look in looks.items():
                    bases.setdefault(title, _base_of(look))
                for check in self._kubernetes_checks():
                    title = check.target.title
                    told = fact_of(check, looks[title], bases[title] if turn else None)
                    self._told[check.name] = told
                    states[check.name] = states.get(check.name, Debounced(None)).after(told[0], check.debounce)
            nodes = await node_objects(self.reader, looks.values()) if self._kubernetes_checks() else []
            past = await history
        finally:
            history.cancel()
        if looks[self.order.target.title].pods is None:
            raise BaselineImpossible("The target could not be read at the checkpoint.")
        readings = tuple(self._first_reading(check, looks, states, past, nodes) for check in self.order.checks)
        self._require_known(readings)
        lost = sum(not pod_ready(node) for node in nodes)
        dip = allowed_dip(facts.max_unavailable or 0, facts.ready or 0, facts.disruptions_allowed)
        self.baseline = Baseline(workloads=bases, readings=readings, dip=dip, mark=facts.txn)
        return self.baseline, severity_before(self.order, readings, lost)

    def _require_known(self, readings: tuple[CheckReading, ...]) -> None:
        """What opened the incident must be readable, and for an automatic order true, with a known check of each oracle."""
        opened = {check.name for check in self.order.checks if check.opened}
        openings = [reading for reading in readings if reading.name in opened]
        unknown = [reading for reading in openings if reading.before is CheckState.UNKNOWN]
        if unknown:
            raise BaselineImpossible(f"What opened the incident could not be evaluated ({unknown[0].detail}).")
        if self.order.mode != "auto":
            return
        if openings and all(reading.before is CheckState.PASSING for reading in openings):
            raise BaselineImpossible("The expression that opened the incident is no longer true.")
        blind = {reading.oracle for reading in readings}
        blind -= {reading.oracle for reading in readings if reading.before is not CheckState.UNKNOWN}
        if blind:
            raise BaselineImpossible(f"No check of {', '.join(sorted(blind))} could be read.")

    def _first_reading(
        self,
        check: Check,
        looks: dict[str, Look],
        states: dict[str, Debounced],
        past: dict[str, tuple[CheckState, bool, str]],
        nodes: list[JsonObject],
    ) -> CheckReading:
        if check.source is CheckSource.PROMETHEUS:
            state, unstable, detail = past[check.name]
        else:
            state = states[check.name].state or CheckState.UNKNOWN
            detail = self._told[check.name][1]
            unstable = unstable_fact(check, looks[check.target.title], nodes, self.clock.now())
        return CheckReading(name=check.name, oracle=check.oracle, before=state, unstable=unstable, detail=detail)

    async def _histories(self) -> dict[str, tuple[CheckState, bool, str]]:
        checks = [check for check in self.order.checks if check.source is CheckSource.PROMETHEUS]
        found = await asyncio.gather(*(self._history(check) for check in checks))
        return {check.name: one for check, one in zip(checks, found, strict=True)}

    async def _history(self, check: Check) -> tuple[CheckState, bool, str]:
        """(state, unstable, detail) of a Prometheus check from its last ten minutes."""
        if self.prometheus is None:
            return CheckState.UNKNOWN, False, "no Prometheus is configured"
        now, step = self.clock.now(), max(1.0, self.order.deadlines.evaluation_interval)
        try:
            matrix = await self.prometheus.range(check.query or "", now - UNSTABLE_FOR, now, step)
            fresh = await self._level(check)
        except SourceUnavailable as error:
            return CheckState.UNKNOWN, False, str(error)
        states: list[CheckState] = []
        debounced = Debounced(None)
        for at in _steps(now, step):
            level = level_of(check, _vector_at(matrix, at, step), at=at, link=None)
            debounced = debounced.after(_STATES[level.state], check.debounce)
            if debounced.state is not None:
                states.append(debounced.state)
        state = states[-1] if states else CheckState.UNKNOWN
        if fresh[0] is CheckState.UNKNOWN:
            state = CheckState.UNKNOWN
        known = {one for one in states if one is not CheckState.UNKNOWN}
        return state, len(known) > 1, fresh[1]

    # Samples

    def settle_began(self, began: float, *, extended: bool) -> None:
        """A settle window begins. The opening check starts undetermined; in the first window after a completion the others
        start at what they were at the checkpoint."""
        if not extended:
            self._completed = began
            self._states.clear()
        self._openings = {check.name: Debounced(None) for check in self.order.checks if check.opened}

    async def look(self, txn: Transaction) -> Seen:
        """One sample of everything."""
        if self.baseline is None:
            raise RuntimeError("sampling without a baseline")
        looks, _ = await asyncio.gather(self._looks(), self._ask_prometheus())
        readings = self._readings(txn, looks)
        fields: dict[str, Any] = {
            "readings": readings,
            "opening": self._opening(),
            "severity": severity_after(self.order, readings, self._lost(looks)),
        }
        target = looks[self.order.target.title]
        if target.missing:
            return Seen(exists=False, **fields)
        if target.workload is None or target.pods is None:
            return Seen(readable=False, **fields)
        return self._seen(txn, target.workload, target.pods, fields)

    async def read_back(self, txn: Transaction) -> Seen:
        """The object and its pods alone, to learn whether a write took effect."""
        look = await look_at(self.reader, self.order.target, set())
        if look.missing:
            return Seen(exists=False)
        if look.workload is None or look.pods is None:
            return Seen(readable=False)
        return self._seen(txn, look.workload, look.pods, {})

    def _seen(self, txn: Transaction, workload: JsonObject, pods: tuple[JsonObject, ...], fields: dict[str, Any]) -> Seen:
        metadata = workload.get("metadata") or {}
        base = (self.baseline or Baseline()).workloads.get(self.order.target.title) or WorkloadBase(desired=0, ready=0)
        ours = [pod for pod in pods if self._is_ours(pod)]
        unknown_before = [pod for pod in pods if uid_of(pod) not in base.pods]
        fresh = ours if txn.done("stamp") else unknown_before
        # After a canary its replacement is of the old template, and no longer fresh.
        failure, detail = fresh_pod_failure(workload, fresh, self._waits(fresh)) if txn.phase is Phase.APPLYING else ("", "")
        evicted = self._evicted(txn)
        gone = evicted is not None and evicted not in {uid_of(pod) for pod in pods}
        ready = sum(pod_ready(pod) for pod in pods)
        replaced = gone and bool(unknown_before) and all(pod_ready(pod) for pod in unknown_before) and ready >= base.ready
        return Seen(
            uid=str(metadata.get("uid", "")),
            mark=(metadata.get("annotations") or {}).get(TXN_ANNOTATION),
            replicas=(workload.get("spec") or {}).get("replicas"),
            template=self._template_of(workload),
            complete=deployment_complete(workload) and len(pods) == desired_replicas(workload),
            old_pods=len(pods) - len(ours) if txn.done("stamp") else 0,
            replaced=replaced and observed(workload),
            pod_gone=gone,
            restored=self._restored(workload, pods, ours, base, ready),
            failure=failure,
            detail=detail or _progress(workload, pods),
            **fields,
        )

    def _restored(
        self, workload: JsonObject, pods: tuple[JsonObject, ...], ours: list[JsonObject], base: WorkloadBase, ready: int
    ) -> bool:
        """After an undo: observed, nothing of ours left, no more pods than wanted, and as many ready as before."""
        desired = desired_replicas(workload)
        return observed(workload) and not ours and len(pods) <= desired and ready >= min(base.ready, desired)

    def _template_of(self, workload: JsonObject) -> Any:
        template = (workload.get("spec") or {}).get("template")
        if template == self.template:
            return "before"
        if self.template and template == stamped_template(self.template, self.transaction_id):
            return "ours"
        return "other"

    def _is_ours(self, pod: JsonObject) -> bool:
        annotations = (pod.get("metadata") or {}).get("annotations") or {}
        return bool(annotations.get(RESTART_ANNOTATION) == self.transaction_id)

    def _evicted(self, txn: Transaction) -> str | None:
        if txn.pending is not None and txn.pending.kind == "evict":
            return txn.pending.pod_uid
        step = txn.current_step
        return step.pod_uid if step else None

    def _waits(self, pods: list[JsonObject]) -> dict[str, float]:
        now = self.timeline.now()
        waiting = {uid_of(pod) for pod in pods if unschedulable(pod)}
        self._waiting_since = {uid: self._waiting_since.get(uid, now) for uid in waiting}
        return {uid: now - since for uid, since in self._waiting_since.items()}

    def _readings(self, txn: Transaction, looks: dict[str, Look]) -> tuple[CheckReading, ...]:
        baseline = self.baseline or Baseline()
        scaled_to = self.order.action.to_replicas if isinstance(self.order.action, Scale) else None
        dip = baseline.dip if txn.phase is Phase.APPLYING else 0
        readings: list[CheckReading] = []
        for check in self.order.checks:
            first = baseline.reading(check.name)
            if first is None:
                continue
            if check.source is CheckSource.KUBERNETES:
                title = check.target.title
                own = check.target.key == self.order.target.key
                base = baseline.workloads.get(title) or WorkloadBase(desired=0, ready=0)
                told = fact_of(check, looks[title], base, dip=dip if own else 0, scaled_to=scaled_to if own else None)
                self._sample(check, told, first)
            state = self._states.get(check.name, Debounced(first.before)).state
            detail = self._told.get(check.name, (CheckState.UNKNOWN, ""))[1]
            readings.append(first.model_copy(update={"after": state, "detail": detail}))
        return tuple(readings)

    def _sample(self, check: Check, told: Told, first: CheckReading) -> None:
        self._told[check.name] = told
        self._states[check.name] = self._states.get(check.name, Debounced(first.before)).after(told[0], check.debounce)

    async def _ask_prometheus(self) -> None:
        """Sample the Prometheus checks if their interval is over."""
        now = self.timeline.now()
        if now - self._asked_at < self.order.deadlines.evaluation_interval:
            return
        self._asked_at = now
        checks = [check for check in self.order.checks if check.source is CheckSource.PROMETHEUS]
        answers = await asyncio.gather(*(self._level_or_unknown(check) for check in checks))
        for check, told in zip(checks, answers, strict=True):
            first = (self.baseline or Baseline()).reading(check.name)
            if first is not None:
                self._sample(check, told, first)
            if check.opened:
                sample = self._since_completion(check, told[0], now)
                self._openings[check.name] = self._openings.get(check.name, Debounced(None)).after(sample, check.debounce)

    def _opening(self) -> CheckState | None:
        """Of all expressions that opened the incident: true if one is, false only if each is known to be."""
        states = {one.state for one in self._openings.values()}
        for state in (CheckState.FAILING, CheckState.UNKNOWN, None):
            if state in states:
                return state
        return CheckState.PASSING if states else None

    def _since_completion(self, check: Check, state: CheckState, now: float) -> CheckState:
        """A true opening expression whose range still reaches back before completion says nothing about the time since."""
        reaches_back = self._completed is None or now < self._completed + check.longest_range
        return CheckState.UNKNOWN if reaches_back and state is CheckState.FAILING else state

    async def _level_or_unknown(self, check: Check) -> Told:
        try:
            return await self._level(check)
        except SourceUnavailable as error:
            return CheckState.UNKNOWN, str(error)

    async def _level(self, check: Check) -> Told:
        if self.prometheus is None:
            return CheckState.UNKNOWN, "no Prometheus is configured"
        vector = await self.prometheus.instant(check.query or "")
        level = level_of(check, vector, at=vector.at, link=None)
        return _STATES[level.state], level.seen or level.unknown

    # Reads

    def _kubernetes_checks(self) -> list[Check]:
        return [check for check in self.order.checks if check.source is CheckSource.KUBERNETES]

    async def _looks(self) -> dict[str, Look]:
        """One look at the target and at every other workload that a check names."""
        wanted: dict[str, tuple[Target, set[KubernetesFact]]] = {self.order.target.title: (self.order.target, set())}
        for check in self._kubernetes_checks():
            _, facts = wanted.setdefault(check.target.title, (check.target, set()))
            if check.fact is not None:
                facts.add(check.fact)
        found = await asyncio.gather(*(look_at(self.reader, target, facts) for target, facts in wanted.values()))
        return dict(zip(wanted, found, strict=True))

    def _lost(self, looks: dict[str, Look]) -> int:
        """Nodes that are not Ready, over all checks that look at nodes; the last number where they cannot be read."""
        seen = [look.nodes for look in looks.values() if look.nodes is not None]
        if seen:
            self._lost_nodes = len({name for nodes in seen for name, ready in nodes.items() if not ready})
        return self._lost_nodes


def _base_of(look: Look) -> WorkloadBase:
    pods = look.pods or ()
    return WorkloadBase(
        desired=desired_replicas(look.workload or {}),
        ready=sum(pod_ready(pod) for pod in pods),
        pods={uid_of(pod): pod_restarts(pod) for pod in pods},
        services=tuple(sorted(look.ready_endpoints or ())),
    )


def _progress(workload: JsonObject, pods: tuple[JsonObject, ...]) -> str:
    ready = sum(pod_ready(pod) for pod in pods)
    return f"{ready} of {desired_replicas(workload)} pods are ready"


def _steps(now: datetime, step: float) -> list[datetime]:
    """The instants at which a range query from ten minutes ago until now is evaluated."""
    start = now - UNSTABLE_FOR
    count = int(UNSTABLE_FOR.total_seconds() // step)
    return [start + timedelta(seconds=step * index) for index in range(count + 1)]


def _vector_at(matrix: Matrix, at: datetime, step: float) -> Vector:
    """The result of the query at one step. Times come back in whole seconds, so the nearest point within half a step is it."""
    half = timedelta(seconds=step / 2)
    series: list[Series] = []
    for one in matrix:
        point = next((sample for when, sample in one.points if -half < when - at <= half), None)
        if point is not None:
            series.append(Series(labels=one.labels, sample=point, at=at))
    return Vector(series=tuple(series), at=at)
