"""What is forgotten after 90 days, and that every chain still verifies, on both databases."""

from __future__ import annotations

from datetime import timedelta

from incidents_setting import MovableClock, Send, alert_rows, envelope, incident_rows, one_alert
from sqlmodel import select

from catalog.documents import StoredDocument
from catalog.events import verify_chain
from catalog.targets import Target, TargetKind
from incidents.database import Database
from incidents.leading import Candidate
from incidents.recording import read_events, store_document
from incidents.resolving import Found, settle
from incidents.retention import KEEP, Purged, Retention
from incidents.tables import DocumentRow, LabelRow
from ladder.policy import parse_policy


async def lived_through(database: Database, send: Send, clock: MovableClock, *, labelled: bool = False) -> None:
    """One incident with an alert and a document, one alert that was dropped."""
    await send(envelope(one_alert(), one_alert("dropped", alertname="Watchdog")))
    target = Target(cluster_uid="uid-eu", cluster="eu-1", namespace="shop", kind=TargetKind.DEPLOYMENT, name="cart")
    rows = await alert_rows(database)
    async with database.transaction() as session:
        await settle(session, [Found(rows[0].id or 0, target)], parse_policy("schema: 1"), clock.now())
    (incident,) = await incident_rows(database)
    async with database.transaction() as session:
        store_document(session, incident.id, "diagnosis", StoredDocument(), now=clock.now())
        if labelled:
            now = clock.now()
            session.add(LabelRow(id="l", incident_id=incident.id, question="action", right=True, person="ana", at=now))


async def close(database: Database) -> None:
    (incident,) = await incident_rows(database)
    async with database.transaction() as session:
        incident.phase, incident.closed_at = "closed", incident.updated_at
        await session.merge(incident)


async def erase(database: Database, clock: MovableClock) -> Purged:
    candidate = Candidate(database, clock, "replica-1")
    term = candidate.term or await candidate.acquire()
    assert term is not None
    purged = await Retention(clock).step(term)
    await candidate.release()
    return purged


async def documents(database: Database) -> list[DocumentRow]:
    async with database.reading() as session:
        return list(await session.exec(select(DocumentRow)))


async def test_after_90_days_payloads_go_and_the_chain_still_verifies(database: Database, send: Send, clock: MovableClock) -> None:
    await lived_through(database, send, clock)
    await close(database)
    clock.advance((KEEP - timedelta(minutes=1)).total_seconds())
    assert await erase(database, clock) == Purged()
    clock.advance(120)
    assert await erase(database, clock) == Purged(incidents=1, alerts=1)
    assert await erase(database, clock) == Purged()
    (incident,) = await incident_rows(database)
    async with database.reading() as session:
        events = await read_events(session, incident.id)
    assert [event.payload for event in events] == [None, None]
    assert verify_chain(events) is None
    (document,) = await documents(database)
    assert (document.body, len(document.digest)) == (None, 64)
    (alert,) = await alert_rows(database)
    assert (alert.labels, alert.fingerprint, alert.incident_id) == ("{}", "f1", incident.id)


async def test_an_open_incident_loses_nothing(database: Database, send: Send, clock: MovableClock) -> None:
    await lived_through(database, send, clock)
    clock.advance(2 * KEEP.total_seconds())
    assert await erase(database, clock) == Purged(alerts=1)
    (document,) = await documents(database)
    assert document.body is not None


async def test_what_people_labelled_can_be_run_again_for_ever(database: Database, send: Send, clock: MovableClock) -> None:
    await lived_through(database, send, clock, labelled=True)
    await close(database)
    clock.advance(2 * KEEP.total_seconds())
    assert (await erase(database, clock)).incidents == 1
    (document,) = await documents(database)
    assert document.body is not None
