"""Servers for the tests of `sources`: scripted ones on loopback, and the distribution's Prometheus and Alertmanager."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
from aiohttp import web

from catalog.clocks import SystemClock
from catalog.clusters import Cluster, KubernetesAccess
from catalog.targets import Target, TargetKind
from sources.connecting import api_client
from sources.kubernetes import KubernetesReader

DATA = Path(__file__).parent.parent / "data"
CLUSTER = Cluster(name="eu-1", uid="c1")

T = TypeVar("T")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def recording(path: str) -> Any:
    """Body of an answer that was recorded from a real API server."""
    return json.loads((DATA / "kubernetes" / path).read_text())["response"]["body"]


def target(kind: TargetKind = TargetKind.DEPLOYMENT, name: str = "web", namespace: str = "shop", uid: str | None = None) -> Target:
    return Target(cluster_uid="c1", cluster="eu-1", namespace=namespace, kind=kind, name=name, uid=uid)


@dataclass
class Scripted:
    """A running scripted server and what it was asked."""

    url: str
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    runner: web.AppRunner | None = None

    @property
    def paths(self) -> list[str]:
        return [path for _, path, _ in self.requests]

    async def stop(self) -> None:
        """Stop listening, as a program that died."""
        if self.runner is not None:
            await self.runner.cleanup()


@asynccontextmanager
async def scripted(handler: Handler) -> AsyncIterator[Scripted]:
    """An HTTP server that answers every request with `handler`."""
    served = Scripted("")

    async def record(request: web.Request) -> web.StreamResponse:
        served.requests.append((request.method, request.path, dict(request.headers)))
        return await handler(request)

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", record)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    served.runner = runner
    served.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield served
    finally:
        await runner.cleanup()


@asynccontextmanager
async def raw_server(serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]) -> AsyncIterator[str]:
    """A TCP server for answers that no HTTP library would send."""

    async def each(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(each, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def answering(*answers: Any, status: int = 200) -> Handler:
    """A handler that gives one answer after the other, the last one for ever; JSON unless it is a response or text."""
    left = list(answers)

    async def handle(_: web.Request) -> web.StreamResponse:
        answer = left.pop(0) if len(left) > 1 else left[0]
        if callable(answer):
            answer = answer()
        if isinstance(answer, web.StreamResponse):
            return answer
        if isinstance(answer, str):
            return web.Response(text=answer, status=status, content_type="text/html")
        return web.json_response(answer, status=status)

    return handle


@asynccontextmanager
async def reading(url: str, tmp_path: Path, timeout_s: float = 5.0, token: str = "t0") -> AsyncIterator[KubernetesReader]:
    """A reader of the API server at `url`."""
    token_file = tmp_path / "token"
    token_file.write_text(token)
    api = await api_client(KubernetesAccess(server=url, token_file=token_file), user_agent="test")
    reader = KubernetesReader(api, SystemClock(), timeout_s)
    try:
        yield reader
    finally:
        await reader.close()


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@asynccontextmanager
async def _program(command: list[str], url: str, log: Path) -> AsyncIterator[str]:
    """A server process, from when it is ready until the end of the block."""
    with log.open("wb") as stream:
        process = await asyncio.create_subprocess_exec(*command, stdout=stream, stderr=stream)
        try:
            await _until_ready(url, process, log)
            yield url
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()


async def _until_ready(url: str, process: asyncio.subprocess.Process, log: Path) -> None:
    deadline = asyncio.get_running_loop().time() + 40
    async with aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.get(f"{url}/-/ready") as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            if process.returncode is not None or asyncio.get_running_loop().time() > deadline:
                raise AssertionError(f"the program did not become ready; see {log}")
            await asyncio.sleep(0.05)


def has(program: str) -> bool:
    return shutil.which(program) is not None


def _written(directory: Path, files: dict[str, str]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (directory / name).write_text(text)


@asynccontextmanager
async def real_prometheus(directory: Path, config: str, rules: str = "groups: []") -> AsyncIterator[str]:
    """The distribution's Prometheus with this configuration; `rules.yml` lies beside it."""
    _written(directory, {"prometheus.yml": config, "rules.yml": rules})
    url = f"http://127.0.0.1:{free_port()}"
    command = [
        "prometheus",
        f"--config.file={directory / 'prometheus.yml'}",
        f"--storage.tsdb.path={directory / 'data'}",
        f"--web.listen-address={url.removeprefix('http://')}",
        "--log.level=warn",
    ]
    async with _program(command, url, directory / "log") as ready:
        yield ready


@asynccontextmanager
async def real_alertmanager(directory: Path, config: str) -> AsyncIterator[str]:
    """The distribution's Alertmanager with this configuration."""
    _written(directory, {"alertmanager.yml": config})
    url = f"http://127.0.0.1:{free_port()}"
    command = [
        "prometheus-alertmanager",
        f"--config.file={directory / 'alertmanager.yml'}",
        f"--storage.path={directory / 'data'}",
        f"--web.listen-address={url.removeprefix('http://')}",
        "--cluster.listen-address=",
        "--log.level=warn",
    ]
    async with _program(command, url, directory / "log") as ready:
        yield ready


async def eventually(ask: Callable[[], Awaitable[T]], holds: Callable[[T], bool], within_s: float = 30.0) -> T:
    """The first answer for which `holds`, asked again and again until the deadline."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_s
    while True:
        answer = await ask()
        if holds(answer):
            return answer
        if loop.time() > deadline:
            raise AssertionError(f"still {answer!r} after {within_s} s")
        await asyncio.sleep(0.1)


SHOP = """
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {sre-ladder.dev/autonomy: enabled}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web, tier: front}}
    spec: {containers: [{name: app, image: "registry.example/web:1"}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: other, namespace: shop}
spec:
  replicas: 2
  selector: {matchLabels: {app: other}}
  template:
    metadata: {labels: {app: other}}
    spec: {containers: [{name: app, image: "registry.example/other:1"}]}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: front, namespace: shop}
spec: {selector: {tier: front}, ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: other, namespace: shop}
spec: {selector: {app: other}, ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: headless-without-selector, namespace: shop}
spec: {ports: [{port: 80}]}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web, namespace: shop}
spec: {minAvailable: 2, selector: {matchExpressions: [{key: app, operator: In, values: [web, api]}]}}
"""
