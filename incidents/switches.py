"""Halt, freezes and the storm latch: read by every gate, mint and claim; set and lifted by people, both kept.

Anybody whom the policy names may pull the brake. To let go again takes an owner. A halt says `draining` until no executor has
anything open; nothing that was proposed before a halt runs because it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from catalog.cases import Freeze, Switches
from catalog.ids import new_id
from catalog.orders import ClaimRequest, HaltSwitch
from incidents.answers import Answer, done, refused
from incidents.context import Context
from incidents.tables import ExecutorRow, OrderRow, SwitchRow
from ladder.roles import Holding, Identity, holds, who
from ladder.scopes import RoleName

HALT = "halt"
FREEZE = "freeze"
STORM = "storm"
PULSE_LASTS = timedelta(seconds=60)


@dataclass(frozen=True)
class HaltState:
    """Whether new work is stopped, and whether what was open has ended."""

    halted: bool
    hard: bool = False
    reason: str = ""
    by: str = ""
    since: datetime | None = None
    open: int = 0
    parked: tuple[str, ...] = ()
    executors_halted: tuple[str, ...] = ()

    @property
    def word(self) -> Literal["running", "draining", "halted"]:
        """`draining` until nothing is open."""
        if not self.halted:
            return "running"
        return "draining" if self.open else "halted"


async def in_force(session: AsyncSession, kind: str, now: datetime) -> list[SwitchRow]:
    """Switches of a kind that are set and not over, oldest first."""
    rows = await session.exec(
        select(SwitchRow)
        .where(SwitchRow.kind == kind, col(SwitchRow.lifted_at).is_(None))
        .order_by(col(SwitchRow.set_at))
        .execution_options(populate_existing=True)
    )
    return [row for row in rows if row.until is None or row.until > now]


async def halt_switch(session: AsyncSession, now: datetime) -> HaltSwitch:
    """The halt as executors read it in every claim."""
    rows = await in_force(session, HALT, now)
    if not rows:
        return HaltSwitch(halted=False)
    return HaltSwitch(halted=True, hard=any(row.hard for row in rows), reason=rows[0].reason, by=rows[0].set_by)


async def switches_for(session: AsyncSession, scopes: tuple[str, ...], now: datetime, *, override: str | None = None) -> Switches:
    """Halt and the freezes set by command on any of `scopes`. Freezes of autonomy.yaml are the policy's own."""
    halt = await halt_switch(session, now)
    freezes = [row for row in await in_force(session, FREEZE, now) if row.scope in scopes]
    return Switches(
        halted=halt.halted,
        halt_reason=halt.reason,
        halted_by=halt.by,
        freezes=tuple(Freeze(name=row.scope or "", until=row.until, reason=row.reason) for row in freezes),
        override_reason=override,
    )


async def halt_state(session: AsyncSession, now: datetime) -> HaltState:
    """The halt with what is still open, from the orders and from what executors say of themselves."""
    rows = await in_force(session, HALT, now)
    open_orders = (await session.exec(select(OrderRow.id).where(OrderRow.state == "delivered"))).all()
    pulses = [row for row in (await session.exec(select(ExecutorRow))).all() if row.heard_at > now - PULSE_LASTS]
    said = [ClaimRequest.model_validate_json(row.body) for row in pulses]
    return HaltState(
        halted=bool(rows),
        hard=any(row.hard for row in rows),
        reason=rows[0].reason if rows else "",
        by=rows[0].set_by if rows else "",
        since=rows[0].set_at if rows else None,
        open=max(len(open_orders), sum(len(one.open) for one in said)),
        parked=tuple(sorted({order for one in said for order in one.parked})),
        executors_halted=tuple(sorted(one.executor_id for one in said if one.halted)),
    )


# what people say -------------------------------------------------------------------------------------------------------------


async def halt(ctx: Context, identity: Identity, why: str, *, hard: bool = False) -> Answer:
    """Stop all new work at once; `hard` parks open transactions too. Anybody named in the policy may."""
    if identity.person not in ctx.policies.current.people:
        return _not_allowed(f"{identity.person} is not named in autonomy.yaml", "anybody under people: may halt")
    now = ctx.clock.now()
    async with ctx.database.transaction() as session:
        rows = await in_force(session, HALT, now)
        if rows and (not hard or any(row.hard for row in rows)):
            return done(f"Already halted by {rows[0].set_by} since {rows[0].set_at:%H:%M:%S} UTC: {rows[0].reason}.")
        session.add(SwitchRow(id=new_id(now), kind=HALT, hard=hard, reason=why, set_by=identity.person, set_at=now))
        await session.flush()
        state = await halt_state(session, now)
    told = "undo is stopped too; open transactions are parked" if hard else "open transactions settle or undo"
    return done(f"Halted{' hard' if hard else ''}: no new work begins; {told}. {_still_open(state)}")


