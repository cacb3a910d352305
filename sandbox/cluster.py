"""A whole emulated cluster: store, API server, controllers, workloads and exporters on one loopback port.

    async with SandboxCluster(time_scale=20, state_dir=tmp_path) as cluster:
        await cluster.apply(manifests)
        reader = client_for(cluster.url, cluster.tokens.bot)

`time_scale` makes everything that a manifest or a program says in seconds pass that many times as fast (container start,
probes, back-offs, grace, deadlines, leaks). Timestamps and request rates stay those of the injected clock. With the same `seed`
a run repeats.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx
import yaml

from catalog.clocks import Clock, SystemClock
from sandbox.admission import Fence
from sandbox.api.plane import ControlPlane
from sandbox.bootstrapping import Tokens, bootstrap
from sandbox.control import Control, ExporterRequest, FaultRequest
from sandbox.controllers.engine import Engine
from sandbox.controllers.nodes import node_object
from sandbox.controllers.routing import Controllers
from sandbox.exporters import Exporters
from sandbox.faults import ExporterState, PodChoice, ProgramFault
from sandbox.kinds import DEPLOYMENTS, NAMESPACES, NODES, PODS, REPLICA_SETS, SERVED, Kind
from sandbox.registry import Registry
from sandbox.server import ApiServer
from sandbox.store import Store

Json = dict[str, Any]

POLL_S = 0.01


class SpecInvalid(Exception):
    """A manifest cannot be used; the text says which and why. Change the file."""


class NotReached(Exception):
    """A condition did not come true in time; the text says which."""


class SandboxCluster:
    """One emulated cluster. An async context manager; everything below needs to be inside it."""

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        time_scale: float = 1.0,
        seed: int = 0,
        nodes: int = 3,
        state_dir: Path | None = None,
    ) -> None:
        self.clock = clock or SystemClock()
        self.store = Store(self.clock, randomness=random.Random(seed))
        self.plane = ControlPlane.over(self.store)
        self.engine = Engine(self.clock, scale=time_scale)
        self.controllers = Controllers(self.store, self.engine, seed=seed)
        self.exporters = Exporters(self.controllers)
        self.control = Control(self.controllers, self.exporters)
        self.server = ApiServer(self.plane, host=host, port=port)
        self.tokens: Tokens
        self._node_count = nodes
        self._state_dir = state_dir
        self._running: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """Where the API server listens."""
        return self.server.url

    @property
    def exporters_address(self) -> str:
        """host:port of the exporters, for Prometheus."""
        return self.server.url.removeprefix("http://")

    @property
    def uid(self) -> str:
        """Identity of the cluster: the UID of kube-system."""
        return str(self.store.get(NAMESPACES, "", "kube-system")["metadata"]["uid"])

    async def __aenter__(self) -> SandboxCluster:
        self.plane.hooks.admission = Fence(self.store)
        self.plane.hooks.logs = self.controllers.kubelet
        self.tokens = bootstrap(self.store, self.plane.accounts)
        for index in range(1, self._node_count + 1):
            self.store.create(NODES, node_object(f"node{index}", index=index))
        self.control.mount(self.server)
        await self.server.start()
        self._running = asyncio.create_task(self.engine.run(), name="sandbox controllers")
        if self._state_dir is not None:
            write_state(self._state_dir, self)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.server.stop()
        if self._running is not None:
            self._running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._running

    async def failed(self) -> None:
        """Wait until the controllers fail.

        Raises:
            Exception: what they failed with.
        """
        if self._running is not None:
            await self._running

    # -- objects ------------------------------------------------------------

    async def apply(self, manifests: str | Iterable[Json]) -> None:
        """Create objects as an admin over HTTP: a YAML text with several documents, or dicts.

        Raises:
            SpecInvalid: a document is no Kubernetes object, or the API server refuses it.
        """
        documents = read_manifests(manifests) if isinstance(manifests, str) else list(manifests)
        headers = {"Authorization": f"Bearer {self.tokens.admin}"}
        async with httpx.AsyncClient(base_url=self.url, headers=headers, timeout=10.0, trust_env=False) as client:
            for document in documents:
                answer = await client.post(path_of(document, self.plane.registry), json=document)
                if answer.status_code != httpx.codes.CREATED:
                    raise SpecInvalid(f"{_title(document)}: {_message(answer)}")

    async def until(self, condition: Callable[[], bool], *, within_s: float = 10.0, what: str = "the condition") -> None:
        """Wait until something holds.

        Raises:
            NotReached: it did not within `within_s` real seconds. Exception: the controllers failed meanwhile.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within_s
        while not condition():
            if self._running is not None and self._running.done():
                self._running.result()
            if loop.time() > deadline:
                raise NotReached(f"{what} did not come true within {within_s:g} s")
            await asyncio.sleep(POLL_S)

    async def rolled_out(self, namespace: str, name: str, *, within_s: float = 10.0) -> None:
        """Wait until a Deployment is rolled out: everything updated and available, nothing more.

        Raises:
            NotReached: it is not within `within_s` real seconds.
        """
        await self.until(lambda: self.is_complete(namespace, name), within_s=within_s, what=f"the roll-out of {namespace}/{name}")

    def is_complete(self, namespace: str, name: str) -> bool:
        """Whether a Deployment exists and is rolled out."""
        found = self.store.find(DEPLOYMENTS, namespace, name)
        if found is None:
            return False
        status, total = found.get("status") or {}, found["spec"]["replicas"]
        counts = [status.get(key, 0) for key in ("updatedReplicas", "replicas", "availableReplicas")]
        return status.get("observedGeneration", 0) >= found["metadata"]["generation"] and counts == [total] * 3

    def pods(self, namespace: str, deployment: str) -> list[Json]:
        """The pods of a Deployment, terminating ones included (stored objects: do not change them)."""
        found = self.store.get(DEPLOYMENTS, namespace, deployment)
        sets = self.store.owned(REPLICA_SETS, found["metadata"]["uid"])
        return [pod for item in sets for pod in self.store.owned(PODS, item["metadata"]["uid"])]

    # -- faults ------------------------------------------------------------

    def break_program(
        self, namespace: str, workload: str, *, pods: PodChoice = "all", lasts_s: float | None = None, **changes: Any
    ) -> ProgramFault:
        """Inject a program fault: fields of `workloads.Program` by keyword (see `sandbox.faults`)."""
        chosen = list(pods) if isinstance(pods, tuple) else pods
        request = FaultRequest.model_validate({"changes": changes, "pods": chosen, "lasts_s": lasts_s})
        return self.control.break_program(namespace, workload, request)

    def mend_program(self, namespace: str, workload: str, fault_id: str = "") -> int:
        """Take away one program fault, or all of a workload."""
        return self.control.mend_program(namespace, workload, fault_id)

    def set_load(self, namespace: str, workload: str, rps: float | None) -> None:
        """Offer a load; None gives it back to the Deployment's annotation."""
        self.control.set_load(namespace, workload, rps)

    def set_node(self, name: str, *, alive: bool) -> None:
        """Let a node's kubelet die or come back."""
        self.control.set_node(name, alive=alive)

    def set_exporter(self, name: str, state: ExporterState, workload: str = "") -> None:
        """Let an exporter go down, freeze or come back; with `workload` ("shop/checkout") only its series."""
        ExporterRequest.model_validate({"state": state, "workload": workload})
        self.control.set_exporter(name, state, workload)


