"""Schema and the promise of the store, on both databases."""

from __future__ import annotations

import asyncio
import re
import sys
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, inspect, text
from sqlalchemy.exc import StatementError
from sqlmodel import select

from incidents.database import Database, DatabaseUrlInvalid, StoreUnavailable, async_url
from incidents.schema import migrate
from incidents.tables import METADATA, CounterRow, PersonRow


async def _described(database: Database) -> list[str]:
    """Every table and index as the database itself describes it, with partial conditions."""
    sentence = (
        "SELECT name || ': ' || sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'alembic%'"
        if database.dialect == "sqlite"
        else "SELECT indexname || ': ' || indexdef FROM pg_indexes WHERE schemaname = 'public' AND tablename NOT LIKE 'alembic%'"
        " UNION ALL SELECT table_name || '.' || column_name || ': ' || data_type || ' ' || is_nullable"
        " FROM information_schema.columns WHERE table_schema = 'public' AND table_name NOT LIKE 'alembic%'"
    )
    async with database.reading() as session:
        rows = (await session.connection()).execute(text(sentence))
        return sorted(re.sub(r"\s+", " ", row[0]) for row in await rows)


def _differences(connection: Connection) -> list[object]:
    return list(compare_metadata(MigrationContext.configure(connection, opts={"compare_type": True}), METADATA))


async def _fresh(url: str) -> Database:
    database = Database.open(url)
    async with database.engine.begin() as connection:
        await connection.run_sync(METADATA.create_all)
    return database


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/empty.db" if request.param == "sqlite" else str(request.getfixturevalue("empty_postgres_url"))


async def test_upgrading_an_empty_database_gives_the_tables(empty_url: str) -> None:
    """When this fails after a change of `incidents.tables`: python -m incidents.migrations "what changed"."""
    await migrate(empty_url)
    database = Database.open(empty_url)
    async with database.engine.connect() as connection:
        assert await connection.run_sync(_differences) == []
        names = set(await connection.run_sync(lambda sync: inspect(sync).get_table_names()))
    assert names == set(METADATA.tables) | {"alembic_version"}
    await database.close()


async def test_upgraded_sqlite_is_what_the_tables_would_make(tmp_path: Path) -> None:
    """Partial conditions of indexes too, which the comparison of metadata does not see."""
    await _compare(f"sqlite:///{tmp_path}/upgraded.db", f"sqlite:///{tmp_path}/made.db")


async def test_upgraded_postgresql_is_what_the_tables_would_make(empty_postgres_url: str, postgres_server: str) -> None:
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS made_from_tables")
        connection.execute("CREATE DATABASE made_from_tables")
    await _compare(empty_postgres_url, empty_postgres_url.replace("/" + _name(empty_postgres_url), "/made_from_tables"))


def _name(url: str) -> str:
    return url.partition("?")[0].rsplit("/", 1)[1]


async def _compare(upgraded_url: str, made_url: str) -> None:
    await migrate(upgraded_url)
    upgraded, made = Database.open(upgraded_url), await _fresh(made_url)
    assert await _described(upgraded) == await _described(made)
    await upgraded.close()
    await made.close()


async def test_replicas_that_start_at_the_same_time_migrate_once(empty_url: str) -> None:
    program = "import asyncio, sys; from incidents.schema import migrate; asyncio.run(migrate(sys.argv[1]))"
    replicas = [await asyncio.create_subprocess_exec(sys.executable, "-c", program, empty_url) for _ in range(3)]
    assert [await replica.wait() for replica in replicas] == [0, 0, 0]
    await migrate(empty_url)
    database = Database.open(empty_url)
    async with database.reading() as session:
        assert list(await session.exec(select(CounterRow))) == []
    await database.close()


async def test_a_database_that_cannot_be_migrated_says_so() -> None:
    with pytest.raises(StoreUnavailable, match="could not be brought up to date"):
        await migrate("postgresql://postgres@127.0.0.1:1/nothing")


@pytest.mark.parametrize("url", ["mysql://x/y", "not a url", "", "oracle://"])
def test_only_two_databases_are_supported(url: str) -> None:
    with pytest.raises(DatabaseUrlInvalid, match="use sqlite:///FILE or postgresql://"):
        async_url(url)


async def add_counter_and_fail(database: Database) -> None:
    async with database.transaction() as session:
        session.add(CounterRow(name="lost", value=1))
        await session.flush()
        raise ZeroDivisionError


async def test_a_transaction_is_kept_whole_or_not_at_all(database: Database) -> None:
    with pytest.raises(ZeroDivisionError):
        await add_counter_and_fail(database)
    async with database.transaction() as session:
        session.add(CounterRow(name="kept", value=1))
    async with database.reading() as session:
        assert list(await session.exec(select(CounterRow.name))) == ["kept"]


async def test_writers_at_the_same_time_lose_nothing(database_url: str) -> None:
    """Two processes' worth of engines; every increment reads what the one before wrote."""
    databases = [Database.open(database_url) for _ in range(2)]
    async with databases[0].transaction() as session:
        session.add(CounterRow(name="n", value=0))

    async def increment(database: Database) -> None:
        async with database.transaction() as session:
            row = await session.get(CounterRow, "n", with_for_update=True)
            assert row is not None
            row.value += 1
            session.add(row)

    await asyncio.gather(*(increment(database) for database in databases for _ in range(20)))
    async with databases[0].reading() as session:
        assert (await session.exec(select(CounterRow.value))).one() == 40
    for database in databases:
        await database.close()


async def test_instants_come_back_as_they_went_aware_and_in_utc(database: Database) -> None:
    at = datetime(2026, 3, 4, 11, 0, 0, 123456, tzinfo=timezone(timedelta(hours=1)))
    async with database.transaction() as session:
        session.add(PersonRow(id="ana", added_at=at))
    async with database.reading() as session:
        (row,) = list(await session.exec(select(PersonRow)))
    assert row.added_at == at
    assert row.added_at.tzinfo is UTC
    with pytest.raises(StatementError, match="naive"):
        async with database.transaction() as session:
            session.add(PersonRow(id="bo", added_at=at.replace(tzinfo=None)))


def end_other_connections(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        others = "pid <> pg_backend_pid() AND datname = current_database()"
        connection.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}")


async def lose_the_connection_inside(database: Database, url: str) -> None:
    async with database.transaction() as session:
        await session.exec(select(CounterRow))
        end_other_connections(url)
        session.add(CounterRow(name="lost", value=1))


async def test_a_server_that_dies_is_trouble_and_its_return_is_met_without_a_restart(postgres_url: str) -> None:
    database = Database.open(postgres_url)
    async with database.reading() as session:
        await session.exec(select(CounterRow))
    end_other_connections(postgres_url)
    async with database.transaction() as session:
        session.add(CounterRow(name="kept", value=1))
    with pytest.raises(StoreUnavailable):
        await lose_the_connection_inside(database, postgres_url)
    async with database.reading() as session:
        assert list(await session.exec(select(CounterRow.name))) == ["kept"]
    await database.close()


async def test_a_damaged_sqlite_file_is_trouble_of_the_store(tmp_path: Path) -> None:
    (tmp_path / "damaged.db").write_bytes(b"this is no database" * 1000)
    database = Database.open(f"sqlite:///{tmp_path}/damaged.db")
    with pytest.raises(StoreUnavailable):
        async with database.reading() as session:
            await session.exec(select(CounterRow))
    await database.close()
