"""The only module that loads the order key and signs orders.

An order comes from a stored decision whose route is `auto`, or from a stored quorum of approvals for a stored proposal, and from
nothing else. In the one transaction that stores it, everything that could have changed is read anew: halt, freezes, storm, blocks
and take-over; who approved and whether they still may; the policy, by deciding the stored case again under the one in force; the
budgets, and what is open. The stored row is the reservation, so that two orders can not spend the same budget.

What may not be ordered is `Withheld`, with the rule and a sentence. There is no way to sign without a row.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from catalog.actions import RestartWorkload, Scale, action_adapter
from catalog.cases import Case
from catalog.decisions import Decision, Route
from catalog.documents import CATALOGUE_VERSION, canonical, digest
from catalog.episodes import Phase
from catalog.events import EventKind
from catalog.ids import new_id
from catalog.orders import Approval, Order
from catalog.registry import CATALOGUE
from catalog.signatures import key_id, load_private_key, sign
from catalog.targets import TargetFacts
from incidents import metrics
from incidents.assessing import Readings
from incidents.blocks import block_on
from incidents.casing import refreshed
from incidents.ledger import open_orders
from incidents.phases.moving import enter
from incidents.phases.situations import read_document
from incidents.phases.telling import tell
from incidents.recording import append_event, store_document
from incidents.storms import storm_state
from incidents.switches import halt_switch
from incidents.tables import ApprovalRow, DocumentRow, IncidentRow, OrderRow, ProposalRow
from ladder.checking import checks_for
from ladder.deciding import decide
from ladder.errors import NotCheckable, NotPlannable
from ladder.gates.blast_radius import full_outage
from ladder.planning import deadlines, plan
from ladder.policy import Policy
from ladder.roles import Holding, Identity, holds
from ladder.scopes import MergedScope

FRESH_LOOK = timedelta(seconds=60)
"""How long a look into a chat group counts: an approval that old must be checkable again without the platform."""

DEFAULT_INTERVAL_S = 60.0
"""Prometheus' own default, used where its intervals could not be read: the careful side."""


@dataclass(frozen=True)
class Withheld:
    """Why no order was made. `rule` names what refused it, `sentence` tells people."""

    rule: str
    sentence: str


@dataclass(frozen=True)
class _Warrant:
    """What an order rests on: the stored decision and case, and the approvals where people gave them."""

    mode: Literal["auto", "approved"]
    case: Case
    decision: Decision
    decision_id: str
    proposal: ProposalRow | None = None
    approvals: tuple[ApprovalRow, ...] = ()


