"""After a committed action: does it hold? And what a committed scale-up leaves to be taken back.

The watch itself is a time in the incident's row; `incidents.transitions` says what a re-fire, a new family and its end mean. What
is here makes the second incident that some of these need, linked to the first, in the same transaction.
"""

from __future__ import annotations

import json
from datetime import datetime

from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from catalog.actions import RemediationAction, Scale, action_adapter
from catalog.alerts import AlertSeverity, AlertState
from catalog.cases import Case, FollowUp
from catalog.diagnoses import Diagnosis, Family
from catalog.episodes import CloseReason, Phase
from catalog.events import EventKind
from catalog.outcomes import End
from catalog.targets import Target, TargetFacts
from incidents import metrics
from incidents.phases.deciding import follow_up_diagnosis
from incidents.phases.moving import take_move
from incidents.phases.situations import ladder_numbers, read_document, target_of
from incidents.recording import append_event
from incidents.resolving import next_numbers, open_incident
from incidents.tables import AlertRow, IncidentRow, OrderRow
from incidents.transitions import Move, Situation, came_back
from ladder.policy import Policy


async def split(session: AsyncSession, policy: Policy, row: IncidentRow, situation: Situation, now: datetime) -> IncidentRow:
    """Close the watched incident (or the follow-up) because something else fires on its target, and open another for that.

    The alerts of the new families go with the new incident, which is what they are about. The old one did not come to the end of
    its watch, so that how it ended is not known.
    """
    moved = await _alerts_to_move(session, row, situation)
    why = f"something else fires on the target: {', '.join(sorted({alert.name for alert in moved}))}"
    await take_move(session, policy, row, _closing(situation, why), now)
    await session.flush()
    linked = await _linked(session, row, target_of(row), "alert", now)
    names = {alert.name for alert in moved}
    worst = max((AlertSeverity(alert.severity) for alert in moved), key=lambda one: one.rank, default=AlertSeverity.WARNING)
    for alert in moved:
        alert.incident_id = linked.id
        session.add(alert)
        payload = {"alert_id": alert.id, "fingerprint": alert.fingerprint, "name": alert.name, "from": row.id}
        append_event(session, linked, EventKind.ALERT_ATTACHED, at=alert.received_at, now=now, actor="bot", payload=payload)
    linked.alert_names, linked.severity = json.dumps(sorted(names), ensure_ascii=False), worst.value
    return linked


async def _alerts_to_move(session: AsyncSession, row: IncidentRow, situation: Situation) -> list[AlertRow]:
    """Firing alerts that the old incident is not about."""
    rows = await session.exec(
        select(AlertRow)
        .where(AlertRow.incident_id == row.id, AlertRow.state == AlertState.ATTACHED.value)
        .order_by(col(AlertRow.id))
        .execution_options(populate_existing=True)
    )
    known = situation.judged_names if situation.origin == "alert" else frozenset()
    return [alert for alert in rows if alert.name not in known]


def _closing(situation: Situation, why: str) -> Move:
    open_proposal = situation.proposal is not None and situation.proposal.state in ("pending", "approved")
    return Move(
        why=why,
        to=Phase.CLOSED,
        close_reason=CloseReason.UNKNOWN,
        proposal="withdrawn" if open_proposal else None,
        events=(EventKind.PROPOSAL_WITHDRAWN, EventKind.CLOSED) if open_proposal else (EventKind.CLOSED,),
    )


async def follow_up(
    session: AsyncSession, policy: Policy, row: IncidentRow, situation: Situation, now: datetime
) -> IncidentRow | None:
    """After a committed scale-up has held: an incident of its own that proposes to take it back. None: there is nothing to.

    Call it in the transaction that closed `row`, after the close was flushed. It sleeps until the check has held long enough.
    """
    order = await _committed_scale_up(session, row)
    if order is None or order.ended_at is None or came_back(situation, order.ended_at):
        return None
    target = Target.model_validate(json.loads(order.body)["target"])
    if await _occupied(session, target):
        return None
    linked = await _linked(session, row, target, "follow_up", now)
    linked.family, linked.action = order.family, RemediationAction.SCALE.value
    linked.watch_until = linked.next_at = max(now, order.ended_at + ladder_numbers(policy, row).follow_up_hold)
    linked.severity = AlertSeverity.WARNING.value
    return linked


