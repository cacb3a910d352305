"""Whether one pod differs from its siblings in latency, errors or work done."""

from __future__ import annotations

from catalog.evidence import Oracle
from sources.figures import metric_outlier
from verifier.observations import Observations
from verifier.predictions import Finding, Prediction, measure_of, unknown, workload_of

ENOUGH_PODS = 3


def look(observations: Observations) -> Finding:
    """Needs samples of at least three live pods: of two, nobody can say which is odd."""
    workload = workload_of(observations, "pods")
    if isinstance(workload, Finding):
        return workload
    odd = metric_outlier(workload, observations.measures)
    compared = [measure for name in ("latency", "requests") if (measure := observations.measure(name)) is not None]
    if odd is not None and compared:
        return Finding("single", f"pod {odd[0]}: {odd[1]}", compared[0].at, link=compared[0].link)
    live = set(workload.pod_names)
    for measure in compared:
        if len(live & measure.by_pod.keys()) >= ENOUGH_PODS and not measure.unknown_pods.keys() & live:
            return Finding("even", f"no pod stands out in {measure.name} among {len(live)}", measure.at, link=measure.link)
    requests = measure_of(observations, "requests")
    if isinstance(requests, Finding):
        return requests
    return unknown(observations, "too_few_pods", "fewer than three pods have samples to compare")


PREDICTION = Prediction(
    id="outlier",
    group="spread",
    question="does one pod differ from its siblings?",
    source="prometheus",
    oracle=Oracle.SERVICE_LEVEL,
    look=look,
)
