"""Whether containers wait for an image, a configuration or a volume."""

from __future__ import annotations

from catalog.evidence import Oracle
from sources.figures import TroubleKind, troubles
from verifier.observations import Observations
from verifier.predictions import Finding, Prediction, workload_of

_WAITS = ((TroubleKind.IMAGE, "image"), (TroubleKind.CONFIG, "config"), (TroubleKind.VOLUME, "volume"))


def look(observations: Observations) -> Finding:
    workload = workload_of(observations, "pods", "events")
    if isinstance(workload, Finding):
        return workload
    found = troubles(workload)
    for kind, value in _WAITS:
        first = next((trouble for trouble in found if trouble.kind is kind), None)
        if first is not None:
            return Finding(value, f"{first.pod}: {first.detail}", first.at or workload.read_at)
    return Finding("none", "no container waits for an image, a configuration or a volume", workload.read_at)


PREDICTION = Prediction(
    id="waiting",
    group="waiting",
    question="do its containers wait for something that the template names?",
    source="kubernetes",
    oracle=Oracle.COMPONENT,
    look=look,
)