class Mint:
    """Holds the order key. One per process that leads."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.key_id = key_id(key.public_key())

    @classmethod
    def load(cls, path: Path) -> Mint:
        """Load the order key.

        Raises:
            KeyUnreadable: missing, readable by others, or not an Ed25519 key.
        """
        return cls(load_private_key(path))

    async def order(self, session: AsyncSession, policy: Policy, row: IncidentRow, now: datetime) -> OrderRow | Withheld:
        """Make the order that the incident's stored decision or approvals call for, and go to `ordered`; or say why not.

        The caller's transaction holds the incident row; nothing is kept unless it commits.
        """
        warrant = await _warrant(session, row, now)
        if isinstance(warrant, Withheld):
            return warrant
        scope = policy.scope_for(warrant.case.target)
        withheld = (
            await _switched_off(session, row, warrant, now)
            or await _not_authorised(session, policy, warrant, now)
            or await _too_much_open(session, policy, warrant)
        )
        if withheld is not None:
            return withheld
        if scope is None or warrant.case.action.action not in scope.earned:
            return Withheld("scope", f"No scope allows this action on {warrant.case.target.title} any more.")
        again = await _decided_again(session, policy, row, warrant, now)
        if isinstance(again, Withheld):
            return again
        order = await self._order(session, row, scope, again, now)
        return order if isinstance(order, Withheld) else await self._keep(session, policy, row, again, order, now)

    async def _order(
        self, session: AsyncSession, row: IncidentRow, scope: MergedScope, warrant: _Warrant, now: datetime
    ) -> Order | Withheld:
        case, facts = warrant.case, warrant.case.facts
        if facts is None or facts.target.uid is None:
            return Withheld("target", f"{case.target.title} was not read, so no order can name it.")
        readings = await _readings(session, row)
        try:
            steps = plan(case.action, facts, warrant.mode)
            checks = checks_for(facts, scope, readings.expressions, mode=warrant.mode, origin=case.origin)
        except (NotPlannable, NotCheckable) as error:
            return Withheld("plan", str(error))
        scale = case.action if isinstance(case.action, Scale) else None
        standing = scope.earned[case.action.action]
        return Order(
            id=new_id(now),
            key_id=self.key_id,
            audience=case.target.cluster_uid,
            incident_id=row.id,
            incident_number=row.number,
            decision_id=warrant.decision_id,
            scope=standing.scope,
            match_digest=standing.match_digest,
            mode=warrant.mode,
            approvals=tuple(Approval(person=one.person, via=one.via, at=one.at) for one in warrant.approvals),
            action=case.action,
            target=facts.target,
            template_hash=_template_hash(warrant, facts),
            from_replicas=scale.from_replicas if scale else None,
            to_replicas=scale.to_replicas if scale else None,
            steps=steps,
            checks=checks,
            first_severity=row.first_severity,
            deadlines=deadlines(
                scope.numbers,
                scrape_interval=readings.scrape_interval or DEFAULT_INTERVAL_S,
                evaluation_interval=readings.evaluation_interval or DEFAULT_INTERVAL_S,
            ),
            allowed_outage=warrant.mode == "approved" and isinstance(case.action, RestartWorkload) and full_outage(facts),
            minted_at=now,
            decided_at=warrant.decision.at,
            not_before=now,
            expires_at=now + scope.numbers.order_lifetime,
            attempt=row.attempt + 1,
            parent=row.order_id,
            policy_hash=warrant.decision.policy_hash,
            catalogue_version=CATALOGUE_VERSION,
            versions=case.versions,
        )

    async def _keep(
        self, session: AsyncSession, policy: Policy, row: IncidentRow, warrant: _Warrant, order: Order, now: datetime
    ) -> OrderRow:
        signed = sign(self._key, canonical(order))
        stored = OrderRow(
            id=order.id,
            incident_id=row.id,
            decision_id=order.decision_id,
            proposal_id=warrant.proposal.id if warrant.proposal is not None else None,
            cluster_uid=order.audience,
            cluster=order.target.cluster,
            namespace=order.target.namespace,
            kind=order.target.kind.value,
            name=order.target.name,
            scope=order.scope,
            match_digest=order.match_digest,
            family=warrant.case.family.value,
            action=order.action.action.value,
            mode=order.mode,
            key_id=signed.key_id,
            body=signed.body,
            signature=signed.signature,
            domain=_domain(warrant.case.facts),
            attempt=order.attempt,
            minted_at=now,
            expires_at=order.expires_at,
        )
        session.add(stored)
        await session.flush()
        row.order_id = order.id
        enter(row, Phase.ORDERED, now, next_at=order.expires_at)
        payload = {
            "order_id": order.id,
            "mode": order.mode,
            "decision_id": order.decision_id,
            "approvals": [one.person for one in order.approvals],
            "steps": [step.kind.value for step in order.steps],
            "expires_at": order.expires_at.isoformat(),
        }
        append_event(session, row, EventKind.ORDERED, at=now, now=now, actor="bot", payload=payload)
        await tell(session, policy, row, now)
        metrics.ORDERS.labels(order.mode, "minted").inc()
        return stored


# what it rests on ------------------------------------------------------------------------------------------------------------


async def _warrant(session: AsyncSession, row: IncidentRow, now: datetime) -> _Warrant | Withheld:
    """The stored decision, with its quorum where it is not automatic."""
    proposal = (
        await session.get(ProposalRow, row.proposal_id, with_for_update=True, populate_existing=True) if row.proposal_id else None
    )
    if proposal is not None and proposal.state == "approved" and row.phase in (Phase.PROPOSED.value, Phase.DECIDED.value):
        decision = await _stored(session, proposal.decision_id)
        case = await read_document(session, row.case_id, Case)
        if decision is None or case is None:
            return Withheld("decision", "What the approval was for is not stored any more.")
        rows = await session.exec(
            select(ApprovalRow).where(ApprovalRow.proposal_id == proposal.id).execution_options(populate_existing=True)
        )
        approvals = tuple(sorted(rows, key=lambda one: (one.at, one.person)))
        return _approved(proposal, decision, case, approvals)
    decision = await _stored(session, row.decision_id)
    case = await read_document(session, row.case_id, Case)
    if row.phase != Phase.DECIDED.value or row.route != Route.AUTO.value or decision is None or case is None:
        return Withheld("decision", "Neither a stored automatic decision nor a quorum of approvals stands behind it.")
    if decision.route is not Route.AUTO:
        return Withheld("decision", f"The stored decision says {decision.route.value}, not auto.")
    assert row.decision_id is not None
    return _Warrant("auto", case, decision, row.decision_id)


def _approved(proposal: ProposalRow, decision: Decision, case: Case, approvals: tuple[ApprovalRow, ...]) -> _Warrant | Withheld:
    action = action_adapter.validate_json(proposal.action)
    if decision.route.rank < Route.PROPOSE.rank or decision.action != action or case.action != action:
        return Withheld("decision", "The stored decision is not the one the approval was for.")
    needed = max(proposal.quorum, decision.quorum, 2 if CATALOGUE[action.action].irreversible else 1)
    if len({one.person for one in approvals}) < needed:
        return Withheld("quorum", f"{len(approvals)} of {needed} approvals are stored.")
    return _Warrant("approved", case, decision, proposal.decision_id, proposal, approvals)


async def _stored(session: AsyncSession, decision_id: str | None) -> Decision | None:
    """A stored decision whose body still has the digest it was stored with."""
    row = await session.get(DocumentRow, decision_id) if decision_id else None
    if row is None or row.body is None or row.kind != "decision":
        return None
    body = json.loads(row.body)
    return Decision.model_validate(body) if digest(body) == row.digest else None


async def _readings(session: AsyncSession, row: IncidentRow) -> Readings:
    rows = await session.exec(
        select(DocumentRow)
        .where(DocumentRow.incident_id == row.id, DocumentRow.kind == "readings")
        .order_by(col(DocumentRow.id).desc())
        .limit(1)
    )
    last = rows.first()
    return Readings() if last is None or last.body is None else Readings.model_validate_json(last.body)


# what stands against it ------------------------------------------------------------------------------------------------------


async def _switched_off(session: AsyncSession, row: IncidentRow, warrant: _Warrant, now: datetime) -> Withheld | None:
    """Halt, storm, block and take-over, each read in this transaction. Freezes are the first gate's, asked with the rest."""
    if row.taken_by is not None:
        return Withheld("taken_over", f"{row.taken_by} took the incident over.")
    halt = await halt_switch(session, now)
    if halt.halted:
        return Withheld("halted", f"Halted by {halt.by}: {halt.reason}.")
    storm = await storm_state(session, warrant.case.target.cluster_uid)
    if storm.latched:
        return Withheld("storm", f"Storm: {storm.reason}.")
    block = await block_on(session, warrant.case.target, now)
    if block is not None and (block.forbids == "all" or warrant.mode == "auto"):
        return Withheld("blocked", f"The target is blocked: {block.reason}.")
    return None


