"""Whether Alertmanager still has the alert as firing."""

from __future__ import annotations

from catalog.evidence import Oracle
from verifier.observations import Observations
from verifier.predictions import Finding, Prediction, unknown


def look(observations: Observations) -> Finding:
    """`firing` if any of the incident's alerts is, `gone` only if all are known not to be."""
    readings = observations.firing
    if not readings:
        late = any(read.startswith("alert ") for read in observations.late)
        return unknown(observations, "timeout" if late else "not_configured")
    for reading in readings:
        if reading.firing:
            return Finding("firing", f"Alertmanager has {reading.alert} as firing", reading.at)
    first = next((reading for reading in readings if reading.firing is None), None)
    if first is not None:
        return unknown(observations, first.unknown or "unreachable", observations.faults.get("alertmanager", ""))
    return Finding("gone", f"Alertmanager has no firing {', '.join(reading.alert for reading in readings)}", readings[0].at)


PREDICTION = Prediction(
    id="alert_firing",
    group="alert_state",
    question="is the alert firing at its source?",
    source="alertmanager",
    oracle=Oracle.ALERT,
    look=look,
)
