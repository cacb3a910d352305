"""Sends recorded requests to the emulated API server over HTTP and compares its answers with the recorded ones.

A folder is replayed in the order of its file names against one cluster. A *scene* puts the cluster into the state that the
recorded one had before a request, where that state came from controllers or other writers. Recorded uids and resourceVersions
in requests are replaced by ours as soon as an earlier answer shows the pair; in comparisons they, times and managedFields
(unless recorded) are masked.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from catalog.clocks import Clock, SystemClock
from sandbox.admission import Fence
from sandbox.api.plane import ControlPlane
from sandbox.bootstrapping import bootstrap, grant
from sandbox.kinds import CLUSTER_ROLES, NAMESPACES, PODS, ROLE_BINDINGS, SERVICE_ACCOUNTS, Kind
from sandbox.server import ApiServer
from sandbox.shelves import copied
from sandbox.store import Store

DATA = Path(__file__).parent.parent / "data" / "kubernetes"
Json = dict[str, Any]
Scene = Callable[["World"], Awaitable[None] | None]


def recordings(folder: str) -> dict[str, Json]:
    """The recordings of a folder by file name without suffix."""
    return {path.stem: json.loads(path.read_text()) for path in sorted((DATA / folder).glob("*.json"))}


@dataclass
class Reply:
    """One HTTP answer."""

    status: int
    headers: dict[str, str]
    body: Any
    raw: bytes = b""


@dataclass
class World:
    """A running cluster, its admin, and what is known about the recorded one."""

    server: ApiServer
    plane: ControlPlane
    session: aiohttp.ClientSession
    admin: str
    names: dict[str, str] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)

    @property
    def store(self) -> Store:
        return self.plane.store

    def namespace(self, name: str, **metadata: Any) -> None:
        """Make a namespace if it is not there."""
        if self.store.find(NAMESPACES, "", name) is None:
            self.store.create(NAMESPACES, {"metadata": {"name": name, **metadata}})

    def account(self, namespace: str, name: str) -> str:
        """The token of a service account, made if it is not there."""
        self.namespace(namespace)
        if self.store.find(SERVICE_ACCOUNTS, namespace, name) is None:
            self.store.create(SERVICE_ACCOUNTS, {"metadata": {"name": name, "namespace": namespace}})
        key = f"system:serviceaccount:{namespace}:{name}"
        if key not in self.tokens:
            self.tokens[key] = self.plane.accounts.issue(namespace, name)
        return self.tokens[key]

    def bind(self, namespace: str, name: str, cluster_role: str) -> None:
        """Bind a service account to a ClusterRole in its namespace."""
        self.account(namespace, name)
        assert self.store.find(CLUSTER_ROLES, "", cluster_role)
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": cluster_role}
        subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
        metadata = {"name": f"{name}-{cluster_role}", "namespace": namespace}
        self.store.create(ROLE_BINDINGS, {"metadata": metadata, "subjects": [subject], "roleRef": reference})

    def grant(self, namespace: str, name: str, role: str, rules: list[Json], *, account_namespace: str) -> None:
        """Give a service account a Role of a namespace."""
        self.account(account_namespace, name)
        grant(self.store, role, rules, name=name, namespace=namespace, account_namespace=account_namespace)

    def make(self, kind: Kind, obj: Json) -> Json:
        """Store an object as a controller would."""
        return self.store.create(kind, copied(obj))

    def touch(self, kind: Kind, namespace: str, name: str) -> None:
        """Move the resourceVersion, as any status update does."""
        stored = self.store.get(kind, namespace, name)
        status = {**stored.get("status", {}), "conditions": [{"type": "Touched", "status": str(self.store.revision)}]}
        self.store.patch_status(kind, namespace, name, status)
        self.store.patch_status(kind, namespace, name, dict(stored.get("status", {})))

    async def send(self, request: Json) -> Reply:
        """Send a recorded (or made up) request."""
        body = self._translated(request.get("body"))
        text = None if body is None else body.encode() if isinstance(body, str) else json.dumps(body).encode()
        data = None if text is None else io.BytesIO(text) if text else b""
        headers = {"User-Agent": "rec", **request.get("headers", {})}
        token = self._token(request.get("as"))
        if token:
            headers["Authorization"] = f"Bearer {token}"
        if request.get("contentType"):
            headers["Content-Type"] = request["contentType"]
        url = self.server.url + self._text(request["path"])
        query = {key: self._text(str(value)) for key, value in (request.get("query") or {}).items()}
        skip = () if request.get("contentType") else ("Content-Type",)
        async with self.session.request(
            request["method"], url, params=query, data=data, headers=headers, skip_auto_headers=skip
        ) as response:
            raw = await response.read()
            warnings = response.headers.getall("Warning", [])
            found = {**response.headers, **({"Warning": ", ".join(warnings)} if warnings else {})}
            return Reply(response.status, found, _body(raw, response.headers.get("Content-Type", "")), raw)

    def learn(self, recorded: Any, ours: Any, key: str = "") -> None:
        """Remember which of our uids and versions stand for recorded ones."""
        if isinstance(recorded, dict) and isinstance(ours, dict):
            for name, value in recorded.items():
                if name in ours:
                    self.learn(value, ours[name], name)
        elif isinstance(recorded, list) and isinstance(ours, list):
            for one, other in zip(recorded, ours, strict=False):
                self.learn(one, other, key)
        elif key in ("uid", "resourceVersion", "continue") and isinstance(recorded, str) and isinstance(ours, str):
            self.names[recorded] = ours

    def _token(self, who: str | None) -> str | None:
        if who is None or who.startswith("admin"):
            return self.admin
        if who.startswith("anonymous"):
            return None
        if who.startswith("system:serviceaccount:"):
            return self.tokens.get(who) or self.account(*who.split(":")[2:4])
        return self.tokens.get(who, "not-a-token")

    def _text(self, text: str) -> str:
        return self.names.get(text, text)

    def _translated(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._translated(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._translated(item) for item in value]
        return self._text(value) if isinstance(value, str) else value


def _body(raw: bytes, content_type: str) -> Any:
    if content_type.startswith("application/json") and raw:
        return json.loads(raw)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(raw).decode()}


class open_world:
    """A bootstrapped cluster with its API server and a client session."""

    def __init__(self, clock: Clock | None = None, *, history: int = 4096, future_wait_s: float = 0.05) -> None:
        self._clock = clock or SystemClock()
        self._history = history
        self._future_wait_s = future_wait_s

    async def __aenter__(self) -> World:
        store = Store(self._clock, history=self._history, revision=1000)
        plane = ControlPlane.over(store)
        plane.hooks.admission = Fence(store)
        tokens = bootstrap(store, plane.accounts)
        self._server = ApiServer(plane, future_wait_s=self._future_wait_s)
        await self._server.start()
        self._session = aiohttp.ClientSession()
        names = {"system:serviceaccount:sre-ladder:executor": tokens.executor, "system:serviceaccount:sre-ladder:bot": tokens.bot}
        return World(self._server, plane, self._session, tokens.admin, tokens=names)

    async def __aexit__(self, *error: object) -> None:
        await self._session.close()
        await self._server.stop()


async def replay(
    folder: str, scenes: dict[str, Scene], *, skip: set[str], clock: Clock | None = None, history: int = 4096
) -> dict[str, Reply]:
    """Replay a folder; answers by recording. `scenes["start"]` prepares the cluster, `scenes[NAME]` runs before NAME."""
    found: dict[str, Reply] = {}
    async with open_world(clock, history=history) as world:
        await _play(scenes.get("start"), world)
        for name, recording in recordings(folder).items():
            await _play(scenes.get(name), world)
            if name in skip or "request" not in recording or "response" not in recording:
                continue
            reply = await world.send(recording["request"])
            found[name] = reply
            world.learn(recording["response"].get("body"), reply.body)
            recorded = recording["response"].get("body")
            if isinstance(recorded, dict) and "kind" not in recorded and isinstance(reply.body, dict):
                world.learn(recorded, reply.body.get("metadata", {}))
    return found


async def _play(scene: Scene | None, world: World) -> None:
    if scene is None:
        return
    result = scene(world)
    if result is not None:
        await result


def replayed(
    folder: str, scenes: dict[str, Scene], *, skip: set[str], clock: Clock | None = None, history: int = 4096
) -> dict[str, Reply]:
    """`replay` to its end, for a fixture of a module."""
    return asyncio.run(replay(folder, scenes, skip=skip, clock=clock, history=history))


# -- comparing ------------------------------------------------------------

_MASKS = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "<uid>"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "<time>"),
    (re.compile(r"in record \(\d+\)"), "in record (<version>)"),
    (re.compile(r"current: \d+"), "current: <version>"),
    (re.compile(r"too old resource version: (\d+) \(\d+\)"), r"too old resource version: \1 (<version>)"),
)
_PATCH_OBJECT = re.compile(r'Invalid value: "(\{.*\})": ', re.DOTALL)


def masked(value: Any, key: str = "") -> Any:
    """A value without what differs between two clusters."""
    if isinstance(value, dict):
        return {name: masked(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [masked(item, key) for item in value]
    if not isinstance(value, str):
        return value
    if key == "resourceVersion":
        return "<version>"
    if key in ("continue", "token"):
        return f"<{key}>"
    for pattern, mask in _MASKS:
        value = pattern.sub(mask, value)
    return _PATCH_OBJECT.sub('Invalid value: "<object>": ', value)


def without_fields(value: Any) -> Any:
    """A value without managedFields."""
    if isinstance(value, dict):
        return {key: without_fields(item) for key, item in value.items() if key != "managedFields"}
    return [without_fields(item) for item in value] if isinstance(value, list) else value


def same_view(recorded: Any, ours: Any) -> tuple[Any, Any]:
    """(recorded, ours) brought to one form: a recording trimmed to its metadata is compared with our metadata."""
    if isinstance(recorded, dict) and "kind" not in recorded and isinstance(ours, dict) and "uid" in recorded:
        ours = ours["metadata"]
    if "managedFields" not in json.dumps(recorded):
        ours = without_fields(ours)
    return masked(recorded), masked(ours)


def pod(namespace: str, name: str, *, labels: Json | None = None, node: str | None = "node1", **extra: Any) -> Json:
    """A running, ready pod with one container `app`."""
    spec: Json = {
        "containers": [{"name": "app", "image": "docker.io/local/app:1", "imagePullPolicy": "Never"}],
        "terminationGracePeriodSeconds": 1,
        "dnsPolicy": "Default",
        "automountServiceAccountToken": False,
    }
    if node:
        spec["nodeName"] = node
    image = {"image": "docker.io/local/app:1", "imageID": "sha256:1"}
    container = {"name": "app", "ready": True, "restartCount": 0, "state": {"running": {}}, "lastState": {}, **image}
    conditions = [{"type": "Ready", "status": "True"}]
    status = {"phase": "Running", "conditions": conditions, "containerStatuses": [container]}
    metadata: Json = {"name": name, "namespace": namespace} | ({"labels": labels} if labels else {}) | extra
    return {"metadata": metadata, "spec": spec, "status": status}


def add_pod(world: World, namespace: str, name: str, **options: Any) -> Json:
    """Store a running pod."""
    world.namespace(namespace)
    return world.make(PODS, pod(namespace, name, **options))
