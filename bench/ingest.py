"""How fast webhooks are stored, and that what was acknowledged is there after kill -9.

    python -m bench.ingest [--database URL] [--webhooks N]

Starts the shipped bot as its own process and a bare receiver beside it, and sends to each in turn: webhooks of 20 alerts over ten
connections; one body of 10,000 alerts; 100 alerts a second. Nothing of the bot is replaced. The cluster that its policy names is
unreachable, so that what is measured is ingest with a leader that has work it cannot do.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

CONNECTIONS = 10
PER_WEBHOOK = 20
HUGE = 10_000


class Receiver(NamedTuple):
    """A running receiver of webhooks."""

    port: int
    path: str
    token: str
    process: subprocess.Popen[bytes]
    rows: Callable[[], int]


def webhook(first: int, alerts: int, start: str) -> bytes:
    """A version 4 webhook of `alerts` firing alerts, as kube-prometheus' rules send them."""
    listed = [
        {
            "status": "firing",
            "labels": {
                "alertname": "KubePodCrashLooping",
                "namespace": f"team-{n % 25}",
                "pod": f"svc-{n % 97}-66f8d-{n % 100_000:05}",
                "container": "cart",
                "reason": "CrashLoopBackOff",
                "job": "kube-state-metrics",
                "severity": "warning",
                "cluster": "bench",
            },
            "annotations": {
                "summary": "Pod is crash looping.",
                "description": f"Pod team-{n % 25}/svc-{n % 97}-66f8d-{n % 100_000:05} (cart) waits (reason: CrashLoopBackOff).",
                "runbook_url": "https://runbooks.example.org/KubePodCrashLooping",
            },
            "startsAt": start,
            "endsAt": "0001-01-01T00:00:00Z",
            "generatorURL": "http://prometheus.example.org/graph?g0.expr=up",
            "fingerprint": f"{n:016x}",
        }
        for n in range(first, first + alerts)
    ]
    return json.dumps({"version": "4", "status": "firing", "receiver": "bot", "truncatedAlerts": 0, "alerts": listed}).encode()


class Connection:
    """One kept-alive HTTP connection that does nothing but post."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver

    async def __aenter__(self) -> Connection:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._receiver.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    async def post(self, body: bytes) -> int:
        """Send one body; the status of the answer."""
        head = (
            f"POST {self._receiver.path} HTTP/1.1\r\nHost: 127.0.0.1:{self._receiver.port}\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer {self._receiver.token}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self._writer.write(head.encode() + body)
        await self._writer.drain()
        answer = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        lines = answer.lower().split("\r\n")
        length = next(int(line.partition(":")[2]) for line in lines if line.startswith("content-length:"))
        await self._reader.readexactly(length)
        return int(answer.split(" ", 2)[1])


async def throughput(receiver: Receiver, bodies: Sequence[bytes]) -> tuple[float, float]:
    """Alerts stored a second over ten connections, and microseconds of the receiver's own processor time for each."""
    waiting = iter(bodies)

    async def send() -> None:
        async with Connection(receiver) as connection:
            for body in waiting:
                if await connection.post(body) != 200:
                    raise SystemExit("a webhook was not acknowledged")

    before, busy = receiver.rows(), processor_seconds(receiver)
    began = time.perf_counter()
    await asyncio.gather(*(send() for _ in range(CONNECTIONS)))
    seconds = time.perf_counter() - began
    stored = receiver.rows() - before
    if stored != len(bodies) * PER_WEBHOOK:
        raise SystemExit(f"acknowledged {len(bodies) * PER_WEBHOOK} alerts, stored {stored}")
    return stored / seconds, (processor_seconds(receiver) - busy) / stored * 1e6


