"""The generic series that every specialist and prediction may ask for: what to ask, and what counts as a good sample.

Only names that are conventions, not ours: the kubelet's container series, kube-state-metrics, and the request counters and
histograms that client libraries write. A service that has none of them yields unknowns, by name, and no vote.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from string import Template
from typing import Any

from catalog.clocks import Clock
from catalog.orders import Check, CheckSource
from catalog.targets import Target
from sources.errors import SourceUnavailable
from sources.matching import EXPORTED, keep, pod_name_pattern, series_matchers
from sources.prometheus import PrometheusReader
from sources.readings import LevelReading, Measure, RuleReading, WorkloadReading
from sources.samples import Unknown, Vector

RATE_FLOOR_SECONDS = 10.0
RATE_CAP_SECONDS = 120.0
TREND_FLOOR_SECONDS = 60.0
TREND_CAP_SECONDS = 600.0
SECRET_HISTORY_SECONDS = 86_400.0
MAX_PODS = 100
_COMPARISON = re.compile(r"(<=|>=|==|!=|<|>) (-?[0-9.eE+-]+)")


@dataclass(frozen=True)
class MeasureSpec:
    """One query by name. `$pods`, `$namespace`, `$name`, `$rate`, `$trend` are filled in.

    `window` says which range the value stands for. Per-pod results carry a `pod` label; others give one value under the empty
    name.
    """

    name: str
    query: str
    unit: str
    window: str = "rate"
    per_pod: bool = True


_PODS = 'namespace="$namespace",pod=~"$pods"'
_OWN = _PODS + ',container!="",container!="POD"'
_FAILED = ('code=~"5.."', 'status=~"5.."')
_BEFORE_SHARE = "0.2"

REQUESTS = MeasureSpec("requests", f"sum by (pod) (rate(http_requests_total{{{_PODS}}}[$rate]))", "requests/s")
ERRORS = MeasureSpec(
    "errors",
    f"sum by (pod) ({' or '.join(f'rate(http_requests_total{{{_PODS},{failed}}}[$rate])' for failed in _FAILED)})",
    "requests/s",
)
REQUESTS_USUAL = MeasureSpec(
    "requests_usual",
    f"quantile_over_time({_BEFORE_SHARE}, sum(rate(http_requests_total{{{_PODS}}}[$rate]))[30m:$rate])",
    "requests/s",
    per_pod=False,
)
LATENCY = MeasureSpec(
    "latency", f"histogram_quantile(0.99, sum by (pod, le) (rate(http_request_duration_seconds_bucket{{{_PODS}}}[$rate])))", "s"
)
MEMORY = MeasureSpec("memory", f"sum by (pod) (container_memory_working_set_bytes{{{_OWN}}})", "bytes")
MEMORY_SLOPE = MeasureSpec(
    "memory_slope", f"sum by (pod) (deriv(container_memory_working_set_bytes{{{_OWN}}}[$trend]))", "bytes/s", window="trend"
)
MEMORY_SAMPLES = MeasureSpec(
    "memory_samples",
    f"min by (pod) (count_over_time(container_memory_working_set_bytes{{{_OWN}}}[$trend]))",
    "samples",
    window="trend",
)
CPU = MeasureSpec("cpu", f"sum by (pod) (rate(container_cpu_usage_seconds_total{{{_OWN}}}[$rate]))", "cores")
SCRAPED = MeasureSpec("scraped", f"min by (pod) (up{{{_PODS}}})", "")


def _exported(name: str, metric: str) -> MeasureSpec:
    """A figure of kube-state-metrics, whose own labels may have pushed the object's aside to `exported_namespace`."""
    either = " or ".join(f'{metric}{{{label}="$namespace",deployment="$name"}}' for label in ("namespace", "exported_namespace"))
    return MeasureSpec(name, f"max({either})", "replicas", per_pod=False)


EXPORTED_REPLICAS = _exported("exported_replicas", "kube_deployment_spec_replicas")
EXPORTED_AVAILABLE = _exported("exported_available", "kube_deployment_status_replicas_available")
SPECS: tuple[MeasureSpec, ...] = (
    REQUESTS, ERRORS, REQUESTS_USUAL, LATENCY, MEMORY, MEMORY_SLOPE, MEMORY_SAMPLES, CPU, SCRAPED, EXPORTED_REPLICAS,
    EXPORTED_AVAILABLE,
)  # fmt: skip


@dataclass(frozen=True)
class Windows:
    """Ranges in seconds, fitted to how often the targets are scraped."""

    rate: float
    trend: float

    @classmethod
    def for_interval(cls, scrape_seconds: float) -> Windows:
        """At least four scrapes for a rate and forty for a trend, within sensible bounds."""
        return cls(
            rate=min(RATE_CAP_SECONDS, max(RATE_FLOOR_SECONDS, 4 * scrape_seconds)),
            trend=min(TREND_CAP_SECONDS, max(TREND_FLOOR_SECONDS, 40 * scrape_seconds)),
        )


