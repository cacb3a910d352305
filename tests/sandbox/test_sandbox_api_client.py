"""The official client, synchronous and asynchronous, unmodified, against the emulated API server over HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import kubernetes
import kubernetes.aio
import pytest
from sandbox_replay import Json, World, add_pod, open_world

from sandbox.bootstrapping import add_kind
from sandbox.hooks import LogLine
from sandbox.kinds import BUDGETS, DEPLOYMENTS, PODS, Kind

NS = "shop"
ROLLOUTS = Kind("argoproj.io", "v1alpha1", "rollouts", "Rollout", status=True, custom=True, singular="rollout")
JSON_PATCH = "application/json-patch+json"


class OneLog:
    """A container that wrote two lines."""

    def lines(self, pod: Json, container: str, *, previous: bool) -> list[LogLine] | None:
        at = datetime(2026, 1, 1, tzinfo=UTC)
        return None if previous else [LogLine(at, b"one\n"), LogLine(at, b"two\n")]


def _manifest(name: str = "web") -> Json:
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "app", "image": "local/app:1"}]}}
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": name}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with open_world() as opened:
        opened.namespace(NS, labels={"sre-ladder.dev/autonomy": "enabled"})
        opened.plane.hooks.logs = OneLog()
        yield opened


@pytest.fixture
async def api(world: World) -> AsyncIterator[kubernetes.aio.client.ApiClient]:
    async with kubernetes.aio.client.ApiClient(_configured(kubernetes.aio.client.Configuration(), world, world.admin)) as client:
        yield client


def _configured(configuration: Any, world: World, token: str) -> Any:
    configuration.host = world.server.url
    configuration.api_key = {"authorization": f"Bearer {token}"}
    return configuration


async def test_aio_create_get_list_patch_scale_delete(api: kubernetes.aio.client.ApiClient) -> None:
    apps = kubernetes.aio.client.AppsV1Api(api)
    created = await apps.create_namespaced_deployment(NS, _manifest(), _request_timeout=5)
    assert created.metadata.generation == 1
    assert created.spec.progress_deadline_seconds == 600
    stamp = {"spec": {"template": {"metadata": {"annotations": {"sre-ladder.dev/restart": "01J"}}}}}
    patched = await apps.patch_namespaced_deployment("web", NS, stamp, _request_timeout=5)
    assert patched.metadata.generation == 2
    assert patched.spec.template.spec.containers[0].image == "local/app:1"
    scaled = await apps.patch_namespaced_deployment_scale("web", NS, {"spec": {"replicas": 4}}, _request_timeout=5)
    assert scaled.spec.replicas == 4
    listed = await apps.list_namespaced_deployment(NS, label_selector="app!=web", _request_timeout=5)
    assert [item.metadata.name for item in listed.items] == ["web"]
    deleted = await apps.delete_namespaced_deployment("web", NS, _request_timeout=5)
    assert deleted["status"] == "Success"
    with pytest.raises(kubernetes.aio.client.ApiException) as gone:
        await apps.read_namespaced_deployment("web", NS, _request_timeout=5)
    assert gone.value.status == 404


async def test_aio_watch(world: World, api: kubernetes.aio.client.ApiClient) -> None:
    apps = kubernetes.aio.client.AppsV1Api(api)
    world.make(DEPLOYMENTS, {**_manifest(), "metadata": {"name": "web", "namespace": NS}})
    seen = []
    async with kubernetes.aio.watch.Watch() as watch:
        async for event in watch.stream(apps.list_namespaced_deployment, NS, timeout_seconds=5, _request_timeout=10):
            seen.append((event["type"], event["object"].spec.replicas))
            if len(seen) == 1:
                world.store.change(DEPLOYMENTS, NS, "web", lambda obj: obj["spec"].update(replicas=3))
            else:
                watch.stop()
    assert seen == [("ADDED", 2), ("MODIFIED", 3)]


async def test_aio_evict_with_uid_precondition(world: World, api: kubernetes.aio.client.ApiClient) -> None:
    core = kubernetes.aio.client.CoreV1Api(api)
    made = add_pod(world, NS, "web-1", labels={"app": "web"})
    budget = {
        "metadata": {"name": "web", "namespace": NS},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    }
    world.make(
        BUDGETS, {**budget, "status": {"observedGeneration": 1, "disruptionsAllowed": 1, "desiredHealthy": 1, "currentHealthy": 2}}
    )

    def eviction(uid: str) -> Json:
        options = {"preconditions": {"uid": uid}}
        return {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": "web-1", "namespace": NS},
            "deleteOptions": options,
        }

    with pytest.raises(kubernetes.aio.client.ApiException) as other:
        await core.create_namespaced_pod_eviction("web-1", NS, eviction("another"), _request_timeout=5)
    assert other.value.status == 409
    assert world.store.get(BUDGETS, NS, "web")["status"]["disruptionsAllowed"] == 1
    await core.create_namespaced_pod_eviction("web-1", NS, eviction(made["metadata"]["uid"]), _request_timeout=5)
    assert "deletionTimestamp" in world.store.get(PODS, NS, "web-1")["metadata"]
    assert world.store.get(BUDGETS, NS, "web")["status"]["disruptionsAllowed"] == 0
    assert "web-1" in world.store.get(BUDGETS, NS, "web")["status"]["disruptedPods"]


def _evict(who: str, namespace: str, **query: str) -> Json:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "web-1", "namespace": namespace}}
    path = f"/api/v1/namespaces/{namespace}/pods/web-1/eviction"
    return {"as": who, "method": "POST", "path": path, "query": query, "contentType": "application/json", "body": body}


async def test_a_dry_run_eviction_leaves_pod_and_budget_alone(world: World) -> None:
    add_pod(world, NS, "web-1", labels={"app": "web"})
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    status = {"observedGeneration": 1, "disruptionsAllowed": 1, "desiredHealthy": 1, "currentHealthy": 2}
    world.make(BUDGETS, {"metadata": {"name": "web", "namespace": NS}, "spec": spec, "status": status})
    before = world.store.revision
    assert (await world.send(_evict("admin", NS, dryRun="All"))).status == 201
    assert world.store.revision == before


async def test_a_budget_not_yet_observed_asks_to_come_back(world: World) -> None:
    add_pod(world, NS, "web-1", labels={"app": "web"})
    world.make(BUDGETS, {"metadata": {"name": "web", "namespace": NS}, "spec": {"selector": {}}})
    reply = await world.send(_evict("admin", NS))
    assert (reply.status, reply.headers["Retry-After"]) == (429, "10")


async def test_the_fence_stops_evictions_where_nobody_opted_in(world: World) -> None:
    executor = "system:serviceaccount:sre-ladder:executor"
    for namespace, status in ((NS, 201), ("other", 403)):
        add_pod(world, namespace, "web-1")
        assert (await world.send(_evict(executor, namespace))).status == status


async def test_dry_runs_of_create_update_and_delete_store_nothing(world: World) -> None:
    path = f"/api/v1/namespaces/{NS}/configmaps"
    body = {"metadata": {"name": "c"}, "data": {"k": "1"}}
    request = {"query": {"dryRun": "All"}, "contentType": "application/json", "body": body}
    before = world.store.revision
    assert (await world.send({**request, "method": "POST", "path": path})).status == 201
    assert world.store.revision == before
    await world.send({**request, "method": "POST", "path": path, "query": {}})
    before = world.store.revision
    put = {**request, "method": "PUT", "path": f"{path}/c", "body": {**body, "data": {"k": "2"}}}
    assert (await world.send(put)).body["data"] == {"k": "2"}
    assert (await world.send({"method": "DELETE", "path": f"{path}/c", "query": {"dryRun": "All"}})).status == 200
    assert world.store.revision == before


async def test_tokens_expire_and_can_be_revoked() -> None:
    clock = MovingClock()
    async with open_world(clock) as world:
        request = {
            "method": "POST",
            "path": "/api/v1/namespaces/sre-ladder/serviceaccounts/bot/token",
            "contentType": "application/json",
        }
        made = await world.send({**request, "body": {"spec": {"expirationSeconds": 600}}})
        world.tokens["short"] = made.body["status"]["token"]
        read = {"as": "short", "method": "GET", "path": "/api/v1/namespaces"}
        assert (await world.send(read)).status == 200
        clock.at += timedelta(seconds=601)
        assert (await world.send(read)).status == 401
        bot = {**read, "as": "system:serviceaccount:sre-ladder:bot"}
        assert (await world.send(bot)).status == 200
        world.plane.accounts.revoke(world.tokens["system:serviceaccount:sre-ladder:bot"])
        assert (await world.send(bot)).status == 401


class MovingClock:
    """A clock that moves when told to."""

    at = datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return self.at.timestamp()


async def test_aio_log(world: World, api: kubernetes.aio.client.ApiClient) -> None:
    add_pod(world, NS, "web-1")
    core = kubernetes.aio.client.CoreV1Api(api)
    assert await core.read_namespaced_pod_log("web-1", NS, tail_lines=1, _request_timeout=5) == "two\n"


async def test_aio_pages_with_continue(world: World, api: kubernetes.aio.client.ApiClient) -> None:
    for number in range(7):
        add_pod(world, NS, f"p{number}")
    core = kubernetes.aio.client.CoreV1Api(api)
    names: list[str] = []
    token = None
    while token != "":
        page = await core.list_namespaced_pod(NS, limit=3, _continue=token, _request_timeout=5)
        names += [item.metadata.name for item in page.items]
        add_pod(world, NS, f"q{len(names)}")
        token = page.metadata._continue or ""
    assert names == [f"p{number}" for number in range(7)]


def _synchronous(url: str, token: str) -> dict[str, Any]:
    configuration = kubernetes.client.Configuration()
    configuration.host = url
    configuration.api_key = {"authorization": f"Bearer {token}"}
    found: dict[str, Any] = {}
    with kubernetes.client.ApiClient(configuration) as client:
        apps, core = kubernetes.client.AppsV1Api(client), kubernetes.client.CoreV1Api(client)
        apps.create_namespaced_deployment(NS, _manifest(), _request_timeout=5)
        mark = [
            {"op": "test", "path": "/metadata/annotations", "value": None},
            {"op": "add", "path": "/metadata/annotations", "value": {"sre-ladder.dev/txn": "open/1/1"}},
        ]
        found["marked"] = apps.patch_namespaced_deployment("web", NS, mark, _request_timeout=5).metadata.annotations
        try:
            apps.patch_namespaced_deployment("web", NS, mark, _request_timeout=5)
        except kubernetes.client.ApiException as refused:
            found["again"] = (refused.status, json.loads(refused.body)["details"])
        found["raw"] = json.loads(core.list_namespace(_preload_content=False, _request_timeout=5).data)
        watch = kubernetes.watch.Watch()
        stream = watch.stream(apps.list_namespaced_deployment, NS, timeout_seconds=1, _request_timeout=5)
        found["watched"] = [(event["type"], event["object"].metadata.name) for event in stream]
        dynamic = kubernetes.dynamic.DynamicClient(client)
        resource = dynamic.resources.get(api_version="argoproj.io/v1alpha1", kind="Rollout")
        resource.create(body={"metadata": {"name": "r"}, "spec": {"replicas": 1}}, namespace=NS)
        found["rollout"] = resource.get(name="r", namespace=NS).spec.replicas
        found["version"] = kubernetes.client.VersionApi(client).get_code(_request_timeout=5).git_version
    return found


async def test_sync_client_and_dynamic_client(world: World) -> None:
    add_kind(world.store, ROLLOUTS)
    found = await asyncio.to_thread(_synchronous, world.server.url, world.admin)
    assert found["marked"] == {"sre-ladder.dev/txn": "open/1/1"}
    assert found["again"] == (422, {})
    assert "kind" not in found["raw"]["items"][0]
    assert found["watched"] == [("ADDED", "web")]
    assert (found["rollout"], found["version"]) == (1, "v1.36.2")


async def test_the_executors_fence_is_equality(api: kubernetes.aio.client.ApiClient) -> None:
    """A restart tests the whole template as last read and the absence of a mark; both must hold."""
    apps = kubernetes.aio.client.AppsV1Api(api)
    await apps.create_namespaced_deployment(NS, _manifest(), _request_timeout=5)
    raw = await apps.read_namespaced_deployment_without_preload_content("web", NS, _request_timeout=5)
    read = json.loads(await raw.read())
    template = read["spec"]["template"]
    stamped = {**template["metadata"], "annotations": {"sre-ladder.dev/restart": "01J"}}
    restart = [
        {"op": "test", "path": "/metadata/uid", "value": read["metadata"]["uid"]},
        {"op": "test", "path": "/metadata/annotations", "value": None},
        {"op": "test", "path": "/spec/template", "value": template},
        {"op": "replace", "path": "/spec/template/metadata", "value": stamped},
        {"op": "add", "path": "/metadata/annotations", "value": {"sre-ladder.dev/txn": "open/1/1"}},
    ]
    answer = await apps.patch_namespaced_deployment("web", NS, restart, _request_timeout=5)
    assert answer.metadata.generation == 2
    with pytest.raises(kubernetes.aio.client.ApiException) as late:
        await apps.patch_namespaced_deployment("web", NS, restart, _request_timeout=5)
    assert (late.value.status, json.loads(late.value.body)["details"]) == (422, {})


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/api/v1/namespaces/shop/pods"),
        ("PUT", "/apis/apps/v1/namespaces/shop/deployments/web"),
        ("PATCH", "/apis/apps/v1/namespaces/shop/deployments/web"),
        ("PATCH", "/apis/apps/v1/namespaces/shop/deployments/web/scale"),
        ("DELETE", "/api/v1/namespaces/shop/pods/web-1"),
        ("POST", "/api/v1/namespaces/shop/pods/web-1/eviction"),
        ("GET", "/api/v1/namespaces/shop/secrets"),
        ("GET", "/api/v1/namespaces/shop/secrets/x"),
        ("GET", "/sandbox/faults"),
    ],
)
async def test_the_bots_account_writes_nothing_and_sees_no_secret(world: World, method: str, path: str) -> None:
    reply = await world.send({"as": "system:serviceaccount:sre-ladder:bot", "method": method, "path": path})
    assert reply.status == 403


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/apis/apps/v1/deployments", True),
        ("/apis/argoproj.io/v1alpha1/rollouts", True),
        ("/api/v1/namespaces/shop/pods/web-1/log", True),
        ("/api/v1/events", True),
        ("/api/v1/configmaps", True),
        ("/apis/coordination.k8s.io/v1/leases", True),
        ("/api/v1/secrets", False),
    ],
)
async def test_what_the_bot_reads(world: World, path: str, allowed: bool) -> None:
    add_kind(world.store, ROLLOUTS)
    add_pod(world, NS, "web-1")
    reply = await world.send({"as": "system:serviceaccount:sre-ladder:bot", "method": "GET", "path": path})
    assert reply.status == (200 if allowed else 403)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/apis/apps/v1/namespaces/shop/deployments", 200),
        ("GET", "/api/v1/namespaces/shop/pods/web-1/log", 200),
        ("GET", "/api/v1/nodes", 200),
        ("GET", "/api/v1/namespaces/sre-ladder/configmaps/sre-ladder-halt", 404),
        ("GET", "/api/v1/namespaces/sre-ladder/configmaps/other", 403),
        ("GET", "/api/v1/namespaces/shop/secrets", 403),
        ("DELETE", "/api/v1/namespaces/shop/pods/web-1", 403),
        ("POST", "/api/v1/namespaces/shop/pods", 403),
        ("PUT", "/apis/apps/v1/namespaces/shop/deployments/web", 403),
        ("GET", "/apis/coordination.k8s.io/v1/namespaces/sre-ladder/leases/sre-ladder-executor", 404),
        ("GET", "/apis/coordination.k8s.io/v1/namespaces/sre-ladder/leases/other", 403),
    ],
)
async def test_what_the_executor_may(world: World, method: str, path: str, status: int) -> None:
    add_pod(world, NS, "web-1")
    reply = await world.send({"as": "system:serviceaccount:sre-ladder:executor", "method": method, "path": path})
    assert reply.status == status
