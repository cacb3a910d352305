"""Work that needs nothing but the database: each is done inside the transaction that advances the row."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime

from sqlmodel.ext.asyncio.session import AsyncSession

from catalog.cases import Case
from catalog.decisions import Decision
from catalog.episodes import Phase
from catalog.events import EventKind
from incidents import metrics, watching
from incidents.mint import Mint, Withheld
from incidents.phases.moving import end_proposal, take_move
from incidents.phases.proposing import NotProposable, propose, remind
from incidents.phases.situations import read_document, situation_of
from incidents.recording import append_event
from incidents.tables import IncidentRow, OrderRow
from incidents.transitions import Again, Move, Situation, Work, after_undelivered, after_withheld
from ladder.policy import Policy

Act = Callable[[AsyncSession, Policy, IncidentRow, Situation, datetime], Awaitable[None]]


async def mint(session: AsyncSession, policy: Policy, maker: Mint, row: IncidentRow, situation: Situation, now: datetime) -> None:
    """Order, or say why not: a withheld approval is used up, and the incident is judged once more."""
    made = await maker.order(session, policy, row, now)
    if not isinstance(made, Withheld):
        return
    payload = {"rule": made.rule, "sentence": made.sentence, "proposal_id": row.proposal_id}
    append_event(session, row, EventKind.ORDER_WITHHELD, at=now, now=now, actor="bot", payload=payload)
    metrics.ORDERS.labels("approved" if situation.proposal is not None else "auto", "withheld").inc()
    await end_proposal(session, row, "withheld", made.sentence, now)
    await take_move(session, policy, row, after_withheld(situation), now)


async def _propose(session: AsyncSession, policy: Policy, row: IncidentRow, situation: Situation, now: datetime) -> None:
    decision = await read_document(session, row.decision_id, Decision)
    case = await read_document(session, row.case_id, Case)
    if decision is not None and case is not None and case.facts is not None:
        try:
            await propose(session, policy, row, decision, case.facts, now)
        except NotProposable as error:
            await _judge_again(session, policy, row, str(error), now)
    else:
        await _judge_again(session, policy, row, "what was decided is not stored any more", now)


async def _judge_again(session: AsyncSession, policy: Policy, row: IncidentRow, why: str, now: datetime) -> None:
    await take_move(session, policy, row, Move(why=why, to=Phase.OPEN, again=Again.STALE_TARGET, next_at=now), now)


async def _remind(session: AsyncSession, policy: Policy, row: IncidentRow, situation: Situation, now: datetime) -> None:
    await remind(session, policy, row, now)


async def _expire_order(session: AsyncSession, policy: Policy, row: IncidentRow, situation: Situation, now: datetime) -> None:
    """Nobody fetched the order, or it may not be fetched any more: its reservation is given back."""
    order = await session.get(OrderRow, row.order_id, with_for_update=True, populate_existing=True) if row.order_id else None
    if order is not None and order.state == "minted":
        order.state, order.ended_at = "expired", now
        session.add(order)
        payload = {"order_id": order.id, "attempt": order.attempt}
        append_event(session, row, EventKind.ORDER_EXPIRED, at=now, now=now, actor="bot", payload=payload)
        metrics.ORDERS.labels(order.mode, "expired").inc()
        await session.flush()
        situation = await situation_of(session, row, now, situation.numbers)
    await take_move(session, policy, row, after_undelivered(situation), now)


async def _split(session: AsyncSession, policy: Policy, row: IncidentRow, situation: Situation, now: datetime) -> None:
    await watching.split(session, policy, row, situation, now)


ACTS: dict[Work, Act] = {
    Work.PROPOSE: _propose,
    Work.REMIND: _remind,
    Work.EXPIRE_ORDER: _expire_order,
    Work.SPLIT: _split,
}
"""Every work of `incidents.transitions` that stays inside; minting has the key and is called by name."""
