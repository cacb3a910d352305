"""The demo's backup is what its page says: incidents that were lived through and labelled through the front door."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import create_engine

from incidents.chain import verify_chains
from incidents.database import Database
from incidents.tables import METADATA
from sandbox.demo.show import restore

CELLS = [("out_of_memory", "restart_workload"), ("capacity", "scale")]


@pytest.fixture(scope="module")
def backup(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("backup")
    restore(directory)
    return directory / "bot.db"


@pytest.fixture
def rows(backup: Path) -> Iterator[sqlite3.Connection]:
    with sqlite3.connect(backup) as connection:
        yield connection


@pytest.mark.parametrize(("family", "action"), CELLS)
def test_at_least_fifty_labelled_incidents_over_many_workloads(rows: sqlite3.Connection, family: str, action: str) -> None:
    counted = rows.execute(
        """SELECT count(*), count(DISTINCT namespace || '/' || name) FROM episode
           WHERE family = ? AND action = ? AND executed AND origin = 'human' AND "right" AND end = 'committed'""",
        (family, action),
    ).fetchone()
    assert counted[0] >= 50
    assert counted[1] >= 25
    people = rows.execute(
        """SELECT count(DISTINCT label.person) FROM label JOIN episode USING (incident_id)
           WHERE family = ? AND action = ? AND question = 'action' AND label.origin = 'human'""",
        (family, action),
    ).fetchone()
    assert people == (2,)


def test_over_at_least_thirty_workloads_in_all(rows: sqlite3.Connection) -> None:
    assert rows.execute("SELECT count(DISTINCT namespace || '/' || name) FROM episode WHERE executed").fetchone()[0] >= 30


def test_each_was_an_alert_an_order_and_an_outcome_of_its_own(rows: sqlite3.Connection) -> None:
    executed = rows.execute("SELECT count(*) FROM episode WHERE executed").fetchone()[0]
    outcomes = rows.execute(
        "SELECT count(DISTINCT order_id) FROM outcome JOIN episode USING (incident_id) WHERE executed"
    ).fetchone()[0]
    alerts = rows.execute(
        "SELECT count(DISTINCT incident_id) FROM alert JOIN episode USING (incident_id) WHERE executed"
    ).fetchone()[0]
    assert executed == alerts
    assert outcomes >= executed


def test_its_gates_were_opened_by_a_declared_look(rows: sqlite3.Connection) -> None:
    looks = rows.execute("SELECT family, action, n, opened FROM look ORDER BY family").fetchall()
    assert {(family, action) for family, action, n, opened in looks if opened and n == 50} >= set(CELLS)


async def test_its_event_chains_hold(backup: Path) -> None:
    database = Database.open(f"sqlite:///{backup}")
    async with database.reading() as session:
        assert await verify_chains(session) == []
    await database.close()


def test_its_schema_is_todays(backup: Path) -> None:
    engine = create_engine(f"sqlite:///{backup}")
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), METADATA) == []
    engine.dispose()
