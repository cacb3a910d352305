"""Brings the journal's schema to what this version needs. Imported late: alembic is needed for a second only."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from sqlalchemy import create_engine
from sqlalchemy.engine import make_url
from sqlalchemy.exc import OperationalError

from executor.database import journal_url
from executor.errors import JournalUnavailable

_HERE = Path(__file__).parent / "migrations"


def migrate(url: str) -> str:
    """Upgrade the journal at `url` to the newest schema; blocking. Returns the revision.

    Raises:
        ConfigurationInvalid: the URL is not one of ours.
        JournalUnavailable: the database cannot be reached or written.
    """
    address = journal_url(url, blocking=True)
    _make_directory(address)
    engine = create_engine(address)
    try:
        with engine.begin() as connection:
            config = Config()
            config.set_main_option("script_location", str(_HERE))
            config.set_main_option("path_separator", "os")
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
            return str(MigrationContext.configure(connection).get_current_revision())
    except OperationalError as error:
        raise JournalUnavailable(str(error.orig).splitlines()[0]) from error
    finally:
        engine.dispose()


def _make_directory(address: str) -> None:
    database = make_url(address).database
    if address.startswith("sqlite") and database:
        try:
            Path(database).parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise JournalUnavailable(f"{Path(database).parent}: {error.strerror}") from error
