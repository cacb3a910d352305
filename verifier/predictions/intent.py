"""Whether the present state is what somebody asked for."""

from __future__ import annotations

from catalog.evidence import Oracle
from sources.figures import TroubleKind, rolling_out, troubles
from verifier.observations import Observations
from verifier.predictions import NOT_APPLICABLE, Finding, Prediction, unknown, workload_of


def look(observations: Observations) -> Finding:
    workload = workload_of(observations)
    if isinstance(workload, Finding):
        return workload
    if workload.desired is None:
        return unknown(observations, NOT_APPLICABLE, "it has no replica count")
    if workload.desired == 0:
        by = f" by {workload.replicas_set_by}" if workload.replicas_set_by else ""
        return Finding("zero", f"it is scaled to 0{by}", workload.read_at)
    if rolling_out(workload) and all(trouble.kind is TroubleKind.UNREADY for trouble in troubles(workload)):
        return Finding("rolling", "a roll-out is under way, within its progress deadline", workload.read_at)
    return Finding("wanted", f"{workload.desired} pods are wanted and no roll-out explains the state", workload.read_at)


PREDICTION = Prediction(
    id="intent",
    group="intent",
    question="is it meant to be so?",
    source="kubernetes",
    oracle=Oracle.COMPONENT,
    look=look,
)
