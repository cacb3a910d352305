"""From rows to a `Situation`: one look at everything that decides where an incident goes next."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, Literal, TypeVar, cast

from sqlalchemy import func
from sqlalchemy import select as columns
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from catalog.alerts import Alert, AlertSeverity, AlertState
from catalog.decisions import Route
from catalog.documents import StoredDocument
from catalog.episodes import CloseReason, Phase
from catalog.outcomes import End
from catalog.targets import Target, TargetKind
from incidents.tables import AlertRow, DocumentRow, IncidentRow, OrderRow, ProposalRow
from incidents.transitions import Again, AlertFact, Numbers, OrderFact, ProposalFact, Situation
from ladder.numbers import Numbers as LadderNumbers
from ladder.policy import Policy
from ladder.scopes import MergedScope

MAX_ALERTS = 50

StoredT = TypeVar("StoredT", bound=StoredDocument)


async def locked_incident(session: AsyncSession, incident_id: str) -> IncidentRow | None:
    """The incident row, held by this transaction until it ends and read afresh."""
    statement = select(IncidentRow).where(IncidentRow.id == incident_id).with_for_update().execution_options(populate_existing=True)
    return (await session.exec(statement)).first()


async def situation_of(session: AsyncSession, row: IncidentRow, now: datetime, numbers: Numbers) -> Situation:
    """Everything `incidents.transitions.next_move` looks at, read in this transaction."""
    return Situation(
        phase=Phase(row.phase),
        alerts=await alert_facts(session, row.id),
        now=now,
        origin=cast(Literal["alert", "follow_up"], row.origin),
        judged_names=frozenset(json.loads(row.judged_names)),
        judged_severity=AlertSeverity(row.judged_severity) if row.judged_severity else None,
        route=Route(row.route) if row.route else None,
        decided_at=row.decided_at,
        taken_by=row.taken_by,
        proposal=await _proposal_fact(session, row.proposal_id),
        order=await _order_fact(session, row.order_id),
        watch_until=row.watch_until,
        strongest=CloseReason(row.strongest) if row.strongest else None,
        again=Again(row.again) if row.again else None,
        attempt=row.attempt,
        proposals_expired=row.proposals_expired,
        refusals=row.refusals,
        dormant_until=row.watch_until if row.origin == "follow_up" and row.phase == Phase.OPEN.value else None,
        numbers=numbers,
    )


async def alert_facts(session: AsyncSession, incident_id: str) -> tuple[AlertFact, ...]:
    """The incident's alerts, one fact per (family, severity, status), so that ten thousand pods cost what one costs."""
    # sqlmodel's own select knows at most four columns; SQLAlchemy's is the same statement without its types.
    statement: Any = (
        columns(
            col(AlertRow.name),
            col(AlertRow.severity),
            col(AlertRow.status),
            func.max(col(AlertRow.starts_at)),
            func.max(col(AlertRow.received_at)),
            func.max(col(AlertRow.last_seen_at)),
            func.max(col(AlertRow.resolved_at)),
        )
        .where(col(AlertRow.incident_id) == incident_id, col(AlertRow.state) == AlertState.ATTACHED.value)
        .group_by(col(AlertRow.name), col(AlertRow.severity), col(AlertRow.status))
        .order_by(col(AlertRow.name), col(AlertRow.severity), col(AlertRow.status))
    )
    groups = await session.exec(statement)
    return tuple(
        AlertFact(
            name=name,
            severity=_severity(severity),
            firing=status == "firing",
            starts_at=min(starts_at, received_at),  # a start in the future is one of a clock, not of an alert
            received_at=received_at,
            last_seen_at=last_seen_at,
            resolved_at=resolved_at,
        )
        for name, severity, status, starts_at, received_at, last_seen_at, resolved_at in groups
    )


async def alerts_of(session: AsyncSession, incident_id: str, *, limit: int = MAX_ALERTS) -> tuple[Alert, ...]:
    """The incident's alerts for those who assess it: firing ones first, newest first, at most `limit`."""
    rows = await session.exec(
        select(AlertRow)
        .where(AlertRow.incident_id == incident_id, AlertRow.state == AlertState.ATTACHED.value)
        .order_by(col(AlertRow.status), col(AlertRow.starts_at).desc(), col(AlertRow.id))
        .limit(limit)
    )
    return tuple(
        Alert(
            fingerprint=row.fingerprint,
            status="firing" if row.status == "firing" else "resolved",
            starts_at=row.began_at,
            ends_at=row.resolved_at,
            labels=json.loads(row.labels),
            annotations=json.loads(row.annotations),
            generator_url=row.generator_url,
        )
        for row in rows
    )


async def read_document(session: AsyncSession, document_id: str | None, model: type[StoredT]) -> StoredT | None:
    """A stored document. None: there is none, or its body was erased after its retention."""
    row = await session.get(DocumentRow, document_id) if document_id else None
    return None if row is None or row.body is None else model.model_validate_json(row.body)


def merged_scope(policy: Policy, row: IncidentRow) -> MergedScope | None:
    """What the policy says for the incident's target; None when no scope names it."""
    return policy.scope_for(target_of(row))


def ladder_numbers(policy: Policy, row: IncidentRow) -> LadderNumbers:
    """The numbers in force for the incident's target."""
    scope = merged_scope(policy, row)
    return policy.numbers if scope is None else scope.numbers


def phase_numbers(policy: Policy, row: IncidentRow) -> Numbers:
    """The numbers that transitions run by."""
    return Numbers(evidence_fresh=ladder_numbers(policy, row).evidence_freshness)


def target_of(row: IncidentRow) -> Target:
    """The incident's target as stored."""
    return Target(
        cluster_uid=row.cluster_uid,
        cluster=row.cluster,
        namespace=row.namespace,
        kind=TargetKind(row.kind),
        name=row.name,
        uid=row.uid,
    )


def _severity(text: str) -> AlertSeverity:
    return AlertSeverity(text) if text in {severity.value for severity in AlertSeverity} else AlertSeverity.WARNING


async def _proposal_fact(session: AsyncSession, proposal_id: str | None) -> ProposalFact | None:
    row = await session.get(ProposalRow, proposal_id, populate_existing=True) if proposal_id else None
    if row is None:
        return None
    return ProposalFact(
        state=row.state,  # type: ignore[arg-type]  # the column holds exactly the literal's values; ProposalFact names them
        expires_at=row.expires_at,
        remind_at=row.remind_at,
        decided_at=row.decided_at,
    )


async def _order_fact(session: AsyncSession, order_id: str | None) -> OrderFact | None:
    row = await session.get(OrderRow, order_id, populate_existing=True) if order_id else None
    if row is None:
        return None
    return OrderFact(
        state=row.state,  # type: ignore[arg-type]  # as above
        expires_at=row.expires_at,
        end=End(row.end) if row.end else None,
        ended_at=row.ended_at,
    )
