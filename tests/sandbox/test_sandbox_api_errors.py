"""The recorded refusals of a real API server (03-errors), replayed: status, reason, message, details, headers."""

from __future__ import annotations

from typing import Any

import pytest
from sandbox_replay import Reply, World, add_pod, recordings, replayed, same_view

from sandbox.kinds import DEPLOYMENTS, REPLICA_SETS, SERVICE_ACCOUNTS

FOLDER = "03-errors"
RECORDED = recordings(FOLDER)
NOT_SERVED: dict[str, str] = {}


def _deployment(world: World, name: str) -> None:
    # The recorded request that would create it, without its misspelt field, is the very manifest of the recorded object.
    body = {key: value for key, value in RECORDED["86-400-post-strict"]["request"]["body"].items() if key != "spce"}
    text = body["spec"]
    spec = {
        **text,
        "selector": {"matchLabels": {"app": name}},
        "template": {**text["template"], "metadata": {"labels": {"app": name}}},
    }
    metadata = {"name": name, "namespace": "rec-err"}
    world.make(DEPLOYMENTS, {"metadata": metadata, "spec": spec, "status": {}})
    _settle(world, name)


def _settle(world: World, name: str) -> None:
    """What the controllers have written by the time the recording goes on."""
    stored = world.store.get(DEPLOYMENTS, "rec-err", name)
    recorded = RECORDED["70-dryrun-restart"]["response"]["body"]["status"]
    status = {**recorded, "observedGeneration": stored["metadata"]["generation"]}
    metadata = {**stored["metadata"], "annotations": {"deployment.kubernetes.io/revision": "1"}}
    world.store.update(DEPLOYMENTS, {**stored, "metadata": metadata, "status": status}, part="status")


def _start(world: World) -> None:
    world.namespace("rec-err")
    _deployment(world, "e")
    world.names["f06b6b20-4966-48f5-864a-5876d271ea3c"] = world.store.get(DEPLOYMENTS, "rec-err", "e")["metadata"]["uid"]
    world.bind("rec-err", "ro", "view")
    world.account("rec-err", "none")
    world.account("rec-err", "gone")
    world.store.delete(SERVICE_ACCOUNTS, "rec-err", "gone")


def _pod_of_e(world: World) -> None:
    owner = world.make(REPLICA_SETS, {"metadata": {"name": "e-74668d76cb", "namespace": "rec-err"}, "spec": {}})
    reference = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "e-74668d76cb",
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    labels = {"app": "e", "pod-template-hash": "74668d76cb"}
    extra = {"generateName": "e-74668d76cb-", "ownerReferences": [reference]}
    add_pod(world, "rec-err", "e-74668d76cb-cc7cg", labels=labels, **extra)


SCENES: dict[str, Any] = {
    "start": _start,
    "08-409-put-stale": lambda world: world.touch(DEPLOYMENTS, "rec-err", "e"),
    "13-patch-ok-rv": lambda world: (_settle(world, "e"), world.names.update({"4194": _version(world)}))[0],
    "70-dryrun-restart": lambda world: _settle(world, "e"),
    "74-dryrun-delete-pod": _pod_of_e,
    "92-delete-foreground": lambda world: _deployment(world, "e2"),
}


def _version(world: World) -> str:
    return str(world.store.get(DEPLOYMENTS, "rec-err", "e")["metadata"]["resourceVersion"])


@pytest.fixture(scope="module")
def answers() -> dict[str, Reply]:
    return replayed(FOLDER, SCENES, skip=set(NOT_SERVED))


SENT = [name for name, recording in RECORDED.items() if "request" in recording and name not in NOT_SERVED]


@pytest.mark.parametrize("name", SENT)
def test_recorded_error(name: str, answers: dict[str, Reply]) -> None:
    recorded, ours = RECORDED[name]["response"], answers[name]
    assert ours.status == recorded["status"]
    wanted, found = same_view(recorded["body"], ours.body)
    if name == "93-patch-terminating":
        found = {"metadata": found["metadata"], "spec.replicas": found["spec"]["replicas"]}
    if name == "31b-anonymous-version":
        wanted, found = wanted["gitVersion"], found["gitVersion"]
    assert found == wanted


@pytest.mark.parametrize("name", [name for name in SENT if set(RECORDED[name]["response"]["headers"]) & {"Warning", "Retry-After"}])
def test_recorded_headers(name: str, answers: dict[str, Reply]) -> None:
    for header in ("Warning", "Retry-After"):
        assert answers[name].headers.get(header) == RECORDED[name]["response"]["headers"].get(header)


@pytest.mark.parametrize("name", SENT)
def test_content_type(name: str, answers: dict[str, Reply]) -> None:
    recorded = RECORDED[name]["response"]["headers"].get("Content-Type")
    assert answers[name].headers.get("Content-Type") == recorded


def test_71_dry_run_stores_nothing(answers: dict[str, Reply]) -> None:
    before = answers["14-patch-empty"].body["metadata"]
    assert answers["82-fieldvalidation-default"].body["metadata"]["generation"] == before["generation"]
    assert answers["70-dryrun-restart"].body["metadata"]["generation"] == before["generation"] + 1
