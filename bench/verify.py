"""How long triage and verification take, and that it does not grow with the cluster while the target stays the same.

    python -m bench.verify [--pods 100 10000] [--runs 20]

One emulated cluster per size, in a process of its own; the target is one Deployment of three pods with memory growing towards its
limit, beside a namespace filled with idle pods. Everything is read over HTTP by the shipped clients, from the API and from a real
Prometheus. The ratio of the two medians is what counts; the sizes are measured in turn within one run.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from catalog.alerts import Alert
from catalog.clocks import SystemClock
from catalog.clusters import Cluster, KubernetesAccess
from catalog.targets import Target, TargetKind
from sandbox.demo.installation import Installation
from sandbox.demo.people import Operator
from sandbox.demo.world import world
from sources.endpoints import SourceSet, open_sources
from triage.diagnosing import diagnose
from triage.gathering import gather
from verifier.observing import observe
from verifier.weighing import weigh


async def main(sizes: Sequence[int], runs: int) -> None:
    """Print median, 95th percentile and the growth."""
    medians: dict[int, float] = {}
    for size in sizes:
        took = await _measured(size, runs)
        medians[size] = statistics.median(took)
        p95 = sorted(took)[max(0, int(len(took) * 0.95) - 1)]
        print(f"{size:>7} pods: triage and verification median {medians[size] * 1000:.0f} ms, p95 {p95 * 1000:.0f} ms, {runs} runs")
    if len(sizes) > 1:
        print(f"growth of the median from {sizes[0]} to {sizes[-1]} pods: {medians[sizes[-1]] / medians[sizes[0]]:.2f}x")


async def _measured(size: int, runs: int) -> list[float]:
    with tempfile.TemporaryDirectory() as place:
        installation = Installation(Path(place), objects=[*world(), *_filling(size)])
        try:
            await installation.start_cluster()
            await installation.configure()
            await installation.start_alerting()
            operator = Operator(installation)
            await operator.break_program("shop", "cart", {"leak_bytes_per_s": 400_000})
            await asyncio.sleep(25)
            uid = (await operator.deployment("shop", "cart"))["metadata"]["uid"]
            await operator.close()
            sources = await open_sources(_cluster(installation), SystemClock(), b"k" * 32)
            try:
                return [await _once(sources, installation.uid, uid) for _ in range(runs)]
            finally:
                await sources.close()
        finally:
            await installation.stop()


async def _once(sources: SourceSet, cluster_uid: str, uid: str) -> float:
    target = Target(cluster_uid=cluster_uid, cluster="demo", namespace="shop", kind=TargetKind.DEPLOYMENT, name="cart", uid=uid)
    labels = {"alertname": "ContainerMemoryExhaustionPredicted", "namespace": "shop", "deployment": "cart"}
    alert = Alert(fingerprint="bench", status="firing", starts_at=datetime.now(UTC), labels=labels)
    began = time.perf_counter()
    symptoms = await gather("bench", target, [alert], sources, budget_s=20)
    diagnosis = diagnose(symptoms)
    evidence = weigh(await observe(diagnosis, target, [alert], sources))
    took = time.perf_counter() - began
    assert evidence.evidence_weight is not None, "nothing was verified"
    return took


def _cluster(installation: Installation) -> Cluster:
    return Cluster(
        name="demo",
        uid=installation.uid,
        api=KubernetesAccess(kubeconfig=installation.directory / "cluster" / "bot.kubeconfig"),
        prometheus=installation.prometheus_url,
        alertmanager=installation.alertmanager_url,
    )


def _filling(size: int) -> list[dict[str, Any]]:
    """Deployments of fifty idle pods in the target's own namespace."""
    made = []
    for index in range(max(0, size // 50)):
        labels = {"app": f"filling-{index}"}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "app", "image": "sandbox/idle:1"}]}}
        made.append(
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": f"filling-{index}", "namespace": "shop"},
                "spec": {"replicas": 50, "selector": {"matchLabels": labels}, "template": template},
            }
        )
    return made


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--pods", type=int, nargs="+", default=[100, 10_000])
    parser.add_argument("--runs", type=int, default=20)
    given = parser.parse_args()
    asyncio.run(main(given.pods, given.runs))
