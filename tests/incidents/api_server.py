"""An API server on loopback that holds a few objects, counts what it is asked and can be switched off."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

APPS, CORE = "/apis/apps/v1", "/api/v1"


class ApiServer:
    """Objects by path. `down` makes every answer 503; `uid` is what kube-system says."""

    def __init__(self, uid: str) -> None:
        self.uid = uid
        self.down = False
        self.asked: Counter[str] = Counter()
        self.objects: dict[str, dict[str, Any]] = {}
        self.url = ""

    def workload(self, namespace: str, name: str, pods: int) -> list[str]:
        """A Deployment with a ReplicaSet and pods; the names of the pods."""
        self.add(APPS, "deployments", namespace, name, "Deployment")
        replica_set = f"{name}-7c9d8f6b5"
        self.add(APPS, "replicasets", namespace, replica_set, "ReplicaSet", owner=("apps/v1", "Deployment", name))
        names = [f"{replica_set}-x{n:04}" for n in range(pods)]
        for pod in names:
            self.add(CORE, "pods", namespace, pod, "Pod", owner=("apps/v1", "ReplicaSet", replica_set))
        return names

    def add(self, root: str, plural: str, namespace: str, name: str, kind: str, owner: tuple[str, str, str] | None = None) -> None:
        metadata: dict[str, Any] = {"name": name, "namespace": namespace, "uid": f"uid-{kind}-{namespace}-{name}"}
        if owner is not None:
            version, owner_kind, owner_name = owner
            metadata["ownerReferences"] = [
                {
                    "apiVersion": version,
                    "kind": owner_kind,
                    "name": owner_name,
                    "uid": f"uid-{owner_kind}-{namespace}-{owner_name}",
                    "controller": True,
                }
            ]
        self.objects[f"{root}/namespaces/{namespace}/{plural}/{name}"] = {"kind": kind, "metadata": metadata}

    async def answer(self, request: web.Request) -> web.Response:
        path = request.path
        self.asked[path] += 1
        if self.down:
            return web.json_response({"kind": "Status", "status": "Failure", "reason": "ServiceUnavailable"}, status=503)
        if path == f"{CORE}/namespaces/kube-system":
            return web.json_response({"kind": "Namespace", "metadata": {"name": "kube-system", "uid": self.uid}})
        if path in self.objects:
            return web.json_response(self.objects[path])
        items = [item for place, item in self.objects.items() if place.rpartition("/")[0] == path]
        if items:
            return web.json_response({"kind": "List", "metadata": {}, "items": items})
        return web.json_response({"kind": "Status", "status": "Failure", "reason": "NotFound"}, status=404)


@asynccontextmanager
async def serving(server: ApiServer) -> AsyncIterator[ApiServer]:
    """Serve on a free port of loopback inside this block."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        await runner.cleanup()


def policy_for(directory: Path, *servers: tuple[str, ApiServer]) -> str:
    """A policy of these clusters, mapped by the label `cluster`."""
    token = directory / "token"
    token.write_text("t0ken")
    lines = [
        f'  - {{name: {name}, uid: {server.uid}, match: {{cluster: {name}}}, api: {{server: "{server.url}", token_file: {token}}}}}'
        for name, server in servers
    ]
    return "\n".join(["schema: 1", "clusters:", *lines, "defaults: {channel: {slack: C0000}}"])
