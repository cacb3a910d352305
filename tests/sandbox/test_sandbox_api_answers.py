"""Recorded answers to writes and reads of Deployments, pods, budgets and events (01, 02, 09) that need no controller.

What controllers wrote before a request is put into the store by a scene, in the recorded form.
"""

from __future__ import annotations

from typing import Any

import pytest
from sandbox_replay import Json, Reply, World, pod, recordings, replayed, same_view

from sandbox.kinds import BUDGETS, DEPLOYMENTS, EVENTS, NODES, PODS

DEPLOYMENT = recordings("01-deployment")
FAULTS = recordings("02-faults")
EVENT = recordings("09-events")
NS = "rec-deploy"


def _stable(world: World, name: str, replicas: int, namespace: str = NS) -> None:
    """Status and revision as the controller leaves them when all is well."""
    stored = world.store.get(DEPLOYMENTS, namespace, name)
    counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), replicas)
    recorded = DEPLOYMENT["10-restart-patch"]["response"]["body"]["status"]
    status = {"observedGeneration": stored["metadata"]["generation"], **counts, "terminatingReplicas": 0}
    status["conditions"] = recorded["conditions"]
    annotations = {**stored["metadata"].get("annotations", {}), "deployment.kubernetes.io/revision": "1"}
    new = {**stored, "metadata": {**stored["metadata"], "annotations": annotations}, "status": status}
    world.store.update(DEPLOYMENTS, new, part="status")


def _deployment(world: World, name: str, namespace: str = NS, stamp: str | None = None) -> Json:
    world.namespace(namespace)
    spec = DEPLOYMENT["01-create"]["request"]["body"]["spec"]
    metadata: Json = {"labels": {"app": name}} | ({"annotations": {"kubectl.kubernetes.io/restartedAt": stamp}} if stamp else {})
    spec = {**spec, "selector": {"matchLabels": {"app": name}}, "template": {**spec["template"], "metadata": metadata}}
    made = world.make(DEPLOYMENTS, {"metadata": {"name": name, "namespace": namespace}, "spec": spec})
    _stable(world, name, 2, namespace)
    return made


def _crash(world: World) -> None:
    _deployment(world, "crash", stamp="2026-11-29T16:29:00Z")
    world.names["1791"] = world.store.get(DEPLOYMENTS, NS, "crash")["metadata"]["resourceVersion"]


def _deleted_pods(world: World) -> None:
    for name in ("70-delete-pod", "71-delete-pod-wrong-uid"):
        path = DEPLOYMENT[name]["request"]["path"]
        owner = DEPLOYMENT["70-delete-pod"]["response"]["body"]["metadata"]["ownerReferences"]
        extra = {"generateName": "del-7b76b865d-", "ownerReferences": owner}
        labels = {"app": "del", "pod-template-hash": "7b76b865d"}
        obj = pod(NS, path.rsplit("/", 1)[1], labels=labels, **extra)
        recorded = DEPLOYMENT["70-delete-pod"]["response"]["body"]
        made = world.make(PODS, {**obj, "spec": recorded["spec"], "status": recorded["status"]})
        if name == "70-delete-pod":
            world.names[recorded["metadata"]["uid"]] = made["metadata"]["uid"]


def _gone(world: World) -> None:
    name = DEPLOYMENT["70-delete-pod"]["request"]["path"].rsplit("/", 1)[1]
    world.store.delete(PODS, NS, name, grace=0)


def _version_of_web(recorded: str) -> Any:
    def scene(world: World) -> None:
        _stable(world, "web", {"25-scale-put": 1, "26-scale-noop": 2}.get(recorded, 4))
        if recorded == "25-scale-put":
            world.names["1417"] = world.store.get(DEPLOYMENTS, NS, "web")["metadata"]["resourceVersion"]

    return scene


def _same_restart(world: World) -> None:
    body = DEPLOYMENT["79-restart-same-value"]["request"]["body"]["spec"]["template"]["metadata"]["annotations"]
    _deployment(world, "mrs", "rec-perf", stamp=body["kubectl.kubernetes.io/restartedAt"])


