"""What an end leaves on a target: no automatic order, or no order at all, for a time or until a person lifts it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from catalog.cases import TargetBlock
from catalog.events import EventKind
from catalog.ids import new_id
from catalog.outcomes import End
from catalog.targets import Target, TargetKind
from incidents.answers import Answer, done, refused
from incidents.context import Context
from incidents.paging import resolve_pages_of
from incidents.recording import append_event
from incidents.tables import BlockRow, IncidentRow
from ladder.policy import Policy
from ladder.roles import Holding, Identity, holds, who
from ladder.scopes import MergedScope, RoleName

ROLLED_BACK_REST = timedelta(hours=6)


@dataclass(frozen=True)
class BlockRule:
    """What one end forbids afterwards."""

    forbids: Literal["auto", "all"]
    owner_only: bool
    lasts: timedelta | None


BLOCK_RULES: dict[End, BlockRule] = {
    End.ROLLED_BACK: BlockRule("auto", owner_only=False, lasts=ROLLED_BACK_REST),
    End.CONFLICT: BlockRule("all", owner_only=False, lasts=None),
    End.REGRESSED: BlockRule("all", owner_only=True, lasts=None),
    End.UNVERIFIED: BlockRule("all", owner_only=True, lasts=None),
    End.UNDO_INCOMPLETE: BlockRule("all", owner_only=True, lasts=None),
}
"""The target column of the table of ends. Ends that are missing leave the target free."""


def block_after(
    session: AsyncSession, target: Target, end: End, *, incident_id: str, reason: str, now: datetime
) -> BlockRow | None:
    """Put on the target what `end` leaves there, in the caller's transaction. None: it leaves the target free."""
    rule = BLOCK_RULES.get(end)
    if rule is None:
        return None
    row = BlockRow(
        id=new_id(now),
        cluster_uid=target.cluster_uid,
        namespace=target.namespace,
        kind=target.kind.value,
        name=target.name,
        forbids=rule.forbids,
        reason=reason,
        incident_id=incident_id,
        owner_only=rule.owner_only,
        since=now,
        until=None if rule.lasts is None else now + rule.lasts,
    )
    session.add(row)
    return row


async def blocks_on(session: AsyncSession, target: Target, now: datetime) -> list[BlockRow]:
    """Blocks in force on the target, the hardest and newest first."""
    rows = await session.exec(
        select(BlockRow)
        .where(
            BlockRow.cluster_uid == target.cluster_uid,
            BlockRow.namespace == target.namespace,
            BlockRow.kind == target.kind.value,
            BlockRow.name == target.name,
            col(BlockRow.lifted_at).is_(None),
        )
        .order_by(col(BlockRow.since).desc())
        .execution_options(populate_existing=True)
    )
    in_force = [row for row in rows if row.until is None or row.until > now]
    return sorted(in_force, key=lambda row: (row.forbids != "all", not row.owner_only))


async def block_on(session: AsyncSession, target: Target, now: datetime) -> TargetBlock | None:
    """The hardest block in force, as gates see it."""
    rows = await blocks_on(session, target, now)
    if not rows:
        return None
    first = rows[0]
    forbids: Literal["auto", "all"] = "auto" if first.forbids == "auto" else "all"
    return TargetBlock(forbids=forbids, reason=first.reason, since=first.since, until=first.until)


async def unblock(ctx: Context, identity: Identity, target: Target, why: str) -> Answer:
    """Lift every block on a target. After harm it takes an owner of its scope, else an approver or owner."""
    scope = ctx.policies.current.scope_for(target)
    now = ctx.clock.now()
    async with ctx.database.transaction() as session:
        rows = await blocks_on(session, target, now)
        if not rows:
            return refused(f"{target.title} is not blocked.", rule="not_blocked")
        roles: tuple[RoleName, ...] = ("owner",) if any(row.owner_only for row in rows) else ("approver", "owner")
        refusal = _unless(scope, roles, identity)
        if refusal is not None:
            return refusal
        # Incidents are locked in the order of their ids, as everywhere.
        for row in sorted(rows, key=lambda one: one.incident_id):
            await _lift(session, row, identity.person, why, now)
    return done(f"{target.title} is free again: {'; '.join(row.reason for row in rows)}.", incident_id=rows[0].incident_id)


async def blocked_targets(
    session: AsyncSession, policy: Policy, namespace: str, kind: str, name: str, now: datetime
) -> list[Target]:
    """Blocked targets of that name in any cluster: people name a target without its cluster."""
    rows = await session.exec(
        select(BlockRow).where(
            BlockRow.namespace == namespace, BlockRow.kind == kind, BlockRow.name == name, col(BlockRow.lifted_at).is_(None)
        )
    )
    uids = {row.cluster_uid for row in rows if row.until is None or row.until > now}
    clusters = [cluster for cluster in policy.clusters if cluster.uid in uids]
    return [
        Target(cluster_uid=cluster.uid, cluster=cluster.name, namespace=namespace, kind=TargetKind(kind), name=name)
        for cluster in clusters
    ]


async def _lift(session: AsyncSession, row: BlockRow, person: str, why: str, now: datetime) -> None:
    incident = await session.get(IncidentRow, row.incident_id, with_for_update=True, populate_existing=True)
    row.lifted_at, row.lifted_by, row.lifted_why = now, person, why
    session.add(row)
    await resolve_pages_of(session, row.incident_id, by=person, now=now)
    if incident is not None:
        payload = {"block": row.id, "why": why}
        append_event(session, incident, EventKind.UNBLOCKED, at=now, now=now, actor=person, payload=payload)


def _unless(scope: MergedScope | None, roles: tuple[RoleName, ...], identity: Identity) -> Answer | None:
    entries = tuple(dict.fromkeys(entry for role in roles for entry in (scope.members(role) if scope is not None else ())))
    named = " or ".join(roles)
    match holds(entries, identity):
        case Holding.YES:
            return None
        case Holding.UNKNOWN:
            text = f"Whether {identity.person} is {named} could not be checked: nothing was done. Try again, or ask {who(entries)}."
            return Answer(ok=False, code="unavailable", text=text, rule="could_not_check")
        case Holding.NO:
            text = f"{identity.person} is not {named} here, so nothing was done; ask {who(entries)}."
            return Answer(ok=False, code="not_allowed", text=text, rule="role")
