"""Pages through a real Alertmanager where one is installed, on both databases."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web
from incidents_setting import MovableClock, alert_rows, context_on, counted, ingest_token
from sqlmodel import select

from catalog.clocks import SystemClock
from incidents.context import Context
from incidents.database import Database
from incidents.ingest import Receipt, accept
from incidents.leading import Candidate, Term
from incidents.outbox import URGENT
from incidents.paging import REPEAT, SILENT_NAME, Pager, raise_page, resolve_page, resolve_pages_of
from incidents.tables import ExecutorRow, OrderRow, OutboxRow, PageRow

POLICY = """
schema: 1
clusters:
  - name: eu-1
    uid: uid-eu
    match: {{cluster: eu-1}}
    api: {{server: "http://127.0.0.1:1", token_file: /nowhere}}
    alertmanager: "{url}"
  - name: us-1
    uid: uid-us
    match: {{cluster: us-1}}
    api: {{server: "http://127.0.0.1:1", token_file: /nowhere}}
"""


class Posts:
    """What an Alertmanager was sent; it can refuse."""

    def __init__(self) -> None:
        self.alerts: list[dict[str, Any]] = []
        self.status = 200

    async def take(self, request: web.Request) -> web.Response:
        if self.status == 200:
            self.alerts += await request.json()
        return web.json_response({}, status=self.status)


class Desk:
    """A leader with a pager."""

    def __init__(self, context: Context, term: Term, posts: Posts, client: httpx.AsyncClient) -> None:
        self.context, self.term, self.posts, self.client = context, term, posts, client
        self.pager = Pager(context)

    async def step(self) -> int:
        return await self.pager.step(self.term, self.client)

    async def page(self, key: str = "k", **more: Any) -> bool:
        async with self.term.transaction() as session:
            return await raise_page(
                session,
                **{
                    "key": key,
                    "name": "SreLadderUndoIncomplete",
                    "cluster_uid": "uid-eu",
                    "summary": "undo is not complete",
                    "now": self.context.clock.now(),
                    **more,
                },
            )

    async def rows(self) -> list[PageRow]:
        async with self.context.database.reading() as session:
            return list(await session.exec(select(PageRow)))


@pytest.fixture
async def desk(database: Database, clock: MovableClock) -> AsyncIterator[Desk]:
    posts = Posts()
    app = web.Application()
    app.router.add_post("/api/v2/alerts", posts.take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    context = context_on(database, clock, POLICY.format(url=f"http://127.0.0.1:{runner.addresses[0][1]}"))
    term = await Candidate(database, clock, "replica-1").acquire()
    assert term is not None
    async with httpx.AsyncClient(trust_env=False) as client:
        yield Desk(context, term, posts, client)
    await runner.cleanup()


async def test_a_page_is_posted_at_once_and_every_five_minutes_until_it_is_taken(desk: Desk, clock: MovableClock) -> None:
    assert await desk.page(incident_id="i1")
    assert not await desk.page(), "raising it again changes nothing"
    await desk.step()
    await desk.step()
    assert len(desk.posts.alerts) == 1
    (alert,) = desk.posts.alerts
    assert alert["labels"] == {"alertname": "SreLadderUndoIncomplete", "severity": "critical", "page": "k", "cluster": "eu-1"}
    assert alert["endsAt"] > alert["startsAt"]
    assert counted("sre_ladder_pages_firing", name="SreLadderUndoIncomplete") == 1
    for _ in range(3):
        clock.advance(REPEAT.total_seconds())
        await desk.step()
    assert len(desk.posts.alerts) == 4
    async with desk.term.transaction() as session:
        assert await resolve_pages_of(session, "i1", by="ana", now=clock.now()) == 1
        assert not await resolve_page(session, "k", by="bo", now=clock.now())
    await desk.step()
    assert (
        desk.posts.alerts[-1]["endsAt"] == desk.posts.alerts[-1]["endsAt"] <= clock.now().isoformat().replace("+00:00", ".000000Z")
    )
    clock.advance(3600)
    await desk.step()
    assert len(desk.posts.alerts) == 5, "once it has ended nothing more is posted"
    assert counted("sre_ladder_pages_firing", name="SreLadderUndoIncomplete") == 0
    (row,) = await desk.rows()
    assert row.ended_by == "ana"


async def test_a_page_that_ended_can_fire_again(desk: Desk, clock: MovableClock) -> None:
    await desk.page()
    async with desk.term.transaction() as session:
        await resolve_page(session, "k", by="ana", now=clock.now())
    await desk.step()
    clock.advance(60)
    assert await desk.page()
    await desk.step()
    assert desk.posts.alerts[-1]["endsAt"] > desk.posts.alerts[0]["endsAt"]
    assert desk.posts.alerts[-1]["startsAt"] > desk.posts.alerts[0]["startsAt"]


async def test_an_alertmanager_that_fails_is_tried_again_soon_and_the_trouble_is_visible(desk: Desk, clock: MovableClock) -> None:
    desk.posts.status = 500
    await desk.page()
    await desk.step()
    (row,) = await desk.rows()
    assert row.trouble == "Alertmanager answered 500"
    assert await desk.step() == 0
    clock.advance(5)
    assert await desk.step() == 1
    desk.posts.status = 200
    clock.advance(60)
    await desk.step()
    (row,) = await desk.rows()
    assert (row.trouble, len(desk.posts.alerts)) == ("", 1)


async def test_a_cluster_without_alertmanager_says_so_and_still_mentions_in_chat(desk: Desk) -> None:
    await desk.page(cluster_uid="uid-us", mentions={"slack": "C1"})
    await desk.step()
    (row,) = await desk.rows()
    assert "no Alertmanager is configured" in row.trouble
    assert counted("sre_ladder_pages_firing", name="SreLadderUndoIncomplete") == 1
    async with desk.context.database.reading() as session:
        (message,) = list(await session.exec(select(OutboxRow)))
    assert (message.surface, message.channel, message.kind, message.priority) == ("slack", "C1", "page", URGENT)


async def test_a_page_needs_our_prefix_so_that_it_never_comes_back_as_an_alert(desk: Desk) -> None:
    with pytest.raises(ValueError, match="must begin with SreLadder"):
        await desk.page(name="UndoIncomplete")


def an_order(clock: MovableClock, state: str = "delivered") -> OrderRow:
    now = clock.now()
    return OrderRow(
        id="o1",
        incident_id="i1",
        decision_id="d1",
        cluster_uid="uid-eu",
        namespace="shop",
        kind="Deployment",
        name="cart",
        scope="shop",
        match_digest="",
        family="wedged",
        action="restart_workload",
        mode="auto",
        state=state,
        key_id="k",
        signature="s",
        minted_at=now,
        expires_at=now + timedelta(seconds=60),
        delivered_at=None if state == "minted" else now,
    )


async def heard(desk: Desk, executor: str = "e1", *, active: bool = True) -> None:
    async with desk.term.transaction() as session:
        await session.merge(
            ExecutorRow(
                executor_id=executor, cluster_uid="uid-eu", journal_id="j", active=active, heard_at=desk.context.clock.now()
            )
        )


async def test_an_executor_silent_for_60_s_with_an_open_order_pages_until_it_speaks(desk: Desk, clock: MovableClock) -> None:
    await heard(desk)
    async with desk.term.transaction() as session:
        session.add(an_order(clock))
    clock.advance(59)
    await heard(desk, "standby", active=False)
    await desk.step()
    assert desk.posts.alerts == []
    clock.advance(1)
    await desk.step()
    (alert,) = desk.posts.alerts
    assert alert["labels"]["alertname"] == SILENT_NAME
    assert "eu-1" in alert["annotations"]["summary"]
    await heard(desk)
    await desk.step()
    (row,) = await desk.rows()
    assert row.ended_by == "bot"


@pytest.mark.parametrize("state", ["minted", "ended"])
async def test_a_silent_executor_without_an_open_order_pages_nobody(desk: Desk, clock: MovableClock, state: str) -> None:
    await heard(desk)
    async with desk.term.transaction() as session:
        session.add(an_order(clock, state))
    clock.advance(600)
    await desk.step()
    assert await desk.rows() == []


ALERTMANAGER = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def alertmanager(tmp_path: Path) -> Iterator[tuple[str, int]]:
    """A real Alertmanager whose only receiver is a webhook: (its URL, the webhook's port)."""
    if ALERTMANAGER is None:
        pytest.skip("prometheus-alertmanager is not installed")
    port, webhook = free_port(), free_port()
    config = tmp_path / "alertmanager.yml"
    config.write_text(
        "route: {receiver: bot, group_wait: 0s, group_interval: 1s, repeat_interval: 1h}\n"
        f"receivers: [{{name: bot, webhook_configs: [{{url: 'http://127.0.0.1:{webhook}/'}}]}}]\n"
    )
    arguments = [f"--config.file={config}", f"--storage.path={tmp_path}/am", f"--web.listen-address=127.0.0.1:{port}"]
    with (tmp_path / "alertmanager.log").open("wb") as log:
        process = subprocess.Popen([ALERTMANAGER, *arguments, "--cluster.listen-address="], stdout=log, stderr=log)
    yield f"http://127.0.0.1:{port}", webhook
    process.terminate()
    process.wait(10)


async def test_a_real_alertmanager_takes_our_page_and_we_do_not_take_it_back(
    sqlite_url: str, alertmanager: tuple[str, int]
) -> None:
    """Page → Alertmanager → its webhook → ingest, each over the wire: the real body is understood, our page is dropped."""
    url, webhook_port = alertmanager
    database = Database.open(sqlite_url)
    context = context_on(database, SystemClock(), POLICY.format(url=url))
    token = await ingest_token(context, "uid-eu")
    receipts: asyncio.Queue[Receipt] = asyncio.Queue()

    async def take(request: web.Request) -> web.Response:
        await receipts.put(await accept(context, await request.read(), token))
        return web.Response()

    app = web.Application()
    app.router.add_post("/", take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", webhook_port).start()
    term = await Candidate(database, context.clock, "replica-1").acquire()
    assert term is not None
    async with term.transaction() as session:
        now = context.clock.now()
        await raise_page(session, key="k", name="SreLadderUnverified", cluster_uid="uid-eu", summary="unknown", now=now)
    pager = asyncio.create_task(Pager(context).run(term))
    async with asyncio.timeout(40):
        assert await receipts.get() == Receipt(alerts=1, dropped=1)
        async with term.transaction() as session:
            await resolve_page(session, "k", by="ana", now=context.clock.now())
        await receipts.get()
    (row,) = await alert_rows(database)
    assert (row.name, row.status, row.reason) == ("SreLadderUnverified", "resolved", "one of our own pages")
    pager.cancel()
    with pytest.raises(asyncio.CancelledError):
        await pager
    await runner.cleanup()
    await database.close()