DEPLOYMENT_SCENES: dict[str, Any] = {
    "start": lambda world: world.namespace(NS),
    "08-scale-get": lambda world: _stable(world, "web", 2),
    "20-scale-up-patch": lambda world: _stable(world, "web", 2),
    "23-scale-down-patch": _version_of_web("23-scale-down-patch"),
    "25-scale-put": _version_of_web("25-scale-put"),
    "26-scale-noop": _version_of_web("26-scale-noop"),
    "48-undo-restart-jsonpatch": _crash,
    "50-pause": lambda world: _deployment(world, "pau") and None,
    "70-delete-pod": _deleted_pods,
    "74-delete-pod-gone": _gone,
    "79-restart-same-value": _same_restart,
}
DEPLOYMENT_SENT = [
    "01-create",
    "02-get-right-after-create",
    "08-scale-get",
    "10-restart-patch",
    "20-scale-up-patch",
    "23-scale-down-patch",
    "25-scale-put",
    "26-scale-noop",
    "27-scale-negative",
    "28-scale-stale-rv",
    "48-undo-restart-jsonpatch",
    "49c-undo-patch-test-fails",
    "50-pause",
    "70-delete-pod",
    "71-delete-pod-wrong-uid",
    "72-delete-pod-again",
    "74-delete-pod-gone",
    "79-restart-same-value",
]
# The other recordings of 01 and 02 show what controllers make of a write; their tests are those of the controllers.


def _pod_view(body: Json) -> Json:
    """A pod as the recorder reduced pods."""
    metadata, status = body["metadata"], body["status"]
    found: Json = {"name": metadata["name"], "phase": status["phase"]}
    found |= {key: metadata[key] for key in ("deletionTimestamp", "deletionGracePeriodSeconds") if key in metadata}
    found["conditions"] = {item["type"]: item["status"] for item in status.get("conditions", ())}
    keys = ("name", "ready", "started", "restartCount", "state")
    found["containers"] = [{key: item[key] for key in keys if key in item} for item in status.get("containerStatuses", ())]
    return found


def _deployment_view(name: str, body: Json) -> Any:
    match name:
        case "48-undo-restart-jsonpatch":
            return {"template.metadata": body["spec"]["template"]["metadata"], "spec.replicas": body["spec"]["replicas"]}
        case "50-pause":
            return {"generation": body["metadata"]["generation"], "spec.paused": body["spec"]["paused"]}
        case "72-delete-pod-again":
            return _pod_view(body)
        case "79-restart-same-value":
            return {"unchanged": body["metadata"]["generation"] == 1}
        case _:
            return body


def _deployment_wanted(name: str, body: Json) -> Any:
    keep = {"48-undo-restart-jsonpatch": ("template.metadata", "spec.replicas"), "50-pause": ("generation", "spec.paused")}
    if name in keep:
        return {key: body[key] for key in keep[name]}
    if name == "79-restart-same-value":
        return {"unchanged": all(body[key] == body["before"][key] for key in body["before"])}
    return body


@pytest.fixture(scope="module")
def deployment_answers() -> dict[str, Reply]:
    return replayed("01-deployment", DEPLOYMENT_SCENES, skip=set(DEPLOYMENT) - set(DEPLOYMENT_SENT))


@pytest.mark.parametrize("name", DEPLOYMENT_SENT)
def test_recorded_deployment(name: str, deployment_answers: dict[str, Reply]) -> None:
    recorded, ours = DEPLOYMENT[name]["response"], deployment_answers[name]
    assert ours.status == recorded["status"], ours.body
    wanted, found = same_view(_deployment_wanted(name, recorded["body"]), _deployment_view(name, ours.body))
    assert found == wanted


def test_26_the_same_value_again_moves_nothing(deployment_answers: dict[str, Reply]) -> None:
    before = deployment_answers["25-scale-put"].body["metadata"]["resourceVersion"]
    after = deployment_answers["26-scale-noop"].body["metadata"]["resourceVersion"]
    assert int(after) == int(before) + 1, "only the status update in between took a version"


# -- budgets, nodes ------------------------------------------------------------

POD_P = "p-7bbfdddbb9-k4thf"


