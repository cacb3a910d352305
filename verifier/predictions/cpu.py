"""Whether the pods use up the CPU they may have."""

from __future__ import annotations

from statistics import median

from catalog.evidence import Oracle
from sources.figures import SATURATED, cpu_shares
from verifier.observations import Observations
from verifier.predictions import Finding, Prediction, measure_of, unknown, workload_of


def look(observations: Observations) -> Finding:
    workload = workload_of(observations, "pods")
    if isinstance(workload, Finding):
        return workload
    cpu = measure_of(observations, "cpu")
    if isinstance(cpu, Finding):
        return cpu
    shares = cpu_shares(workload, observations.measures)
    if not shares:
        return unknown(observations, "no_limit", "no pod has a CPU limit or request to compare with", link=cpu.link)
    usual, hottest = median(shares.values()), max(shares, key=lambda pod: (shares[pod], pod))
    if usual >= SATURATED and min(shares.values()) >= 0.5 * usual:
        return Finding("saturated", f"CPU at {usual:.0%} over {len(shares)} pods", cpu.at, link=cpu.link)
    if shares[hottest] >= SATURATED:
        return Finding("one_hot", f"{hottest} at {shares[hottest]:.0%}, the others at {usual:.0%}", cpu.at, link=cpu.link)
    if len(shares) < len(workload.pods):
        return unknown(observations, "empty", f"only {len(shares)} of {len(workload.pods)} pods have samples", link=cpu.link)
    if usual >= 0.7 * SATURATED:
        return unknown(observations, "between", f"CPU at {usual:.0%}, neither saturated nor relaxed", link=cpu.link)
    return Finding("relaxed", f"CPU at {usual:.0%} over {len(shares)} pods", cpu.at, link=cpu.link)


PREDICTION = Prediction(
    id="cpu",
    group="cpu",
    question="is its CPU used up?",
    source="prometheus",
    oracle=Oracle.SERVICE_LEVEL,
    look=look,
)
