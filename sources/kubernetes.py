"""Reads of one Kubernetes API server as raw JSON. The two reviews of our own access are the only requests that are not GET."""

from __future__ import annotations

import asyncio
import json
import re
from collections import deque
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import aiohttp
from kubernetes.aio.client import ApiClient

from catalog.clocks import Clock
from catalog.names import is_dns_subdomain
from sources.connecting import forget_credentials
from sources.errors import FailureKind, SourceMisconfigured, SourceUnavailable

PAGE = 500
MAX_ANSWER_BYTES = 64 * 1024 * 1024
MAX_LOG_BYTES = 4 * 1024 * 1024

_PATH = re.compile(r"/[A-Za-z0-9/._~%:-]*")
_REASON = re.compile(r"[A-Za-z]{1,64}")
_NO_LOGS = re.compile(
    r"is waiting to start|previous terminated container .* not found|is not valid for pod|container name must be specified"
)
_KIND_OF_STATUS: dict[int, FailureKind] = {401: "unauthorized", 403: "forbidden", 408: "timeout", 429: "throttled", 504: "timeout"}
_REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_WHO_AM_I = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"

JsonObject = dict[str, Any]


class KubernetesReader:
    """Reads of one cluster's API. Every read ends within `timeout_s` and either answers or raises `SourceUnavailable`.

    A 401 is met by reading the credentials again and asking once more. Nothing else is retried: the caller has a budget.
    """

    def __init__(self, api: ApiClient, clock: Clock, timeout_s: float = 5.0) -> None:
        self.api = api
        self.clock = clock
        self._timeout_s = timeout_s

    async def get(self, path: str, **query: Any) -> JsonObject | None:
        """One object; None when the API says that it does not exist.

        Raises:
            SourceUnavailable: anything but the object or a 404.
        """
        status, body = await self._ask("GET", path, query)
        return None if status == 404 else _object(path, status, body)

    async def list(
        self,
        path: str,
        label_selector: str | None = None,
        field_selector: str | None = None,
        limit: int | None = None,
        *,
        missing_ok: bool = False,
    ) -> list[JsonObject]:
        """All items of a collection, page by page; at most `limit` of them when it is given.

        `missing_ok`: a resource that this cluster does not serve (a custom resource not installed) is an empty list.

        Raises:
            SourceUnavailable: the collection could not be read whole.
        """
        query = {"labelSelector": label_selector, "fieldSelector": field_selector}
        items: list[JsonObject] = []
        page, token, again = PAGE if limit is None else min(limit, PAGE), None, False
        while True:
            status, body = await self._ask("GET", path, {**query, "limit": page, "continue": token})
            if status == 410 and not again:  # the snapshot of the first page is gone: one fresh start
                items, token, again = [], None, True
                continue
            if status == 404 and missing_ok:
                return []
            answer = _object(path, status, body)
            items.extend(_items(path, answer))
            token = (answer.get("metadata") or {}).get("continue")
            if not token or (limit is not None and len(items) >= limit):
                return items if limit is None else items[:limit]

    async def table(self, path: str, limit: int) -> JsonObject:
        """The first `limit` rows of a collection as the server prints them (kind Table), or a plain list from a server that
        makes no tables. Much smaller than the objects.

        Raises:
            SourceUnavailable: as `list`.
        """
        status, body = await self._ask("GET", path, {"limit": limit, "includeObject": "None"}, accept=_TABLE)
        return _object(path, status, body)

    async def logs(
        self,
        namespace: str,
        pod: str,
        container: str | None = None,
        previous: bool = False,
        tail_lines: int = 200,
        limit_bytes: int = 64 * 1024,
    ) -> tuple[str, ...] | None:
        """The newest log lines of a container, at most `tail_lines` and `limit_bytes`, not redacted.

        None: there is no such log (pod gone or not scheduled, container waiting, no earlier run). The byte bound is applied
        here, from the end: the server's own cuts off the newest lines.

        Raises:
            SourceUnavailable: there may be a log, but it could not be read.
        """
        path = object_path("v1", "pods", pod, namespace) + "/log"
        query = {
            "container": container,
            "previous": "true" if previous else None,
            "tailLines": max(0, int(tail_lines)),
            "limitBytes": MAX_LOG_BYTES,
        }
        status, body = await self._ask("GET", path, query, accept="*/*", keep_last=max(1, int(limit_bytes)))
        if status in (204, 404) or (status == 400 and _NO_LOGS.search(_status_message(body))):
            return None
        if status != 200:
            raise _failure(path, status, body)
        lines = body.decode("utf-8", errors="replace").split("\n")
        return tuple(line.rstrip("\r") for line in lines if line)[-tail_lines:] if tail_lines > 0 else ()

    async def cluster_uid(self) -> str:
        """UID of the namespace kube-system: the identity of the cluster. Asked anew each time.

        Raises:
            SourceUnavailable: it could not be read.
        """
        path = object_path("v1", "namespaces", "kube-system")
        namespace = await self.get(path)
        uid = ((namespace or {}).get("metadata") or {}).get("uid")
        if not isinstance(uid, str) or not uid:
            raise SourceUnavailable("kubernetes", "malformed", f"GET {path}: no UID")
        return uid

    async def access_review(
        self, verb: str, resource: str, *, group: str = "", namespace: str = "", name: str = "", subresource: str = ""
    ) -> bool:
        """Whether our own account may do this, as RBAC sees it (admission is not asked).

        Raises:
            SourceUnavailable: the review could not be made.
        """
        wanted = {
            "verb": verb,
            "group": group,
            "resource": resource,
            "namespace": namespace,
            "name": name,
            "subresource": subresource,
        }
        attributes = {key: value for key, value in wanted.items() if value}
        spec = {"resourceAttributes": attributes}
        answer = await self._review(_REVIEW, "authorization.k8s.io/v1", "SelfSubjectAccessReview", spec)
        return (answer.get("status") or {}).get("allowed") is True

    async def who_am_i(self) -> str:
        """User name of our own account.

        Raises:
            SourceUnavailable: the review could not be made.
        """
        answer = await self._review(_WHO_AM_I, "authentication.k8s.io/v1", "SelfSubjectReview", {})
        return str(((answer.get("status") or {}).get("userInfo") or {}).get("username") or "")

    async def close(self) -> None:
        """Close the connections."""
        await self.api.close()  # type: ignore[no-untyped-call]

    async def _review(self, path: str, version: str, kind: str, spec: JsonObject) -> JsonObject:
        status, body = await self._ask("POST", path, {}, body={"apiVersion": version, "kind": kind, "spec": spec})
        return _object(path, status, body)

    async def _ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any],
        *,
        accept: str = "application/json",
        body: JsonObject | None = None,
        keep_last: int | None = None,
    ) -> tuple[int, bytes]:
        """Status and body of one request; credentials that were refused are read again once."""
        if not _PATH.fullmatch(path) or ".." in path or "//" in path:
            raise ValueError(f"{path!r} is not a path of the Kubernetes API")
        if method != "GET" and path not in (_REVIEW, _WHO_AM_I):
            raise ValueError(f"{method} {path} would not be a read")
        status, answer = await self._once(method, path, query, accept, body, keep_last)
        if status == 401:
            forget_credentials(self.api)
            status, answer = await self._once(method, path, query, accept, body, keep_last)
        return status, answer

    async def _once(
        self, method: str, path: str, query: Mapping[str, Any], accept: str, body: JsonObject | None, keep_last: int | None
    ) -> tuple[int, bytes]:
        parameters = [(name, str(value)) for name, value in query.items() if value is not None]
        try:
            async with asyncio.timeout(self._timeout_s):
                request = await self.api.param_serialize(
                    method,
                    path,
                    query_params=parameters,
                    header_params={"Accept": accept},
                    body=body,
                    auth_settings=["BearerToken"],
                )
                response = await self.api.call_api(*request, _request_timeout=aiohttp.ClientTimeout(total=self._timeout_s))
                async with response.response as stream:
                    status: int = stream.status
                    return status, await _read(stream, path, keep_last if status == 200 else None)
        except SourceMisconfigured as error:  # credentials that could be read once and cannot now
            raise SourceUnavailable("kubernetes", "unauthorized", str(error)) from error
        except TimeoutError as error:
            raise SourceUnavailable("kubernetes", "timeout", f"{method} {path}: no answer in {self._timeout_s:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise SourceUnavailable("kubernetes", "unreachable", f"{method} {path}: {connection_reason(error)}") from error


def object_path(api_version: str, plural: str, name: str | None = None, namespace: str | None = None) -> str:
    """Path of an object, or of its collection when `name` is None.

    Raises:
        ValueError: a name that the API server would not accept, so none that may get into a path.
    """
    for text in (name, namespace):
        if text is not None and not is_dns_subdomain(text):
            raise ValueError(f"{text!r} is not a Kubernetes name")
    root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
    middle = f"/namespaces/{namespace}" if namespace is not None else ""
    last = f"/{quote(name, safe='')}" if name is not None else ""
    return f"{root}{middle}/{plural}{last}"


def connection_reason(error: BaseException) -> str:
    """Why a connection failed, without addresses' credentials and without quoting what was sent."""
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"cannot connect to {error.host}:{error.port} ({type(error.os_error).__name__})"
    return type(error).__name__


async def _read(stream: aiohttp.ClientResponse, path: str, keep_last: int | None) -> bytes:
    """The body, bounded; with `keep_last` only its last bytes, whole lines."""
    if keep_last is None:
        parts: list[bytes] = []
        size = 0
        async for chunk in stream.content.iter_chunked(1 << 16):
            size += len(chunk)
            if size > MAX_ANSWER_BYTES:
                raise SourceUnavailable("kubernetes", "malformed", f"{path}: more than {MAX_ANSWER_BYTES >> 20} MiB")
            parts.append(chunk)
        return b"".join(parts)
    tail: deque[bytes] = deque()
    held, cut = 0, False
    async for chunk in stream.content.iter_chunked(1 << 14):
        tail.append(chunk)
        held += len(chunk)
        while held - len(tail[0]) >= keep_last:
            held -= len(tail.popleft())
            cut = True
    text = b"".join(tail)
    if len(text) > keep_last:
        text, cut = text[-keep_last:], True
    newline = text.find(b"\n")
    return text[newline + 1 :] if cut and 0 <= newline < len(text) - 1 else text


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _object(path: str, status: int, body: bytes) -> JsonObject:
    if not 200 <= status < 300:
        raise _failure(path, status, body)
    answer = _parsed(body)
    if not isinstance(answer, dict):
        raise SourceUnavailable("kubernetes", "malformed", f"{path}: {status} without a JSON object")
    if answer.get("kind") == "Status" and answer.get("status") == "Failure":
        raise SourceUnavailable("kubernetes", "malformed", f"{path}: {status} with a Status that says failure")
    return answer


def _items(path: str, answer: JsonObject) -> list[JsonObject]:
    items = answer.get("items")
    if items is None and str(answer.get("kind", "")).endswith("List"):
        return []
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise SourceUnavailable("kubernetes", "malformed", f"{path}: not a list")
    return items


def _status_message(body: bytes) -> str:
    answer = _parsed(body)
    return str(answer.get("message", "")) if isinstance(answer, dict) else ""


def _failure(path: str, status: int, body: bytes) -> SourceUnavailable:
    """The error for a status. Only the machine word `reason` of the answer is quoted: messages repeat whole objects."""
    answer = _parsed(body)
    reason = answer.get("reason") if isinstance(answer, dict) else None
    word = f" {reason}" if isinstance(reason, str) and _REASON.fullmatch(reason) else ""
    kind = _KIND_OF_STATUS.get(status, "server_error")
    return SourceUnavailable("kubernetes", kind, f"{path}: {status}{word}")
