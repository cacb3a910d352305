"""The three writers of events, aggregation and the spam filter, as recorded; and the logs of containers."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest
from controllers_world import World, recording

from sandbox.hooks import LogUnavailable
from sandbox.kinds import EVENTS, NAMESPACES, PODS, RESOURCE_QUOTAS

Json = dict[str, Any]


def one(world: World, name: str, reason: str) -> Json:
    found = [event for event in world.told(name) if event["reason"] == reason]
    assert len(found) == 1, [event["reason"] for event in world.told(name)]
    return found[0]


def shape(event: Json) -> tuple[set[str], set[str]]:
    about = set(event["involvedObject"])
    return set(event) - {"apiVersion", "kind"}, about


def test_scaling_replica_set_backoff_and_killing_have_the_shape_of_controllers_and_kubelets() -> None:
    world = World()
    world.deploy("ann", replicas=1, template={"container": {"image": "docker.io/local/app:2"}})
    world.run(60)
    pod = world.pods("ann")[0]["metadata"]["name"]
    for name, reason, file in (("ann", "ScalingReplicaSet", "scalingreplicaset"), (pod, "BackOff", "backoff")):
        recorded = recording(f"09-events/{file}")["core/v1"]
        ours = one(world, name, reason)
        assert shape(ours) == shape(recorded)
        assert ours["eventTime"] is None
        assert ours["reportingComponent"] == ours["source"]["component"] == recorded["reportingComponent"]
    backoff = one(world, pod, "BackOff")
    assert backoff["count"] > 2
    assert backoff["lastTimestamp"] > backoff["firstTimestamp"]
    assert backoff["involvedObject"]["fieldPath"] == "spec.containers{app}"


def test_failed_scheduling_has_the_shape_of_the_scheduler_and_repeats_in_a_series() -> None:
    world = World()
    world.pod("no-node", nodeSelector={"nowhere": "true"})
    world.run(10)
    ours = one(world, "no-node", "FailedScheduling")
    recorded = recording("09-events/failedscheduling")["core/v1"]
    assert shape(ours) == shape(recorded)
    assert (ours["source"], ours["firstTimestamp"], ours["lastTimestamp"]) == ({}, None, None)
    assert "count" not in ours
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", ours["eventTime"])
    world.run(310)
    series = one(world, "no-node", "FailedScheduling")["series"]
    assert series["count"] == 2
    assert series["lastObservedTime"] > ours["eventTime"]


def test_failed_create_is_combined_from_the_tenth_on() -> None:
    world = World()
    world.create(RESOURCE_QUOTAS, {"metadata": {"name": "q", "namespace": "rec"}, "spec": {"hard": {"pods": "0"}}})
    world.deploy("q", replicas=1)
    world.run(60)
    told = [event for event in world.told(world.sets("q")[0]["metadata"]["name"]) if event["reason"] == "FailedCreate"]
    combined = [event for event in told if event["message"].startswith("(combined from similar events): ")]
    assert len(told) == 10
    assert len(combined) == 1
    recorded = recording("09-events/failedcreate-combined")["core/v1"]
    assert shape(combined[0]) == shape(recorded)
    assert (combined[0]["reportingComponent"], combined[0]["source"]) == (recorded["reportingComponent"], recorded["source"])
    assert combined[0]["count"] > 1


def test_update_rate_a_live_fault_has_a_stale_last_timestamp() -> None:
    world = World()
    probe = {"exec": {"command": ["x"]}, "periodSeconds": 1}
    world.pod("p", {"sandbox.dev/unready-after-s": "0"}, {"readinessProbe": probe})
    writes = []

    def note(change: Any) -> None:
        if change.object["reason"] == "Unhealthy" and change.type != "DELETED":
            writes.append((world.clock.monotonic(), change.object["count"]))

    world.store.subscribe(note, EVENTS)
    world.run(1500)
    late = [entry for entry in writes if entry[0] > 100]
    assert 3 <= len(late) <= 6
    gaps = [after[0] - before[0] for before, after in pairwise(late)]
    assert min(gaps) > 250
    grown = [after[1] - before[1] for before, after in pairwise(late)]
    assert min(grown) > 250


def test_spam_filter_lets_25_through_and_then_one_in_five_minutes() -> None:
    world = World()
    pod = world.pod("p")
    recorder = world.controllers.recorder

    def stored() -> int:
        return int(one(world, "p", "Odd")["count"])

    for _ in range(40):
        recorder.kubelet(pod, "node1", "Warning", "Odd", "the same again")
    assert stored() == 25
    world.run(310)
    recorder.kubelet(pod, "node1", "Warning", "Odd", "the same again")
    assert stored() == 41


def test_events_go_after_an_hour_and_nobody_tells_a_vanishing_namespace() -> None:
    world = World()
    world.create(NAMESPACES, {"metadata": {"name": "gone"}, "spec": {"finalizers": ["kubernetes"]}})
    world.create(
        PODS, {"metadata": {"name": "p", "namespace": "gone"}, "spec": {"containers": [{"name": "app", "image": "sandbox/web:1"}]}}
    )
    world.run(5)
    world.store.delete(NAMESPACES, "", "gone")
    world.run(40)
    assert world.store.find(NAMESPACES, "", "gone") is None
    assert world.store.list(EVENTS, "gone") == []
    world.pod("q")
    world.run(5)
    assert world.told("q")
    world.run(3700)
    assert world.told("q") == []


def lines(world: World, name: str, container: str = "app", *, previous: bool = False) -> list[str] | None:
    found = world.controllers.kubelet.lines(world.one(name), container, previous=previous)
    return None if found is None else [line.text.decode() for line in found]


def test_15_16_17_logs_of_this_and_the_previous_run() -> None:
    world = World()
    world.pod("crasher", container={"command": ["/bin/sh", "-c", "echo start $$; echo fatal: db refused >&2; sleep 1; exit 1"]})
    world.run(1.5)
    assert lines(world, "crasher", previous=True) is None
    world.run(20)
    assert lines(world, "crasher", previous=True) == ["start $\n", "fatal: db refused\n"]
    assert lines(world, "crasher") == ["start $\n", "fatal: db refused\n"]


def test_20_22_logs_of_an_init_container_and_of_a_finished_pod() -> None:
    world = World()
    init = {"name": "init", "image": "docker.io/local/app:1", "command": ["sh", "-c", "echo init start; sleep 30"]}
    world.pod("initing", initContainers=[init])
    world.pod("done", restartPolicy="Never", container={"command": ["sh", "-c", "echo bye; exit 0"]})
    world.run(5)
    assert lines(world, "initing", "init") == ["init start\n"]
    assert lines(world, "done") == ["bye\n"]
    assert world.one("done")["status"]["phase"] == "Succeeded"


def test_32_logs_of_a_lost_node_cannot_be_read() -> None:
    world = World()
    world.pod("p")
    world.run(2)
    world.controllers.faults.dead_nodes.add("node1")
    with pytest.raises(LogUnavailable, match="connection refused"):
        lines(world, "p")
