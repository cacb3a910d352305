"""POST, PUT and PATCH of stored objects: decode, complete, check, ask admission, store.

All three end in `_commit` or `_create`, which keep one order: preconditions, defaults, rules of the kind, ownership of fields,
admission, storage. A dry run does all of it but the last.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from sandbox.access import Attributes
from sandbox.api.calls import Answer, Call, object_answer
from sandbox.api.plane import ControlPlane
from sandbox.decoding import Decoded, DecodeError, decode, parse_body, parse_json
from sandbox.defaulting import blank_status, complete
from sandbox.hooks import Review
from sandbox.kinds import DAEMON_SETS, Kind
from sandbox.metadata import Part, merged, storage_conflict
from sandbox.ownership import Writer, after_update, apply
from sandbox.patching import json_patch, merge_patch, strategic_merge
from sandbox.schemas import FieldType, load
from sandbox.shelves import copied, encode
from sandbox.statuses import BadRequest, Conflict, Invalid, Json, NotFound, UnsupportedMediaType, details_of
from sandbox.validating import Problems, check_create, check_update, option_refusal

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
_BODY_TYPES = ("application/json", "application/yaml", "")


@dataclass(frozen=True)
class Patched:
    """The object a patch asks for, and how its body is quoted in refusals."""

    object: Json
    quoted: str


def create(plane: ControlPlane, call: Call) -> Answer:
    """POST to a collection.

    Raises:
        BadRequest, Invalid, AlreadyExists, NotFound, Forbidden: as the body, the store or admission say.
    """
    return object_answer(call, 201, _create(plane, call, _body(call)))


def update(plane: ControlPlane, call: Call) -> Answer:
    """PUT of an object or its status.

    Raises:
        BadRequest, Invalid, Conflict, NotFound, Forbidden: as the body, the store or admission say.
    """
    kind = call.resource.kind
    body = _body(call)
    metadata = body.setdefault("metadata", {})
    if metadata.setdefault("name", call.path.name) != call.path.name:
        raise BadRequest(f"the name of the object ({metadata['name']}) does not match the name on the URL ({call.path.name})")
    stored = plane.store.find(kind, call.namespace, call.path.name)
    if stored is None:
        return _update_absent(plane, call, body)
    uid, version = metadata.get("uid"), metadata.get("resourceVersion")
    if uid and uid != stored["metadata"]["uid"]:
        raise storage_conflict(kind, metadata, stored["metadata"]["uid"])
    if not version and not kind.unconditional:
        raise _version_required(kind, call.path.name)
    return object_answer(call, 200, _commit(plane, call, body, stored))


def _update_absent(plane: ControlPlane, call: Call, body: Json) -> Answer:
    kind = call.resource.kind
    if body["metadata"].get("uid"):
        raise storage_conflict(kind, body["metadata"], "")
    if not kind.creates_on_put or call.path.subresource:
        raise NotFound.of(kind, call.path.name)
    body["metadata"].pop("resourceVersion", None)
    return object_answer(call, 201, _create(plane, call, body))


def _version_required(kind: Kind, name: str) -> Invalid:
    problems = Problems()
    problems.invalid("metadata.resourceVersion", 0, "must be specified for an update")
    cause = problems.causes[0]
    return Invalid(
        f'{kind.resource} "{name}" is invalid: {cause["field"]}: {cause["message"]}', details_of(kind, name, causes=problems.causes)
    )


def patch(plane: ControlPlane, call: Call) -> Answer:
    """PATCH of an object or its status.

    Raises:
        BadRequest, Invalid, Conflict, NotFound, Forbidden, UnsupportedMediaType: as the patch, the store or admission say.
    """
    kind = call.resource.kind
    check_patch_type(call, custom=kind.custom)
    if call.content_type == APPLY:
        return _apply(plane, call)
    stored = plane.store.get(kind, call.namespace, call.path.name)
    of = load().of(kind.api_version, kind.kind)
    wanted = patched(call, stored, of)
    obj = checked_patch(call, wanted, of)
    obj.setdefault("metadata", {}).setdefault("name", call.path.name)
    version = obj["metadata"].get("resourceVersion")
    if version and version != stored["metadata"]["resourceVersion"]:
        raise Conflict.stale(kind, call.path.name)
    return object_answer(call, 200, _commit(plane, call, obj, stored))


def check_patch_type(call: Call, *, custom: bool = False) -> None:
    """Refuse patch formats that are not served.

    Raises:
        UnsupportedMediaType: none of the four, or strategic merge of a custom resource.
    """
    served = (MERGE, JSON_PATCH, APPLY) if custom else (MERGE, JSON_PATCH, APPLY, STRATEGIC)
    if call.content_type not in served:
        raise UnsupportedMediaType("415: Unsupported Media Type", {})


def patched(call: Call, stored: Json, of: FieldType) -> Patched:
    """What the patch in `call` makes of `stored`, before it is checked.

    Raises:
        BadRequest: the body is no patch. Invalid: a JSON Patch operation fails.
    """
    try:
        body = parse_json(call.body)
    except DecodeError as error:
        raise BadRequest(f"error decoding patch: {error}") from error
    if call.content_type == JSON_PATCH:
        result = json_patch(stored, body)
        return Patched(result, encode(_sorted(result)).decode())
    if not isinstance(body, dict):
        raise BadRequest("error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}")
    if call.content_type == STRATEGIC:
        return Patched(strategic_merge(stored, body, of), _go_map(body))
    result = merge_patch(stored, body)
    return Patched(_carrying_duplicates(result, body), encode(_sorted(result)).decode())


def _carrying_duplicates(result: Json, body: Any) -> Json:
    """Merge patches lose which keys came twice; put them back where the patch had them."""
    marked = type(body)(list(body.items())) if type(body) is not dict and hasattr(body, "duplicates") else None
    if marked is not None:
        duplicated = list(body.duplicates)
        marked.clear()
        marked.update(result)
        marked.duplicates = duplicated
        result = marked
    for key, value in body.items():
        if isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = _carrying_duplicates(result[key], value)
    return result


def checked_patch(call: Call, wanted: Patched, of: FieldType) -> Json:
    """The patched object, decoded under the call's field validation.

    Raises:
        Invalid: it does not have the types of its kind, or strict validation finds unknown or repeated fields.
    """
    try:
        decoded = decode(wanted.object, of)
    except DecodeError as error:
        why = error.converted if call.content_type == STRATEGIC else str(error)
        raise _patch_refused(wanted, why) from error
    problem = _judge_fields(call, decoded)
    if problem:
        raise _patch_refused(wanted, problem)
    return decoded.object


def _patch_refused(wanted: Patched, why: str) -> Invalid:
    quoted = wanted.quoted.replace("\\", "\\\\").replace('"', '\\"')
    message = f'Invalid value: "{quoted}": {why}'
    return Invalid(
        f' "" is invalid: patch: {message}', {"causes": [{"reason": "FieldValueInvalid", "message": message, "field": "patch"}]}
    )


def _judge_fields(call: Call, decoded: Decoded) -> str:
    if call.field_validation == "Strict" and decoded.problems:
        return "strict decoding error: " + ", ".join(decoded.problems)
    if call.field_validation == "Warn":
        call.warnings.extend(decoded.problems)
    return ""


def _go_map(value: Any) -> str:
    """A value as Go prints a map: `map[spec:map[replicas:2]]`."""
    if isinstance(value, dict):
        return "map[" + " ".join(f"{key}:{_go_map(item)}" for key, item in sorted(value.items())) + "]"
    if isinstance(value, list):
        return "[" + " ".join(_go_map(item) for item in value) + "]"
    return (
        {True: "true", False: "false"}.get(value, str(value))
        if isinstance(value, bool)
        else "<nil>"
        if value is None
        else str(value)
    )


def _sorted(obj: Json) -> Json:
    return dict(sorted(obj.items()))


# -- server-side apply ------------------------------------------------------------


def _apply(plane: ControlPlane, call: Call) -> Answer:
    kind = call.resource.kind
    if not call.query.get("fieldManager"):
        raise option_refusal("PatchOptions", lambda problems: problems.required("fieldManager", "is required for apply patch"))
    config = _decoded(call, parse_body(call.body, "application/yaml"))
    metadata = config.setdefault("metadata", {})
    if metadata.get("managedFields"):
        raise BadRequest("metadata.managedFields must be nil")
    metadata |= {"name": call.path.name} | ({"namespace": call.namespace} if call.namespace else {})
    stored = plane.store.find(kind, call.namespace, call.path.name)
    writer = Writer(call.manager, "Apply", call.resource.api_version, call.path.subresource)
    of = load().of(kind.api_version, kind.kind)
    result, fields = apply(
        copied(stored) if stored else {}, config, of, writer, plane.store.now_text(), force=call.query.get("force") == "true"
    )
    result["metadata"]["managedFields"] = fields
    if stored is None:
        plane.accounts.require(call.account, _as_create(call))
        return object_answer(call, 201, _create(plane, call, result, applied=fields))
    return object_answer(call, 200, _commit(plane, call, result, stored, applied=fields))


def _as_create(call: Call) -> Attributes:
    return replace(call.attributes, verb="create")


# -- the two ends ------------------------------------------------------------


def _create(plane: ControlPlane, call: Call, body: Json, *, applied: list[Json] | None = None) -> Json:
    kind = call.resource.kind
    metadata = body.setdefault("metadata", {})
    if kind.namespaced:
        if metadata.setdefault("namespace", call.path.namespace) != call.path.namespace:
            raise BadRequest("the namespace of the provided object does not match the namespace sent on the request")
        plane.store.require_namespace(kind, call.path.namespace, metadata.get("name", ""))
    else:
        metadata.pop("namespace", None)
    blank_status(kind, body)
    complete(kind, body)
    check_create(kind, body)
    metadata = body["metadata"]
    metadata.pop("managedFields", None)
    writer = Writer(call.manager, "Update", call.resource.api_version)
    fields = applied if applied is not None else after_update(body, None, _type_of(kind), writer, plane.store.now_text())
    metadata["managedFields"] = fields
    plane.hooks.admission(
        Review(call.account, "CREATE", kind, "", call.namespace, metadata.get("name", ""), body, None, dry_run=call.dry_run)
    )
    return plane.store.create(kind, body, dry_run=call.dry_run)


def _commit(plane: ControlPlane, call: Call, obj: Json, stored: Json, *, applied: list[Json] | None = None) -> Json:
    kind = call.resource.kind
    part: Part = "status" if call.path.subresource == "status" else "main"
    version = obj["metadata"].get("resourceVersion")
    if version and version != stored["metadata"]["resourceVersion"]:
        raise Conflict.stale(kind, call.path.name)
    if kind.namespaced and obj["metadata"].setdefault("namespace", call.namespace) != call.namespace:
        raise BadRequest("the namespace of the provided object does not match the namespace sent on the request")
    if part == "main":
        complete(kind, obj)
        _count_template(kind, obj, stored)
        check_update(kind, obj, stored)
    new = merged(kind, obj, stored, part)
    if applied is None:
        writer = Writer(call.manager, "Update", call.resource.api_version, call.path.subresource)
        applied = after_update(new, stored, _type_of(kind), writer, plane.store.now_text())
    new["metadata"]["managedFields"] = applied
    review = Review(
        call.account, "UPDATE", kind, call.path.subresource, call.namespace, call.path.name, new, stored, dry_run=call.dry_run
    )
    plane.hooks.admission(review)
    return plane.store.update(kind, new, part=part, dry_run=call.dry_run)


def _count_template(kind: Kind, obj: Json, stored: Json) -> None:
    """The server itself counts template changes of DaemonSets in an annotation."""
    if kind.key != DAEMON_SETS.key:
        return
    name = "deprecated.daemonset.template.generation"
    number = int(stored["metadata"].get("annotations", {}).get(name, "0"))
    if obj["spec"].get("template") != stored["spec"].get("template"):
        number += 1
    obj["metadata"]["annotations"] = {**obj["metadata"].get("annotations", {}), name: str(number)}


def _type_of(kind: Kind) -> FieldType:
    return load().of(kind.api_version, kind.kind)


# -- bodies ------------------------------------------------------------


def _body(call: Call) -> Json:
    if call.content_type not in _BODY_TYPES:
        accepted = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
        raise UnsupportedMediaType(f"the body of the request was in an unknown format - accepted media types include: {accepted}")
    return _decoded(call, parse_body(call.body, call.content_type))


def _decoded(call: Call, body: Any) -> Json:
    if not isinstance(body, dict):
        raise BadRequest("couldn't get version/kind; json parse error: the body is not an object")
    served = call.resource
    kind = served.kind
    _check_kind(call, body)
    of = load().of(served.api_version, kind.kind)
    cannot = f'{kind.kind} in version "{served.version}" cannot be handled as a {kind.kind}: '
    try:
        decoded = decode(body, of)
    except DecodeError as error:
        raise BadRequest(cannot + str(error)) from error
    problem = _judge_fields(call, decoded)
    if problem:
        raise BadRequest(cannot + problem)
    obj = decoded.object
    if served.inward is not None:
        _check_new_event(obj)
        obj = served.inward(obj)
    return obj


def _check_kind(call: Call, body: Json) -> None:
    served = call.resource
    kind = body.setdefault("kind", served.kind.kind)
    api_version = body.setdefault("apiVersion", served.api_version)
    if kind == served.kind.kind and api_version == served.api_version:
        return
    version = str(api_version).rpartition("/")[2]
    group = served.group.partition(".")[0] or "core"
    why = f"converting ({version}.{kind}) to ({group}.{served.kind.kind}): unknown conversion"
    raise BadRequest(f'{kind} in version "{version}" cannot be handled as a {served.kind.kind}: {why}')


def _check_new_event(event: Json) -> None:
    problems = Problems()
    for field in ("eventTime", "reportingController", "reportingInstance", "action"):
        if not event.get(field):
            problems.required(field)
            break
    name = event.get("metadata", {}).get("name", "")
    problems.raise_for("Event", name, {"name": name, "kind": "Event"})
