"""Whatever the body: an answer with a reason, never a broken connection or a server error."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sandbox_replay import Json, World, add_pod, open_world

from sandbox.kinds import DEPLOYMENTS, LEASES

NAMES = [
    "metadata",
    "spec",
    "template",
    "containers",
    "name",
    "labels",
    "annotations",
    "replicas",
    "selector",
    "$patch",
    "status",
    "kind",
]
SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=4) | st.floats(allow_nan=False, width=16)
KEYS = st.sampled_from(NAMES) | st.text(max_size=3)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=12)
BODIES = st.dictionaries(KEYS, VALUES, max_size=4) | VALUES
PATHS = st.lists(st.sampled_from([*NAMES, "0", "-", "1"]), max_size=5).map(lambda parts: "".join(f"/{part}" for part in parts))
OPERATIONS = st.lists(
    st.fixed_dictionaries(
        {"op": st.sampled_from(["add", "remove", "replace", "test", "move", "copy"]), "path": PATHS},
        optional={"value": VALUES, "from": PATHS},
    )
    | VALUES,
    max_size=3,
)
DEPLOYMENT = "/apis/apps/v1/namespaces/default/deployments"
WRITES = [
    ("POST", DEPLOYMENT, "application/json"),
    ("PUT", f"{DEPLOYMENT}/web", "application/json"),
    ("PATCH", f"{DEPLOYMENT}/web", "application/merge-patch+json"),
    ("PATCH", f"{DEPLOYMENT}/web", "application/strategic-merge-patch+json"),
    ("PATCH", f"{DEPLOYMENT}/web", "application/apply-patch+yaml"),
    ("PATCH", f"{DEPLOYMENT}/web/scale", "application/merge-patch+json"),
    ("PUT", f"{DEPLOYMENT}/web/scale", "application/json"),
    ("PATCH", f"{DEPLOYMENT}/web/status", "application/merge-patch+json"),
    ("DELETE", f"{DEPLOYMENT}/web", "application/json"),
    ("POST", "/api/v1/namespaces/default/pods", "application/json"),
    ("PATCH", "/api/v1/namespaces/default/pods/p", "application/strategic-merge-patch+json"),
    ("POST", "/api/v1/namespaces/default/pods/p/eviction", "application/json"),
    ("POST", "/api/v1/namespaces", "application/json"),
    ("POST", "/api/v1/namespaces/default/events", "application/json"),
    ("POST", "/apis/events.k8s.io/v1/namespaces/default/events", "application/json"),
    ("POST", "/apis/policy/v1/namespaces/default/poddisruptionbudgets", "application/json"),
    ("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", "application/json"),
    ("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "application/json"),
    ("PUT", "/apis/coordination.k8s.io/v1/namespaces/default/leases/l", "application/json"),
    ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "application/json"),
    ("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", "application/json"),
    ("POST", "/api/v1/namespaces/sre-ladder/serviceaccounts/bot/token", "application/json"),
]


def _fill(world: World) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "a", "image": "b:1"}]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    world.make(DEPLOYMENTS, {"metadata": {"name": "web", "namespace": "default"}, "spec": spec})
    world.make(LEASES, {"metadata": {"name": "l", "namespace": "default"}, "spec": {}})
    add_pod(world, "default", "p")


async def _statuses(bodies: list[tuple[tuple[str, str, str], Any]]) -> list[tuple[int, Any]]:
    async with open_world() as world:
        _fill(world)
        found = []
        for (method, path, content_type), body in bodies:
            request: Json = {"method": method, "path": path, "contentType": content_type, "query": {"fieldManager": "m"}}
            reply = await world.send({**request, "body": json.dumps(body)})
            found.append((reply.status, reply.body))
            read = await world.send({"method": "GET", "path": "/api/v1/namespaces"})
            found.append((read.status, read.body))
        return found


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from(WRITES), BODIES), min_size=1, max_size=12))
def test_any_json_is_answered(bodies: list[tuple[tuple[str, str, str], Any]]) -> None:
    for status, body in asyncio.run(_statuses(bodies)):
        assert 200 <= status < 500, body
        assert isinstance(body, dict)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(OPERATIONS, min_size=1, max_size=12))
def test_any_json_patch_is_answered(patches: list[Any]) -> None:
    write = ("PATCH", f"{DEPLOYMENT}/web", "application/json-patch+json")
    for status, body in asyncio.run(_statuses([(write, patch) for patch in patches])):
        assert 200 <= status < 500, body


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[",
        "null",
        "\x00",
        '{"a":' * 5000,
        '{"metadata":{"name":"x"},"kind":1}',
        "\ud83d".encode("utf-8", "surrogatepass").decode("latin-1"),
    ],
)
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_any_bytes_are_answered(method: str, text: str) -> None:
    path = DEPLOYMENT if method == "POST" else f"{DEPLOYMENT}/web"
    content_type = "application/merge-patch+json" if method == "PATCH" else "application/json"
    async with open_world() as world:
        _fill(world)
        reply = await world.send({"method": method, "path": path, "contentType": content_type, "body": text})
    assert 200 <= reply.status < 500
    assert reply.body["kind"] in ("Status", "Deployment")


@pytest.mark.parametrize(
    "query",
    [
        {"limit": "many"},
        {"continue": "%%%"},
        {"continue": "e30"},
        {"resourceVersion": "-1"},
        {"fieldSelector": "==="},
        {"labelSelector": "a in (b"},
        {"timeoutSeconds": "soon", "watch": "1"},
        {"resourceVersion": "9" * 40},
    ],
)
async def test_any_query_is_answered(query: dict[str, str]) -> None:
    async with open_world() as world:
        reply = await world.send({"method": "GET", "path": DEPLOYMENT, "query": query})
    assert reply.status in (400, 410, 422, 504)
    assert reply.body["message"]
