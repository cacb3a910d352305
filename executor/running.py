"""Carries out one transaction: performs the effect that the core names, journals what came back, and asks again.

Nothing is decided here. Two orders of events matter and are kept by construction: the state is journaled before its effect is
performed, so an intent precedes its call; and a call is made at most once per journaled intent, because every answer leads to
another state.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import structlog

from catalog.ids import new_id
from catalog.orders import Order
from catalog.outcomes import End, Outcome
from catalog.signatures import sign
from executor.accepting import order_refusal
from executor.bounds import breach_of
from executor.core import advance, next_effect
from executor.effects import patch_for
from executor.errors import JournalUnavailable, NotActive
from executor.instants import instant_of
from executor.journal import Kept
from executor.judging import Baseline
from executor.preflight import Scene, refusal_of, resolved_steps
from executor.preflight.asking import dry_run
from executor.sampling import BaselineImpossible, Sampler
from executor.snapshots import Snapshot, SnapshotImpossible, fitted, take_snapshot
from executor.surroundings import Surroundings
from executor.transactions import (
    Answered,
    AskBrake,
    AwaitResume,
    Before,
    Brake,
    CheckLimits,
    Checkpointed,
    Effect,
    Finish,
    Lost,
    Observation,
    Observe,
    Passed,
    Phase,
    ReadBack,
    Refused,
    Resumed,
    RunPreflight,
    Send,
    TakeCheckpoint,
    Timing,
    Transaction,
    Write,
)
from executor.writing import answer_of
from sources.errors import SourceUnavailable
from sources.facts import facts_of
from sources.kubernetes import object_path
from sources.workloads import WorkloadView, read_workload

_T = TypeVar("_T")

JOURNAL_EVERY = 10.0
"""Seconds after which a state that did not change is journaled anyway, to say that the process is alive."""

PATIENCE = 1.0
"""Seconds between two attempts to write the journal."""

log = structlog.get_logger()


def new_transaction(order: Order, now: float, sequence: str) -> Transaction:
    """The transaction of an order, not begun yet."""
    upward = order.to_replicas is not None and order.from_replicas is not None and order.to_replicas > order.from_replicas
    return Transaction(
        id=sequence,
        order_id=order.id,
        action=order.action.action,
        adds_capacity_when_undone=order.to_replicas is not None and not upward,
        steps=order.steps,
        first_severity=order.first_severity,
        has_opening=any(check.opened for check in order.checks),
        began=now,
        touched=now,
    )


def timing_of(order: Order, workload: dict[str, Any], settle_floor: float) -> Timing:
    """Both deadlines of an order on this workload, in seconds; `settle_floor` is the limits file's."""
    numbers = order.deadlines
    progress = float((workload.get("spec") or {}).get("progressDeadlineSeconds") or 600)
    # Half of a short deadline: subtracting the margin from it would leave nothing.
    apply = min(max(progress - 30.0, progress / 2), numbers.apply_cap)
    longest = max((check.longest_range for check in order.checks), default=0.0)
    settle = max(numbers.settle_floor, 2 * (numbers.scrape_interval + numbers.evaluation_interval), longest)
    return Timing(sample=numbers.kubernetes_sample, apply=apply, settle=max(settle_floor, min(settle, numbers.settle_cap)))