def query_for(spec: MeasureSpec, target: Target, windows: Windows) -> str | None:
    """The query of `spec` for the target, None where the target has no pods."""
    pattern = pod_name_pattern(target)
    if pattern is None:
        return None
    return Template(spec.query).substitute(
        namespace=_quoted(target.namespace),
        name=_quoted(target.name),
        pods=_quoted(pattern.removeprefix("^").removesuffix("$")),
        rate=f"{windows.rate:.0f}s",
        trend=f"{windows.trend:.0f}s",
    )


async def read_measure(
    prometheus: PrometheusReader,
    spec: MeasureSpec,
    target: Target,
    windows: Windows,
    clock: Clock,
    *,
    timeout_s: float,
    at: datetime | None = None,
) -> Measure:
    """One measure of the target, now or as it was at `at`; whatever goes wrong is named in it, nothing is raised."""
    query = query_for(spec, target, windows)
    now = at or clock.now()
    if query is None:
        return Measure(name=spec.name, unit=spec.unit, unknown="not_applicable", at=now)
    window = windows.trend if spec.window == "trend" else windows.rate
    link = prometheus.link(query)
    try:
        async with asyncio.timeout(timeout_s):
            vector = await prometheus.instant(query, at=at)
    except (SourceUnavailable, TimeoutError) as error:
        reason = Unknown.of(error).reason if isinstance(error, SourceUnavailable) else "timeout"
        return Measure(name=spec.name, query=query, unit=spec.unit, unknown=reason, at=now, window_seconds=window, link=link)
    return measure_of(spec, query, vector, window=window, at=now, link=link)


