"""The emulated API server on a port: plain HTTP on loopback, for the unmodified official client.

Every request goes the same way: who is it, is it to be disturbed, may it, then the handler of its resource and verb. Requests
are counted by method, path and user, and the last ones are kept, so that a test can say what was and what was not asked.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Any

from aiohttp import web

from sandbox import discovery
from sandbox.access import ANONYMOUS, MASTERS, Account, Attributes
from sandbox.api.calls import Answer, Call, Path, Stream, negotiate, parse_path
from sandbox.api.deleting import delete, delete_collection
from sandbox.api.disturbances import Disturbance, Disturbances, refusal
from sandbox.api.evicting import evict
from sandbox.api.logs import read_log
from sandbox.api.plane import ControlPlane
from sandbox.api.reading import FUTURE_WAIT_S, get, list_objects, watch
from sandbox.api.reviews import REVIEWS, request_token, review
from sandbox.api.scaling import get_scale, patch_scale, put_scale
from sandbox.api.writing import create, patch, update
from sandbox.statuses import Forbidden, Json, MethodNotAllowed, NotFound, StatusError, TooLarge, TooLargeVersion
from sandbox.watching import Watch

MAX_BODY = 3 * 1024 * 1024
JOURNAL = 20_000
MAX_COUNTED = 50_000
FAULTS_PATH = "/sandbox/faults"
_HEALTH = ("/healthz", "/livez", "/readyz")
_WRITES = ("POST", "PUT", "PATCH", "DELETE")

Mounted = Callable[[web.BaseRequest, Account], Awaitable[web.StreamResponse]]
Handler = Callable[[ControlPlane, Call], Answer | Stream]


@dataclass(frozen=True)
class Asked:
    """One request that was served: when (store's clock), what, by whom, and the answer's code (0: the connection was cut)."""

    at: datetime
    method: str
    path: str
    query: Mapping[str, str]
    user: str
    status: int


_OBJECT: dict[str, Handler] = {"GET": get, "PUT": update, "PATCH": patch, "DELETE": delete}
_STATUS: dict[str, Handler] = {"GET": get, "PUT": update, "PATCH": patch}
_SCALE: dict[str, Handler] = {"GET": get_scale, "PUT": put_scale, "PATCH": patch_scale}
_PARTS: dict[tuple[str, str], dict[str, Handler]] = {
    ("pods", "log"): {"GET": read_log},
    ("pods", "eviction"): {"POST": evict},
    ("serviceaccounts", "token"): {"POST": request_token},
    ("namespaces", "finalize"): {"PUT": update},
}


class ApiServer:
    """Serves one control plane. An async context manager: inside, `url` is where it listens."""

    def __init__(
        self, plane: ControlPlane, *, host: str = "127.0.0.1", port: int = 0, future_wait_s: float = FUTURE_WAIT_S
    ) -> None:
        self.plane = plane
        self.disturbances = Disturbances()
        self.requests: Counter[tuple[str, str, str]] = Counter()
        """How often each (method, path, user) was asked; refused and cut requests count."""
        self.journal: deque[Asked] = deque(maxlen=JOURNAL)
        self.url = ""
        self._host = host
        self._port = port
        self._future_wait_s = future_wait_s
        self._watches: set[Watch] = set()
        self._mounted: dict[str, Mounted] = {}
        self._runner: web.ServerRunner | None = None

    # -- life ------------------------------------------------------------

    async def start(self) -> str:
        """Listen; returns the URL."""
        loop = asyncio.get_running_loop()

        def request_of(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
            return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=MAX_BODY)

        server = web.Server(self._serve, request_factory=request_of, handler_cancellation=True, access_log=None)
        self._runner = web.ServerRunner(server, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self._port)
        await site.start()
        port = self._runner.addresses[0][1]
        self.url = f"http://{self._host}:{port}"
        return self.url

    async def stop(self) -> None:
        """End all watches and stop listening."""
        self.cut_watches()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def __aenter__(self) -> ApiServer:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.stop()

    def cut_watches(self) -> int:
        """End every open watch, as a restarting server does; returns how many."""
        open_watches = list(self._watches)
        for running in open_watches:
            running.close()
        return len(open_watches)

    def disturb(self, disturbance: Disturbance) -> str:
        """Put a fault in force; returns its id."""
        return self.disturbances.add(disturbance, asyncio.get_running_loop().time())

    def mount(self, prefix: str, handler: Mounted) -> None:
        """Hand every path under `prefix` to `handler`. Paths under /sandbox/ are for admins only."""
        self._mounted[prefix] = handler

    def count(self, *, user: str = "", methods: tuple[str, ...] = (), path: str = "") -> int:
        """How many requests were asked by `user` (any, if empty), with one of `methods`, under paths that contain `path`."""
        return sum(
            number
            for (method, asked_path, asked_user), number in self.requests.items()
            if (not user or asked_user == user) and (not methods or method in methods) and path in asked_path
        )

    def writes(self, user: str) -> list[Asked]:
        """The recent requests of `user` that would write (dry runs and refused ones included)."""
        return [asked for asked in self.journal if asked.user == user and asked.method in _WRITES]

    # -- one request ------------------------------------------------------------

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        account, answer = ANONYMOUS, None
        try:
            account = self.plane.accounts.authenticate(request.headers.get("Authorization"))
            return await self._disturbed(request, account)
        except StatusError as error:
            answer = _refused(error)
        except web.HTTPRequestEntityTooLarge:
            answer = _refused(TooLarge(f"Request entity too large: limit is {MAX_BODY}", {}))
        self._note(request, account, answer.status)
        return _response(answer)

    def _due(self, request: web.BaseRequest, account: Account) -> list[Disturbance]:
        if request.path.startswith(FAULTS_PATH):
            return []
        now = asyncio.get_running_loop().time()
        return self.disturbances.due(request.method, request.path_qs, account.name, now)

    async def _disturbed(self, request: web.BaseRequest, account: Account) -> web.StreamResponse:
        cut_after = False
        for disturbance in self._due(request, account):
            match disturbance.effect:
                case "delay":
                    await asyncio.sleep(disturbance.delay_s)
                case "status":
                    raise refusal(disturbance)
                case "cut_after":
                    cut_after = True
                case _:
                    return self._cut(request, account)
        mounted = self._mount_of(request.path)
        if mounted is not None:
            if request.path.startswith("/sandbox/"):
                _require_admin(account, request.path)
            return await mounted(request, account)
        answer = await self._answer(request, account)
        if isinstance(answer, Stream):
            try:
                return self._cut(request, account) if cut_after else await self._stream(request, account, answer)
            finally:
                answer.release()
                await answer.chunks.aclose()
        if cut_after:
            return self._cut(request, account)
        self._note(request, account, answer.status)
        return _response(answer)

    def _mount_of(self, path: str) -> Mounted | None:
        return next((handler for prefix, handler in self._mounted.items() if path.startswith(prefix)), None)

    def _cut(self, request: web.BaseRequest, account: Account) -> web.StreamResponse:
        self._note(request, account, 0)
        if request.transport is not None:
            request.transport.abort()
        return web.Response()

    async def _stream(self, request: web.BaseRequest, account: Account, answer: Stream) -> web.StreamResponse:
        self._note(request, account, 200)
        response = web.StreamResponse(headers={"Content-Type": answer.content_type, "Cache-Control": "no-cache, private"})
        response.enable_chunked_encoding()
        try:
            await response.prepare(request)
            async for chunk in answer.chunks:
                await response.write(chunk)
            await response.write_eof()
        except ConnectionError:  # the client has left: nobody to tell
            return response
        return response

    def _note(self, request: web.BaseRequest, account: Account, status: int) -> None:
        key = (request.method, request.path, account.name)
        if key not in self.requests and len(self.requests) >= MAX_COUNTED:
            key = (request.method, "(other)", account.name)
        self.requests[key] += 1
        asked = Asked(self.plane.store.clock.now(), request.method, request.path, request.query, account.name, status)
        self.journal.append(asked)

    # -- routing ------------------------------------------------------------

    async def _answer(self, request: web.BaseRequest, account: Account) -> Answer | Stream:
        path = parse_path(request.path)
        if path is None:
            return await self._page(request, account)
        body = await request.read() if request.method in _WRITES else b""
        call = Call(request.method, path, request.query, request.headers, body, account)
        self.plane.accounts.require(account, call.attributes)
        if (path.group, path.resource) in REVIEWS and path.version == "v1":
            if request.method != "POST" or path.name:
                raise _not_allowed()
            return review(self.plane, call)
        call.served = self.plane.registry.find(path.group, path.version, path.resource)
        if call.served is None:
            return self._unserved(path)
        if not path.subresource:
            negotiate(request.headers.get("Accept"))
        return await self._handle(call)

    def _unserved(self, path: Path) -> Answer:
        if not self.plane.registry.knows(path.group, path.version):
            return _no_page()
        raise NotFound("the server could not find the requested resource", {})

    async def _handle(self, call: Call) -> Answer | Stream:
        path, kind = call.path, call.resource.kind
        if path.subresource:
            return _pick(_part_handlers(call), call.method)(self.plane, call)
        if path.name:
            return _pick(_OBJECT, call.method)(self.plane, call)
        match call.method:
            case "GET" if call.watching:
                return watch(self.plane, call, self._watches)
            case "GET":
                return await self._list(call)
            case "POST" if not kind.namespaced or path.namespace:
                return create(self.plane, call)
            case "DELETE" if not kind.namespaced or path.namespace:
                return delete_collection(self.plane, call)
            case _:
                raise _not_allowed()

    async def _list(self, call: Call) -> Answer:
        try:
            return list_objects(self.plane, call)
        except TooLargeVersion:
            await asyncio.sleep(self._future_wait_s)
            return list_objects(self.plane, call)

    # -- pages that are no resources ------------------------------------------------------------

    async def _page(self, request: web.BaseRequest, account: Account) -> Answer:
        path = request.path
        if path.startswith(FAULTS_PATH):
            return await self._faults(request, account)
        self.plane.accounts.require(account, Attributes(request.method.lower(), path=path))
        if path.rstrip("/") in _HEALTH or path.startswith(tuple(f"{name}/" for name in _HEALTH)):
            return Answer(200, b"ok", "text/plain; charset=utf-8")
        found = self._described(path.rstrip("/"), negotiate(request.headers.get("Accept")).form)
        return _no_page() if found is None else found

    def _described(self, path: str, form: str) -> Answer | None:
        registry = self.plane.registry
        document: Json | None
        match path.strip("/").split("/"):
            case ["version"]:
                document = discovery.VERSION
            case ["api" | "apis" as root] if form == discovery.AGGREGATED:
                body = Answer.of(200, discovery.aggregated(registry, core=root == "api"))
                return Answer(200, body.body, f"application/json;g=apidiscovery.k8s.io;v=v2;as={discovery.AGGREGATED}")
            case ["api"]:
                document = discovery.core_versions()
            case ["apis"]:
                document = discovery.groups(registry)
            case ["api", version]:
                document = discovery.resources(registry, "", version)
            case ["apis", name]:
                document = discovery.group(registry, name)
            case ["apis", name, version]:
                document = discovery.resources(registry, name, version)
            case _:
                document = None
        return None if document is None else Answer.of(200, document)

    async def _faults(self, request: web.BaseRequest, account: Account) -> Answer:
        _require_admin(account, request.path)
        fault_id = request.path.removeprefix(FAULTS_PATH).strip("/")
        match request.method:
            case "GET":
                pass
            case "POST":
                self.disturbances.read(await request.read(), asyncio.get_running_loop().time())
            case "DELETE" if fault_id:
                self.disturbances.remove(fault_id)
            case "DELETE":
                self.disturbances.clear()
            case _:
                raise _not_allowed()
        return Answer.of(200, {"faults": self.disturbances.listed()})


def _part_handlers(call: Call) -> dict[str, Handler]:
    kind, part = call.resource.kind, call.path.subresource
    if part == "status" and kind.status:
        return _STATUS
    if part == "scale" and kind.scale:
        return _SCALE
    found = _PARTS.get((kind.plural, part)) if kind.group == "" else None
    if found is None:
        raise NotFound("the server could not find the requested resource", {})
    return found


def _pick(handlers: dict[str, Handler], method: str) -> Handler:
    handler = handlers.get(method)
    if handler is None:
        raise _not_allowed()
    return handler


def _not_allowed() -> MethodNotAllowed:
    return MethodNotAllowed("the server does not allow this method on the requested resource", {})


def _no_page() -> Answer:
    return Answer(404, b"404 page not found\n", "text/plain; charset=utf-8")


def _require_admin(account: Account, path: str) -> None:
    if MASTERS not in account.groups:
        raise Forbidden(f'forbidden: User "{account.name}" cannot use path "{path}"', {})


def _refused(error: StatusError) -> Answer:
    headers = tuple(error.headers.items())
    if error.code == 403 and (error.details or {}).get("causes") is None:
        headers = (*headers, ("X-Content-Type-Options", "nosniff"))
    return Answer.of(error.code, error.document, headers=headers)


def _response(answer: Answer) -> web.Response:
    response = web.Response(status=answer.status, body=answer.body or None)
    if answer.content_type:
        response.headers["Content-Type"] = answer.content_type
    response.headers["Cache-Control"] = "no-cache, private"
    for name, value in answer.headers:
        response.headers.add(name, value)
    return response
