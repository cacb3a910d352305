"""The store's promises: versions, generations, history, finalizers, notifications; and the selectors and patches over it."""

from __future__ import annotations

import random
from typing import Any

import pytest

from catalog.clocks import SystemClock
from sandbox.defaulting import admit
from sandbox.kinds import CONFIG_MAPS, DEPLOYMENTS, NAMESPACES, PODS
from sandbox.patching import json_patch, merge_patch, strategic_merge
from sandbox.schemas import load
from sandbox.selecting import field_selector, label_selector, object_selector, one_equality
from sandbox.shelves import Change, copied
from sandbox.statuses import AlreadyExists, BadRequest, Conflict, Expired, Forbidden, Invalid, Json, NotFound
from sandbox.store import Store


@pytest.fixture
def store() -> Store:
    made = Store(SystemClock(), randomness=random.Random(1), history=5)
    made.admitters.append(admit)
    made.create(NAMESPACES, {"metadata": {"name": "n"}})
    return made


def _map(name: str = "c", **data: str) -> Json:
    return {"metadata": {"name": name, "namespace": "n"}, "data": data}


def _pod(name: str = "p", **metadata: Any) -> Json:
    spec = {"nodeName": "node1", "containers": [{"name": "a", "image": "b:1"}]}
    return {"metadata": {"name": name, "namespace": "n", **metadata}, "spec": spec}