def measure_of(spec: MeasureSpec, query: str, vector: Vector, *, window: float, at: datetime, link: str | None) -> Measure:
    """The measure that a result is: finite samples by pod, the others by reason. Stale inputs leave no good sample."""
    good: dict[str, float] = {}
    bad: dict[str, str] = {}
    for labels, sample in vector:
        pod = labels.get(EXPORTED + "pod", labels.get("pod", "")) if spec.per_pod else ""
        if isinstance(sample, Unknown):
            bad[pod] = sample.reason
        elif vector.inputs == "stale":
            bad[pod] = "stale"
        else:
            good[pod] = sample
    ranked = sorted(good, key=lambda pod: good[pod], reverse=True)
    cut = ranked[MAX_PODS // 2 : len(ranked) - MAX_PODS // 2] if len(ranked) > MAX_PODS else []
    whole = sum(good.values()) if cut else None
    for pod in cut:
        del good[pod]
    return Measure(
        name=spec.name,
        query=query,
        unit=spec.unit,
        by_pod=good,
        unknown="" if good else next(iter(bad.values()), "stale" if vector.inputs == "stale" else "empty"),
        unknown_pods=dict(sorted(bad.items())[:MAX_PODS]),
        pods_cut=len(cut),
        whole=whole,
        at=at,
        window_seconds=window,
        link=link,
    )


async def read_rotated_secrets(
    prometheus: PrometheusReader, workload: WorkloadReading, clock: Clock, *, timeout_s: float
) -> Measure:
    """Which Secrets of the environment changed after the oldest pod took them over: 1 changed, 0 not, by Secret.

    Read from the version that kube-state-metrics shows; the Secrets themselves are not ours to read. "Not changed" needs a
    sample from before the pod started: what nobody watched may have changed.
    """
    now = clock.now()
    started = [container.running_since for pod in workload.pods for container in pod.containers if container.running_since]
    if not started:
        return Measure(name="secrets_rotated", unknown="not_applicable", at=now)
    age = min(max((now - min(started)).total_seconds(), 1.0), SECRET_HISTORY_SECONDS)
    names = "|".join(re.escape(name).replace(r"\-", "-") for name in workload.secrets)
    series = f'kube_secret_metadata_resource_version{{namespace="{_quoted(workload.target.namespace)}",secret=~"{_quoted(names)}"}}'
    query = f"max by (secret) (changes({series}[{age:.0f}s]))"
    fields: dict[str, Any] = {"name": "secrets_rotated", "query": query, "at": now, "link": prometheus.link(query)}
    try:
        async with asyncio.timeout(timeout_s):
            changes, before = await asyncio.gather(prometheus.instant(query), prometheus.instant(series, at=min(started)))
    except (SourceUnavailable, TimeoutError) as error:
        return Measure(**fields, unknown=Unknown.of(error).reason if isinstance(error, SourceUnavailable) else "timeout")
    watched = {labels.get("secret", "") for labels, sample in before if not isinstance(sample, Unknown)}
    rotated = {
        labels.get("secret", ""): float(count > 0)
        for labels, count in changes
        if not isinstance(count, Unknown) and (count > 0 or labels.get("secret", "") in watched)
    }
    return Measure(**fields, by_pod=dict(sorted(rotated.items())), unknown="" if rotated else "empty")


async def read_rule(
    prometheus: PrometheusReader, target: Target, alert: str, labels: Mapping[str, str], clock: Clock, *, timeout_s: float
) -> RuleReading:
    """Whether the rule's expression holds for the target now, whatever its `for` and the alert's state say.

    No series means "does not hold" only where every metric of the expression has fresh samples: over absent or stale inputs
    it is unknown. A NaN or an infinity neither holds nor does not.
    """
    now = clock.now()
    expression = ""
    try:
        async with asyncio.timeout(timeout_s):
            found = await prometheus.rule_expression(alert, dict(labels))
            if found is None:
                return RuleReading(
                    alert=alert, unknown="no_rule", detail="Prometheus has no rule of this name for these labels", at=now
                )
            expression = found
            vector = await prometheus.instant(expression)
    except (SourceUnavailable, TimeoutError) as error:
        reason = Unknown.of(error).reason if isinstance(error, SourceUnavailable) else "timeout"
        return RuleReading(alert=alert, expression=expression, unknown=reason, detail=str(error), at=now)
    return rule_of(alert, expression, vector, target, labels, at=now, link=prometheus.link(expression))


def rule_of(
    alert: str, expression: str, vector: Vector, target: Target, labels: Mapping[str, str], *, at: datetime, link: str | None
) -> RuleReading:
    """What a rule's result says of the target."""
    matchers = series_matchers(target, labels)
    samples = [sample for series, sample in vector if keep(series, matchers)]
    good = [sample for sample in samples if not isinstance(sample, Unknown)]
    fields: dict[str, Any] = {"alert": alert, "expression": expression, "at": at, "link": link}
    if vector.inputs == "stale":
        return RuleReading(**fields, unknown="stale", detail="its metrics were not scraped lately")
    if good:
        return RuleReading(**fields, holds=True, value=good[0])
    if samples:
        bad = next(sample for sample in samples if isinstance(sample, Unknown))
        return RuleReading(**fields, unknown=bad.reason, detail="the expression yields a value that is no number")
    if vector.inputs == "absent":
        return RuleReading(**fields, unknown="absent_metric", detail="a metric of the expression has no series")
    return RuleReading(**fields, holds=False)


async def read_level(prometheus: PrometheusReader, check: Check, clock: Clock, *, timeout_s: float) -> LevelReading:
    """A service-level check of the policy, evaluated now."""
    now = clock.now()
    query = check.query or ""
    if check.source is not CheckSource.PROMETHEUS or not query:
        return LevelReading(name=check.name, state="unknown", unknown="not_a_query", at=now)
    link = prometheus.link(query)
    try:
        async with asyncio.timeout(timeout_s):
            vector = await prometheus.instant(query)
    except (SourceUnavailable, TimeoutError) as error:
        reason = Unknown.of(error).reason if isinstance(error, SourceUnavailable) else "timeout"
        return LevelReading(name=check.name, state="unknown", query=query, unknown=reason, at=now, link=link)
    return level_of(check, vector, at=now, link=link)


def level_of(check: Check, vector: Vector, *, at: datetime, link: str | None) -> LevelReading:
    """What a result says of the check: failing if any sample fails, passing only if all are good and pass."""
    fields: dict[str, Any] = {"name": check.name, "query": check.query or "", "at": at, "link": link}
    samples = [sample for series, sample in vector if keep(series, check.series)]
    if vector.inputs == "stale":
        return LevelReading(**fields, state="unknown", unknown="stale")
    if not samples:
        if vector.inputs == "absent" or check.empty == "unknown":
            return LevelReading(**fields, state="unknown", unknown="empty")
        return LevelReading(**fields, state=check.empty, seen="no series")
    good = [sample for sample in samples if not isinstance(sample, Unknown)]
    failing = [value for value in good if not passes(value, check.passing)]
    if failing:
        return LevelReading(**fields, state="failing", seen=f"{failing[0]:.4g}, wanted {check.passing}")
    if len(good) < len(samples):
        bad = next(sample for sample in samples if isinstance(sample, Unknown))
        return LevelReading(**fields, state="unknown", unknown=bad.reason)
    return LevelReading(**fields, state="passing", seen=f"{good[0]:.4g}, wanted {check.passing}")


def passes(value: float, passing: str | None) -> bool:
    """Whether a sample satisfies `passing` (`"< 0.01"`). Without a comparison any series means failing, as for an alert."""
    found = _COMPARISON.fullmatch(passing or "")
    if found is None:
        return False
    bound = float(found[2])
    match found[1]:
        case "<":
            return value < bound
        case "<=":
            return value <= bound
        case ">":
            return value > bound
        case ">=":
            return value >= bound
        case "==":
            return value == bound
        case _:
            return value != bound


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
