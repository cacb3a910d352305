"""Whether only pods of the newest revision fail, beside older ones that run."""

from __future__ import annotations

from catalog.evidence import Oracle
from sources.figures import TroubleKind, troubles
from verifier.observations import Observations
from verifier.predictions import NOT_APPLICABLE, Finding, Prediction, unknown, workload_of


def look(observations: Observations) -> Finding:
    workload = workload_of(observations, "pods", "replica_sets")
    if isinstance(workload, Finding):
        return workload
    older = [pod for pod in workload.pods if pod.newest is False]
    newer = [pod for pod in workload.pods if pod.newest]
    if not older or not newer or workload.release is None:
        return unknown(observations, NOT_APPLICABLE, "there are not pods of two releases side by side")
    failing = {trouble.pod for trouble in troubles(workload) if trouble.kind is not TroubleKind.UNSCHEDULABLE}
    if not failing:
        return unknown(observations, NOT_APPLICABLE, "no pod fails")
    if failing <= {pod.name for pod in newer}:
        seen = f"{len(failing)} pods of the newest revision fail, {len(older)} of the older run"
        return Finding("newest_only", seen, workload.read_at)
    return Finding("both", "pods of old and new revisions fail", workload.read_at)


PREDICTION = Prediction(
    id="revision_split",
    group="release",
    question="do only pods of the newest revision fail?",
    source="kubernetes",
    oracle=Oracle.COMPONENT,
    look=look,
)
