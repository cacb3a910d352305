"""A closed incident as something to learn from: projected from its record, completed by labels.

An episode is complete when its hold watch has ended, which is when the incident closes. Labels may come before and after; each
one settles it anew.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Literal, cast

from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from catalog.actions import RemediationAction
from catalog.cases import Case
from catalog.decisions import Decision, Route
from catalog.diagnoses import Family
from catalog.episodes import CloseReason, Episode, Label, LabelOrigin, Question
from catalog.events import EventKind
from catalog.outcomes import End
from incidents.calibrating import Verdict, count_episode, settle_episode
from incidents.settling import counting, labels_by_incident, settled_right
from incidents.tables import (
    ApprovalRow,
    DocumentRow,
    EpisodeRow,
    EventRow,
    IncidentRow,
    LabelRow,
    OrderRow,
    OutcomeRow,
    ProposalRow,
)
from ladder.policy import Policy


class NotClosed(Exception):
    """The incident is not closed, so there is no episode yet. Close it first."""


async def close_episode(session: AsyncSession, policy: Policy, incident: IncidentRow, now: datetime) -> EpisodeRow:
    """Make the episode of a closed incident, in the transaction that closes it. A second call changes nothing.

    Raises:
        NotClosed: the incident has no close reason.
    """
    known = await session.get(EpisodeRow, incident.id, populate_existing=True)
    if known is not None:
        return known
    if incident.closed_at is None or incident.close_reason is None:
        raise NotClosed(f"incident {incident.number} is {incident.phase}")
    episode = await _projected(session, incident, incident.closed_at)
    session.add(episode)
    await session.flush()
    await count_episode(session, episode)
    await resettle(session, policy, episode, now)
    return episode


async def resettle(session: AsyncSession, policy: Policy, episode: EpisodeRow, now: datetime) -> None:
    """Settle the episode from all its labels as they are now."""
    labels = (await labels_by_incident(session, [episode.incident_id])).get(episode.incident_id, [])
    end = End(episode.end) if episode.end else None
    right = settled_right(counting(labels, episode.approvers), end, CloseReason(episode.close_reason))
    await settle_episode(session, policy, episode, None if right is None else Verdict(right=right), now)


async def episode_of(session: AsyncSession, incident_id: str) -> Episode | None:
    """The episode as a document, with every label; None until the incident has closed."""
    row = await session.get(EpisodeRow, incident_id)
    incident = await session.get(IncidentRow, incident_id)
    if row is None or incident is None:
        return None
    labels = (await labels_by_incident(session, [incident_id])).get(incident_id, [])
    return Episode(
        incident_id=incident_id,
        number=row.number,
        cluster=incident.cluster,
        namespace=row.namespace,
        scope=row.scope,
        match_digest=row.match_digest,
        family=Family(row.family),
        action=RemediationAction(row.action),
        route=cast(Literal["record", "notify", "propose", "auto"], row.route),
        executed=row.executed,
        end=End(row.end) if row.end else None,
        close_reason=CloseReason(row.close_reason),
        approvers=tuple(json.loads(row.approvers)),
        opened_at=row.opened_at,
        closed_at=row.closed_at,
        labels=tuple(_label(label) for label in sorted(labels, key=lambda one: (one.at, one.id))),
        confidence=row.confidence,
        evidence_weight=row.evidence_weight,
    )


async def approvers_of(session: AsyncSession, incident_id: str) -> list[str]:
    """Everybody who approved a proposal of the incident."""
    rows = await session.exec(
        select(ApprovalRow.person)
        .join(ProposalRow, col(ProposalRow.id) == col(ApprovalRow.proposal_id))
        .where(ProposalRow.incident_id == incident_id)
    )
    return sorted(set(rows.all()))


async def _projected(session: AsyncSession, incident: IncidentRow, closed_at: datetime) -> EpisodeRow:
    order, end = await _carried_out(session, incident.id)
    decision = await _decision(session, order.decision_id if order else incident.decision_id)
    case = await _case(session, incident.case_id)
    kinds = await _event_kinds(session, incident.id)
    evidence = case.evidence if case else None
    return EpisodeRow(
        incident_id=incident.id,
        number=incident.number,
        cluster_uid=incident.cluster_uid,
        namespace=incident.namespace,
        kind=incident.kind,
        name=incident.name,
        scope=order.scope if order else (decision.scope if decision else incident.scope),
        match_digest=order.match_digest if order else (decision.match_digest if decision else None),
        family=(order.family if order else incident.family) or Family.UNKNOWN.value,
        action=(order.action if order else incident.action) or RemediationAction.NO_ACTION.value,
        route=(decision.route.value if decision else incident.route) or Route.RECORD.value,
        proposed=EventKind.PROPOSED.value in kinds,
        executed=order is not None,
        end=end,
        close_reason=incident.close_reason or CloseReason.UNKNOWN.value,
        origin=LabelOrigin.HUMAN.value if incident.origin == "alert" else incident.origin,
        approvers=json.dumps(await approvers_of(session, incident.id)),
        opened_at=incident.opened_at,
        closed_at=closed_at,
        confidence=case.confidence if case else 0.0,
        evidence_weight=evidence.evidence_weight if evidence else None,
    )


async def _carried_out(session: AsyncSession, incident_id: str) -> tuple[OrderRow | None, str | None]:
    """The order that the episode is about and how it ended: the gravest end of those that touched the cluster."""
    rows = await session.exec(
        select(OrderRow, OutcomeRow.end)
        .join(OutcomeRow, col(OutcomeRow.order_id) == col(OrderRow.id))
        .where(OrderRow.incident_id == incident_id, OutcomeRow.end != End.REFUSED.value)
        .order_by(col(OrderRow.minted_at))
    )
    found = list(rows.all())
    if not found:
        return None, None
    order, end = max(found, key=lambda pair: _GRAVITY.index(End(pair[1])))
    return order, end


_GRAVITY: Sequence[End] = (
    End.REFUSED,
    End.COMMITTED,
    End.CONFLICT,
    End.INEFFECTIVE,
    End.ROLLED_BACK,
    End.UNVERIFIED,
    End.UNDO_INCOMPLETE,
    End.REGRESSED,
)


async def _decision(session: AsyncSession, document_id: str | None) -> Decision | None:
    body = await _body(session, document_id)
    return None if body is None else Decision.model_validate_json(body)


async def _case(session: AsyncSession, document_id: str | None) -> Case | None:
    body = await _body(session, document_id)
    return None if body is None else Case.model_validate_json(body)


async def _body(session: AsyncSession, document_id: str | None) -> str | None:
    row = await session.get(DocumentRow, document_id) if document_id else None
    return row.body if row is not None else None


async def _event_kinds(session: AsyncSession, incident_id: str) -> set[str]:
    return set((await session.exec(select(EventRow.kind).where(EventRow.incident_id == incident_id).distinct())).all())


def _label(row: LabelRow) -> Label:
    return Label(
        id=row.id,
        incident_id=row.incident_id,
        question=Question(row.question),
        right=row.right,
        person=row.person,
        at=row.at,
        note=row.note,
        origin=LabelOrigin(row.origin),
        settles=row.settles,
    )