def _budget(world: World) -> None:
    world.namespace("rec-pdb")
    recorded = FAULTS["44-delete-ignores-pdb"]["response"]["body"]
    made = pod("rec-pdb", POD_P, labels={"app": "p"})
    made["status"] = {
        "phase": recorded["phase"],
        "conditions": [{"type": name, "status": value} for name, value in recorded["conditions"].items()],
        "containerStatuses": recorded["containers"],
    }
    world.make(PODS, made)


def _budget_status(name: str) -> Any:
    def scene(world: World) -> None:
        status = dict(FAULTS["41-pdb-get"]["response"]["body"]["status"])
        if name == "45-evict-allowed":
            status |= {"disruptionsAllowed": 1, "currentHealthy": 2, "expectedPods": 2}
        world.store.patch_status(BUDGETS, "rec-pdb", "p", status)

    return scene


def _node(world: World) -> None:
    world.make(NODES, {"metadata": {"name": "node1"}})


FAULT_SCENES: dict[str, Any] = {
    "40-pdb-create": _budget,
    "41-pdb-get": _budget_status("41-pdb-get"),
    "45-evict-allowed": _budget_status("45-evict-allowed"),
    "50-cordon": _node,
}
FAULT_SENT = [
    "40-pdb-create",
    "41-pdb-get",
    "42-evict-blocked",
    "43-evict-blocked-dry",
    "44-delete-ignores-pdb",
    "45-evict-allowed",
    "46-evict-404",
    "50-cordon",
]


@pytest.fixture(scope="module")
def fault_answers() -> dict[str, Reply]:
    return replayed("02-faults", FAULT_SCENES, skip=set(FAULTS) - set(FAULT_SENT))


@pytest.mark.parametrize("name", FAULT_SENT)
def test_recorded_fault(name: str, fault_answers: dict[str, Reply]) -> None:
    recorded, ours = FAULTS[name]["response"], fault_answers[name]
    assert ours.status == recorded["status"], ours.body
    body = ours.body
    if name == "44-delete-ignores-pdb":
        body = _pod_view(body)
    if name == "50-cordon":
        body = {"spec": body["spec"], "metadata.name": body["metadata"]["name"]}
    wanted, found = same_view(recorded["body"], body)
    assert found == wanted
    assert "Retry-After" not in ours.headers


# -- events ------------------------------------------------------------


def _events(world: World) -> None:
    world.namespace("rec-fault")
    uid = EVENT["11-fieldselector-uid"]["request"]["query"]["fieldSelector"].rpartition("=")[2]
    recorded = EVENT["11-fieldselector-uid"]["response"]["body"]
    for number, reason in enumerate(recorded):
        world.make(
            EVENTS,
            {
                "metadata": {"name": f"oom.{number}", "namespace": "rec-fault"},
                "involvedObject": {"kind": "Pod", "namespace": "rec-fault", "name": "oom", "uid": uid},
                "reason": reason,
                "type": "Warning" if reason == "BackOff" else "Normal",
            },
        )
    other = {"kind": "Pod", "namespace": "rec-fault", "name": "other", "uid": "2"}
    world.make(
        EVENTS,
        {"metadata": {"name": "other.1", "namespace": "rec-fault"}, "involvedObject": other, "reason": "X", "type": "Warning"},
    )


EVENT_SENT = [name for name in EVENT if name[0] == "1" and "request" in EVENT[name]]


@pytest.fixture(scope="module")
def event_answers() -> dict[str, Reply]:
    return replayed("09-events", {"start": _events}, skip=set(EVENT) - set(EVENT_SENT))


@pytest.mark.parametrize("name", EVENT_SENT)
def test_recorded_event(name: str, event_answers: dict[str, Reply]) -> None:
    recorded, ours = EVENT[name]["response"], event_answers[name]
    assert ours.status == recorded["status"], ours.body
    body = ours.body
    if isinstance(recorded["body"], list):
        body = [item["reason"] for item in body["items"]]
    wanted, found = same_view(recorded["body"], body)
    if name == "14-create-event":
        assert found["metadata"].pop("name").startswith("sre-ladder-")
        assert wanted["metadata"].pop("name").startswith("sre-ladder-")
    assert found == wanted
