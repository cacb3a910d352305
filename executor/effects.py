"""The bodies of every call that this process makes, built from constants. Pure.

The fence is equality: each write to a Deployment is one JSON Patch that first tests the object's UID, our annotation as it was
read, and the whole field it is about to replace. A JSON Patch is applied whole or not at all, so a write that somebody else
overtook fails its test (422) and changes nothing. Nothing from an alert, a model or an order's text ever gets into a body.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from catalog.marks import RESTART_ANNOTATION, TXN_ANNOTATION
from executor.transactions import ANNOTATION_ONLY, Write

JsonObject = dict[str, Any]
Patch = list[JsonObject]

FIELD_MANAGER = "sre-ladder-executor"
PATCH_QUERY = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"}

_MARK_PATH = "/metadata/annotations/" + TXN_ANNOTATION.replace("/", "~1")


class TemplateUnsuitable(ValueError):
    """A pod template without metadata: it cannot be stamped by replacing its metadata."""


def stamped_metadata(template: JsonObject, transaction_id: str) -> JsonObject:
    """The template's metadata with our restart annotation, unique to the transaction."""
    metadata = template.get("metadata")
    if not isinstance(metadata, dict):
        raise TemplateUnsuitable("the pod template has no metadata")
    annotations = {**(metadata.get("annotations") or {}), RESTART_ANNOTATION: transaction_id}
    return {**deepcopy(metadata), "annotations": annotations}


def stamped_template(template: JsonObject, transaction_id: str) -> JsonObject:
    """The whole template as it is after our restart."""
    return {**deepcopy(template), "metadata": stamped_metadata(template, transaction_id)}


def patch_for(write: Write, *, transaction_id: str, uid: str, template: JsonObject, annotations_exist: bool = True) -> Patch:
    """The JSON Patch of a write to a Deployment. `template` is the one of the checkpoint.

    Raises:
        ValueError: an eviction is no patch, or a write lacks what it needs.
    """
    if write.mark_after is None:
        raise ValueError(f"{write.kind} is not a patch")
    if write.kind in ANNOTATION_ONLY and not annotations_exist:
        return [_test("/metadata/uid", uid), _test("/metadata/annotations", None), _mark_map(write.mark_after)]
    patch = [_test("/metadata/uid", uid), _test(_MARK_PATH, write.mark_before)]
    match write.kind:
        case "stamp":
            patch += _replace_metadata(template, stamped_metadata(template, transaction_id))
        case "undo" if write.to_replicas is None:
            patch += _replace_metadata(stamped_template(template, transaction_id), template["metadata"])
        case "scale" | "undo":
            if write.from_replicas is None or write.to_replicas is None:
                raise ValueError("a scale needs both numbers of replicas")
            patch += [_test("/spec/replicas", write.from_replicas), _replace("/spec/replicas", write.to_replicas)]
    # `add` sets a present key as well as an absent one: the test before has settled which it is.
    return [*patch, {"op": "add", "path": _MARK_PATH, "value": write.mark_after}]


def eviction_of(namespace: str, pod: str, uid: str, *, dry_run: bool = False) -> JsonObject:
    """The Eviction of exactly one pod: its UID is the precondition, so a successor of the same name is safe."""
    options: JsonObject = {"preconditions": {"uid": uid}}
    if dry_run:
        options["dryRun"] = ["All"]
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": namespace},
        "deleteOptions": options,
    }


def forbidden_patch() -> Patch:
    """What the admission policy must deny. Sent with dryRun only, to learn that the fence stands."""
    return [{"op": "add", "path": "/spec/paused", "value": True}]


def _replace_metadata(expected: JsonObject, metadata: JsonObject) -> Patch:
    return [_test("/spec/template", expected), _replace("/spec/template/metadata", metadata)]


def _mark_map(mark: str) -> JsonObject:
    return {"op": "add", "path": "/metadata/annotations", "value": {TXN_ANNOTATION: mark}}


def _test(path: str, value: Any) -> JsonObject:
    return {"op": "test", "path": path, "value": value}


def _replace(path: str, value: Any) -> JsonObject:
    return {"op": "replace", "path": path, "value": value}
