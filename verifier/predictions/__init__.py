"""Predictions: "if this is the cause, X must be visible, Y must not". One file each; adding one touches that file, its rows in
`data/ratios.yaml` and its test.

A prediction looks at stored observations and names its finding, or why there is none. What a finding is worth for which family
is not its business: that is in the ratios. A module of this package that has a `PREDICTION` is registered by being here.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import cache

from catalog.evidence import Oracle, SourceName
from sources.readings import Measure, WorkloadReading
from verifier.observations import Observations

NOT_APPLICABLE = "not_applicable"


@dataclass(frozen=True)
class Finding:
    """What was seen. `value` None: inconclusive, and `reason` says why by name."""

    value: str | None
    seen: str
    at: datetime
    reason: str = ""
    link: str | None = None


@dataclass(frozen=True)
class Prediction:
    """One question with one place in the ratios. Predictions of one `group` look at the same fact."""

    id: str
    group: str
    question: str
    source: SourceName
    oracle: Oracle
    look: Callable[[Observations], Finding]


def unknown(observations: Observations, reason: str, seen: str = "", *, link: str | None = None) -> Finding:
    """Nothing can be said, for this reason."""
    return Finding(value=None, seen=seen or f"no answer ({reason})", at=observations.at, reason=reason, link=link)


def workload_of(observations: Observations, *parts: str) -> WorkloadReading | Finding:
    """The workload as read, or the inconclusive finding where it, or a part that the prediction needs, could not be read."""
    workload = observations.workload
    if workload is None:
        reason = "timeout" if "kubernetes" in observations.late else "unreachable"
        return unknown(observations, reason, observations.faults.get("kubernetes", "the Kubernetes API was not read in time"))
    if not workload.exists:
        return unknown(observations, "gone", f"{observations.target.title} does not exist any more")
    for part in parts:
        if part in workload.unreadable:
            return unknown(observations, "unreadable", workload.unreadable[part])
    return workload


def measure_of(observations: Observations, name: str) -> Measure | Finding:
    """The measure of that name, or the inconclusive finding where it has no good sample."""
    measure = observations.measure(name)
    if measure is None:
        late = "measures" in observations.late
        reason = "timeout" if late else "unreachable" if "prometheus" in observations.faults else "not_configured"
        return unknown(observations, reason, observations.faults.get("prometheus", f"{name} was not read ({reason})"))
    if not measure.by_pod:
        reason = measure.unknown or "empty"
        return unknown(observations, reason, f"{name} has no good sample ({reason})", link=measure.link)
    return measure


@cache
def predictions() -> tuple[Prediction, ...]:
    """All predictions, by id."""
    found: list[Prediction] = []
    for module in pkgutil.iter_modules(__path__):
        prediction = getattr(importlib.import_module(f"{__name__}.{module.name}"), "PREDICTION", None)
        if isinstance(prediction, Prediction):
            found.append(prediction)
    return tuple(sorted(found, key=lambda prediction: prediction.id))