def read_manifests(text: str) -> list[Json]:
    """The documents of a YAML text.

    Raises:
        SpecInvalid: the text is no YAML, or a document is no object with kind and metadata.name.
    """
    try:
        documents = [document for document in yaml.safe_load_all(text) if document is not None]
    except yaml.YAMLError as error:
        raise SpecInvalid(f"not YAML: {error}") from error
    for number, document in enumerate(documents, 1):
        if not isinstance(document, dict) or not isinstance(document.get("metadata"), dict) or "kind" not in document:
            raise SpecInvalid(f"document {number} is no Kubernetes object: it needs apiVersion, kind and metadata")
    return documents


def path_of(document: Json, registry: Registry) -> str:
    """The collection a manifest is posted to.

    Raises:
        SpecInvalid: no such kind is served.
    """
    kind = _kind_of(document, registry)
    root = "/api/v1" if not kind.group else f"/apis/{kind.group}/{kind.version}"
    if not kind.namespaced:
        return f"{root}/{kind.plural}"
    return f"{root}/namespaces/{document['metadata'].get('namespace', 'default')}/{kind.plural}"


def _kind_of(document: Json, registry: Registry) -> Kind:
    for kind in SERVED:
        if (kind.api_version, kind.kind) == (document.get("apiVersion"), document["kind"]):
            return kind
    group, _, version = str(document.get("apiVersion", "")).rpartition("/")
    for plural in (f"{str(document['kind']).lower()}s", str(document["kind"]).lower()):
        served = registry.find(group, version, plural)
        if served is not None:
            return served.kind
    raise SpecInvalid(f"{_title(document)}: no such kind is served here")


def _title(document: Json) -> str:
    return f"{document.get('apiVersion', '?')} {document.get('kind', '?')} {document['metadata'].get('name', '?')}"


def _message(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["message"])
    except (ValueError, KeyError, TypeError):
        return f"HTTP {answer.status_code}"


def kubeconfig(server: str, token: str, *, name: str = "sandbox") -> str:
    """A kubeconfig for one account of a plain HTTP API server."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": server}}],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
    return yaml.safe_dump(document, sort_keys=False)


def write_state(directory: Path, cluster: SandboxCluster) -> None:
    """Write tokens, kubeconfigs and cluster.json (url, uid, metrics) into `directory`, readable by its owner only."""
    directory.mkdir(parents=True, exist_ok=True)
    accounts = {"admin": cluster.tokens.admin, "bot": cluster.tokens.bot, "executor": cluster.tokens.executor}
    for account, token in accounts.items():
        _write_private(directory / f"{account}.token", token)
        _write_private(directory / f"{account}.kubeconfig", kubeconfig(cluster.url, token))
    facts = {"url": cluster.url, "uid": cluster.uid, "metrics": f"{cluster.url}/metrics/"}
    _write_private(directory / "cluster.json", json.dumps(facts, indent=2) + "\n")


def _write_private(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_text(text)
