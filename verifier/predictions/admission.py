"""Whether the API refuses new pods for a quota."""

from __future__ import annotations

from catalog.evidence import Oracle
from sources.figures import quota_refusal
from verifier.observations import Observations
from verifier.predictions import Finding, Prediction, workload_of


def look(observations: Observations) -> Finding:
    workload = workload_of(observations, "quotas", "events")
    if isinstance(workload, Finding):
        return workload
    refusal = quota_refusal(workload)
    if refusal:
        return Finding("refused", refusal, workload.read_at)
    full = [f"{quota.name}: {', '.join(quota.full)}" for quota in workload.quotas if quota.full]
    if full:
        return Finding("full", "; ".join(full), workload.read_at)
    return Finding("free", "no quota is used up", workload.read_at)


PREDICTION = Prediction(
    id="admission",
    group="admission",
    question="does a quota refuse its pods?",
    source="kubernetes",
    oracle=Oracle.COMPONENT,
    look=look,
)
