"""Signed heads: what was is proven, and every way to change it is found, on both databases."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from incidents_setting import MovableClock, until
from sqlalchemy import delete, update
from sqlmodel import col, select

from catalog.events import EventKind, event_hash
from catalog.signatures import key_id
from catalog.targets import Target, TargetKind
from incidents.chain import EVERY, HeadSigner, sign_heads, verify_chains
from incidents.database import Database
from incidents.leading import Candidate
from incidents.recording import append_event, read_events
from incidents.resolving import open_incident
from incidents.tables import ChainHeadRow, EventRow, IncidentRow

KEY = Ed25519PrivateKey.generate()
KEYS = {key_id(KEY.public_key()): KEY.public_key()}


async def lived_through(database: Database, clock: MovableClock) -> None:
    """Two incidents with events, signed twice."""
    async with database.transaction() as session:
        for number in (1, 2):
            target = Target(cluster_uid="u", cluster="c", namespace="shop", kind=TargetKind.DEPLOYMENT, name=f"w{number}")
            open_incident(session, target, number=number, origin="alert", now=clock.now())
    await signed(database, clock)
    clock.advance(EVERY.total_seconds())
    async with database.transaction() as session:
        for row in list(await session.exec(select(IncidentRow))):
            append_event(session, row, EventKind.NOTIFIED, at=clock.now(), now=clock.now(), actor="bot", payload={"n": 1})
    await signed(database, clock)


async def signed(database: Database, clock: MovableClock) -> bool:
    async with database.transaction() as session:
        return await sign_heads(session, KEY, now=clock.now()) is not None


async def broken(database: Database) -> list[str]:
    async with database.reading() as session:
        return await verify_chains(session, KEYS)


async def test_what_is_untouched_holds(database: Database, clock: MovableClock) -> None:
    await lived_through(database, clock)
    assert await broken(database) == []
    async with database.reading() as session:
        assert await verify_chains(session) == []
        heads = list(await session.exec(select(ChainHeadRow).order_by(col(ChainHeadRow.id))))
    assert [len(json.loads(head.body)["heads"]) for head in heads] == [2, 2]


async def test_heads_are_signed_every_ten_minutes_and_only_when_something_moved(database: Database, clock: MovableClock) -> None:
    assert not await signed(database, clock), "nothing to sign"
    await lived_through(database, clock)
    clock.advance(EVERY.total_seconds() - 1)
    async with database.transaction() as session:
        row = (await session.exec(select(IncidentRow).where(IncidentRow.number == 1))).one()
        append_event(session, row, EventKind.CLOSED, at=clock.now(), now=clock.now(), actor="bot", payload={})
    assert not await signed(database, clock)
    clock.advance(1)
    assert await signed(database, clock)
    clock.advance(2 * EVERY.total_seconds())
    assert not await signed(database, clock)


async def test_an_erased_payload_breaks_nothing(database: Database, clock: MovableClock) -> None:
    await lived_through(database, clock)
    async with database.transaction() as session:
        await session.exec(update(EventRow).values(payload=None))
    assert await broken(database) == []


FORGERIES: dict[str, Callable[[], Any]] = {
    "payload": lambda: update(EventRow).where(col(EventRow.seq) == 2).values(payload='{"n":2}'),
    "actor": lambda: update(EventRow).where(col(EventRow.seq) == 1).values(actor="ana"),
    "event removed": lambda: delete(EventRow).where(col(EventRow.seq) == 1),
    "last event removed": lambda: delete(EventRow).where(col(EventRow.seq) == 2),
    "incident's head": lambda: update(IncidentRow).values(last_hash="0" * 64),
    "head removed": lambda: delete(ChainHeadRow).where(
        col(ChainHeadRow.id).in_(select(col(ChainHeadRow.id)).order_by("id").limit(1))
    ),
    "signature": lambda: update(ChainHeadRow).values(signature="AAAA"),
    "head's text": lambda: update(ChainHeadRow).values(body='{"schema":1}'),
    "head's key": lambda: update(ChainHeadRow).values(key_id="0" * 16),
}


@pytest.mark.parametrize("forgery", FORGERIES)
async def test_a_forgery_is_found(database: Database, clock: MovableClock, forgery: str) -> None:
    await lived_through(database, clock)
    async with database.transaction() as session:
        await session.exec(FORGERIES[forgery]())
    assert await broken(database)


async def test_a_chain_that_was_re_made_whole_is_found_by_the_signed_head(database: Database, clock: MovableClock) -> None:
    """Who can write the table can compute hashes; the head that was signed before cannot be computed again."""
    await lived_through(database, clock)
    async with database.transaction() as session:
        incident = (await session.exec(select(IncidentRow).where(IncidentRow.number == 1))).one()
        events = await read_events(session, incident.id)
        previous = "0" * 64
        for one in events:
            hashed = event_hash(incident.id, one.seq, one.kind, one.at, "somebody", one.payload_digest, previous)
            await session.exec(
                update(EventRow)
                .where(col(EventRow.incident_id) == incident.id, col(EventRow.seq) == one.seq)
                .values(actor="somebody", previous=previous, hash=hashed)
            )
            previous = hashed
        incident.last_hash = previous
        session.add(incident)
    sentences = await broken(database)
    assert len(sentences) == 2
    assert all("is not the one that was signed" in sentence for sentence in sentences)


async def test_the_task_signs_by_itself(database: Database, clock: MovableClock) -> None:
    async with database.transaction() as session:
        target = Target(cluster_uid="u", cluster="c", namespace="shop", kind=TargetKind.DEPLOYMENT, name="w")
        open_incident(session, target, number=1, origin="alert", now=clock.now())
    term = await Candidate(database, clock, "replica-1").acquire()
    assert term is not None
    signer = HeadSigner(clock, KEY)
    assert await signer.step(term) is not None
    running = asyncio.create_task(signer.run(term))
    await until(lambda: not running.done())
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await broken(database) == []
