"""A cluster, a bot and a Prometheus on loopback, and the real executor between them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from executor_setting import (
    ALERT,
    ERRORS,
    NAMESPACE,
    BotStub,
    PrometheusStub,
    Setting,
    deployment,
    make_files,
    make_settings,
    service,
)

from sandbox.bootstrapping import grant
from sandbox.cluster import SandboxCluster

_numbers = count(1)


@pytest.fixture(scope="session", autouse=True)
def _loop_between_tests() -> Iterator[None]:
    """The loop that pytest-asyncio puts back between tests. Without one it makes one, and nobody closes that."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    loop.close()


@pytest.fixture
async def setting(tmp_path: Path) -> AsyncIterator[Setting]:
    """A healthy Deployment shop/web of three, whose alert fires, and nothing ordered yet."""
    bot_key, executor_keys = make_files(tmp_path)
    async with (
        SandboxCluster(time_scale=20, state_dir=tmp_path) as cluster,
        BotStub("executor-token", executor_keys) as bot,
        PrometheusStub() as prometheus,
    ):
        # The ready pods of a namespace are summed over its workloads of every kind.
        daemon_sets = {"verbs": ["get", "list"], "apiGroups": ["apps"], "resources": ["daemonsets"]}
        grant(cluster.store, "sre-ladder-executor-radius", [daemon_sets], name="executor")
        prometheus.signals = {ALERT: 1.0, ERRORS: 0.0}
        await cluster.apply([NAMESPACE, deployment(), service()])
        await cluster.rolled_out("shop", "web")
        settings = make_settings(tmp_path, cluster, bot.url, prometheus.url)
        yield Setting(cluster, bot, prometheus, tmp_path, settings, bot_key)


@pytest.fixture(params=["sqlite", "postgresql"])
def journal_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each kind, which the journal migrates itself."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/journal.db"
    server = str(request.getfixturevalue("postgres_server"))
    name = f"journal_{next(_numbers)}_{os.getpid()}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    parts = urlsplit(server)
    return urlunsplit(parts._replace(path=f"/{name}"))
