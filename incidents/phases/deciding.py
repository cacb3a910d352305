"""diagnosed → decided: the hypothesis is tested, the target read, the source asked; then the ladder decides, and all is stored."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlmodel.ext.asyncio.session import AsyncSession

from catalog.actions import Scale
from catalog.alerts import Alert, AlertSeverity
from catalog.cases import Case, FollowUp
from catalog.decisions import Decision, Route
from catalog.diagnoses import Diagnosis, Family, Hypothesis
from catalog.episodes import Phase
from catalog.events import EventKind
from catalog.evidence import Oracle
from catalog.orders import Check, CheckSource
from catalog.targets import Target
from incidents import metrics
from incidents.assessing import ConfirmAnswer, ConfirmRequest, Readings, VerifyAnswer, VerifyRequest
from incidents.casing import Findings, build_case
from incidents.phases.moving import enter
from incidents.phases.situations import read_document
from incidents.phases.telling import tell
from incidents.recording import append_event, store_document
from incidents.tables import IncidentRow
from incidents.transitions import Again
from incidents.worker import Assessor, WorkerError
from ladder.deciding import decide
from ladder.policy import Policy

SPARE_S = 5.0
"""What the worker is given beyond the verifier's own time: to start, to weigh, to answer."""


@dataclass(frozen=True)
class Verified:
    """What the outside said about a diagnosis."""

    diagnosis: Diagnosis
    answer: VerifyAnswer
    alerts: tuple[Alert, ...]
    follow_up: FollowUp | None = None


async def verify(
    worker: Assessor,
    policy: Policy,
    diagnosis: Diagnosis,
    target: Target,
    alerts: tuple[Alert, ...],
    *,
    follow_up: FollowUp | None = None,
) -> Verified:
    """Ask the worker. No answer is no evidence: it never blocks a decision, which then falls by itself.

    A follow-up has no hypothesis to test: only its live target is read.
    """
    cluster = policy.cluster_of(target.cluster_uid)
    if cluster is None:
        return _unverified(diagnosis, alerts, f"cluster {target.cluster} is not named in autonomy.yaml any more", follow_up)
    budget_s = policy.numbers.verifier_time.total_seconds()
    try:
        if follow_up is not None:
            asked = ConfirmRequest(cluster=cluster, target=target, alerts=())
            read = ConfirmAnswer.model_validate(await worker.ask("confirm", asked, patience_s=budget_s + SPARE_S))
            return Verified(diagnosis, VerifyAnswer(facts=read.facts), alerts, follow_up)
        request = VerifyRequest(
            cluster=cluster,
            diagnosis=diagnosis,
            target=target,
            alerts=alerts,
            service_level=service_level(policy, diagnosis.best.target),
            budget_s=budget_s,
        )
        with metrics.VERIFY_SECONDS.time():
            answer = VerifyAnswer.model_validate(await worker.ask("verify", request, patience_s=budget_s + SPARE_S))
    except WorkerError as error:
        return _unverified(diagnosis, alerts, f"not verified: {error}", follow_up)
    return Verified(diagnosis, answer, alerts)


def _unverified(diagnosis: Diagnosis, alerts: tuple[Alert, ...], reason: str, follow_up: FollowUp | None) -> Verified:
    return Verified(diagnosis, VerifyAnswer(readings=Readings(degraded=(reason,))), alerts, follow_up)


def service_level(policy: Policy, target: Target) -> tuple[Check, ...]:
    """The scope's service-level expressions as checks, for the verifier to evaluate now."""
    scope = policy.scope_for(target)
    if scope is None:
        return ()
    return tuple(
        Check(
            name=one.name,
            oracle=Oracle.SERVICE_LEVEL,
            source=CheckSource.PROMETHEUS,
            target=target,
            query=one.query,
            passing=one.passing,
            empty=one.empty,
            weight=one.weight,
        )
        for one in scope.checks
    )


