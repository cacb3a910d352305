"""How many pods are ready, of those that run."""

from __future__ import annotations

from catalog.evidence import Oracle
from sources.figures import idle_pod
from verifier.observations import Observations
from verifier.predictions import NOT_APPLICABLE, Finding, Prediction, unknown, workload_of


def look(observations: Observations) -> Finding:
    workload = workload_of(observations, "pods")
    if isinstance(workload, Finding):
        return workload
    if workload.desired is None or workload.desired == 0:
        return unknown(observations, NOT_APPLICABLE, "it wants no pods")
    unready = [pod for pod in workload.pods if not pod.ready]
    if not unready and workload.pods_total >= workload.desired:
        return Finding("all_ready", f"all {workload.pods_total} pods are ready", workload.read_at)
    idle = idle_pod(workload)
    if idle is not None:
        return Finding("one_unready", f"{idle} runs and is not ready, its siblings are", workload.read_at)
    if workload.pods_total and len(unready) == workload.pods_total:
        return Finding("all_unready", f"none of {workload.pods_total} pods is ready", workload.read_at)
    ready = workload.pods_total - len(unready)
    return Finding("some_unready", f"{ready} of {max(workload.desired, workload.pods_total)} pods are ready", workload.read_at)


PREDICTION = Prediction(
    id="readiness",
    group="readiness",
    question="are its pods ready?",
    source="kubernetes",
    oracle=Oracle.COMPONENT,
    look=look,
)