def _deployment() -> Json:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "a", "image": "b:1"}]}}
    return {"metadata": {"name": "d", "namespace": "n"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}


def test_each_write_takes_the_next_version_and_the_same_value_takes_none(store: Store) -> None:
    before = store.revision
    store.create(CONFIG_MAPS, _map(k="1"))
    store.change(CONFIG_MAPS, "n", "c", lambda obj: obj["data"].update(k="2"))
    again = store.change(CONFIG_MAPS, "n", "c", lambda obj: obj["data"].update(k="2"))
    assert store.revision == before + 2
    assert again["metadata"]["resourceVersion"] == str(before + 2)


def test_what_was_handed_out_never_changes(store: Store) -> None:
    first = store.create(CONFIG_MAPS, _map(k="1"))
    kept = copied(first)
    store.change(CONFIG_MAPS, "n", "c", lambda obj: obj["data"].update(k="2"))
    store.delete(CONFIG_MAPS, "n", "c")
    assert first == kept


def test_generation_counts_spec_and_for_deployments_annotations_not_labels_or_status(store: Store) -> None:
    store.create(DEPLOYMENTS, _deployment())

    def generation(edit: Any) -> int:
        return int(store.change(DEPLOYMENTS, "n", "d", edit)["metadata"]["generation"])

    assert generation(lambda obj: obj["spec"].update(replicas=5)) == 2
    assert generation(lambda obj: obj["metadata"].update(labels={"x": "y"})) == 2
    assert generation(lambda obj: obj["metadata"].update(annotations={"x": "y"})) == 3
    store.patch_status(DEPLOYMENTS, "n", "d", {"replicas": 5})
    assert store.get(DEPLOYMENTS, "n", "d")["metadata"]["generation"] == 3


def test_status_and_main_parts_are_kept_apart(store: Store) -> None:
    made = store.create(DEPLOYMENTS, _deployment())
    store.update(DEPLOYMENTS, {**made, "spec": {}, "status": {"replicas": 1}}, part="status")
    stored = store.get(DEPLOYMENTS, "n", "d")
    assert (stored["spec"], stored["status"]) == (made["spec"], {"replicas": 1})
    changed = {
        **made,
        "metadata": {"name": "d", "namespace": "n"},
        "spec": {**made["spec"], "replicas": 3},
        "status": {"replicas": 9},
    }
    assert store.update(DEPLOYMENTS, changed, part="main")["status"] == {"replicas": 1}


def test_preconditions(store: Store) -> None:
    made = store.create(CONFIG_MAPS, _map(k="1"))
    store.change(CONFIG_MAPS, "n", "c", lambda obj: obj["data"].update(k="2"))
    with pytest.raises(Conflict):
        store.update(CONFIG_MAPS, copied(made))
    with pytest.raises(Conflict):
        store.delete(CONFIG_MAPS, "n", "c", uid="another")
    with pytest.raises(AlreadyExists):
        store.create(CONFIG_MAPS, _map())
    with pytest.raises(NotFound):
        store.create(CONFIG_MAPS, {"metadata": {"name": "c", "namespace": "nowhere"}})


def test_a_pod_on_a_node_is_marked_then_removed_by_its_kubelet(store: Store) -> None:
    store.create(PODS, _pod())
    marked = store.delete(PODS, "n", "p", grace=5)
    assert not marked.removed
    assert marked.object["metadata"]["deletionGracePeriodSeconds"] == 5
    version = store.revision
    assert store.delete(PODS, "n", "p").object["metadata"]["deletionTimestamp"] == marked.object["metadata"]["deletionTimestamp"]
    assert store.revision == version
    assert store.delete(PODS, "n", "p", grace=0).removed
    assert store.find(PODS, "n", "p") is None


def test_finalizers_hold_and_the_last_one_lets_go(store: Store) -> None:
    store.create(CONFIG_MAPS, {**_map(), "metadata": {"name": "c", "namespace": "n", "finalizers": ["x"]}})
    assert not store.delete(CONFIG_MAPS, "n", "c").removed
    assert store.find(CONFIG_MAPS, "n", "c") is not None
    store.change(CONFIG_MAPS, "n", "c", lambda obj: obj["metadata"].update(finalizers=[]))
    assert store.find(CONFIG_MAPS, "n", "c") is None


def test_a_terminating_namespace_takes_nothing_new_and_goes_when_emptied(store: Store) -> None:
    assert store.delete(NAMESPACES, "", "n").object["status"]["phase"] == "Terminating"
    with pytest.raises(Forbidden, match="being terminated"):
        store.create(CONFIG_MAPS, _map())
    store.change(NAMESPACES, "", "n", lambda obj: obj["spec"].update(finalizers=[]))
    assert store.find(NAMESPACES, "", "n") is None


def test_history_is_bounded_and_lists_travel_back_within_it(store: Store) -> None:
    for number in range(3):
        store.create(CONFIG_MAPS, _map(f"c{number}", k="0"))
    then = store.revision
    store.change(CONFIG_MAPS, "n", "c1", lambda obj: obj["data"].update(k="1"))
    store.delete(CONFIG_MAPS, "n", "c0")
    past = store.entries(CONFIG_MAPS, "n", revision=then)
    assert [(entry.body["metadata"]["name"], entry.body["data"]["k"]) for entry in past] == [("c0", "0"), ("c1", "0"), ("c2", "0")]
    assert [change.type for change in store.changes(CONFIG_MAPS, then)] == ["MODIFIED", "DELETED"]
    for number in range(5):
        store.change(CONFIG_MAPS, "n", "c1", lambda obj, number=number: obj["data"].update(k=f"new{number}"))
    with pytest.raises(Expired):
        store.changes(CONFIG_MAPS, then)
    with pytest.raises(Expired):
        store.entries(CONFIG_MAPS, revision=then)


def test_listeners_hear_in_order_also_when_they_write(store: Store) -> None:
    heard: list[tuple[str, int]] = []

    def writer(change: Change) -> None:
        if change.type == "ADDED":
            store.change(CONFIG_MAPS, "n", "c", lambda obj: obj["data"].update(k="2"))

    store.subscribe(writer, CONFIG_MAPS)
    end = store.subscribe(lambda change: heard.append((change.type, change.revision)), CONFIG_MAPS)
    store.create(CONFIG_MAPS, _map(k="1"))
    end()
    store.delete(CONFIG_MAPS, "n", "c")
    assert [name for name, _ in heard] == ["ADDED", "MODIFIED"]
    assert heard[0][1] < heard[1][1]


def test_owned_follows_ownerships(store: Store) -> None:
    owner = {"kind": "ReplicaSet", "name": "r", "uid": "u1", "apiVersion": "apps/v1"}
    store.create(PODS, _pod(ownerReferences=[owner]))
    assert [item["metadata"]["name"] for item in store.owned(PODS, "u1")] == ["p"]
    store.change(PODS, "n", "p", lambda obj: obj["metadata"].update(ownerReferences=[]))
    assert store.owned(PODS, "u1") == []


# -- selectors ------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "labels", "matches"),
    [
        ("", {}, True),
        ("a=1", {"a": "1"}, True),
        ("a==1,b!=2", {"a": "1"}, True),
        ("a!=1", {"a": "1"}, False),
        ("a in (1, 2)", {"a": "2"}, True),
        ("a notin (1,2)", {"a": "3"}, True),
        ("a notin (1,2)", {}, True),
        ("a in (1,2),b", {"a": "1"}, False),
        ("!a", {}, True),
        ("!a", {"a": ""}, False),
        ("a>3", {"a": "4"}, True),
        ("a=", {"a": ""}, True),
        ("app.kubernetes.io/name=x", {"app.kubernetes.io/name": "x"}, True),
    ],
)
def test_label_selectors(text: str, labels: dict[str, str], matches: bool) -> None:
    assert label_selector(text)(labels) is matches


