"""Whether the scope's own service-level checks fail."""

from __future__ import annotations

from catalog.evidence import Oracle
from verifier.observations import Observations
from verifier.predictions import Finding, Prediction, unknown


def look(observations: Observations) -> Finding:
    """`failing` if any check fails; `passing` only if every one is known to pass."""
    levels = observations.levels
    if not levels:
        late = any(read.startswith("check ") for read in observations.late)
        return unknown(observations, "timeout" if late else "not_configured", "the scope declares no service-level check")
    for level in levels:
        if level.state == "failing":
            return Finding("failing", f"check {level.name} fails: {level.seen}", level.at, link=level.link)
    blind = next((level for level in levels if level.state == "unknown"), None)
    if blind is not None:
        return unknown(
            observations, blind.unknown or "empty", f"check {blind.name} cannot be told ({blind.unknown})", link=blind.link
        )
    return Finding("passing", f"all {len(levels)} service-level checks pass", levels[0].at, link=levels[0].link)


PREDICTION = Prediction(
    id="level_checks",
    group="level_checks",
    question="do the scope's service-level checks fail?",
    source="prometheus",
    oracle=Oracle.SERVICE_LEVEL,
    look=look,
)
