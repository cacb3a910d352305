"""Where orders leave and outcomes come in. The executor pulls; this never calls it.

An order is on its way from the moment `executing` is committed, which is before the answer that carries it is written: whatever
happens to the answer, the bot believes it delivered, gives it again to the same journal when asked, and only an outcome ends it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal, cast

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pydantic import ValidationError
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from catalog.documents import Document
from catalog.episodes import Phase
from catalog.events import EventKind
from catalog.orders import ClaimAnswer, ClaimRequest, HaltSwitch, Signed
from catalog.outcomes import Outcome
from catalog.signatures import SignatureRefused, verified_body
from incidents import metrics
from incidents.context import Context
from incidents.people import Credential
from incidents.phases.ends import apply_end
from incidents.phases.moving import enter
from incidents.phases.situations import locked_incident
from incidents.phases.telling import tell
from incidents.recording import append_event
from incidents.switches import halt_switch
from incidents.tables import ExecutorRow, IncidentRow, OrderRow, OutcomeRow, ProposalRow
from ladder.policy import Policy


class ExchangeError(Exception):
    """Root: an executor's request is not acceptable. The message is for the executor's log; nothing was changed."""


class NotYours(ExchangeError):
    """The credential is bound to another cluster. Answer 403; do not retry."""


class OutcomeUnreadable(ExchangeError):
    """Not an outcome, or not signed by an accepted key. Answer 422; do not retry."""


class OrderUnknown(ExchangeError):
    """No such order here. Answer 404; keep the outcome and tell people."""


class OutcomeConflict(ExchangeError):
    """It contradicts what is stored. Answer 409; do not retry."""


class Accepted(Document):
    """An outcome is stored. `duplicate`: it already was."""

    order_id: str
    end: str
    duplicate: bool = False


async def claim_orders(ctx: Context, request: ClaimRequest, executor: Credential) -> ClaimAnswer:
    """Note the executor's pulse and deliver what it may begin. Everything is committed before this returns.

    Raises:
        NotYours: the credential is for another cluster, or the executor's name belongs to one.
        StoreUnavailable: nothing was delivered.
    """
    _require_cluster(executor, request.cluster_uid)
    now = ctx.clock.now()
    async with ctx.database.transaction() as session:
        await _note_pulse(session, request, now)
        switch = await halt_switch(session, now)
        orders = await _redelivered(session, request) if request.active else []
        if _may_begin(request, switch):
            orders += await _delivered(session, ctx.policies.current, request, request.room - len(orders), now)
        answer = ClaimAnswer(
            orders=tuple(Signed(body=row.body, key_id=row.key_id, signature=row.signature) for row in orders),
            switch=switch,
            taken_over=await _taken_over(session, request.cluster_uid),
            resume=await _resumed(session, request),
            at=now,
        )
    return answer


async def accept_outcome(ctx: Context, signed: Signed, executor: Credential, keys: Mapping[str, Ed25519PublicKey]) -> Accepted:
    """Store an outcome and everything that follows from it, once. `keys` are the executors' public keys by key id.

    Raises:
        OutcomeUnreadable, NotYours, OrderUnknown, OutcomeConflict: not acceptable; nothing was changed.
        StoreUnavailable: send it again.
    """
    outcome = _read_outcome(signed, keys)
    _require_cluster(executor, outcome.cluster_uid)
    now = ctx.clock.now()
    async with ctx.database.transaction() as session:
        order = await _locked_order(session, outcome)
        stored = await session.get(OutcomeRow, order.id, populate_existing=True)
        if stored is not None:
            return _duplicate(outcome, stored)
        if order.state != "delivered":
            raise OutcomeConflict(f"order {order.id} was never delivered (it is {order.state}), so it cannot have ended")
        session.add(
            OutcomeRow(
                order_id=order.id,
                incident_id=order.incident_id,
                end=outcome.end.value,
                body=signed.body,
                key_id=signed.key_id,
                signature=signed.signature,
                at=outcome.ended_at,
                received_at=now,
            )
        )
        # The executor's clock may be ahead of ours: an end in the future would hide an alert that comes back.
        order.state, order.end, order.ended_at = "ended", outcome.end.value, min(outcome.ended_at, now)
        session.add(order)
        await session.flush()
        await apply_end(session, ctx.policies.current, order, outcome, now)
    metrics.OUTCOMES.labels(outcome.end.value).inc()
    metrics.ORDERS.labels(order.mode, "ended").inc()
    return Accepted(order_id=order.id, end=outcome.end.value)


def _require_cluster(executor: Credential, cluster_uid: str) -> None:
    if executor.kind != "executor" or cluster_uid not in executor.clusters:
        raise NotYours(f"this credential is not for cluster {cluster_uid}; make one with: sre-bot keys executor")


# claims ----------------------------------------------------------------------------------------------------------------------


async def _note_pulse(session: AsyncSession, request: ClaimRequest, now: datetime) -> None:
    row = await session.get(ExecutorRow, request.executor_id, with_for_update=True, populate_existing=True)
    if row is not None and row.cluster_uid != request.cluster_uid:
        raise NotYours(f"executor {request.executor_id} belongs to cluster {row.cluster_uid}")
    if row is None:
        row = ExecutorRow(
            executor_id=request.executor_id, cluster_uid=request.cluster_uid, journal_id=request.journal_id, active=False
        )
    row.journal_id, row.active, row.halted = request.journal_id, request.active, request.halted
    row.body, row.heard_at = request.to_json(), now
    session.add(row)


def _may_begin(request: ClaimRequest, switch: HaltSwitch) -> bool:
    return request.active and not request.halted and not switch.halted and not request.draining and request.room > 0


async def _redelivered(session: AsyncSession, request: ClaimRequest) -> list[OrderRow]:
    """Orders this journal was given and does not speak of: the answer that carried them was lost."""
    rows = await session.exec(
        select(OrderRow)
        .where(OrderRow.cluster_uid == request.cluster_uid, OrderRow.state == "delivered")
        .order_by(col(OrderRow.minted_at))
        .execution_options(populate_existing=True)
    )
    spoken_of = {one.order_id for one in request.open} | set(request.parked)
    lost = [row for row in rows if row.id not in spoken_of]
    return [row for row in lost if await _same_journal(session, row, request)]


async def _same_journal(session: AsyncSession, order: OrderRow, request: ClaimRequest) -> bool:
    if order.delivered_to == request.executor_id:
        return True
    holder = await session.get(ExecutorRow, order.delivered_to) if order.delivered_to else None
    return holder is not None and holder.journal_id == request.journal_id


async def _delivered(session: AsyncSession, policy: Policy, request: ClaimRequest, room: int, now: datetime) -> list[OrderRow]:
    if room <= 0:
        return []
    waiting = await session.exec(
        select(OrderRow.id, OrderRow.incident_id)
        .where(OrderRow.cluster_uid == request.cluster_uid, OrderRow.state == "minted", col(OrderRow.expires_at) > now)
        .order_by(col(OrderRow.minted_at))
    )
    delivered: list[OrderRow] = []
    for order_id, incident_id in waiting.all():
        if len(delivered) == room:
            break
        # The incident's row first, as everywhere: transactions that lock in one order cannot wait for each other.
        incident = await locked_incident(session, incident_id)
        order = await session.get(OrderRow, order_id, with_for_update=True, populate_existing=True)
        if incident is not None and order is not None and _deliverable(order, incident, now):
            await _deliver(session, policy, order, incident, request.executor_id, now)
            delivered.append(order)
    return delivered


def _deliverable(order: OrderRow, incident: IncidentRow, now: datetime) -> bool:
    """Nothing happened since the order was minted that takes it back."""
    waiting = order.state == "minted" and order.expires_at > now
    return waiting and incident.phase == Phase.ORDERED.value and incident.order_id == order.id and incident.taken_by is None


async def _deliver(
    session: AsyncSession, policy: Policy, order: OrderRow, incident: IncidentRow, executor_id: str, now: datetime
) -> None:
    order.state, order.delivered_at, order.delivered_to = "delivered", now, executor_id
    session.add(order)
    if order.proposal_id is not None:
        proposal = await session.get(ProposalRow, order.proposal_id, with_for_update=True, populate_existing=True)
        if proposal is not None:
            # The approval is used up: no other order can rest on it.
            proposal.state = "carried_out"
            session.add(proposal)
    enter(incident, Phase.EXECUTING, now)
    payload = {"order_id": order.id, "executor": executor_id, "mode": order.mode}
    append_event(session, incident, EventKind.ORDER_DELIVERED, at=now, now=now, actor=f"executor:{executor_id}", payload=payload)
    await tell(session, policy, incident, now)
    metrics.ORDERS.labels(order.mode, "delivered").inc()


async def _taken_over(session: AsyncSession, cluster_uid: str) -> tuple[str, ...]:
    rows = await session.exec(
        select(OrderRow.id).where(
            OrderRow.cluster_uid == cluster_uid, OrderRow.state == "delivered", col(OrderRow.taken_over).is_(True)
        )
    )
    return tuple(sorted(rows))


async def _resumed(session: AsyncSession, request: ClaimRequest) -> tuple[tuple[str, Literal["undo", "settle"]], ...]:
    if not request.parked:
        return ()
    names = {one.transaction_id: one.order_id for one in request.open}
    parked: Sequence[str] = [names.get(one, one) for one in request.parked]
    rows = await session.exec(
        select(OrderRow.id, OrderRow.resume).where(
            col(OrderRow.id).in_(parked), OrderRow.cluster_uid == request.cluster_uid, col(OrderRow.resume).is_not(None)
        )
    )
    return tuple((order_id, cast(Literal["undo", "settle"], how)) for order_id, how in sorted(rows))


# outcomes --------------------------------------------------------------------------------------------------------------------


def _read_outcome(signed: Signed, keys: Mapping[str, Ed25519PublicKey]) -> Outcome:
    try:
        return Outcome.model_validate(json.loads(verified_body(signed, keys)))
    except SignatureRefused as error:
        raise OutcomeUnreadable(str(error)) from error
    except (ValidationError, ValueError) as error:
        raise OutcomeUnreadable(f"the signed document is not an outcome: {str(error).splitlines()[0]}") from error


async def _locked_order(session: AsyncSession, outcome: Outcome) -> OrderRow:
    found = await session.get(OrderRow, outcome.order_id)
    if found is None:
        raise OrderUnknown(f"order {outcome.order_id} is not known here")
    await locked_incident(session, found.incident_id)
    order = await session.get(OrderRow, outcome.order_id, with_for_update=True, populate_existing=True)
    assert order is not None
    if order.cluster_uid != outcome.cluster_uid:
        raise NotYours(f"order {order.id} is for cluster {order.cluster_uid}, not for {outcome.cluster_uid}")
    if (order.cluster_uid, order.namespace, order.kind, order.name) != outcome.target.key:
        raise OutcomeConflict(f"order {order.id} is about {order.kind} {order.namespace}/{order.name}, not {outcome.target.title}")
    return order


def _duplicate(outcome: Outcome, stored: OutcomeRow) -> Accepted:
    known = Outcome.model_validate_json(stored.body)
    if known.id != outcome.id:
        told = f"order {outcome.order_id} already ended as {known.end.value} by outcome {known.id}"
        raise OutcomeConflict(f"{told}; {outcome.id} says {outcome.end.value}")
    return Accepted(order_id=outcome.order_id, end=known.end.value, duplicate=True)
