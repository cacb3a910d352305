"""The executor's fence against the recorded answers of the admission policies (07-admission), and against the design.

The recorded policies were tried before the design settled what the fence allows; where the design is stricter, the row is in
`STRICTER` with the reason and must be denied here.
"""

from __future__ import annotations

from typing import Any

import pytest
from sandbox_replay import DATA, Json, Reply, World, open_world, pod, recordings, replayed, same_view
from test_sandbox_api_access import RULES, recorded_roles

from catalog.marks import RESTART_ANNOTATION, TXN_ANNOTATION
from sandbox.admission import PODS_POLICY, WORKLOADS_POLICY
from sandbox.defaulting import complete
from sandbox.kinds import (
    ADMISSION_BINDINGS,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    DAEMON_SETS,
    DEPLOYMENTS,
    NAMESPACES,
    PODS,
    REPLICA_SETS,
    STATEFUL_SETS,
)

FOLDER = "07-admission"
RECORDED = recordings(FOLDER)
EXECUTOR = "system:serviceaccount:sre-ladder:executor"
_STAMP = "the design allows our own restart stamp only, not kubectl's restartedAt"
_STRICTER = """a01-dryrun-restart a02-restart a03-restart-with-own-annotations a05-restart-again a11-restart-sts a12-restart-ds
    a14-ssa-restart a16-restart-on-bad b05-put-restart n02-opted-in-again n04-bad-cap-restart"""
STRICTER = dict.fromkeys(_STRICTER.split(), _STAMP)
NOT_SERVED = {
    "a04-undo-restart-remove-annotation": "undoes a restart that is denied here",
    "a06-undo-restart-replace-template": "undoes a restart that is denied here",
    "a15-kubectl-undo-form": "undoes a restart that is denied here",
    "b09-pod-exec": "exec is not emulated (404)",
    "u07-kubectl-undo": "no image is ever granted: release rollback is not executable",
    "u06-write-grant": "there is no such role to write",
    "x01-cel-error": "an experiment with another policy",
    "x06-param-not-found-denies-everyone": "an experiment with another policy",
}
_IMAGE = "the image may not change, except to one granted by RBAC (verb use on images.sre-ladder.dev)"
_REWORDED = {
    f"sre-ladder: {_IMAGE}": "sre-ladder: the image may not change",
    "sre-ladder: only kubectl.kubernetes.io/restartedAt and sre-ladder.dev/* may change among the pod template annotations": (
        f"sre-ladder: only {RESTART_ANNOTATION} may change among the pod template annotations"
    ),
}


def _template(name: str) -> Json:
    probe = {"exec": {"command": ["/bin/sh", "-c", "test ! -e /tmp/broken"]}, "periodSeconds": 1}
    container = {"name": "app", "image": "docker.io/local/app:1", "imagePullPolicy": "Never", "readinessProbe": probe}
    rest = {"dnsPolicy": "Default", "automountServiceAccountToken": False, "terminationGracePeriodSeconds": 1}
    return {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container], **rest}}


def _workload(world: World, kind: Any, name: str, replicas: int | None, namespace: str = "rec-shop") -> None:
    spec: Json = {"selector": {"matchLabels": {"app": name}}, "template": _template(name)}
    if replicas is not None:
        spec["replicas"] = replicas
    annotations = {"deployment.kubernetes.io/revision": "1", "team": "shop"}
    world.make(kind, {"metadata": {"name": name, "namespace": namespace, "annotations": annotations}, "spec": spec})


def _start(world: World) -> None:
    recorded_roles(world)
    world.account("rec-shop", "dev")
    world.grant("rec-shop", "dev", "dev", RULES, account_namespace="rec-shop")
    for name, replicas in (("web", 2), ("big", 7), ("zero", 0)):
        _workload(world, DEPLOYMENTS, name, replicas)
    _workload(world, DEPLOYMENTS, "web", 2, "rec-shop-off")
    _workload(world, STATEFUL_SETS, "db", 2)
    _workload(world, DAEMON_SETS, "agent", None)
    _workload(world, REPLICA_SETS, "web-6fc7578475", 2)
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-6fc7578475", "uid": "1", "controller": True}
    for namespace, name in (
        ("rec-shop", "web-6fc7578475-ptg64"),
        ("rec-shop", "web-6fc7578475-q9qbc"),
        ("rec-shop", "big-7b6cc66755-g42gj"),
        ("rec-shop-off", "web-6fc7578475-nf7jt"),
    ):
        world.make(PODS, pod(namespace, name, labels={"app": name.partition("-")[0]}, ownerReferences=[owner]))
    world.make(PODS, pod("rec-shop", "bare"))
    _narrow_roles(world)


