"""Pods that fail do so as recorded: the same transitions, the same shapes of status, the same events."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from controllers_world import World, folded_container, recording, timeless

from sandbox.controllers.facts import condition_of, stamp
from sandbox.kinds import BUDGETS, CONFIG_MAPS, PODS, RESOURCE_QUOTAS, SECRETS
from sandbox.shelves import copied

Json = dict[str, Any]


def shapes(transitions: list[Json]) -> list[str]:
    """The different shapes of a pod in order, names and uids taken out."""
    found: list[str] = []
    for entry in transitions:
        kept = {key: entry[key] for key in ("phase", "conditions", "containers", "init") if key in entry}
        text = json.dumps(timeless(kept), sort_keys=True)
        text = re.sub(r"pod=\S+?\)", "pod=#", text)
        if not found or found[-1] != text:
            found.append(text)
    return found


def reasons(events: list[Json]) -> set[tuple[str, str, str]]:
    """(reason, type, message) without what differs."""
    found = set()
    for event in events:
        message = re.sub(r"in pod \S+", "in pod #", event["message"])
        message = re.sub(r"assigned \S+ to \S+", "assigned # to #", message)
        found.add((event["reason"], event["type"], message))
    return found


# recording, what the manifest does not say about the program, restart policy, how many recorded shapes are compared (None: all)
CASES: list[tuple[str, dict[str, str], str, int | None]] = [
    ("01-never-pull", {}, "Always", None),
    ("02-pull-backoff", {}, "Always", None),
    ("03-oom", {}, "Always", 9),
    ("04-not-ready", {"sandbox.dev/unready-after-s": "0", "sandbox.dev/unready-message": "no /tmp/ready file"}, "Always", None),
    ("05-liveness", {}, "Always", 11),
    ("07-no-node", {}, "Always", None),
    ("08-too-big", {}, "Always", None),
    ("09-no-cm", {}, "Always", None),
    ("10-no-secret", {}, "Always", None),
    ("11-no-vol", {}, "Always", None),
    ("12-init-fail", {}, "Always", 12),
    ("13-bad-cmd", {}, "Always", 12),
    ("14-job-done", {}, "Never", None),
    ("15-job-fail", {}, "Never", None),
]


@pytest.mark.parametrize(("name", "annotations", "policy", "compared"), CASES, ids=[case[0] for case in CASES])
def test_02_fault(name: str, annotations: dict[str, str], policy: str, compared: int | None) -> None:
    recorded = recording(f"02-faults/{name}")
    world = World()
    containers = copied(recorded["spec.containers"])
    spec: Json = {"terminationGracePeriodSeconds": 1, "restartPolicy": policy, "containers": containers}
    if name == "12-init-fail":
        spec["initContainers"] = [containers.pop(0)]
    if name == "11-no-vol":
        spec["volumes"] = [{"name": "v", "configMap": {"name": "absent"}}]
    if name == "07-no-node":
        spec["nodeSelector"] = {"nowhere": "true"}
    world.mark()
    world.create(PODS, {"metadata": {"name": "p", "namespace": "rec", "annotations": annotations}, "spec": spec})
    world.run(90)
    ours, theirs = shapes(world.events), shapes(recorded["transitions"])
    assert ours[: compared or len(theirs)] == theirs[: compared or len(theirs)]
    wanted = recorded["GET status after 90 s"]["status"]
    status = world.one()["status"]
    assert set(wanted) - {"resources", "allocatedResources"} <= set(status)
    assert [item["type"] for item in status["conditions"]] == [item["type"] for item in wanted["conditions"]]
    unstable = {"Readiness probe errored"}
    expected = {item for item in reasons(recorded["events"]) if not item[2].startswith(tuple(unstable))}
    assert reasons(world.told("p")) == expected


def test_03_oom_and_05_liveness_both_end_with_137_and_only_the_reason_tells() -> None:
    world = World()
    world.pod(
        "oom", container={"command": ["/bin/sh", "-c", "sleep 1; tail /dev/zero"], "resources": {"limits": {"memory": "16Mi"}}}
    )
    world.pod("dead", {"sandbox.dev/dead-after-s": "3"}, {"livenessProbe": {"exec": {}, "periodSeconds": 1, "failureThreshold": 2}})
    world.run(12)
    ends = {name: world.one(name)["status"]["containerStatuses"][0]["lastState"]["terminated"] for name in ("oom", "dead")}
    assert {end["exitCode"] for end in ends.values()} == {137}
    assert (ends["oom"]["reason"], ends["dead"]["reason"]) == ("OOMKilled", "Error")


def test_06_startup_probe_kills_until_it_gives_way() -> None:
    world = World()
    world.mark()
    probe = {"exec": {"command": ["x"]}, "periodSeconds": 1, "failureThreshold": 3}
    world.pod(
        "p",
        {"sandbox.dev/never-started": "true", "sandbox.dev/ignores-term": "true"},
        {"startupProbe": probe},
    )
    world.run(40)
    recorded = recording("02-faults/06-startup")
    status = world.one()["status"]["containerStatuses"][0]
    assert status["restartCount"] >= 3
    assert not status["started"]
    killing = {event["message"] for event in world.told("p") if event["reason"] == "Killing"}
    assert killing == {event["message"] for event in recorded["events"] if event["reason"] == "Killing"}
    assert shapes(world.events)[:6] == shapes(recorded["transitions"])[:6]


def test_09_missing_configuration_heals_when_it_comes() -> None:
    world = World()
    reference = [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "absent", "key": "k"}}}]
    world.pod("p", container={"env": reference})
    world.run(5)
    assert (
        folded_container(world.one()["status"]["containerStatuses"][0])["state"]["waiting"]["reason"]
        == "CreateContainerConfigError"
    )
    world.create(CONFIG_MAPS, {"metadata": {"name": "absent", "namespace": "rec"}, "data": {"other": "1"}})
    world.run(3)
    waiting = world.one()["status"]["containerStatuses"][0]["state"]["waiting"]
    assert waiting["message"] == "couldn't find key k in ConfigMap rec/absent"
    world.store.change(CONFIG_MAPS, "rec", "absent", lambda body: body["data"].update(k="v"))
    world.run(3)
    assert world.one()["status"]["phase"] == "Running"


def test_11_missing_volume_waits_in_container_creating_and_heals() -> None:
    world = World()
    world.pod("p", volumes=[{"name": "v", "secret": {"secretName": "absent"}}])
    world.run(10)
    status = world.one()["status"]["containerStatuses"][0]
    assert status["state"] == {"waiting": {"reason": "ContainerCreating"}}
    world.create(SECRETS, {"metadata": {"name": "absent", "namespace": "rec"}})
    world.run(3)
    assert world.one()["status"]["phase"] == "Running"


def test_22_unready_pods_then_a_restart_heals() -> None:
    world = World()
    world.deploy("rdy")
    world.run(5)
    running = world.controllers.kubelet.pods_of(("rec", "rdy"))
    changes = {"unready_after_s": 0}
    world.controllers.faults.inject("rec", "rdy", changes, running=running, now=world.clock.monotonic(), pods="existing")
    world.controllers.disturb(("rec", "rdy"))
    took = world.run_until(lambda: "readyReplicas" not in world.deployment("rdy")["status"])
    assert 1 < took < 4
    recorded = recording("02-faults/21-all-unready")["response"]["body"]["status"]
    status = world.deployment("rdy")["status"]
    assert set(status) == set(recorded)
    assert {item["type"]: (item["status"], item["reason"]) for item in status["conditions"]} == {
        item["type"]: (item["status"], item["reason"]) for item in recorded["conditions"]
    }
    world.restart("rdy")
    assert world.run_until(lambda: world.is_done("rdy")) < 3


def quota(world: World, **hard: str) -> None:
    world.create(RESOURCE_QUOTAS, {"metadata": {"name": "q", "namespace": "rec"}, "spec": {"hard": hard}})


def test_31_to_38_quota_bites_the_replica_set_only() -> None:
    world = World()
    quota(world, pods="3")
    world.deploy("q")
    world.run(5)
    world.scale("q", 6)
    world.run(5)
    recorded = recording("02-faults/32-quota-deployment")["response"]["body"]["status"]
    status = world.deployment("q")["status"]
    assert {key: status.get(key) for key in recorded if key != "conditions"} == {
        key: recorded[key] for key in recorded if key != "conditions"
    }
    assert [item["type"] for item in status["conditions"]] == [item["type"] for item in recorded["conditions"]]
    failure = condition_of(world.sets("q")[0], "ReplicaFailure")
    assert failure is not None
    theirs = recording("02-faults/33-quota-rs")["response"]["body"][0]["status"]["conditions"][0]["message"]
    assert re.sub(r'"q-\S+"', "#", failure["message"]) == re.sub(r'"q-\S+"', "#", theirs)
    assert (
        world.store.get(RESOURCE_QUOTAS, "rec", "q")["status"]
        == recording("02-faults/35-quota-object")["response"]["body"]["status"]
    )
    world.scale("q", 3)
    world.run(3)
    assert condition_of(world.deployment("q"), "ReplicaFailure") is None


def test_39_restart_at_the_quota_is_stuck_and_old_pods_serve() -> None:
    world = World()
    quota(world, pods="3")
    world.deploy("q", replicas=3, progressDeadlineSeconds=10)
    world.run(5)
    world.restart("q")
    world.run(20)
    recorded = recording("02-faults/39-restart-at-quota")["response"]["body"]["status"]
    status = world.deployment("q")["status"]
    assert set(status) == set(recorded)
    assert {item["type"]: item["reason"] for item in status["conditions"]} == {
        item["type"]: item["reason"] for item in recorded["conditions"]
    }
    assert status["availableReplicas"] == 3


OVER = "exceeded quota: q, requested: {0}, used: {0}, limited: {1}"


@pytest.mark.parametrize(
    ("hard", "resources", "words"),
    [
        (
            {"requests.memory": "512Mi"},
            {"requests": {"memory": "300Mi"}},
            OVER.format("requests.memory=300Mi", "requests.memory=512Mi"),
        ),
        ({"requests.cpu": "500m"}, {"requests": {"cpu": "300m"}}, OVER.format("requests.cpu=300m", "requests.cpu=500m")),
        ({"limits.memory": "1Gi"}, {"requests": {"memory": "64Mi"}}, "failed quota: q: must specify limits.memory"),
    ],
)
def test_k29_quota_of_resources(hard: dict[str, str], resources: Json, words: str) -> None:
    world = World()
    quota(world, **hard)
    world.deploy("q", replicas=2, template={"container": {"resources": resources}})
    world.run(5)
    failure = condition_of(world.deployment("q"), "ReplicaFailure")
    assert failure is not None
    assert failure["message"].endswith(words)


def test_41_budget_status_and_forgetting_disrupted_pods() -> None:
    world = World()
    world.deploy("p", replicas=1)
    world.create(
        BUDGETS,
        {"metadata": {"name": "p", "namespace": "rec"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "p"}}}},
    )
    world.run(5)
    recorded = recording("02-faults/41-pdb-get")["response"]["body"]["status"]
    assert timeless(_without_times(world.store.get(BUDGETS, "rec", "p")["status"])) == timeless(_without_times(recorded))
    world.scale("p", 2)
    world.run(5)
    status = world.store.get(BUDGETS, "rec", "p")["status"]
    assert (status["disruptionsAllowed"], status["expectedPods"], status["conditions"][0]["reason"]) == (1, 2, "SufficientPods")
    gone = world.pods("p")[0]["metadata"]["name"]
    world.store.patch_status(
        BUDGETS, "rec", "p", {**status, "disruptionsAllowed": 0, "disruptedPods": {gone: "2026-11-29T16:27:01Z"}}
    )
    world.store.delete(PODS, "rec", gone)
    world.run(5)
    status = world.store.get(BUDGETS, "rec", "p")["status"]
    assert "disruptedPods" not in status
    assert status["disruptionsAllowed"] == 1


def test_pod_that_was_evicted_counts_as_gone_until_it_is_or_for_two_minutes() -> None:
    world = World()
    world.deploy("p", replicas=3)
    spec = {"minAvailable": 2, "selector": {"matchLabels": {"app": "p"}}}
    world.create(BUDGETS, {"metadata": {"name": "p", "namespace": "rec"}, "spec": spec})
    world.run(5)
    status = world.store.get(BUDGETS, "rec", "p")["status"]
    spent = {**status, "disruptionsAllowed": 0, "disruptedPods": {world.pods("p")[0]["metadata"]["name"]: stamp(world.clock.now())}}
    world.store.patch_status(BUDGETS, "rec", "p", spent)
    world.run(60)
    assert world.store.get(BUDGETS, "rec", "p")["status"]["disruptionsAllowed"] == 0
    world.run(61)
    assert world.store.get(BUDGETS, "rec", "p")["status"]["disruptionsAllowed"] == 1


@pytest.mark.parametrize(
    ("spec", "allowed"),
    [({"maxUnavailable": "25%"}, 1), ({"maxUnavailable": 2}, 2), ({"minAvailable": "50%"}, 2), ({"minAvailable": 4}, 0)],
)
def test_budget_percentages(spec: Json, allowed: int) -> None:
    world = World()
    world.deploy("p", replicas=4)
    world.create(
        BUDGETS, {"metadata": {"name": "p", "namespace": "rec"}, "spec": {**spec, "selector": {"matchLabels": {"app": "p"}}}}
    )
    world.run(5)
    assert world.store.get(BUDGETS, "rec", "p")["status"]["disruptionsAllowed"] == allowed


def _without_times(status: Json) -> Json:
    body = copied(status)
    for item in body["conditions"]:
        item.pop("lastTransitionTime")
    result: Json = body
    return result
