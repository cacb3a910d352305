"""What was ordered lately, as the gates count it. Every query is bounded by an index and a window, never by the history.

A row in `execution_order` is the reservation: it exists from the transaction that minted the order, so that two decisions can
not both spend the last of a budget. An order that nobody fetched, or that was refused before its first write, gives it back.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal

from sqlalchemy import ColumnElement, and_, func, or_
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from catalog.actions import RemediationAction
from catalog.cases import Ledger, LedgerEntry
from catalog.outcomes import End
from catalog.targets import Target, TargetKind
from incidents.blocks import block_on
from incidents.tables import OrderRow
from ladder.scopes import BudgetPart, MergedScope

WINDOW = timedelta(hours=24)
"""How far back orders on the target itself are read."""

MAX_ENTRIES = 60
"""More than this within their windows is more than a case can hold, and more than any budget means to allow."""

CONTESTED_FOR = timedelta(hours=6)


async def ledger_of(session: AsyncSession, target: Target, scope: MergedScope | None, now: datetime) -> Ledger:
    """What the gates count: orders on the target of the last 24 hours, automatic ones of its namespace and cluster within the
    windows of their budgets, everything that is open in the cluster, and what is blocked on the target.

    More than `MAX_ENTRIES` make it incomplete: the gates then see that they cannot tell.
    """
    rows = await session.exec(
        select(OrderRow)
        .where(OrderRow.cluster_uid == target.cluster_uid, _counts_for(target, scope, now), *_spent())
        .order_by(col(OrderRow.minted_at).desc())
        .limit(MAX_ENTRIES + 1)
        .execution_options(populate_existing=True)
    )
    found = list(rows)
    entries = {row.id: row for row in found[:MAX_ENTRIES]}
    for row in await open_orders(session, target.cluster_uid):
        entries.setdefault(row.id, row)
    return Ledger(
        entries=tuple(_entry(row) for row in sorted(entries.values(), key=lambda row: row.minted_at)),
        block=await block_on(session, target, now),
        contested=_contested(list(entries.values()), target, now),
        complete=len(found) <= MAX_ENTRIES,
    )


async def open_orders(session: AsyncSession, cluster_uid: str) -> list[OrderRow]:
    """Orders of a cluster that are minted or delivered and not ended."""
    rows = await session.exec(
        select(OrderRow)
        .where(OrderRow.cluster_uid == cluster_uid, col(OrderRow.state).in_(("minted", "delivered")))
        .execution_options(populate_existing=True)
    )
    return list(rows)


async def auto_orders_by_domain(session: AsyncSession, cluster_uid: str, since: datetime) -> dict[str, int]:
    """How many automatic orders each zone or node got since `since`."""
    rows = await session.exec(
        select(OrderRow.domain, func.count())
        .where(
            OrderRow.cluster_uid == cluster_uid,
            col(OrderRow.minted_at) > since,
            OrderRow.mode == "auto",
            col(OrderRow.domain).is_not(None),
            *_spent(),
        )
        .group_by(col(OrderRow.domain))
    )
    return {domain: count for domain, count in rows if domain is not None}


def _counts_for(target: Target, scope: MergedScope | None, now: datetime) -> ColumnElement[bool]:
    here = col(OrderRow.namespace) == target.namespace
    it = and_(here, col(OrderRow.kind) == target.kind.value, col(OrderRow.name) == target.name)
    nearby, anywhere = _window(scope, "namespace"), _window(scope, "cluster")
    minted, automatic = col(OrderRow.minted_at), col(OrderRow.mode) == "auto"
    return and_(
        minted > now - max(WINDOW, nearby, anywhere),
        or_(
            and_(it, minted > now - WINDOW),
            and_(automatic, or_(and_(here, minted > now - nearby), minted > now - anywhere)),
        ),
    )


def _window(scope: MergedScope | None, part: BudgetPart) -> timedelta:
    """The longest window of a budget; an hour where no scope gives one."""
    budgets = scope.budgets[part] if scope is not None else ()
    return max((budget.per for budget in budgets), default=timedelta(hours=1))


def _spent() -> tuple[ColumnElement[bool], ...]:
    return (
        col(OrderRow.state) != "expired",
        or_(col(OrderRow.end).is_(None), col(OrderRow.end) != End.REFUSED.value),
    )


def _entry(row: OrderRow) -> LedgerEntry:
    mode: Literal["auto", "approved"] = "auto" if row.mode == "auto" else "approved"
    return LedgerEntry(
        order_id=row.id,
        incident_id=row.incident_id,
        target=Target(
            cluster_uid=row.cluster_uid, cluster=row.cluster, namespace=row.namespace, kind=TargetKind(row.kind), name=row.name
        ),
        action=RemediationAction(row.action),
        mode=mode,
        at=row.minted_at,
        end=End(row.end) if row.end else None,
        domain=row.domain,
    )


def _contested(rows: list[OrderRow], target: Target, now: datetime) -> str | None:
    """A conflict on this target in the last six hours: somebody else keeps writing what we would write."""
    conflicts = [
        row
        for row in rows
        if row.end == End.CONFLICT.value
        and (row.cluster_uid, row.namespace, row.kind, row.name) == target.key
        and (row.ended_at or row.minted_at) > now - CONTESTED_FOR
    ]
    if not conflicts:
        return None
    last = max(row.ended_at or row.minted_at for row in conflicts)
    return f"Another writer (last seen {last:%H:%M} UTC)"
