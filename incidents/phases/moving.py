"""Carrying out a `Move`: the one place where an incident's row changes phase, with its events, in the caller's transaction."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlmodel.ext.asyncio.session import AsyncSession

from catalog.episodes import CloseReason, Phase
from catalog.events import EventKind
from incidents import metrics
from incidents.episodes import close_episode
from incidents.phases.telling import say, tell
from incidents.recording import append_event
from incidents.tables import IncidentRow, OrderRow, ProposalRow
from incidents.transitions import Again, Move, stronger
from ladder.policy import Policy

LABEL_EVERY = 5
_FRESH_START = frozenset({Again.AGE, Again.FAMILY, Again.NEW_START})


async def take_move(
    session: AsyncSession, policy: Policy, row: IncidentRow, move: Move, now: datetime, *, actor: str = "bot"
) -> None:
    """Apply `move` to the row this transaction holds. A move that only waits sets `next_at` and nothing else."""
    if move.to is None:
        row.next_at = move.next_at
        session.add(row)
        return
    if move.proposal is not None:
        await end_proposal(session, row, move.proposal, move.why, now)
    if move.counts is not None:
        setattr(row, move.counts, getattr(row, move.counts) + 1)
    if move.again in _FRESH_START:
        row.proposals_expired = row.refusals = row.attempt = 0
    if move.close_reason is not None:
        strengthen(row, move.close_reason)
    if move.proposal == "expired":
        strengthen(row, CloseReason.EXPIRED)
    enter(row, move.to, now, next_at=move.next_at)
    row.again = move.again.value if move.again is not None else row.again
    if move.to is Phase.DECIDED:
        row.route = None
    for kind in move.events:
        append_event(session, row, kind, at=now, now=now, actor=actor, payload=_payload(row, kind, move))
    if move.to is Phase.CLOSED:
        await close(session, policy, row, now)
    await tell(session, policy, row, now)


def enter(row: IncidentRow, phase: Phase, now: datetime, *, next_at: datetime | None = None) -> None:
    """Put the row into a phase: its version grows, its troubles are over, and it is due at `next_at` (now when not given)."""
    row.phase = phase.value
    row.version += 1
    row.next_at = None if phase is Phase.CLOSED else next_at or now
    row.updated_at = now
    row.failures, row.trouble = 0, ""


def strengthen(row: IncidentRow, reason: CloseReason) -> None:
    """Remember the strongest thing that has happened."""
    row.strongest = stronger(CloseReason(row.strongest) if row.strongest else None, reason).value


async def end_proposal(session: AsyncSession, row: IncidentRow, state: str, why: str, now: datetime) -> None:
    """End the incident's proposal, if it still lives, as `state`."""
    proposal = (
        await session.get(ProposalRow, row.proposal_id, with_for_update=True, populate_existing=True) if row.proposal_id else None
    )
    if proposal is None or proposal.state not in ("pending", "approved"):
        return
    proposal.state, proposal.state_reason, proposal.decided_at = state, why, now
    session.add(proposal)
    metrics.PROPOSALS.labels(state).inc()


async def close(session: AsyncSession, policy: Policy, row: IncidentRow, now: datetime) -> None:
    """Close the row for the strongest reason it has, and make its episode."""
    row.closed_at = now
    row.close_reason = row.strongest or CloseReason.UNKNOWN.value
    row.claimed_by = row.claimed_until = None
    await _ask_for_a_label(session, policy, row, now)
    session.add(row)
    await session.flush()
    await close_episode(session, policy, row, now)
    metrics.INCIDENTS_CLOSED.labels(row.close_reason).inc()


async def _ask_for_a_label(session: AsyncSession, policy: Policy, row: IncidentRow, now: datetime) -> None:
    """One automatic action in five is asked about: what nobody looks at is never learnt from."""
    order = await session.get(OrderRow, row.order_id) if row.order_id else None
    if order is None or order.mode != "auto" or row.number % LABEL_EVERY:
        return
    payload = {"order_id": order.id, "why": f"one automatic action in {LABEL_EVERY} is asked about"}
    append_event(session, row, EventKind.LABEL_REQUESTED, at=now, now=now, actor="bot", payload=payload)
    await say(session, policy, row, "label_request", row.id, "Was the action right? Was the diagnosis right?", now)


def _payload(row: IncidentRow, kind: EventKind, move: Move) -> dict[str, Any]:
    payload: dict[str, Any] = {"why": move.why}
    if kind is EventKind.CLOSED:
        payload["reason"] = row.strongest or CloseReason.UNKNOWN.value
    if kind is EventKind.REOPENED and move.again is not None:
        payload["again"] = move.again.value
    if row.proposal_id is not None and kind.value.startswith("proposal_"):
        payload["proposal_id"] = row.proposal_id
    return payload