def _narrow_roles(world: World) -> None:
    for name, verbs, resources, names in (
        ("scale-only", ["patch"], ["deployments/scale"], []),
        ("patch-only", ["patch"], ["deployments"], []),
        ("named", ["get", "list", "patch"], ["deployments"], ["web"]),
    ):
        rule: Json = {"verbs": verbs, "apiGroups": ["apps"], "resources": resources}
        rule |= {"resourceNames": names} if names else {}
        world.grant("rec-shop", name, name, [rule], account_namespace="rec-shop")


def _wide(world: World) -> None:
    """RBAC opened wide: the policy alone."""
    rule = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
    world.grant("", "executor", "wide", [rule], account_namespace="sre-ladder")


def _narrow(world: World) -> None:
    for kind in (CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES):
        world.store.delete(kind, "", "wide")


def _label(value: str | None) -> Any:
    def scene(world: World) -> None:
        labels = {"sre-ladder.dev/autonomy": value} if value else {}
        world.store.change(NAMESPACES, "", "rec-shop", lambda obj: obj["metadata"].update(labels=labels))

    return scene


def _bad_cap(world: World) -> None:
    annotations = {"sre-ladder.dev/max-replicas": "many"}
    world.store.change(NAMESPACES, "", "rec-shop", lambda obj: obj["metadata"].update(annotations=annotations))


def _good_cap(world: World) -> None:
    annotations = {"sre-ladder.dev/max-replicas": "8"}
    world.store.change(NAMESPACES, "", "rec-shop", lambda obj: obj["metadata"].update(annotations=annotations))
    replicas = {"replicas": 2}
    world.store.change(DEPLOYMENTS, "rec-shop", "web", lambda obj: obj["spec"].update(replicas))


def _reset(world: World) -> None:
    """The recordings with their own roles ran on a fresh `web`."""
    stored = world.store.get(DEPLOYMENTS, "rec-shop", "web")
    spec = {**stored["spec"], "replicas": 2, "template": {**stored["spec"]["template"], **_template("web")}}
    metadata = {**stored["metadata"], "annotations": {"deployment.kubernetes.io/revision": "1", "team": "shop"}}
    body = {**stored, "metadata": metadata, "spec": spec}
    complete(DEPLOYMENTS, body)
    world.store.update(DEPLOYMENTS, body)


def _bad_image(world: World) -> None:
    """Somebody rolled a broken image out."""
    _reset(world)
    image = {"image": "docker.io/local/app:2"}
    world.store.change(DEPLOYMENTS, "rec-shop", "web", lambda obj: obj["spec"]["template"]["spec"]["containers"][0].update(image))


def _known_pods(world: World) -> None:
    for name in ("p02-delete-force", "p03-delete-bare", "p04-delete-not-opted-in", "p05-delete", "p07-evict"):
        request = RECORDED[name]["request"]
        options = (request.get("body") or {}).get("deleteOptions") or request.get("body") or {}
        uid = (options.get("preconditions") or {}).get("uid")
        parts = request["path"].split("/")
        if uid:
            world.names[uid] = world.store.get(PODS, parts[4], parts[6])["metadata"]["uid"]


def _known_web(world: World, name: str) -> None:
    """The versions that a recorded PUT carries are those of our `web`."""
    recorded = RECORDED[name]["request"]["body"]["metadata"]
    ours = world.store.get(DEPLOYMENTS, "rec-shop", "web")["metadata"]
    world.names |= {recorded[key]: ours[key] for key in ("uid", "resourceVersion") if key in recorded}


SCENES: dict[str, Any] = {
    "start": _start,
    "b01-create": _wide,
    "b05-put-restart": lambda world: _known_web(world, "b05-put-restart"),
    "b06-put-image": lambda world: _known_web(world, "b06-put-image"),
    "d01-image": _narrow,
    "n02-opted-in-again": _label("enabled"),
    "n03-bad-cap": _bad_cap,
    "o01-admin-image": _good_cap,
    "p01-delete-no-uid": _known_pods,
    "r01-scale-only-scale": _reset,
    "d30-undo-image": _bad_image,
    "n01-opted-out": lambda world: (_reset(world), _label(None)(world))[0],
    "u01-no-grant": _bad_image,
}
SENT = [name for name, recording in RECORDED.items() if "request" in recording and name not in NOT_SERVED]


@pytest.fixture(scope="module")
def answers() -> dict[str, Reply]:
    return replayed(FOLDER, SCENES, skip=set(NOT_SERVED))


