"""What the worker process does: triage, verification, confirming an end, counting a cluster. Documents in, documents out.

Everything is read-only and has a budget. What could not be read is named in the answer and never replaced; only a defect raises.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import Field

from catalog.alerts import Alert
from catalog.clocks import Clock, SystemClock
from catalog.clusters import Cluster
from catalog.diagnoses import Diagnosis
from catalog.documents import Document, StoredDocument, digest
from catalog.evidence import Evidence
from catalog.marks import OPT_IN_LABEL, OPT_IN_VALUE
from catalog.orders import Check
from catalog.targets import Target, TargetFacts
from incidents.storms import Census
from ladder.checking import AlertExpression
from sources.endpoints import SourceSet, open_sources
from sources.errors import SourceError, SourceUnavailable
from sources.kubernetes import KubernetesReader
from sources.matching import series_matchers
from sources.workloads import read_facts
from triage.diagnosing import diagnose
from triage.gathering import gather
from triage.symptoms import Symptoms
from verifier.observations import Observations
from verifier.observing import observe
from verifier.weighing import weigh

SOURCE_BUDGET_S = 3.0
FACTS_BUDGET_S = 6.0
CENSUS_BUDGET_S = 15.0
MAX_ASKED_ALERTS = 10

_T = TypeVar("_T")


class TriageRequest(Document):
    """An incident to be diagnosed. `budget_s` bounds all reading."""

    cluster: Cluster
    incident_id: str
    target: Target
    alerts: tuple[Alert, ...] = Field(min_length=1)
    budget_s: float = 20.0


class TriageAnswer(Document):
    symptoms: Symptoms
    diagnosis: Diagnosis


class VerifyRequest(Document):
    """A diagnosis to be tested, and everything else a decision needs from the outside."""

    cluster: Cluster
    diagnosis: Diagnosis
    target: Target
    alerts: tuple[Alert, ...]
    service_level: tuple[Check, ...] = ()
    budget_s: float = 10.0


class AlertAtSource(Document):
    """One alert asked of Alertmanager just now. None: could not be asked."""

    fingerprint: str
    firing: bool | None = None
    silenced: bool | None = None


class Readings(StoredDocument):
    """What was asked beside the hypothesis. Intervals of Prometheus in seconds; None: could not be asked."""

    at_source: tuple[AlertAtSource, ...] = ()
    expressions: tuple[AlertExpression, ...] = Field(default=(), description="rules of the alerts, one per family that was found")
    scrape_interval: float | None = None
    evaluation_interval: float | None = None
    degraded: tuple[str, ...] = ()


class VerifyAnswer(Document):
    """`evidence` None: the verifier gave no answer in time; triage goes on without."""

    observations: Observations | None = None
    evidence: Evidence | None = None
    facts: TargetFacts | None = None
    readings: Readings = Readings()

    @property
    def degraded(self) -> tuple[str, ...]:
        """What could not be read, one sentence each."""
        return self.readings.degraded


class ConfirmRequest(Document):
    """Alerts that are said to be over, or a watch that is."""

    cluster: Cluster
    target: Target
    alerts: tuple[Alert, ...]


class ConfirmAnswer(Document):
    """`still_firing` None: the source could not be asked, or not about every alert. `firing`: fingerprints that do fire."""

    still_firing: bool | None = None
    firing: tuple[str, ...] = ()
    facts: TargetFacts | None = None


class CensusRequest(Document):
    cluster: Cluster


class SourceShelf:
    """Open sources by cluster, made when first needed and again when the cluster's entry changes."""

    def __init__(self, redactor_key: bytes, clock: Clock) -> None:
        self.clock = clock
        self._key = redactor_key
        self._open: dict[str, tuple[str, SourceSet]] = {}
        self._opening = asyncio.Lock()

    async def of(self, cluster: Cluster) -> SourceSet:
        """The sources of one cluster.

        Raises:
            SourceError: the way to them is described wrongly.
        """
        wanted = digest(cluster)
        async with self._opening:
            known = self._open.get(cluster.uid)
            if known is not None and known[0] == wanted:
                return known[1]
            if known is not None:
                await known[1].close()
                del self._open[cluster.uid]
            opened = await open_sources(cluster, self.clock, self._key)
            self._open[cluster.uid] = (wanted, opened)
            return opened

    async def close(self) -> None:
        """Give back every connection."""
        for _, sources in self._open.values():
            await sources.close()
        self._open.clear()


