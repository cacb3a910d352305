"""A replica on each database, served on loopback, and one whose database is gone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from bot_site import POLICY, Site, served

from catalog.clocks import SystemClock
from incidents.context import Context
from incidents.database import Database
from incidents.people import add_person, issue_token
from incidents.policies import Policies
from ladder.policy import parse_policy


@pytest.fixture
async def site(database: Database, tmp_path: Path) -> AsyncIterator[Site]:
    context = Context(database, SystemClock(), Policies(parse_policy(POLICY)), b"k" * 32, "replica-1")
    tokens: dict[str, str] = {}
    async with database.transaction() as session:
        for person in ("ana", "bo", "eve"):
            await add_person(session, person, now=context.clock.now())
            tokens[person], _ = await issue_token(session, "person", person, now=context.clock.now())
        tokens["ingest"], _ = await issue_token(session, "ingest", "alertmanager", now=context.clock.now(), clusters=["uid-eu"])
        tokens["executor"], _ = await issue_token(session, "executor", "executor-1", now=context.clock.now(), clusters=["uid-eu"])
    (tmp_path / "keys" / "executors").mkdir(parents=True)
    async with served(context, tmp_path / "keys", tokens) as running:
        yield running


@pytest.fixture
async def site_without_database(tmp_path: Path) -> AsyncIterator[Site]:
    """A replica whose PostgreSQL cannot be reached."""
    database = Database.open("postgresql://nobody@127.0.0.1:9/nowhere")
    context = Context(database, SystemClock(), Policies(parse_policy(POLICY)), b"k" * 32, "replica-1")
    async with served(context, tmp_path, {"ingest": "srl_i_any", "ana": "srl_p_any"}) as running:
        yield running
    await database.close()