async def _not_authorised(session: AsyncSession, policy: Policy, warrant: _Warrant, now: datetime) -> Withheld | None:
    """Everybody who approved still may, and nobody approves what they proposed themselves (`Desk.edit` counts smaller edits)."""
    if warrant.mode == "auto":
        return None
    scope = policy.scope_for(warrant.case.target)
    entries = scope.approver if scope is not None else ()
    for approval in warrant.approvals:
        holding = holds(entries, Identity(person=approval.person, groups=None))
        looked_at_lately = now - approval.at <= FRESH_LOOK
        if holding is Holding.NO or (holding is Holding.UNKNOWN and not looked_at_lately):
            told = "is not an approver any more" if holding is Holding.NO else "could not be checked again"
            return Withheld("approver", f"{approval.person} approved it and {told}.")
    return None


async def _too_much_open(session: AsyncSession, policy: Policy, warrant: _Warrant) -> Withheld | None:
    """One open transaction per target, and a bounded number per cluster."""
    found = await open_orders(session, warrant.case.target.cluster_uid)
    if any((one.cluster_uid, one.namespace, one.kind, one.name) == warrant.case.target.key for one in found):
        return Withheld("open_on_target", f"Another order for {warrant.case.target.title} is still open.")
    scope = policy.scope_for(warrant.case.target)
    limit = (policy.numbers if scope is None else scope.numbers).open_per_cluster
    if len(found) >= limit:
        return Withheld("open_in_cluster", f"{len(found)} orders are open in this cluster; at most {limit} may be.")
    return None


async def _decided_again(
    session: AsyncSession, policy: Policy, row: IncidentRow, warrant: _Warrant, now: datetime
) -> _Warrant | Withheld:
    """Ask every gate once more, with budgets, standing and rules as they are in this transaction.

    Under rules that changed since, the new decision is stored and the order rests on it.
    """
    override = warrant.proposal.override_reason if warrant.proposal is not None else None
    switches = warrant.case.switches.model_copy(update={"override_reason": override})
    case = await refreshed(session, warrant.case.model_copy(update={"switches": switches}), policy, now)
    decision = decide(case, policy)
    needed = Route.AUTO if warrant.mode == "auto" else Route.PROPOSE
    changed = policy.hash != warrant.decision.policy_hash
    if decision.route.rank < needed.rank:
        gate = decision.deciding_gate
        told = gate.sentence if gate is not None else f"The route is {decision.route.value} now."
        since = " The rules changed since it was decided." if changed else ""
        return Withheld(f"gate:{gate.gate.value}" if gate is not None else "gate", f"{told}{since}")
    if not changed:
        return _Warrant(warrant.mode, case, warrant.decision, warrant.decision_id, warrant.proposal, warrant.approvals)
    if warrant.mode == "approved" and decision.quorum > len(warrant.approvals):
        return Withheld("quorum", f"The rules changed: {decision.quorum} approvals are needed now.")
    decision_id = store_document(session, row.id, "decision", decision, now=now).id
    return _Warrant(warrant.mode, case, decision, decision_id, warrant.proposal, warrant.approvals)


# parts of an order -----------------------------------------------------------------------------------------------------------


def _template_hash(warrant: _Warrant, facts: TargetFacts) -> str | None:
    """For an approved restart the one that was on the card, whatever was read since."""
    if warrant.proposal is not None and not isinstance(warrant.case.action, Scale):
        return warrant.proposal.fingerprint
    return facts.template_hash


def _domain(facts: TargetFacts | None) -> str | None:
    """The node the target runs on, where all of it runs on one."""
    nodes: Sequence[str] = facts.nodes if facts is not None else ()
    return nodes[0] if nodes else None
