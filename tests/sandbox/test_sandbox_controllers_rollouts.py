"""Deployments, ReplicaSets and pods go through the states that were recorded on a real cluster, in the same order.

Times differ, names are made equal. Where two pods happen to change within one reaction of the controller, a state between them may
be missing or new: how many such, is said for each recording.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from controllers_world import World, recording, timeless

from sandbox.controllers.facts import annotations_of, is_terminating
from sandbox.controllers.nodes import node_object
from sandbox.kinds import DEPLOYMENTS, NODES, PODS, REPLICA_SETS

Json = dict[str, Any]


def states(events: list[Json], kind: str) -> list[str]:
    """The different states of one kind in order, hashes and names taken out."""
    found: list[str] = []
    for event in events:
        if event["kind"] != kind:
            continue
        entry = timeless({key: value for key, value in event.items() if key not in ("type", "spec.paused")})
        if kind == "Deployment":
            entry.pop("name", None)
        text = re.sub(r"\b[a-z]{1,5}-[a-z0-9]{8,10}\b(-[a-z0-9]{5})?", "#", json.dumps(entry, sort_keys=True))
        text = re.sub(r"pod=\S+?\)", "pod=#", text)
        text = text.replace('"desired-replicas"', '"desired"').replace('"max-replicas"', '"max"')
        if not found or found[-1] != text:
            found.append(text)
    return found


def assert_like(name: str, world: World, *, kind: str = "Deployment", missing: int = 0, extra: int = 0) -> None:
    """The states since `mark()` are those of a recorded watch, but for a few in between."""
    recorded, ours = states(recording(name)["events"], kind), states(world.events, kind)
    assert ours[0] == recorded[0]
    assert ours[-1] == recorded[-1]
    assert len([state for state in recorded if state not in ours]) == missing
    assert len([state for state in ours if state not in recorded]) == extra
    common = [state for state in recorded if state in ours]
    assert [state for state in ours if state in recorded] == common


@pytest.fixture
def world() -> World:
    return World()


def settled(world: World, name: str, **spec: Any) -> World:
    world.deploy(name, **spec)
    world.run_until(lambda: world.is_done(name))
    world.run(4)
    world.mark()
    return world


def restarted_twice(world: World) -> World:
    """The deployment `web` at the point where the recordings 22b and 24b begin."""
    settled(world, "web")
    world.restart("web")
    world.run(6)
    world.mark()
    return world


def test_04_create_status_is_empty_then_grows(world: World) -> None:
    world.mark()
    world.deploy()
    assert world.deployment()["status"] == {}
    took = world.run_until(world.is_done)
    assert took < 2
    deployments = [event for event in world.events if event["kind"] == "Deployment"]
    first = deployments[1]
    assert "observedGeneration" not in first["status"]
    assert [item["reason"] for item in first["status"]["conditions"]] == ["NewReplicaSetCreated"]
    series = recording("01-deployment/04-series-create")["series"]
    wanted = {key: value for key, value in series[-1]["deployment"]["status"].items() if key != "conditions"}
    assert {key: value for key, value in world.deployment()["status"].items() if key != "conditions"} == wanted


def test_06_07_replica_set_and_pods_have_the_recorded_shape(world: World) -> None:
    settled(world, "web")
    recorded = recording("01-deployment/06-rs-stable")["response"]["body"]["items"][0]
    ours = world.sets()[0]
    hashed = ours["metadata"]["labels"]["pod-template-hash"]
    assert ours["metadata"]["name"] == f"web-{hashed}"
    assert ours["status"] == recorded["status"]
    assert annotations_of(ours) == annotations_of(recorded)
    assert ours["spec"]["selector"] == {"matchLabels": {"app": "web", "pod-template-hash": hashed}}
    pod, wanted = world.pods()[0], recording("01-deployment/07-pods-stable")["response"]["body"]["items"][0]
    assert set(pod["spec"]) - {"automountServiceAccountToken"} >= set(wanted["spec"]) - {"automountServiceAccountToken"}
    assert pod["metadata"]["generation"] == wanted["metadata"]["generation"] == 1
    assert [item["type"] for item in pod["status"]["conditions"]] == [item["type"] for item in wanted["status"]["conditions"]]
    assert set(wanted["status"]["containerStatuses"][0]) == set(pod["status"]["containerStatuses"][0])
    assert set(wanted["status"]) - {"resources"} <= set(pod["status"])


def test_12b_restart(world: World) -> None:
    settled(world, "web")
    world.restart("web")
    world.run(6)
    assert_like("01-deployment/12b-watch-restart", world)


def test_12b_old_status_stands_beside_the_new_generation_at_first(world: World) -> None:
    settled(world, "web")
    world.restart("web")
    body = world.deployment()
    assert (body["metadata"]["generation"], body["status"]["observedGeneration"]) == (2, 1)
    assert body["status"]["updatedReplicas"] == body["status"]["replicas"] == body["status"]["availableReplicas"] == 2


def test_12b_the_new_revision_stands_beside_the_old_counts_for_a_while(world: World) -> None:
    settled(world, "web")
    world.restart("web")
    world.run(1)
    written = [event for event in world.events if event["kind"] == "Deployment"]
    marks = [(event["revision"], event["status"]["observedGeneration"], event["t"]) for event in written]
    assert [mark[:2] for mark in marks[:3]] == [("1", 1), ("2", 1), ("2", 2)]
    assert marks[0][2] < marks[1][2] < marks[2][2]


def test_12b_old_pods_terminate_after_the_roll_out_is_done(world: World) -> None:
    settled(world, "web")
    old = {pod["metadata"]["uid"] for pod in world.pods()}
    world.restart("web")
    world.run_until(lambda: world.is_done() and world.deployment()["metadata"]["generation"] == 2)
    leaving = [pod for pod in world.pods() if pod["metadata"]["uid"] in old]
    assert leaving
    assert all(is_terminating(pod) for pod in leaving)
    assert world.deployment()["status"]["terminatingReplicas"] == len(leaving)


def test_12b_terminating_pod_fails_with_137_then_goes(world: World) -> None:
    settled(world, "web")
    gone = world.pods()[0]["metadata"]["name"]
    world.store.delete(PODS, "rec", gone)
    world.run(5)
    recorded = [
        event for event in recording("01-deployment/24b-watch-scale-down")["events"] if event.get("name") == "web-85f56f7f7b-jkft4"
    ]
    ours = [event for event in world.events if event["name"] == gone]
    assert [(event["type"], event["phase"], event["conditions"]["Ready"]) for event in ours] == [
        (event["type"], event["phase"], event["conditions"]["Ready"])
        for event in recorded
        if event["type"] == "DELETED" or event["deletionGracePeriodSeconds"]
    ]
    ended = ours[-1]["containers"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (137, "Error")


def test_13_revisions_after_a_restart(world: World) -> None:
    settled(world, "web")
    world.restart("web")
    world.run(6)
    revisions = {annotations_of(item)["deployment.kubernetes.io/revision"]: item["spec"]["replicas"] for item in world.sets()}
    assert revisions == {"1": 0, "2": 2}


def test_22b_scale_up(world: World) -> None:
    restarted_twice(world)
    world.scale("web", 4)
    world.run(5)
    assert_like("01-deployment/22b-watch-scale-up", world)
    assert len(world.sets()) == 2


def test_24b_scale_down_keeps_the_oldest_pod(world: World) -> None:
    restarted_twice(world)
    world.scale("web", 4)
    world.run(5)
    first = min((pod for pod in world.pods()), key=lambda pod: int(pod["metadata"]["resourceVersion"]))
    oldest = min(world.pods(), key=lambda pod: pod["metadata"]["creationTimestamp"])
    world.mark()
    world.scale("web", 1)
    world.run(5)
    assert_like("01-deployment/24b-watch-scale-down", world)
    assert [pod["metadata"]["creationTimestamp"] for pod in world.pods()] == [oldest["metadata"]["creationTimestamp"]]
    assert first is not None


def test_31b_crashing_release_misses_its_deadline_and_nothing_rolls_back(world: World) -> None:
    settled(world, "crash", progressDeadlineSeconds=15)
    world.edit("crash", lambda body: body["spec"]["template"]["spec"]["containers"][0].update(image="docker.io/local/app:2"))
    world.run(75)
    assert_like("01-deployment/31b-watch-crash", world)
    assert_like("01-deployment/31b-watch-crash", world, kind="ReplicaSet")
    recorded, ours = states(recording("01-deployment/31b-watch-crash")["events"], "Pod"), states(world.events, "Pod")
    assert ours[: len(recorded)] == recorded
    deadline = next(event["t"] for event in world.events if "ProgressDeadlineExceeded" in json.dumps(event))
    assert 15 <= deadline < 16


def test_41_undo_of_the_crash_reuses_the_old_set_and_touches_no_old_pod(world: World) -> None:
    settled(world, "crash", progressDeadlineSeconds=15)
    old = {pod["metadata"]["uid"] for pod in world.pods("crash")}
    world.edit("crash", lambda body: body["spec"]["template"]["spec"]["containers"][0].update(image="docker.io/local/app:2"))
    world.run(75)
    world.mark()
    world.edit("crash", lambda body: body["spec"]["template"]["spec"]["containers"][0].update(image="docker.io/local/app:1"))
    world.run(5)
    assert_like("01-deployment/41-watch-undo", world)
    assert {pod["metadata"]["uid"] for pod in world.pods("crash")} == old


def test_49_undo_of_a_restart_is_a_whole_roll_out(world: World) -> None:
    settled(world, "crash", progressDeadlineSeconds=15)
    for image in ("docker.io/local/app:2", "docker.io/local/app:1"):
        world.edit("crash", lambda body, image=image: body["spec"]["template"]["spec"]["containers"][0].update(image=image))
        world.run(20)
    world.restart("crash", "x")
    world.run(8)
    old = {pod["metadata"]["uid"] for pod in world.pods("crash")}
    world.mark()
    world.edit("crash", lambda body: body["spec"]["template"]["metadata"].pop("annotations"))
    world.run(8)
    assert_like("01-deployment/49-watch-undo-restart", world, missing=1)
    assert not old & {pod["metadata"]["uid"] for pod in world.pods("crash")}
    history = {annotations_of(item).get("deployment.kubernetes.io/revision-history") for item in world.sets("crash")}
    assert history == {None, "1,3"}


def test_60_paused_takes_a_restart_and_does_nothing_until_resumed(world: World) -> None:
    settled(world, "pau")
    world.edit("pau", lambda body: body["spec"].update(paused=True))
    world.run(1.3)
    world.restart("pau")
    world.run(2)
    assert "updatedReplicas" not in world.deployment("pau")["status"]
    assert len(world.sets("pau")) == 1
    world.scale("pau", 3)
    world.run(4)
    assert world.sets("pau")[0]["status"]["replicas"] == 3
    world.edit("pau", lambda body: body["spec"].pop("paused"))
    world.run(9)
    assert_like("01-deployment/60-watch-paused", world, extra=1)


def test_61_annotations_are_copied_onto_the_newest_set_only(world: World) -> None:
    settled(
        world,
        "ann",
        replicas=1,
        metadata={"name": "ann", "namespace": "rec", "annotations": {"team": "a", "sre-ladder.dev/txn": "t1"}},
    )
    world.restart("ann")
    world.run(5)
    world.edit("ann", lambda body: body["metadata"]["annotations"].update({"sre-ladder.dev/txn": "t2", "new": "x"}))
    world.run(1)
    by_revision = {annotations_of(item)["deployment.kubernetes.io/revision"]: annotations_of(item) for item in world.sets("ann")}
    recorded = recording("01-deployment/61-annotations-copied-to-rs")["response"]["body"]
    assert world.is_done("ann")
    assert by_revision == {item["annotations"]["deployment.kubernetes.io/revision"]: item["annotations"] for item in recorded}


def test_63_history_limit_keeps_one_old_set(world: World) -> None:
    settled(world, "his", replicas=1, revisionHistoryLimit=1)
    for value in "abc":
        world.restart("his", value)
        world.run(6)
    assert len(world.sets("his")) == 2


def test_64_recreate_takes_all_old_pods_down_first(world: World) -> None:
    settled(world, "rcr", strategy={"type": "Recreate"})
    world.restart("rcr")
    world.run(8)
    assert_like("01-deployment/64-watch-restart-recreate", world, missing=1)


def test_65_scaled_to_zero_has_no_counts(world: World) -> None:
    settled(world, "web")
    world.scale("web", 0)
    world.run(5)
    recorded = recording("01-deployment/65-scaled-to-zero")["response"]["body"]["status"]
    status = world.deployment()["status"]
    assert set(status) == set(recorded)
    assert {item["type"]: item["status"] for item in status["conditions"]} == {"Available": "True", "Progressing": "True"}


def test_73_deleted_pod_is_replaced_at_once(world: World) -> None:
    settled(world, "del")
    world.store.delete(PODS, "rec", world.pods("del")[0]["metadata"]["name"])
    world.run(5)
    assert_like("01-deployment/73-watch-delete-pod", world)
    assert_like("01-deployment/73-watch-delete-pod", world, kind="ReplicaSet")
    assert world.deployment("del")["metadata"]["generation"] == 1


def test_75_min_ready_seconds_hold_each_step(world: World) -> None:
    settled(world, "mrs", minReadySeconds=5)
    world.run(8)
    world.mark()
    world.restart("mrs")
    took = world.run_until(lambda: world.is_done("mrs") and world.deployment("mrs")["metadata"]["generation"] == 2)
    world.run(4)
    assert_like("01-deployment/75-watch-restart-minready", world, missing=1, extra=1)
    assert 10 < took < 12


@pytest.mark.parametrize("replicas", [2, 4, 10])
def test_80_overlapping_restarts_never_go_below_the_floor(world: World, replicas: int) -> None:
    settled(world, "ovl", replicas=replicas)
    world.restart("ovl", "a")
    world.run(0.7)
    world.restart("ovl", "b")
    world.run(15)
    assert world.is_done("ovl")
    floor = replicas - replicas // 4
    available = [event["status"].get("availableReplicas", 0) for event in world.events if event["kind"] == "Deployment"]
    assert min(available) >= floor
    running = [sum(1 for pod in pods if pod) for pods in [world.pods("ovl")]]
    assert running == [replicas]
    assert annotations_of(world.deployment("ovl"))["deployment.kubernetes.io/revision"] == "3"
    assert len(world.sets("ovl")) == 3


def test_82_undo_in_the_middle_keeps_most_old_pods(world: World) -> None:
    settled(world, "ovl", replicas=4)
    old = {pod["metadata"]["uid"] for pod in world.pods("ovl")}
    world.restart("ovl", "a")
    world.run(0.25)
    world.edit("ovl", lambda body: body["spec"]["template"]["metadata"].pop("annotations"))
    world.run(10)
    kept = old & {pod["metadata"]["uid"] for pod in world.pods("ovl")}
    assert world.is_done("ovl")
    assert len(kept) == 3


def test_scaling_in_the_middle_of_a_roll_out_shares_the_new_pods(world: World) -> None:
    settled(world, "mid", replicas=4)
    world.edit("mid", lambda body: body["spec"]["template"]["spec"]["containers"][0].update(image="docker.io/local/app:2"))
    world.run(1)
    world.scale("mid", 8)
    world.run(1)
    assert sum(item["spec"]["replicas"] for item in world.sets("mid")) == 10
    assert sum(1 for item in world.sets("mid") if item["spec"]["replicas"]) == 2


def test_91_deleting_a_deployment_takes_its_sets_and_pods_along(world: World) -> None:
    settled(world, "web")
    world.store.delete(DEPLOYMENTS, "rec", "web")
    world.run(5)
    assert world.store.list(REPLICA_SETS, "rec") == []
    assert world.store.list(PODS, "rec") == []


def test_92_foreground_deletion_waits_for_the_pods(world: World) -> None:
    settled(world, "web")
    world.store.delete(DEPLOYMENTS, "rec", "web", propagation="Foreground")
    world.run(0.3)
    assert world.store.find(DEPLOYMENTS, "rec", "web") is not None
    world.run(6)
    assert world.store.find(DEPLOYMENTS, "rec", "web") is None
    assert world.store.list(PODS, "rec") == []


def test_orphans_are_left_alone(world: World) -> None:
    settled(world, "web")
    world.store.delete(DEPLOYMENTS, "rec", "web", propagation="Orphan")
    world.run(5)
    assert world.store.find(DEPLOYMENTS, "rec", "web") is None
    assert len(world.store.list(REPLICA_SETS, "rec")) == 1


def test_the_same_seed_repeats_a_run() -> None:
    def story(seed: int) -> list[Json]:
        world = World(seed=seed)
        settled(world, "web")
        world.restart("web")
        world.run(6)
        return world.events

    assert story(3) == story(3)
    assert story(3) != story(4)


def test_time_scale_makes_the_same_states_pass_faster() -> None:
    took = {}
    for scale in (1.0, 20.0):
        world = World(scale=scale)
        settled(world, "mrs", minReadySeconds=5)
        world.run(8)
        world.mark()
        world.restart("mrs")
        took[scale] = world.run_until(
            lambda world=world: world.is_done("mrs") and world.deployment("mrs")["metadata"]["generation"] == 2
        )
    assert took[20.0] < took[1.0] / 10


@pytest.mark.parametrize("pods", [2_000, pytest.param(10_000, marks=[pytest.mark.long, pytest.mark.timeout(300)])])
def test_idle_pods_cost_no_syncs_however_many(pods: int) -> None:
    world = World(nodes=0)
    for index in (1, 2):
        world.create(NODES, node_object(f"node{index}", pods="6000", index=index))
    for index in range(10):
        template = {"container": {"image": "sandbox/idle:1", "readinessProbe": None}}
        world.deploy(f"idle{index}", replicas=pods // 10, template=template)
    world.run(20)
    assert len(world.store.list(PODS, "rec")) == pods
    assert all(world.is_done(f"idle{index}") for index in range(10))
    before = world.engine.syncs
    world.run(50)
    assert world.engine.syncs - before <= 2
