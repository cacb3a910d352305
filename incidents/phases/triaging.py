"""open → diagnosed: triage runs in the worker process. It is never blocked: what cannot be read is said, not waited for."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlmodel.ext.asyncio.session import AsyncSession

from catalog.alerts import Alert, AlertSeverity
from catalog.clusters import Cluster
from catalog.diagnoses import Diagnosis, Family, Hypothesis
from catalog.episodes import Phase
from catalog.events import EventKind
from catalog.targets import Target
from incidents import metrics
from incidents.assessing import TriageAnswer, TriageRequest
from incidents.phases.moving import enter
from incidents.phases.telling import tell
from incidents.recording import append_event, store_document
from incidents.tables import IncidentRow
from incidents.transitions import Situation
from incidents.worker import Assessor
from ladder.policy import Policy

READING_SHARE = 2 / 3
"""The part of the time for triage that reading may take; the rest is for starting the process and for judging."""


@dataclass(frozen=True)
class Seen:
    """The families and the worst severity that fired when triage was asked: whatever fires later is new."""

    incident_id: str
    names: frozenset[str]
    severity: AlertSeverity

    @classmethod
    def of(cls, incident_id: str, situation: Situation) -> Seen:
        """All of them, however many alerts triage itself is shown."""
        worst = max((alert.severity for alert in situation.firing), key=lambda one: one.rank, default=AlertSeverity.WARNING)
        return cls(incident_id, frozenset(alert.name for alert in situation.firing), worst)


@dataclass(frozen=True)
class Triaged:
    """What triage brought back. `answer` None: it gave none."""

    diagnosis: Diagnosis
    answer: TriageAnswer | None
    seen: Seen


async def triage(
    worker: Assessor, cluster: Cluster, target: Target, alerts: tuple[Alert, ...], seen: Seen, *, patience_s: float
) -> Triaged:
    """Ask the worker.

    Raises:
        WorkerError: no diagnosis; try again, or go on with `without_diagnosis`.
    """
    request = TriageRequest(
        cluster=cluster, incident_id=seen.incident_id, target=target, alerts=alerts, budget_s=patience_s * READING_SHARE
    )
    with metrics.TRIAGE_SECONDS.time():
        answer = TriageAnswer.model_validate(await worker.ask("triage", request, patience_s=patience_s))
    return Triaged(answer.diagnosis, answer, seen)


def without_diagnosis(target: Target, seen: Seen, reason: str, now: datetime) -> Triaged:
    """What is said when triage gives no answer however often it is asked: nothing is known and nothing is recommended."""
    statement = "The cause could not be looked into."
    diagnosis = Diagnosis(
        incident_id=seen.incident_id,
        at=now,
        severity=seen.severity,
        hypotheses=(Hypothesis(family=Family.UNKNOWN, statement=statement, confidence=0.0, target=target),),
        degraded=(reason,),
    )
    return Triaged(diagnosis, None, seen)


async def keep_diagnosis(session: AsyncSession, policy: Policy, row: IncidentRow, triaged: Triaged, now: datetime) -> None:
    """Store symptoms and diagnosis and go on to `diagnosed`, in the caller's transaction."""
    diagnosis = triaged.diagnosis
    payload: dict[str, Any] = {
        "family": diagnosis.best.family.value,
        "statement": diagnosis.best.statement,
        "action": diagnosis.best.action.action.value,
        "confidence": diagnosis.best.confidence,
        "severity": diagnosis.severity.value,
        "degraded": list(diagnosis.degraded),
    }
    if triaged.answer is not None:
        payload["symptoms_id"] = store_document(session, row.id, "symptoms", triaged.answer.symptoms, now=now).id
    stored = store_document(session, row.id, "diagnosis", diagnosis, now=now)
    payload["diagnosis_id"] = stored.id
    row.diagnosis_id, row.evidence_id = stored.id, None
    row.family = diagnosis.best.family.value
    row.judged_names = json.dumps(sorted(triaged.seen.names))
    row.judged_severity = triaged.seen.severity.value
    enter(row, Phase.DIAGNOSED, now)
    append_event(session, row, EventKind.DIAGNOSED, at=now, now=now, actor="bot", payload=payload)
    await tell(session, policy, row, now)
