"""When too much is unhealthy at once, nobody may act on one workload as if it were alone.

A storm is latched: it stays until an owner releases it. While it lasts nothing is proposed or ordered in that cluster; rollback,
verification and recovery messages go on. What cannot be counted counts as a storm once enough workloads are unhealthy.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession
from ulid import ULID

from catalog.cases import Storm
from catalog.documents import Document
from catalog.ids import new_id
from catalog.targets import WORKLOAD_KINDS
from incidents.ledger import auto_orders_by_domain
from incidents.tables import IncidentRow, SwitchRow
from ladder.numbers import Numbers, duration_text

KIND = "storm"


class Census(Document):
    """What a cluster holds, counted by the worker. None: could not be counted."""

    namespaces: tuple[str, ...] | None = None
    workloads: int | None = None
    nodes_not_ready: int | None = None


@dataclass(frozen=True)
class Signs:
    """What speaks for a storm in one cluster."""

    unhealthy: int
    opted_in: int | None
    nodes_not_ready: int | None
    auto_orders: dict[str, int]


def storm_reason(signs: Signs, numbers: Numbers) -> str | None:
    """Why it is a storm, in a sentence for people. None: it is not."""
    window = duration_text(numbers.storm_window)
    if signs.unhealthy >= numbers.storm_workloads:
        if signs.opted_in is None:
            return f"{signs.unhealthy} workloads unhealthy within {window}; how many are opted in could not be counted"
        if signs.unhealthy >= numbers.storm_share * signs.opted_in:
            return f"{signs.unhealthy} of {signs.opted_in} opted-in workloads unhealthy within {window}"
    if signs.nodes_not_ready is not None and signs.nodes_not_ready >= numbers.storm_nodes:
        return f"{signs.nodes_not_ready} nodes are NotReady"
    for domain, count in sorted(signs.auto_orders.items()):
        if count >= numbers.storm_orders:
            return f"{count} automatic orders in {domain} within {duration_text(numbers.storm_orders_window)}"
    return None


async def look_for_storm(
    session: AsyncSession, cluster_uid: str, census: Census, now: datetime, numbers: Numbers
) -> SwitchRow | None:
    """Latch a storm if there is one and none is latched. The new row, or None."""
    if await storm_row(session, cluster_uid) is not None:
        return None
    signs = Signs(
        unhealthy=await _unhealthy(session, cluster_uid, census.namespaces, now - numbers.storm_window),
        opted_in=census.workloads,
        nodes_not_ready=census.nodes_not_ready,
        auto_orders=await auto_orders_by_domain(session, cluster_uid, now - numbers.storm_orders_window),
    )
    reason = storm_reason(signs, numbers)
    if reason is None:
        return None
    row = SwitchRow(id=new_id(now), kind=KIND, cluster_uid=cluster_uid, reason=reason, set_by="bot", set_at=now)
    session.add(row)
    await session.flush()
    return row


async def storm_row(session: AsyncSession, cluster_uid: str) -> SwitchRow | None:
    """The storm latched in this cluster, if one is."""
    rows = await session.exec(
        select(SwitchRow)
        .where(SwitchRow.kind == KIND, SwitchRow.cluster_uid == cluster_uid, col(SwitchRow.lifted_at).is_(None))
        .order_by(col(SwitchRow.set_at))
        .execution_options(populate_existing=True)
    )
    return rows.first()


async def storm_state(session: AsyncSession, cluster_uid: str) -> Storm:
    """The storm latch as gates see it."""
    row = await storm_row(session, cluster_uid)
    return Storm() if row is None else Storm(latched=True, reason=row.reason, since=row.set_at)


async def _unhealthy(session: AsyncSession, cluster_uid: str, namespaces: tuple[str, ...] | None, since: datetime) -> int:
    """Distinct workloads of opted-in namespaces about which an incident was opened since then, closed ones included.

    Incident ids sort by time, so that the primary key bounds the search.
    """
    first_id = str(ULID.from_datetime(since))[:10] + "0" * 16
    statement = select(IncidentRow.namespace, IncidentRow.kind, IncidentRow.name).where(
        IncidentRow.id >= first_id,
        IncidentRow.cluster_uid == cluster_uid,
        IncidentRow.origin == "alert",
        col(IncidentRow.kind).in_(sorted(kind.value for kind in WORKLOAD_KINDS)),
    )
    if namespaces is not None:
        statement = statement.where(col(IncidentRow.namespace).in_(namespaces))
    distinct = statement.distinct().subquery()
    return (await session.exec(select(func.count()).select_from(distinct))).one()
