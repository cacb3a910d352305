"""Whether the alert's own expression is still true for the target. Asked of the rule, not of the alert, which `for` delays."""

from __future__ import annotations

from catalog.evidence import Oracle
from sources.figures import exporter_contradiction
from verifier.observations import Observations
from verifier.predictions import Finding, Prediction, unknown

_NO_NUMBER = frozenset({"nan", "inf"})


def look(observations: Observations) -> Finding:
    """`holds` if any of the incident's rules does, `over` only if all of them are known to be false."""
    if not observations.rules:
        late = any(read.startswith("rule ") for read in observations.late)
        fault = observations.faults.get("prometheus", "")
        return unknown(observations, "timeout" if late else "unreachable" if fault else "not_configured", fault)
    if frozen := _frozen(observations):
        return unknown(observations, "stale", frozen)
    for rule in observations.rules:
        if rule.holds:
            value = f" (value {rule.value:.4g})" if rule.value is not None else ""
            return Finding("holds", f"the expression of {rule.alert} is true for the target{value}", rule.at, link=rule.link)
    for rule in observations.rules:
        if rule.unknown in _NO_NUMBER:
            return Finding("not_a_number", f"the expression of {rule.alert} yields {rule.unknown}", rule.at, link=rule.link)
    first = next((rule for rule in observations.rules if rule.holds is None), None)
    if first is not None:
        return unknown(observations, first.unknown or "empty", f"{first.alert}: {first.detail or first.unknown}", link=first.link)
    rule = observations.rules[0]
    names = ", ".join(rule.alert for rule in observations.rules)
    return Finding("over", f"the expression of {names} is false for the target", rule.at, link=rule.link)


def _frozen(observations: Observations) -> str:
    """Why rules over kube-state-metrics say nothing now; '' when they can be believed or are not used."""
    workload = observations.workload
    if workload is None or not any("kube_" in rule.expression for rule in observations.rules):
        return ""
    return exporter_contradiction(workload, observations.measures)


PREDICTION = Prediction(
    id="rule_holds",
    group="alert_state",
    question="does the alert's expression still hold for the target?",
    source="prometheus",
    oracle=Oracle.ALERT,
    look=look,
)
