"""DELETE of one object or of a collection."""

from __future__ import annotations

from sandbox.api.calls import Answer, Call, object_answer
from sandbox.api.plane import ControlPlane
from sandbox.decoding import DecodeError, parse_json
from sandbox.hooks import Review
from sandbox.selecting import field_selector, label_selector
from sandbox.statuses import BadRequest, Json
from sandbox.validating import option_refusal


def delete_options(call: Call) -> Json:
    """DeleteOptions of the body, completed from the query string.

    Raises:
        BadRequest: the body is no JSON object.
    """
    options: Json = {}
    if call.body.strip():
        try:
            options = parse_json(call.body)
        except DecodeError as error:
            raise BadRequest(f"couldn't get version/kind; json parse error: {error}") from error
        if not isinstance(options, dict):
            raise BadRequest("couldn't get version/kind; json parse error: the body is not an object")
    for name in ("propagationPolicy", "gracePeriodSeconds"):
        if name in call.query and name not in options:
            value = call.query[name]
            options[name] = int(value) if name == "gracePeriodSeconds" and value.lstrip("-").isdecimal() else value
    if options.get("orphanDependents") and "propagationPolicy" not in options:
        options["propagationPolicy"] = "Orphan"
    return options


def dry(call: Call, options: Json) -> bool:
    """Whether the query or the options ask for a dry run.

    Raises:
        Invalid: `dryRun` is something else than All.
    """
    asked = options.get("dryRun") or []
    if any(value != "All" for value in asked):
        raise option_refusal("DeleteOptions", lambda problems: problems.unsupported("dryRun", asked, '"All"'))
    return call.dry_run or bool(asked)


def delete(plane: ControlPlane, call: Call) -> Answer:
    """Delete one object: 200 with a Status when it is gone, with the object when it is only marked (and for pods always).

    Raises:
        NotFound, Conflict, Forbidden: as the store or admission say.
    """
    kind = call.resource.kind
    options = delete_options(call)
    dry_run = dry(call, options)
    stored = plane.store.get(kind, call.namespace, call.path.name)
    plane.hooks.admission(
        Review(call.account, "DELETE", kind, "", call.namespace, call.path.name, None, stored, options, dry_run=dry_run)
    )
    preconditions = options.get("preconditions") or {}
    deleted = plane.store.delete(
        kind,
        call.namespace,
        call.path.name,
        uid=preconditions.get("uid"),
        resource_version=preconditions.get("resourceVersion"),
        grace=options.get("gracePeriodSeconds"),
        propagation=options.get("propagationPolicy"),
        dry_run=dry_run,
    )
    if kind.graceful or not deleted.removed:
        return object_answer(call, 200, deleted.object)
    details = {"name": call.path.name, "group": kind.group, "kind": kind.plural, "uid": stored["metadata"]["uid"]}
    return Answer.of(200, _success({key: value for key, value in details.items() if value}))


def _success(details: Json) -> Json:
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def delete_collection(plane: ControlPlane, call: Call) -> Answer:
    """Delete every object that the selectors match; admission is asked for each.

    Raises:
        Forbidden: admission refuses one; those before it are gone.
    """
    kind = call.resource.kind
    options = delete_options(call)
    dry_run = dry(call, options)
    labels = label_selector(call.query.get("labelSelector", ""))
    fields = field_selector(kind, call.query.get("fieldSelector", ""))
    for obj in plane.store.list(kind, call.namespace or None):
        metadata = obj["metadata"]
        if not labels(metadata.get("labels", {})) or not fields(obj):
            continue
        namespace = metadata.get("namespace", "")
        plane.hooks.admission(Review(call.account, "DELETE", kind, "", namespace, "", None, obj, options, dry_run=dry_run))
        plane.store.delete(
            kind,
            namespace,
            metadata["name"],
            grace=options.get("gracePeriodSeconds"),
            propagation=options.get("propagationPolicy"),
            dry_run=dry_run,
        )
    details = {"group": kind.group, "kind": kind.plural}
    return Answer.of(200, _success({key: value for key, value in details.items() if value}))
