"""The heads of the event chains, signed every ten minutes and logged.

Each incident's events form a hash chain (`catalog.events`), which proves order but not age: who can write the table could write a
whole new chain. A signed head fixes what the chains were at an instant, and each head names the one before it, so that a head
cannot be taken out either. `verify_chains` re-computes all of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta

import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from pydantic import ValidationError
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from catalog.clocks import Clock
from catalog.documents import Instant, StoredDocument, canonical, digest
from catalog.events import GENESIS, verify_chain
from catalog.ids import new_id
from catalog.orders import Signed
from catalog.signatures import SignatureRefused, sign, verified_body
from incidents import metrics
from incidents.leading import Term, repeat
from incidents.recording import read_events
from incidents.tables import ChainHeadRow, EventRow, IncidentRow

EVERY = timedelta(minutes=10)
POLL_S = 5.0

log = structlog.get_logger(__name__)


class ChainHead(StoredDocument):
    """What the chains were: (incident id, last seq, last hash) of every incident that moved since the head before."""

    at: Instant
    previous: str
    heads: tuple[tuple[str, int, str], ...]


class HeadSigner:
    """Signs the heads every ten minutes. Runs on the leader."""

    def __init__(self, clock: Clock, key: Ed25519PrivateKey) -> None:
        self._clock = clock
        self._key = key

    async def run(self, term: Term) -> None:
        """Sign until cancelled or the term is over.

        Raises:
            LeadershipLost: stop; the next leader goes on.
        """
        await repeat(lambda: self.step(term), pause_s=POLL_S, stage="chain")

    async def step(self, term: Term) -> ChainHead | None:
        """Sign if it is time to."""
        async with term.transaction() as session:
            return await sign_heads(session, self._key, now=self._clock.now())


async def sign_heads(session: AsyncSession, key: Ed25519PrivateKey, *, now: datetime) -> ChainHead | None:
    """Sign what moved since the last head; None when the last head is younger than ten minutes or nothing moved."""
    last = (await session.exec(select(ChainHeadRow).order_by(col(ChainHeadRow.id).desc()).limit(1))).first()
    if last is not None and now - last.at < EVERY:
        return None
    moved = select(IncidentRow.id, IncidentRow.last_seq, IncidentRow.last_hash).where(IncidentRow.last_seq > 0)
    signed_before: set[tuple[str, int, str]] = set()
    if last is not None:
        # Reaches back a little: a transaction that was open when the last head was made has an earlier time than that head.
        moved = moved.where(col(IncidentRow.updated_at) > last.at - timedelta(minutes=1))
        signed_before = set(ChainHead.model_validate_json(last.body).heads)
    rows = (await session.exec(moved.order_by(col(IncidentRow.id)))).all()
    heads = tuple(row for row in map(tuple, rows) if row not in signed_before)
    if not heads:
        return None
    document = ChainHead(at=now, previous=digest(json.loads(last.body)) if last else GENESIS, heads=heads)
    signed = sign(key, canonical(document))
    session.add(ChainHeadRow(id=new_id(now), at=now, body=signed.body, key_id=signed.key_id, signature=signed.signature))
    metrics.CHAIN_HEADS.inc()
    log.info("chain heads signed", heads=len(heads), digest=digest(document), key_id=signed.key_id, signature=signed.signature)
    return document


async def verify_chains(session: AsyncSession, keys: Mapping[str, Ed25519PublicKey] | None = None) -> list[str]:
    """Every break in any chain or head, one sentence each; empty when all of it holds.

    Without `keys` the signatures of the heads are not proven, only what they say.
    """
    broken: list[str] = []
    for row in await session.exec(select(IncidentRow).order_by(col(IncidentRow.number))):
        events = await read_events(session, row.id)
        sentence = verify_chain(events)
        if sentence is None and (row.last_seq, row.last_hash) != ((events[-1].seq, events[-1].hash) if events else (0, GENESIS)):
            sentence = f"the incident's last event is {row.last_seq}, the record ends at {len(events)}"
        if sentence:
            broken.append(f"incident {row.number}: {sentence}")
    return [*broken, *await _broken_heads(session, keys)]


async def _broken_heads(session: AsyncSession, keys: Mapping[str, Ed25519PublicKey] | None) -> list[str]:
    broken: list[str] = []
    previous = GENESIS
    for row in await session.exec(select(ChainHeadRow).order_by(col(ChainHeadRow.id))):
        when = f"chain head of {row.at:%Y-%m-%d %H:%M:%S}"
        try:
            if keys is not None:
                verified_body(Signed(body=row.body, key_id=row.key_id, signature=row.signature), keys)
            head = ChainHead.model_validate_json(row.body)
        except SignatureRefused as error:
            broken.append(f"{when}: {error}")
            continue
        except ValidationError:
            broken.append(f"{when}: it is not a chain head")
            continue
        if head.previous != previous:
            broken.append(f"{when}: it does not follow the head before it")
        previous = digest(json.loads(row.body))
        for incident_id, seq, hashed in head.heads:
            event = await session.get(EventRow, (incident_id, seq))
            if event is None or event.hash != hashed:
                broken.append(f"{when}: event {seq} of incident {incident_id} is not the one that was signed")
    return broken
