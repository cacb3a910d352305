"""`Symptoms`: everything triage saw of one incident, redacted and compact, stored so that the diagnosis can be made again.

At most 64 kB. What had to be cut is counted in `cut`, least telling first: healthy pods, old events, old revisions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from pydantic import Field

from catalog.alerts import AlertSeverity
from catalog.documents import Document, Instant, StoredDocument, canonical
from catalog.evidence import SourceName
from catalog.targets import Target, TargetFacts
from sources.readings import Measure, RuleReading, WorkloadReading

MAX_BYTES = 64_000
MAX_ALERTS = 50


class AlertSymptom(Document):
    """One alert of the incident, without its texts: what an annotation claims is never a symptom."""

    name: str
    fingerprint: str
    status: Literal["firing", "resolved"]
    severity: AlertSeverity
    starts_at: Instant
    labels: dict[str, str] = Field(default={})


class Symptoms(StoredDocument):
    """Input of a diagnosis."""

    incident_id: str
    at: Instant
    target: Target
    alerts: tuple[AlertSymptom, ...] = Field(min_length=1)
    facts: TargetFacts | None = None
    workload: WorkloadReading | None = None
    measures: dict[str, Measure] = Field(default={})
    rules: tuple[RuleReading, ...] = ()
    configured: tuple[SourceName, ...] = Field(default=(), description="sources this cluster has")
    faults: dict[SourceName, str] = Field(default={}, description="configured sources that could not be read, one sentence each")
    instructions_in: tuple[str, ...] = Field(
        default=(), description="places whose text reads like an order; quoted, never followed"
    )
    cut: dict[str, int] = Field(default={}, description="what was left out to stay compact, counted")
    took_ms: int = Field(default=0, ge=0)

    @property
    def degraded(self) -> tuple[str, ...]:
        """Sentences on what could not be read."""
        return tuple(self.faults[source] for source in sorted(self.faults))

    @property
    def began_at(self) -> Instant:
        """When the first of its alerts began."""
        return min(alert.starts_at for alert in self.alerts)

    @property
    def alert_names(self) -> tuple[str, ...]:
        return tuple(sorted({alert.name for alert in self.alerts}))

    @property
    def named_pods(self) -> tuple[str, ...]:
        """Pods that firing alerts name as what is broken (`exported_pod` before `pod`), sorted."""
        names = {
            alert.labels.get("exported_pod") or alert.labels.get("pod", "") for alert in self.alerts if alert.status == "firing"
        }
        return tuple(sorted(names - {""}))


def fitted(symptoms: Symptoms, limit: int = MAX_BYTES) -> Symptoms:
    """The same symptoms within `limit` bytes of canonical JSON, cut least telling first, each cut counted."""
    for step in _CUTS:
        if len(canonical(symptoms)) <= limit:
            break
        symptoms = step(symptoms)
    return symptoms


def _cut_pods(symptoms: Symptoms) -> Symptoms:
    """Healthy pods beyond the third."""
    workload = symptoms.workload
    if workload is None:
        return symptoms
    sick = tuple(pod for pod in workload.pods if not pod.ready)
    kept = sick[:10] + tuple(pod for pod in workload.pods if pod.ready)[:3]
    names = {pod.name for pod in kept} | {""}
    measures = {
        name: measure.model_copy(update={"by_pod": {pod: value for pod, value in measure.by_pod.items() if pod in names}})
        for name, measure in symptoms.measures.items()
    }
    return _with(symptoms, workload.model_copy(update={"pods": kept}), pods=len(workload.pods) - len(kept), measures=measures)


def _cut_events(symptoms: Symptoms) -> Symptoms:
    workload = symptoms.workload
    if workload is None:
        return symptoms
    return _with(symptoms, workload.model_copy(update={"events": workload.events[:8]}), events=max(0, len(workload.events) - 8))


def _cut_revisions(symptoms: Symptoms) -> Symptoms:
    workload = symptoms.workload
    if workload is None:
        return symptoms
    return _with(
        symptoms, workload.model_copy(update={"revisions": workload.revisions[:2]}), revisions=max(0, len(workload.revisions) - 2)
    )


def _cut_alerts(symptoms: Symptoms) -> Symptoms:
    alerts = tuple(alert.model_copy(update={"labels": _identity(alert.labels)}) for alert in symptoms.alerts[:10])
    return symptoms.model_copy(update={"alerts": alerts, "cut": _counted(symptoms.cut, alerts=len(symptoms.alerts) - len(alerts))})


def _cut_expressions(symptoms: Symptoms) -> Symptoms:
    rules = tuple(rule.model_copy(update={"expression": rule.expression[:200], "link": None}) for rule in symptoms.rules)
    measures = {
        name: measure.model_copy(update={"query": measure.query[:120], "link": None}) for name, measure in symptoms.measures.items()
    }
    return symptoms.model_copy(update={"rules": rules, "measures": measures, "cut": _counted(symptoms.cut, queries=len(rules))})


def _cut_facts(symptoms: Symptoms) -> Symptoms:
    if symptoms.facts is None:
        return symptoms
    facts = symptoms.facts.model_copy(update={"pods": symptoms.facts.pods[:5], "nodes": symptoms.facts.nodes[:5]})
    return symptoms.model_copy(update={"facts": facts})


_CUTS: tuple[Callable[[Symptoms], Symptoms], ...] = (
    _cut_events, _cut_revisions, _cut_alerts, _cut_expressions, _cut_facts, _cut_pods,
)  # fmt: skip
_IDENTITY = frozenset(
    {"alertname", "severity", "namespace", "pod", "container", "deployment", "statefulset", "daemonset", "node", "cluster",
     "exported_namespace", "exported_pod", "horizontalpodautoscaler", "service", "job_name"}
)  # fmt: skip


def _identity(labels: dict[str, str]) -> dict[str, str]:
    return {key: value[:253] for key, value in labels.items() if key in _IDENTITY}


def _counted(cut: dict[str, int], **counts: int) -> dict[str, int]:
    merged = dict(cut)
    for name, count in counts.items():
        if count > 0:
            merged[name] = merged.get(name, 0) + count
    return merged


def _with(symptoms: Symptoms, workload: WorkloadReading, *, measures: dict[str, Measure] | None = None, **counts: int) -> Symptoms:
    update: dict[str, object] = {"workload": workload, "cut": _counted(symptoms.cut, **counts)}
    if measures is not None:
        update["measures"] = measures
    return symptoms.model_copy(update=update)
