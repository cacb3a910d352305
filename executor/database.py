"""The way to the journal: SQLite (WAL, synchronous FULL) or PostgreSQL, the same statements on both.

A commit is a promise: what `transaction()` returned from is on disk, and only then is a call to the cluster made.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlmodel.ext.asyncio.session import AsyncSession

from executor.errors import ConfigurationInvalid, JournalUnavailable

_DRIVERS = {"sqlite": ("sqlite", "sqlite+aiosqlite"), "postgresql": ("postgresql+psycopg", "postgresql+psycopg")}


def journal_url(url: str, *, blocking: bool = False) -> str:
    """The URL with the driver that is used: the blocking one for migrations, else the asynchronous one.

    Raises:
        ConfigurationInvalid: neither `sqlite:///FILE` nor `postgresql://…`.
    """
    right = "use sqlite:///FILE or postgresql://USER@HOST/NAME"
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise ConfigurationInvalid(f"the journal's URL is not one; {right}") from error
    drivers = _DRIVERS.get(parsed.get_backend_name())
    if drivers is None:
        raise ConfigurationInvalid(f"the journal cannot be kept in {parsed.get_backend_name()!r}; {right}")
    return parsed.set(drivername=drivers[0 if blocking else 1]).render_as_string(hide_password=False)


class JournalDatabase:
    """Sessions over one engine."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self.dialect = engine.dialect.name
        self._writing = asyncio.Lock()

    @classmethod
    def open(cls, url: str) -> JournalDatabase:
        """Make an engine; does not connect yet."""
        address = journal_url(url)
        if address.startswith("sqlite"):
            engine = create_async_engine(address, connect_args={"timeout": 10}, pool_size=2, max_overflow=2, pool_timeout=10)
            event.listen(engine.sync_engine, "connect", _sqlite_settings)
            event.listen(engine.sync_engine, "begin", _sqlite_begin)
        else:
            engine = create_async_engine(address, pool_size=4, max_overflow=4, pool_timeout=10, pool_pre_ping=True)
        return cls(engine)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncSession]:
        """A write transaction: committed at the end, rolled back on any exception.

        Raises:
            JournalUnavailable: it could not begin, write or commit.
        """
        async with self._writing, self._session(write=True) as session:
            yield session

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncSession]:
        """A look at what is committed."""
        async with self._session(write=False) as session:
            yield session

    @asynccontextmanager
    async def _session(self, *, write: bool) -> AsyncIterator[AsyncSession]:
        try:
            async with AsyncSession(self._engine, expire_on_commit=False) as session:
                if write and self.dialect == "sqlite":
                    await session.connection(execution_options={"sqlite_immediate": True})
                yield session
                if write:
                    await session.commit()
        except (OperationalError, InterfaceError, PoolTimeout) as error:
            raise JournalUnavailable(_short(error)) from error
        except DBAPIError as error:
            if error.connection_invalidated:
                raise JournalUnavailable(_short(error)) from error
            raise

    async def close(self) -> None:
        """Give back every connection."""
        await self._engine.dispose()


def _short(error: Exception) -> str:
    return str(getattr(error, "orig", None) or error).splitlines()[0][:300]


def _sqlite_settings(connection: Any, _record: Any) -> None:
    # The driver's own transaction control is off: `_sqlite_begin` says when and how a transaction begins.
    connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "busy_timeout=10000", "foreign_keys=ON"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _sqlite_begin(connection: Any) -> None:
    immediate = connection.get_execution_options().get("sqlite_immediate", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")
