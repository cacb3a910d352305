"""Gathering a `Case`: everything one decision may look at, once, from the database and from what the worker brought back."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, cast

from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from catalog.actions import RemediationAction
from catalog.alerts import Alert, AlertState
from catalog.cases import Case, CaseAlert, EvidenceSummary, FollowUp, StandingRecord
from catalog.diagnoses import Diagnosis
from catalog.documents import VersionVector
from catalog.evidence import Evidence
from catalog.targets import Provenance, Target, TargetFacts
from incidents.assessing import AlertAtSource
from incidents.calibrating import calibration_of
from incidents.ledger import ledger_of
from incidents.standings import standing_record
from incidents.storms import storm_state
from incidents.switches import switches_for
from incidents.tables import AlertRow, IncidentRow, ProposalRow
from ladder.policy import Policy


@dataclass(frozen=True)
class Findings:
    """What the outside said: the parts of a case that no database holds."""

    diagnosis: Diagnosis
    evidence: Evidence | None
    facts: TargetFacts | None
    alerts: tuple[Alert, ...]
    at_source: tuple[AlertAtSource, ...] = ()
    follow_up: FollowUp | None = None


async def build_case(session: AsyncSession, row: IncidentRow, found: Findings, policy: Policy, now: datetime) -> Case:
    """The case of one incident now. Reads only by indexed queries; its cost does not grow with the history."""
    best = found.diagnosis.best
    case = Case(
        incident_id=row.id,
        now=now,
        origin=cast(Literal["alert", "follow_up"], row.origin),
        alerts=case_alerts(found.alerts, found.at_source),
        target=best.target,
        target_invalid=_another_target(row, found.diagnosis),
        provenance=best.provenance,
        edge=best.edge,
        facts=found.facts,
        action=best.action,
        family=best.family,
        statement=best.statement,
        confidence=best.confidence,
        severity=found.diagnosis.severity,
        anti_actions=found.diagnosis.anti_actions,
        evidence=None if found.evidence is None else EvidenceSummary.of(found.evidence),
        follow_up=found.follow_up,
        rejected_by=await rejected_by(session, row, best.action.action),
        versions=versions(found, policy),
    )
    return await refreshed(session, case, policy, now)


async def refreshed(session: AsyncSession, case: Case, policy: Policy, now: datetime) -> Case:
    """The same case with everything the database holds read anew: switches, storm, ledger, standing and calibration."""
    return case.model_copy(
        update={
            "now": now,
            "standing": _of_action(await standing_record(session, policy, case.target), case.action.action),
            "calibration": await calibration_of(session, policy, case.family, case.action.action),
            "ledger": await ledger_of(session, case.target, policy.scope_for(case.target), now),
            "switches": await switches_for(session, scopes_of(policy, case.target), now, override=case.switches.override_reason),
            "storm": await storm_state(session, case.target.cluster_uid),
        }
    )


def _of_action(record: StandingRecord, action: RemediationAction) -> StandingRecord:
    """What was earned with other actions says nothing of this one, and a case has 64 kB."""
    return StandingRecord(
        changes=tuple(one for one in record.changes if one.action is action),
        outcomes=tuple(one for one in record.outcomes if one.action is action),
    )


def case_alerts(alerts: tuple[Alert, ...], at_source: tuple[AlertAtSource, ...]) -> tuple[CaseAlert, ...]:
    """One entry per family, its newest firing alert, with what the source said of that family."""
    families = {alert.fingerprint: alert.name for alert in alerts}
    said = {families[one.fingerprint]: one for one in at_source if one.fingerprint in families}
    newest: dict[str, Alert] = {}
    for alert in sorted(alerts, key=lambda one: (one.status == "firing", one.starts_at)):
        newest[alert.name] = alert
    return tuple(
        CaseAlert(
            name=name,
            severity=alert.severity,
            starts_at=alert.starts_at,
            firing_at_source=said[name].firing if name in said else None,
            silenced=said[name].silenced if name in said else None,
        )
        for name, alert in sorted(newest.items())
    )


async def rejected_by(session: AsyncSession, row: IncidentRow, action: RemediationAction) -> str | None:
    """Who rejected this action for the present alerts. A family or a start that came later takes the rejection away."""
    proposals = await session.exec(
        select(ProposalRow)
        .where(ProposalRow.incident_id == row.id, ProposalRow.state == "rejected")
        .order_by(col(ProposalRow.decided_at).desc())
        .execution_options(populate_existing=True)
    )
    last = next((one for one in proposals if f'"{action.value}"' in one.action), None)
    if last is None or last.decided_at is None:
        return None
    alerts = (
        await session.exec(
            select(AlertRow.name, AlertRow.starts_at, AlertRow.received_at).where(
                AlertRow.incident_id == row.id, AlertRow.state == AlertState.ATTACHED.value, AlertRow.status == "firing"
            )
        )
    ).all()
    known = {name for name, _, received_at in alerts if received_at <= last.decided_at}
    fresh = any(
        received_at > last.decided_at and (name not in known or starts_at > last.decided_at)
        for name, starts_at, received_at in alerts
    )
    return None if fresh else last.decided_by


def versions(found: Findings, policy: Policy) -> VersionVector:
    """What produced the parts of the case."""
    evidence = found.evidence.versions if found.evidence is not None else VersionVector()
    return found.diagnosis.versions.model_copy(update={"verifier": evidence.verifier, "policy": policy.hash})


def _another_target(row: IncidentRow, diagnosis: Diagnosis) -> str | None:
    """An own target is the incident's. Whoever names another one as its own has not found it through the owner chain."""
    best = diagnosis.best
    if best.provenance is Provenance.DERIVED or best.target.key == (row.cluster_uid, row.namespace, row.kind, row.name):
        return None
    return f"{best.target.title} was named as the alert's own target, which is {row.kind} {row.namespace}/{row.name}"


def scopes_of(policy: Policy, target: Target) -> tuple[str, ...]:
    """Names of all scopes that match a target."""
    scope = policy.scope_for(target)
    return () if scope is None else scope.scopes