def _reworded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _reworded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_reworded(item) for item in value]
    if isinstance(value, str):
        for old, new in _REWORDED.items():
            value = value.replace(old, new)
    return value


@pytest.mark.parametrize("name", [name for name in SENT if name not in STRICTER])
def test_recorded_admission(name: str, answers: dict[str, Reply]) -> None:
    recorded, ours = RECORDED[name]["response"], answers[name]
    assert ours.status == recorded["status"], ours.body
    if recorded["status"] == 403:
        wanted, found = same_view(_reworded(recorded["body"]), ours.body)
        assert found == wanted
    elif recorded["status"] == 422:
        denial = "ValidatingAdmissionPolicy 'sre-ladder-executor-workloads'"
        assert denial in ours.body["message"]
        assert "type conversion error from 'string' to 'int'" in ours.body["message"]


@pytest.mark.parametrize("name", sorted(STRICTER))
def test_row_denied_by_the_design(name: str, answers: dict[str, Reply]) -> None:
    assert answers[name].status == 403, STRICTER[name]
    assert RESTART_ANNOTATION in answers[name].body["message"]


def test_every_recording_of_the_folder_is_replayed_or_named() -> None:
    apart = {path.stem for path in (DATA / FOLDER).glob("*.json") if "request" not in RECORDED[path.stem]}
    assert {path.stem for path in (DATA / FOLDER).glob("*.json")} == set(SENT) | set(NOT_SERVED) | apart


# -- the design's own rules, through the door ------------------------------------------------------------


async def _patch(world: World, operations: list[Json], *, namespace: str = "rec-shop", who: str = EXECUTOR) -> Reply:
    return await world.send(
        {
            "as": who,
            "method": "PATCH",
            "path": f"/apis/apps/v1/namespaces/{namespace}/deployments/web",
            "contentType": "application/json-patch+json",
            "body": operations,
        }
    )


def _mark(value: str) -> list[Json]:
    return [{"op": "add", "path": f"/metadata/annotations/{TXN_ANNOTATION.replace('/', '~1')}", "value": value}]


_RESTART = [{"op": "add", "path": "/spec/template/metadata/annotations", "value": {RESTART_ANNOTATION: "01J"}}]


async def test_our_stamp_and_our_annotations_pass() -> None:
    async with open_world() as world:
        _start(world)
        assert (await _patch(world, _mark("open/01J/1"))).status == 200
        assert (await _patch(world, _RESTART)).status == 200
        assert (await _patch(world, [{"op": "remove", "path": "/spec/template/metadata/annotations"}])).status == 200
        assert (await _patch(world, [{"op": "replace", "path": "/spec/replicas", "value": 4}])).status == 200


async def test_opting_out_stops_beginnings_not_endings() -> None:
    async with open_world() as world:
        _start(world)
        assert (await _patch(world, _mark("open/01J/1"))).status == 200
        _label(None)(world)
        assert (await _patch(world, _RESTART)).status == 200
        assert (await _patch(world, _mark("closed/01J"))).status == 200
        refused = await _patch(world, _mark("open/01K/1"))
    assert refused.status == 403
    assert "is not opted in" in refused.body["message"]


async def test_a_foreign_mark_opens_nothing() -> None:
    async with open_world() as world:
        _start(world)
        _label(None)(world)
        marked = await _patch(world, _mark("somebody else"), who="admin")
        assert marked.status == 200
        assert (await _patch(world, _RESTART)).status == 403


async def test_dry_run_asks_the_fence_too() -> None:
    async with open_world() as world:
        _start(world)
        request = {
            "as": EXECUTOR,
            "method": "PATCH",
            "path": "/apis/apps/v1/namespaces/rec-shop/deployments/web",
            "query": {"dryRun": "All"},
            "contentType": "application/merge-patch+json",
            "body": {"metadata": {"labels": {"probe": "forbidden"}}},
        }
        denied = await world.send(request)
        world.store.delete(ADMISSION_BINDINGS, "", WORKLOADS_POLICY)
        unfenced = await world.send(request)
    assert (denied.status, unfenced.status) == (403, 200)


async def test_without_its_binding_the_pod_fence_is_gone() -> None:
    async with open_world() as world:
        _start(world)
        _wide(world)
        request = {"as": EXECUTOR, "method": "DELETE", "path": "/api/v1/namespaces/rec-shop/pods/bare", "query": {"dryRun": "All"}}
        assert (await world.send(request)).status == 403
        world.store.delete(ADMISSION_BINDINGS, "", PODS_POLICY)
        assert (await world.send(request)).status == 200