async def _committed_scale_up(session: AsyncSession, row: IncidentRow) -> OrderRow | None:
    order = await session.get(OrderRow, row.order_id) if row.order_id else None
    if order is None or order.end != End.COMMITTED.value or order.action != RemediationAction.SCALE.value:
        return None
    scale = scaled_by(order)
    return order if scale is not None and scale.upward else None


def scaled_by(order: OrderRow) -> Scale | None:
    """The scale an order carried out; None for another action."""
    action = action_adapter.validate_python(json.loads(order.body)["action"])
    return action if isinstance(action, Scale) else None


async def justification(session: AsyncSession, row: IncidentRow, now: datetime) -> FollowUp | None:
    """What stands behind a follow-up: the check that opened the first incident, and for how long it has held."""
    first = await session.get(IncidentRow, row.linked_to) if row.linked_to else None
    order = await session.get(OrderRow, first.order_id) if first is not None and first.order_id else None
    if first is None or order is None or order.ended_at is None:
        return None
    opened = [check["name"] for check in json.loads(order.body)["checks"] if check.get("opened")]
    return FollowUp(
        of_incident=f"#{first.number}", check=opened[0] if opened else f"incident #{first.number}", held_for=now - order.ended_at
    )


async def follow_up_of(session: AsyncSession, row: IncidentRow, facts: TargetFacts | None, now: datetime) -> Diagnosis | None:
    """The diagnosis of a follow-up, from the first incident's order and from what runs now. None: nothing is left to take back."""
    first = await session.get(IncidentRow, row.linked_to) if row.linked_to else None
    order = await session.get(OrderRow, first.order_id) if first is not None and first.order_id else None
    scale = scaled_by(order) if order is not None else None
    if scale is None or facts is None or facts.desired is None:
        return None
    return follow_up_diagnosis(row.id, target_of(row), scale, facts.desired, Family(row.family or Family.CAPACITY.value), now)


async def changed_outside(session: AsyncSession, row: IncidentRow, facts: TargetFacts | None) -> bool:
    """Whether somebody else changed the workload since the case was made: then the end is theirs, not ours and not chance."""
    case = await read_document(session, row.case_id, Case)
    if case is None or case.facts is None or facts is None or row.order_id is not None:
        return False
    if facts.target.key != case.target.key:
        return False
    before = (case.facts.target.uid, case.facts.template_hash, case.facts.desired)
    return facts.exists and (facts.target.uid, facts.template_hash, facts.desired) != before


async def _linked(session: AsyncSession, first: IncidentRow, target: Target, origin: str, now: datetime) -> IncidentRow:
    number = await next_numbers(session, 1)
    linked = open_incident(session, target, number=number, origin=origin, now=now)
    linked.linked_to = first.id
    payload = {"incident_id": linked.id, "number": linked.number, "origin": origin}
    append_event(session, first, EventKind.LINKED, at=now, now=now, actor="bot", payload=payload)
    back = {"incident_id": first.id, "number": first.number, "origin": origin}
    append_event(session, linked, EventKind.LINKED, at=now, now=now, actor="bot", payload=back)
    metrics.INCIDENTS_OPENED.labels(origin).inc()
    return linked


async def _occupied(session: AsyncSession, target: Target) -> bool:
    """Whether another incident is open on the target: its people decide about the replicas then."""
    rows = await session.exec(
        select(IncidentRow.id).where(
            IncidentRow.cluster_uid == target.cluster_uid,
            IncidentRow.namespace == target.namespace,
            IncidentRow.kind == target.kind.value,
            IncidentRow.name == target.name,
            IncidentRow.phase != Phase.CLOSED.value,
        )
    )
    return rows.first() is not None
