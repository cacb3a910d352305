"""What a real Prometheus scrapes here: the cluster's objects, its containers, and the applications themselves.

    /metrics/kube-state-metrics   kube_*: what the API server stores, in the names of kube-state-metrics
    /metrics/cadvisor             container_*: what the kubelets measure
    /metrics/applications         the programs' own metrics, with namespace, deployment and pod labels; and gateway_requests_total,
                                  what callers see at the edge even while no pod runs

Every number follows from the simulated state. An exporter can be down (503) or frozen (it goes on showing what it showed),
whole, or the applications' series of one workload alone (`sandbox.faults.Faults.exporters`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from sandbox.controllers.routing import Controllers
from sandbox.exposition import Sample, SeriesKind, exposition, sample
from sandbox.objectmetrics import ObjectMetrics
from sandbox.traffic import BUCKETS_S, Group, Instance

ExporterName = Literal["kube-state-metrics", "cadvisor", "applications"]
EXPORTERS: tuple[ExporterName, ...] = ("kube-state-metrics", "cadvisor", "applications")

_KINDS: dict[str, SeriesKind] = {"http_request_duration_seconds": "histogram"}


class ExporterDown(Exception):
    """The exporter does not answer: the scrape fails."""


class Exporters:
    """The three exporters of one cluster."""

    def __init__(self, controllers: Controllers) -> None:
        self._controllers = controllers
        self._traffic = controllers.traffic
        self._objects = ObjectMetrics(controllers.store)
        self._frozen: dict[str, str] = {}
        self._frozen_series: dict[str, list[Sample]] = {}

    def page(self, name: ExporterName) -> str:
        """What the exporter answers now.

        Raises:
            ExporterDown: it is down.
        """
        state = self._controllers.faults.exporters.get(name, "up")
        if state == "down":
            raise ExporterDown(f"exporter {name} is down")
        if state == "frozen":
            if name not in self._frozen:
                self.freeze(name)
            return self._frozen[name]
        self._frozen.pop(name, None)
        return self._fresh(name)

    def freeze(self, name: ExporterName) -> None:
        """Keep what the exporter shows now, to be shown while it is frozen."""
        self._frozen[name] = self._fresh(name)

    def _fresh(self, name: ExporterName) -> str:
        match name:
            case "kube-state-metrics":
                return exposition(self._objects.samples(), _KINDS)
            case "cadvisor":
                self._traffic.settle()
                return exposition(self._containers(), _KINDS)
            case "applications":
                self._traffic.settle()
                return exposition(self._applications(), _KINDS)

    # -- containers ------------------------------------------------------------

    def _containers(self) -> Iterator[Sample]:
        for instance in self._traffic:
            if not instance.reachable:
                continue
            labels = {
                "namespace": instance.namespace,
                "pod": instance.pod,
                "container": instance.container,
                "node": instance.node,
            }
            memory = instance.program.memory(self._traffic.uptime(instance))
            if instance.memory_limit is not None:
                memory = min(memory, instance.memory_limit)
            flow = self._traffic.flow(instance)
            yield sample("container_memory_working_set_bytes", labels, memory)
            yield sample("container_memory_rss", labels, memory * 0.92)
            yield sample("container_spec_memory_limit_bytes", labels, instance.memory_limit or 0)
            yield sample("container_cpu_usage_seconds_total", labels, round(self._traffic.cpu_seconds(instance), 6))
            yield sample("container_start_time_seconds", labels, self._started(instance))
            if instance.cpu_limit:
                yield sample("container_spec_cpu_quota", labels, round(instance.cpu_limit * 100_000))
                yield sample("container_spec_cpu_period", labels, 100_000)
                yield sample("container_cpu_cfs_periods_total", labels, int(instance.periods))
                yield sample("container_cpu_cfs_throttled_periods_total", labels, int(instance.throttled))
            yield sample("container_processes", labels, 1 + int(flow.good > 0))

    # -- applications ------------------------------------------------------------

    def _applications(self) -> Iterator[Sample]:
        for group in list(self._traffic.groups.values()):
            namespace, name = group.workload
            key = f"applications/{namespace}/{name}"
            state = self._controllers.faults.exporters.get(key, "up")
            if state == "up":
                self._frozen_series.pop(key, None)
                yield from self._workload(group)
            elif state == "frozen":
                if key not in self._frozen_series:
                    self._frozen_series[key] = list(self._workload(group))
                yield from self._frozen_series[key]

    def _workload(self, group: Group) -> Iterator[Sample]:
        namespace, name = group.workload
        labels = {"namespace": namespace, "deployment": name}
        for code, count in sorted(group.gateway.items()):
            yield sample("gateway_requests_total", {**labels, "code": code}, int(count))
        members = list(group.instances.values())
        if any(item.program.consumes for item in members) or group.queue > 0:
            yield sample("queue_depth", labels, round(group.queue))
        if any(item.program.max_connections for item in members):
            yield sample("db_connections_max", labels, self._traffic.pool_size(namespace, name) or 0)
            wanted = self._traffic.pool_demand(namespace, name)
            yield sample("db_connections_in_use", labels, min(wanted, self._traffic.pool_size(namespace, name) or 0))
            yield sample("db_connections_waiting", labels, max(0.0, wanted - (self._traffic.pool_size(namespace, name) or 0)))
        for instance in members:
            if instance.reachable:
                yield from self._instance(instance, {**labels, "pod": instance.pod})

    def _instance(self, instance: Instance, labels: dict[str, str]) -> Iterator[Sample]:
        program = instance.program
        uptime = self._traffic.uptime(instance)
        yield sample("process_resident_memory_bytes", labels, program.memory(uptime))
        yield sample("process_start_time_seconds", labels, self._started(instance))
        yield sample("process_cpu_seconds_total", labels, round(self._traffic.cpu_seconds(instance), 6))
        if program.pool:
            yield sample("db_client_connections", {**labels, "pool": program.pool}, program.connections_held(uptime))
        if program.serves:
            flow = self._traffic.flow(instance)
            yield sample("http_requests_in_flight", labels, round((flow.good + flow.failed) * flow.seconds, 3))
            for code in sorted({"200", *instance.requests}):
                yield sample("http_requests_total", {**labels, "code": code}, int(instance.requests.get(code, 0.0)))
            yield from _histogram(instance, labels)
        if program.consumes:
            yield sample("messages_processed_total", labels, int(instance.requests.get("200", 0.0)))
            yield sample("messages_failed_total", labels, int(instance.requests.get("500", 0.0)))

    def _started(self, instance: Instance) -> float:
        engine = self._controllers.engine
        return round(engine.clock.now().timestamp() - (engine.monotonic() - instance.started), 3)


def _histogram(instance: Instance, labels: dict[str, str]) -> Iterator[Sample]:
    family = "http_request_duration_seconds"
    total = int(instance.bucket_counts[-1])
    for bound, count in zip(BUCKETS_S, instance.bucket_counts, strict=False):
        yield sample(family, {**labels, "le": f"{bound:g}"}, min(total, int(count)), suffix="_bucket")
    yield sample(family, {**labels, "le": "+Inf"}, total, suffix="_bucket")
    yield sample(family, labels, round(instance.seconds_sum, 6), suffix="_sum")
    yield sample(family, labels, total, suffix="_count")
