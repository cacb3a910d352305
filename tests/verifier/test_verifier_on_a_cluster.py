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

from catalog.actions import RestartPod, RestartWorkload, RollbackRelease, Scale
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
                if labels["alertname"] == alertname and labels.get("pod", "").startswith(f"{workload}-"):
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
    prometheus = here.sources.prometheus
    assert prometheus is not None

    async def usual() -> bool | None:
        history = await prometheus.instant('count_over_time(http_requests_total{deployment="front"}[1m])', check_inputs=False)
        return True if any(isinstance(count, float) and count >= 25 for _, count in history) else None

    await until(usual, within_s=40, what="a history of the usual traffic")
    here.cluster.set_load("shop", "front", OVERLOAD_RPS)
    firing = await here.firing("CPUSaturation", "front")
    _, diagnosis, evidence = await here.judged("front", [firing], Family.CAPACITY)
    assert diagnosis.best.action == Scale(from_replicas=2, to_replicas=4)
    assert_ready_for_auto(evidence)


async def crash(here: Place) -> None:
    bad = workload("worker", replicas=2, exit_after_s="0.2", exit_code="1", last_words="fatal: bad config")
    admin = {"Authorization": f"Bearer {here.cluster.tokens.admin}"}
    async with httpx.AsyncClient(base_url=here.cluster.url, headers=admin, trust_env=False) as client:
        answer = await client.patch(
            "/apis/apps/v1/namespaces/shop/deployments/worker",
            json={"spec": {"template": bad["spec"]["template"]}},
            headers={"Content-Type": "application/merge-patch+json"},
        )
        assert answer.status_code == httpx.codes.OK, answer.text
    firing = await here.firing("KubePodCrashLooping", "worker")
    _, diagnosis, evidence = await here.judged("worker", [firing], Family.BAD_RELEASE)
    assert diagnosis.best.action == RollbackRelease(to_revision=1)
    assert (evidence.evidence_weight or 0) >= 0.85
