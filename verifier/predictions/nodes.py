"""The nodes under the target, or the node that is the target."""

from __future__ import annotations

from catalog.evidence import Oracle
from catalog.targets import TargetKind
from verifier.observations import Observations
from verifier.predictions import Finding, Prediction, unknown, workload_of


def look(observations: Observations) -> Finding:
    workload = workload_of(observations, "nodes")
    if isinstance(workload, Finding):
        return workload
    if not workload.nodes:
        return unknown(observations, "empty", "no node runs its pods")
    lost = {node.name for node in workload.nodes if node.ready in ("False", "Unknown")}
    hit = [pod for pod in workload.pods if pod.node in lost and not pod.ready]
    if lost and (hit or observations.target.kind is TargetKind.NODE):
        return Finding("lost", f"{', '.join(sorted(lost))} not ready, {len(hit)} of its pods with it", workload.read_at)
    pressed = [node for node in workload.nodes if node.pressures]
    if pressed:
        return Finding("pressure", f"{pressed[0].name} reports {', '.join(pressed[0].pressures)}", workload.read_at)
    if lost or any(not node.ready for node in workload.nodes):
        return unknown(observations, "ambiguous", "a node is not ready while the pods on it are")
    return Finding("fine", f"{len(workload.nodes)} nodes are ready and without pressure", workload.read_at)


PREDICTION = Prediction(
    id="nodes",
    group="nodes",
    question="are its nodes ready?",
    source="kubernetes",
    oracle=Oracle.COMPONENT,
    look=look,
)
