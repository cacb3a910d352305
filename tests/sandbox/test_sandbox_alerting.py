"""The real Prometheus and Alertmanager on the sandbox's exporters: a fault becomes an alert at a webhook, and resolves."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from aiohttp import web

from sandbox.alerting import AlertingError, AlertingPair, Programs, find_programs, free_port, prometheus_config, rules_document
from sandbox.cluster import SandboxCluster

Json = dict[str, Any]
RATE = 'sum by (namespace, deployment) (rate(gateway_requests_total{code=~"5.."}[5s]))'
ERRORS = f"{RATE} / sum by (namespace, deployment) (rate(gateway_requests_total[5s]))"
RULES = rules_document(
    [
        {
            "alert": "HighErrorRate",
            "expr": f"{ERRORS} > 0.1",
            "labels": {"severity": "critical"},
            "annotations": {"summary": "errors"},
        },
        {
            "alert": "KubePodCrashLooping",
            "expr": 'max_over_time(kube_pod_container_status_waiting_reason{reason="CrashLoopBackOff"}[3s]) >= 1',
            "labels": {"severity": "warning"},
        },
    ]
)
SHOP = """
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: checkout, namespace: shop, annotations: {sandbox.dev/offered-rps: "90"}}
spec:
  replicas: 2
  selector: {matchLabels: {app: checkout}}
  template:
    metadata: {labels: {app: checkout}}
    spec:
      containers:
        - {name: app, image: "sandbox/web:1", readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1}}
"""


class Receiver:
    """A webhook that keeps what it gets, if the bearer token is right."""

    def __init__(self) -> None:
        self.groups: list[Json] = []
        self.refused = 0

    async def take(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != "Bearer let-me-in":
            self.refused += 1
            return web.Response(status=401)
        self.groups.append(await request.json())
        return web.Response()

    def has(self, name: str, status: str) -> bool:
        return any(
            alert["labels"]["alertname"] == name and alert["status"] == status for group in self.groups for alert in group["alerts"]
        )


@pytest.fixture
async def webhook() -> AsyncIterator[tuple[Receiver, str]]:
    receiver = Receiver()
    app = web.Application()
    app.router.add_post("/hook", receiver.take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield receiver, f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    await runner.cleanup()


async def wait(condition: Callable[[], bool], what: str, within: float = 30.0) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    while not condition():
        assert loop.time() < deadline, what
        await asyncio.sleep(0.1)


async def query(url: str, expression: str) -> list[Json]:
    async with httpx.AsyncClient(trust_env=False) as client:
        answer = await client.get(f"{url}/api/v1/query", params={"query": expression})
    result: list[Json] = answer.json()["data"]["result"]
    return result


async def test_fault_fires_at_the_webhook_and_resolves(tmp_path: Path, webhook: tuple[Receiver, str]) -> None:
    receiver, url = webhook
    async with SandboxCluster(time_scale=10) as cluster:
        await cluster.apply(SHOP)
        await cluster.rolled_out("shop", "checkout")
        pair = await AlertingPair.start(
            tmp_path / "alerting",
            exporters=cluster.exporters_address,
            rules=RULES,
            webhook=url,
            token="let-me-in",
            external_labels={"cluster": "sandbox"},
        )
        try:
            fault = cluster.break_program("shop", "checkout", error_ratio=0.5)
            await wait(lambda: receiver.has("HighErrorRate", "firing"), "the alert did not fire")
            alert = next(alert for group in receiver.groups for alert in group["alerts"])
            assert {key: alert["labels"][key] for key in ("cluster", "namespace", "deployment", "severity")} == {
                "cluster": "sandbox",
                "namespace": "shop",
                "deployment": "checkout",
                "severity": "critical",
            }
            up = {item["metric"]["job"]: item["value"][1] for item in await query(pair.prometheus_url, "up")}
            assert up == {"kube-state-metrics": "1", "cadvisor": "1", "applications": "1"}
            replicas = await query(pair.prometheus_url, 'kube_deployment_spec_replicas{deployment="checkout"}')
            assert [item["value"][1] for item in replicas] == ["2"]
            quantile = "histogram_quantile(0.99, sum by (le) (rate(http_request_duration_seconds_bucket[5s])))"
            assert 0.02 < float((await query(pair.prometheus_url, quantile))[0]["value"][1]) < 1
            cluster.mend_program("shop", "checkout", fault.id)
            await wait(lambda: receiver.has("HighErrorRate", "resolved"), "the alert did not resolve")
            assert receiver.refused == 0
        finally:
            await pair.stop()


async def test_frozen_or_missing_exporter_is_seen_by_prometheus(tmp_path: Path, webhook: tuple[Receiver, str]) -> None:
    async with SandboxCluster(time_scale=10) as cluster:
        await cluster.apply(SHOP)
        await cluster.rolled_out("shop", "checkout")
        pair = await AlertingPair.start(tmp_path / "alerting", exporters=cluster.exporters_address, rules=RULES, webhook=webhook[1])
        try:
            cluster.set_exporter("cadvisor", "down")
            state: list[Json] = []
            async with asyncio.timeout(20):
                while not state:
                    state = await query(pair.prometheus_url, 'up{job="cadvisor"} == 0')
                    await asyncio.sleep(0.1)
            await pair.stop_prometheus()
            with pytest.raises(httpx.ConnectError):
                await query(pair.prometheus_url, "up")
        finally:
            await pair.stop()


async def test_bad_rules_are_told_and_nothing_is_left_running(tmp_path: Path) -> None:
    with pytest.raises(AlertingError, match="prometheus ended with code"):
        await AlertingPair.start(
            tmp_path / "alerting",
            exporters="127.0.0.1:1",
            rules=rules_document([{"alert": "Odd", "expr": "sum("}]),
            webhook="http://127.0.0.1:1/",
        )


async def test_programs_are_fetched_where_they_are_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """apt-get and dpkg are stood in for by two scripts on PATH: no network in tests."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, script in (
        ("apt-get", '#!/bin/sh\n[ "$1" = download ] && : > "$2_1_all.deb"\n'),
        ("dpkg", '#!/bin/sh\nname=$(basename "$3")\nmkdir -p "$3/usr/bin" && : > "$3/usr/bin/$name"\n'),
    ):
        (tools / name).write_text(script)
        (tools / name).chmod(0o755)
    for needed in ("sh", "basename", "mkdir"):
        (tools / needed).symlink_to(shutil.which(needed) or f"/bin/{needed}")
    monkeypatch.setenv("PATH", str(tools))
    found = await find_programs(tmp_path / "cache")
    assert found == Programs(
        tmp_path / "cache/prometheus/usr/bin/prometheus",
        tmp_path / "cache/prometheus-alertmanager/usr/bin/prometheus-alertmanager",
    )
    (tools / "apt-get").unlink()
    assert await find_programs(tmp_path / "cache") == found
    with pytest.raises(AlertingError, match="without apt-get it cannot be fetched"):
        await find_programs(tmp_path / "other")


def test_configuration_scrapes_every_exporter_with_their_own_labels(tmp_path: Path) -> None:
    text = prometheus_config(exporters="127.0.0.1:1", alertmanager="127.0.0.1:2", rules=tmp_path / "rules.yml", scrape_s=0.5)
    document = yaml.safe_load(text)
    assert [item["metrics_path"] for item in document["scrape_configs"]] == [
        "/metrics/kube-state-metrics",
        "/metrics/cadvisor",
        "/metrics/applications",
    ]
    assert all(item["honor_labels"] for item in document["scrape_configs"])
    assert document["global"]["scrape_interval"] == "500ms"
    assert free_port() != 0
