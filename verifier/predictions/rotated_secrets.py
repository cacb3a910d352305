"""Whether a Secret changed after the pods took it over at their start. Its version is read, never its value."""

from __future__ import annotations

from catalog.evidence import Oracle
from verifier.observations import Observations
from verifier.predictions import NOT_APPLICABLE, Finding, Prediction, measure_of, unknown, workload_of


def look(observations: Observations) -> Finding:
    workload = workload_of(observations)
    if isinstance(workload, Finding):
        return workload
    if not workload.secrets:
        return unknown(observations, NOT_APPLICABLE, "its environment takes no Secret")
    measure = measure_of(observations, "secrets_rotated")
    if isinstance(measure, Finding):
        return measure
    changed = sorted(name for name, value in measure.by_pod.items() if value)
    if changed:
        return Finding("rotated", f"Secret {', '.join(changed)} changed after the pods started", measure.at, link=measure.link)
    return Finding("unchanged", "its Secrets are those the pods started with", measure.at, link=measure.link)


PREDICTION = Prediction(
    id="rotated_secrets",
    group="stale",
    question="did a Secret change after its pods started?",
    source="prometheus",
    oracle=Oracle.COMPONENT,
    look=look,
)