class TransactionRun:
    """One transaction from where the journal has it to its end."""

    def __init__(self, around: Surroundings, kept: Kept) -> None:
        self.around = around
        self.order = kept.order
        self.txn = kept.transaction
        self._version = kept.version
        self._view: WorkloadView | None = None
        self._steps = kept.transaction.steps
        self._snapshot = Snapshot.model_validate(kept.snapshot) if kept.snapshot else Snapshot()
        self._annotations_exist = bool(kept.baseline.get("annotations_exist", True))
        self._next_look = 0.0
        self._window_began: float | None = None
        self._sampler = Sampler(
            order=kept.order,
            transaction_id=kept.transaction.id,
            reader=around.reader,
            prometheus=around.prometheus,
            clock=around.clock,
            timeline=around.timeline,
            baseline=Baseline.model_validate(kept.baseline["baseline"]) if kept.baseline else None,
            template=kept.template,
        )
        self.log = log.bind(order=kept.order.id, transaction=kept.transaction.id, target=kept.order.target.title)

    async def run(self) -> Outcome:
        """Go on until the end is journaled.

        Raises:
            NotActive: the lease is not held; the transaction stays open for whoever holds it.
            JournalSuperseded: another executor moved it.
        """
        while True:
            effect = next_effect(self.txn)
            if isinstance(effect, Finish):
                return await self._finish()
            observation = await self._perform(effect)
            if observation is not None:
                await self._advance(observation)

    async def _advance(self, observation: Observation) -> None:
        now = self.around.timeline.now()
        after = advance(self.txn, observation, now)
        changed = _essence(after) != _essence(self.txn)
        if after.phase is not self.txn.phase:
            self.log.info("phase", phase=after.phase.value, reason=after.reason or None)
        if not changed and now - after.touched < JOURNAL_EVERY:
            self.txn = after
            return
        self.txn = after.model_copy(update={"touched": now})
        detail = f"{self.txn.pending.kind} {self.txn.pending.n}" if self.txn.pending else ""
        await self._save(type(observation).__name__.lower(), detail)

    async def _perform(self, effect: Effect) -> Observation | None:
        match effect:
            case CheckLimits():
                return await self._limits()
            case RunPreflight():
                return await self._preflight()
            case TakeCheckpoint():
                return await self._checkpoint()
            case AskBrake():
                await self._wait_until(effect.not_before)
                self._require_lease()
                return await self.around.brakes.state_for(self.order.id)
            case Send():
                await self._wait_until(effect.not_before)
                return await self._send(effect.write)
            case ReadBack():
                await self._wait_until(effect.not_before)
                return await self._sampler.read_back(self.txn)
            case Observe():
                return await self._observe()
            case AwaitResume():
                return await self._await_resume()
            case Finish():
                return None

    # Before the first write

    async def _limits(self) -> Observation:
        now = self.around.clock.now()
        refused = order_refusal(self.order, self.around.cluster_uid, now)
        if refused:
            return refused
        brake = await self.around.brakes.state_for(self.order.id)
        if brake.reason:
            return Refused(reason=brake.reason, sentence=brake.sentence)
        history = await self._journaled(lambda: self.around.journal.history(self.order, now, widest=self.around.bounds.widest))
        return breach_of(self.order, self.around.bounds, history, now) or Passed()

    async def _preflight(self) -> Observation:
        try:
            uid = await self.around.reader.cluster_uid()
            if uid != self.order.audience:
                return Refused(
                    reason="audience", sentence=f"The API server is of cluster {uid}, the order for {self.order.audience}."
                )
            view = await read_workload(self.around.reader, self.order.target)
            facts = facts_of(view, self.around.clock.now())
        except SourceUnavailable as error:
            return Refused(reason="cannot_tell", sentence=f"The target could not be read: {error}.")
        self._steps = resolved_steps(self.order, view)
        scene = Scene(self.order, view, facts, self.around.bounds, self._steps, mark_known=await self._mark_known(facts.txn))
        refused = refusal_of(scene) or await self.around.fence.refusal(self.order)
        if refused is None:
            refused = await dry_run(self.around.writer, self.order, self._steps, scene.workload, self.txn.id)
        self._view = view
        return refused or Passed()

    async def _mark_known(self, mark: str | None) -> bool:
        parts = (mark or "").split("/")
        if len(parts) != 3 or parts[0] != "open":
            return False
        return await self._journaled(lambda: self.around.journal.ended_transaction(parts[1]))

    async def _checkpoint(self) -> Observation:
        view = self._view
        if view is None or not isinstance(view.workload, dict):
            return Refused(reason="cannot_tell", sentence="The target could not be read.")
        facts = facts_of(view, self.around.clock.now())
        try:
            self._snapshot = await take_snapshot(self._steps, view, self.around.reader, self.around.redactor)
            baseline, severity = await self._sampler.take_baseline(facts, self.around.sleep)
        except SnapshotImpossible as error:
            return Refused(reason="no_snapshot", sentence=f"The evidence that a restart destroys could not be kept: {error}.")
        except BaselineImpossible as error:
            return Refused(reason="no_baseline", sentence=f"{error} Nothing could be compared with it.")
        workload: dict[str, Any] = view.workload
        metadata = workload["metadata"]
        self._sampler.template = workload["spec"]["template"]
        self._annotations_exist = metadata.get("annotations") is not None
        before = Before(
            uid=metadata["uid"],
            mark=facts.txn,
            replicas=facts.desired or 0,
            available=facts.available or 0,
            severity=severity,
            readings=baseline.readings,
        )
        kept = {"baseline": baseline.model_dump(mode="json"), "annotations_exist": self._annotations_exist}
        snapshot = self._snapshot.model_dump(mode="json")
        self._version = await self._journaled(
            lambda: self.around.journal.keep_checkpoint(self.txn, self._version, self._sampler.template, kept, snapshot)
        )
        timing = timing_of(self.order, workload, self.around.bounds.settle)
        return Checkpointed(before=before, timing=timing, mark=facts.txn, steps=self._steps, needs_open=not self._annotations_exist)

    # Writes

    async def _send(self, write: Write) -> Observation:
        if write.kind == "undo" and self.around.brakes.hard and not self.txn.unparked:
            return Brake(reason="halted", sentence="A hard halt stops the undo as well.", hard=True)
        self._require_lease()
        self.log.info("write", kind=write.kind, n=write.n, attempt=write.attempt)
        target = self.order.target
        if write.kind == "evict":
            response = await self.around.writer.evict(target.namespace, write.pod or "", write.pod_uid or "")
            return self._noted(answer_of(response, eviction=True))
        patch = patch_for(
            write,
            transaction_id=self.txn.id,
            uid=self.txn.before.uid if self.txn.before else "",
            template=self._sampler.template,
            annotations_exist=self._annotations_exist or self.txn.wrote,
        )
        path = object_path("apps/v1", "deployments", target.name, target.namespace)
        return self._noted(answer_of(await self.around.writer.patch(path, patch)))

    def _noted(self, answer: Answered | Lost) -> Answered | Lost:
        if isinstance(answer, Lost):
            self.log.warning("answer lost", detail=answer.detail)
        elif not answer.done:
            self.log.warning("write refused", reason=answer.reason)
        return answer

    def _require_lease(self) -> None:
        if not self.around.lease.active:
            raise NotActive("the lease is not held; whoever holds it goes on")

    # Waiting

    async def _observe(self) -> Observation:
        if self.around.brakes.hard and not self.txn.unparked:
            return Brake(reason="halted", sentence="A hard halt stops everything.", hard=True)
        await self._wait_until(self._next_look)
        self._next_look = self.around.timeline.now() + self.txn.timing.sample
        window = self.txn.window
        if self.txn.phase is Phase.SETTLING and window is not None and window.began != self._window_began:
            self._window_began = window.began
            self._sampler.settle_began(window.began, extended=self.txn.extended)
        return await self._sampler.look(self.txn)

    async def _await_resume(self) -> Observation | None:
        word = self.around.brakes.word_for(self.txn.id, self.order.id)
        if word is not None:
            return Resumed(to=word)
        await self.around.sleep(self.txn.timing.sample)
        return None

    async def _wait_until(self, at: float) -> None:
        seconds = at - self.around.timeline.now()
        if seconds > 0:
            await self.around.sleep(seconds)

    # Journal

    async def _save(self, kind: str, detail: str) -> None:
        self._version = await self._journaled(lambda: self.around.journal.save(self.txn, self._version, kind, detail))

    async def _journaled(self, call: Callable[[], Awaitable[_T]]) -> _T:
        """Keep at it until the journal answers: without it nothing may go on, and nothing is lost by waiting."""
        while True:
            try:
                return await call()
            except JournalUnavailable as error:
                self.log.warning("journal unavailable", detail=str(error))
                await self.around.sleep(PATIENCE)

    async def _finish(self) -> Outcome:
        outcome = outcome_of(self.around, self.order, self.txn, self._snapshot)
        signed = sign(self.around.outcome_key, outcome.to_json().encode())
        await self._journaled(lambda: self.around.journal.end(outcome, signed, self.txn, self._version))
        self.log.info("end", end=outcome.end.value, reason=outcome.reason, sentence=outcome.sentence)
        return outcome


def outcome_of(around: Surroundings, order: Order, txn: Transaction, snapshot: Snapshot) -> Outcome:
    """The outcome as the bot and people get it."""
    before = txn.before
    carried = fitted(snapshot)
    return Outcome(
        id=new_id(around.clock.now()),
        order_id=order.id,
        transaction_id=txn.id,
        executor_id=around.executor_id,
        cluster_uid=around.cluster_uid,
        target=order.target,
        end=txn.end or End.UNVERIFIED,
        reason=txn.reason,
        sentence=txn.sentence,
        severity_before=before.severity if before else None,
        severity_after=txn.severity_after,
        checks=txn.readings or (before.readings if before else ()),
        steps=txn.writes,
        not_undone=txn.not_undone,
        snapshot=carried.pods,
        snapshot_events=carried.events,
        began_at=instant_of(txn.began),
        ended_at=around.clock.now(),
    )


def _essence(txn: Transaction) -> str:
    """The state without what changes at every sample."""
    return json.dumps(txn.model_dump(mode="json", exclude={"touched", "readings", "severity_after"}), sort_keys=True)
