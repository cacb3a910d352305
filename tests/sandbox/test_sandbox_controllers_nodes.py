"""Cordons, lost nodes, evictions by taint, and pods that find no place."""

from __future__ import annotations

from typing import Any

import pytest
from controllers_world import World, recording

from sandbox.controllers.facts import condition_of, is_terminating
from sandbox.kinds import NODES, PERSISTENT_VOLUME_CLAIMS, PODS

Json = dict[str, Any]


def lose(world: World, name: str) -> None:
    world.controllers.faults.dead_nodes.add(name)
    world.controllers.node_changed(name)


def find(world: World, name: str) -> None:
    world.controllers.faults.dead_nodes.discard(name)
    world.controllers.node_changed(name)


def node(world: World, name: str) -> Json:
    return world.store.get(NODES, "", name)


def test_51_to_56_cordon_and_uncordon() -> None:
    world = World()
    world.deploy("c", replicas=1)
    world.run(5)
    world.store.change(NODES, "", "node1", lambda body: body["spec"].update(unschedulable=True))
    world.run(1)
    recorded = recording("02-faults/51-cordoned-node")["response"]["body"]
    taints = [{key: item[key] for key in ("key", "effect")} for item in node(world, "node1")["spec"]["taints"]]
    assert taints == [{key: item[key] for key in ("key", "effect")} for item in recorded["spec"]["taints"]]
    conditions = [
        {key: item[key] for key in ("type", "status", "reason", "message")} for item in node(world, "node1")["status"]["conditions"]
    ]
    assert conditions == recorded["conditions"]
    world.restart("c")
    world.run(5)
    pending = next(pod for pod in world.pods("c") if pod["status"]["phase"] == "Pending")
    scheduled = condition_of(pending, "PodScheduled")
    assert scheduled is not None
    assert scheduled["message"] == recording("02-faults/53-pending-pod-cordoned")["response"]["body"][0]["conditions"][0]["message"]
    assert world.deployment("c")["status"]["availableReplicas"] == 1
    world.store.change(NODES, "", "node1", lambda body: body["spec"].pop("unschedulable"))
    world.run(5)
    assert world.is_done("c")
    assert "taints" not in node(world, "node1")["spec"]
    assert {event["reason"] for event in world.told("node1")} >= {"NodeNotSchedulable", "NodeSchedulable"}


def test_60_61_63_lost_node_leaves_stale_container_statuses() -> None:
    world = World(nodes=2)
    world.deploy("web", replicas=4)
    world.run(5)
    lose(world, "node2")
    world.run(40)
    assert condition_of(node(world, "node2"), "Ready")["status"] == "True"  # type: ignore[index]
    world.run(15)
    recorded = recording("02-faults/60-node-notready")["response"]["body"]
    lost = node(world, "node2")
    assert [(item["type"], item["status"], item["reason"], item["message"]) for item in lost["status"]["conditions"]] == [
        (item["type"], item["status"], item["reason"], item["message"]) for item in recorded["conditions"]
    ]
    assert [(item["key"], item["effect"]) for item in lost["spec"]["taints"]] == [
        (item["key"], item["effect"]) for item in recorded["spec"]["taints"]
    ]
    stale = [pod for pod in world.pods() if pod["spec"]["nodeName"] == "node2"]
    assert len(stale) == 2
    for pod in stale:
        assert pod["status"]["phase"] == "Running"
        assert pod["status"]["containerStatuses"][0]["ready"]
        ready = condition_of(pod, "Ready")
        assert ready is not None
        assert (ready["status"], ready.get("reason")) == ("False", None)
    assert world.deployment()["status"]["availableReplicas"] == 2
    told = {
        (event["reason"], event["type"], event["involvedObject"]["kind"])
        for event in world.told()
        if event["reason"] == "NodeNotReady"
    }
    assert told == {("NodeNotReady", "Normal", "Node"), ("NodeNotReady", "Warning", "Pod")}