async def resume(ctx: Context, identity: Identity, why: str, *, parked: Literal["undo", "settle"] = "undo") -> Answer:
    """Let work begin again. Parked transactions go on as `parked` says. Takes an owner of any scope."""
    refusal = _unless(ctx, identity, ("owner",))
    if refusal is not None:
        return refusal
    now = ctx.clock.now()
    async with ctx.database.transaction() as session:
        rows = await in_force(session, HALT, now)
        if not rows:
            return refused("Nothing is halted.", rule="not_halted")
        state = await halt_state(session, now)
        for row in rows:
            _lift(session, row, identity.person, why, now)
        for order in (
            await session.exec(select(OrderRow).where(col(OrderRow.id).in_(state.parked), col(OrderRow.state) == "delivered"))
        ).all():
            order.resume = parked
            session.add(order)
    told = f" {len(state.parked)} parked transactions {parked}." if state.parked else ""
    return done(f"Resumed. Nothing that was approved before runs now: it is judged anew.{told}")


async def freeze(ctx: Context, identity: Identity, scope: str, lasts: timedelta, why: str) -> Answer:
    """Let nothing happen by itself in a scope for a time. Takes an approver or owner of any scope."""
    refusal = _unless(ctx, identity, ("approver", "owner"))
    if refusal is not None:
        return refusal
    policy = ctx.policies.current
    if policy.scope_named(scope) is None:
        names = ", ".join(one.name for one in policy.scopes) or "none"
        return Answer(ok=False, code="not_found", text=f"No scope is named {scope}. Scopes: {names}.", rule="unknown_scope")
    now = ctx.clock.now()
    async with ctx.database.transaction() as session:
        until = now + lasts
        session.add(
            SwitchRow(id=new_id(now), kind=FREEZE, scope=scope, reason=why, set_by=identity.person, set_at=now, until=until)
        )
    return done(f"Scope {scope} is frozen until {until:%Y-%m-%d %H:%M:%S} UTC.")


async def unfreeze(ctx: Context, identity: Identity, scope: str, why: str) -> Answer:
    """Lift every freeze set on a scope by command. Takes an owner."""
    return await _release(ctx, identity, why, FREEZE, lambda row: row.scope == scope, f"Scope {scope} is not frozen by command.")


async def release(ctx: Context, identity: Identity, why: str, *, cluster_uid: str | None = None) -> Answer:
    """Release the storm latch of one cluster, or of all. Takes an owner."""
    return await _release(ctx, identity, why, STORM, lambda row: cluster_uid in (None, row.cluster_uid), "No storm is latched.")


async def _release(
    ctx: Context, identity: Identity, why: str, kind: str, meant: Callable[[SwitchRow], bool], nothing: str
) -> Answer:
    refusal = _unless(ctx, identity, ("owner",))
    if refusal is not None:
        return refusal
    now = ctx.clock.now()
    async with ctx.database.transaction() as session:
        rows = [row for row in await in_force(session, kind, now) if meant(row)]
        for row in rows:
            _lift(session, row, identity.person, why, now)
    if not rows:
        return refused(nothing, rule=f"no_{kind}")
    return done(f"Released: {'; '.join(row.reason for row in rows)}. What was withheld is judged anew, not run.")


def _lift(session: AsyncSession, row: SwitchRow, person: str, why: str, now: datetime) -> None:
    row.lifted_at, row.lifted_by, row.lifted_why = now, person, why
    session.add(row)


def _unless(ctx: Context, identity: Identity, roles: Sequence[RoleName]) -> Answer | None:
    """A refusal unless the person has one of the roles in some scope."""
    scopes = ctx.policies.current.scopes
    entries = tuple(dict.fromkeys(entry for scope in scopes for role in roles for entry in getattr(scope.roles, role) or ()))
    named = " or ".join(roles)
    match holds(entries, identity):
        case Holding.YES:
            return None
        case Holding.UNKNOWN:
            text = (
                f"Whether {identity.person} is {named} could not be checked, so nothing was done; try again, or ask {who(entries)}."
            )
            return Answer(ok=False, code="unavailable", text=text, rule="could_not_check")
        case Holding.NO:
            return _not_allowed(f"{identity.person} is not {named} of any scope", f"ask {who(entries)}")


def _not_allowed(text: str, unblock: str) -> Answer:
    return Answer(ok=False, code="not_allowed", text=f"{text}, so nothing was done; {unblock}.", rule="role", unblock=unblock)


def _still_open(state: HaltState) -> str:
    return f"Draining: {state.open} still open." if state.open else "Nothing is open."
