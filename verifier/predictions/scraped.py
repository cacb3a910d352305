"""Whether the pods that Kubernetes has ready are scraped at all."""

from __future__ import annotations

from catalog.evidence import Oracle
from verifier.observations import Observations
from verifier.predictions import Finding, Prediction, measure_of, unknown, workload_of


def look(observations: Observations) -> Finding:
    workload = workload_of(observations, "pods")
    if isinstance(workload, Finding):
        return workload
    scraped = measure_of(observations, "scraped")
    if isinstance(scraped, Finding):
        return scraped
    ready = {pod.name for pod in workload.pods if pod.ready}
    asked = {pod: value for pod, value in scraped.by_pod.items() if pod in ready}
    if not asked:
        return unknown(observations, "empty", "none of its ready pods is a target of Prometheus", link=scraped.link)
    if not any(asked.values()):
        return Finding("ready_but_unscraped", f"{len(asked)} pods are ready and none can be scraped", scraped.at, link=scraped.link)
    return Finding(
        "scraped",
        f"{sum(1 for value in asked.values() if value)} of {len(asked)} ready pods are scraped",
        scraped.at,
        link=scraped.link,
    )


PREDICTION = Prediction(
    id="scraped",
    group="telemetry",
    question="can its ready pods be scraped?",
    source="prometheus",
    oracle=Oracle.SERVICE_LEVEL,
    look=look,
)
