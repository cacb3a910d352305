"""Observing within the budget, whatever the sources do: dead, slow, hanging, lying, or changing under the reader."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web
from workload_scenes import TARGET, alert, healthy, outlier

from catalog.clocks import SystemClock
from catalog.clusters import Cluster, KubernetesAccess
from catalog.diagnoses import Diagnosis
from catalog.documents import canonical
from catalog.evidence import Answer, Oracle
from catalog.orders import Check, CheckSource
from catalog.targets import Target, TargetKind
from sandbox.cluster import SandboxCluster
from sources.endpoints import SourceSet, open_sources
from triage.diagnosing import diagnose
from triage.gathering import gather
from verifier.observations import MAX_BYTES, Observations, fitted
from verifier.observing import observe
from verifier.weighing import weigh

Handler = Callable[[web.Request], Any]
NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}
DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "api", "namespace": "shop"},
    "spec": {
        "replicas": 3,
        "selector": {"matchLabels": {"app": "api"}},
        "template": {
            "metadata": {"labels": {"app": "api"}},
            "spec": {"containers": [{"name": "app", "image": "sandbox/web:1", "resources": {"limits": {"memory": "192Mi"}}}]},
        },
    },
}


@asynccontextmanager
async def answering(handle: Handler) -> AsyncIterator[str]:
    """A server that answers everything with `handle`; gives its address."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def hang(request: web.Request) -> web.Response:
    await asyncio.sleep(60)
    return web.Response()


async def login_page(request: web.Request) -> web.Response:
    return web.Response(text="<html><h1>Please log in</h1></html>", content_type="text/html")


async def broken(request: web.Request) -> web.Response:
    return web.json_response({"status": "error", "errorType": "internal", "error": "boom"}, status=500)


async def nan(request: web.Request) -> web.Response:
    """A Prometheus all of whose answers are NaN."""
    if request.path.endswith("/rules"):
        rule = {
            "name": "PodLatencyOutlier",
            "query": "latency > 1",
            "duration": 0,
            "labels": {},
            "type": "alerting",
            "health": "ok",
        }
        return web.json_response({"status": "success", "data": {"groups": [{"name": "g", "interval": 15, "rules": [rule]}]}})
    if request.path.endswith("/config"):
        return web.json_response({"status": "success", "data": {"yaml": "global: {scrape_interval: 15s}"}})
    series = {"metric": {"namespace": "shop", "pod": "api-6bd86f5796-b0000"}, "value": [1772618400, "NaN"]}
    return web.json_response({"status": "success", "data": {"resultType": "vector", "result": [series]}})


@asynccontextmanager
async def opened(
    tmp_path: Path, *, kubernetes: str | None = None, prometheus: str | None = None, alertmanager: str | None = None
) -> AsyncIterator[tuple[SourceSet, SandboxCluster | None]]:
    """Sources over the emulated cluster, or over another Kubernetes address, with the given Prometheus and Alertmanager."""
    token = tmp_path / "bot.token"
    if kubernetes is not None:
        token.write_text("t")
        async with _sources(kubernetes, "uid", token, prometheus, alertmanager) as sources:
            yield sources, None
        return
    async with SandboxCluster(time_scale=50) as cluster:
        await cluster.apply([NAMESPACE, DEPLOYMENT])
        await cluster.rolled_out("shop", "api")
        token.write_text(cluster.tokens.bot)
        async with _sources(cluster.url, cluster.uid, token, prometheus, alertmanager) as sources:
            yield sources, cluster


@asynccontextmanager
async def _sources(url: str, uid: str, token: Path, prometheus: str | None, alertmanager: str | None) -> AsyncIterator[SourceSet]:
    access = KubernetesAccess(server=url, token_file=token)
    found = Cluster(name="sandbox", uid=uid, api=access, prometheus=prometheus, alertmanager=alertmanager)
    sources = await open_sources(found, SystemClock(), b"k" * 32)
    try:
        yield sources
    finally:
        await sources.close()


def target_of(sources: SourceSet) -> Target:
    return Target(cluster_uid=sources.cluster.uid, cluster="sandbox", namespace="shop", kind=TargetKind.DEPLOYMENT, name="api")


def wedged() -> Diagnosis:
    return diagnose(outlier().symptoms())


ALERTS = [alert("PodLatencyOutlier", pod="api-6bd86f5796-b0000")]


async def timed(sources: SourceSet, **options: Any) -> tuple[Observations, float]:
    loop = asyncio.get_running_loop()
    began = loop.time()
    observations = await observe(wedged(), target_of(sources), ALERTS, sources, **options)
    return observations, loop.time() - began


async def test_g22_everything_hangs_and_the_ten_seconds_hold(tmp_path: Path) -> None:
    async with answering(hang) as dead, opened(tmp_path, kubernetes=dead, prometheus=dead, alertmanager=dead) as (sources, _):
        check = Check(
            name="errors", oracle=Oracle.SERVICE_LEVEL, source=CheckSource.PROMETHEUS, target=TARGET, query="x", passing="< 1"
        )
        observations, took = await timed(sources, service_level=[check])
        assert took < 10.5
        evidence = weigh(observations)
        assert evidence.evidence_weight is None
        assert evidence.note.startswith("not verified")
        assert evidence.tainted is not None
        assert set(observations.faults) >= {"kubernetes", "alertmanager"}


async def test_g22_a_small_budget_holds_as_well(tmp_path: Path) -> None:
    async with answering(hang) as dead, opened(tmp_path, kubernetes=dead, prometheus=dead) as (sources, _):
        observations, took = await timed(sources, budget_s=1.0)
        assert took < 1.5
        assert observations.late
        assert weigh(observations).evidence_weight is None


