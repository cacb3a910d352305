"""What tests of ingest and resolving hand in, and how they look at what came of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from prometheus_client import REGISTRY
from sqlmodel import col, select

from incidents.context import Context
from incidents.database import Database
from incidents.ingest import Receipt, hold_alerts
from incidents.people import issue_token
from incidents.policies import Policies
from incidents.tables import AlertRow, IncidentRow
from ladder.policy import parse_policy

PAYLOADS = Path(__file__).parents[1] / "data" / "payloads"
POLICY = """
schema: 1
clusters:
  - {name: eu-1, uid: uid-eu, match: {cluster: eu-1}, api: {server: "http://127.0.0.1:1", token_file: /nowhere}}
  - {name: us-1, uid: uid-us, match: {cluster: us-1}, api: {server: "http://127.0.0.1:1", token_file: /nowhere}}
defaults: {channel: {slack: C0000}}
"""


class MovableClock(Protocol):
    def now(self) -> datetime: ...

    def monotonic(self) -> float: ...

    def advance(self, seconds: float) -> None: ...


def payload(number: str) -> bytes:
    """The sample payload whose file name begins with `number`."""
    (path,) = PAYLOADS.glob(f"{number}_*.json")
    return path.read_bytes()


def envelope(*alerts: dict[str, Any]) -> bytes:
    """A version 4 webhook of these alerts."""
    return json.dumps({"version": "4", "status": "firing", "alerts": alerts}).encode()


def one_alert(
    fingerprint: str = "f1", status: str = "firing", starts_at: str = "2026-03-04T10:00:00Z", **labels: str
) -> dict[str, Any]:
    """One alert of Deployment shop/cart in cluster eu-1; an empty label takes one away."""
    named = {"alertname": "KubePodCrashLooping", "namespace": "shop", "deployment": "cart", "severity": "warning"}
    return {
        "status": status,
        "labels": {key: value for key, value in {**named, "cluster": "eu-1", **labels}.items() if value},
        "annotations": {},
        "startsAt": starts_at,
        "endsAt": "2026-03-04T10:04:00Z" if status == "resolved" else "0001-01-01T00:00:00Z",
        "fingerprint": fingerprint,
    }


def context_on(database: Database, clock: MovableClock, policy: str = POLICY, replica: str = "replica-1") -> Context:
    """A replica on a database."""
    return Context(database, clock, Policies(parse_policy(policy)), b"k" * 32, replica)


async def ingest_token(context: Context, *clusters: str) -> str:
    """A webhook token bound to clusters."""
    async with context.database.transaction() as session:
        text, _ = await issue_token(session, "ingest", "alertmanager", now=context.clock.now(), clusters=clusters)
    return text


async def alert_rows(database: Database) -> Sequence[AlertRow]:
    """Every alert row, in order of arrival."""
    async with database.reading() as session:
        return list(await session.exec(select(AlertRow).order_by(col(AlertRow.id))))


async def incident_rows(database: Database) -> Sequence[IncidentRow]:
    """Every incident, oldest first."""
    async with database.reading() as session:
        return list(await session.exec(select(IncidentRow).order_by(col(IncidentRow.number))))


@asynccontextmanager
async def held_alerts(database: Database) -> AsyncIterator[None]:
    """Nobody else can store an alert inside this block."""
    async with database.transaction() as session:
        await hold_alerts(session)
        yield


async def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait for a condition, not for a time."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - the condition is somebody else's state
            await asyncio.sleep(0.005)


def counted(metric: str, /, **labels: str) -> float:
    """The present value of one of our metrics."""
    return REGISTRY.get_sample_value(metric, labels) or 0.0


Send = Callable[[bytes], Awaitable[Receipt]]
