"""All readers of one cluster, opened and closed together."""

from __future__ import annotations

from pathlib import Path

import pytest

from catalog.clocks import SystemClock
from catalog.clusters import Cluster, KubernetesAccess
from sandbox.cluster import SandboxCluster
from sources.endpoints import open_sources
from sources.errors import SourceMisconfigured, SourceUnavailable


def described(shop: SandboxCluster, tmp_path: Path, **more: object) -> Cluster:
    token = tmp_path / "bot.token"
    token.write_text(shop.tokens.bot)
    document = {"name": "eu-1", "uid": shop.uid, "api": KubernetesAccess(server=shop.url, token_file=token)} | more
    return Cluster.model_validate(document)


async def test_a_source_that_is_not_configured_is_none_and_the_cluster_is_the_one_meant(
    shop: SandboxCluster, tmp_path: Path
) -> None:
    sources = await open_sources(described(shop, tmp_path), SystemClock(), b"key")
    assert (sources.prometheus, sources.alertmanager) == (None, None)
    assert await sources.kubernetes.cluster_uid() == shop.uid
    assert "hunter2" not in sources.redactor.text("password=hunter2")
    await sources.close()


async def test_a_server_that_is_down_shows_at_the_first_read_and_not_before(shop: SandboxCluster, tmp_path: Path) -> None:
    cluster = described(shop, tmp_path, prometheus="http://127.0.0.1:1", alertmanager="http://127.0.0.1:1")
    sources = await open_sources(cluster, SystemClock(), b"key")
    assert sources.prometheus is not None
    assert sources.alertmanager is not None
    with pytest.raises(SourceUnavailable) as caught:
        await sources.prometheus.instant("up")
    assert (caught.value.source, caught.value.kind) == ("prometheus", "unreachable")
    with pytest.raises(SourceUnavailable) as caught:
        await sources.alertmanager.firing({"alertname": "X"})
    assert (caught.value.source, caught.value.kind) == ("alertmanager", "unreachable")
    await sources.close()


@pytest.mark.parametrize("wrong", [{"prometheus": "nowhere"}, {"prometheus": "http://p", "alertmanager": "ftp://a"}])
async def test_a_wrong_address_is_said_at_once(wrong: dict[str, str], shop: SandboxCluster, tmp_path: Path) -> None:
    with pytest.raises(SourceMisconfigured):
        await open_sources(described(shop, tmp_path, **wrong), SystemClock(), b"key")


async def test_the_bots_account_cannot_read_secrets(shop: SandboxCluster, tmp_path: Path) -> None:
    sources = await open_sources(described(shop, tmp_path), SystemClock(), b"key")
    with pytest.raises(SourceUnavailable) as caught:
        await sources.kubernetes.list("/api/v1/namespaces/shop/secrets")
    assert caught.value.kind == "forbidden"
    assert await sources.kubernetes.access_review("patch", "deployments", group="apps", namespace="shop") is False
    assert await sources.kubernetes.access_review("list", "pods", namespace="shop") is True
    await sources.close()
