"""What is forgotten, and when. 90 days after an incident closed its payloads go and their digests stay, so that every chain still
verifies.

Erased: the payloads of its events, its documents, the texts of its alerts; and alerts that never came to an incident. Kept for
good: incidents, events without payload, episodes, labels, orders and outcomes; and the documents of incidents that a person
labelled, because what was learnt from them must be re-computable from their inputs.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import delete, exists, update
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from catalog.clocks import Clock
from catalog.documents import Document
from catalog.episodes import Phase
from incidents import metrics
from incidents.ingest import hold_alerts
from incidents.leading import Term, repeat
from incidents.tables import AlertRow, CommandRow, DocumentRow, EventRow, IncidentRow, LabelRow, OutboxRow, TokenRow

KEEP = timedelta(days=90)
KEEP_SENT = timedelta(days=7)
EVERY_S = 3600.0
_CHUNK = 500
_INCIDENTS = 50


class Purged(Document):
    """How much one pass erased."""

    incidents: int = 0
    alerts: int = 0
    messages: int = 0
    commands: int = 0
    tokens: int = 0


class Retention:
    """Erases once an hour what is over its time. Runs on the leader."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def run(self, term: Term) -> None:
        """Erase until cancelled or the term is over.

        Raises:
            LeadershipLost: stop; the next leader goes on.
        """

        async def step() -> None:
            # One chunk per transaction, so that nobody waits long for it.
            while await self.step(term) != Purged():
                pass

        await repeat(step, pause_s=EVERY_S, stage="retention")

    async def step(self, term: Term) -> Purged:
        """Erase at most one chunk of each kind."""
        async with term.transaction() as session:
            return await purge(session, self._clock.now())


async def purge(session: AsyncSession, now: datetime, *, keep: timedelta = KEEP) -> Purged:
    """Erase one chunk of each kind that is older than `keep`; call again until nothing was erased."""
    await hold_alerts(session)
    before = now - keep
    due = col(OutboxRow.state) == "due"
    purged = Purged(
        incidents=await _erase_incidents(session, before, now),
        alerts=sum([await _forget_alerts(session, state, before) for state in ("dropped", "unresolved")]),
        messages=await _delete(session, OutboxRow, OutboxRow.id, ~due, col(OutboxRow.created_at) < now - KEEP_SENT),
        commands=await _delete(session, CommandRow, CommandRow.key, col(CommandRow.at) < before),
        tokens=await _delete(
            session, TokenRow, TokenRow.digest, col(TokenRow.kind).in_(("login", "session")), col(TokenRow.expires_at) < before
        ),
    )
    for what, count in purged.model_dump().items():
        if count:
            metrics.ERASED.labels(what).inc(count)
    return purged


async def _erase_incidents(session: AsyncSession, before: datetime, now: datetime) -> int:
    """Payloads of events, texts of alerts and documents of incidents that closed before then. Digests and keys stay."""
    rows = await session.exec(
        select(IncidentRow.id)
        .where(IncidentRow.phase == Phase.CLOSED.value, col(IncidentRow.erased_at).is_(None), col(IncidentRow.closed_at) < before)
        .order_by(col(IncidentRow.closed_at))
        .limit(_INCIDENTS)
    )
    ids = list(rows)
    if not ids:
        return 0
    labelled = exists().where(col(LabelRow.incident_id) == DocumentRow.incident_id)
    await session.exec(update(EventRow).where(col(EventRow.incident_id).in_(ids)).values(payload=None))
    await session.exec(update(DocumentRow).where(col(DocumentRow.incident_id).in_(ids), ~labelled).values(body=None))
    await session.exec(
        update(AlertRow).where(col(AlertRow.incident_id).in_(ids)).values(annotations="{}", labels="{}", generator_url="")
    )
    await session.exec(update(IncidentRow).where(col(IncidentRow.id).in_(ids)).values(erased_at=now))
    return len(ids)


async def _forget_alerts(session: AsyncSession, state: str, before: datetime) -> int:
    """Alerts that never came to an incident."""
    return await _delete(session, AlertRow, AlertRow.id, col(AlertRow.state) == state, col(AlertRow.last_seen_at) < before)


async def _delete(session: AsyncSession, table: Any, key: Any, *over: Any) -> int:
    ids = list(await session.exec(select(key).where(*over).limit(_CHUNK)))
    if ids:
        await session.exec(delete(table).where(col(key).in_(ids)))
    return len(ids)
