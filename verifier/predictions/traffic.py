"""Whether more requests than usual come in."""

from __future__ import annotations

from catalog.evidence import Oracle
from sources.figures import GROWN, traffic_growth
from verifier.observations import Observations
from verifier.predictions import Finding, Prediction, measure_of, unknown


def look(observations: Observations) -> Finding:
    requests, usual = (measure_of(observations, name) for name in ("requests", "requests_usual"))
    if isinstance(requests, Finding):
        return requests
    if isinstance(usual, Finding):
        return usual
    growth = traffic_growth(observations.measures)
    if growth is None:
        return unknown(observations, "empty", "there was no traffic to compare with", link=requests.link)
    seen = f"{growth:.1f} times the usual traffic"
    if growth >= GROWN:
        return Finding("grown", seen, requests.at, link=requests.link)
    if growth <= 0.5:
        return Finding("fallen", seen, requests.at, link=requests.link)
    return Finding("usual", seen, requests.at, link=requests.link)


PREDICTION = Prediction(
    id="traffic",
    group="traffic",
    question="does more traffic than usual come in?",
    source="prometheus",
    oracle=Oracle.SERVICE_LEVEL,
    look=look,
)
