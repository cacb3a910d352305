"""What the store keeps in an object's metadata, whoever writes: identity, versions, deletion marks. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from sandbox.kinds import DEPLOYMENTS, NAMESPACES, PODS, Kind
from sandbox.statuses import Conflict, Json, details_of

Part = Literal["whole", "main", "status"]
"""Which part of an object a write means: all, all but status, or status alone."""

SERVER_FIELDS = ("uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds")


def merged(kind: Kind, obj: Json, stored: Json, part: Part) -> Json:
    """What storing `obj` over `stored` comes to: the fields that `part` and the store keep are those of `stored`."""
    kept: Json = stored["metadata"]
    metadata = dict(obj["metadata"])
    body = dict(obj)
    if part == "status":
        body = dict(stored)
        metadata = {**kept, **{key: metadata[key] for key in ("annotations", "finalizers", "managedFields") if key in metadata}}
        if "status" in obj:
            body["status"] = obj["status"]
    elif part == "main" and kind.status:
        body.pop("status", None)
        if "status" in stored:
            body["status"] = stored["status"]
    for field in (*SERVER_FIELDS, "resourceVersion"):
        metadata.pop(field, None)
        if field in kept:
            metadata[field] = kept[field]
    return {"kind": kind.kind, "apiVersion": kind.api_version} | body | {"metadata": ordered(metadata)}


def storage_conflict(kind: Kind, given: Json, stored_uid: str) -> Conflict:
    """The uid in an update is not that of the stored object (or there is none: "")."""
    key = "/".join(part for part in ("/registry", kind.plural, given.get("namespace", ""), given["name"]) if part)
    why = (
        f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: "
        f"Precondition failed: UID in precondition: {given['uid']}, UID in object meta: {stored_uid}"
    )
    return Conflict(f'Operation cannot be fulfilled on {kind.resource} "{given["name"]}": {why}', details_of(kind, given["name"]))


_ORDER = (
    "name",
    "generateName",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
)


def ordered(metadata: Json) -> Json:
    """Metadata in the order the server writes it; unknown keys last, empty values dropped as omitempty does."""
    known = {key: metadata[key] for key in _ORDER if key in metadata and metadata[key] not in ("", None, {}, [])}
    return known | {key: value for key, value in metadata.items() if key not in _ORDER}


def same(new: Json, stored: Json) -> bool:
    """Whether a write would store nothing new (the time of managedFields entries does not count)."""
    if new == stored:
        return True
    if {key: value for key, value in new.items() if key != "metadata"} != {k: v for k, v in stored.items() if k != "metadata"}:
        return False
    return _timeless(new["metadata"]) == _timeless(stored["metadata"])


def _timeless(metadata: Json) -> Json:
    fields = [{key: value for key, value in item.items() if key != "time"} for item in metadata.get("managedFields", ())]
    return {**metadata, "managedFields": fields}


def generation_moves(kind: Kind, new: Json, stored: Json) -> bool:
    if kind.key == DEPLOYMENTS.key and new["metadata"].get("annotations") != stored["metadata"].get("annotations"):
        return True
    if kind.key == PODS.key and "nodeName" in new["spec"] and "nodeName" not in stored["spec"]:
        return {**new["spec"], "nodeName": ""} != {**stored["spec"], "nodeName": ""}  # being bound is no change of the spec
    aside: Iterable[str] = ("metadata", "status") if kind.status or not kind.custom else ("metadata",)
    return {k: v for k, v in new.items() if k not in aside} != {k: v for k, v in stored.items() if k not in aside}


def finished(body: Json) -> bool:
    metadata = body["metadata"]
    if "deletionTimestamp" not in metadata or metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds"):
        return False
    return not (body["kind"] == "Namespace" and held(NAMESPACES, body))


def held(kind: Kind, body: Json) -> bool:
    """A namespace stays until whoever empties it has taken its finalizer out of the spec."""
    return kind.key == NAMESPACES.key and bool(body.get("spec", {}).get("finalizers"))


def grace_seconds(kind: Kind, body: Json, asked: int | None) -> int:
    if not kind.graceful:
        return 0
    if not body.get("spec", {}).get("nodeName") or body.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    default = body["metadata"].get("deletionGracePeriodSeconds", body.get("spec", {}).get("terminationGracePeriodSeconds", 30))
    return int(default if asked is None else max(0, asked))


def finalizers_after(metadata: Json, propagation: str | None) -> list[str]:
    kept = metadata.get("finalizers", ())
    finalizers = [item for item in kept if propagation is None or item not in ("orphan", "foregroundDeletion")]
    if propagation == "Foreground":
        finalizers.append("foregroundDeletion")
    elif propagation == "Orphan":
        finalizers.append("orphan")
    return finalizers
