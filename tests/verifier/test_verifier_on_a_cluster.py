"""Triage and verifier end to end: the emulated cluster over HTTP, the real Prometheus and Alertmanager with real rules."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest

from catalog.actions import Escalate, RemediationAction, RestartPod, RestartWorkload, RollbackRelease, Scale
from catalog.alerts import Alert
from catalog.cases import EvidenceSummary
from catalog.clocks import SystemClock
from catalog.clusters import Cluster, KubernetesAccess
from catalog.diagnoses import Diagnosis, Family
from catalog.documents import canonical
from catalog.evidence import Evidence, Oracle
from catalog.orders import Check, CheckSource
from catalog.targets import Target, TargetKind
from sandbox.alerting import AlertingPair, rules_document
from sandbox.cluster import SandboxCluster
from sources.endpoints import SourceSet, open_sources
from triage.diagnosing import diagnose
from triage.gathering import gather
from triage.symptoms import MAX_BYTES, Symptoms
from verifier.observing import observe
from verifier.weighing import weigh

_T = TypeVar("_T")


def _failing(deployment: str) -> str:
    """More than a twentieth of the requests to a Deployment fail."""
    requests = f'http_requests_total{{deployment="{deployment}"'
    by = "sum by (namespace, deployment)"
    return f'{by} (rate({requests},code=~"5.."}}[10s])) / {by} (rate({requests}}}[10s])) > 0.05'


RULES: list[dict[str, Any]] = [
    {
        "alert": "ContainerMemoryExhaustionPredicted",
        "expr": (
            'max by (namespace, pod) (predict_linear(container_memory_working_set_bytes{container!=""}[30s], 1800)) > '
            'min by (namespace, pod) (kube_pod_container_resource_limits{resource="memory"})'
        ),
    },
    {
        "alert": "PodLatencyOutlier",
        "expr": ("histogram_quantile(0.99, sum by (namespace, pod, le) (rate(http_request_duration_seconds_bucket[15s]))) > 1"),
    },
    {
        "alert": "CPUSaturation",
        "for": "10s",
        "expr": (
            'sum by (namespace, pod) (rate(container_cpu_usage_seconds_total{container!=""}[10s])) / '
            'sum by (namespace, pod) (kube_pod_container_resource_limits{resource="cpu"}) > 0.8'
        ),
    },
    {"alert": "ErrorBudgetBurn", "expr": _failing("gateway")},
    {"alert": "AuthFailures", "expr": _failing("orders")},
    {"alert": "KubePodCrashLooping", "expr": 'kube_pod_container_status_waiting_reason{reason="CrashLoopBackOff"} == 1'},
]
USUAL_RPS = 60.0
OVERLOAD_RPS = 190.0
NAMESPACE = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {"name": "shop", "labels": {"sre-ladder.dev/autonomy": "enabled"}},
}
ERRORS_QUERY = (
    'sum(rate(http_requests_total{namespace="shop",code=~"5.."}[20s])) / sum(rate(http_requests_total{namespace="shop"}[20s]))'
)


def workload(name: str, *, replicas: int, image: str = "sandbox/web:1", rps: float = USUAL_RPS, **settings: str) -> dict[str, Any]:
    annotations = {f"sandbox.dev/{key.replace('_', '-')}": value for key, value in settings.items()}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "shop", "annotations": {"sandbox.dev/offered-rps": str(rps)}},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}, "annotations": annotations},
                "spec": {
                    "containers": [
                        {
                            "name": "app",
                            "image": image,
                            "resources": {
                                "limits": {"memory": "192Mi", "cpu": "500m"},
                                "requests": {"memory": "64Mi", "cpu": "100m"},
                            },
                        }
                    ]
                },
            },
        },
    }


class Place:
    """A running cluster with its alerting and the bot's read-only sources."""

    def __init__(self, cluster: SandboxCluster, pair: AlertingPair, sources: SourceSet) -> None:
        self.cluster, self.pair, self.sources = cluster, pair, sources

    def target(self, name: str) -> Target:
        return Target(cluster_uid=self.cluster.uid, cluster="sandbox", namespace="shop", kind=TargetKind.DEPLOYMENT, name=name)

    def check(self, name: str) -> Check:
        return Check(
            name="errors", oracle=Oracle.SERVICE_LEVEL, source=CheckSource.PROMETHEUS, target=self.target(name), query=ERRORS_QUERY,
            passing="< 0.01",
        )  # fmt: skip

    async def firing(self, alertname: str, workload: str) -> Alert:
        """The alert as Alertmanager has it, once it fires for a pod of the workload."""
        reader = self.sources.alertmanager
        assert reader is not None

        async def look() -> Alert | None:
            for one in await _alerts(self.pair.alertmanager_url):
                labels = one["labels"]
                own = labels.get("pod", "").startswith(f"{workload}-") or labels.get("deployment") == workload
                if labels["alertname"] == alertname and own:
                    since = datetime.fromisoformat(one["startsAt"])
                    return Alert(fingerprint=one["fingerprint"], status="firing", starts_at=since, labels=labels)
            return None

        return await until(look, within_s=40, what=f"{alertname} for {workload}")

    async def judged(
        self, name: str, alerts: Sequence[Alert], family: Family, *, within_s: float = 25
    ) -> tuple[Symptoms, Diagnosis, Evidence]:
        """Triage and verify until this family is both named and verified: telemetry needs some scrapes to speak."""
        seen: list[tuple[Symptoms, Diagnosis, Evidence]] = []

        async def look() -> tuple[Symptoms, Diagnosis, Evidence] | None:
            symptoms = await gather("01JN", self.target(name), alerts, self.sources)
            diagnosis = diagnose(symptoms)
            observations = await observe(diagnosis, self.target(name), alerts, self.sources, service_level=[self.check(name)])
            evidence = weigh(observations)
            seen.append((symptoms, diagnosis, evidence))
            return seen[-1] if diagnosis.best.family is family and (evidence.evidence_weight or 0) >= 0.85 else None

        try:
            return await until(look, within_s=within_s, what=f"{family.value} for {name}")
        except AssertionError:
            best = seen[-1][1].best
            raise AssertionError(f"{best.family} ({best.statement}), {seen[-1][2].model_dump_json(indent=1)}") from None


