"""Whether kube-state-metrics shows what the API shows. If not, its series are frozen and prove nothing."""

from __future__ import annotations

from catalog.evidence import Oracle
from sources.figures import exporter_contradiction
from verifier.observations import Observations
from verifier.predictions import Finding, Prediction, measure_of, workload_of


def look(observations: Observations) -> Finding:
    workload = workload_of(observations)
    if isinstance(workload, Finding):
        return workload
    measure = measure_of(observations, "exported_replicas")
    if isinstance(measure, Finding):
        return measure
    said = exporter_contradiction(workload, observations.measures)
    if said:
        return Finding("contradicts", said, workload.read_at, link=measure.link)
    return Finding("agrees", "kube-state-metrics shows the replicas that the API shows", workload.read_at, link=measure.link)


PREDICTION = Prediction(
    id="exporter",
    group="exporter",
    question="does the exporter agree with the API?",
    source="kubernetes",
    oracle=Oracle.COMPONENT,
    look=look,
)