@pytest.mark.parametrize("text", ["a===b", "a in", "(", "a=b=c", "a,,b"])
def test_unreadable_label_selectors_are_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        label_selector(text)


def test_object_selectors() -> None:
    selector = {"matchLabels": {"a": "1"}, "matchExpressions": [{"key": "b", "operator": "NotIn", "values": ["2"]}]}
    assert object_selector(selector)({"a": "1"})
    assert not object_selector(selector)({"a": "1", "b": "2"})
    assert object_selector({})({})
    assert not object_selector(None)({})


def test_field_selectors() -> None:
    pod = {"metadata": {"name": "p"}, "spec": {"nodeName": "n1"}, "status": {"phase": "Running"}}
    assert field_selector(PODS, "spec.nodeName=n1,status.phase!=Pending")(pod)
    assert not field_selector(PODS, "metadata.name!=p")(pod)
    with pytest.raises(BadRequest, match="not supported"):
        field_selector(PODS, "spec.replicas=1")


# -- patches ------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "passes"),
    [
        ({"op": "test", "path": "/m/absent", "value": None}, True),
        ({"op": "test", "path": "/m/k", "value": None}, False),
        ({"op": "test", "path": "/absent/k", "value": None}, False),
        ({"op": "test", "path": "/m/absent", "value": "x"}, False),
        ({"op": "test", "path": "/m/k", "value": "v"}, True),
        ({"op": "test", "path": "/n", "value": True}, False),
        ({"op": "test", "path": "/l/0", "value": {"a": 1}}, True),
        ({"op": "test", "path": "/l/5", "value": None}, False),
        ({"op": "test", "path": "/m/s~1l", "value": "slash"}, True),
        ({"op": "replace", "path": "/m/absent", "value": 1}, False),
        ({"op": "remove", "path": "/m/absent"}, False),
        ({"op": "add", "path": "/absent/k", "value": 1}, False),
        ({"op": "nonsense", "path": "/m"}, False),
        ({"path": "/m"}, False),
    ],
)
def test_json_patch_operations(operation: Json, passes: bool) -> None:
    document = {"m": {"k": "v", "s/l": "slash"}, "n": 1, "l": [{"a": 1}]}
    if passes:
        assert json_patch(document, [operation]) == document
        return
    with pytest.raises(Invalid) as refused:
        json_patch(document, [operation])
    assert refused.value.details == {}


