"""Field ownership and server-side apply (08-owners/30..40), replayed; and what DaemonSets and HPAs answer to a write."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sandbox_replay import Json, Reply, World, masked, recordings, replayed, same_view

from sandbox.kinds import DAEMON_SETS, DEPLOYMENTS
from sandbox.ownership import Writer, after_update
from sandbox.schemas import load

FOLDER = "08-owners"
RECORDED = {
    name: recording for name, recording in recordings(FOLDER).items() if name[:2] in ("01", "26", "28", "40") or name[0] == "3"
}
# The other recordings of the folder show what controllers write; their tests are those of the controllers.


def _start(world: World) -> None:
    world.namespace("rec-own")
    template = RECORDED["30-ssa-create-argocd"]["request"]["body"]["spec"]["template"]
    spec = {"selector": {"matchLabels": {"app": "ag"}}, "template": {**template, "metadata": {"labels": {"app": "ag"}}}}
    recorded = RECORDED["26-ds-restart"]["response"]["body"]["status"]
    world.make(DAEMON_SETS, {"metadata": {"name": "ag", "namespace": "rec-own"}, "spec": spec, "status": recorded})


def _controller(world: World) -> None:
    """The deployment controller: revision annotation and status, in its own managedFields entry."""
    stored = world.store.get(DEPLOYMENTS, "rec-own", "gitops")
    now = world.store.now_text()
    condition = {"status": "True", "reason": "x", "message": "m", **dict.fromkeys(("lastUpdateTime", "lastTransitionTime"), now)}
    status = {
        "observedGeneration": stored["metadata"]["generation"],
        "conditions": [{"type": "Available", **condition}, {"type": "Progressing", **condition}],
        **dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), 2),
        "terminatingReplicas": 0,
    }
    annotations = {**stored["metadata"]["annotations"], "deployment.kubernetes.io/revision": "1"}
    new = {**stored, "metadata": {**stored["metadata"], "annotations": annotations}, "status": status}
    writer = Writer("kube-controller-manager", "Update", "apps/v1", "status")
    fields = after_update(new, stored, load().of("apps/v1", "Deployment"), writer, world.store.now_text())
    new["metadata"]["managedFields"] = fields
    world.store.update(DEPLOYMENTS, new, part="status")


SCENES: dict[str, Any] = {"start": _start, "31-restart-on-gitops": _controller}
SENT = [name for name, recording in RECORDED.items() if "request" in recording]


@pytest.fixture(scope="module")
def answers() -> dict[str, Reply]:
    return replayed(FOLDER, SCENES, skip=set(recordings(FOLDER)) - set(SENT))


def _owns(fields: Json) -> bool:
    return "f:replicas" in fields.get("f:spec", {})


def _trimmed(name: str, body: Any) -> Any:
    """Our answer in the form to which the recorder reduced its own."""
    match name:
        case "26-ds-restart":
            metadata = {key: value for key, value in body["metadata"].items() if key != "managedFields"}
            return {"metadata": metadata, "status": body["status"]}
        case "31-restart-on-gitops":
            template = body["spec"]["template"]["metadata"]
            return {"metadata.managedFields": body["metadata"]["managedFields"], "template.metadata": template}
        case "32-ssa-reapply" | "36-ssa-force":
            found = {"generation": body["metadata"]["generation"], "template.metadata": body["spec"]["template"]["metadata"]}
            return found | {"replicas": body["spec"]["replicas"]}
        case "34-managed-after-scale" | "38-ssa-shared":
            keys = ("manager", "operation", "subresource") if name.startswith("34") else ("manager", "operation")
            return [
                {key: entry.get(key) for key in keys} | {"owns f:replicas": _owns(entry["fieldsV1"])}
                for entry in body["metadata"]["managedFields"]
            ]
        case _:
            return body


def _by_manager(name: str, value: Any) -> Any:
    if name == "31-restart-on-gitops":
        # Entries of one second come in any order; the revision annotation of ours is one second older or younger.
        return {**value, "metadata.managedFields": sorted(value["metadata.managedFields"], key=json.dumps)}
    return sorted(value, key=json.dumps) if isinstance(value, list) else value


@pytest.mark.parametrize("name", SENT)
def test_recorded_ownership(name: str, answers: dict[str, Reply]) -> None:
    recorded, ours = RECORDED[name]["response"], answers[name]
    assert ours.status == recorded["status"], ours.body
    wanted, found = same_view(recorded["body"], _trimmed(name, ours.body))
    assert _by_manager(name, found) == _by_manager(name, wanted)


def test_30_managed_fields_of_apply_are_the_recorded_ones(answers: dict[str, Reply]) -> None:
    recorded = RECORDED["30-ssa-create-argocd"]["response"]["body"]["metadata"]["managedFields"]
    assert masked(answers["30-ssa-create-argocd"].body["metadata"]["managedFields"]) == masked(recorded)


def test_32_the_restart_stamp_survives_a_reapply_and_36_a_scale_does_not(answers: dict[str, Reply]) -> None:
    assert answers["32-ssa-reapply"].body["spec"]["template"]["metadata"]["annotations"]
    assert answers["36-ssa-force"].body["spec"]["replicas"] == 2
