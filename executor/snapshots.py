"""Evidence first: what is lost with the old pods is kept before anything is written. Redacted as it enters.

The journal keeps the whole snapshot; an outcome carries as much of it as fits, newest lines first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from catalog.documents import Document
from catalog.orders import PlanStep, StepKind
from catalog.outcomes import PodSnapshot
from executor.judging import JsonObject, uid_of
from sources.errors import SourceUnavailable
from sources.kubernetes import KubernetesReader
from sources.redaction import Redactor
from sources.workloads import WorkloadView, event_count, event_time, pod_ready, pod_restarts

LINES = 200
MAX_PODS = 20
MAX_EVENTS = 100
OUTCOME_BYTES = 32 * 1024


class SnapshotImpossible(Exception):
    """The evidence could not be kept, so a restart would destroy it. Refuse; the message says what could not be read."""


class Snapshot(Document):
    """Pods and events as they were before the first write."""

    pods: tuple[PodSnapshot, ...] = ()
    events: tuple[str, ...] = ()
    left_out: int = 0


async def take_snapshot(steps: tuple[PlanStep, ...], view: WorkloadView, reader: KubernetesReader, redactor: Redactor) -> Snapshot:
    """Statuses and last log lines of the pods that the plan replaces, and the events around them.

    A scale replaces no pod: for it statuses and events are enough.

    Raises:
        SnapshotImpossible: a part could not be read.
    """
    if isinstance(view.pods, SourceUnavailable):
        raise SnapshotImpossible(f"the pods could not be listed ({view.pods})")
    if isinstance(view.events, SourceUnavailable):
        raise SnapshotImpossible(f"the events could not be read ({view.events})")
    affected = _affected(steps, view.pods)
    with_logs = all(step.kind is not StepKind.SCALE for step in steps)
    pods = await asyncio.gather(*(_pod(pod, reader, redactor, with_logs=with_logs) for pod in affected[:MAX_PODS]))
    events = tuple(redactor.text(_event(event)) for event in view.events[-MAX_EVENTS:])
    return Snapshot(pods=tuple(pods), events=events, left_out=max(0, len(affected) - MAX_PODS))


def fitted(snapshot: Snapshot, limit: int = OUTCOME_BYTES) -> Snapshot:
    """The snapshot cut to at most `limit` bytes: fewer of the oldest lines of each log, then fewer events."""
    lines = LINES
    while len(snapshot.to_json()) > limit and lines > 0:
        lines //= 2
        pods = tuple(
            pod.model_copy(update={"logs": _last(pod.logs, lines), "previous_logs": _last(pod.previous_logs, lines)})
            for pod in snapshot.pods
        )
        snapshot = snapshot.model_copy(update={"pods": pods})
    while len(snapshot.to_json()) > limit and snapshot.events:
        snapshot = snapshot.model_copy(update={"events": snapshot.events[(len(snapshot.events) + 1) // 2 :]})
    return snapshot


def _last(lines: tuple[str, ...], count: int) -> tuple[str, ...]:
    return lines[-count:] if count else ()


def _affected(steps: tuple[PlanStep, ...], pods: list[JsonObject]) -> list[JsonObject]:
    """Those that the plan names, else all; the unhealthy first, in case not all can be kept."""
    evicted = {step.pod_uid for step in steps if step.kind is StepKind.EVICT}
    only = all(step.kind in (StepKind.EVICT, StepKind.OPEN) for step in steps)
    chosen = [pod for pod in pods if uid_of(pod) in evicted] if only else pods
    return sorted(chosen, key=lambda pod: (uid_of(pod) not in evicted, pod_ready(pod), -pod_restarts(pod), pod["metadata"]["name"]))


async def _pod(pod: JsonObject, reader: KubernetesReader, redactor: Redactor, *, with_logs: bool) -> PodSnapshot:
    metadata, status = pod["metadata"], pod.get("status") or {}
    containers = [str(one.get("name")) for one in (pod.get("spec") or {}).get("containers") or ()] if with_logs else []
    restarted = {str(one.get("name")) for one in status.get("containerStatuses") or () if one.get("restartCount")}
    logs: list[str] = []
    previous: list[str] = []
    for container in containers:
        prefix = f"{container}: " if len(containers) > 1 else ""
        logs += [prefix + line for line in await _lines(pod, container, reader, redactor, previous=False)]
        if container in restarted:
            previous += [prefix + line for line in await _lines(pod, container, reader, redactor, previous=True)]
    return PodSnapshot(
        name=str(metadata["name"]),
        uid=uid_of(pod),
        phase=str(status.get("phase", "")),
        status=redactor.text(_status(pod)),
        logs=tuple(logs),
        previous_logs=tuple(previous),
    )


async def _lines(pod: JsonObject, container: str, reader: KubernetesReader, redactor: Redactor, *, previous: bool) -> Iterable[str]:
    metadata = pod["metadata"]
    try:
        lines = await reader.logs(str(metadata["namespace"]), str(metadata["name"]), container, previous=previous, tail_lines=LINES)
    except SourceUnavailable as error:
        raise SnapshotImpossible(f"the log of {metadata['name']} could not be read ({error})") from error
    return redactor.lines(lines) if lines else ()


def _status(pod: JsonObject) -> str:
    told = ["ready" if pod_ready(pod) else "not ready", f"{pod_restarts(pod)} restarts"]
    for one in (pod.get("status") or {}).get("containerStatuses") or ():
        for name, state in ((one.get("state") or {}) | {"last": (one.get("lastState") or {}).get("terminated")}).items():
            reason = (state or {}).get("reason")
            if reason:
                code = state.get("exitCode")
                told.append(f"{one.get('name')} {name} {reason}" + (f" (exit {code})" if code is not None else ""))
    return ", ".join(told)


def _event(event: JsonObject) -> str:
    at = event_time(event)
    about = (event.get("involvedObject") or {}).get("name", "")
    when = f"{at:%H:%M:%S} " if at else ""
    return f"{when}{event.get('reason', '')} ×{event_count(event)} {about}: {str(event.get('message', ''))[:300]}"