def test_json_patch_leaves_the_stored_object_alone() -> None:
    document = {"m": {"k": "v"}}
    assert json_patch(document, [{"op": "add", "path": "/m/new", "value": 1}])["m"] == {"k": "v", "new": 1}
    assert document == {"m": {"k": "v"}}


def test_merge_patch() -> None:
    assert merge_patch({"a": {"b": 1, "c": 2}, "l": [1]}, {"a": {"b": None, "d": {"e": None}}, "l": [2]}) == {
        "a": {"c": 2, "d": {}},
        "l": [2],
    }


_DEPLOYMENT_TYPE = load().of("apps/v1", "Deployment")


def _containers(*containers: Json) -> Json:
    return {"spec": {"template": {"spec": {"containers": list(containers)}}}}


@pytest.mark.parametrize(
    ("stored", "patch", "wanted"),
    [
        pytest.param(
            [{"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]}, {"name": "b", "image": "1"}],
            [{"name": "a", "image": "2"}],
            [{"name": "a", "image": "2", "env": [{"name": "X", "value": "1"}]}, {"name": "b", "image": "1"}],
            id="by name",
        ),
        pytest.param([{"name": "a"}], [{"name": "new"}], [{"name": "new"}, {"name": "a"}], id="new first"),
        pytest.param([{"name": "a"}, {"name": "b"}], [{"name": "a", "$patch": "delete"}], [{"name": "b"}], id="delete"),
        pytest.param([{"name": "a"}], [{"$patch": "replace"}, {"name": "c"}], [{"name": "c"}], id="replace list"),
        pytest.param([{"name": "a", "image": "1"}], [{"name": "a", "image": None}], [{"name": "a"}], id="null"),
        pytest.param(
            [{"name": "a", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]}],
            [{"name": "a", "env": [{"name": "Y", "value": "3"}]}],
            [{"name": "a", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "3"}]}],
            id="nested",
        ),
        pytest.param(
            [{"name": "a", "ports": [{"containerPort": 80}]}],
            [{"name": "a", "ports": [{"containerPort": 80, "name": "web"}]}],
            [{"name": "a", "ports": [{"containerPort": 80, "name": "web"}]}],
            id="ports",
        ),
        pytest.param(
            [{"name": "a", "command": ["x", "y"]}],
            [{"name": "a", "command": ["z"]}],
            [{"name": "a", "command": ["z"]}],
            id="atomic",
        ),
    ],
)
def test_strategic_merge_of_containers(stored: list[Json], patch: list[Json], wanted: list[Json]) -> None:
    assert strategic_merge(_containers(*stored), _containers(*patch), _DEPLOYMENT_TYPE) == _containers(*wanted)


def test_strategic_merge_directives() -> None:
    stored = {
        "metadata": {"finalizers": ["a", "b"]},
        "spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}},
    }
    patch = {
        "metadata": {"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["c"]},
        "spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}},
    }
    assert strategic_merge(stored, patch, _DEPLOYMENT_TYPE) == {
        "metadata": {"finalizers": ["b", "c"]},
        "spec": {"strategy": {"type": "Recreate"}},
    }
    replaced = strategic_merge(stored, {"spec": {"$patch": "replace", "paused": True}}, _DEPLOYMENT_TYPE)
    assert replaced["spec"] == {"paused": True}
    with pytest.raises(BadRequest):
        strategic_merge(_containers({"name": "a"}), _containers({"image": "nameless"}), _DEPLOYMENT_TYPE)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("app=web", ("app", "web")),
        ("app==web,tier!=x", ("app", "web")),
        ("tier!=x,app=web", ("app", "web")),
        ("app in (web,api),tier=x", ("tier", "x")),
        ("tier!=x", None),
        ("app in (web,api)", None),
        ("app", None),
        ("!app", None),
        ("", None),
    ],
)
def test_an_equality_narrows_a_list(text: str, found: tuple[str, str] | None) -> None:
    assert one_equality(text) == found
