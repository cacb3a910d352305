"""Who leads. One replica works phases, resolving, outbox and pages; every replica takes webhooks and clicks.

The lease is a row. Its holder renews it every 2 s and stops by itself when it could not for 10 s; another replica takes over when
it has seen the row unchanged for 15 s of its own monotonic clock, so that clocks which disagree change nothing. Each take-over
raises the term.

The lease alone proves nothing: a leader that was paused does not know that it lost. So every write of a leader is made in
`Term.transaction`, which looks at the row inside the transaction and refuses when the term is over. The row is share-locked until
the commit, so that no take-over can slip in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

import structlog
from sqlalchemy import update
from sqlalchemy.exc import IntegrityError
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from catalog.clocks import Clock
from incidents import metrics
from incidents.database import Database, StoreUnavailable
from incidents.tables import LeaseRow

LEASE_DURATION = timedelta(seconds=15)
RENEW_DEADLINE = timedelta(seconds=10)
RETRY_PERIOD = timedelta(seconds=2)

log = structlog.get_logger(__name__)


class LeadershipLost(Exception):
    """Another replica leads now. Nothing of this transaction was kept; stop working and campaign again."""


@dataclass(frozen=True)
class Term:
    """One stretch of leadership. Valid for as long as the row says so, which only a transaction can tell."""

    database: Database
    name: str
    holder: str
    number: int

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncSession]:
        """A write transaction that commits only while this term lasts.

        Raises:
            LeadershipLost: the term is over.
            StoreUnavailable: as `Database.transaction`.
        """
        async with self.database.transaction() as session:
            await self.verify(session)
            yield session

    async def verify(self, session: AsyncSession) -> None:
        """Refuse when this term is over; hold the row against a take-over until the transaction ends."""
        rows = await session.exec(
            select(LeaseRow.holder, LeaseRow.term).where(LeaseRow.name == self.name).with_for_update(read=True)
        )
        if rows.first() != (self.holder, self.number):
            raise LeadershipLost(f"term {self.number} of {self.holder} is over")


class Candidate:
    """One replica's wish to lead. `run` campaigns for ever; `work` runs while it leads and is cancelled when it no longer does."""

    def __init__(self, database: Database, clock: Clock, replica: str, name: str = "leader") -> None:
        self._database = database
        self._clock = clock
        self._replica = replica
        self._name = name
        self._seen: tuple[str, int, object] | None = None
        self._seen_since = 0.0
        self.term: Term | None = None

    async def run(self, work: Callable[[Term], Awaitable[None]]) -> None:
        """Campaign, work, lose, campaign again, until cancelled. Gives the lease back when cancelled.

        An error of `work` that is not about the lease or the store ends the campaign: it is a defect.
        """
        try:
            while True:
                term = await self._try_to_lead()
                if term is None:
                    await asyncio.sleep(RETRY_PERIOD.total_seconds())
                else:
                    await self._lead(term, work)
        finally:
            await self.release()

    async def acquire(self) -> Term | None:
        """One attempt: the new term, or None while somebody else leads.

        Raises:
            StoreUnavailable: the database cannot say who leads.
        """
        until = self._clock.now() + LEASE_DURATION
        async with self._database.transaction() as session:
            row = await session.get(LeaseRow, self._name, with_for_update=True)
            if row is None:
                row = LeaseRow(name=self._name, holder=self._replica, until=until, term=1)
                session.add(row)
            elif self._may_take(row):
                row.holder, row.until, row.term = self._replica, until, row.term + 1
                session.add(row)
            else:
                return None
            try:
                await session.flush()
            except IntegrityError:  # another replica wrote the first row
                await session.rollback()
                return None
            number = row.term
        self.term = Term(self._database, self._name, self._replica, number)
        metrics.LEADING.labels(self._name).set(1)
        log.info("leading", lease=self._name, replica=self._replica, term=number)
        return self.term

    async def renew(self, term: Term) -> None:
        """Say that we still lead.

        Raises:
            LeadershipLost: we do not.
            StoreUnavailable: the database cannot be asked.
        """
        async with self._database.transaction() as session:
            changed = await session.exec(
                update(LeaseRow)
                .where(col(LeaseRow.name) == term.name, col(LeaseRow.holder) == term.holder, col(LeaseRow.term) == term.number)
                .values(until=self._clock.now() + LEASE_DURATION)
            )
            if changed.rowcount != 1:
                raise LeadershipLost(f"term {term.number} of {term.holder} is over")

    async def release(self) -> None:
        """Give the lease back, so that another replica need not wait for it. Best effort."""
        term, self.term = self.term, None
        metrics.LEADING.labels(self._name).set(0)
        if term is None:
            return
        try:
            async with self._database.transaction() as session:
                await session.exec(
                    update(LeaseRow)
                    .where(col(LeaseRow.name) == term.name, col(LeaseRow.holder) == term.holder, col(LeaseRow.term) == term.number)
                    .values(holder="")
                )
        except StoreUnavailable as error:
            log.warning("lease not released", lease=self._name, reason=str(error))

    def _may_take(self, row: LeaseRow) -> bool:
        """Whether the row is free or was seen unchanged for the whole duration."""
        if row.holder == "":
            return True
        seen = (row.holder, row.term, row.until)
        if seen != self._seen:
            self._seen, self._seen_since = seen, self._clock.monotonic()
            return False
        return self._clock.monotonic() - self._seen_since >= LEASE_DURATION.total_seconds()

    async def _try_to_lead(self) -> Term | None:
        try:
            return await self.acquire()
        except StoreUnavailable as error:
            metrics.STORE_TROUBLE.labels("leading").inc()
            log.warning("cannot campaign", reason=str(error))
            return None

    async def _lead(self, term: Term, work: Callable[[Term], Awaitable[None]]) -> None:
        working = asyncio.ensure_future(work(term))
        renewing = asyncio.ensure_future(self._keep(term))
        try:
            await asyncio.wait({working, renewing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (working, renewing):
                task.cancel()
            results = await asyncio.gather(working, renewing, return_exceptions=True)
        await self.release()
        for result in results:
            if isinstance(result, LeadershipLost | StoreUnavailable):
                log.warning("no longer leading", lease=self._name, term=term.number, reason=str(result))
            elif isinstance(result, BaseException) and not isinstance(result, asyncio.CancelledError):
                raise result

    async def _keep(self, term: Term) -> None:
        renewed = self._clock.monotonic()
        while True:
            await asyncio.sleep(RETRY_PERIOD.total_seconds())
            try:
                async with asyncio.timeout(renewed + RENEW_DEADLINE.total_seconds() - self._clock.monotonic()):
                    await self.renew(term)
                renewed = self._clock.monotonic()
            except (StoreUnavailable, TimeoutError) as error:
                metrics.STORE_TROUBLE.labels("leading").inc()
                if self._clock.monotonic() - renewed >= RENEW_DEADLINE.total_seconds():
                    raise LeadershipLost("the lease could not be renewed in time") from error


async def repeat(step: Callable[[], Awaitable[object]], *, pause_s: float, stage: str) -> None:
    """Work in steps until cancelled. A step that found nothing to do (its result is falsy) is followed by a pause.

    A database in trouble is waited for: whether we still lead is then for the lease to say.

    Raises:
        LeadershipLost: the term is over.
    """
    while True:
        try:
            busy = bool(await step())
        except StoreUnavailable as error:
            busy = False
            metrics.STORE_TROUBLE.labels(stage).inc()
            log.warning("the store is in trouble", stage=stage, reason=str(error))
        if not busy:
            await asyncio.sleep(pause_s)
