"""Where memory is going: to its limit within the hour, near it, or steady."""

from __future__ import annotations

from catalog.evidence import Oracle
from sources.figures import NEAR_LIMIT, TroubleKind, forecasts, memory_steady, troubles
from verifier.observations import Observations
from verifier.predictions import Finding, Prediction, measure_of, unknown, workload_of


def look(observations: Observations) -> Finding:
    """A trend that a kill has just reset is no trend: inconclusive, since the low value after it is the kill's doing."""
    workload = workload_of(observations, "pods")
    if isinstance(workload, Finding):
        return workload
    memory = measure_of(observations, "memory")
    if isinstance(memory, Finding):
        return memory
    found = forecasts(workload, observations.measures)
    if not found:
        return unknown(observations, "no_limit", "no pod has a memory limit and a sample", link=memory.link)
    going = [forecast for forecast in found if forecast.exhausting]
    if going:
        first = min(going, key=lambda forecast: forecast.seconds_left or 0.0)
        seen = f"{len(going)} of {len(found)} pods grow; {first.pod} at {first.share:.0%} reaches its limit in "
        return Finding("exhausting", f"{seen}{(first.seconds_left or 0.0) / 60:.0f} min", memory.at, link=memory.link)
    fullest = max(found, key=lambda forecast: forecast.share)
    if fullest.share >= NEAR_LIMIT:
        return Finding("near_limit", f"{fullest.pod} uses {fullest.share:.0%} of its limit", memory.at, link=memory.link)
    if any(trouble.kind in (TroubleKind.OUT_OF_MEMORY, TroubleKind.KILLED) for trouble in troubles(workload)):
        return unknown(observations, "counter_reset", "a kill has just emptied its memory", link=memory.link)
    steady = memory_steady(found)
    if steady is None:
        return unknown(observations, "too_few_samples", "too few samples for a trend", link=memory.link)
    if not steady:
        return unknown(observations, "slow_growth", "it grows, too slowly to reach the limit within the hour", link=memory.link)
    return Finding("steady", f"at most {fullest.share:.0%} of the limit and not growing", memory.at, link=memory.link)


PREDICTION = Prediction(
    id="memory_trend",
    group="memory",
    question="does its memory run towards the limit?",
    source="prometheus",
    oracle=Oracle.SERVICE_LEVEL,
    look=look,
)
