"""A replica's web application served by uvicorn on loopback, on each database, with people and tokens."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import uvicorn

from bot.serving import Server
from bot.settings import BotSettings
from bot.web import make_app
from catalog.targets import Target, TargetFacts, TargetKind
from incidents.commands import Commands
from incidents.context import Context
from incidents.desk import Desk
from sources.errors import SourceUnavailable

POLICY = """
schema: 1
clusters:
  - {name: eu-1, uid: uid-eu, match: {}, api: {server: "http://127.0.0.1:1", token_file: /nowhere}, prometheus: "http://prometheus:9090"}
people: {ana: {}, bo: {}, cy: {}}
scopes:
  - name: shop
    match: {cluster: eu-1, namespace: shop}
    roles: {approver: [person:ana], labeller: [person:ana, person:bo], owner: [person:ana, person:bo]}
    ceiling: {restart_workload: R5}
"""


class Unreachable:
    """Live targets of a cluster that cannot be reached."""

    async def facts(self, target: Target) -> TargetFacts:
        raise SourceUnavailable("kubernetes", "unreachable", f"{target.title} cannot be read")


@dataclass(frozen=True)
class Site:
    """A served replica and the tokens of its people."""

    url: str
    context: Context
    tokens: dict[str, str]
    settings: BotSettings

    def client(self, person: str | None = None, **headers: str) -> httpx.AsyncClient:
        """A client that speaks for a person, or for nobody."""
        if person is not None:
            headers["Authorization"] = f"Bearer {self.tokens[person]}"
        return httpx.AsyncClient(base_url=self.url, headers=headers, timeout=10, trust_env=False)


@asynccontextmanager
async def served(context: Context, keys: Path, tokens: dict[str, str]) -> AsyncIterator[Site]:
    """Serve a replica's application on a free loopback port."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(64)
        listening.setblocking(False)
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        settings = BotSettings(keys=keys, listen=address, public_url=f"http://{address}")
        app = make_app(context, Commands(context, Desk(context, Unreachable())), settings, notices=["a notice"])
        server = Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="off"))
        serving = asyncio.create_task(server.serve([listening]))
        async with asyncio.timeout(10):
            while not server.started:  # noqa: ASYNC110 - the server has no event to wait for
                await asyncio.sleep(0.01)
        yield Site(settings.public_url, context, tokens, settings)
        app.state.stopping.set()
        server.should_exit = True
        await serving


def webhook(*alerts: dict[str, object]) -> bytes:
    """A version 4 webhook."""
    return json.dumps({"version": "4", "status": "firing", "alerts": alerts}).encode()


def firing(**labels: str) -> dict[str, object]:
    """One alert that began a minute ago."""
    began = (datetime.now(UTC) - timedelta(minutes=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    named = {"alertname": "KubePodCrashLooping", "namespace": "shop", "deployment": "cart", "severity": "warning"}
    return {"status": "firing", "labels": named | labels, "annotations": {}, "startsAt": began, "fingerprint": f"f-{labels}"}


def target() -> Target:
    return Target(cluster_uid="uid-eu", cluster="eu-1", namespace="shop", kind=TargetKind.DEPLOYMENT, name="cart", uid="u1")
