"""The sandbox's own pages on the API server's port: metrics for everybody, faults and load for admins.

    GET  /metrics/{kube-state-metrics,cadvisor,applications}
    GET  /sandbox/workloads                                   what is injected
    POST /sandbox/workloads/NAMESPACE/NAME/faults             {"changes": {"error_ratio": 0.4}, "pods": "existing", "lasts_s": 60}
    DELETE /sandbox/workloads/NAMESPACE/NAME/faults[/ID]
    PUT  /sandbox/workloads/NAMESPACE/NAME/load               {"rps": 120}; DELETE gives it back to the annotation
    PUT  /sandbox/nodes/NAME                                  {"kubelet": "dead"} or {"kubelet": "alive"}
    PUT  /sandbox/exporters/NAME                              {"state": "up" | "down" | "frozen", "workload": "shop/checkout"}
    PUT  /sandbox/logs                                        {"reachable": false}

A demo script in another process talks to these with the admin token.
"""

from __future__ import annotations

from typing import Literal

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sandbox.access import Account
from sandbox.controllers.routing import Controllers
from sandbox.exporters import EXPORTERS, ExporterDown, Exporters
from sandbox.exposition import CONTENT_TYPE
from sandbox.faults import ExporterState, ProgramFault
from sandbox.kinds import NODES
from sandbox.server import ApiServer
from sandbox.statuses import BadRequest, Json, MethodNotAllowed, NotFound


class FaultRequest(BaseModel):
    """A program fault to inject."""

    model_config = ConfigDict(extra="forbid")

    changes: dict[str, str | float | bool | None] = Field(min_length=1, description="fields of a program and their values")
    pods: Literal["all", "existing", "new"] | list[str] = Field(default="all", description="which pods, or their names")
    lasts_s: float | None = Field(default=None, gt=0, description="model seconds after which it ends by itself")


class LoadRequest(BaseModel):
    """Offered load."""

    model_config = ConfigDict(extra="forbid")

    rps: float = Field(ge=0)


class NodeRequest(BaseModel):
    """State of a node's kubelet."""

    model_config = ConfigDict(extra="forbid")

    kubelet: Literal["alive", "dead"]


class ExporterRequest(BaseModel):
    """State of an exporter, or of one workload's series in `applications`."""

    model_config = ConfigDict(extra="forbid")

    state: ExporterState
    workload: str = Field(default="", pattern=r"^$|^[^/]+/[^/]+$")


class LogsRequest(BaseModel):
    """Whether kubelets can be asked for logs."""

    model_config = ConfigDict(extra="forbid")

    reachable: bool


