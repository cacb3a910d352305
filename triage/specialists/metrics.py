"""Metrics: what Prometheus says of load, errors, latency, memory, and of its own data.

A missing sample is not a small one: a figure that lacks a part votes for nothing. When the data themselves are broken (NaN in
the rule, pods that run but are not scraped, an exporter that contradicts the API) that is the finding, and the only one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from catalog.diagnoses import Family
from sources.figures import (
    GROWN,
    SATURATED,
    SERIOUS_ERRORS,
    cpu_shares,
    error_ratio,
    exporter_contradiction,
    forecasts,
    memory_steady,
    released_before,
    single_outlier,
    traffic_growth,
    utilisation,
)
from sources.readings import WorkloadReading
from triage.signals import Ballot, Signal
from triage.specialists import SpecialistName
from triage.symptoms import Symptoms
from triage.vocabulary import kinds

_NO_NUMBER = frozenset({"nan", "inf"})
_NO_DATA = frozenset({"DatasourceNoData", "DatasourceError"})
_NO_DATA_REASONS = frozenset({"NoData", "Error"})


@dataclass(frozen=True)
class MetricsSpecialist:
    name: SpecialistName = "metrics"
    weight: float = 0.30

    def vote(self, symptoms: Symptoms) -> Ballot:
        data = list(_alert_data_signs(symptoms))
        if "prometheus" in symptoms.faults:
            return Ballot(state="fault", note=symptoms.faults["prometheus"])
        if "prometheus" not in symptoms.configured:
            return Ballot(state="abstained", note="no Prometheus is configured for this cluster")
        data += list(_data_signs(symptoms))
        resolved = list(_resolved_signs(symptoms))
        if symptoms.workload is None:
            return Ballot.of([*data, *resolved], (Family.DATA_FAULT, Family.SELF_RESOLVED), note="no workload to measure")
        if data:
            return Ballot.of([*data, *resolved], (Family.DATA_FAULT,))
        looked_for: tuple[Family, ...] = (Family.DATA_FAULT, Family.SELF_RESOLVED)
        signals = [*resolved]
        for family, signs, can_see in (
            (Family.OUT_OF_MEMORY, _memory_signs, _sees_memory(symptoms)),
            (Family.WEDGED, _outlier_signs, _sees(symptoms, "requests", "latency", "secrets_rotated")),
            (Family.CAPACITY, _load_signs, _sees(symptoms, "cpu")),
            (Family.BAD_RELEASE, _error_signs, _sees(symptoms, "requests")),
        ):
            if can_see:
                looked_for = (*looked_for, family)
                signals += list(signs(symptoms, symptoms.workload))
        note = "" if len(looked_for) > 2 else "Prometheus has no series of this workload"
        return Ballot.of(signals, looked_for, note=note)


def _sees(symptoms: Symptoms, *names: str) -> bool:
    return any(symptoms.measures[name].by_pod for name in names if name in symptoms.measures)


def _sees_memory(symptoms: Symptoms) -> bool:
    return symptoms.workload is not None and bool(forecasts(symptoms.workload, symptoms.measures))


def _alert_data_signs(symptoms: Symptoms) -> Iterator[Signal]:
    for alert in symptoms.alerts:
        if alert.name in _NO_DATA or alert.labels.get("grafana_state_reason") in _NO_DATA_REASONS:
            yield Signal(family=Family.DATA_FAULT, score=0.9, sentence=f"{alert.name} says that its data source gave no data")


def _data_signs(symptoms: Symptoms) -> Iterator[Signal]:
    yield from _alert_data_signs(symptoms)
    for rule in symptoms.rules:
        if rule.unknown in _NO_NUMBER:
            yield Signal(
                family=Family.DATA_FAULT,
                score=0.9,
                sentence=f"the rule {rule.alert} compares a value that is no number ({rule.unknown})",
            )
    workload = symptoms.workload
    if workload is None:
        return
    scraped = symptoms.measures.get("scraped")
    if scraped is not None and workload.healthy and scraped.by_pod and not any(scraped.by_pod.values()):
        yield Signal(family=Family.DATA_FAULT, score=0.85, sentence="every pod is ready and none of them can be scraped")
    frozen = exporter_contradiction(workload, symptoms.measures)
    if frozen:
        yield Signal(family=Family.DATA_FAULT, score=0.7, sentence=frozen)


def _resolved_signs(symptoms: Symptoms) -> Iterator[Signal]:
    asked = [rule for rule in symptoms.rules if rule.holds is not None]
    if asked and len(asked) == len(symptoms.rules) and not any(rule.holds for rule in asked):
        yield Signal(family=Family.SELF_RESOLVED, score=0.7, sentence="the alert's expression no longer holds for this target")


def _memory_signs(symptoms: Symptoms, workload: WorkloadReading) -> Iterator[Signal]:
    found = forecasts(workload, symptoms.measures)
    if memory_steady(found):
        return
    going = [forecast for forecast in found if forecast.exhausting]
    if going:
        first = min(going, key=lambda forecast: forecast.seconds_left or 0.0)
        share = len(going) / len(found)
        yield Signal(
            family=Family.OUT_OF_MEMORY,
            score=0.85 if share >= 0.5 else 0.7,
            sentence=(
                f"memory of {len(going)} of {len(found)} pods grows and reaches its limit in about "
                f"{(first.seconds_left or 0.0) / 60:.0f} min ({first.pod}: {first.share:.0%} used)"
            ),
        )
    elif any(forecast.share >= 0.9 for forecast in found):
        first = max(found, key=lambda forecast: forecast.share)
        yield Signal(family=Family.OUT_OF_MEMORY, score=0.5, sentence=f"{first.pod} uses {first.share:.0%} of its memory limit")


def _outlier_signs(symptoms: Symptoms, workload: WorkloadReading) -> Iterator[Signal]:
    yield from _stale_signs(symptoms, workload)
    odd = single_outlier(workload, symptoms.measures)
    if odd is None:
        return
    pod, what = odd
    named = symptoms.named_pods
    yield Signal(family=Family.WEDGED, score=0.9 if pod in named or not named else 0.6, sentence=f"pod {pod}: {what}")


def _stale_signs(symptoms: Symptoms, workload: WorkloadReading) -> Iterator[Signal]:
    rotated = symptoms.measures.get("secrets_rotated")
    changed = sorted(name for name, value in rotated.by_pod.items() if value) if rotated is not None else []
    if (
        changed
        and not released_before(workload, symptoms.began_at)
        and kinds(symptoms.alert_names) & {"errors", "unready", "crash"}
    ):
        sentence = f"Secret {changed[0]} changed after the pods started, and they took its value at their start"
        yield Signal(family=Family.WEDGED, score=0.85, sentence=sentence)


def _load_signs(symptoms: Symptoms, workload: WorkloadReading) -> Iterator[Signal]:
    used = utilisation(workload, symptoms.measures)
    shares = cpu_shares(workload, symptoms.measures)
    if used is None or used < SATURATED:
        return
    everywhere = min(shares.values()) >= 0.5 * used
    growth = traffic_growth(symptoms.measures)
    ratio = error_ratio(symptoms.measures.get("requests"), symptoms.measures.get("errors"))
    failing = ratio is not None and ratio >= SERIOUS_ERRORS
    if growth is not None and growth >= GROWN and everywhere:
        score = 0.6 if failing else 0.9
        yield Signal(
            family=Family.CAPACITY,
            score=score,
            sentence=f"CPU at {used:.0%} on all pods while traffic is {growth:.1f} times the usual",
        )
    elif everywhere:
        yield Signal(family=Family.CAPACITY, score=0.6, sentence=f"CPU at {used:.0%} on all pods")


def _error_signs(symptoms: Symptoms, workload: WorkloadReading) -> Iterator[Signal]:
    measures = symptoms.measures
    now = error_ratio(measures.get("requests"), measures.get("errors"))
    if now is None or now < SERIOUS_ERRORS:
        return
    before = error_ratio(measures.get("requests_before"), measures.get("errors_before"))
    released = released_before(workload, symptoms.began_at)
    release = workload.release
    if released and release is not None:
        known = before is not None and before < SERIOUS_ERRORS
        tail = f", {before:.1%} before it" if before is not None else ""
        score = 0.9 if known else 0.2 if before is not None else 0.6
        yield Signal(
            family=Family.BAD_RELEASE, score=score, sentence=f"{now:.0%} of requests fail since revision {release.revision}{tail}"
        )
    elif "errors" in kinds(symptoms.alert_names) or "latency" in kinds(symptoms.alert_names):
        yield Signal(family=Family.DEPENDENCY, score=0.5, sentence=f"{now:.0%} of requests fail and no release preceded it")


SPECIALIST = MetricsSpecialist()