async def latencies(receiver: Receiver, bodies: Sequence[bytes], every_s: float) -> tuple[float, float]:
    """p50 and p99 in milliseconds when one webhook comes every `every_s` seconds."""
    took: list[float] = []

    async def one(connection: Connection, body: bytes) -> None:
        began = time.perf_counter()
        await connection.post(body)
        took.append((time.perf_counter() - began) * 1000)

    async with Connection(receiver) as connection:
        for body in bodies:
            began = time.perf_counter()
            await one(connection, body)
            await asyncio.sleep(max(0.0, every_s - (time.perf_counter() - began)))
    took.sort()
    return took[len(took) // 2], took[int(len(took) * 0.99)]


async def huge(receiver: Receiver, body: bytes) -> tuple[float, float, int]:
    """One body of 10,000 alerts: seconds to the answer, growth of the process in MB, rows right after kill -9."""
    before, memory = receiver.rows(), resident_mb(receiver)
    async with Connection(receiver) as connection:
        began = time.perf_counter()
        posting = asyncio.create_task(connection.post(body))
        peak = memory
        while not posting.done():
            peak = max(peak, resident_mb(receiver))
            await asyncio.sleep(0.01)
        seconds = time.perf_counter() - began
        if posting.result() != 200:
            raise SystemExit(f"the huge body was answered {posting.result()}")
    os.kill(receiver.process.pid, signal.SIGKILL)
    receiver.process.wait()
    return seconds, peak - memory, receiver.rows() - before


def processor_seconds(receiver: Receiver) -> float:
    """User and system time of the receiver's process."""
    fields = Path(f"/proc/{receiver.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mb(receiver: Receiver) -> float:
    """Resident memory of the receiver."""
    status = Path(f"/proc/{receiver.process.pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) / 1024


@contextmanager
def bot(directory: Path, database: str | None) -> Iterator[Receiver]:
    """The shipped bot as its own process, with a token for one cluster."""
    url = database or f"sqlite:///{directory}/bot.db"
    port = free_port()
    (directory / "token").write_text("unused")
    (directory / "autonomy.yaml").write_text(
        "schema: 1\nclusters:\n  - name: bench\n    uid: bench-uid\n    match: {cluster: bench}\n"
        f"    api: {{server: 'http://127.0.0.1:1', token_file: {directory}/token}}\n"
    )
    environment = os.environ | {
        "SRE_BOT_DATABASE": url,
        "SRE_BOT_POLICY": str(directory / "autonomy.yaml"),
        "SRE_BOT_KEYS": str(directory / "keys"),
        "SRE_BOT_LISTEN": f"127.0.0.1:{port}",
        "SRE_BOT_PUBLIC_URL": f"http://127.0.0.1:{port}",
    }
    program = [sys.executable, "-c", "from bot.entry import main; main()"]
    subprocess.run([*program, "keys"], env=environment, check=True, stdout=subprocess.DEVNULL)
    token = asyncio.run(make_token(url))
    with (directory / "bot.log").open("wb") as log:
        process = subprocess.Popen([*program, "serve"], env=environment, stdout=log, stderr=log)
    yield from running(Receiver(port, "/v1/alerts/alertmanager", token, process, lambda: count_rows(url)))


@contextmanager
def bare(directory: Path) -> Iterator[Receiver]:
    """The bare receiver as its own process."""
    port, path = free_port(), directory / "bare.db"
    process = subprocess.Popen([sys.executable, "-m", "bench.bare_receiver", str(path), str(port)])
    yield from running(Receiver(port, "/", "", process, lambda: count_rows(f"sqlite:///{path}")))


def running(receiver: Receiver) -> Iterator[Receiver]:
    """Hand the receiver out once it listens; end it afterwards."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection(("127.0.0.1", receiver.port), timeout=1):
            break
        time.sleep(0.05)
    try:
        yield receiver
    finally:
        receiver.process.terminate()
        receiver.process.wait()


async def make_token(url: str) -> str:
    """A webhook token in the bot's own database."""
    from incidents.database import Database
    from incidents.people import issue_token
    from incidents.schema import migrate

    await migrate(url)
    database = Database.open(url)
    async with database.transaction() as session:
        text, _ = await issue_token(session, "ingest", "bench", now=datetime.now(UTC), clusters=["bench-uid"])
    await database.close()
    return text


def count_rows(url: str) -> int:
    """Alerts in the database, read past the process that writes them."""
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
            return int(connection.execute("SELECT count(*) FROM alert").fetchone()[0])
    import psycopg

    with psycopg.connect(url) as postgres:
        found = postgres.execute("SELECT count(*) FROM alert").fetchone()
        return int(found[0]) if found else 0


def free_port() -> int:
    """A port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def measure(webhooks: int, database: str | None = None) -> dict[str, float]:
    """All figures by name."""
    start = datetime.now(UTC).isoformat()
    bodies = [webhook(n * PER_WEBHOOK, PER_WEBHOOK, start) for n in range(webhooks)]
    single = [webhook(10**9 + n, 1, start) for n in range(500)]
    figures: dict[str, float] = {}
    directory = Path(tempfile.mkdtemp(prefix="bench-ingest-"))
    try:
        with bare(directory) as receiver:
            rate, cost = asyncio.run(throughput(receiver, bodies))
            figures["bare receiver, alerts/s stored"], figures["bare receiver, processor µs an alert"] = rate, cost
        with bot(directory, database) as receiver:
            rate, cost = asyncio.run(throughput(receiver, bodies))
            figures["bot, alerts/s stored"], figures["bot, processor µs an alert"] = rate, cost
            p50, p99 = asyncio.run(latencies(receiver, single, 0.01))
            figures["bot, acknowledgement p50 at 100 alerts/s, ms"] = p50
            figures["bot, acknowledgement p99 at 100 alerts/s, ms"] = p99
            figures["bot, resident MB"] = resident_mb(receiver)
            seconds, growth, rows = asyncio.run(huge(receiver, webhook(2 * 10**9, HUGE, start)))
            figures["bot, one body of 10,000 alerts, s"] = seconds
            figures["bot, growth with that body, MB"] = growth
            figures["bot, rows of it right after kill -9"] = rows
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--database", help="an empty PostgreSQL database instead of SQLite")
    parser.add_argument("--webhooks", type=int, default=3_000, help="webhooks of 20 alerts (default 3000)")
    chosen = parser.parse_args()
    for name, value in measure(chosen.webhooks, chosen.database).items():
        print(f"{name:55} {value:12,.1f}")


if __name__ == "__main__":
    main()
