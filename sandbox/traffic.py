"""Offered load, and what it does to the pods that share it: latency, errors, CPU, queues, connections.

Each workload has an offered load λ (annotation `sandbox.dev/offered-rps` on the Deployment, or injected). It is shared evenly
by the pods in service. One pod of capacity μ answers like an M/M/1 queue: mean time `latency / (1 - λ/μ)`, so time to answer
and CPU rise towards saturation; above μ the surplus is refused (503). Hence adding pods really helps, until a shared pool says
no: when the clients of a database hold more connections than it accepts, the share that got none fails (500), and each added
client pod makes that worse. With nobody in service the gateway answers 503.

Counters are integrated over the present rates whenever somebody looks (`settle`) and before anything changes, so what an
exporter shows follows from the simulated state alone. Rates are per *real* second, uptimes pass in model seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sandbox.controllers.engine import Engine
from sandbox.workloads import Program

BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SLOWEST_S = 5.0
"""Callers give up after that many seconds."""
_CROWDED = 0.98
LOG_EVERY_S = 5.0
"""Real seconds between two log lines of a program that has something to say."""
LOG_LINES = 1000
"""Lines kept of one run of a container."""

Workload = tuple[str, str]
"""(namespace, name)."""


@dataclass
class LogBook:
    """What one container wrote: this run and the one before it."""

    current: list[tuple[datetime, str]] = field(default_factory=list)
    previous: list[tuple[datetime, str]] | None = None

    def turn(self) -> None:
        """A new run begins."""
        self.previous, self.current = self.current, []

    def write(self, at: datetime, text: str) -> None:
        """Add text, one line per line; nothing for the empty text."""
        self.current.extend((at, line) for line in text.split("\n") if text)
        del self.current[:-LOG_LINES]


@dataclass
class Instance:
    """One running container: who it is and what it has counted since it started."""

    workload: Workload
    pod: str
    uid: str
    node: str
    container: str
    program: Program
    started: float
    """clock.monotonic."""
    log: LogBook
    cpu_limit: float | None = None
    memory_limit: float | None = None
    in_service: bool = False
    reachable: bool = True
    secret: str = ""
    """Version of the Secret it logged in with."""
    requests: dict[str, float] = field(default_factory=dict)
    bucket_counts: list[float] = field(default_factory=lambda: [0.0] * (len(BUCKETS_S) + 1))
    seconds_sum: float = 0.0
    cpu_seconds: float = 0.0
    throttled: float = 0.0
    periods: float = 0.0
    logged: float = 0.0

    @property
    def namespace(self) -> str:
        return self.workload[0]

    @property
    def busy(self) -> bool:
        """Whether load reaches it at all."""
        return self.program.serves or self.program.consumes


@dataclass(frozen=True)
class Flow:
    """Rates of one instance at one moment, per real second."""

    good: float = 0.0
    failed: float = 0.0
    refused: float = 0.0
    seconds: float = 0.0
    """Mean time to answer."""
    cpu: float = 0.0
    """Cores."""
    trouble: str = ""
    """What its log says about the failures."""


@dataclass
class Group:
    """The instances of one workload and what counts for it as a whole."""

    workload: Workload
    instances: dict[tuple[str, str], Instance] = field(default_factory=dict)
    busy: dict[tuple[str, str], Instance] = field(default_factory=dict)
    """Those of them that load reaches: the others cost nothing, however many they are."""
    settled: float = 0.0
    queue: float = 0.0
    gateway: dict[str, float] = field(default_factory=dict)


class Traffic:
    """All running containers and the load on them.

    `offered(workload)` is the load in requests (or messages) per second, `secret_version(namespace, name)` the present version of a
    Secret ("" if there is none).
    """

    def __init__(self, engine: Engine, offered: Callable[[Workload], float], secret_version: Callable[[str, str], str]) -> None:
        self._engine = engine
        self._offered = offered
        self._secret_version = secret_version
        self.groups: dict[Workload, Group] = {}

    def __iter__(self) -> Iterator[Instance]:
        for group in self.groups.values():
            yield from group.instances.values()

    def group(self, workload: Workload) -> Group:
        """The group of a workload, made when it is first asked for."""
        found = self.groups.get(workload)
        if found is None:
            found = self.groups[workload] = Group(workload, settled=self._engine.monotonic())
        return found

    def add(self, instance: Instance) -> None:
        """A container started."""
        self.settle(instance.workload)
        instance.logged = self._engine.monotonic()
        group, key = self.group(instance.workload), (instance.uid, instance.container)
        group.instances[key] = instance
        if instance.busy:
            group.busy[key] = instance

    def remove(self, instance: Instance) -> None:
        """A container ended; its counters are gone with it."""
        self.settle(instance.workload)
        group = self.group(instance.workload)
        group.instances.pop((instance.uid, instance.container), None)
        group.busy.pop((instance.uid, instance.container), None)

    def forget(self, workload: Workload) -> None:
        """A workload was deleted."""
        group = self.groups.get(workload)
        if group is not None and not group.instances:
            del self.groups[workload]

    def uptime(self, instance: Instance) -> float:
        """Model seconds since the container started."""
        return self._engine.model(self._engine.monotonic() - instance.started)

    def settle(self, workload: Workload | None = None) -> None:
        """Bring counters up to now, of one workload or of all."""
        now = self._engine.monotonic()
        for group in [self.group(workload)] if workload else list(self.groups.values()):
            passed = now - group.settled
            if passed > 0:
                self._integrate(group, passed, now)
                group.settled = now

    def offered(self, workload: Workload) -> float:
        """The load offered to a workload now."""
        return self._offered(workload)

    def cpu_seconds(self, instance: Instance) -> float:
        """CPU time used since the container started."""
        if instance.busy:
            return instance.cpu_seconds
        return instance.program.cpu_idle * (self._engine.monotonic() - instance.started)

    def flow(self, instance: Instance) -> Flow:
        """What one instance does now."""
        program = instance.program
        idle = Flow(cpu=program.cpu_idle)
        if not instance.busy:
            return idle
        group = self.group(instance.workload)
        if program.consumes:
            return self._consuming(group, instance)
        sharing = sum(1 for item in group.busy.values() if item.in_service and item.program.serves)
        load = self._offered(instance.workload) / sharing if sharing and instance.in_service else 0.0
        return self._serving(instance, load) if load > 0 else idle

    def pool_demand(self, namespace: str, database: str) -> float:
        """Connections that the clients of a database hold or want."""
        return sum(
            item.program.connections_held(self.uptime(item))
            for item in self
            if item.namespace == namespace and item.program.pool == database
        )

    def pool_size(self, namespace: str, database: str) -> float | None:
        """Connections a database accepts; 0 when it does not run, None when no such workload is known."""
        group = self.groups.get((namespace, database))
        if group is None:
            return None
        return sum(item.program.max_connections for item in group.instances.values() if item.in_service)

    def _serving(self, instance: Instance, load: float) -> Flow:
        program = instance.program
        uptime = self.uptime(instance)
        if not instance.reachable:
            return Flow(failed=load, seconds=SLOWEST_S, trouble="")
        wedged = program.wedged(uptime)
        capacity = program.capacity_rps * (program.wedged_capacity if wedged else 1.0)
        busy = load / capacity if capacity > 0 else math.inf
        taken = min(load, capacity)
        base = program.wedged_latency_s if wedged else program.latency_s
        seconds = base / (1 - min(busy, _CROWDED)) * max(1.0, 1 + 5 * (busy - 1))
        share, slower, trouble = self._trouble(instance, wedged)
        failed = taken * share
        cores = program.cpu_busy or instance.cpu_limit or 0.5
        return Flow(
            good=taken - failed,
            failed=failed,
            refused=load - taken,
            seconds=min(SLOWEST_S, seconds * slower),
            cpu=program.cpu_idle + cores * min(1.0, busy),
            trouble=trouble or ("overloaded: request refused" if busy > 1 else ""),
        )

    def _trouble(self, instance: Instance, wedged: bool) -> tuple[float, float, str]:
        """(share of requests that fail, factor on the time to answer, what the log says)."""
        program = instance.program
        if program.credential and instance.secret != self._secret_version(instance.namespace, program.credential):
            return 1.0, 1.0, f'FATAL: password authentication failed for user "{instance.workload[1]}"'
        share, slower, said = program.error_ratio, 1.0, "request failed: internal error"
        if wedged:
            share = max(share, program.wedged_error_ratio)
            said = "worker thread stuck: deadline exceeded"
        if program.pool:
            short, slower, why = self._shortage(instance)
            if short > share:
                share, said = short, why
        return share, slower, said if share > 0 or wedged else ""

    def _shortage(self, instance: Instance) -> tuple[float, float, str]:
        database = instance.program.pool
        size = self.pool_size(instance.namespace, database)
        if size is None or size <= 0:
            return 1.0, 1.0, f"dial tcp {database}:5432: connect: connection refused"
        ratio = self.pool_demand(instance.namespace, database) / size
        if ratio <= 1:
            return 0.0, 1.0, ""
        return 1 - 1 / ratio, 1 + 3 * (ratio - 1), "FATAL: sorry, too many clients already: connection pool exhausted"

    def _consuming(self, group: Group, instance: Instance) -> Flow:
        program = instance.program
        if not instance.in_service or not instance.reachable:
            return Flow(cpu=program.cpu_idle)
        wedged = program.wedged(self.uptime(instance))
        capacity = program.capacity_rps * (program.wedged_capacity if wedged else 1.0)
        consumers = sum(1 for item in group.busy.values() if item.in_service and item.program.consumes)
        arriving = self._offered(group.workload) / max(1, consumers)
        taken = capacity if group.queue > 0 else min(capacity, arriving)
        share, slower, trouble = self._trouble(instance, wedged)
        cores = program.cpu_busy or instance.cpu_limit or 0.5
        busy = taken / program.capacity_rps if program.capacity_rps else 0.0
        good = taken * (1 - share)
        seconds = slower / max(capacity, 1e-9)
        return Flow(good=good, failed=taken - good, seconds=seconds, cpu=program.cpu_idle + cores * busy, trouble=trouble)

    def _integrate(self, group: Group, passed: float, now: float) -> None:
        flows = [(instance, self.flow(instance)) for instance in group.busy.values()]
        for instance, flow in flows:
            self._count(instance, flow, passed)
            self._say(instance, flow, now)
        load = self._offered(group.workload)
        if any(instance.program.consumes for instance, _ in flows):
            group.queue = max(0.0, group.queue + passed * (load - sum(flow.good for _, flow in flows)))
        elif load > 0:
            refused = sum(flow.refused for _, flow in flows)
            failed = sum(flow.failed for _, flow in flows)
            good = sum(flow.good for _, flow in flows)
            nobody = load if not any(instance.in_service for instance in group.instances.values()) else 0.0
            for code, rate in (("200", good), ("500", failed), ("503", refused + nobody)):
                if rate > 0:
                    group.gateway[code] = group.gateway.get(code, 0.0) + rate * passed

    def _count(self, instance: Instance, flow: Flow, passed: float) -> None:
        instance.cpu_seconds += flow.cpu * passed
        if instance.cpu_limit:
            instance.periods += 10 * passed
            instance.throttled += 10 * passed * min(1.0, max(0.0, (flow.cpu / instance.cpu_limit - 0.8) * 5))
        for code, rate in (("200", flow.good), ("500", flow.failed), ("503", flow.refused)):
            if rate > 0:
                instance.requests[code] = instance.requests.get(code, 0.0) + rate * passed
        answered = (flow.good + flow.failed) * passed
        if answered <= 0:
            return
        instance.seconds_sum += answered * flow.seconds
        for index, bound in enumerate(BUCKETS_S):
            instance.bucket_counts[index] += answered * (1 - math.exp(-bound / max(flow.seconds, 1e-6)))
        instance.bucket_counts[-1] += answered

    def _say(self, instance: Instance, flow: Flow, now: float) -> None:
        """Write the log lines that fell due, the last few if it is long ago."""
        silent = now - instance.logged
        due = int(silent / LOG_EVERY_S)
        if due <= 0:
            return
        instance.logged += due * LOG_EVERY_S
        text = _line(flow)
        wall = self._engine.clock.now() - timedelta(seconds=now - instance.logged)
        for back in reversed(range(min(due, 60))):
            instance.log.write(wall - timedelta(seconds=back * LOG_EVERY_S), text)


def _line(flow: Flow) -> str:
    if flow.trouble:
        return f'level=error msg="{flow.trouble.replace(chr(34), chr(39))}" failed_per_s={flow.failed + flow.refused:.1f}'
    return f'level=info msg="served" requests_per_s={flow.good:.1f} mean_ms={flow.seconds * 1000:.0f}'
