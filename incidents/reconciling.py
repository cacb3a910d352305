"""The leader's loop: takes rows that are due and advances each by one phase per database transaction until it has to wait.

Level-triggered: a row is judged by what the database holds of it now, so that after any crash it is simply due again, and what
woke it does not matter. Work on the outside (triage, verification, asking a source) is done without a transaction; its result is
kept only if the row is still where it was. Every transaction is made under the leader's term, so that a leader that lost its
lease writes nothing.

One incident's error is its own: the row waits, each time longer, with its trouble shown on the card; the loop goes on. `wake`
makes it look at once, so that a fresh alert or a click does not wait for the next look.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

import structlog
from sqlalchemy import and_, or_, update
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from catalog.episodes import Phase
from catalog.events import EventKind
from incidents import metrics
from incidents.assessing import CensusRequest
from incidents.context import Context
from incidents.database import StoreUnavailable
from incidents.leading import LeadershipLost, Term
from incidents.mint import Mint
from incidents.phases import acting, looking
from incidents.phases.moving import take_move
from incidents.phases.situations import locked_incident, phase_numbers, situation_of
from incidents.phases.telling import tell_storm
from incidents.recording import append_event
from incidents.storms import Census, look_for_storm
from incidents.tables import IncidentRow
from incidents.transitions import Move, Situation, Work, next_move
from incidents.worker import Assessor, WorkerError

SIDE_BY_SIDE = 8
POLL_S = 1.0
STORM_LOOK_S = 10.0
CENSUS_PATIENCE_S = 40.0
MAX_STEPS = 50
FIRST_PAUSE = timedelta(seconds=1)
LONGEST_PAUSE = timedelta(minutes=2)

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class _Step:
    """What one transaction found: nothing more to do now, or work to do on the outside."""

    done: bool
    look: looking.Look | None = None


class Reconciler:
    """Advances incidents. `lead` is the work of a `incidents.leading.Candidate`."""

    def __init__(self, ctx: Context, worker: Assessor, mint: Mint, *, side_by_side: int = SIDE_BY_SIDE) -> None:
        self._ctx = ctx
        self._worker = worker
        self._mint = mint
        self._side_by_side = side_by_side
        self._woken = asyncio.Event()
        self._busy: dict[str, asyncio.Task[None]] = {}

    def wake(self) -> None:
        """Look for due rows now."""
        self._woken.set()

    async def lead(self, term: Term) -> None:
        """Work until cancelled or the term is over.

        Raises:
            LeadershipLost: another replica leads; everything in flight was given up and nothing of it was kept.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._watch_for_storms(term), name="storms")
                tasks.create_task(self._work(term, tasks), name="due incidents")
        except BaseExceptionGroup as group:
            lost, others = group.split(LeadershipLost)
            if lost is None or others is not None:
                raise
            raise LeadershipLost(f"term {term.number} of {term.holder} is over") from group
        finally:
            self._busy.clear()

    async def settle(self, term: Term) -> int:
        """Advance every row that is due now until it waits; how many there were. For tools and tests: `lead` does it for ever."""
        due = await self._claim(term, limit=1000)
        for incident_id in due:
            await self._advance(term, incident_id)
        return len(due)

    async def _work(self, term: Term, tasks: asyncio.TaskGroup) -> None:
        while True:
            self._woken.clear()
            room = self._side_by_side - len(self._busy)
            try:
                due = await self._claim(term, limit=room) if room else []
            except StoreUnavailable as error:
                metrics.STORE_TROUBLE.labels("reconciling").inc()
                log.warning("cannot look for due incidents", reason=str(error))
                due = []
            for incident_id in due:
                task = tasks.create_task(self._advance(term, incident_id), name=f"incident {incident_id}")
                self._busy[incident_id] = task
                task.add_done_callback(partial(self._ended, incident_id))
            if len(due) == room and room:
                continue
            await self._rest()

    def _ended(self, incident_id: str, _task: asyncio.Task[None]) -> None:
        self._busy.pop(incident_id, None)
        self._woken.set()

    async def _rest(self) -> None:
        try:
            async with asyncio.timeout(POLL_S):
                await self._woken.wait()
        except TimeoutError:
            return

    # claims ------------------------------------------------------------------------------------------------------------------

    async def _claim(self, term: Term, *, limit: int) -> list[str]:
        """Due rows, taken for 30 s. A claim of an earlier term holds nobody up: its leader can write no more."""
        now = self._ctx.clock.now()
        free = or_(
            col(IncidentRow.claimed_until).is_(None),
            col(IncidentRow.claimed_until) <= now,
            col(IncidentRow.claimed_by) != _mark(term),
        )
        due = and_(col(IncidentRow.next_at) <= now, col(IncidentRow.phase) != Phase.CLOSED.value, free)
        statement = (
            select(IncidentRow.id)
            .where(due, col(IncidentRow.id).not_in(list(self._busy)))
            .order_by(col(IncidentRow.next_at), col(IncidentRow.id))
            .limit(limit)
        )
        async with self._ctx.database.reading() as session:
            ids = list(await session.exec(statement))
        if not ids:
            return []
        async with term.transaction() as session:
            await session.exec(
                update(IncidentRow)
                .where(col(IncidentRow.id).in_(ids))
                .values(claimed_by=_mark(term), claimed_until=self._until(now))
            )
        return ids

    async def _renewing(self, term: Term, incident_id: str) -> None:
        """Keep the claim while work on the outside goes on."""
        pause = self._ctx.policies.current.numbers.claim_renewal.total_seconds()
        while True:
            await asyncio.sleep(pause)
            try:
                async with term.transaction() as session:
                    await session.exec(
                        update(IncidentRow)
                        .where(col(IncidentRow.id) == incident_id, col(IncidentRow.claimed_by) == _mark(term))
                        .values(claimed_until=self._until(self._ctx.clock.now()))
                    )
            except LeadershipLost:
                return  # whatever comes of the work is refused by the transaction that would keep it
            except StoreUnavailable as error:
                log.warning("claim not renewed", incident=incident_id, reason=str(error))

    def _until(self, now: datetime) -> datetime:
        return now + self._ctx.policies.current.numbers.claim

    # one incident ------------------------------------------------------------------------------------------------------------

    async def _advance(self, term: Term, incident_id: str) -> None:
        """Phase by phase until the row waits. What goes wrong is noted on the row and never leaves here, except a lost term."""
        try:
            for _ in range(MAX_STEPS):
                step = await self._step(term, incident_id)
                if step.done:
                    return
                if step.look is not None:
                    await self._look(term, step.look)
            raise RuntimeError(f"does not come to rest within {MAX_STEPS} steps")
        except (asyncio.CancelledError, LeadershipLost):
            raise
        except StoreUnavailable as error:
            metrics.STORE_TROUBLE.labels("reconciling").inc()
            log.warning("incident waits for the database", incident=incident_id, reason=str(error))
        except WorkerError as error:
            await self._trouble(term, incident_id, str(error))
        # A defect in one incident's data or in a phase must not stop the others: it is shown on the card and tried again.
        except Exception as error:
            log.exception("phase failed", incident=incident_id)
            await self._trouble(term, incident_id, f"{type(error).__name__}: {str(error)[:200]}")

    async def _step(self, term: Term, incident_id: str) -> _Step:
        """One transaction: one phase, or what must be asked before the next."""
        policy, now = self._ctx.policies.current, self._ctx.clock.now()
        async with term.transaction() as session:
            row = await locked_incident(session, incident_id)
            if row is None or row.phase == Phase.CLOSED.value:
                return _Step(done=True)
            if row.next_at is None or row.next_at > now:
                row.claimed_by = row.claimed_until = None
                return _Step(done=True)
            situation = await situation_of(session, row, now, phase_numbers(policy, row))
            move = next_move(situation)
            if move.work is not None and move.work in looking.WORK:
                return _Step(done=False, look=await looking.prepare(session, policy, row, situation, move.work))
            with metrics.PHASE_SECONDS.labels(row.phase).time():
                await self._apply(session, row, situation, move, now)
            return _Step(done=row.phase == Phase.CLOSED.value)

    async def _apply(self, session: AsyncSession, row: IncidentRow, situation: Situation, move: Move, now: datetime) -> None:
        policy = self._ctx.policies.current
        if move.work is None:
            await take_move(session, policy, row, move, now)
        elif move.work is Work.MINT:
            await acting.mint(session, policy, self._mint, row, situation, now)
        else:
            await acting.ACTS[move.work](session, policy, row, situation, now)

    async def _look(self, term: Term, look: looking.Look) -> None:
        """Ask the outside, then keep what it said if the row is still where it was."""
        renewing = asyncio.create_task(self._renewing(term, look.incident_id))
        try:
            with metrics.PHASE_SECONDS.labels(look.phase.value).time():
                seen = await looking.look(self._worker, self._ctx.policies.current, look, self._ctx.clock.now())
        finally:
            renewing.cancel()
        policy, now = self._ctx.policies.current, self._ctx.clock.now()
        async with term.transaction() as session:
            row = await locked_incident(session, look.incident_id)
            if row is None or row.version != look.version:
                return
            situation = await situation_of(session, row, now, phase_numbers(policy, row))
            if next_move(situation).work is look.work:
                await looking.keep(session, policy, row, situation, look, seen, now)

    async def _trouble(self, term: Term, incident_id: str, reason: str) -> None:
        """Note what went wrong, let the row wait, each time twice as long, and give the claim back."""
        now = self._ctx.clock.now()
        try:
            async with term.transaction() as session:
                row = await locked_incident(session, incident_id)
                if row is None or row.phase == Phase.CLOSED.value:
                    return
                row.failures += 1
                row.next_at = now + min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(row.failures - 1, 10))
                row.claimed_by = row.claimed_until = None
                if row.trouble != reason:
                    payload = {"phase": row.phase, "trouble": reason}
                    append_event(session, row, EventKind.DEGRADED, at=now, now=now, actor="bot", payload=payload)
                row.trouble = reason
                session.add(row)
                metrics.PHASE_FAILURES.labels(row.phase).inc()
        except StoreUnavailable as error:
            # The claim runs out by itself and the row is due again.
            log.warning("trouble not noted", incident=incident_id, reason=str(error))

    # storms ------------------------------------------------------------------------------------------------------------------

    async def _watch_for_storms(self, term: Term) -> None:
        while True:
            try:
                await self.look_for_storms(term)
            except (StoreUnavailable, WorkerError) as error:
                log.warning("could not look for storms", reason=str(error))
            await asyncio.sleep(STORM_LOOK_S)

    async def look_for_storms(self, term: Term) -> Sequence[str]:
        """Look at every cluster once; the reasons of the storms that were latched."""
        policy, latched = self._ctx.policies.current, []
        for cluster in policy.clusters:
            try:
                answer = await self._worker.ask("census", CensusRequest(cluster=cluster), patience_s=CENSUS_PATIENCE_S)
                census = Census.model_validate(answer)
            except WorkerError:
                census = Census()
            async with term.transaction() as session:
                now = self._ctx.clock.now()
                storm = await look_for_storm(session, cluster.uid, census, now, policy.numbers)
                if storm is not None:
                    await tell_storm(session, policy, storm, now)
                    latched.append(storm.reason)
        return latched


def _mark(term: Term) -> str:
    return f"{term.holder}/{term.number}"