def open_bench(key: bytes) -> SourceShelf:
    """What a worker keeps between tasks."""
    return SourceShelf(key, SystemClock())


async def triage(bench: SourceShelf, body: Mapping[str, Any]) -> TriageAnswer:
    """Gather and diagnose."""
    request = TriageRequest.model_validate(body)
    sources = await bench.of(request.cluster)
    symptoms = await gather(request.incident_id, request.target, request.alerts, sources, budget_s=request.budget_s)
    return TriageAnswer(symptoms=symptoms, diagnosis=diagnose(symptoms))


async def verify(bench: SourceShelf, body: Mapping[str, Any]) -> VerifyAnswer:
    """Test the hypothesis, read the live target, and ask the source whether the alerts fire: side by side."""
    request = VerifyRequest.model_validate(body)
    sources = await bench.of(request.cluster)
    best = request.diagnosis.best
    observations, facts, at_source, expressions, intervals = await asyncio.gather(
        _within(request.budget_s + 1, _observe(request, sources)),
        _within(FACTS_BUDGET_S, read_facts(sources.kubernetes, best.target, bench.clock)),
        _ask_about(sources, request.alerts),
        _expressions(sources, request),
        _intervals(sources),
    )
    seen = observations if isinstance(observations, Observations) else None
    unread = tuple(
        f"{what} gave no answer: {found}"
        for what, found in (("the verifier", observations), ("the live target", facts))
        if isinstance(found, Exception)
    )
    return VerifyAnswer(
        observations=seen,
        evidence=weigh(seen) if seen is not None else None,
        facts=facts if isinstance(facts, TargetFacts) else None,
        readings=Readings(
            at_source=at_source,
            expressions=expressions,
            scrape_interval=intervals[0],
            evaluation_interval=intervals[1],
            degraded=unread,
        ),
    )


async def confirm(bench: SourceShelf, body: Mapping[str, Any]) -> ConfirmAnswer:
    """Ask the source whether any of the alerts still fires, and read the target as it is now."""
    request = ConfirmRequest.model_validate(body)
    sources = await bench.of(request.cluster)
    asked, facts = await asyncio.gather(
        _ask_about(sources, request.alerts), _within(FACTS_BUDGET_S, read_facts(sources.kubernetes, request.target, bench.clock))
    )
    return ConfirmAnswer(
        still_firing=_any_firing([one.firing for one in asked]),
        firing=tuple(one.fingerprint for one in asked if one.firing),
        facts=facts if isinstance(facts, TargetFacts) else None,
    )


async def census(bench: SourceShelf, body: Mapping[str, Any]) -> Census:
    """How many workloads are opted in, and how many nodes are not ready."""
    request = CensusRequest.model_validate(body)
    kubernetes = (await bench.of(request.cluster)).kubernetes
    namespaces, nodes = await asyncio.gather(
        _within(CENSUS_BUDGET_S, kubernetes.list("/api/v1/namespaces", label_selector=f"{OPT_IN_LABEL}={OPT_IN_VALUE}")),
        _within(CENSUS_BUDGET_S, kubernetes.list("/api/v1/nodes")),
    )
    names = None if isinstance(namespaces, Exception) else tuple(sorted(one["metadata"]["name"] for one in namespaces))
    return Census(
        namespaces=names,
        workloads=None if names is None else await _count_workloads(kubernetes, names),
        nodes_not_ready=None if isinstance(nodes, Exception) else sum(not _ready(node) for node in nodes),
    )


TASKS: dict[str, Callable[[SourceShelf, Mapping[str, Any]], Awaitable[Document]]] = {
    "triage": triage,
    "verify": verify,
    "confirm": confirm,
    "census": census,
}


async def _within(seconds: float, reading: Awaitable[_T]) -> _T | SourceError | TimeoutError:
    """What was read, or why it could not be: in time, or not at all."""
    try:
        async with asyncio.timeout(seconds):
            return await reading
    except TimeoutError:
        return TimeoutError(f"no answer within {seconds:g} s")
    except SourceError as error:
        return error


