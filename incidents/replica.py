"""One replica of the bot put together: what every replica does, and what the leader does besides.

Every replica takes webhooks, clicks and claims, and follows changes of autonomy.yaml. The leader resolves alerts, advances
incidents, sends words, pages, signs chain heads and erases what is over its time. Nothing here decides anything.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlalchemy.exc import IntegrityError
from sqlmodel.ext.asyncio.session import AsyncSession

from catalog.clocks import SystemClock
from catalog.documents import Document, digest
from catalog.signatures import load_private_key
from incidents import metrics, outbox
from incidents.bounding import BoundsUnavailable
from incidents.calibrating import refresh_bounds
from incidents.chain import HeadSigner
from incidents.commands import Commands
from incidents.context import Context
from incidents.database import Database, StoreUnavailable
from incidents.desk import Desk
from incidents.leading import Candidate, LeadershipLost, Term
from incidents.live import LiveReader
from incidents.mint import Mint
from incidents.outbox import Outbox, Surface
from incidents.paging import Pager
from incidents.policies import Policies
from incidents.reading import card_from_row
from incidents.reconciling import Reconciler
from incidents.resolving import Resolving
from incidents.retention import Retention
from incidents.schema import migrate
from incidents.tables import IncidentRow, SecretRow
from incidents.worker import Worker

REDACTOR_KEY = "redactor"
FOLLOW_POLICY_S = 2.0
REFRESH_BOUNDS_S = 5.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True, eq=False)
class Replica:
    """Everything one process of the bot holds. Make with `open`, work with `run`, end with `close`."""

    context: Context
    commands: Commands
    _live: LiveReader
    _worker: Worker
    _reconciler: Reconciler
    _heads_key: Ed25519PrivateKey

    @classmethod
    async def open(cls, *, database_url: str, policy: Path, order_key: Path, heads_key: Path, name: str) -> Replica:
        """Bring the schema up to date and put everything together.

        Raises:
            PolicyInvalid, KeyUnreadable, DatabaseUrlInvalid: there is nothing good to begin with.
            StoreUnavailable: the database does not answer.
        """
        policies = Policies.load(policy)
        mint, heads = Mint.load(order_key), load_private_key(heads_key)
        await migrate(database_url)
        database = Database.open(database_url)
        key = await _redactor_key(database)
        context = Context(database=database, clock=SystemClock(), policies=policies, redactor_key=key, replica=name)
        live, worker = LiveReader(context), Worker(key)
        reconciler = Reconciler(context, worker, mint)
        commands = Commands(context, Desk(context, live, wake=reconciler.wake), wake=reconciler.wake)
        return cls(context, commands, live, worker, reconciler, heads)

    def wake(self) -> None:
        """Something changed that may make an incident due: look now."""
        self._reconciler.wake()

    async def run(self, surfaces: Sequence[Surface]) -> None:
        """Follow the policy and campaign for leadership, until cancelled."""
        candidate = Candidate(self.context.database, self.context.clock, self.context.replica)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow_policy(), name="policy")
            tasks.create_task(candidate.run(lambda term: self._lead(term, surfaces)), name="leadership")

    async def close(self) -> None:
        """End the worker and give back every connection."""
        await self._worker.close()
        await self._live.close()
        await self.context.database.close()

    async def _lead(self, term: Term, surfaces: Sequence[Surface]) -> None:
        context = self.context
        works: dict[str, Callable[[Term], Awaitable[None]]] = {
            "phases": self._reconciler.lead,
            "resolving": Resolving(context, on_settled=self.wake).run,
            "outbox": Outbox(context, surfaces, self._project).run,
            "paging": Pager(context).run,
            "heads": HeadSigner(context.clock, self._heads_key).run,
            "retention": Retention(context.clock).run,
            "bounds": self._refresh_bounds,
        }
        try:
            async with asyncio.TaskGroup() as tasks:
                for name, work in works.items():
                    tasks.create_task(_working(work, term), name=name)
        except BaseExceptionGroup as group:
            lost, others = group.split(LeadershipLost)
            if lost is None or others is not None:
                raise
            raise LeadershipLost(f"term {term.number} of {term.holder} is over") from group

    async def _project(self, session: AsyncSession, incident_id: str, _kind: str) -> Document | None:
        row = await session.get(IncidentRow, incident_id)
        return None if row is None else await card_from_row(self.context, session, row)

    async def _refresh_bounds(self, _term: Term) -> None:
        while True:
            try:
                await refresh_bounds(self.context.database)
            except (BoundsUnavailable, StoreUnavailable) as error:
                log.warning("lower bounds not computed", reason=str(error))
            await asyncio.sleep(REFRESH_BOUNDS_S)

    async def _follow_policy(self) -> None:
        while True:
            await asyncio.sleep(FOLLOW_POLICY_S)
            if not self.context.policies.reload():
                continue
            problem = self.context.policies.problem
            log.warning("autonomy.yaml changed", hash=self.context.policies.current.hash, problem=problem)
            try:
                await self._announce_policy(problem)
            except StoreUnavailable as error:
                metrics.STORE_TROUBLE.labels("policy").inc()
                log.warning("the change of policy was not announced", reason=str(error))
            self.wake()

    async def _announce_policy(self, problem: str | None) -> None:
        """Say in the default channel what is in force now; two replicas that see the same change say it once."""
        policy, now = self.context.policies.current, self.context.clock.now()
        text = f"autonomy.yaml was not taken: {problem}" if problem else f"autonomy.yaml is in force, hash {policy.hash[:12]}"
        async with self.context.database.transaction() as session:
            for surface, channel in policy.defaults.channel.model_dump(exclude_none=True).items():
                key = f"policy:{digest(text)[:32]}:{surface}"
                await outbox.enqueue(
                    session, key=key, surface=surface, channel=channel, kind="notice", now=now, body={"text": text}
                )


async def _working(work: Callable[[Term], Awaitable[None]], term: Term) -> None:
    await work(term)


async def _redactor_key(database: Database) -> bytes:
    """The per-install key of redaction tags; made once, whichever replica comes first."""
    async with database.reading() as session:
        row = await session.get(SecretRow, REDACTOR_KEY)
    if row is not None:
        return row.value
    made = secrets.token_bytes(32)
    try:
        async with database.transaction() as session:
            session.add(SecretRow(name=REDACTOR_KEY, value=made))
    except IntegrityError:
        return await _redactor_key(database)
    return made
