"""Access reviews and tokens of a real API server (06-access), replayed under the recorded roles."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from sandbox_replay import Reply, World, open_world, recordings, replayed, same_view

from sandbox.kinds import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS

FOLDER = "06-access"
RECORDED = recordings(FOLDER)
EXECUTOR = "system:serviceaccount:sre-ladder:executor"
NOT_SERVED = {
    "16-self-subject-review": "compared below: the order of keys in extra is the recorded one, its values are ours",
    "28-tokenreview": "compared below: the recorded token is trimmed, so ours is sent",
}
READ = ["get", "list", "watch"]
RULES = [
    {"verbs": [*READ, "patch"], "apiGroups": ["apps"], "resources": ["deployments", "statefulsets", "daemonsets"]},
    {"verbs": ["get", "patch"], "apiGroups": ["apps"], "resources": ["deployments/scale", "statefulsets/scale"]},
    {"verbs": READ, "apiGroups": ["apps"], "resources": ["replicasets", "controllerrevisions"]},
    {"verbs": [*READ, "delete"], "apiGroups": [""], "resources": ["pods"]},
    {"verbs": ["create"], "apiGroups": [""], "resources": ["pods/eviction"]},
    {"verbs": READ, "apiGroups": [""], "resources": ["events"]},
    {"verbs": READ, "apiGroups": ["autoscaling"], "resources": ["horizontalpodautoscalers"]},
    {"verbs": READ, "apiGroups": ["policy"], "resources": ["poddisruptionbudgets"]},
]


def recorded_roles(world: World) -> None:
    """The executor with the recorded roles instead of the sandbox's own."""
    for kind in (CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES):
        for item in world.store.list(kind):
            if item["metadata"]["name"].startswith("sre-ladder-executor"):
                world.store.delete(kind, "", item["metadata"]["name"])
    for item in world.store.list(ROLE_BINDINGS, "sre-ladder"):
        world.store.delete(ROLE_BINDINGS, "sre-ladder", item["metadata"]["name"])
    world.namespace("rec-shop", labels={"sre-ladder.dev/autonomy": "enabled"}, annotations={"sre-ladder.dev/max-replicas": "8"})
    world.namespace("rec-shop-off")
    world.namespace("rec-deploy")
    for namespace in ("rec-shop", "rec-shop-off"):
        world.grant(namespace, "executor", "sre-ladder-executor", RULES, account_namespace="sre-ladder")
    lease = {
        "verbs": ["get", "update", "patch"],
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "resourceNames": ["sre-ladder-executor"],
    }
    world.grant("sre-ladder", "executor", "sre-ladder-executor-lease", [lease], account_namespace="sre-ladder")


async def _foreign_token(world: World) -> None:
    reply = await world.send(RECORDED["24-tokenrequest-audience"]["request"])
    world.tokens["executor, wrong audience"] = reply.body["status"]["token"]


SCENES: dict[str, Any] = {"start": recorded_roles, "25-wrong-audience": _foreign_token}
SENT = [name for name, recording in RECORDED.items() if "request" in recording and name not in NOT_SERVED]


@pytest.fixture(scope="module")
def answers() -> dict[str, Reply]:
    return replayed(FOLDER, SCENES, skip=set(NOT_SERVED))


def _comparable(name: str, body: Any) -> Any:
    if name in ("13-ssrr", "14-ssrr-other"):
        # Which default roles exist, and so how often a path is listed, differs; what the executor may do with resources does not.
        status = body["status"]
        return {**body, "status": {"resourceRules": sorted(json.dumps(rule) for rule in status["resourceRules"])}}
    if "tokenrequest" in name and body["kind"] == "TokenRequest":
        audiences = (
            ["<default>"] if RECORDED[name]["request"]["body"]["spec"].get("audiences") is None else body["spec"]["audiences"]
        )
        status = {key: value for key, value in body["status"].items() if key != "token"}
        return {**body, "spec": {**body["spec"], "audiences": audiences}, "status": status}
    return body


@pytest.mark.parametrize("name", SENT)
def test_recorded_access(name: str, answers: dict[str, Reply]) -> None:
    recorded, ours = RECORDED[name]["response"], answers[name]
    assert ours.status == recorded["status"]
    wanted, found = same_view(recorded["body"], ours.body)
    assert _comparable(name, found) == _comparable(name, wanted)


async def test_16_who_am_i() -> None:
    async with open_world() as world:
        reply = await world.send(RECORDED["16-self-subject-review"]["request"])
    recorded = RECORDED["16-self-subject-review"]["response"]
    wanted, found = same_view(recorded["body"], reply.body)
    assert reply.status == recorded["status"]
    assert found == wanted


async def test_21_28_a_token_says_whose_it_is() -> None:
    async with open_world() as world:
        token = world.tokens[EXECUTOR]
        request = {**RECORDED["28-tokenreview"]["request"]}
        request["body"] = {**request["body"], "spec": {"token": token}}
        reply = await world.send(request)
        unknown = await world.send({**request, "body": {**request["body"], "spec": {"token": "a.b.c"}}})
    part = token.split(".")[1]
    payload = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    assert payload.keys() == RECORDED["21-token-payload"]["payload"].keys()
    assert payload["sub"] == RECORDED["21-token-payload"]["payload"]["sub"]
    wanted, found = same_view(RECORDED["28-tokenreview"]["response"]["body"], reply.body)
    assert {**found["status"], "audiences": []} == {**wanted["status"], "audiences": []}
    assert "authenticated" not in unknown.body["status"]
