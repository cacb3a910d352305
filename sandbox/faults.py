"""Faults that are injected while the cluster runs, and taken away again: into programs, nodes, exporters and the offered load.

A program fault replaces fields of `workloads.Program` for some pods of one workload:

    pods="existing"   those that run now: a restart heals it            (wedged pod, stale state: P01, P02, K03)
    pods="new"        those that start later: a restart makes it worse   (regression)
    pods="all"        both: a restart does nothing                       (the "fix does nothing" twin)
    pods=("name", …)  these
    lasts_s           it ends by itself after that many model seconds    (the "heals by itself" twin)

Times in the changed fields (`wedged_after_s`, `leak_from_s`, …) count from the injection, or from a later start of the container.
Everything here is state; `sandbox.cluster` tells the affected parts to look again.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from sandbox.workloads import Program, configured

PodChoice = Literal["all", "existing", "new"] | tuple[str, ...]
ExporterState = Literal["up", "down", "frozen"]

_UPTIMES = tuple(field.name for field in fields(Program) if field.name.endswith("_after_s") or field.name == "leak_from_s")


@dataclass(frozen=True)
class ProgramFault:
    """Fields of programs replaced from `since` (clock.monotonic) on. `caught`: uids of the pods that ran at the injection."""

    id: str
    namespace: str
    workload: str
    changes: tuple[tuple[str, Any], ...]
    pods: PodChoice
    caught: frozenset[str]
    since: float
    until: float | None

    def hits(self, namespace: str, workload: str, pod: str, uid: str) -> bool:
        """Whether it concerns this pod."""
        if (namespace, workload) != (self.namespace, self.workload):
            return False
        match self.pods:
            case "all":
                return True
            case "existing":
                return uid in self.caught
            case "new":
                return uid not in self.caught
            case names:
                return pod in names


class Faults:
    """What is broken right now."""

    def __init__(self) -> None:
        self.exporters: dict[str, ExporterState] = {}
        """State by exporter name (`kube-state-metrics`, `cadvisor`, `applications`) or `applications/NAMESPACE/WORKLOAD`."""
        self.dead_nodes: set[str] = set()
        """Nodes whose kubelet does not answer."""
        self.loads: dict[tuple[str, str], float] = {}
        """Offered load by (namespace, workload), requests or messages per real second."""
        self.unreachable_logs: bool = False
        """The API server cannot reach any kubelet: logs answer 500."""
        self._programs: dict[str, ProgramFault] = {}
        self._ids = itertools.count(1)

    def inject(
        self,
        namespace: str,
        workload: str,
        changes: Mapping[str, Any],
        *,
        running: Iterable[str],
        now: float,
        pods: PodChoice = "all",
        until: float | None = None,
    ) -> ProgramFault:
        """Break programs of a workload. `running` are the uids of its pods, `now` and `until` clock.monotonic.

        Raises:
            ValueError: `changes` names no field of a program or has a value of the wrong form.
        """
        configured(Program(), changes)
        spelled = {key.lower().replace("-", "_"): value for key, value in changes.items()}
        fault = ProgramFault(
            id=f"fault-{next(self._ids)}",
            namespace=namespace,
            workload=workload,
            changes=tuple(sorted(spelled.items())),
            pods=pods,
            caught=frozenset(running),
            since=now,
            until=until,
        )
        self._programs[fault.id] = fault
        return fault

    def clear(self, fault_id: str) -> ProgramFault | None:
        """Take one program fault away. None if it is not there."""
        return self._programs.pop(fault_id, None)

    def clear_workload(self, namespace: str, workload: str) -> tuple[ProgramFault, ...]:
        """Take away all program faults of a workload."""
        gone = tuple(fault for fault in self if (fault.namespace, fault.workload) == (namespace, workload))
        for fault in gone:
            del self._programs[fault.id]
        return gone

    def __iter__(self) -> Iterator[ProgramFault]:
        return iter(tuple(self._programs.values()))

    def expire(self, now: float) -> tuple[ProgramFault, ...]:
        """Take away the program faults that have lasted long enough, and return them."""
        gone = tuple(fault for fault in self if fault.until is not None and fault.until <= now)
        for fault in gone:
            del self._programs[fault.id]
        return gone

    def next_expiry(self) -> float | None:
        """When the next program fault ends by itself (clock.monotonic), or None."""
        return min((fault.until for fault in self if fault.until is not None), default=None)

    def applied(
        self, program: Program, *, namespace: str, workload: str, pod: str, uid: str, started: float, scale: float
    ) -> Program:
        """`program` as it behaves with the faults of now. `started`: clock.monotonic of the container's start."""
        for fault in self:
            if fault.hits(namespace, workload, pod, uid):
                program = _shifted(program, fault, started, scale)
        return program


def _shifted(program: Program, fault: ProgramFault, started: float, scale: float) -> Program:
    """The faulty program, with times that counted from the injection re-expressed as uptimes of this container."""
    broken = configured(program, dict(fault.changes))
    begun = max(0.0, fault.since - started) * scale
    moved = {
        name: getattr(broken, name) + begun for name, _ in fault.changes if name in _UPTIMES and getattr(broken, name) is not None
    }
    if broken.leak_bytes_per_s != program.leak_bytes_per_s and "leak_from_s" not in moved:
        moved["leak_from_s"] = begun
    return replace(broken, **moved)
