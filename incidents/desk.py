"""The approval desk: what a click or command on a proposal does, on every surface and every replica.

The order is always the same: the proposer is refused before anything is looked up; the person is authorised now; the live target
is read and compared with what the card showed; the rules are asked again; then one compare-and-set decides, and whoever comes
second is told who won. Everything that is not an approval leaves the proposal as it was, says why in a sentence, and is recorded.
Nothing here orders anything: an approval makes the incident due, and `incidents.mint` looks at everything once more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Protocol

import structlog
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from catalog.actions import Action, action_adapter, describe
from catalog.cases import Case
from catalog.decisions import Decision, Route
from catalog.episodes import CloseReason
from catalog.events import EventKind
from catalog.ids import is_id
from catalog.targets import Target, TargetFacts
from incidents import metrics
from incidents.answers import Answer, done, refused
from incidents.casing import refreshed
from incidents.clicks import (
    Asked,
    edited_case,
    is_smaller,
    may_not_take,
    not_an_edit,
    over,
    self_approval,
    settled,
    unknown_id,
    what_changed,
)
from incidents.context import Context
from incidents.paging import resolve_pages_of
from incidents.phases.moving import strengthen
from incidents.phases.proposing import NotProposable, fingerprint_of, make_proposal
from incidents.phases.situations import (
    ladder_numbers,
    locked_incident,
    phase_numbers,
    read_document,
    situation_of,
    target_of,
)
from incidents.phases.telling import tell
from incidents.recording import append_event, store_document
from incidents.tables import ApprovalRow, IncidentRow, OrderRow, ProposalRow
from ladder.deciding import decide
from ladder.roles import Holding, Identity, holds, refusal, who
from sources.errors import SourceError

log = structlog.get_logger(__name__)


class LiveTargets(Protocol):
    """Reads one target as it is now."""

    async def facts(self, target: Target) -> TargetFacts:
        """The live facts.

        Raises:
            SourceError: they could not be read in time.
        """


class Desk:
    """Answers clicks. Holds no state: any replica can answer any click, before and after a restart."""

    def __init__(self, ctx: Context, live: LiveTargets, *, wake: Callable[[], None] = lambda: None) -> None:
        self._ctx = ctx
        self._live = live
        self._wake = wake

    async def approve(self, proposal_id: str, identity: Identity, via: str, *, override: str = "") -> Answer:
        """Consent to exactly this proposal. `override`: the typed reason that a freeze asks for."""
        asked = await self._find(proposal_id)
        if isinstance(asked, Answer):
            return asked
        refused_first = self_approval(asked, identity) or self._authorise(asked, identity) or settled(asked, self._ctx.clock.now())
        if refused_first is not None:
            return await self._refuse(asked, identity, via, refused_first)
        facts = await self._read(asked)
        if isinstance(facts, Answer):
            return await self._refuse(asked, identity, via, facts)
        answer = await self._consent(asked, facts, identity, via, override)
        return await self._said(asked, identity, via, answer)

    async def reject(self, proposal_id: str, identity: Identity, via: str, why: str = "") -> Answer:
        """Refuse a proposal: people own the incident until another family or start of an alert comes."""
        asked = await self._find(proposal_id)
        if isinstance(asked, Answer):
            return asked
        refused_first = self._authorise(asked, identity) or settled(asked, self._ctx.clock.now())
        if refused_first is not None:
            return await self._refuse(asked, identity, via, refused_first)
        return await self._said(asked, identity, via, await self._reject(asked, identity, via, why))

    async def edit(self, proposal_id: str, identity: Identity, via: str, action: Action, *, override: str = "") -> Answer:
        """Approve with changes: the changed action is judged by every rule and becomes a proposal of its own.

        Its proposer is the editor, who therefore does not count as its approver, except where the edit makes the action smaller.
        """
        asked = await self._find(proposal_id)
        if isinstance(asked, Answer):
            return asked
        refused_first = self._authorise(asked, identity) or settled(asked, self._ctx.clock.now()) or not_an_edit(asked, action)
        if refused_first is not None:
            return await self._refuse(asked, identity, via, refused_first)
        facts = await self._read(asked)
        if isinstance(facts, Answer):
            return await self._refuse(asked, identity, via, facts)
        answer = await self._replace(asked, facts, identity, via, action, override)
        return await self._said(asked, identity, via, answer)

    async def take(self, incident_id: str, identity: Identity, via: str) -> Answer:
        """Take an incident over: the bot keeps its hands off. What is being carried out takes no further step."""
        async with self._ctx.database.transaction() as session:
            row = await locked_incident(session, incident_id)
            if row is None:
                return unknown_id(incident_id)
            answer = may_not_take(self._ctx.policies.current, row, identity) or await self._take(session, row, identity, via)
        self._wake()
        return answer

    # looking -----------------------------------------------------------------------------------------------------------------

    async def _find(self, proposal_id: str) -> Asked | Answer:
        async with self._ctx.database.reading() as session:
            proposal = await session.get(ProposalRow, proposal_id) if is_id(proposal_id) else None
            incident = await session.get(IncidentRow, proposal.incident_id) if proposal is not None else None
            case = await read_document(session, incident.case_id, Case) if incident is not None else None
        if proposal is None or incident is None:
            metrics.CLICKS.labels("unknown").inc()
            return unknown_id(proposal_id)
        target = target_of(incident) if case is None else case.target
        return Asked(proposal, incident, action_adapter.validate_json(proposal.action), target)

    def _authorise(self, asked: Asked, identity: Identity) -> Answer | None:
        scope = self._ctx.policies.current.scope_for(asked.target)
        sentence = refusal(scope, "approver", identity)
        if sentence is None:
            return None
        unknown = scope is not None and holds(scope.approver, identity) is Holding.UNKNOWN
        if unknown:
            return Answer(ok=False, code="unavailable", text=f"{sentence} Nothing was done.", rule="could_not_check")
        return Answer(ok=False, code="not_allowed", text=f"{sentence} Nothing was done.", rule="not_an_approver")

    async def _read(self, asked: Asked) -> TargetFacts | Answer:
        target = asked.target
        try:
            facts = await self._live.facts(target)
            if facts.exists:
                fingerprint_of(asked.action, facts)
            return facts
        except (SourceError, NotProposable) as error:
            # Nothing was begun, so nothing is decided by it: the proposal stays as it is and can be approved a moment later.
            text = (
                f"{target.title} could not be read just now ({error}), so nothing was done. The proposal still stands: try again."
            )
            return Answer(ok=False, code="unavailable", text=text, rule="target_unreadable", incident_id=asked.incident.id)

    # deciding ----------------------------------------------------------------------------------------------------------------

    async def _consent(self, asked: Asked, facts: TargetFacts, identity: Identity, via: str, override: str) -> Answer:
        async with self._ctx.database.transaction() as session:
            row, proposal, lost = await self._hold(session, asked)
            now = self._ctx.clock.now()
            if lost is not None or row is None or proposal is None:
                return lost or unknown_id(asked.proposal.id)
            changed = what_changed(asked, facts)
            if changed is not None:
                return await self._make_stale(session, row, proposal, changed, now)
            reason = override or proposal.override_reason
            objection = await self._objection(session, row, proposal, facts, reason, now)
            if objection is not None:
                return objection
            proposal.override_reason = reason
            return await self._count(session, row, proposal, identity, via, now)

    async def _hold(self, session: AsyncSession, asked: Asked) -> tuple[IncidentRow | None, ProposalRow | None, Answer | None]:
        """Both rows locked and read anew, with the reason why it is too late, if it is."""
        row = await locked_incident(session, asked.incident.id)
        proposal = await session.get(ProposalRow, asked.proposal.id, with_for_update=True, populate_existing=True)
        if row is None or proposal is None:
            return None, None, None
        now = self._ctx.clock.now()
        lost = settled(replace(asked, proposal=proposal, incident=row), now)
        if lost is None:
            lost = over(row, (await situation_of(session, row, now, phase_numbers(self._ctx.policies.current, row))).resolved_at)
        return row, proposal, lost

    async def _objection(
        self,
        session: AsyncSession,
        row: IncidentRow,
        proposal: ProposalRow,
        facts: TargetFacts,
        override: str | None,
        now: datetime,
    ) -> Answer | None:
        """What the rules say now: halted, frozen, storm, blocked, or changed since the card was made."""
        decision = await read_document(session, proposal.decision_id, Decision)
        case = await read_document(session, row.case_id, Case)
        if decision is None or case is None:
            return refused(
                "What it was decided from was erased.", rule="decision_erased", unblock="a new decision", incident_id=row.id
            )
        policy = self._ctx.policies.current
        switches = case.switches.model_copy(update={"override_reason": override})
        case = case.model_copy(update={"facts": facts, "action": decision.action, "switches": switches})
        fresh = decide(await refreshed(session, case, policy, now), policy)
        if fresh.route.rank >= Route.PROPOSE.rank:
            return None
        gate = fresh.deciding_gate
        changed = " The rules changed since this card was made." if policy.hash != decision.policy_hash else ""
        sentence = gate.sentence if gate is not None else "It is not allowed now."
        return refused(
            f"Nothing was done: {sentence}{changed}",
            rule=f"gate:{gate.gate.value}" if gate is not None else "gate",
            unblock=gate.unblock if gate is not None else "",
            incident_id=row.id,
        )

    async def _count(
        self, session: AsyncSession, row: IncidentRow, proposal: ProposalRow, identity: Identity, via: str, now: datetime
    ) -> Answer:
        """Add one consent; with the last one needed the proposal is approved. The rows are held, so one click is the last."""
        approvals = (await session.exec(select(ApprovalRow).where(ApprovalRow.proposal_id == proposal.id))).all()
        if identity.person in {approval.person for approval in approvals}:
            told = f"You approved it already; {len(approvals)} of {proposal.quorum} have."
            return refused(told, rule="already_counted", incident_id=row.id)
        session.add(ApprovalRow(proposal_id=proposal.id, person=identity.person, via=via, at=now))
        reached = len(approvals) + 1 >= proposal.quorum
        if reached:
            proposal.state, proposal.decided_by, proposal.decided_at = "approved", identity.person, now
            row.next_at = now
            metrics.PROPOSALS.labels("approved").inc()
        session.add(proposal)
        payload = {
            "proposal_id": proposal.id,
            "via": via,
            "counted": len(approvals) + 1,
            "quorum": proposal.quorum,
            "reached": reached,
        }
        append_event(session, row, EventKind.APPROVED, at=now, now=now, actor=identity.person, payload=payload)
        await tell(session, self._ctx.policies.current, row, now, urgent=True)
        action = describe(action_adapter.validate_json(proposal.action))
        if not reached:
            return done(f"Counted: {len(approvals) + 1} of {proposal.quorum} approvals for {action}.", incident_id=row.id)
        return done(f"Approved: {action}.", incident_id=row.id)

    async def _make_stale(
        self, session: AsyncSession, row: IncidentRow, proposal: ProposalRow, changed: str, now: datetime
    ) -> Answer:
        proposal.state, proposal.state_reason, proposal.decided_at = "stale", changed, now
        row.next_at = now
        session.add(proposal)
        payload = {"proposal_id": proposal.id, "why": changed}
        append_event(session, row, EventKind.PROPOSAL_STALE, at=now, now=now, actor="bot", payload=payload)
        metrics.PROPOSALS.labels("stale").inc()
        await tell(session, self._ctx.policies.current, row, now, urgent=True)
        return refused(
            f"Nothing was done: {changed} since this card was made.",
            rule="stale",
            unblock="the new proposal, if there is one",
            incident_id=row.id,
        )

    async def _reject(self, asked: Asked, identity: Identity, via: str, why: str) -> Answer:
        async with self._ctx.database.transaction() as session:
            row, proposal, lost = await self._hold(session, asked)
            if lost is not None or row is None or proposal is None:
                return lost or unknown_id(asked.proposal.id)
            now = self._ctx.clock.now()
            proposal.state, proposal.state_reason = "rejected", why
            proposal.decided_by, proposal.decided_at = identity.person, now
            session.add(proposal)
            strengthen(row, CloseReason.REJECTED)
            row.next_at = now
            payload = {"proposal_id": proposal.id, "via": via, "why": why}
            append_event(session, row, EventKind.REJECTED, at=now, now=now, actor=identity.person, payload=payload)
            metrics.PROPOSALS.labels("rejected").inc()
            await tell(session, self._ctx.policies.current, row, now, urgent=True)
        return done(f"Rejected: {describe(asked.action)} on {asked.target.title}. People own it now.", incident_id=row.id)

    async def _replace(
        self, asked: Asked, facts: TargetFacts, identity: Identity, via: str, action: Action, override: str
    ) -> Answer:
        policy = self._ctx.policies.current
        async with self._ctx.database.transaction() as session:
            row, old, lost = await self._hold(session, asked)
            if lost is not None or row is None or old is None:
                return lost or unknown_id(asked.proposal.id)
            now = self._ctx.clock.now()
            changed = what_changed(asked, facts)
            if changed is not None:
                return await self._make_stale(session, row, old, changed, now)
            case = await read_document(session, row.case_id, Case)
            if case is None:
                return refused("What it was decided from was erased.", rule="decision_erased", incident_id=row.id)
            case = await refreshed(
                session, edited_case(case, facts, action, identity, override or old.override_reason), policy, now
            )
            decision = decide(case, policy)
            if decision.route.rank < Route.PROPOSE.rank:
                gate = decision.deciding_gate
                told = gate.sentence if gate is not None else "it is not allowed"
                return refused(
                    f"{describe(action)} cannot be proposed: {told}", rule="edit_refused", unblock=gate.unblock if gate else ""
                )
            try:
                return await self._propose_edit(session, row, old, case, decision, facts, identity, via, now)
            except NotProposable as error:
                return Answer(ok=False, code="unavailable", text=f"{error}; nothing was done.", rule="target_unreadable")

    async def _propose_edit(
        self,
        session: AsyncSession,
        row: IncidentRow,
        old: ProposalRow,
        case: Case,
        decision: Decision,
        facts: TargetFacts,
        identity: Identity,
        via: str,
        now: datetime,
    ) -> Answer:
        policy = self._ctx.policies.current
        fingerprint_of(decision.action, facts)
        before = action_adapter.validate_json(old.action)
        old.state, old.state_reason, old.decided_by, old.decided_at = "superseded", "edited", identity.person, now
        session.add(old)
        superseded = {"proposal_id": old.id, "why": f"edited by {identity.person}"}
        append_event(session, row, EventKind.PROPOSAL_SUPERSEDED, at=now, now=now, actor=identity.person, payload=superseded)
        row.case_id = store_document(session, row.id, "case", case, now=now).id
        row.decision_id = store_document(session, row.id, "decision", decision, now=now).id
        row.decided_at, row.route, row.action = now, Route.PROPOSE.value, decision.action.action.value
        proposal = make_proposal(
            session,
            row,
            decision,
            row.decision_id,
            facts,
            ladder_numbers(policy, row),
            now,
            requested_by=identity.person,
            override=case.switches.override_reason,
        )
        await session.flush()
        if is_smaller(decision.action, before):
            return await self._count(session, row, proposal, identity, via, now)
        await tell(session, policy, row, now, urgent=True)
        scope = policy.scope_for(case.target)
        others = who(entry for entry in (scope.approver if scope else ()) if entry != f"person:{identity.person}")
        return done(
            f"Proposed with your change: {describe(decision.action)}. Whoever proposes does not approve; ask {others}.",
            incident_id=row.id,
        )

    async def _take(self, session: AsyncSession, row: IncidentRow, identity: Identity, via: str) -> Answer:
        now = self._ctx.clock.now()
        row.taken_by, row.next_at = identity.person, now
        order = await session.get(OrderRow, row.order_id, with_for_update=True, populate_existing=True) if row.order_id else None
        running = order is not None and order.state in ("minted", "delivered")
        if order is not None and running:
            order.taken_over = True
            session.add(order)
        await resolve_pages_of(session, row.id, by=identity.person, now=now)
        payload = {"via": via, "phase": row.phase, "order_id": order.id if order is not None and running else None}
        append_event(session, row, EventKind.TAKEN_OVER, at=now, now=now, actor=identity.person, payload=payload)
        await tell(session, self._ctx.policies.current, row, now, urgent=True)
        told = " What is open takes no further step and ends as its checks say." if running else ""
        return done(f"Incident #{row.number} is yours; the bot keeps its hands off.{told}", incident_id=row.id)

    # telling -----------------------------------------------------------------------------------------------------------------

    async def _refuse(self, asked: Asked, identity: Identity, via: str, answer: Answer) -> Answer:
        return await self._said(asked, identity, via, answer)

    async def _said(self, asked: Asked, identity: Identity, via: str, answer: Answer) -> Answer:
        """Record a refused click; wake the reconciler after one that changed something."""
        metrics.CLICKS.labels(answer.rule or "done").inc()
        if answer.ok or answer.rule == "stale":
            self._wake()
        if not answer.ok:
            await self._audit(asked, identity, via, answer)
        return answer.model_copy(update={"incident_id": asked.incident.id})

    async def _audit(self, asked: Asked, identity: Identity, via: str, answer: Answer) -> None:
        now = self._ctx.clock.now()
        async with self._ctx.database.transaction() as session:
            row = await locked_incident(session, asked.incident.id)
            if row is None:
                return
            payload = {"proposal_id": asked.proposal.id, "via": via, "rule": answer.rule, "sentence": answer.text}
            append_event(session, row, EventKind.CLICK_REFUSED, at=now, now=now, actor=identity.person, payload=payload)


async def open_proposal(session: AsyncSession, incident_id: str) -> ProposalRow | None:
    """The pending proposal of an incident, else the last one it had: what `approve ID` and `reject ID` mean."""
    row = await session.get(IncidentRow, incident_id)
    if row is None:
        return None
    if row.proposal_id is not None:
        return await session.get(ProposalRow, row.proposal_id)
    rows = await session.exec(
        select(ProposalRow).where(ProposalRow.incident_id == incident_id).order_by(col(ProposalRow.created_at).desc()).limit(1)
    )
    return rows.first()
