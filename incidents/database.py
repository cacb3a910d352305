"""One way to the database: SQLite (WAL) or PostgreSQL, the same statements on both.

A write transaction on SQLite begins IMMEDIATE and is serialised inside the process, so that a reader's snapshot never turns
into a failed upgrade. Everything that makes the store unable to keep a promise (disk full, read-only, unreachable) is one
exception: `StoreUnavailable`. Whoever answers the outside must answer 503 to it, never 200.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlmodel.ext.asyncio.session import AsyncSession

_POSTGRES_TROUBLE = frozenset({"25006", "XX000", "XX001", "XX002"})
"""States of a read-only or damaged PostgreSQL, which the driver does not count as operational."""


class StoreUnavailable(Exception):
    """The database cannot take or give data now. Retry later; nothing was kept."""


class DatabaseUrlInvalid(Exception):
    """The configured URL is not one this system can use. The message says what would be right."""


def async_url(url: str) -> str:
    """The URL with the driver this system uses.

    Raises:
        DatabaseUrlInvalid: neither `sqlite:///FILE` nor `postgresql://…`.
    """
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise DatabaseUrlInvalid(f"{url!r} is not a database URL; use sqlite:///FILE or postgresql://USER@HOST/NAME") from error
    match parsed.get_backend_name():
        case "sqlite":
            return parsed.set(drivername="sqlite+aiosqlite").render_as_string(hide_password=False)
        case "postgresql":
            return parsed.set(drivername="postgresql+psycopg").render_as_string(hide_password=False)
        case other:
            raise DatabaseUrlInvalid(f"{other!r} is not supported; use sqlite:///FILE or postgresql://USER@HOST/NAME")


class Database:
    """Sessions over one engine. Make with `Database.open`, end with `close`."""

    def __init__(self, engine: AsyncEngine) -> None:
        self.engine = engine
        self.dialect = engine.dialect.name
        self._writing = asyncio.Lock()

    @classmethod
    def open(cls, url: str) -> Database:
        """Make an engine; does not connect yet."""
        address = async_url(url)
        if address.startswith("sqlite"):
            engine = create_async_engine(address, connect_args={"timeout": 10}, pool_size=5, max_overflow=5, pool_timeout=10)
            event.listen(engine.sync_engine, "connect", _sqlite_settings)
            event.listen(engine.sync_engine, "begin", _sqlite_begin)
        else:
            engine = create_async_engine(
                address, pool_size=8, max_overflow=8, pool_timeout=10, pool_pre_ping=True, connect_args={"connect_timeout": 5}
            )
            event.listen(engine.sync_engine, "connect", _postgres_settings)
        return cls(engine)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncSession]:
        """A write transaction: committed at the end, rolled back on any exception.

        Raises:
            StoreUnavailable: the database could not begin, take or commit it.
        """
        if self.dialect == "sqlite":
            async with self._writing, self._session(write=True) as session:
                yield session
        else:
            async with self._session(write=True) as session:
                yield session

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncSession]:
        """A read-only look; nothing done in it is kept."""
        async with self._session(write=False) as session:
            yield session

    @asynccontextmanager
    async def _session(self, *, write: bool) -> AsyncIterator[AsyncSession]:
        try:
            async with AsyncSession(self.engine, expire_on_commit=False) as session:
                if write and self.dialect == "sqlite":
                    await session.connection(execution_options={"sqlite_immediate": True})
                yield session
                if write:
                    await session.commit()
        except PoolTimeout as error:
            raise StoreUnavailable(f"no free connection: {_short(error)}") from error
        except DBAPIError as error:
            if _of_the_store(error):
                raise StoreUnavailable(_short(error)) from error
            raise

    async def close(self) -> None:
        """Give back every connection."""
        await self.engine.dispose()


def _of_the_store(error: DBAPIError) -> bool:
    """Whether the store itself is in trouble, rather than the statement or its values being wrong."""
    if error.connection_invalidated or isinstance(error, OperationalError | InterfaceError):
        return True
    if getattr(error.orig, "sqlstate", None) in _POSTGRES_TROUBLE:
        return True
    # SQLite reports a damaged or encrypted file by its most general class.
    return isinstance(error.orig, sqlite3.DatabaseError) and type(error.orig) is sqlite3.DatabaseError


def _short(error: Exception) -> str:
    return str(getattr(error, "orig", None) or error).splitlines()[0][:300]


def _postgres_settings(connection: Any, _record: Any) -> None:
    # A generic plan can use no partial index and guesses badly at long lists: it made ingest twenty times slower.
    cursor = connection.cursor()
    cursor.execute("SET plan_cache_mode = force_custom_plan")
    cursor.close()
    connection.commit()


def _sqlite_settings(connection: Any, _record: Any) -> None:
    # The driver's own transaction control is switched off: `_sqlite_begin` says when and how a transaction begins.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute("PRAGMA busy_timeout=10000")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def _sqlite_begin(connection: Any) -> None:
    immediate = connection.get_execution_options().get("sqlite_immediate", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")