async def _alerts(url: str) -> list[dict[str, Any]]:
    async with httpx.AsyncClient(base_url=url, timeout=5, trust_env=False) as client:
        found: list[dict[str, Any]] = (await client.get("/api/v2/alerts")).json()
        return found


async def until(look: Callable[[], Awaitable[_T | None]], *, within_s: float, what: str) -> _T:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_s
    while True:
        found = await look()
        if found is not None:
            return found
        assert loop.time() < deadline, f"{what} did not come true within {within_s:g} s"
        await asyncio.sleep(0.25)


@asynccontextmanager
async def place(directory: Path, *workloads: dict[str, Any], time_scale: float = 10) -> AsyncIterator[Place]:
    async with SandboxCluster(time_scale=time_scale, state_dir=directory / "state") as cluster:
        await cluster.apply([NAMESPACE, *workloads])
        pair = await AlertingPair.start(
            directory, exporters=cluster.exporters_address, rules=rules_document(RULES), webhook="http://127.0.0.1:9/nobody"
        )
        access = KubernetesAccess(server=cluster.url, token_file=directory / "state" / "bot.token")
        found = Cluster(
            name="sandbox", uid=cluster.uid, api=access, prometheus=pair.prometheus_url, alertmanager=pair.alertmanager_url
        )
        sources = await open_sources(found, SystemClock(), b"k" * 32)
        try:
            yield Place(cluster, pair, sources)
        finally:
            await sources.close()
            await pair.stop()


def assert_ready_for_auto(evidence: Evidence) -> None:
    """What the evidence gate asks of an automatic order."""
    assert evidence.evidence_weight is not None
    assert evidence.evidence_weight >= 0.85
    assert not evidence.refuted
    assert evidence.tainted is None
    assert len(evidence.sources) >= 2
    assert "kubernetes" in evidence.sources
    assert set(EvidenceSummary.of(evidence).oracles) == set(Oracle)


@pytest.mark.timeout(90)
async def test_k03_p01_p04_k01_are_named_and_verified_on_a_cluster_with_real_rules(tmp_path: Path) -> None:
    workloads = (
        workload("leaky", replicas=2),
        workload("api", replicas=4),
        workload("front", replicas=2, rps=12),
        workload("worker", replicas=2),
    )
    async with place(tmp_path, *workloads) as here:
        cluster = here.cluster
        for name in ("leaky", "api", "front", "worker"):
            await cluster.rolled_out("shop", name)
        slow = cluster.pods("shop", "api")[0]["metadata"]["name"]
        async with asyncio.TaskGroup() as group:
            for story in (leak(here), outlier(here, slow), crash(here), load(here)):
                group.create_task(story)


async def leak(here: Place) -> None:
    here.cluster.break_program("shop", "leaky", pods="existing", leak_bytes_per_s=30_000)
    firing = await here.firing("ContainerMemoryExhaustionPredicted", "leaky")
    symptoms, diagnosis, evidence = await here.judged("leaky", [firing], Family.OUT_OF_MEMORY)
    assert isinstance(diagnosis.best.action, RestartWorkload)
    assert not any(isinstance(one.action, Scale) for one in diagnosis.hypotheses)
    assert_ready_for_auto(evidence)
    assert len(canonical(symptoms)) < MAX_BYTES
    assert canonical(diagnose(Symptoms.model_validate_json(symptoms.to_json()))) == canonical(diagnosis)


