"""What is to be said, kept until it has been said. A chat outage delays words, never actions.

Whoever changes an incident enqueues in the same transaction. There are two kinds of rows. A *message* is sent once: its key is its
identity, and enqueueing it again does nothing. A *card* says "bring the card of this incident up to date": its content is
projected at the moment it is sent, so that after an outage each card is sent once, with its latest state, however much happened.

Sending is at least once and looks before it repeats: a row that was tried before and has no reference yet is first looked for on
the surface by its key. So a crash leaves at most one duplicate, and none where the surface can find its own messages.

    SurfaceError
    ├── SurfaceUnavailable   nothing of this surface can be sent: it rests, with growing pauses
    ├── ChannelBusy          one channel asked us to slow down: that channel rests for as long as it said
    ├── MessageGone          the message to edit is no longer there: it is posted anew
    └── MessageRefused       the surface will never take this: the row is closed with its trouble, people see it in the console
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

import structlog
from sqlalchemy import func
from sqlalchemy.dialects import postgresql, sqlite
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from catalog.documents import Document, digest
from incidents import metrics
from incidents.context import Context
from incidents.leading import Term, repeat
from incidents.tables import MessageRow, OutboxRow

CARD = "card"
URGENT, APPROVAL, NORMAL, DIGEST = 0, 1, 5, 9
"""Priorities: pages, cards that wait for a person, everything else, what can wait."""

SEND_TIMEOUT_S = 30.0
CLAIM = timedelta(seconds=60)
POLL_S = 0.5
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0
_BATCH = 20

log = structlog.get_logger(__name__)


class SurfaceError(Exception):
    """Root of what a surface may answer instead of a reference."""


class SurfaceUnavailable(SurfaceError):
    """The surface cannot be reached or is failing. `retry_after`: seconds it asked for, if it did."""

    def __init__(self, reason: str, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


class ChannelBusy(SurfaceError):
    """One channel is rate-limited for `retry_after` seconds."""

    def __init__(self, reason: str, retry_after: float) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


class MessageGone(SurfaceError):
    """The message to edit was deleted or can no longer be edited."""


class MessageRefused(SurfaceError):
    """The surface will not take this message, now or later."""


class Delivery(Document):
    """One message for one surface. With `reference` it edits that message, else it posts a new one that carries `key`."""

    key: str
    channel: str
    kind: str
    incident_id: str | None
    content: dict[str, Any]
    reference: str | None = None


class Surface(Protocol):
    """Where words go. Knows how to render and send, and nothing about incidents."""

    @property
    def name(self) -> str:
        """As in `OutboxRow.surface`: slack, discord, …"""

    async def send(self, delivery: Delivery) -> str:
        """Post or edit; returns the message's reference.

        Raises:
            SurfaceError: one of its four kinds.
        """

    async def find(self, delivery: Delivery) -> str | None:
        """The reference of a message that was posted with this key, None when there is none or the surface cannot tell.

        Raises:
            SurfaceError: it could not be asked.
        """


Projector = Callable[[AsyncSession, str, str], Awaitable[Document | None]]
"""(session, incident id, kind) → what the card shows now; None when there is nothing to show."""


async def enqueue(
    session: AsyncSession,
    *,
    key: str,
    surface: str,
    channel: str,
    kind: str,
    now: datetime,
    incident_id: str | None = None,
    body: Mapping[str, Any] | None = None,
    priority: int = NORMAL,
) -> None:
    """Have a message sent. The same key again does nothing, whether or not it was sent already."""
    row = _values(key, surface, channel, kind, now, incident_id, body, priority)
    insert = postgresql.insert(OutboxRow) if _dialect(session) == "postgresql" else sqlite.insert(OutboxRow)
    await session.exec(insert.values(row).on_conflict_do_nothing(index_elements=["key"]))


async def refresh_card(
    session: AsyncSession, *, incident_id: str, surface: str, channel: str, now: datetime, kind: str = CARD, priority: int = NORMAL
) -> None:
    """Have the card of an incident brought up to date. Any number of these before the next sending is one sending."""
    row = _values(f"{kind}:{incident_id}:{surface}", surface, channel, kind, now, incident_id, None, priority)
    insert = postgresql.insert(OutboxRow) if _dialect(session) == "postgresql" else sqlite.insert(OutboxRow)
    statement = insert.values(row)
    await session.exec(
        statement.on_conflict_do_update(
            index_elements=["key"],
            set_={
                "state": "due",
                "next_at": now,
                "priority": priority,
                "channel": statement.excluded.channel,
                "revision": col(OutboxRow.revision) + 1,
            },
        )
    )


def _values(
    key: str,
    surface: str,
    channel: str,
    kind: str,
    now: datetime,
    incident_id: str | None,
    body: Mapping[str, Any] | None,
    priority: int,
) -> dict[str, Any]:
    return {
        "key": key,
        "surface": surface,
        "channel": channel,
        "kind": kind,
        "incident_id": incident_id,
        "body": json.dumps(body or {}, ensure_ascii=False),
        "state": "due",
        "priority": priority,
        "revision": 1,
        "attempts": 0,
        "next_at": now,
        "created_at": now,
        "trouble": "",
    }


def _dialect(session: AsyncSession) -> str:
    return session.get_bind().dialect.name


@dataclass
class _Rest:
    """Until when (monotonic) something is left alone, and how long the last pause was."""

    until: float = 0.0
    pause: float = 0.0

    def longer(self, now: float, asked: float | None) -> None:
        self.pause = min(_LONGEST_PAUSE_S, max(_FIRST_PAUSE_S, self.pause * 2))
        self.until = now + max(asked or 0.0, self.pause)


class Outbox:
    """Sends what is due, each surface by itself, so that one that is down delays no other."""

    def __init__(self, context: Context, surfaces: Sequence[Surface], project: Projector) -> None:
        self._context = context
        self._surfaces = {surface.name: surface for surface in surfaces}
        self._project = project
        self._surface_rest = {name: _Rest() for name in self._surfaces}
        self._channel_rest: dict[tuple[str, str], float] = {}

    async def run(self, term: Term) -> None:
        """Send until cancelled or the term is over.

        Raises:
            LeadershipLost: stop; the next leader goes on.
        """
        async with asyncio.TaskGroup() as tasks:
            for surface in self._surfaces:
                tasks.create_task(self._run_surface(term, surface), name=f"outbox {surface}")

    async def send_due(self, term: Term, surface: str) -> int:
        """Try what is due on one surface now, most urgent first; how many rows were looked at."""
        if self._context.clock.monotonic() < self._surface_rest[surface].until:
            return 0
        looked_at = 0
        for row_id in await self._due(surface):
            looked_at += 1
            await self._deliver(term, self._surfaces[surface], row_id)
            if self._context.clock.monotonic() < self._surface_rest[surface].until:
                break
        return looked_at

    async def _run_surface(self, term: Term, surface: str) -> None:
        await repeat(lambda: self.send_due(term, surface), pause_s=POLL_S, stage="outbox")

    async def _due(self, surface: str) -> list[int]:
        now = self._context.clock.now()
        resting = [channel for (name, channel), until in self._channel_rest.items() if name == surface and self._rests(until)]
        due = (OutboxRow.state == "due", OutboxRow.surface == surface)
        async with self._context.database.reading() as session:
            count = (await session.exec(select(func.count()).select_from(OutboxRow).where(*due))).one()
            rows = await session.exec(
                select(OutboxRow.id)
                .where(*due, col(OutboxRow.next_at) <= now, col(OutboxRow.channel).not_in(resting))
                .order_by(col(OutboxRow.priority), col(OutboxRow.id))
                .limit(_BATCH)
            )
            ids = [row_id for row_id in rows if row_id is not None]
        metrics.OUTBOX_DUE.labels(surface).set(count)
        return ids

    def _rests(self, until: float) -> bool:
        return self._context.clock.monotonic() < until

    async def _deliver(self, term: Term, surface: Surface, row_id: int) -> None:
        claimed = await self._claim(term, row_id)
        if claimed is None:
            return
        row, delivery = claimed
        try:
            async with asyncio.timeout(SEND_TIMEOUT_S):
                reference = await self._post(surface, row, delivery)
        except MessageRefused as error:
            await self._close(term, row, str(error))
        except (SurfaceError, TimeoutError) as error:
            await self._postpone(term, surface, row, error)
        else:
            self._surface_rest[surface.name] = _Rest()
            metrics.SURFACE_DOWN.labels(surface.name).set(0)
            await self._record(term, row, delivery, reference)

    async def _claim(self, term: Term, row_id: int) -> tuple[OutboxRow, Delivery] | None:
        """Take a row for one attempt. That it was tried is known before it is tried."""
        now = self._context.clock.now()
        async with term.transaction() as session:
            row = await session.get(OutboxRow, row_id, with_for_update=True)
            if row is None or row.state != "due" or row.next_at > now:
                return None
            if self._rests(self._channel_rest.get((row.surface, row.channel), 0.0)):
                return None
            content = await self._content(session, row)
            message = await self._message(session, row)
            if content is None or (message is not None and message.body_digest == digest(content)):
                row.state, row.sent_at, row.attempts, row.trouble = "sent", now, 0, ""
                session.add(row)
                metrics.OUTBOX_SENT.labels(row.surface, "unchanged").inc()
                return None
            row.attempts, row.next_at = row.attempts + 1, now + CLAIM
            session.add(row)
        reference = message.reference if message is not None and message.channel == row.channel else None
        return row, Delivery(
            key=row.key, channel=row.channel, kind=row.kind, incident_id=row.incident_id, content=content, reference=reference
        )

    async def _content(self, session: AsyncSession, row: OutboxRow) -> dict[str, Any] | None:
        if row.kind != CARD or row.incident_id is None:
            body: dict[str, Any] = json.loads(row.body)
            return body
        shown = await self._project(session, row.incident_id, row.kind)
        return None if shown is None else shown.model_dump(mode="json", by_alias=True)

    async def _message(self, session: AsyncSession, row: OutboxRow) -> MessageRow | None:
        if row.kind != CARD or row.incident_id is None:
            return None
        return await session.get(MessageRow, (row.incident_id, row.surface, row.kind))

    async def _post(self, surface: Surface, row: OutboxRow, delivery: Delivery) -> str:
        if delivery.reference is None and row.attempts > 1:
            found = await surface.find(delivery)
            if found is not None and row.kind != CARD:
                return found
            delivery = delivery.model_copy(update={"reference": found})
        try:
            return await surface.send(delivery)
        except MessageGone:
            return await surface.send(delivery.model_copy(update={"reference": None}))

    async def _record(self, term: Term, row: OutboxRow, delivery: Delivery, reference: str) -> None:
        now = self._context.clock.now()
        async with term.transaction() as session:
            stored = await session.get(OutboxRow, row.id, with_for_update=True, populate_existing=True)
            if stored is not None:
                changed = stored.revision != row.revision
                stored.state, stored.next_at = ("due", now) if changed else ("sent", stored.next_at)
                stored.sent_at, stored.attempts, stored.trouble = now, 0, ""
                session.add(stored)
            if row.kind == CARD and row.incident_id is not None:
                await session.merge(
                    MessageRow(
                        incident_id=row.incident_id,
                        surface=row.surface,
                        kind=row.kind,
                        channel=delivery.channel,
                        reference=reference,
                        body_digest=digest(delivery.content),
                        at=now,
                    )
                )
        metrics.OUTBOX_SENT.labels(row.surface, "sent").inc()

    async def _postpone(self, term: Term, surface: Surface, row: OutboxRow, error: Exception) -> None:
        monotonic = self._context.clock.monotonic()
        asked = getattr(error, "retry_after", None)
        if isinstance(error, ChannelBusy):
            self._channel_rest[(surface.name, row.channel)] = monotonic + error.retry_after
            wait = error.retry_after
        else:
            rest = self._surface_rest[surface.name]
            rest.longer(monotonic, asked)
            wait = rest.until - monotonic
            metrics.SURFACE_DOWN.labels(surface.name).set(1)
        reason = str(error) or "no answer in time"
        async with term.transaction() as session:
            stored = await session.get(OutboxRow, row.id, with_for_update=True, populate_existing=True)
            if stored is not None:
                stored.next_at, stored.trouble = self._context.clock.now() + timedelta(seconds=wait), reason[:300]
                session.add(stored)
        metrics.OUTBOX_SENT.labels(row.surface, "retry").inc()
        log.warning("message postponed", surface=row.surface, seconds=round(wait, 1), reason=reason[:300])

    async def _close(self, term: Term, row: OutboxRow, reason: str) -> None:
        async with term.transaction() as session:
            stored = await session.get(OutboxRow, row.id, with_for_update=True, populate_existing=True)
            if stored is not None:
                stored.state, stored.trouble = "refused", reason[:300]
                session.add(stored)
        metrics.OUTBOX_SENT.labels(row.surface, "refused").inc()
        log.error("message refused", surface=row.surface, key=row.key, reason=reason[:300])
