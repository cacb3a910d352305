"""What is forgotten, and when. After 90 days payloads go and their digests stay, so that every chain still verifies.

Erased: the payloads of events and the documents of closed incidents, the texts of their alerts, alerts that never came to an
incident. Kept for good: incidents, events without payload, episodes, labels, orders and outcomes; and the documents of incidents
that a person labelled, because what was learnt from them must be re-computable from their inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Delete, Update, delete, exists, update
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


class Purged(Document):
    """How much one pass erased."""

    events: int = 0
    documents: int = 0
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
    """Erase at most 500 of each kind that are older than `keep`; call again until nothing was erased."""
    await hold_alerts(session)
    before = now - keep
    purged = Purged(
        events=await _erase_events(session, before),
        documents=await _erase_documents(session, before),
        alerts=await _erase_alerts(session, before),
        messages=await _delete(
            session, OutboxRow, OutboxRow.id, col(OutboxRow.state) != "due", col(OutboxRow.created_at) < now - KEEP_SENT
        ),
        commands=await _delete(session, CommandRow, CommandRow.key, col(CommandRow.at) < before),
        tokens=await _delete(
            session, TokenRow, TokenRow.digest, col(TokenRow.kind).in_(("login", "session")), col(TokenRow.expires_at) < before
        ),
    )
    for what, count in purged.model_dump().items():
        if count:
            metrics.ERASED.labels(what).inc(count)
    return purged


def _closed(incident_id: Any) -> Any:
    return exists().where(col(IncidentRow.id) == incident_id, col(IncidentRow.phase) == Phase.CLOSED.value)


async def _erase_events(session: AsyncSession, before: datetime) -> int:
    rows = await session.exec(
        select(EventRow.incident_id, EventRow.seq)
        .where(col(EventRow.recorded_at) < before, col(EventRow.payload).is_not(None), _closed(EventRow.incident_id))
        .limit(_CHUNK)
    )
    keys = list(rows)
    for incident_id in {key[0] for key in keys}:
        seqs = [seq for owner, seq in keys if owner == incident_id]
        await session.exec(
            update(EventRow).where(col(EventRow.incident_id) == incident_id, col(EventRow.seq).in_(seqs)).values(payload=None)
        )
    return len(keys)


async def _erase_documents(session: AsyncSession, before: datetime) -> int:
    labelled = exists().where(col(LabelRow.incident_id) == DocumentRow.incident_id)
    rows = await session.exec(
        select(DocumentRow.id)
        .where(col(DocumentRow.at) < before, col(DocumentRow.body).is_not(None), _closed(DocumentRow.incident_id), ~labelled)
        .limit(_CHUNK)
    )
    ids = list(rows)
    return await _change(session, ids, update(DocumentRow).where(col(DocumentRow.id).in_(ids)).values(body=None))


async def _erase_alerts(session: AsyncSession, before: datetime) -> int:
    """Attached alerts lose their texts and keep their key; others go whole."""
    old = col(AlertRow.last_seen_at) < before
    rows = await session.exec(
        select(AlertRow.id)
        .where(old, _closed(AlertRow.incident_id), (col(AlertRow.annotations) != "{}") | (col(AlertRow.labels) != "{}"))
        .limit(_CHUNK)
    )
    ids = [row_id for row_id in rows if row_id is not None]
    erased = await _change(
        session, ids, update(AlertRow).where(col(AlertRow.id).in_(ids)).values(annotations="{}", labels="{}", generator_url="")
    )
    return erased + await _delete(session, AlertRow, AlertRow.id, old, col(AlertRow.state).in_(("dropped", "unresolved")))


async def _delete(session: AsyncSession, table: Any, key: Any, *over: Any) -> int:
    ids = list(await session.exec(select(key).where(*over).limit(_CHUNK)))
    return await _change(session, ids, delete(table).where(col(key).in_(ids)))


async def _change(session: AsyncSession, ids: Sequence[object], statement: Update | Delete) -> int:
    if ids:
        await session.exec(statement)
    return len(ids)
