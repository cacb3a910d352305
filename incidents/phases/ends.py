"""What the end of a transaction does, before anything else is ordered there: the table of ends, in one transaction.

| end | target | people |
|---|---|---|
| committed | free | thread |
| refused | free, budget returned, no attempt counted | reason on the card |
| ineffective | the repetition gate refuses the same | on-call mentioned |
| rolled_back | no automatic order for 6 h | on-call mentioned |
| conflict | blocked until `unblock` | on-call mentioned |
| regressed, unverified, undo_incomplete | blocked until an owner's `unblock` | paged |

Standing needs no row of its own: it is computed from the outcomes, so the next decision sees this one.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from sqlmodel.ext.asyncio.session import AsyncSession

from catalog.actions import RemediationAction
from catalog.episodes import Phase
from catalog.events import EventKind
from catalog.outcomes import End, Outcome
from incidents.blocks import block_after
from incidents.phases.moving import strengthen, take_move
from incidents.phases.situations import ladder_numbers, locked_incident, phase_numbers, situation_of
from incidents.phases.telling import mention_on_call, page
from incidents.recording import append_event
from incidents.tables import IncidentRow, OrderRow
from incidents.transitions import after_end, reason_of
from ladder.policy import Policy

PAGES = {
    End.REGRESSED: "SreLadderRegressed",
    End.UNVERIFIED: "SreLadderUnverified",
    End.UNDO_INCOMPLETE: "SreLadderUndoIncomplete",
}
MENTIONED = frozenset({End.INEFFECTIVE, End.ROLLED_BACK, End.CONFLICT})


async def apply_end(session: AsyncSession, policy: Policy, order: OrderRow, outcome: Outcome, now: datetime) -> None:
    """Carry out the row of the table that `outcome` names. The order's row already says that it ended."""
    row = await locked_incident(session, order.incident_id)
    if row is None:
        return
    actor = f"executor:{outcome.executor_id}"
    append_event(session, row, EventKind.OUTCOME, at=outcome.ended_at, now=now, actor=actor, payload=_payload(outcome))
    await _block(session, row, outcome, now)
    reason = reason_of(outcome.end)
    if reason is not None:
        strengthen(row, reason)
    if outcome.end is not End.REFUSED:
        row.attempt += 1
        row.first_severity = outcome.severity_before if row.first_severity is None else row.first_severity
    if outcome.end is End.COMMITTED:
        row.watch_until = (order.ended_at or now) + _watch_for(policy, row, order)
    if outcome.end in PAGES:
        await page(session, policy, row, PAGES[outcome.end], outcome.sentence, now)
    if outcome.end in MENTIONED:
        await mention_on_call(session, policy, row, order.id, f"{outcome.end.value}: {outcome.sentence}", now)
    if row.phase in (Phase.ORDERED.value, Phase.EXECUTING.value) and row.order_id == order.id:
        situation = await situation_of(session, row, now, phase_numbers(policy, row))
        await take_move(session, policy, row, after_end(situation, outcome.end), now)


async def _block(session: AsyncSession, row: IncidentRow, outcome: Outcome, now: datetime) -> None:
    reason = f"{outcome.end.value} in incident #{row.number}: {outcome.sentence}"
    block = block_after(session, outcome.target, outcome.end, incident_id=row.id, reason=reason, now=now)
    if block is None:
        return
    payload = {
        "forbids": block.forbids,
        "until": None if block.until is None else block.until.isoformat(),
        "owner_only": block.owner_only,
        "reason": reason,
    }
    append_event(session, row, EventKind.BLOCKED, at=now, now=now, actor="bot", payload=payload)


def _watch_for(policy: Policy, row: IncidentRow, order: OrderRow) -> timedelta:
    numbers = ladder_numbers(policy, row)
    return numbers.watch_scale if order.action == RemediationAction.SCALE.value else numbers.watch_restart


def _payload(outcome: Outcome) -> dict[str, Any]:
    return {
        "order_id": outcome.order_id,
        "end": outcome.end.value,
        "reason": outcome.reason,
        "sentence": outcome.sentence,
        "severity_before": outcome.severity_before,
        "severity_after": outcome.severity_after,
        "not_undone": list(outcome.not_undone),
    }