async def outlier(here: Place, slow: str) -> None:
    here.cluster.break_program("shop", "api", pods=(slow,), wedged_after_s=0)
    firing = await here.firing("PodLatencyOutlier", "api")
    _, diagnosis, evidence = await here.judged("api", [firing], Family.WEDGED)
    assert isinstance(diagnosis.best.action, RestartPod)
    assert diagnosis.best.action.pod == slow
    assert_ready_for_auto(evidence)


async def load(here: Place) -> None:
    await history(here, "front", seconds=25)
    here.cluster.set_load("shop", "front", OVERLOAD_RPS)
    firing = await here.firing("CPUSaturation", "front")
    _, diagnosis, evidence = await here.judged("front", [firing], Family.CAPACITY)
    assert diagnosis.best.action == Scale(from_replicas=2, to_replicas=4)
    assert_ready_for_auto(evidence)


async def history(here: Place, deployment: str, *, seconds: int) -> None:
    """Wait until Prometheus has so many seconds of the Deployment's traffic."""
    prometheus = here.sources.prometheus
    assert prometheus is not None

    async def known() -> bool | None:
        query = f'count_over_time(http_requests_total{{deployment="{deployment}"}}[1m])'
        counts = await prometheus.instant(query, check_inputs=False)
        return True if any(isinstance(count, float) and count >= seconds for _, count in counts) else None

    await until(known, within_s=40, what=f"{seconds} s of traffic of {deployment}")


async def changed(here: Place, path: str, patch: dict[str, Any]) -> None:
    """A person changes something."""
    headers = {"Authorization": f"Bearer {here.cluster.tokens.admin}", "Content-Type": "application/merge-patch+json"}
    async with httpx.AsyncClient(base_url=here.cluster.url, headers=headers, trust_env=False) as client:
        answer = await client.patch(path, json=patch)
        assert answer.status_code == httpx.codes.OK, answer.text


async def crash(here: Place) -> None:
    bad = workload("worker", replicas=2, exit_after_s="0.2", exit_code="1", last_words="fatal: bad config")
    await changed(here, "/apis/apps/v1/namespaces/shop/deployments/worker", {"spec": {"template": bad["spec"]["template"]}})
    firing = await here.firing("KubePodCrashLooping", "worker")
    _, diagnosis, evidence = await here.judged("worker", [firing], Family.BAD_RELEASE)
    assert diagnosis.best.action == RollbackRelease(to_revision=1)
    assert (evidence.evidence_weight or 0) >= 0.85


SECRET = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db", "namespace": "shop"}, "stringData": {"password": "old"}}


async def test_k05_p02_g26_errors_of_a_release_and_of_a_stale_secret_and_then_no_prometheus(tmp_path: Path) -> None:
    orders = workload("orders", replicas=3, credential="db")
    container = orders["spec"]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "db", "key": "password"}}}]
    async with place(tmp_path, SECRET, orders, workload("gateway", replicas=2)) as here:
        for name in ("orders", "gateway"):
            await here.cluster.rolled_out("shop", name)
        await history(here, "gateway", seconds=12)
        bad = workload("gateway", replicas=2, error_ratio="0.4")
        template = {"spec": {"template": bad["spec"]["template"]}}
        await changed(here, "/apis/apps/v1/namespaces/shop/deployments/gateway", template)
        await changed(here, "/api/v1/namespaces/shop/secrets/db", {"stringData": {"password": "new"}})
        async with asyncio.TaskGroup() as group:
            group.create_task(bad_configuration(here))
            group.create_task(stale_secret(here))
        await without_prometheus(here)


async def bad_configuration(here: Place) -> None:
    firing = await here.firing("ErrorBudgetBurn", "gateway")
    symptoms, diagnosis, evidence = await here.judged("gateway", [firing], Family.BAD_RELEASE)
    assert symptoms.workload is not None
    assert symptoms.workload.healthy
    assert diagnosis.best.action == RollbackRelease(to_revision=1)
    assert RemediationAction.RESTART_WORKLOAD in {caution.action for caution in diagnosis.anti_actions}
    assert_ready_for_auto(evidence)


async def stale_secret(here: Place) -> None:
    firing = await here.firing("AuthFailures", "orders")
    _, diagnosis, evidence = await here.judged("orders", [firing], Family.WEDGED)
    assert isinstance(diagnosis.best.action, RestartWorkload)
    assert "Secret db changed" in diagnosis.best.statement
    assert (evidence.evidence_weight or 0) >= 0.85


async def without_prometheus(here: Place) -> None:
    """Nothing is invented: the same alert with Prometheus gone names no workload action and verifies nothing by metrics."""
    firing = await here.firing("AuthFailures", "orders")
    await here.pair.stop_prometheus()
    symptoms = await gather("01JN", here.target("orders"), [firing], here.sources)
    diagnosis = diagnose(symptoms)
    assert diagnosis.degraded
    assert isinstance(diagnosis.best.action, Escalate)
    observations = await observe(diagnosis, here.target("orders"), [firing], here.sources)
    assert "prometheus" not in weigh(observations).sources
