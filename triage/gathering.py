"""`gather`: all the reading that triage does, once, side by side, within a budget. What was read is what is diagnosed.

A source that fails costs its own part and is named; the others go on. Texts of alerts are not taken over: only where one reads
like an order is its place kept, as a warning to people.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from catalog.alerts import Alert
from catalog.documents import VersionVector
from catalog.evidence import SourceName
from catalog.targets import Target, TargetFacts, TargetKind
from sources.condensing import read_condensed
from sources.endpoints import SourceSet
from sources.errors import SourceUnavailable
from sources.prometheus import PrometheusReader
from sources.readings import Measure, RuleReading, WorkloadReading
from sources.telemetry import ERRORS, REQUESTS, SPECS, Windows, read_measure, read_rotated_secrets, read_rule
from triage import TRIAGE_VERSION
from triage.quoting import annotation_texts, places_with_orders
from triage.symptoms import MAX_ALERTS, AlertSymptom, Symptoms, fitted

CALL_SECONDS = 5.0
MAX_LABELS = 40
MAX_LABEL_VALUE = 253
MAX_RULES = 5


@dataclass
class _Gathered:
    """What has come in so far; a part that is late is simply not here."""

    workload: WorkloadReading | None = None
    facts: TargetFacts | None = None
    measures: dict[str, Measure] = field(default_factory=dict)
    rules: list[RuleReading] = field(default_factory=list)
    faults: dict[SourceName, str] = field(default_factory=dict)


async def gather(
    incident_id: str, target: Target, alerts: Sequence[Alert], sources: SourceSet, *, budget_s: float = 15.0
) -> Symptoms:
    """Everything that triage looks at, read now. Never raises for a source: what could not be read is in `faults`.

    Raises:
        ValueError: no alerts.
    """
    if not alerts:
        raise ValueError("an incident without alerts has no symptoms")
    began = sources.clock.monotonic()
    seen = _Gathered()
    try:
        async with asyncio.timeout(budget_s):
            await _read_all(seen, target, alerts, sources, min(CALL_SECONDS, budget_s))
    except TimeoutError:
        _name_late_sources(seen, sources, budget_s)
    return fitted(
        Symptoms(
            versions=VersionVector(triage=TRIAGE_VERSION),
            incident_id=incident_id,
            at=sources.clock.now(),
            target=target,
            alerts=tuple(_symptom(alert, sources) for alert in alerts[:MAX_ALERTS]),
            facts=seen.facts,
            workload=seen.workload,
            measures=dict(sorted(seen.measures.items())),
            rules=tuple(sorted(seen.rules, key=lambda rule: rule.alert)),
            configured=_configured(sources),
            faults=seen.faults,
            instructions_in=places_with_orders(_texts(alerts, seen.workload)),
            cut={"alerts": len(alerts) - MAX_ALERTS} if len(alerts) > MAX_ALERTS else {},
            took_ms=int((sources.clock.monotonic() - began) * 1000),
        )
    )


async def _read_all(seen: _Gathered, target: Target, alerts: Sequence[Alert], sources: SourceSet, call_s: float) -> None:
    kubernetes = _read_kubernetes(seen, target, alerts, sources)
    if sources.prometheus is None:
        await kubernetes
        return
    windows = await _windows(sources.prometheus, seen)
    if windows is None:
        await kubernetes
        return
    await asyncio.gather(
        kubernetes,
        _read_rules(seen, target, alerts, sources, sources.prometheus, call_s),
        _read_measures(seen, target, sources, sources.prometheus, windows, call_s),
    )
    await _read_the_past(seen, target, sources, sources.prometheus, windows, call_s)
    _name_silent_prometheus(seen)


async def _read_kubernetes(seen: _Gathered, target: Target, alerts: Sequence[Alert], sources: SourceSet) -> None:
    named = frozenset(alert.labels.get("exported_pod") or alert.labels.get("pod", "") for alert in alerts)
    try:
        read = await read_condensed(sources.kubernetes, target, sources.redactor, named=named)
    except SourceUnavailable as error:
        seen.faults["kubernetes"] = str(error)
        return
    seen.workload, seen.facts = read.workload, read.facts


async def _windows(prometheus: PrometheusReader, seen: _Gathered) -> Windows | None:
    """Ranges fitted to the scrape interval; None when Prometheus cannot be read at all."""
    try:
        return Windows.for_interval(await prometheus.scrape_interval())
    except SourceUnavailable as error:
        seen.faults["prometheus"] = str(error)
        return None


async def _read_rules(
    seen: _Gathered, target: Target, alerts: Sequence[Alert], sources: SourceSet, prometheus: PrometheusReader, call_s: float
) -> None:
    distinct = {alert.name: alert for alert in sorted(alerts, key=lambda one: one.starts_at, reverse=True)}
    first = [distinct[name] for name in sorted(distinct)][:MAX_RULES]
    readings = await asyncio.gather(
        *(read_rule(prometheus, target, alert.name, alert.labels, sources.clock, timeout_s=call_s) for alert in first)
    )
    seen.rules += [reading.model_copy(update={"detail": sources.redactor.text(reading.detail)[:200]}) for reading in readings]


async def _read_measures(
    seen: _Gathered, target: Target, sources: SourceSet, prometheus: PrometheusReader, windows: Windows, call_s: float
) -> None:
    async def one(spec_index: int) -> None:
        measure = await read_measure(prometheus, SPECS[spec_index], target, windows, sources.clock, timeout_s=call_s)
        seen.measures[measure.name] = measure

    if target.kind is not TargetKind.NODE:
        await asyncio.gather(*(one(index) for index in range(len(SPECS))))


async def _read_the_past(
    seen: _Gathered, target: Target, sources: SourceSet, prometheus: PrometheusReader, windows: Windows, call_s: float
) -> None:
    """How it was before the release, and which Secrets changed since the pods started: both need the workload first."""
    workload = seen.workload
    if workload is None:
        return
    if (released := workload.released_at) is not None:
        before = _just_before(released)
        for spec in (REQUESTS, ERRORS):
            measure = await read_measure(prometheus, spec, target, windows, sources.clock, timeout_s=call_s, at=before)
            seen.measures[f"{spec.name}_before"] = measure.model_copy(update={"name": f"{spec.name}_before"})
    if workload.secrets:
        rotated = await read_rotated_secrets(prometheus, workload, sources.clock, timeout_s=call_s)
        seen.measures[rotated.name] = rotated


def _just_before(instant: datetime) -> datetime:
    return instant - timedelta(seconds=5)


def _name_silent_prometheus(seen: _Gathered) -> None:
    """Prometheus is at fault, not the workload, when nothing at all that was asked came back for a reason of its own."""
    own = {"timeout", "unreachable", "malformed"}
    reasons = [measure.unknown for measure in seen.measures.values()] + [rule.unknown for rule in seen.rules]
    if reasons and all(reason in own for reason in reasons):
        worst = max(set(reasons), key=reasons.count)
        seen.faults["prometheus"] = f"Prometheus gave no answer to any of {len(reasons)} questions ({worst})"


def _name_late_sources(seen: _Gathered, sources: SourceSet, budget_s: float) -> None:
    if seen.workload is None:
        seen.faults.setdefault("kubernetes", f"the Kubernetes API did not answer within {budget_s:.0f} s")
    if sources.prometheus is not None and not seen.measures and not seen.rules:
        seen.faults.setdefault("prometheus", f"Prometheus did not answer within {budget_s:.0f} s")


def _configured(sources: SourceSet) -> tuple[SourceName, ...]:
    names: list[SourceName] = ["kubernetes"]
    if sources.prometheus is not None:
        names.append("prometheus")
    if sources.alertmanager is not None:
        names.append("alertmanager")
    return tuple(names)


def _symptom(alert: Alert, sources: SourceSet) -> AlertSymptom:
    labels = sources.redactor.mapping(dict(sorted(alert.labels.items())[:MAX_LABELS]))
    return AlertSymptom(
        name=alert.name,
        fingerprint=alert.fingerprint,
        status=alert.status,
        severity=alert.severity,
        starts_at=alert.starts_at,
        labels={key: value[:MAX_LABEL_VALUE] for key, value in labels.items()},
    )


def _texts(alerts: Sequence[Alert], workload: WorkloadReading | None) -> list[tuple[str, str]]:
    texts = [pair for alert in alerts for pair in annotation_texts(alert.name, alert.annotations)]
    if workload is not None:
        texts += [(f"an event of {event.kind} {event.name}", event.message) for event in workload.events]
        texts += [
            (f"the message of container {container.name} in pod {pod.name}", container.message)
            for pod in workload.pods
            for container in pod.containers
        ]
    return texts
