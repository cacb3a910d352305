"""The bot's schema, brought up to date on start by its migrations.

Several replicas may start at once: one migrates, the others wait for it and find nothing left to do.
"""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from incidents.database import Database, StoreUnavailable

MIGRATIONS = Path(__file__).parent / "migrations"
_MIGRATION_LOCK = 0x5E1ADDE2


async def migrate(database_url: str) -> None:
    """Bring the schema of `database_url` to the newest revision; nothing happens where it already is.

    Raises:
        DatabaseUrlInvalid: the URL is not one this system can use.
        StoreUnavailable: the database cannot be reached or changed.
    """
    database = Database.open(database_url)
    try:
        async with database.engine.connect() as connection:
            if database.dialect == "sqlite":
                await connection.execution_options(sqlite_immediate=True)
            else:
                await connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})
            await connection.run_sync(_upgrade)
            await connection.commit()
    except DBAPIError as error:
        raise StoreUnavailable(f"the schema could not be brought up to date: {str(error.orig).strip()}") from error
    finally:
        await database.close()


def configuration() -> Config:
    """Alembic's configuration of these migrations, without a file."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    return config


def _upgrade(connection: Connection) -> None:
    config = configuration()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
