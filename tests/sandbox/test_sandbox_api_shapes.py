"""Discovery, schemas, negotiation and size: what clients rely on besides the verbs."""

from __future__ import annotations

import gzip
import json
import time
from importlib import resources
from typing import Any

import pytest
from sandbox_replay import DATA, Json, add_pod, open_world, recordings

from sandbox.bootstrapping import add_kind
from sandbox.kinds import CONFIG_MAPS, CUSTOM_RESOURCE_DEFINITIONS, Kind
from sandbox.schemas import condense

ROLLOUTS = Kind("argoproj.io", "v1alpha1", "rollouts", "Rollout", status=True, custom=True, singular="rollout")


def test_the_shipped_schemas_are_those_of_the_recorded_openapi_documents() -> None:
    paths = sorted((DATA / "11-openapi").glob("*.json.gz"))
    documents = [json.loads(gzip.decompress(path.read_bytes())) for path in paths]
    shipped = json.loads(gzip.decompress(resources.files("sandbox").joinpath("data/schemas.json.gz").read_bytes()))
    assert len(paths) == 10
    assert shipped == condense(documents)


async def test_20_aggregated_discovery_of_apps_is_the_recorded_one() -> None:
    recorded = recordings("11-openapi")["20-discovery-aggregated"]
    async with open_world() as world:
        reply = await world.send(recorded["request"])
    wanted = recorded["response"]
    found = next(item for item in reply.body["items"] if item["metadata"] == {"name": "apps"})
    assert reply.headers["Content-Type"] == wanted["headers"]["Content-Type"]
    resources_found = found["versions"][0]["resources"]
    by_name = {item["resource"]: item for item in resources_found}
    assert by_name == {item["resource"]: item for item in wanted["body"]["apps"][0]["versions"][0]["resources"]}
    known = {item["metadata"]["name"] for item in reply.body["items"]}
    assert known & set(wanted["body"]["groups"]) >= {
        "apps",
        "batch",
        "autoscaling",
        "policy",
        "events.k8s.io",
        "coordination.k8s.io",
    }


@pytest.mark.parametrize(
    "path", ["/api", "/apis", "/api/v1", "/apis/apps", "/apis/apps/v1", "/apis/authorization.k8s.io/v1", "/version"]
)
async def test_plain_discovery(path: str) -> None:
    async with open_world() as world:
        reply = await world.send({"as": "system:serviceaccount:sre-ladder:bot", "method": "GET", "path": path})
        unknown = await world.send({"method": "GET", "path": "/apis/none/v1"})
    assert reply.status == 200
    assert isinstance(reply.body, dict)
    assert unknown.status == 404


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz", "/readyz/ping"])
async def test_health_is_public(path: str) -> None:
    async with open_world() as world:
        reply = await world.send({"as": "anonymous", "method": "GET", "path": path})
    assert (reply.status, reply.body) == ((200, "ok") if path != "/readyz/ping" else (403, reply.body))


async def test_custom_resources_come_and_go_with_their_definition() -> None:
    collection = "/apis/argoproj.io/v1alpha1/namespaces/default/rollouts"
    body = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "metadata": {"name": "r"}, "spec": {"replicas": 1}}
    post = {"method": "POST", "path": collection, "contentType": "application/json", "body": body}
    async with open_world() as world:
        assert (await world.send(post)).status == 404
        add_kind(world.store, ROLLOUTS)
        made = await world.send(post)
        assert (made.status, made.body["metadata"]["generation"]) == (201, 1)
        merge = {"method": "PATCH", "path": f"{collection}/r", "contentType": "application/merge-patch+json"}
        changed = await world.send({**merge, "body": {"spec": {"replicas": 2}}})
        assert changed.body["metadata"]["generation"] == 2
        strategic = {**merge, "contentType": "application/strategic-merge-patch+json", "body": {"spec": {"replicas": 3}}}
        assert (await world.send(strategic)).status == 415
        status = await world.send({**merge, "path": f"{collection}/r/status", "body": {"status": {"phase": "Healthy"}}})
        assert (status.body["status"], status.body["metadata"]["generation"]) == ({"phase": "Healthy"}, 2)
        listed = await world.send({"method": "GET", "path": collection})
        assert listed.body["kind"] == "RolloutList"
        assert listed.body["items"][0]["kind"] == "Rollout"
        world.store.delete(CUSTOM_RESOURCE_DEFINITIONS, "", "rollouts.argoproj.io")
        assert (await world.send({"method": "GET", "path": collection})).status == 404


async def test_yaml_in_and_out() -> None:
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: y\ndata:\n  when: 2026-01-01\n"
    request: Json = {"method": "POST", "path": "/api/v1/namespaces/default/configmaps", "contentType": "application/yaml"}
    async with open_world() as world:
        made = await world.send({**request, "body": text})
        assert (made.status, made.body["data"]) == (201, {"when": "2026-01-01"})
        path = f"{request['path']}/y"
        read = await world.send({"method": "GET", "path": path, "headers": {"Accept": "application/yaml"}})
    assert "when: '2026-01-01'" in read.body


async def test_delete_collection_by_label() -> None:
    async with open_world() as world:
        for name, label in (("a", "1"), ("b", "2"), ("c", "1")):
            world.make(CONFIG_MAPS, {"metadata": {"name": name, "namespace": "default", "labels": {"x": label}}})
        query = {"labelSelector": "x=1"}
        reply = await world.send({"method": "DELETE", "path": "/api/v1/namespaces/default/configmaps", "query": query})
        left = [item["metadata"]["name"] for item in world.store.list(CONFIG_MAPS, "default")]
    assert (reply.status, left) == (200, ["b"])


async def test_a_body_over_three_megabytes_is_refused() -> None:
    body = {"metadata": {"name": "big"}, "data": {"k": "x" * (3 * 1024 * 1024)}}
    async with open_world() as world:
        reply = await world.send(
            {"method": "POST", "path": "/api/v1/namespaces/default/configmaps", "contentType": "application/json", "body": body}
        )
    assert (reply.status, reply.body["reason"]) == (413, "RequestEntityTooLarge")


async def test_ten_thousand_pods_are_listed_and_one_is_read_quickly() -> None:
    """Far looser than what is measured (list 15 ms once encoded, read 0.4 ms), so that a busy machine passes."""
    async with open_world() as world:
        for number in range(10_000):
            add_pod(world, "many", f"p{number}", labels={"app": f"a{number % 100}"})

        async def seconds(path: str, **query: Any) -> float:
            began = time.perf_counter()
            reply = await world.send({"method": "GET", "path": path, "query": query})
            assert reply.status == 200
            return time.perf_counter() - began

        pods = "/api/v1/namespaces/many/pods"
        assert await seconds(pods) < 5
        assert min([await seconds(pods, labelSelector="app=a7") for _ in range(3)]) < 0.5
        assert min([await seconds(f"{pods}/p77") for _ in range(20)]) < 0.05
