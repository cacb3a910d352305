"""How containers ended: out of memory, by an error of their own, by a probe, or never started.

Exit code 137 alone proves nothing: the kernel's OOM killer and a failed liveness probe both end a process with it.
"""

from __future__ import annotations

from catalog.evidence import Oracle
from sources.figures import TroubleKind, troubles
from verifier.observations import Observations
from verifier.predictions import Finding, Prediction, unknown, workload_of

_ENDS = (
    (TroubleKind.OUT_OF_MEMORY, "oom_killed"),
    (TroubleKind.CANNOT_START, "cannot_start"),
    (TroubleKind.CRASH, "error_exit"),
    (TroubleKind.PROBE_KILL, "probe_killed"),
)


def look(observations: Observations) -> Finding:
    """The most telling end of the last quarter of an hour, or `none`."""
    workload = workload_of(observations, "pods")
    if isinstance(workload, Finding):
        return workload
    found = troubles(workload)
    for kind, value in _ENDS:
        same = [trouble for trouble in found if trouble.kind is kind]
        if same:
            others = f" and {len(same) - 1} more" if len(same) > 1 else ""
            return Finding(value, f"{same[0].pod}: {same[0].detail}{others}", workload.read_at)
    killed = next((trouble for trouble in found if trouble.kind is TroubleKind.KILLED), None)
    if killed is not None:
        return unknown(observations, "ambiguous", f"{killed.pod}: {killed.detail}; nothing says who killed it")
    return Finding("none", "no container ended within the last 15 minutes", workload.read_at)


PREDICTION = Prediction(
    id="termination",
    group="termination",
    question="how did its containers end?",
    source="kubernetes",
    oracle=Oracle.COMPONENT,
    look=look,
)
