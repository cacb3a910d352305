"""Whether the scheduler finds nodes for its pods."""

from __future__ import annotations

from catalog.evidence import Oracle
from verifier.observations import Observations
from verifier.predictions import Finding, Prediction, unknown, workload_of


def look(observations: Observations) -> Finding:
    workload = workload_of(observations, "pods")
    if isinstance(workload, Finding):
        return workload
    waiting = next((pod for pod in workload.pods if pod.unschedulable), None)
    if waiting is not None:
        return Finding("unschedulable", f"{waiting.name}: {waiting.unschedulable}", workload.read_at)
    if not workload.pods:
        return unknown(observations, "empty", "there is no pod to schedule")
    return Finding("scheduled", "every pod has its node", workload.read_at)


PREDICTION = Prediction(
    id="scheduling",
    group="scheduling",
    question="do its pods find nodes?",
    source="kubernetes",
    oracle=Oracle.COMPONENT,
    look=look,
)
