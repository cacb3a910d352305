"""`observe`: everything the predictions need, read side by side within the budget; what has answered by then counts.

Each read has its own time-out, so a source that hangs, lies or is dead costs its own part. The target's marks (transaction,
generation, template) are read before anything else and after everything: if they differ, somebody wrote meanwhile and what was
read between does not belong together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from catalog.alerts import Alert
from catalog.diagnoses import Diagnosis
from catalog.documents import VersionVector
from catalog.evidence import SourceName
from catalog.orders import Check
from catalog.targets import Target, TargetKind
from sources.alertmanager import AlertmanagerReader
from sources.condensing import read_condensed, read_marks_of
from sources.endpoints import SourceSet
from sources.errors import SourceUnavailable
from sources.prometheus import PrometheusReader
from sources.readings import LevelReading, Measure, RuleReading, WorkloadReading
from sources.samples import Unknown
from sources.telemetry import (
    ERRORS,
    REQUESTS,
    SPECS,
    MeasureSpec,
    Windows,
    read_level,
    read_measure,
    read_rotated_secrets,
    read_rule,
)
from sources.workloads import taint
from verifier import VERIFIER_VERSION
from verifier.observations import FiringReading, Marks, Observations, fitted

MARKS_SECONDS = 2.0
KUBERNETES_SECONDS = 5.0
PROMETHEUS_SECONDS = 4.0
ALERTMANAGER_SECONDS = 3.0
MAX_RULES = 5
MAX_LEVELS = 10


@dataclass
class _Seen:
    """What has answered so far."""

    workload: WorkloadReading | None = None
    measures: dict[str, Measure] = field(default_factory=dict)
    rules: list[RuleReading] = field(default_factory=list)
    firing: list[FiringReading] = field(default_factory=list)
    levels: list[LevelReading] = field(default_factory=list)
    faults: dict[SourceName, str] = field(default_factory=dict)
    late: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Question:
    """What is asked about: shared by all reads of one observation."""

    target: Target
    alerts: tuple[Alert, ...]
    checks: tuple[Check, ...]
    sources: SourceSet


async def observe(
    diagnosis: Diagnosis,
    target: Target,
    alerts: Sequence[Alert],
    sources: SourceSet,
    *,
    service_level: Sequence[Check] = (),
    budget_s: float = 10.0,
) -> Observations:
    """What is seen now of the best hypothesis. Ends within `budget_s` whatever the sources do, and raises for none of them.

    Raises:
        ValueError: no alerts.
    """
    if not alerts:
        raise ValueError("nothing to verify: the incident has no alerts")
    began_at, began = sources.clock.now(), asyncio.get_running_loop().time()
    question = _Question(target, _distinct(alerts), tuple(service_level)[:MAX_LEVELS], sources)
    marks_s = min(MARKS_SECONDS, budget_s / 4)
    seen = _Seen()
    before = await _marks(question, seen, marks_s)
    await _read_until(_reads(question, seen), seen, began + budget_s - marks_s)
    after = await _marks(question, seen, max(0.05, began + budget_s - asyncio.get_running_loop().time()))
    return fitted(
        Observations(
            versions=VersionVector(verifier=VERIFIER_VERSION),
            incident_id=diagnosis.incident_id,
            began_at=began_at,
            at=sources.clock.now(),
            target=target,
            family=diagnosis.best.family,
            rivals=tuple(hypothesis.family for hypothesis in diagnosis.hypotheses[1:]),
            alerts_since=min(alert.starts_at for alert in alerts),
            workload=seen.workload,
            measures=dict(sorted(seen.measures.items())),
            rules=tuple(sorted(seen.rules, key=lambda rule: rule.alert)),
            firing=tuple(sorted(seen.firing, key=lambda reading: reading.alert)),
            levels=tuple(sorted(seen.levels, key=lambda level: level.name)),
            marks_before=before,
            marks_after=after,
            tainted=_taint(before, after),
            faults=seen.faults,
            late=tuple(sorted(seen.late)),
            took_ms=int((asyncio.get_running_loop().time() - began) * 1000),
        )
    )


def _distinct(alerts: Sequence[Alert]) -> tuple[Alert, ...]:
    """The latest alert of each name, firing before resolved, at most as many as rules are asked."""
    ordered = sorted(alerts, key=lambda alert: (alert.status == "firing", alert.starts_at))
    return tuple(alert for _, alert in sorted({alert.name: alert for alert in ordered}.items()))[:MAX_RULES]


def _taint(before: Marks | None, after: Marks | None) -> str | None:
    if before is None or after is None:
        return "whether the target changed while it was read could not be told"
    return taint(before, after)


async def _marks(question: _Question, seen: _Seen, seconds: float) -> Marks | None:
    try:
        async with asyncio.timeout(seconds):
            return await read_marks_of(question.sources.kubernetes, question.target)
    except SourceUnavailable as error:
        seen.faults.setdefault("kubernetes", str(error))
    except TimeoutError:
        seen.faults.setdefault("kubernetes", f"the Kubernetes API did not answer within {seconds:.1f} s")
    return None


async def _read_until(reads: dict[str, Coroutine[Any, Any, None]], seen: _Seen, deadline: float) -> None:
    """Run all reads until the deadline of the loop's clock, then leave those that are late and name them."""
    tasks = {asyncio.create_task(read, name=name) for name, read in reads.items()}
    if not tasks:
        return
    done, late = await asyncio.wait(tasks, timeout=max(0.0, deadline - asyncio.get_running_loop().time()))
    for task in late:
        task.cancel()
        seen.late.append(task.get_name())
    await asyncio.gather(*late, return_exceptions=True)
    for task in done:
        task.result()


