"""The /scale subresource: replicas of a workload as an autoscaling/v1 Scale."""

from __future__ import annotations

from sandbox.api.calls import Answer, Call
from sandbox.api.plane import ControlPlane
from sandbox.api.writing import check_patch_type, checked_patch, patched
from sandbox.decoding import DecodeError, decode, parse_body
from sandbox.hooks import Review
from sandbox.metadata import merged
from sandbox.ownership import Writer, after_update
from sandbox.schemas import load
from sandbox.statuses import BadRequest, Conflict, Json
from sandbox.validating import check_scale

_SCALE = ("autoscaling/v1", "Scale")


def scale_of(workload: Json) -> Json:
    """The Scale of a workload. `spec.replicas` is absent when 0, as the server writes it."""
    metadata = {key: workload["metadata"][key] for key in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")}
    replicas = workload["spec"].get("replicas", 1)
    selector = selector_text(workload["spec"].get("selector") or {})
    status: Json = {"replicas": workload.get("status", {}).get("replicas", 0)} | ({"selector": selector} if selector else {})
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": {"replicas": replicas} if replicas else {},
        "status": status,
    }


def selector_text(selector: Json) -> str:
    """A LabelSelector as the text of a query."""
    words = [f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items()]
    for item in selector.get("matchExpressions") or ():
        key, values = item["key"], ",".join(sorted(item.get("values") or ()))
        forms = {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "Exists": key, "DoesNotExist": f"!{key}"}
        words.append(forms[item["operator"]])
    return ",".join(sorted(words))


def get_scale(plane: ControlPlane, call: Call) -> Answer:
    """GET /scale.

    Raises:
        NotFound: no such workload.
    """
    return Answer.of(200, scale_of(plane.store.get(call.resource.kind, call.namespace, call.path.name)))


def put_scale(plane: ControlPlane, call: Call) -> Answer:
    """PUT /scale: a resourceVersion in the body is a precondition.

    Raises:
        BadRequest, Invalid, Conflict, NotFound, Forbidden: as the body, the store or admission say.
    """
    body = parse_body(call.body, call.content_type)
    if not isinstance(body, dict) or body.get("kind", "Scale") != "Scale":
        raise BadRequest("the object provided is unrecognized (must be of type Scale)")
    try:
        wanted = decode(body, load().of(*_SCALE)).object
    except DecodeError as error:
        raise BadRequest(f'Scale in version "v1" cannot be handled as a Scale: {error}') from error
    name = wanted.setdefault("metadata", {}).setdefault("name", call.path.name)
    if name != call.path.name:
        raise BadRequest(f"the name of the object ({name}) does not match the name on the URL ({call.path.name})")
    return _store(plane, call, wanted)


def patch_scale(plane: ControlPlane, call: Call) -> Answer:
    """PATCH /scale.

    Raises:
        BadRequest, Invalid, Conflict, NotFound, Forbidden, UnsupportedMediaType: as the patch, the store or admission say.
    """
    check_patch_type(call)
    of = load().of(*_SCALE)
    current = scale_of(plane.store.get(call.resource.kind, call.namespace, call.path.name))
    return _store(plane, call, checked_patch(call, patched(call, current, of), of))


def _store(plane: ControlPlane, call: Call, wanted: Json) -> Answer:
    kind = call.resource.kind
    stored = plane.store.get(kind, call.namespace, call.path.name)
    version = wanted["metadata"].get("resourceVersion")
    if version and version != stored["metadata"]["resourceVersion"]:
        raise Conflict.stale(kind, call.path.name)
    check_scale(wanted)
    replicas = wanted.get("spec", {}).get("replicas", 0)
    before = scale_of(stored)
    after = {**before, "spec": {"replicas": replicas} if replicas else {}}
    review = Review(call.account, "UPDATE", kind, "scale", call.namespace, call.path.name, after, before, dry_run=call.dry_run)
    plane.hooks.admission(review)
    new = merged(kind, {**stored, "spec": {**stored["spec"], "replicas": replicas}}, stored, "main")
    writer = Writer(call.manager, "Update", kind.api_version, "scale")
    of = load().of(kind.api_version, kind.kind)
    new["metadata"]["managedFields"] = after_update(new, stored, of, writer, plane.store.now_text())
    return Answer.of(200, scale_of(plane.store.update(kind, new, part="main", dry_run=call.dry_run)))
