"""decided → proposed: people are asked. A proposal is immutable; a change of mind is another proposal."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlmodel.ext.asyncio.session import AsyncSession

from catalog.actions import Action, Scale, describe
from catalog.decisions import Decision
from catalog.documents import canonical
from catalog.episodes import Phase
from catalog.events import EventKind
from catalog.ids import new_id
from catalog.targets import TargetFacts
from incidents import metrics
from incidents.phases.moving import enter
from incidents.phases.situations import ladder_numbers
from incidents.phases.telling import say, tell
from incidents.recording import append_event
from incidents.tables import IncidentRow, ProposalRow
from ladder.numbers import Numbers
from ladder.policy import Policy


class NotProposable(Exception):
    """The live target was not read, so that nobody could tell later whether it is still the same. Decide again."""


def fingerprint_of(action: Action, facts: TargetFacts) -> str:
    """What must not have changed between card and click: replicas for a scale, the pod template for a restart.

    Raises:
        NotProposable: it was not read.
    """
    read = facts.desired if isinstance(action, Scale) else facts.template_hash
    if read is None or facts.target.uid is None:
        raise NotProposable(f"{facts.target.title} was not read well enough to be proposed")
    return str(read)


def make_proposal(
    session: AsyncSession,
    row: IncidentRow,
    decision: Decision,
    decision_id: str,
    facts: TargetFacts,
    numbers: Numbers,
    now: datetime,
    *,
    requested_by: str | None = None,
    override: str | None = None,
) -> ProposalRow:
    """Store a pending proposal and go to `proposed`, in the caller's transaction.

    Raises:
        NotProposable: the live target was not read.
    """
    fingerprint, lifetime = fingerprint_of(decision.action, facts), numbers.proposal_lifetime
    proposal = ProposalRow(
        id=new_id(now),
        incident_id=row.id,
        decision_id=decision_id,
        scope=decision.scope or "",
        action=canonical(decision.action).decode(),
        requested_by=requested_by,
        quorum=decision.quorum,
        target_uid=facts.target.uid or "",
        fingerprint=fingerprint,
        override_reason=override,
        created_at=now,
        expires_at=now + lifetime,
        remind_at=now + lifetime * numbers.proposal_reminder,
    )
    session.add(proposal)
    row.proposal_id = proposal.id
    enter(row, Phase.PROPOSED, now, next_at=proposal.remind_at)
    append_event(
        session, row, EventKind.PROPOSED, at=now, now=now, actor=requested_by or "bot", payload=_payload(proposal, decision)
    )
    metrics.PROPOSALS.labels("pending").inc()
    return proposal


async def propose(
    session: AsyncSession, policy: Policy, row: IncidentRow, decision: Decision, facts: TargetFacts, now: datetime
) -> ProposalRow:
    """Ask people for the stored decision's action.

    Raises:
        NotProposable: the live target was not read.
    """
    assert row.decision_id is not None
    proposal = make_proposal(session, row, decision, row.decision_id, facts, ladder_numbers(policy, row), now)
    await tell(session, policy, row, now, urgent=True)
    return proposal


async def remind(session: AsyncSession, policy: Policy, row: IncidentRow, now: datetime) -> None:
    """Half of the proposal's time is over: say so once."""
    proposal = await session.get(ProposalRow, row.proposal_id, with_for_update=True) if row.proposal_id else None
    if proposal is None or proposal.remind_at is None:
        return
    proposal.remind_at = None
    session.add(proposal)
    row.next_at = proposal.expires_at
    payload = {"proposal_id": proposal.id, "expires_at": proposal.expires_at.isoformat()}
    append_event(session, row, EventKind.REMINDED, at=now, now=now, actor="bot", payload=payload)
    text = f"Still waiting for an answer; the proposal expires at {proposal.expires_at:%H:%M:%S} UTC."
    await say(session, policy, row, "reminder", proposal.id, text, now)
    await tell(session, policy, row, now, urgent=True)


def _payload(proposal: ProposalRow, decision: Decision) -> dict[str, Any]:
    return {
        "proposal_id": proposal.id,
        "decision_id": proposal.decision_id,
        "action": describe(decision.action),
        "quorum": proposal.quorum,
        "expires_at": proposal.expires_at.isoformat(),
        "requested_by": proposal.requested_by,
    }
