"""A workload with its surroundings, read from an emulated cluster over HTTP with the bot's own account."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from source_servers import answering, reading, scripted, target

from catalog.clocks import SystemClock
from catalog.targets import Target, TargetKind
from sandbox.cluster import SandboxCluster
from sandbox.kinds import DEPLOYMENTS
from sources.errors import SourceUnavailable
from sources.kubernetes import KubernetesReader
from sources.namespaces import ready_by_name
from sources.workloads import read_facts, read_marks, read_workload, taint

WEB = target()


async def facts(reader: KubernetesReader, what: Target = WEB) -> Any:
    return await read_facts(reader, what, SystemClock())


async def test_the_facts_of_a_healthy_deployment(shop: SandboxCluster, reader: KubernetesReader) -> None:
    await shop.rolled_out("shop", "other")
    found = await facts(reader)
    assert (found.exists, found.opted_in, found.rolling_out) == (True, True, False)
    assert (found.desired, found.ready, found.available, found.updated) == (3, 3, 3, 3)
    assert found.services == ("front", "web")
    assert found.disruptions_allowed == 1
    assert found.namespace_ready_pods == 5
    assert len(found.pods) == 3
    assert set(found.nodes) <= {"node1", "node2", "node3"}
    assert (found.autoscaler, found.replicas_manager, found.custom_owner) == (None, None, None)
    assert (found.empty_dir, found.read_write_once) == (False, False)
    assert found.revision == "1"
    assert found.unread == ()
    assert found.target.uid == shop.store.get(DEPLOYMENTS, "shop", "web")["metadata"]["uid"]


async def test_the_surroundings_are_only_what_belongs_to_it(shop: SandboxCluster, reader: KubernetesReader) -> None:
    view = await read_workload(reader, WEB)
    assert isinstance(view.pods, list)
    assert {pod["metadata"]["labels"]["app"] for pod in view.pods} == {"web"}
    assert isinstance(view.nodes, list)
    assert isinstance(view.events, list)
    assert {event["involvedObject"]["kind"] for event in view.events} <= {"Deployment", "ReplicaSet", "Pod"}
    assert any(event["reason"] == "ScalingReplicaSet" for event in view.events)
    assert isinstance(view.replica_sets, list)
    assert len(view.replica_sets) == 1
    assert isinstance(view.budgets, list)
    assert [budget["metadata"]["name"] for budget in view.budgets] == ["web"]


async def test_the_bots_account_can_read_every_part_that_facts_need(reader: KubernetesReader) -> None:
    view = await read_workload(reader, WEB)
    failed = {name: str(part) for name, part in vars(view).items() if isinstance(part, SourceUnavailable)}
    assert failed == {}


async def test_nothing_lists_the_pods_of_the_namespace_or_the_cluster(shop: SandboxCluster, reader: KubernetesReader) -> None:
    await read_workload(reader, WEB)
    asked = [one for one in shop.server.journal if one.user.endswith(":bot")]
    assert asked
    assert {one.method for one in asked} == {"GET"}
    for one in asked:
        if one.path.endswith("/pods"):
            assert one.query.get("labelSelector") == "app=web"
        if one.path.endswith("/events"):
            assert one.query.get("fieldSelector", "").startswith("involvedObject.uid=")
        assert not one.path.endswith("/api/v1/nodes"), "nodes are read one by one"


async def test_a_pod_that_only_looks_like_one_of_ours_is_left_out(shop: SandboxCluster, reader: KubernetesReader) -> None:
    stray = {
        "metadata": {"name": "stray", "namespace": "shop", "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "a", "image": "b"}]},
    }
    await shop.apply([{"apiVersion": "v1", "kind": "Pod", **stray}])
    assert "stray" not in (await facts(reader)).pods


async def test_facts_cost_no_request_for_what_they_do_not_hold(shop: SandboxCluster, reader: KubernetesReader) -> None:
    await facts(reader)
    asked = {one.path.rsplit("/", 1)[-1] for one in shop.server.journal if one.user.endswith(":bot")}
    assert "pods" in asked
    assert not asked & {"events", "endpointslices", "resourcequotas", "limitranges", "node1", "node2", "node3"}


async def test_the_cost_does_not_grow_with_the_namespace(shop: SandboxCluster, reader: KubernetesReader) -> None:
    """A thousand other workloads: as many requests as before, and the sum of ready pods is a bound from below."""
    await facts(reader)
    before = len(shop.server.journal)
    await facts(reader)
    each = len(shop.server.journal) - before
    template = shop.store.get(DEPLOYMENTS, "shop", "other")
    for number in range(1000):
        body = {
            "metadata": {"name": f"filler-{number:04d}", "namespace": "shop"},
            "spec": {**template["spec"], "paused": True, "replicas": 0},
        }
        shop.store.create(DEPLOYMENTS, body)
    before = len(shop.server.journal)
    found = await facts(reader)
    assert len(shop.server.journal) - before == each
    assert found.namespace_ready_pods == 3, "the target's own, though it is beyond the page; not those of `other`, which are too"
    assert found.unread == ()


async def test_an_hpa_is_found_by_its_reference_and_only_then(shop: SandboxCluster, reader: KubernetesReader) -> None:
    for name, kind, aim in (("one", "Deployment", "other"), ("two", "StatefulSet", "web")):
        await shop.apply([hpa(name, kind, aim)])
    assert (await facts(reader)).autoscaler is None
    await shop.apply([hpa("three", "Deployment", "web")])
    assert (await facts(reader)).autoscaler == "HorizontalPodAutoscaler/three"


def hpa(name: str, kind: str, aim: str) -> dict[str, Any]:
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": kind, "name": aim}, "maxReplicas": 5},
    }


async def test_a_pod_that_is_being_deleted_is_left_out(reader: KubernetesReader, tmp_path: Path) -> None:
    view = await read_workload(reader, WEB)
    assert isinstance(view.pods, list)
    pods = [dict(pod) for pod in view.pods]
    pods[0] = {**pods[0], "metadata": {**pods[0]["metadata"], "deletionTimestamp": "2026-11-29T18:00:00Z"}}
    sets, workload = view.replica_sets, view.workload

    async def handle(request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/pods"):
            return web.json_response({"kind": "PodList", "items": pods})
        if request.path.endswith("/replicasets"):
            return web.json_response({"kind": "ReplicaSetList", "items": sets})
        if request.path.endswith("/deployments/web"):
            return web.json_response(workload)
        return web.json_response({"kind": "List", "items": []})

    async with scripted(handle) as server, reading(server.url, tmp_path) as other:
        live = await read_workload(other, WEB)
    assert isinstance(live.pods, list)
    assert len(live.pods) == len(pods) - 1


async def test_what_does_not_exist_and_what_cannot_be_read(reader: KubernetesReader, tmp_path: Path) -> None:
    assert (await facts(reader, target(name="nowhere"))).exists is False
    async with scripted(answering({"kind": "Status", "status": "Failure"}, status=403)) as server:
        (tmp_path / "other").mkdir()
        async with reading(server.url, tmp_path / "other") as blind:
            with pytest.raises(SourceUnavailable):
                await facts(blind)
            with pytest.raises(SourceUnavailable):
                await read_marks(blind, WEB)
    with pytest.raises(ValueError):
        await read_workload(reader, target(name="--server=x"))


async def test_a_part_that_fails_is_named_and_the_rest_is_read(shop: SandboxCluster, tmp_path: Path) -> None:
    import aiohttp

    async def proxy(request: web.Request) -> web.StreamResponse:
        if "poddisruptionbudgets" in request.path or "horizontalpodautoscalers" in request.path:
            return web.json_response({"kind": "Status", "status": "Failure"}, status=500)
        headers = {"Authorization": request.headers["Authorization"], "Accept": request.headers["Accept"]}
        async with aiohttp.ClientSession() as session, session.get(f"{shop.url}{request.path_qs}", headers=headers) as answer:
            return web.Response(body=await answer.read(), status=answer.status, content_type="application/json")

    async with scripted(proxy) as server, reading(server.url, tmp_path, token=shop.tokens.bot) as reader:
        found = await facts(reader)
    assert set(found.unread) == {"budgets", "autoscalers"}
    assert (found.disruptions_allowed, found.autoscaler) == (None, None)
    assert found.ready == 3


async def test_evidence_across_a_write_is_tainted(shop: SandboxCluster, reader: KubernetesReader) -> None:
    before = await read_marks(reader, WEB)
    assert before == (await facts(reader)).changed_marks
    assert taint(before, await read_marks(reader, WEB)) is None
    stored = shop.store.get(DEPLOYMENTS, "shop", "web")
    shop.store.update(DEPLOYMENTS, {**stored, "spec": {**stored["spec"], "replicas": 4}})
    assert "generation" in (taint(before, await read_marks(reader, WEB)) or "")
    assert await read_marks(reader, target(name="gone")) == (None, None, None)


async def test_a_node_a_namespace_and_a_pod_are_targets_too(shop: SandboxCluster, reader: KubernetesReader) -> None:
    node = await facts(reader, target(TargetKind.NODE, "node1", ""))
    assert (node.exists, node.nodes, node.opted_in) == (True, ("node1",), None)
    space = await facts(reader, target(TargetKind.NAMESPACE, "shop", ""))
    assert space.exists
    pod = shop.pods("shop", "web")[0]["metadata"]["name"]
    found = await facts(reader, target(TargetKind.POD, pod))
    assert found.pods == (pod,)
    assert found.services == ("front", "web")
    with pytest.raises(SourceUnavailable):
        await facts(reader, target(TargetKind.CUSTOM, "kafka"))


def test_ready_pods_of_a_table_and_of_a_list() -> None:
    columns = [{"name": "Name"}, {"name": "Ready"}, {"name": "Age"}]
    table = {
        "kind": "Table",
        "columnDefinitions": columns,
        "rows": [{"cells": ["web", "2/3", "1d"]}, {"cells": ["agent", 4, "1d"]}],
    }
    assert ready_by_name(table) == {"web": 2, "agent": 4}
    assert ready_by_name({"kind": "Table", "columnDefinitions": [{"name": "Name"}], "rows": [{"cells": ["a"]}]}) is None
    items = [
        {"metadata": {"name": "a"}, "status": {"readyReplicas": 2}},
        {"metadata": {"name": "b"}, "status": {"numberReady": 1}},
        {"metadata": {"name": "c"}},
    ]
    assert ready_by_name({"kind": "DeploymentList", "items": items}) == {"a": 2, "b": 1, "c": 0}


async def test_a_slow_server_costs_one_budget_and_not_one_per_part(shop: SandboxCluster, tmp_path: Path) -> None:
    deployment = shop.store.get(DEPLOYMENTS, "shop", "web")

    async def handle(request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/deployments/web"):
            return web.json_response(deployment)
        await asyncio.sleep(10)
        return web.Response()

    loop = asyncio.get_running_loop()
    async with scripted(handle) as server, reading(server.url, tmp_path, timeout_s=0.5) as reader:
        began = loop.time()
        found = await facts(reader)
        assert loop.time() - began < 2.5
    assert {"pods", "autoscalers", "budgets", "namespace"} <= set(found.unread)
    assert (found.desired, found.opted_in) == (3, None)
