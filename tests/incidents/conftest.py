"""One replica of the bot on each database, with a policy of two clusters and a webhook token bound to both."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from incidents_setting import MovableClock, Send, context_on, ingest_token
from phases_setting import POLICY, InProcess, Live, Outside, Story, web_facts

from incidents.context import Context
from incidents.database import Database
from incidents.ingest import Receipt, accept
from incidents.worker import Assessor, Worker


@pytest.fixture
def replica(database: Database, clock: MovableClock) -> Context:
    return context_on(database, clock)


@pytest.fixture
async def token(replica: Context) -> str:
    return await ingest_token(replica, "uid-eu", "uid-us")


@pytest.fixture
def send(replica: Context, token: str) -> Send:
    """Hand a webhook in, as the door does."""

    async def hand_in(body: bytes) -> Receipt:
        return await accept(replica, body, token)

    return hand_in


@pytest.fixture
def story(database: Database, clock: MovableClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Story:
    """A replica with a scripted outside, a desk and an executor."""
    return _story(database, clock, tmp_path, monkeypatch, InProcess())


@pytest.fixture
async def story_of_two_processes(
    database: Database, clock: MovableClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Story]:
    """The same with a worker process."""
    worker = Worker(b"k" * 32, module="scripted_assessing")
    yield _story(database, clock, tmp_path, monkeypatch, worker)
    await worker.close()


def _story(database: Database, clock: MovableClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, assessor: Assessor) -> Story:
    script = tmp_path / "script.json"
    monkeypatch.setenv("SCRIPT", str(script))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    facts = web_facts(clock.now())
    outside = Outside(script, clock.now(), facts=facts)
    outside.write()
    return Story(context_on(database, clock, POLICY), assessor, outside, Live(facts))
