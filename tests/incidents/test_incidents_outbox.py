"""Words are delayed, never lost and not repeated, against a chat service over HTTP, on both databases."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
from chat_server import ChatServer, ChatSurface, chatting
from incidents_setting import MovableClock, counted, until
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from catalog.documents import Document
from incidents.context import Context
from incidents.leading import Candidate, LeadershipLost, Term
from incidents.outbox import APPROVAL, CLAIM, DIGEST, URGENT, Outbox, enqueue, refresh_card
from incidents.tables import MessageRow, OutboxRow


class Shown(Document):
    """What a card shows in these tests."""

    text: str


class Room:
    """A leader with two chat surfaces."""

    def __init__(self, context: Context, term: Term, slack: ChatServer, discord: ChatServer, client: httpx.AsyncClient) -> None:
        self.context, self.term, self.slack, self.discord, self.client = context, term, slack, discord, client
        self.state = {"i1": "firing", "i2": "firing"}
        self.outbox = self.new_outbox()

    def new_outbox(self) -> Outbox:
        surfaces = [ChatSurface("slack", self.slack.url, self.client), ChatSurface("discord", self.discord.url, self.client)]
        return Outbox(self.context, surfaces, self.project)

    async def project(self, session: AsyncSession, incident_id: str, kind: str) -> Document | None:
        return Shown(text=self.state[incident_id]) if incident_id in self.state else None

    async def say(self, key: str, *, channel: str = "C1", surface: str = "slack", priority: int = 5) -> None:
        async with self.term.transaction() as session:
            await enqueue(
                session,
                key=key,
                surface=surface,
                channel=channel,
                kind="text",
                now=self.context.clock.now(),
                body={"text": key},
                priority=priority,
            )

    async def card(self, incident_id: str, state: str, *, surface: str = "slack", priority: int = 5) -> None:
        self.state[incident_id] = state
        async with self.term.transaction() as session:
            await refresh_card(
                session, incident_id=incident_id, surface=surface, channel="C1", now=self.context.clock.now(), priority=priority
            )

    async def send(self, surface: str = "slack") -> None:
        while await self.outbox.send_due(self.term, surface):
            pass

    async def rows(self) -> list[OutboxRow]:
        async with self.context.database.reading() as session:
            return list(await session.exec(select(OutboxRow).order_by(col(OutboxRow.id))))

    def texts(self, server: ChatServer) -> list[str]:
        return [message["content"]["text"] for message in server.messages.values()]


@pytest.fixture
async def room(replica: Context, clock: MovableClock) -> AsyncIterator[Room]:
    term = await Candidate(replica.database, clock, "replica-1").acquire()
    assert term is not None
    async with chatting() as slack, chatting() as discord, httpx.AsyncClient(trust_env=False) as client:
        yield Room(replica, term, slack, discord, client)


async def test_a_key_is_sent_once_however_often_it_is_enqueued(room: Room) -> None:
    await room.say("hello")
    await room.say("hello")
    await room.send()
    await room.say("hello")
    await room.send()
    assert room.texts(room.slack) == ["hello"]


async def test_a_card_is_edited_in_place_and_an_unchanged_one_is_not_touched(room: Room) -> None:
    await room.card("i1", "firing")
    await room.send()
    await room.card("i1", "resolved")
    await room.send()
    await room.card("i1", "resolved")
    await room.send()
    assert room.texts(room.slack) == ["resolved"]
    assert (room.slack.calls["POST"], room.slack.calls["PUT"]) == (1, 1)


async def test_ten_changes_before_sending_are_one_message_with_the_latest_state(room: Room) -> None:
    for n in range(10):
        await room.card("i1", f"state {n}")
    await room.send()
    assert room.texts(room.slack) == ["state 9"]
    assert len(await room.rows()) == 1


async def test_a_card_of_nothing_is_not_sent(room: Room) -> None:
    async with room.term.transaction() as session:
        await refresh_card(session, incident_id="unknown", surface="slack", channel="C1", now=room.context.clock.now())
    await room.send()
    assert room.slack.messages == {}


async def test_G20_an_outage_delays_words_and_on_recovery_each_card_is_sent_once_as_it_is(room: Room, clock: MovableClock) -> None:
    room.slack.down = True
    for minute in range(10):
        await room.card("i1", f"minute {minute}")
        await room.card("i2", f"minute {minute}")
        await room.say(f"text {minute}")
        await room.send()
        clock.advance(60)
    assert room.slack.messages == {}
    assert sum(room.slack.calls.values()) <= 10, "it rests between its tries instead of trying every row"
    assert counted("sre_ladder_surface_down", surface="slack") == 1
    assert any("answered 500" in row.trouble for row in await room.rows())
    await room.card("i1", "here", surface="discord")
    await room.send("discord")
    assert room.texts(room.discord) == ["here"], "another surface is not delayed"
    room.slack.down = False
    await room.card("i1", "minute 9")
    clock.advance(61)
    await room.send()
    clock.advance(61)
    await room.send()
    texts = room.texts(room.slack)
    assert sorted(texts) == sorted(["minute 9", "minute 9", *(f"text {minute}" for minute in range(10))])
    assert counted("sre_ladder_surface_down", surface="slack") == 0
    assert {row.state for row in await room.rows()} == {"sent"}


async def test_F82_a_busy_channel_rests_as_long_as_it_asked_and_others_go_on(room: Room, clock: MovableClock) -> None:
    room.slack.busy["C1"] = "30"
    await room.say("one", channel="C1")
    await room.say("two", channel="C1")
    await room.say("three", channel="C2")
    await room.send()
    assert room.texts(room.slack) == ["three"]
    room.slack.busy.clear()
    clock.advance(29)
    await room.send()
    assert room.texts(room.slack) == ["three"]
    clock.advance(1)
    await room.send()
    assert room.texts(room.slack) == ["three", "one", "two"]


async def test_the_most_urgent_goes_first(room: Room) -> None:
    await room.say("digest", priority=DIGEST)
    await room.say("approval", priority=APPROVAL)
    await room.say("page", priority=URGENT)
    await room.send()
    assert room.texts(room.slack) == ["page", "approval", "digest"]


async def test_a_crash_between_sending_and_recording_repeats_nothing(room: Room, clock: MovableClock) -> None:
    await room.card("i1", "firing")
    await room.say("hello")
    room.slack.hang_after_posting = True
    for count in (1, 2):
        dying = asyncio.create_task(room.outbox.send_due(room.term, "slack"))
        await until(lambda count=count: len(room.slack.messages) == count)  # type: ignore[misc]
        dying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await dying
    room.slack.hang_after_posting = False
    room.outbox = room.new_outbox()
    await room.send()
    assert room.slack.calls["GET"] == 0, "the claim of the dead sender still holds"
    clock.advance(CLAIM.total_seconds())
    room.state["i1"] = "resolved"
    await room.send()
    assert sorted(room.texts(room.slack)) == ["hello", "resolved"]
    assert {row.state for row in await room.rows()} == {"sent"}


async def test_F89_a_deleted_message_is_posted_anew(room: Room) -> None:
    await room.card("i1", "firing")
    await room.send()
    room.slack.messages.clear()
    await room.card("i1", "resolved")
    await room.send()
    assert room.texts(room.slack) == ["resolved"]


async def test_what_a_surface_refuses_is_closed_with_its_reason_and_blocks_nothing(room: Room) -> None:
    room.slack.refused.add("C-gone")
    await room.say("one", channel="C-gone")
    await room.say("two")
    await room.send()
    assert room.texts(room.slack) == ["two"]
    refused, _ = await room.rows()
    assert (refused.state, refused.trouble) == ("refused", "channel_not_found")


async def test_what_changes_while_it_is_being_sent_is_sent_too(room: Room) -> None:
    await room.card("i1", "firing")
    room.slack.hang_after_posting = True
    sending = asyncio.create_task(room.outbox.send_due(room.term, "slack"))
    await room.slack.hanging.wait()
    await room.card("i1", "resolved")
    room.slack.released.set()
    await sending
    assert room.texts(room.slack) == ["firing"]
    (row,) = await room.rows()
    assert row.state == "due"
    await room.send()
    assert room.texts(room.slack) == ["resolved"]
    assert room.slack.calls["POST"] == 1


async def test_an_ex_leader_sends_nothing(room: Room, clock: MovableClock) -> None:
    await room.say("hello")
    other = Candidate(room.context.database, clock, "replica-2")
    await other.acquire()
    clock.advance(16)
    assert await other.acquire() is not None
    with pytest.raises(LeadershipLost):
        await room.send()
    assert room.slack.messages == {}


async def test_the_task_sends_by_itself(room: Room) -> None:
    running = asyncio.create_task(room.outbox.run(room.term))
    await room.say("to slack")
    await room.say("to discord", surface="discord")
    await until(lambda: bool(room.slack.messages) and bool(room.discord.messages))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_where_a_card_stands_is_kept_per_surface(room: Room) -> None:
    await room.card("i1", "firing")
    await room.card("i1", "firing", surface="discord")
    await room.send()
    await room.send("discord")
    async with room.context.database.reading() as session:
        rows = list(await session.exec(select(MessageRow).order_by(col(MessageRow.surface))))
    assert [(row.surface, row.channel, row.reference) for row in rows] == [("discord", "C1", "m1"), ("slack", "C1", "m1")]
