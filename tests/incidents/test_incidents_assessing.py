"""The real worker against an emulated cluster and an Alertmanager over HTTP: nothing scripted, nothing patched."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from incidents_setting import context_on
from phases_setting import POLICY, Live, Outside, Story

from catalog.alerts import Alert
from catalog.clocks import SystemClock
from catalog.clusters import Cluster, KubernetesAccess
from catalog.targets import Target, TargetKind
from incidents.assessing import (
    CensusRequest,
    ConfirmAnswer,
    ConfirmRequest,
    TriageAnswer,
    TriageRequest,
    VerifyAnswer,
    VerifyRequest,
)
from incidents.database import Database
from incidents.storms import Census
from incidents.worker import Worker
from ladder.policy import parse_policy
from sandbox.cluster import SandboxCluster

SHOP = """
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {sre-ladder.dev/autonomy: enabled}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
        - {name: web, image: web:1}
"""


class Alertmanager:
    """Holds alerts and silences; counts nothing, forgets nothing."""

    def __init__(self) -> None:
        self.alerts: list[dict[str, Any]] = []
        self.down = False
        self.url = ""

    async def answer(self, request: web.Request) -> web.Response:
        if self.down:
            return web.Response(status=503)
        return web.json_response(self.alerts if request.path.endswith("/alerts") else [])


@pytest.fixture
async def alertmanager() -> AsyncIterator[Alertmanager]:
    server, app = Alertmanager(), web.Application()
    app.router.add_get("/{path:.*}", server.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield server
    await runner.cleanup()


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[SandboxCluster]:
    async with SandboxCluster(time_scale=50) as cluster:
        await cluster.apply(SHOP)
        await cluster.rolled_out("shop", "web")
        (tmp_path / "bot.token").write_text(cluster.tokens.bot)
        yield cluster


@pytest.fixture
def cluster(sandbox: SandboxCluster, alertmanager: Alertmanager, tmp_path: Path) -> Cluster:
    access = KubernetesAccess(server=sandbox.url, token_file=tmp_path / "bot.token")
    return Cluster(name="eu-1", uid=sandbox.uid, match={"cluster": "eu-1"}, api=access, alertmanager=alertmanager.url)


@pytest.fixture
async def worker() -> AsyncIterator[Worker]:
    opened = Worker(b"k" * 32)
    yield opened
    await opened.close()


def the_target(cluster: Cluster) -> Target:
    return Target(cluster_uid=cluster.uid, cluster=cluster.name, namespace="shop", kind=TargetKind.DEPLOYMENT, name="web")


def an_alert() -> Alert:
    labels = {"alertname": "PodWedged", "namespace": "shop", "deployment": "web", "severity": "warning"}
    return Alert(fingerprint="f1", status="firing", starts_at=SystemClock().now(), labels=labels)


def at_source(alert: Alert, **status: Any) -> dict[str, Any]:
    return {
        "labels": dict(alert.labels),
        "annotations": {},
        "fingerprint": alert.fingerprint,
        "startsAt": "2026-03-04T10:00:00Z",
        "endsAt": "2099-01-01T00:00:00Z",
        "status": {"state": "active", "silencedBy": [], "inhibitedBy": [], "mutedBy": []} | status,
        "receivers": [],
    }


async def test_triage_and_verification_of_a_live_deployment(worker: Worker, cluster: Cluster, alertmanager: Alertmanager) -> None:
    alert = an_alert()
    alertmanager.alerts = [at_source(alert)]
    request = TriageRequest(cluster=cluster, incident_id="i1", target=the_target(cluster), alerts=(alert,), budget_s=10)
    triaged = TriageAnswer.model_validate(await worker.ask("triage", request, patience_s=30))
    assert triaged.symptoms.facts is not None
    assert triaged.symptoms.facts.desired == 3
    assert triaged.diagnosis.incident_id == "i1"
    ask = VerifyRequest(cluster=cluster, diagnosis=triaged.diagnosis, target=the_target(cluster), alerts=(alert,), budget_s=8)
    verified = VerifyAnswer.model_validate(await worker.ask("verify", ask, patience_s=30))
    assert verified.facts is not None
    assert (verified.facts.exists, verified.facts.opted_in, verified.facts.ready) == (True, True, 3)
    (source,) = verified.readings.at_source
    assert (source.firing, source.silenced) == (True, False)
    assert verified.evidence is not None
    assert (verified.readings.expressions, verified.readings.scrape_interval) == ((), None)


async def test_a_silence_and_an_end_are_seen_at_the_source(worker: Worker, cluster: Cluster, alertmanager: Alertmanager) -> None:
    alert = an_alert()
    ask = ConfirmRequest(cluster=cluster, target=the_target(cluster), alerts=(alert,))
    alertmanager.alerts = [at_source(alert)]
    firing = ConfirmAnswer.model_validate(await worker.ask("confirm", ask, patience_s=30))
    assert (firing.still_firing, firing.firing) == (True, ("f1",))
    alertmanager.alerts = []
    over = ConfirmAnswer.model_validate(await worker.ask("confirm", ask, patience_s=30))
    assert (over.still_firing, over.firing, over.facts is not None) == (False, (), True)
    alertmanager.down = True
    unknown = ConfirmAnswer.model_validate(await worker.ask("confirm", ask, patience_s=30))
    assert unknown.still_firing is None


async def test_a_census_counts_opted_in_workloads_and_nodes(worker: Worker, cluster: Cluster, sandbox: SandboxCluster) -> None:
    counted = Census.model_validate(await worker.ask("census", CensusRequest(cluster=cluster), patience_s=30))
    assert (counted.namespaces, counted.workloads, counted.nodes_not_ready) == (("shop",), 1, 0)
    lost = cluster.model_copy(update={"api": KubernetesAccess(server="http://127.0.0.1:9", token_file=cluster.api.token_file)})
    unknown = Census.model_validate(await worker.ask("census", CensusRequest(cluster=lost), patience_s=30))
    assert (unknown.namespaces, unknown.workloads, unknown.nodes_not_ready) == (None, None, None)


async def test_an_incident_goes_all_the_way_to_people_with_every_source_real_and_with_none(
    worker: Worker, cluster: Cluster, alertmanager: Alertmanager, database: Database, tmp_path: Path
) -> None:
    clock = SystemClock()
    ctx = context_on(database, clock, POLICY)  # type: ignore[arg-type]  # nothing here moves the clock
    ctx.policies.current = parse_policy(POLICY).model_copy(update={"clusters": (cluster,)})
    story = Story(ctx, worker, Outside(tmp_path / "unused", clock.now()), Live(None))  # type: ignore[arg-type]
    alert = an_alert()
    alertmanager.alerts = [at_source(alert)]
    target = the_target(cluster)
    await story.fires(target=target)
    await story.settle()
    row = await story.incident()
    assert (row.phase, row.trouble, row.uid is not None) == ("notified", "", True)
    for kind in ("symptoms", "observations", "diagnosis", "evidence", "case", "decision"):
        assert len(await story.documents(kind)) == 1, kind
    nowhere = cluster.model_copy(
        update={
            "api": KubernetesAccess(server="http://127.0.0.1:9", token_file=cluster.api.token_file),
            "alertmanager": "http://127.0.0.1:9",
        }
    )
    ctx.policies.current = ctx.policies.current.model_copy(update={"clusters": (nowhere,)})
    await story.fires(fingerprint="f2", target=target.model_copy(update={"name": "api"}))
    await story.settle()
    row = await story.incident(2)
    assert row.phase == "notified"
    (_, diagnosis) = await story.documents("diagnosis")
    assert diagnosis.body is not None
    assert "kubernetes" in diagnosis.body
