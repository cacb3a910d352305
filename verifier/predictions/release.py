"""Whether a release began shortly before the first alert. A restart makes a revision too, and is no release."""

from __future__ import annotations

from catalog.evidence import Oracle
from catalog.targets import TargetKind
from sources.figures import RELEASE_WINDOW, released_before
from verifier.observations import Observations
from verifier.predictions import NOT_APPLICABLE, Finding, Prediction, unknown, workload_of


def look(observations: Observations) -> Finding:
    workload = workload_of(observations, "replica_sets")
    if isinstance(workload, Finding):
        return workload
    if observations.target.kind is not TargetKind.DEPLOYMENT:
        return unknown(observations, NOT_APPLICABLE, "revisions are read of Deployments only")
    released = released_before(workload, observations.alerts_since)
    if released is None:
        return unknown(observations, "empty", "no revision of it is kept")
    at, release = workload.released_at, workload.release
    if released and at is not None and release is not None:
        minutes = max(0.0, (observations.alerts_since - at).total_seconds() / 60)
        return Finding("released", f"revision {release.revision} was released {minutes:.0f} min before the alert", workload.read_at)
    only = workload.revisions[-1]
    if len(workload.revisions) == 1 and only.created_at and only.created_at >= observations.alerts_since - RELEASE_WINDOW:
        return Finding("first_release", f"revision {only.revision}, the only one, is that new", workload.read_at)
    return Finding("no_release", "no release began within the hour before the alert", workload.read_at)


PREDICTION = Prediction(
    id="release",
    group="release",
    question="was there a release shortly before?",
    source="kubernetes",
    oracle=Oracle.COMPONENT,
    look=look,
)