async def _observe(request: VerifyRequest, sources: SourceSet) -> Observations:
    best = request.diagnosis.best
    return await observe(
        request.diagnosis,
        best.target,
        request.alerts,
        sources,
        service_level=request.service_level,
        budget_s=request.budget_s,
    )


async def _expressions(sources: SourceSet, request: VerifyRequest) -> tuple[AlertExpression, ...]:
    """The rule behind each family, so that an order can ask later whether it still holds. One that is not found is left out."""
    prometheus = sources.prometheus
    if prometheus is None:
        return ()
    families = _newest(request.alerts)
    found = await asyncio.gather(*(_within(SOURCE_BUDGET_S, prometheus.rule_expression(one.name, one.labels)) for one in families))
    return tuple(
        AlertExpression(
            alertname=alert.name,
            expression=expression,
            target=request.target,
            series=series_matchers(request.target, alert.labels),
            opened=True,
        )
        for alert, expression in zip(families, found, strict=True)
        if isinstance(expression, str)
    )


def _newest(alerts: Sequence[Alert]) -> list[Alert]:
    """The newest alert of each family, at most `MAX_ASKED_ALERTS`."""
    newest: dict[str, Alert] = {}
    for alert in sorted(alerts, key=lambda one: one.starts_at):
        newest[alert.name] = alert
    return list(newest.values())[:MAX_ASKED_ALERTS]


async def _ask_about(sources: SourceSet, alerts: Sequence[Alert]) -> tuple[AlertAtSource, ...]:
    """Ask Alertmanager about the newest alert of each family."""
    return tuple(await asyncio.gather(*(_ask(sources, alert) for alert in _newest(alerts))))


async def _ask(sources: SourceSet, alert: Alert) -> AlertAtSource:
    if sources.alertmanager is None:
        return AlertAtSource(fingerprint=alert.fingerprint)
    firing, silenced = await asyncio.gather(
        _within(SOURCE_BUDGET_S, sources.alertmanager.firing(alert.labels, alert.fingerprint)),
        _within(SOURCE_BUDGET_S, sources.alertmanager.silenced(alert.labels)),
    )
    return AlertAtSource(
        fingerprint=alert.fingerprint,
        firing=firing if isinstance(firing, bool) else None,
        silenced=silenced if isinstance(silenced, bool) else None,
    )


def _any_firing(answers: Sequence[bool | None]) -> bool | None:
    """Whether anything fires. One that does settles it; otherwise one that could not be asked leaves it open."""
    if any(answers):
        return True
    return None if None in answers else False


async def _intervals(sources: SourceSet) -> tuple[float | None, float | None]:
    if sources.prometheus is None:
        return None, None
    scrape, evaluation = await asyncio.gather(
        _within(SOURCE_BUDGET_S, sources.prometheus.scrape_interval()),
        _within(SOURCE_BUDGET_S, sources.prometheus.evaluation_interval()),
    )
    return (
        None if isinstance(scrape, Exception) else scrape,
        None if isinstance(evaluation, Exception) else evaluation,
    )


async def _count_workloads(kubernetes: KubernetesReader, namespaces: Sequence[str]) -> int | None:
    """Deployments, StatefulSets and DaemonSets of these namespaces, counted without reading them. None: could not be counted."""
    counted = await _within(
        CENSUS_BUDGET_S,
        asyncio.gather(
            *(
                _count(kubernetes, f"/apis/apps/v1/namespaces/{namespace}/{plural}")
                for namespace in namespaces
                for plural in ("deployments", "statefulsets", "daemonsets")
            )
        ),
    )
    return None if isinstance(counted, Exception) else sum(counted)


async def _count(kubernetes: KubernetesReader, path: str) -> int:
    page = await kubernetes.table(path, 1)
    shown = len(page.get("rows") or page.get("items") or ())
    metadata = page.get("metadata") or {}
    if metadata.get("continue") and "remainingItemCount" not in metadata:
        raise SourceUnavailable("kubernetes", "malformed", f"{path} does not say how many more there are")
    return shown + int(metadata.get("remainingItemCount") or 0)


def _ready(node: Mapping[str, Any]) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)
