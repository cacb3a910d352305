"""Appending to the record of an incident: the only writer of events and stored documents."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from catalog.documents import StoredDocument, canonical, digest
from catalog.events import Event, EventKind, event_hash
from catalog.ids import new_id
from incidents.tables import DocumentRow, EventRow, IncidentRow

MAX_DOCUMENT_BYTES = 64 * 1024


class DocumentTooLarge(Exception):
    """A document over 64 kB. The maker must cut it before it is stored."""


def append_event(
    session: AsyncSession,
    incident: IncidentRow,
    kind: EventKind,
    *,
    at: datetime,
    now: datetime,
    actor: str,
    payload: dict[str, Any],
) -> EventRow:
    """Add one event to the chain. The caller's transaction holds the incident row, whose head moves with it."""
    payload_text = canonical(payload).decode()
    payload_digest = digest(payload)
    seq = incident.last_seq + 1
    hashed = event_hash(incident.id, seq, kind, at, actor, payload_digest, incident.last_hash)
    row = EventRow(
        incident_id=incident.id,
        seq=seq,
        kind=kind.value,
        at=at,
        recorded_at=now,
        actor=actor,
        payload=payload_text,
        payload_digest=payload_digest,
        previous=incident.last_hash,
        hash=hashed,
    )
    incident.last_seq, incident.last_hash, incident.updated_at = seq, hashed, now
    session.add(row)
    session.add(incident)
    return row


def store_document(session: AsyncSession, incident_id: str, kind: str, document: StoredDocument, *, now: datetime) -> DocumentRow:
    """Keep a document whole.

    Raises:
        DocumentTooLarge: its canonical form is over 64 kB.
    """
    body = canonical(document)
    if len(body) > MAX_DOCUMENT_BYTES:
        raise DocumentTooLarge(f"{kind} of incident {incident_id} has {len(body)} bytes; at most {MAX_DOCUMENT_BYTES} are kept")
    row = DocumentRow(
        id=new_id(now),
        incident_id=incident_id,
        kind=kind,
        schema_version=document.schema_version,
        at=now,
        body=body.decode(),
        digest=digest(document),
    )
    session.add(row)
    return row


async def read_events(session: AsyncSession, incident_id: str) -> list[Event]:
    """The whole record of an incident in order."""
    rows = (await session.exec(select(EventRow).where(EventRow.incident_id == incident_id).order_by(col(EventRow.seq)))).all()
    return [
        Event(
            incident_id=row.incident_id,
            seq=row.seq,
            kind=EventKind(row.kind),
            at=row.at,
            recorded_at=row.recorded_at,
            actor=row.actor,
            payload=None if row.payload is None else json.loads(row.payload),
            payload_digest=row.payload_digest,
            previous=row.previous,
            hash=row.hash,
        )
        for row in rows
    ]
