"""Looks at incidents for people: lists, one card, alerts that name nothing. Reads only, by indexed queries."""

from __future__ import annotations

import json

from sqlalchemy import func
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from catalog.alerts import AlertState
from catalog.documents import Document, Instant
from catalog.episodes import CloseReason, Phase
from catalog.targets import Target, TargetKind
from incidents.cards import Card, Tone, card_of, closed_headline
from incidents.context import Context
from incidents.grammar import IncidentId
from incidents.tables import AlertRow, IncidentRow


class IncidentLine(Document):
    """One incident in a list."""

    incident_id: str
    number: int
    headline: str
    tone: Tone
    phase: Phase
    severity: str
    target: Target
    alerts: int
    scope: str | None
    route: str | None
    opened_at: Instant
    closed_at: Instant | None = None
    close_reason: CloseReason | None = None
    linked_to: str | None = None


class UnresolvedAlert(Document):
    """An alert that names no workload."""

    name: str
    severity: str
    reason: str
    labels: str
    last_seen_at: Instant


async def incident_row(session: AsyncSession, incident: IncidentId) -> IncidentRow | None:
    """The row of an incident named by number or ULID."""
    if incident.ulid is not None:
        return await session.get(IncidentRow, incident.ulid)
    return (await session.exec(select(IncidentRow).where(IncidentRow.number == incident.number))).first()


async def incident_card(context: Context, incident: IncidentId) -> Card | None:
    """The card of one incident as it is now; None when there is no such incident."""
    async with context.database.reading() as session:
        row = await incident_row(session, incident)
        return None if row is None else await card_from_row(context, session, row)


async def card_from_row(context: Context, session: AsyncSession, row: IncidentRow) -> Card:
    """The card of a row, with the people its scope names."""
    scope = context.policies.current.scope_for(target_of(row))
    return await card_of(session, row, now=context.clock.now(), approvers=scope.approver if scope else ())


async def list_incidents(context: Context, *, closed: bool, limit: int) -> list[IncidentLine]:
    """Open incidents, those that wait for people first; or closed ones, latest first."""
    async with context.database.reading() as session:
        wanted = select(IncidentRow)
        if closed:
            wanted = wanted.where(IncidentRow.phase == Phase.CLOSED.value).order_by(col(IncidentRow.closed_at).desc())
        else:
            wanted = wanted.where(col(IncidentRow.phase) != Phase.CLOSED.value).order_by(col(IncidentRow.number).desc())
        rows = (await session.exec(wanted.limit(limit))).all()
        counts = await _alert_counts(session, [row.id for row in rows])
        lines = [await _line(context, session, row, counts.get(row.id, 0)) for row in rows]
    return lines if closed else sorted(lines, key=lambda line: line.phase is not Phase.PROPOSED)


async def list_unresolved(context: Context, limit: int = 200) -> list[UnresolvedAlert]:
    """Firing alerts that name no workload, seen last first."""
    async with context.database.reading() as session:
        rows = await session.exec(
            select(AlertRow)
            .where(AlertRow.state == AlertState.UNRESOLVED.value, AlertRow.status == "firing")
            .order_by(col(AlertRow.last_seen_at).desc())
            .limit(limit)
        )
        return [
            UnresolvedAlert(
                name=row.name or "(no alertname)",
                severity=row.severity,
                reason=row.reason,
                labels=", ".join(f"{key}={value}" for key, value in sorted(json.loads(row.labels).items()) if key != "alertname"),
                last_seen_at=row.last_seen_at,
            )
            for row in rows
        ]


def target_of(row: IncidentRow) -> Target:
    """The target an incident is about."""
    return Target(
        cluster_uid=row.cluster_uid,
        cluster=row.cluster,
        namespace=row.namespace,
        kind=TargetKind(row.kind),
        name=row.name,
        uid=row.uid,
    )


async def _alert_counts(session: AsyncSession, ids: list[str]) -> dict[str, int]:
    if not ids:
        return {}
    counted = await session.exec(
        select(AlertRow.incident_id, func.count()).where(col(AlertRow.incident_id).in_(ids)).group_by(col(AlertRow.incident_id))
    )
    return {incident_id: count for incident_id, count in counted if incident_id is not None}


async def _line(context: Context, session: AsyncSession, row: IncidentRow, alerts: int) -> IncidentLine:
    if row.phase == Phase.CLOSED.value:
        tone, headline = closed_headline(row)
    else:
        card = await card_of(session, row, now=context.clock.now(), timeline=False)
        tone, headline = card.tone, card.headline
    return IncidentLine(
        incident_id=row.id,
        number=row.number,
        headline=headline,
        tone=tone,
        phase=Phase(row.phase),
        severity=row.severity,
        target=target_of(row),
        alerts=alerts,
        scope=row.scope,
        route=row.route,
        opened_at=row.opened_at,
        closed_at=row.closed_at,
        close_reason=CloseReason(row.close_reason) if row.close_reason else None,
        linked_to=row.linked_to,
    )