def _reads(question: _Question, seen: _Seen) -> dict[str, Coroutine[Any, Any, None]]:
    """Every read by name. The workload and Prometheus's own past hang together, so they are one read with parts."""
    sources = question.sources
    reads: dict[str, Coroutine[Any, Any, None]] = {}
    workload_known: asyncio.Event = asyncio.Event()
    reads["kubernetes"] = _read_workload(question, seen, workload_known)
    if sources.prometheus is not None:
        prometheus = sources.prometheus
        for alert in question.alerts:
            reads[f"rule {alert.name}"] = _read_rule(question, seen, prometheus, alert)
        for check in question.checks:
            reads[f"check {check.name}"] = _read_level(question, seen, prometheus, check)
        if question.target.kind is not TargetKind.NODE:
            reads["measures"] = _read_measures(question, seen, prometheus, workload_known)
    if sources.alertmanager is not None:
        for alert in question.alerts:
            reads[f"alert {alert.name}"] = _read_firing(question, seen, sources.alertmanager, alert)
    return reads


async def _read_workload(question: _Question, seen: _Seen, known: asyncio.Event) -> None:
    named = frozenset(alert.labels.get("exported_pod") or alert.labels.get("pod", "") for alert in question.alerts)
    try:
        async with asyncio.timeout(KUBERNETES_SECONDS):
            read = await read_condensed(question.sources.kubernetes, question.target, question.sources.redactor, named=named)
            seen.workload = read.workload
    except SourceUnavailable as error:
        seen.faults.setdefault("kubernetes", str(error))
    except TimeoutError:
        seen.faults.setdefault("kubernetes", f"the Kubernetes API did not answer within {KUBERNETES_SECONDS:.0f} s")
    finally:
        known.set()


async def _read_rule(question: _Question, seen: _Seen, prometheus: PrometheusReader, alert: Alert) -> None:
    clock, redactor = question.sources.clock, question.sources.redactor
    reading = await read_rule(prometheus, question.target, alert.name, alert.labels, clock, timeout_s=PROMETHEUS_SECONDS)
    seen.rules.append(reading.model_copy(update={"detail": redactor.text(reading.detail)[:200]}))


async def _read_level(question: _Question, seen: _Seen, prometheus: PrometheusReader, check: Check) -> None:
    seen.levels.append(await read_level(prometheus, check, question.sources.clock, timeout_s=PROMETHEUS_SECONDS))


async def _read_firing(question: _Question, seen: _Seen, alertmanager: AlertmanagerReader, alert: Alert) -> None:
    now = question.sources.clock.now()
    try:
        async with asyncio.timeout(ALERTMANAGER_SECONDS):
            firing = await alertmanager.firing(alert.labels, alert.fingerprint)
        seen.firing.append(FiringReading(alert=alert.name, firing=firing, at=now))
    except SourceUnavailable as error:
        seen.faults.setdefault("alertmanager", str(error))
        seen.firing.append(FiringReading(alert=alert.name, unknown=Unknown.of(error).reason, at=now))
    except TimeoutError:
        seen.faults.setdefault("alertmanager", f"Alertmanager did not answer within {ALERTMANAGER_SECONDS:.0f} s")
        seen.firing.append(FiringReading(alert=alert.name, unknown="timeout", at=now))


async def _read_measures(question: _Question, seen: _Seen, prometheus: PrometheusReader, known: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(PROMETHEUS_SECONDS):
            windows = Windows.for_interval(await prometheus.scrape_interval())
    except (SourceUnavailable, TimeoutError) as error:
        seen.faults.setdefault("prometheus", str(error) or f"Prometheus did not answer within {PROMETHEUS_SECONDS:.0f} s")
        return
    await asyncio.gather(
        *(_read_one(question, seen, prometheus, spec, windows) for spec in SPECS),
        _read_the_past(question, seen, prometheus, windows, known),
    )


async def _read_one(question: _Question, seen: _Seen, prometheus: PrometheusReader, spec: MeasureSpec, windows: Windows) -> None:
    clock = question.sources.clock
    seen.measures[spec.name] = await read_measure(prometheus, spec, question.target, windows, clock, timeout_s=PROMETHEUS_SECONDS)


async def _read_the_past(
    question: _Question, seen: _Seen, prometheus: PrometheusReader, windows: Windows, known: asyncio.Event
) -> None:
    """Errors before the release, and Secrets rotated since the pods started; both need the workload."""
    await known.wait()
    workload, clock = seen.workload, question.sources.clock
    if workload is None:
        return
    if (released := workload.released_at) is not None:
        before = released - timedelta(seconds=5)
        for spec in (REQUESTS, ERRORS):
            measure = await read_measure(prometheus, spec, question.target, windows, clock, timeout_s=PROMETHEUS_SECONDS, at=before)
            seen.measures[f"{spec.name}_before"] = measure.model_copy(update={"name": f"{spec.name}_before"})
    if workload.secrets:
        rotated = await read_rotated_secrets(prometheus, workload, clock, timeout_s=PROMETHEUS_SECONDS)
        seen.measures[rotated.name] = rotated
