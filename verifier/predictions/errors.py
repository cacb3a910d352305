"""Whether requests fail, since when, and whose.

A ratio of nothing is nothing: without requests there is no error ratio, high or low.
"""

from __future__ import annotations

from catalog.evidence import Oracle
from sources.figures import SERIOUS_ERRORS, error_ratio, error_ratios, high_outlier, released_before
from verifier.observations import Observations
from verifier.predictions import Finding, Prediction, measure_of, unknown, workload_of


def look(observations: Observations) -> Finding:
    requests = measure_of(observations, "requests")
    if isinstance(requests, Finding):
        return requests
    errors = observations.measure("errors")
    now = error_ratio(requests, errors)
    if now is None:
        reason = errors.unknown if errors is not None and errors.unknown not in ("", "empty") else "empty"
        return unknown(observations, reason, "no error ratio: no requests, or the errors could not be read", link=requests.link)
    link = errors.link if errors is not None else requests.link
    ratios = error_ratios(requests, errors)
    if now < SERIOUS_ERRORS and not any(ratio >= 0.2 for ratio in ratios.values()):
        return Finding("none", f"{now:.1%} of requests fail", requests.at, link=link)
    odd = high_outlier(ratios, floor=0.2)
    if odd is not None:
        return Finding(
            "one_pod", f"{ratios[odd[0]]:.0%} of the requests to {odd[0]} fail, not those to its siblings", requests.at, link=link
        )
    return _since_when(observations, now, link)


def _since_when(observations: Observations, now: float, link: str | None) -> Finding:
    workload, measures = workload_of(observations, "replica_sets"), observations.measures
    if isinstance(workload, Finding):
        return workload
    at = measures["requests"].at
    released = released_before(workload, observations.alerts_since)
    if not released:
        if released is None:
            return unknown(observations, "empty", "requests fail; whether a release preceded it is not known", link=link)
        return Finding("without_release", f"{now:.0%} of requests fail and no release is near", at, link=link)
    before = error_ratio(measures.get("requests_before"), measures.get("errors_before"))
    if before is None:
        return unknown(observations, "empty", f"{now:.0%} of requests fail; how it was before the release is not known", link=link)
    seen = f"{now:.0%} of requests fail, {before:.1%} did just before the release"
    return Finding("since_release" if before < SERIOUS_ERRORS else "before_release", seen, at, link=link)


PREDICTION = Prediction(
    id="errors",
    group="errors",
    question="do requests fail, and since when?",
    source="prometheus",
    oracle=Oracle.SERVICE_LEVEL,
    look=look,
)
