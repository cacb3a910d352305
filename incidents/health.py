"""How the installation is: what the first line of the console, `status` and the metrics say."""

from __future__ import annotations

import json
from datetime import timedelta

from sqlalchemy import func
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from catalog.alerts import AlertState
from catalog.documents import Document, Instant
from catalog.episodes import Phase
from incidents.context import Context
from incidents.switches import in_force
from incidents.tables import AlertRow, ExecutorRow, IncidentRow, LeaseRow, OrderRow, OutboxRow, PageRow

SILENT_AFTER = timedelta(seconds=60)


class ExecutorHealth(Document):
    """One executor as it last reported."""

    executor_id: str
    cluster_uid: str
    alive: bool
    active: bool
    halted: bool
    open_transactions: int
    heard_at: Instant

    @property
    def text(self) -> str:
        """In a few words, for the first line."""
        if not self.alive:
            return f"executor {self.executor_id} silent since {self.heard_at:%H:%M:%S} UTC"
        state = "halted" if self.halted else ("active" if self.active else "standing by")
        busy = f", {self.open_transactions} open" if self.open_transactions else ""
        return f"executor {self.executor_id} {state}{busy}"


class Health(Document):
    """The state of the installation now."""

    halted: bool
    hard: bool = False
    draining: bool = False
    halt_text: str
    storm: str = ""
    executors: tuple[ExecutorHealth, ...] = ()
    leader: str | None = None
    open: int = 0
    waiting: int = 0
    backlog: int = 0
    unresolved: int = 0
    messages_due: int = 0
    troubles: tuple[str, ...] = ()


async def health_of(context: Context) -> Health:
    """Read it, by indexed queries only.

    Raises:
        StoreUnavailable: the database does not answer.
    """
    now = context.clock.now()
    async with context.database.reading() as session:
        halts = await in_force(session, "halt", now)
        storms = await in_force(session, "storm", now)
        executors = await _executors(session, now - SILENT_AFTER)
        open_orders = await _count(session, OrderRow, col(OrderRow.state) == "delivered")
        lease = await session.get(LeaseRow, "leader")
        draining = bool(halts) and (open_orders > 0 or any(item.open_transactions for item in executors))
        pages = (await session.exec(select(PageRow).where(col(PageRow.ended_at).is_(None)).limit(5))).all()
        troubles = [f"page {page.name}" for page in pages]
        if context.policies.problem:
            troubles.append(f"autonomy.yaml: {context.policies.problem}")
        if lease is None or lease.until < now:
            troubles.append("no replica leads: phases stand still")
        return Health(
            halted=bool(halts),
            hard=any(row.hard for row in halts),
            draining=draining,
            halt_text=_halt_text(halts[0].set_by, halts[0].reason, draining) if halts else "not halted",
            storm=storms[0].reason if storms else "",
            executors=tuple(executors),
            leader=lease.holder if lease and lease.until >= now else None,
            open=await _count(session, IncidentRow, col(IncidentRow.phase) != Phase.CLOSED.value),
            waiting=await _count(session, IncidentRow, col(IncidentRow.phase) == Phase.PROPOSED.value),
            backlog=await _count(session, AlertRow, col(AlertRow.state) == AlertState.STORED.value),
            unresolved=await _count(
                session, AlertRow, (col(AlertRow.state) == AlertState.UNRESOLVED.value) & (col(AlertRow.status) == "firing")
            ),
            messages_due=await _count(session, OutboxRow, col(OutboxRow.state) == "due"),
            troubles=tuple(troubles),
        )


def _halt_text(by: str, reason: str, draining: bool) -> str:
    return f"{'halting, draining' if draining else 'HALTED'} by {by}: {reason}"


async def _executors(session: AsyncSession, silent_before: Instant) -> list[ExecutorHealth]:
    rows = (await session.exec(select(ExecutorRow).order_by(col(ExecutorRow.executor_id)))).all()
    return [
        ExecutorHealth(
            executor_id=row.executor_id,
            cluster_uid=row.cluster_uid,
            alive=row.heard_at > silent_before,
            active=row.active,
            halted=row.halted,
            open_transactions=len(json.loads(row.body).get("open", [])),
            heard_at=row.heard_at,
        )
        for row in rows
    ]


async def _count(session: AsyncSession, table: type, condition: object) -> int:
    counted = await session.exec(select(func.count()).select_from(table).where(condition))  # type: ignore[arg-type]
    return int(counted.one())
