"""An emulated cluster with one shop in it, and readers of it under the bot's own account."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from source_servers import CLUSTER, SHOP, reading

from catalog.clusters import Cluster
from sandbox.cluster import SandboxCluster
from sources.kubernetes import KubernetesReader


@pytest.fixture
async def shop() -> AsyncIterator[SandboxCluster]:
    """A cluster in which the shop's Deployment `web` is rolled out."""
    async with SandboxCluster(time_scale=50) as cluster:
        await cluster.apply(SHOP)
        await cluster.rolled_out("shop", "web")
        yield cluster


@pytest.fixture
async def reader(shop: SandboxCluster, tmp_path: Path) -> AsyncIterator[KubernetesReader]:
    """The bot's reader of the shop's cluster."""
    async with reading(shop.url, tmp_path, token=shop.tokens.bot) as opened:
        yield opened


@pytest.fixture
def cluster(shop: SandboxCluster) -> Cluster:
    """The shop's cluster as the configuration names it."""
    return CLUSTER.model_copy(update={"uid": shop.uid})
