"""Whether an autoscaler owns the replicas and has no room left."""

from __future__ import annotations

from catalog.evidence import Oracle
from verifier.observations import Observations
from verifier.predictions import Finding, Prediction, workload_of


def look(observations: Observations) -> Finding:
    workload = workload_of(observations, "autoscalers")
    if isinstance(workload, Finding):
        return workload
    if not workload.autoscalers:
        return Finding("none", "no autoscaler owns its replicas", workload.read_at)
    full = next((scaler for scaler in workload.autoscalers if scaler.at_maximum), None)
    if full is not None:
        return Finding("at_maximum", f"{full.name} wants {full.desired} of at most {full.maximum}", workload.read_at)
    first = workload.autoscalers[0]
    return Finding("below_maximum", f"{first.name} wants {first.desired} of at most {first.maximum}", workload.read_at)


PREDICTION = Prediction(
    id="autoscaler",
    group="autoscaler",
    question="is its autoscaler at its maximum?",
    source="kubernetes",
    oracle=Oracle.COMPONENT,
    look=look,
)
