"""Gathering on the emulated cluster: what is kept, what is redacted, what a failing source leaves behind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from workload_scenes import alert, healthy

from catalog.clocks import SystemClock
from catalog.clusters import Cluster, KubernetesAccess
from catalog.diagnoses import Family
from catalog.documents import canonical
from catalog.targets import Target, TargetKind
from sandbox.cluster import SandboxCluster
from sources.endpoints import SourceSet, open_sources
from triage.diagnosing import diagnose
from triage.gathering import gather
from triage.symptoms import MAX_BYTES, Symptoms, fitted

TOKEN = "ghp_" + "a1B2c3D4e5" * 4


def manifests(**container: Any) -> list[dict[str, Any]]:
    template = {
        "metadata": {"labels": {"app": "api"}},
        "spec": {"containers": [{"name": "app", "image": "sandbox/web:1", **container}]},
    }
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}},
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "api", "namespace": "shop"},
            "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "api"}}, "template": template},
        },
    ]


@asynccontextmanager
async def place(
    directory: Path, objects: list[dict[str, Any]], **addresses: str
) -> AsyncIterator[tuple[SandboxCluster, SourceSet]]:
    async with SandboxCluster(time_scale=50) as cluster:
        await cluster.apply(objects)
        token = directory / "bot.token"
        token.write_text(cluster.tokens.bot)
        access = KubernetesAccess(server=cluster.url, token_file=token)
        found = Cluster(name="sandbox", uid=cluster.uid, api=access, prometheus=addresses.get("prometheus"))
        sources = await open_sources(found, SystemClock(), b"k" * 32)
        try:
            yield cluster, sources
        finally:
            await sources.close()


def target_of(cluster: SandboxCluster, name: str = "api") -> Target:
    return Target(cluster_uid=cluster.uid, cluster="sandbox", namespace="shop", kind=TargetKind.DEPLOYMENT, name=name)


async def test_a_healthy_workload_is_read_whole_with_its_facts(tmp_path: Path) -> None:
    async with place(tmp_path, manifests()) as (cluster, sources):
        await cluster.rolled_out("shop", "api")
        symptoms = await gather("01JN", target_of(cluster), [alert("HighLatency", deployment="api")], sources)
        assert symptoms.workload is not None
        assert symptoms.workload.healthy
        assert symptoms.workload.unreadable == {}
        assert symptoms.facts is not None
        assert symptoms.facts.desired == 3
        assert symptoms.facts.changed_marks == symptoms.workload.marks
        assert {pod.newest for pod in symptoms.workload.pods} == {True}
        assert symptoms.configured == ("kubernetes",)
        assert symptoms.faults == {}
        assert Symptoms.model_validate_json(symptoms.to_json()) == symptoms


async def test_a_missing_image_is_named_from_the_live_api(tmp_path: Path) -> None:
    async with place(tmp_path, manifests(image="sandbox/web:missing")) as (cluster, sources):

        def stuck() -> bool:
            statuses = [one for pod in cluster.pods("shop", "api") for one in pod["status"].get("containerStatuses", ())]
            return bool(statuses) and all(
                one["state"].get("waiting", {}).get("reason") in ("ErrImagePull", "ImagePullBackOff") for one in statuses
            )

        await cluster.until(stuck, what="image pull errors")
        diagnosis = diagnose(await gather("01JN", target_of(cluster), [alert("KubeContainerWaiting", pod="x")], sources))
        assert diagnosis.best.family is Family.BAD_RELEASE
        assert "cannot get the image" in diagnosis.best.statement


async def test_what_does_not_exist_any_more_is_said(tmp_path: Path) -> None:
    async with place(tmp_path, manifests()) as (cluster, sources):
        symptoms = await gather("01JN", target_of(cluster, "other"), [alert("HighLatency", deployment="other")], sources)
        assert symptoms.workload is not None
        assert not symptoms.workload.exists
        assert any("does not exist" in note for note in diagnose(symptoms).notes)


async def test_h06_names_that_are_none_are_never_asked_for(tmp_path: Path) -> None:
    async with place(tmp_path, manifests()) as (cluster, sources):
        hostile = target_of(cluster).model_copy(update={"name": "--server=https://203.0.113.9:6443"})
        symptoms = await gather("01JN", hostile, [alert("HighLatency")], sources)
        assert "not Kubernetes names" in symptoms.faults["kubernetes"]
        assert diagnose(symptoms).best.action.action.value == "escalate"


async def test_h09_secrets_in_labels_are_redacted_and_annotations_are_not_kept(tmp_path: Path) -> None:
    async with place(tmp_path, manifests()) as (cluster, sources):
        given = alert("HighLatency", deployment="api", note=f"token={TOKEN}")
        given = given.model_copy(update={"annotations": {"description": f"Authorization: Bearer {TOKEN}"}})
        symptoms = await gather("01JN", target_of(cluster), [given], sources)
        assert TOKEN not in canonical(symptoms).decode()
        assert "Authorization" not in canonical(symptoms).decode()
        assert symptoms.alerts[0].labels["deployment"] == "api"
        assert symptoms.alerts[0].labels["namespace"] == "shop"


async def test_g26_a_prometheus_that_is_down_is_a_visible_fault(tmp_path: Path) -> None:
    async with place(tmp_path, manifests(), prometheus="http://127.0.0.1:9") as (cluster, sources):
        symptoms = await gather("01JN", target_of(cluster), [alert("HighLatency", deployment="api")], sources)
        assert "prometheus" in symptoms.faults
        assert symptoms.workload is not None


async def test_a_budget_that_is_over_leaves_what_was_read(tmp_path: Path) -> None:
    async with place(tmp_path, manifests()) as (cluster, sources):
        symptoms = await gather("01JN", target_of(cluster), [alert("HighLatency", deployment="api")], sources, budget_s=0.0)
        assert symptoms.workload is None
        assert "did not answer within" in symptoms.faults["kubernetes"]


async def test_an_incident_without_alerts_has_no_symptoms(tmp_path: Path) -> None:
    async with place(tmp_path, manifests()) as (cluster, sources):
        with pytest.raises(ValueError, match="without alerts"):
            await gather("01JN", target_of(cluster), [], sources)


def test_symptoms_are_cut_to_their_size_and_every_cut_is_counted() -> None:
    scene = healthy(20)
    scene.alerts = [
        alert("HighLatency", deployment="api", **{f"label_{index}": "v" * 200 for index in range(40)}) for _ in range(50)
    ]
    scene.events = [
        {"reason": f"R{index}", "message": "m" * 400, "involvedObject": {"kind": "Pod", "name": f"p{index}"}, "metadata": {}}
        for index in range(60)
    ]
    symptoms = scene.symptoms()
    assert len(canonical(symptoms)) > MAX_BYTES
    small = fitted(symptoms)
    assert len(canonical(small)) <= MAX_BYTES
    assert small.cut["alerts"] == 40
    assert small.cut["events"] > 0
    notes = " ".join(diagnose(small).notes)
    assert "40 alerts left out" in notes
    assert small.alerts[0].labels["deployment"] == "api"
