"""The approval desk: what a click or command on a proposal does, on every surface and every replica.

The order is always the same: the proposer is refused before anything is looked up; the person is authorised now; the live target
is read and compared with what the card showed; the rules are asked again; then one compare-and-set decides, and whoever comes
second is told who won. Everything that is not an approval leaves the proposal as it was, says why in a sentence, and is recorded.
Nothing here orders anything: an approval makes the incident due, and `incidents.mint` looks at everything once more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

import structlog
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from catalog.actions import Action, Scale, action_adapter, describe
from catalog.cases import Case
from catalog.decisions import Decision, Route
from catalog.episodes import CloseReason, Phase
from catalog.events import EventKind
from catalog.ids import is_id
from catalog.targets import Target, TargetFacts
from incidents import metrics
from incidents.answers import Answer, done, refused
from incidents.casing import refreshed
from incidents.context import Context
from incidents.paging import resolve_pages_of
from incidents.phases.moving import strengthen
from incidents.phases.proposing import NotProposable, fingerprint_of, make_proposal
from incidents.phases.situations import (
    ladder_numbers,
    locked_incident,
    merged_scope,
    phase_numbers,
    read_document,
    situation_of,
    target_of,
)
from incidents.phases.telling import tell
from incidents.recording import append_event, store_document
from incidents.tables import ApprovalRow, IncidentRow, OrderRow, ProposalRow
from ladder.deciding import decide
from ladder.policy import Policy
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


@dataclass(frozen=True)
class _Asked:
    """What was found of a proposal before anything was decided."""

    proposal: ProposalRow
    incident: IncidentRow
    action: Action
    target: Target


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
        refused_first = (
            _self_approval(asked, identity) or self._authorise(asked, identity) or _settled(asked, self._ctx.clock.now())
        )
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
        refused_first = self._authorise(asked, identity) or _settled(asked, self._ctx.clock.now())
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
        refused_first = self._authorise(asked, identity) or _settled(asked, self._ctx.clock.now()) or _not_an_edit(asked, action)
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
                return _unknown(incident_id)
            answer = _may_not_take(self._ctx.policies.current, row, identity) or await self._take(session, row, identity, via)
        self._wake()
        return answer

    # looking -----------------------------------------------------------------------------------------------------------------

    async def _find(self, proposal_id: str) -> _Asked | Answer:
        async with self._ctx.database.reading() as session:
            proposal = await session.get(ProposalRow, proposal_id) if is_id(proposal_id) else None
            incident = await session.get(IncidentRow, proposal.incident_id) if proposal is not None else None
            case = await read_document(session, incident.case_id, Case) if incident is not None else None
        if proposal is None or incident is None:
            metrics.CLICKS.labels("unknown").inc()
            return _unknown(proposal_id)
        target = target_of(incident) if case is None else case.target
        return _Asked(proposal, incident, action_adapter.validate_json(proposal.action), target)

    def _authorise(self, asked: _Asked, identity: Identity) -> Answer | None:
        scope = self._ctx.policies.current.scope_for(asked.target)
        sentence = refusal(scope, "approver", identity)
        if sentence is None:
            return None
        unknown = scope is not None and holds(scope.approver, identity) is Holding.UNKNOWN
        if unknown:
            return Answer(ok=False, code="unavailable", text=f"{sentence} Nothing was done.", rule="could_not_check")
        return Answer(ok=False, code="not_allowed", text=f"{sentence} Nothing was done.", rule="not_an_approver")

    async def _read(self, asked: _Asked) -> TargetFacts | Answer:
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

    async def _consent(self, asked: _Asked, facts: TargetFacts, identity: Identity, via: str, override: str) -> Answer:
        async with self._ctx.database.transaction() as session:
            row, proposal, lost = await self._hold(session, asked)
            now = self._ctx.clock.now()
            if lost is not None or row is None or proposal is None:
                return lost or _unknown(asked.proposal.id)
            changed = _what_changed(asked, facts)
            if changed is not None:
                return await self._make_stale(session, row, proposal, changed, now)
            reason = override or proposal.override_reason
            objection = await self._objection(session, row, proposal, facts, reason, now)
            if objection is not None:
                return objection
            proposal.override_reason = reason
            return await self._count(session, row, proposal, identity, via, now)

    async def _hold(self, session: AsyncSession, asked: _Asked) -> tuple[IncidentRow | None, ProposalRow | None, Answer | None]:
        """Both rows locked and read anew, with the reason why it is too late, if it is."""
        row = await locked_incident(session, asked.incident.id)
        proposal = await session.get(ProposalRow, asked.proposal.id, with_for_update=True, populate_existing=True)
        if row is None or proposal is None:
            return None, None, None
        now = self._ctx.clock.now()
        lost = _settled(replace(asked, proposal=proposal, incident=row), now)
        if lost is None:
            lost = _over(row, (await situation_of(session, row, now, phase_numbers(self._ctx.policies.current, row))).resolved_at)
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

    async def _reject(self, asked: _Asked, identity: Identity, via: str, why: str) -> Answer:
        async with self._ctx.database.transaction() as session:
            row, proposal, lost = await self._hold(session, asked)
            if lost is not None or row is None or proposal is None:
                return lost or _unknown(asked.proposal.id)
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
        self, asked: _Asked, facts: TargetFacts, identity: Identity, via: str, action: Action, override: str
    ) -> Answer:
        policy = self._ctx.policies.current
        async with self._ctx.database.transaction() as session:
            row, old, lost = await self._hold(session, asked)
            if lost is not None or row is None or old is None:
                return lost or _unknown(asked.proposal.id)
            now = self._ctx.clock.now()
            changed = _what_changed(asked, facts)
            if changed is not None:
                return await self._make_stale(session, row, old, changed, now)
            case = await read_document(session, row.case_id, Case)
            if case is None:
                return refused("What it was decided from was erased.", rule="decision_erased", incident_id=row.id)
            case = await refreshed(session, _edited(case, facts, action, identity, override or old.override_reason), policy, now)
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

    async def _refuse(self, asked: _Asked, identity: Identity, via: str, answer: Answer) -> Answer:
        return await self._said(asked, identity, via, answer)

    async def _said(self, asked: _Asked, identity: Identity, via: str, answer: Answer) -> Answer:
        """Record a refused click; wake the reconciler after one that changed something."""
        metrics.CLICKS.labels(answer.rule or "done").inc()
        if answer.ok or answer.rule == "stale":
            self._wake()
        if not answer.ok:
            await self._audit(asked, identity, via, answer)
        return answer.model_copy(update={"incident_id": asked.incident.id})

    async def _audit(self, asked: _Asked, identity: Identity, via: str, answer: Answer) -> None:
        now = self._ctx.clock.now()
        async with self._ctx.database.transaction() as session:
            row = await locked_incident(session, asked.incident.id)
            if row is None:
                return
            payload = {"proposal_id": asked.proposal.id, "via": via, "rule": answer.rule, "sentence": answer.text}
            append_event(session, row, EventKind.CLICK_REFUSED, at=now, now=now, actor=identity.person, payload=payload)


# pure ------------------------------------------------------------------------------------------------------------------------


def is_smaller(action: Action, before: Action) -> bool:
    """Whether an edit makes a scale smaller in the same direction: only then does the editor consent to less than was asked."""
    if not isinstance(action, Scale) or not isinstance(before, Scale) or action.upward != before.upward:
        return False
    return abs(action.to_replicas - action.from_replicas) < abs(before.to_replicas - before.from_replicas)


def _edited(case: Case, facts: TargetFacts, action: Action, identity: Identity, override: str | None) -> Case:
    switches = case.switches.model_copy(update={"override_reason": override})
    return case.model_copy(update={"facts": facts, "action": action, "requested_by": identity.person, "switches": switches})


def _not_an_edit(asked: _Asked, action: Action) -> Answer | None:
    if action.action is not asked.action.action:
        told = f"A change stays within the action: this proposal is to {describe(asked.action)}."
        return refused(told, rule="another_action", incident_id=asked.incident.id)
    if action == asked.action:
        return refused("Nothing was changed.", rule="unchanged", unblock="approve it as it is", incident_id=asked.incident.id)
    return None


def _self_approval(asked: _Asked, identity: Identity) -> Answer | None:
    if asked.proposal.requested_by != identity.person:
        return None
    return refused(
        "You proposed this yourself, and whoever proposes does not approve. Nothing was done.",
        rule="self_approval",
        unblock="another approver",
        incident_id=asked.incident.id,
    )


def _settled(asked: _Asked, now: datetime) -> Answer | None:
    """Why it is too late for this proposal; None while it waits."""
    proposal, incident = asked.proposal, asked.incident
    if proposal.state == "pending" and now < proposal.expires_at:
        if incident.phase == Phase.PROPOSED.value and incident.proposal_id == proposal.id and incident.taken_by is None:
            return None
        told = f"taken over by {incident.taken_by}" if incident.taken_by else f"in phase {incident.phase} now"
        return refused(f"Nothing was done: the incident is {told}.", rule="incident_moved_on", incident_id=incident.id)
    state = "expired" if proposal.state == "pending" else proposal.state
    return refused(f"Nothing was done: {_fate(proposal, state)}.", rule=_RULES.get(state, state), incident_id=incident.id)


_RULES = {"approved": "already_approved", "carried_out": "already_approved", "rejected": "already_rejected"}


def _fate(proposal: ProposalRow, state: str) -> str:
    at = f" at {proposal.decided_at:%H:%M:%S} UTC" if proposal.decided_at else ""
    why = f" ({proposal.state_reason})" if proposal.state_reason else ""
    match state:
        case "approved" | "carried_out":
            return f"already approved by {proposal.decided_by}{at}"
        case "rejected":
            return f"already rejected by {proposal.decided_by}{at}{why}"
        case "expired":
            return f"the proposal expired at {proposal.expires_at:%H:%M:%S} UTC; nobody had approved it by then"
        case "withdrawn":
            return f"the proposal was withdrawn{at}{why}"
        case "superseded":
            return f"the proposal was replaced by a newer one{at}{why}"
        case "withheld":
            return f"it was approved by {proposal.decided_by} and then withheld{why}"
        case _:
            return f"the proposal is {state}{at}{why}"


def _over(row: IncidentRow, resolved_at: datetime | None) -> Answer | None:
    if resolved_at is None:
        return None
    told = f"Nothing was done: every alert of the incident resolved by {resolved_at:%H:%M:%S} UTC."
    return refused(told, rule="resolved", incident_id=row.id)


def _what_changed(asked: _Asked, facts: TargetFacts) -> str | None:
    """How the live target differs from the one on the card; None when it is the same."""
    title = facts.target.title
    if not facts.exists:
        return f"{title} is gone"
    if facts.target.uid != asked.proposal.target_uid:
        return f"{title} was deleted and made anew"
    found = fingerprint_of(asked.action, facts)
    if found == asked.proposal.fingerprint:
        return None
    if isinstance(asked.action, Scale):
        return f"{title} was scaled from {asked.proposal.fingerprint} to {found}"
    return f"the pod template of {title} was changed"


def _may_not_take(policy: Policy, row: IncidentRow, identity: Identity) -> Answer | None:
    if row.phase == Phase.CLOSED.value:
        return refused(f"Incident #{row.number} is closed already ({row.close_reason}).", rule="closed", incident_id=row.id)
    if row.taken_by is not None:
        return refused(f"{row.taken_by} has incident #{row.number} already.", rule="already_taken", incident_id=row.id)
    scope = merged_scope(policy, row)
    if scope is None:
        named = identity.person in policy.people
        held, entries = (Holding.YES if named else Holding.NO), tuple(f"person:{name}" for name in policy.people)
    else:
        entries = tuple(dict.fromkeys((*scope.approver, *scope.labeller, *scope.owner)))
        held = holds(entries, identity)
    if held is Holding.YES:
        return None
    code, rule = ("unavailable", "could_not_check") if held is Holding.UNKNOWN else ("not_allowed", "no_role")
    told = "could not be checked" if held is Holding.UNKNOWN else "does not hold"
    text = f"A role of {identity.person} here {told}, so nothing was done; ask {who(entries)}."
    return Answer(ok=False, code=code, text=text, rule=rule, incident_id=row.id)


def _unknown(found: str) -> Answer:
    shown = found if is_id(found) else "that"
    return Answer(
        ok=False,
        code="not_found",
        text=f"{shown} is expired or unknown here; nothing was done.",
        rule="unknown",
        unblock="/sre status",
    )


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