def test_62_tolerance_runs_out_and_nobody_confirms() -> None:
    world = World(nodes=2)
    world.deploy("web", replicas=2)
    world.run(5)
    lose(world, "node2")
    world.run(55 + 300)
    leaving = next(pod for pod in world.pods() if pod["spec"].get("nodeName") == "node2")
    assert is_terminating(leaving)
    target = condition_of(leaving, "DisruptionTarget")
    assert target is not None
    assert target["reason"] == "DeletionByTaintManager"
    world.run(600)
    assert world.store.find(PODS, "rec", leaving["metadata"]["name"]) is not None
    assert world.is_done()
    find(world, "node2")
    world.run(10)
    assert world.store.find(PODS, "rec", leaving["metadata"]["name"]) is None
    assert condition_of(node(world, "node2"), "Ready")["status"] == "True"  # type: ignore[index]


def test_60_node_that_comes_back_makes_its_pods_ready_again() -> None:
    world = World(nodes=2)
    world.deploy("web", replicas=4)
    world.run(5)
    lose(world, "node2")
    world.run(60)
    assert not world.is_done()
    find(world, "node2")
    world.run(3)
    assert world.is_done()
    assert "taints" not in node(world, "node2")["spec"]


def test_60_all_nodes_lost_evicts_nothing() -> None:
    world = World(nodes=2)
    world.deploy("web", replicas=2)
    world.run(5)
    lose(world, "node1")
    lose(world, "node2")
    world.run(55 + 400)
    assert not any(is_terminating(pod) for pod in world.pods())
    effects = {item["effect"] for name in ("node1", "node2") for item in node(world, name)["spec"]["taints"]}
    assert effects == {"NoSchedule"}


def test_pods_spread_over_nodes_and_need_room() -> None:
    world = World(nodes=3)
    world.deploy("web", replicas=6)
    world.run(5)
    places = [pod["spec"]["nodeName"] for pod in world.pods()]
    assert sorted(places) == ["node1", "node1", "node2", "node2", "node3", "node3"]


def test_k09_full_nodes_leave_pods_pending_until_room_is_made() -> None:
    world = World()
    big = {"resources": {"requests": {"cpu": "3"}}}
    world.deploy("a", replicas=2, template={"container": big})
    world.run(5)
    world.deploy("b", replicas=1, template={"container": big})
    world.run(5)
    pending = world.pods("b")[0]
    scheduled = condition_of(pending, "PodScheduled")
    assert scheduled is not None
    assert "1 Insufficient cpu" in scheduled["message"]
    world.scale("a", 1)
    world.run(8)
    assert world.is_done("b")


def test_07_no_nodes_at_all() -> None:
    world = World(nodes=0)
    world.pod("p")
    world.run(1)
    scheduled = condition_of(world.one(), "PodScheduled")
    assert scheduled is not None
    assert scheduled["message"] == "no nodes available to schedule pods"


@pytest.mark.parametrize(("claim", "words"), [(None, 'persistentvolumeclaim "data" not found'), ("Pending", "unbound immediate")])
def test_k13_missing_or_unbound_claim(claim: str | None, words: str) -> None:
    world = World()
    if claim:
        body = {"metadata": {"name": "data", "namespace": "rec"}, "spec": {}, "status": {"phase": claim}}
        world.create(PERSISTENT_VOLUME_CLAIMS, body)
    world.pod("p", volumes=[{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}])
    world.run(1)
    scheduled = condition_of(world.one(), "PodScheduled")
    assert scheduled is not None
    assert words in scheduled["message"]


def test_taints_and_affinity_are_respected() -> None:
    world = World(nodes=2)
    world.store.change(
        NODES, "", "node1", lambda body: body["spec"].update(taints=[{"key": "gpu", "value": "yes", "effect": "NoSchedule"}])
    )
    world.run(0.5)
    world.pod("plain")
    world.pod(
        "tolerant",
        nodeName=None,
        tolerations=[{"key": "gpu", "value": "yes", "effect": "NoSchedule"}],
        nodeSelector={"kubernetes.io/hostname": "node1"},
    )
    term = {"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "NotIn", "values": ["zone-a", "zone-b"]}]}
    wants = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    world.pod("picky", affinity=wants)
    world.run(1)
    assert world.one("plain")["spec"]["nodeName"] == "node2"
    assert world.one("tolerant")["spec"]["nodeName"] == "node1"
    assert "nodeName" not in world.one("picky")["spec"]