async def keep_decision(session: AsyncSession, row: IncidentRow, verified: Verified, policy: Policy, now: datetime) -> Decision:
    """Build the case, decide, store every input and the decision, and go on to `decided`, in the caller's transaction."""
    answer = verified.answer
    _keep_evidence(session, row, answer, now)
    found = Findings(
        diagnosis=verified.diagnosis,
        evidence=answer.evidence,
        facts=answer.facts,
        alerts=verified.alerts,
        at_source=answer.readings.at_source,
        follow_up=verified.follow_up,
    )
    case = await build_case(session, row, found, policy, now)
    case, decision = await _decided(session, row, case, policy)
    case_id = store_document(session, row.id, "case", case, now=now).id
    decision_id = store_document(session, row.id, "decision", decision, now=now).id
    row.case_id, row.decision_id, row.decided_at = case_id, decision_id, now
    row.scope, row.family = decision.scope, case.family.value
    row.action, row.would_auto = case.action.action.value, decision.would_auto
    row.uid = _uid(row, answer) or row.uid
    enter(row, Phase.DECIDED, now)
    row.route = decision.route.value
    row.would_auto = row.would_auto or (decision.would_auto and decision.route is not Route.AUTO)
    append_event(session, row, EventKind.DECIDED, at=now, now=now, actor="bot", payload=_payload(decision, answer))
    metrics.DECISIONS.labels(decision.route.value).inc()
    await tell(session, policy, row, now)
    return decision


def _keep_evidence(session: AsyncSession, row: IncidentRow, answer: VerifyAnswer, now: datetime) -> None:
    if answer.observations is not None:
        store_document(session, row.id, "observations", answer.observations, now=now)
    store_document(session, row.id, "readings", answer.readings, now=now)
    if answer.evidence is None:
        row.evidence_id = None
        return
    evidence = answer.evidence
    row.evidence_id = store_document(session, row.id, "evidence", evidence, now=now).id
    payload = {
        "evidence_weight": evidence.evidence_weight,
        "refuted": evidence.refuted,
        "supporting": evidence.supporting,
        "refuting": evidence.refuting,
        "inconclusive": evidence.inconclusive,
        "tainted": evidence.tainted,
    }
    append_event(session, row, EventKind.VERIFIED, at=now, now=now, actor="bot", payload=payload)


async def _decided(session: AsyncSession, row: IncidentRow, case: Case, policy: Policy) -> tuple[Case, Decision]:
    """Decide, and once more as `unchanged` where the verdict is the last one's: people have heard it."""
    decision = decide(case, policy)
    before = await read_document(session, row.decision_id, Decision)
    told_again = row.again in (Again.AGE.value, Again.FAMILY.value, Again.NEW_START.value)
    if before is None or not told_again or decision.route is not Route.NOTIFY or decision.verdict != before.verdict:
        return case, decision
    case = case.model_copy(update={"unchanged": True})
    return case, decide(case, policy)


def _uid(row: IncidentRow, answer: VerifyAnswer) -> str | None:
    """The live UID of the incident's own target; a derived target's says nothing of it."""
    facts = answer.facts
    return (
        facts.target.uid if facts is not None and facts.target.key == (row.cluster_uid, row.namespace, row.kind, row.name) else None
    )


def _payload(decision: Decision, answer: VerifyAnswer) -> dict[str, Any]:
    gate = decision.deciding_gate
    return {
        "route": decision.route.value,
        "action": decision.action.action.value,
        "would_auto": decision.would_auto,
        "gate": None if gate is None else gate.gate.value,
        "sentence": "" if gate is None else gate.sentence,
        "rung": int(decision.rung),
        "policy_hash": decision.policy_hash,
        "degraded": list(answer.degraded),
    }


# follow-ups ------------------------------------------------------------------------------------------------------------------


def follow_up_diagnosis(
    incident_id: str, target: Target, original: Scale, current: int, family: Family, now: datetime
) -> Diagnosis | None:
    """Take a committed scale-up back, at most half of what runs in one step. None: somebody did already."""
    to_replicas = max(original.from_replicas, math.ceil(current / 2))
    if to_replicas >= current:
        return None
    statement = f"Load that called for {original.to_replicas} replicas has passed; {original.from_replicas} carried it before."
    hypothesis = Hypothesis(
        family=family,
        statement=statement,
        confidence=0.5,
        action=Scale(from_replicas=current, to_replicas=to_replicas),
        target=target,
    )
    return Diagnosis(incident_id=incident_id, at=now, severity=AlertSeverity.WARNING, hypotheses=(hypothesis,))
