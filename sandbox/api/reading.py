"""GET: one object, a list in pages, a watch."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

from sandbox.api.calls import Answer, Call, Stream, Wanted, negotiate, object_answer
from sandbox.api.plane import ControlPlane
from sandbox.api.tables import partial_object, table
from sandbox.kinds import EVENTS
from sandbox.selecting import field_selector, label_selector, one_equality
from sandbox.shelves import Entry, encode
from sandbox.statuses import BadRequest, Expired, InternalError, Invalid, Json, NotFound, StatusError, TooLargeVersion
from sandbox.validating import option_refusal
from sandbox.watching import Line, Scope, Watch

FUTURE_WAIT_S = 3.0
DEFAULT_WATCH_S = 1800.0
_EXPIRED_CONTINUE = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without the "
    "continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with "
    "the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the "
    "first chunk was returned and now may show up in the list."
)


def get(plane: ControlPlane, call: Call) -> Answer:
    """One object.

    Raises:
        NotFound: there is none.
    """
    kind = call.resource.kind
    entry = plane.store.entry(kind, call.namespace, call.path.name)
    if entry is None:
        raise _absent(call)
    accept = call.headers.get("Accept")
    if accept in (None, "*/*", "application/json") and call.resource.outward is None:
        return Answer(200, entry.document(kind.kind, kind.api_version))
    return object_answer(call, 200, entry.body)


def _absent(call: Call) -> NotFound:
    return NotFound.of(call.resource.kind, call.path.name)


# -- lists ------------------------------------------------------------


@dataclass(frozen=True)
class _Page:
    """What one list request asks for: from which revision, after which key, how many."""

    revision: int | None
    after: str
    limit: int


def list_objects(plane: ControlPlane, call: Call) -> Answer:
    """A list, or a page of it.

    Raises:
        BadRequest: a selector, version or token cannot be read. Expired: the version asked for is gone. TooLargeVersion: it is
        not here yet (the caller waits FUTURE_WAIT_S first).
    """
    wanted = negotiate(call.headers.get("Accept"))
    scope = _scope(call)
    page = _page(plane, call)
    namespace = scope.namespace
    try:
        entries = _candidates(plane, call, scope, page.revision)
    except Expired as error:
        raise _expired(call) from error
    if page.after:
        entries = [entry for entry in entries if entry.key > _full_key(namespace, page.after)]
    selects = bool(call.query.get("labelSelector") or call.query.get("fieldSelector"))
    found = [entry for entry in entries if scope.matches(entry.body)] if selects else entries
    metadata: Json = {"resourceVersion": str(page.revision or plane.store.revision)}
    if page.limit and len(found) > page.limit:
        rest = len(found) - page.limit
        found = found[: page.limit]
        metadata["continue"] = _token(page.revision or plane.store.revision, _short_key(namespace, found[-1].key))
        if not selects:
            metadata["remainingItemCount"] = rest
    return _list_answer(plane, call, wanted, metadata, found)


def _candidates(plane: ControlPlane, call: Call, scope: Scope, revision: int | None) -> list[Entry]:
    """Entries among which the selectors choose: by index where one equality narrows them, else all."""
    labels, fields = call.query.get("labelSelector", ""), call.query.get("fieldSelector", "")
    about = one_equality(fields)
    mark = one_equality(labels) or (about if about is not None and about[0] == "involvedObject.uid" else None)
    if revision is None and mark is not None:
        return plane.store.marked(scope.kind, mark, scope.namespace)
    return plane.store.entries(scope.kind, scope.namespace, revision=revision)


def _list_answer(plane: ControlPlane, call: Call, wanted: Wanted, metadata: Json, found: list[Entry]) -> Answer:
    served = call.resource
    kind = served.kind
    if wanted.form.startswith("PartialObjectMetadata"):
        items = [partial_object(entry.body) for entry in found]
        return Answer.of(
            200, {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "items": items}
        )
    if wanted.form == "Table":
        return Answer.of(200, table(kind, [entry.body for entry in found], metadata, plane.store.clock.now()))
    if served.outward is not None:
        parts = [encode(_plain(served.outward(entry.body))) for entry in found]
    elif kind.custom:
        parts = [entry.document(kind.kind, kind.api_version) for entry in found]
    else:
        parts = [entry.item for entry in found]
    head = encode({"kind": f"{kind.kind}List", "apiVersion": served.api_version, "metadata": metadata})
    return Answer(200, head[:-1] + b',"items":[' + b",".join(parts) + b"]}")


def _plain(obj: Json) -> Json:
    return {key: value for key, value in obj.items() if key not in ("kind", "apiVersion")}


def _scope(call: Call) -> Scope:
    kind = call.resource.kind
    labels = label_selector(call.query.get("labelSelector", ""))
    fields = field_selector(kind, call.query.get("fieldSelector", ""), regarding=call.resource.outward is not None)
    namespace = call.namespace or None
    return Scope(kind, namespace, lambda obj: labels(obj["metadata"].get("labels", {})) and fields(obj))


def _page(plane: ControlPlane, call: Call) -> _Page:
    query = call.query
    limit = _number(query.get("limit", "0"), "limit")
    match = query.get("resourceVersionMatch", "")
    asked = query.get("resourceVersion", "")
    token = query.get("continue", "")
    if match and not asked and not token:
        raise _list_problem("resourceVersionMatch is forbidden unless resourceVersion is provided")
    if match == "Exact" and asked == "0":
        raise _list_problem('resourceVersionMatch "exact" is forbidden for resourceVersion "0"')
    if token and asked not in ("", "0"):
        raise BadRequest("specifying resource version is not allowed when using continue")
    if token:
        revision, after = _read_token(token)
        return _Page(None if revision < 0 else revision, after, limit)
    version = _version(asked)
    if version is not None and version > plane.store.revision:
        raise _too_large(version, plane.store.revision)
    if match == "Exact" and version:
        return _Page(version, "", limit)
    return _Page(None, "", limit)


def _list_problem(why: str) -> Invalid:
    return option_refusal("ListOptions", lambda problems: problems.forbidden("resourceVersionMatch", why))


def _too_large(version: int, current: int) -> TooLargeVersion:
    details = {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }
    message = f"Timeout: Too large resource version: {version}, current: {current}"
    return TooLargeVersion(message, details, headers={"Retry-After": "1"})


def _expired(call: Call) -> Expired:
    token = call.query.get("continue", "")
    if not token:
        return Expired("The resourceVersion for the provided list is too old.")
    error = Expired(_EXPIRED_CONTINUE)
    error.metadata = {"continue": _token(-1, _read_token(token)[1])}
    return error


def _number(text: str, name: str) -> int:
    if not text.lstrip("-").isdecimal():
        raise BadRequest(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    return max(0, int(text))


def _version(text: str) -> int | None:
    if not text:
        return None
    if not text.isdecimal():
        why = f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        raise BadRequest(f"invalid resource version: {why}")
    return int(text)


def _token(revision: int, after: str) -> str:
    text = encode({"v": "meta.k8s.io/v1", "rv": revision, "start": f"{after}\0"}).decode().replace("\0", "\\u0000")
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


def _read_token(token: str) -> tuple[int, str]:
    try:
        raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    except ValueError as error:
        raise BadRequest(f"invalid continue token: continue key is not valid: {error}") from error
    try:
        document = json.loads(raw)
        return int(document["rv"]), str(document["start"]).rstrip("\0")
    except (ValueError, KeyError, TypeError) as error:
        first = raw[:1].decode("latin-1")
        why = f"invalid character '{first}' looking for beginning of value"
        raise BadRequest(f"invalid continue token: continue key is not valid: {why}") from error


def _full_key(namespace: str | None, after: str) -> str:
    return f"{namespace}/{after}" if namespace else after


def _short_key(namespace: str | None, key: str) -> str:
    return key.partition("/")[2] if namespace else key


# -- watches ------------------------------------------------------------


def watch(plane: ControlPlane, call: Call, running: set[Watch]) -> Stream:
    """A watch; it registers itself in `running` so that the server can cut it.

    Raises:
        Invalid: sendInitialEvents without resourceVersionMatch. InternalError: a resourceVersion that is no number.
    """
    wanted = negotiate(call.headers.get("Accept"))
    scope = _scope(call)
    query = call.query
    streaming = query.get("sendInitialEvents") in ("1", "true")
    if streaming and query.get("resourceVersionMatch") != "NotOlderThan":
        raise _list_problem("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
    asked = query.get("resourceVersion", "")
    if asked and not asked.isdecimal():
        error = InternalError(f'resourceVersion: Invalid value: "{asked}": strconv.ParseUint: parsing "{asked}": invalid syntax')
        error.reason = ""
        raise error
    if streaming and scope.kind.key != EVENTS.key:
        return Stream(_one_error(_NO_STREAMING_LIST))
    after = None if streaming or asked in ("", "0") else int(asked)
    running_watch = Watch(
        plane.store,
        scope,
        after=after,
        timeout_s=_number(query.get("timeoutSeconds", "0"), "timeoutSeconds") or DEFAULT_WATCH_S,
        bookmarks=query.get("allowWatchBookmarks") in ("1", "true"),
        initial_end=streaming,
    )
    try:
        running_watch.start()
    except Expired as expired:
        running_watch.release()
        return Stream(_one_error(expired))
    running.add(running_watch)

    def release() -> None:
        running.discard(running_watch)
        running_watch.release()

    return Stream(_lines(running_watch, _writer(call, wanted)), release=release)


_NO_STREAMING_LIST = InternalError(
    "a watch stream was requested by the client but the required storage feature RequestWatchProgress is disabled"
)


async def _one_error(error: StatusError) -> AsyncGenerator[bytes, None]:
    yield encode({"type": "ERROR", "object": error.document}) + b"\n"


async def _lines(running_watch: Watch, write: Callable[[Line], bytes]) -> AsyncGenerator[bytes, None]:
    async for batch in running_watch.lines():
        yield b"".join(write(line) for line in batch)


def _writer(call: Call, wanted: Wanted) -> Callable[[Line], bytes]:
    served = call.resource
    kind = served.kind

    def write(line: Line) -> bytes:
        if line.entry is None:
            return _bookmark(kind.kind, served.api_version, line)
        if wanted.form == "PartialObjectMetadata":
            body = encode(partial_object(line.entry.body))
        elif wanted.form == "Table":
            body = encode(table(kind, [line.entry.body], {"resourceVersion": str(line.revision)}))
        elif served.outward is not None:
            body = encode(served.outward(line.entry.body))
        else:
            body = line.entry.document(kind.kind, kind.api_version)
        return b'{"type":"' + line.type.encode() + b'","object":' + body + b"}\n"

    return write


def _bookmark(kind: str, api_version: str, line: Line) -> bytes:
    metadata: Json = {"resourceVersion": str(line.revision)}
    if line.initial_end:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    return encode({"type": "BOOKMARK", "object": {"kind": kind, "apiVersion": api_version, "metadata": metadata}}) + b"\n"