async def test_g22_what_answers_in_time_counts_beside_a_source_that_hangs(tmp_path: Path) -> None:
    async with answering(hang) as dead, opened(tmp_path, prometheus=dead) as (sources, _):
        observations, took = await timed(sources, budget_s=3.0)
        assert took < 3.5
        assert observations.workload is not None
        assert observations.tainted is None
        evidence = weigh(observations)
        assert evidence.evidence_weight is not None
        assert evidence.sources == ("kubernetes",)
        late = {item.id: item.reason for item in evidence.items if item.source == "prometheus"}
        assert late["rule_holds"] == "timeout"
        assert late["outlier"] in {"timeout", "unreachable"}


@pytest.mark.parametrize("lie", [login_page, broken], ids=["login-page", "error-500"])
async def test_g26_a_prometheus_that_lies_or_fails_is_inconclusive_by_name(tmp_path: Path, lie: Handler) -> None:
    async with answering(lie) as url, opened(tmp_path, prometheus=url, alertmanager=url) as (sources, _):
        observations, _took = await timed(sources)
        evidence = weigh(observations)
        asked = [item for item in evidence.items if item.source in ("prometheus", "alertmanager")]
        assert asked
        assert all(item.answer is Answer.INCONCLUSIVE and item.reason for item in asked)
        assert "kubernetes" in evidence.sources


async def test_g26_a_dead_prometheus_leaves_kubernetes_evidence_and_a_visible_fault(tmp_path: Path) -> None:
    async with opened(tmp_path, prometheus="http://127.0.0.1:9") as (sources, _):
        observations, took = await timed(sources)
        assert took < 10
        evidence = weigh(observations)
        assert "prometheus" not in evidence.sources
        symptoms = await gather("01JN", target_of(sources), ALERTS, sources)
        assert "prometheus" in symptoms.faults
        diagnosis = diagnose(symptoms)
        assert {vote.specialist: vote.state for vote in diagnosis.votes}["metrics"] == "fault"
        assert diagnosis.degraded


async def test_f28_a_prometheus_of_nothing_but_nan_supports_no_workload_fault(tmp_path: Path) -> None:
    async with answering(nan) as url, opened(tmp_path, prometheus=url) as (sources, _):
        observations, _took = await timed(sources)
        evidence = weigh(observations)
        answers = {item.id: item.answer for item in evidence.items if item.source == "prometheus"}
        assert Answer.SUPPORTS not in answers.values()
        assert answers["rule_holds"] is Answer.REFUTES
        diagnosis = diagnose(await gather("01JN", target_of(sources), ALERTS, sources))
        assert diagnosis.best.family.value == "data_fault"


async def test_a_kubernetes_api_that_lies_is_a_fault_and_not_an_empty_cluster(tmp_path: Path) -> None:
    async def nonsense(request: web.Request) -> web.Response:
        body = {"kind": "Deployment", "metadata": {"name": "api", "uid": "u"}, "spec": "no", "status": ["x"], "items": [1, 2]}
        return web.json_response(body)

    for lie in (nonsense, login_page):
        async with answering(lie) as url, opened(tmp_path, kubernetes=url) as (sources, _):
            observations, _took = await timed(sources)
            assert observations.workload is None
            assert "kubernetes" in observations.faults
            assert weigh(observations).evidence_weight is None


async def test_a_target_that_changes_while_it_is_read_taints_the_evidence(tmp_path: Path) -> None:
    moved = asyncio.Event()
    async with opened(tmp_path) as (plain, cluster):
        assert cluster is not None

        async def scaling(request: web.Request) -> web.Response:
            if not moved.is_set():
                moved.set()
                await _scale(cluster, 4)
            return await broken(request)

        untouched, _took = await timed(plain)
        assert untouched.tainted is None
        async with (
            answering(scaling) as url,
            _sources(cluster.url, cluster.uid, tmp_path / "bot.token", url, None) as sources,
        ):
            observations, _took = await timed(sources)
            assert observations.tainted is not None
            assert "generation" in observations.tainted
            assert weigh(observations).tainted == observations.tainted


async def _scale(cluster: SandboxCluster, replicas: int) -> None:
    headers = {"Authorization": f"Bearer {cluster.tokens.admin}", "Content-Type": "application/merge-patch+json"}
    async with httpx.AsyncClient(base_url=cluster.url, headers=headers, trust_env=False) as client:
        answer = await client.patch(
            "/apis/apps/v1/namespaces/shop/deployments/api", content=f'{{"spec":{{"replicas":{replicas}}}}}'
        )
        assert answer.status_code == httpx.codes.OK


async def test_a_target_that_does_not_exist_verifies_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path) as (sources, _):
        gone = target_of(sources).model_copy(update={"name": "other"})
        observations = await observe(wedged(), gone, ALERTS, sources)
        assert weigh(observations).evidence_weight is None


async def test_without_alerts_there_is_nothing_to_verify(tmp_path: Path) -> None:
    async with opened(tmp_path) as (sources, _):
        with pytest.raises(ValueError, match="no alerts"):
            await observe(wedged(), TARGET, [], sources)


def test_observations_stay_within_their_size() -> None:
    scene = healthy(20)
    scene.alerts = [alert("HighLatency", deployment="api")]
    scene.events = [
        {"reason": f"R{index}", "message": "m" * 400, "involvedObject": {"kind": "Pod", "name": f"p{index}"}, "metadata": {}}
        for index in range(60)
    ]
    observations = scene.observations(wedged())
    small = fitted(observations, limit=len(canonical(observations)) - 2000)
    assert len(canonical(small)) < len(canonical(observations))
    assert small.cut["events"] > 0
    assert len(canonical(fitted(observations))) <= MAX_BYTES