class Control:
    """Injects faults; `mount` puts its pages on a server."""

    def __init__(self, controllers: Controllers, exporters: Exporters) -> None:
        self._controllers = controllers
        self._exporters = exporters

    def mount(self, server: ApiServer) -> None:
        """Serve the pages."""
        server.mount("/metrics/", self._metrics)
        for prefix in ("/sandbox/workloads", "/sandbox/nodes", "/sandbox/exporters", "/sandbox/logs"):
            server.mount(prefix, self._serve)

    # -- what can be injected ------------------------------------------------------------

    def break_program(self, namespace: str, workload: str, request: FaultRequest) -> ProgramFault:
        """Inject a program fault.

        Raises:
            BadRequest: `changes` names no field of a program or has a value of the wrong form.
        """
        engine, key = self._controllers.engine, (namespace, workload)
        until = None if request.lasts_s is None else engine.monotonic() + engine.real(request.lasts_s)
        try:
            fault = self._controllers.faults.inject(
                namespace,
                workload,
                request.changes,
                running=self._controllers.kubelet.pods_of(key),
                now=engine.monotonic(),
                pods=tuple(request.pods) if isinstance(request.pods, list) else request.pods,
                until=until,
            )
        except ValueError as error:
            raise BadRequest(str(error)) from error
        self._controllers.disturb(key)
        return fault

    def mend_program(self, namespace: str, workload: str, fault_id: str = "") -> int:
        """Take away one program fault, or all of a workload. Returns how many."""
        faults, key = self._controllers.faults, (namespace, workload)
        gone = [faults.clear(fault_id)] if fault_id else list(faults.clear_workload(*key))
        self._controllers.disturb(key)
        return sum(1 for fault in gone if fault is not None)

    def set_load(self, namespace: str, workload: str, rps: float | None) -> None:
        """Offer a load; None gives it back to the Deployment's annotation."""
        key = (namespace, workload)
        self._controllers.traffic.settle(key)
        if rps is None:
            self._controllers.faults.loads.pop(key, None)
        else:
            self._controllers.faults.loads[key] = rps

    def set_node(self, name: str, *, alive: bool) -> None:
        """Let a node's kubelet die or come back.

        Raises:
            NotFound: no such node.
        """
        self._controllers.store.get(NODES, "", name)
        dead = self._controllers.faults.dead_nodes
        dead.discard(name) if alive else dead.add(name)
        self._controllers.node_changed(name)

    def set_exporter(self, name: str, state: ExporterState, workload: str = "") -> None:
        """Let an exporter go down, freeze or come back.

        Raises:
            NotFound: no such exporter.
        """
        exporter = next((known for known in EXPORTERS if known == name), None)
        if exporter is None:
            raise NotFound(f'exporter "{name}" not found; there are {", ".join(EXPORTERS)}')
        key = f"{name}/{workload}" if workload else name
        if state == "frozen" and not workload:
            self._exporters.freeze(exporter)
        if state == "up":
            self._controllers.faults.exporters.pop(key, None)
        else:
            self._controllers.faults.exporters[key] = state

    def listed(self) -> Json:
        """Everything that is injected now."""
        faults = self._controllers.faults
        return {
            "programs": [
                {
                    "id": fault.id,
                    "workload": f"{fault.namespace}/{fault.workload}",
                    "changes": dict(fault.changes),
                    "pods": list(fault.pods) if isinstance(fault.pods, tuple) else fault.pods,
                }
                for fault in faults
            ],
            "loads": {f"{namespace}/{name}": rps for (namespace, name), rps in faults.loads.items()},
            "deadNodes": sorted(faults.dead_nodes),
            "exporters": dict(faults.exporters),
            "logsReachable": not faults.unreachable_logs,
        }

    # -- pages ------------------------------------------------------------

    async def _metrics(self, request: web.BaseRequest, account: Account) -> web.StreamResponse:
        name = request.path.removeprefix("/metrics/").strip("/")
        for known in EXPORTERS:
            if name == known:
                try:
                    text = self._exporters.page(known)
                except ExporterDown as error:
                    return web.Response(status=503, text=f"{error}\n")
                return web.Response(body=text.encode(), headers={"Content-Type": CONTENT_TYPE})
        return web.Response(status=404, text="404 page not found\n")

    async def _serve(self, request: web.BaseRequest, account: Account) -> web.StreamResponse:
        body = await request.read()
        steps = tuple(part for part in request.path.split("/") if part)[1:]
        try:
            document = self._answer(request.method, steps, body)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "body"
            raise BadRequest(f"{where}: {first['msg']}") from error
        return web.json_response(document)

    def _answer(self, method: str, steps: tuple[str, ...], body: bytes) -> Json:
        match (method, *steps):
            case ("GET", "workloads"):
                return self.listed()
            case ("POST", "workloads", namespace, name, "faults"):
                fault = self.break_program(namespace, name, FaultRequest.model_validate_json(body))
                return {"id": fault.id}
            case ("DELETE", "workloads", namespace, name, "faults", *rest):
                return {"cleared": self.mend_program(namespace, name, rest[0] if rest else "")}
            case ("PUT", "workloads", namespace, name, "load"):
                self.set_load(namespace, name, LoadRequest.model_validate_json(body).rps)
            case ("DELETE", "workloads", namespace, name, "load"):
                self.set_load(namespace, name, None)
            case ("PUT", "nodes", name):
                self.set_node(name, alive=NodeRequest.model_validate_json(body).kubelet == "alive")
            case ("PUT", "exporters", name):
                wanted = ExporterRequest.model_validate_json(body)
                self.set_exporter(name, wanted.state, wanted.workload)
            case ("PUT", "logs"):
                self._controllers.faults.unreachable_logs = not LogsRequest.model_validate_json(body).reachable
            case ("GET" | "POST" | "PUT" | "DELETE", *_):
                raise NotFound("the server could not find the requested resource", {})
            case _:
                raise MethodNotAllowed("the server does not allow this method on the requested resource", {})
        return {"ok": True}
