"""The neutral card: what people must see of one incident, whatever surface shows it.

A card is a projection of the stored record at the moment it is read, so it always shows the true state; a surface renders it and
adds nothing. Fixed fields come from typed data and are never cut; evidence is what gets cut, with a stated count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Literal, TypeVar

from sqlalchemy import func
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from catalog.actions import Action, RemediationAction, Scale, action_adapter, describe
from catalog.cases import Rung
from catalog.decisions import Decision, GateResult, Route
from catalog.diagnoses import Diagnosis
from catalog.documents import Document, Instant, StoredDocument
from catalog.episodes import CloseReason, Phase, Question
from catalog.events import EventKind
from catalog.evidence import Evidence
from catalog.outcomes import End, Outcome
from catalog.registry import spec_of
from catalog.targets import Target, TargetKind
from incidents.recording import read_events
from incidents.tables import AlertRow, ApprovalRow, DocumentRow, IncidentRow, LabelRow, OrderRow, OutcomeRow, ProposalRow

EVIDENCE_LINES = 6
TIMELINE_LINES = 60

_Stored = TypeVar("_Stored", bound=StoredDocument)


class Tone(StrEnum):
    """Colour as on-call people know it; the headline's symbol says the same without colour."""

    FIRING = "firing"
    ACKNOWLEDGED = "acknowledged"
    RESOLVED = "resolved"
    QUIET = "quiet"

    @property
    def symbol(self) -> str:
        return {"firing": "🔴", "acknowledged": "🟠", "resolved": "🟢", "quiet": "⚪"}[self.value]


class ButtonKind(StrEnum):
    APPROVE = "approve"
    REJECT = "reject"
    TAKE = "take"
    LABEL_RIGHT = "label_right"
    LABEL_WRONG = "label_wrong"


class Button(Document):
    """One thing a person can do from the card. Carries an id and nothing else."""

    kind: ButtonKind
    label: str
    proposal_id: str | None = None
    question: Question | None = None
    confirm: str = ""


class CardField(Document):
    """One fixed field: a name and what stands there."""

    name: str
    value: str


class EvidenceLine(Document):
    """One answered prediction in a sentence, with a link when there is one."""

    text: str
    answer: Literal["supports", "refutes", "inconclusive"]
    source: str
    observed_at: Instant
    link: str | None = None


class TimelineLine(Document):
    at: Instant
    actor: str
    text: str


class LabelLine(Document):
    person: str
    question: Question
    right: bool
    at: Instant
    note: str = ""


class TransactionLine(Document):
    """One check of the transaction before and after."""

    name: str
    oracle: str
    before: str
    after: str
    unstable: bool = False
    detail: str = ""


class Card(Document):
    """Everything a surface shows of one incident."""

    incident_id: str
    number: int
    headline: str
    tone: Tone
    phase: Phase
    close_reason: CloseReason | None = None
    target: Target
    fields: tuple[CardField, ...]
    cause: str = ""
    gates: tuple[GateResult, ...] = ()
    deciding_gate: GateResult | None = None
    would_auto: bool = False
    evidence: tuple[EvidenceLine, ...] = ()
    evidence_total: int = 0
    findings: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    degraded: tuple[str, ...] = ()
    anti_actions: tuple[str, ...] = ()
    checks: tuple[TransactionLine, ...] = ()
    steps: tuple[str, ...] = ()
    not_undone: tuple[str, ...] = ()
    alerts: tuple[str, ...] = ()
    buttons: tuple[Button, ...] = ()
    labels: tuple[LabelLine, ...] = ()
    timeline: tuple[TimelineLine, ...] = ()
    fallback: str

    @property
    def evidence_cut(self) -> int:
        """How many evidence lines are not shown."""
        return self.evidence_total - len(self.evidence)


@dataclass(frozen=True)
class _Story:
    """What the projection reads, gathered once."""

    row: IncidentRow
    alerts: list[AlertRow]
    alert_count: int
    diagnosis: Diagnosis | None
    evidence: Evidence | None
    decision: Decision | None
    proposal: ProposalRow | None
    approvals: list[ApprovalRow]
    order: OrderRow | None
    outcome: Outcome | None
    labels: list[LabelRow]


async def card_of(
    session: AsyncSession, row: IncidentRow, *, now: datetime, approvers: Sequence[str] = (), timeline: bool = True
) -> Card:
    """Project one incident. `approvers` are the members of the scope's approver role, for people to know whom to ask."""
    story = await _read(session, row)
    tone, headline = _headline(story, now)
    fields = tuple(_fields(story, now, approvers))
    evidence = _evidence_lines(story.evidence)
    events = (await read_events(session, row.id))[-TIMELINE_LINES:] if timeline else []
    decision = story.decision
    outcome = story.outcome
    return Card(
        incident_id=row.id,
        number=row.number,
        headline=headline,
        tone=tone,
        phase=Phase(row.phase),
        close_reason=CloseReason(row.close_reason) if row.close_reason else None,
        target=_target(row),
        fields=fields,
        cause=story.diagnosis.best.statement if story.diagnosis else "",
        gates=decision.gates if decision else (),
        deciding_gate=decision.deciding_gate if decision else None,
        would_auto=decision.would_auto and decision.route is not Route.AUTO if decision else False,
        evidence=tuple(evidence[:EVIDENCE_LINES]),
        evidence_total=len(evidence),
        findings=tuple(finding for vote in story.diagnosis.votes for finding in vote.findings) if story.diagnosis else (),
        warnings=decision.warnings if decision else (),
        degraded=story.diagnosis.degraded if story.diagnosis else (),
        anti_actions=_anti_actions(story.diagnosis),
        checks=_check_lines(outcome),
        steps=tuple(f"{step.kind}: {step.result}" + (f" ({step.detail})" if step.detail else "") for step in outcome.steps)
        if outcome
        else (),
        not_undone=outcome.not_undone if outcome else (),
        alerts=tuple(_alert_text(alert) for alert in story.alerts),
        buttons=tuple(_buttons(story)),
        labels=tuple(
            LabelLine(person=label.person, question=Question(label.question), right=label.right, at=label.at, note=label.note)
            for label in story.labels
        ),
        timeline=tuple(
            TimelineLine(at=event.at, actor=event.actor, text=_event_text(event.kind, event.payload)) for event in events
        ),
        fallback=f"#{row.number} {headline}",
    )


async def _read(session: AsyncSession, row: IncidentRow) -> _Story:
    alerts = (
        await session.exec(
            select(AlertRow).where(AlertRow.incident_id == row.id).order_by(col(AlertRow.starts_at).desc()).limit(EVIDENCE_LINES)
        )
    ).all()
    counted = await session.exec(select(func.count()).select_from(AlertRow).where(AlertRow.incident_id == row.id))
    proposal = await session.get(ProposalRow, row.proposal_id) if row.proposal_id else None
    approvals = []
    if proposal is not None:
        approvals = list((await session.exec(select(ApprovalRow).where(ApprovalRow.proposal_id == proposal.id))).all())
    order = await session.get(OrderRow, row.order_id) if row.order_id else None
    outcome_row = await session.get(OutcomeRow, row.order_id) if row.order_id else None
    labels = (await session.exec(select(LabelRow).where(LabelRow.incident_id == row.id).order_by(col(LabelRow.at)))).all()
    return _Story(
        row=row,
        alerts=list(alerts),
        alert_count=counted.one(),
        diagnosis=await stored(session, row.diagnosis_id, Diagnosis),
        evidence=await stored(session, row.evidence_id, Evidence),
        decision=await stored(session, row.decision_id, Decision),
        proposal=proposal,
        approvals=approvals,
        order=order,
        outcome=Outcome.model_validate_json(outcome_row.body) if outcome_row else None,
        labels=list(labels),
    )


async def stored(session: AsyncSession, document_id: str | None, model: type[_Stored]) -> _Stored | None:
    """A stored document by id; None when there is none or its payload was erased."""
    if document_id is None:
        return None
    row = await session.get(DocumentRow, document_id)
    return None if row is None or row.body is None else model.model_validate_json(row.body)


def _target(row: IncidentRow) -> Target:
    return Target(
        cluster_uid=row.cluster_uid,
        cluster=row.cluster,
        namespace=row.namespace,
        kind=TargetKind(row.kind),
        name=row.name,
        uid=row.uid,
    )


_CLOSED: dict[CloseReason, tuple[Tone, str]] = {
    CloseReason.SELF_RESOLVED: (Tone.RESOLVED, "Resolved by itself"),
    CloseReason.PEOPLE: (Tone.RESOLVED, "Resolved by people"),
    CloseReason.HELD: (Tone.RESOLVED, "Fixed and held"),
    CloseReason.CAME_BACK: (Tone.FIRING, "Finished but came back"),
    CloseReason.INEFFECTIVE: (Tone.ACKNOWLEDGED, "The action did not help"),
    CloseReason.ROLLED_BACK: (Tone.ACKNOWLEDGED, "Made worse, rolled back"),
    CloseReason.REGRESSED: (Tone.FIRING, "Made worse, cannot be undone"),
    CloseReason.UNVERIFIED: (Tone.FIRING, "Done, result unknown"),
    CloseReason.CONFLICT: (Tone.ACKNOWLEDGED, "Somebody else changed it"),
    CloseReason.UNDO_INCOMPLETE: (Tone.FIRING, "Undo incomplete"),
    CloseReason.REFUSED: (Tone.QUIET, "Refused by the executor"),
    CloseReason.REJECTED: (Tone.QUIET, "Proposal rejected"),
    CloseReason.EXPIRED: (Tone.QUIET, "Proposal expired"),
    CloseReason.TAKEN_OVER: (Tone.QUIET, "Taken over"),
    CloseReason.UNKNOWN: (Tone.QUIET, "Ended, nobody knows how"),
}


def closed_headline(row: IncidentRow) -> tuple[Tone, str]:
    """Tone and first line of a closed incident, from its row alone."""
    tone, text = _CLOSED[CloseReason(row.close_reason or "unknown")]
    return tone, f"{tone.symbol} {text} · {_target(row).title}"


def _headline(story: _Story, now: datetime) -> tuple[Tone, str]:
    row = story.row
    target = _target(row).title
    action = describe(_action(story)) if story.decision or story.proposal else ""
    match Phase(row.phase):
        case Phase.CLOSED:
            return closed_headline(row)
        case Phase.OPEN:
            return Tone.FIRING, f"🔴 Firing · Looking into it · {target}"
        case Phase.DIAGNOSED:
            return Tone.FIRING, f"🔴 Firing · Checking the evidence · {target}"
        case Phase.DECIDED:
            return Tone.FIRING, f"🔴 Firing · Deciding · {target}"
        case Phase.PROPOSED:
            return Tone.FIRING, f"🔴 Firing · Approval needed · {action} · {target}"
        case Phase.ORDERED:
            return Tone.ACKNOWLEDGED, f"🟠 Firing · Ordered, waiting for the executor · {action} · {target}"
        case Phase.EXECUTING:
            return Tone.ACKNOWLEDGED, f"🟠 Running · {action} · {target}"
        case Phase.WATCHING:
            left = max(0, int((row.watch_until - now).total_seconds() // 60) + 1) if row.watch_until else 0
            return Tone.RESOLVED, f"🟢 Committed · {action} · watching {left} more min · {target}"
        case Phase.RECORDED:
            return Tone.QUIET, f"⚪ Recorded · {target}"
        case Phase.NOTIFIED:
            return _notified_headline(story, target)


_AFTER_END = {
    End.INEFFECTIVE: "The action did not help",
    End.ROLLED_BACK: "Made worse, rolled back",
    End.REGRESSED: "Made worse, cannot be undone",
    End.UNVERIFIED: "Done, result unknown",
    End.CONFLICT: "Somebody else changed it",
    End.UNDO_INCOMPLETE: "Undo incomplete",
    End.REFUSED: "Refused by the executor",
}


def _notified_headline(story: _Story, target: str) -> tuple[Tone, str]:
    if story.outcome is not None and story.outcome.end in _AFTER_END:
        tone = Tone.FIRING if story.outcome.end.harmful else Tone.ACKNOWLEDGED
        return tone, f"{tone.symbol} {_AFTER_END[story.outcome.end]} · people needed · {target}"
    if story.proposal is not None and story.proposal.state in ("rejected", "expired"):
        return Tone.ACKNOWLEDGED, f"🟠 Proposal {story.proposal.state} · people own it · {target}"
    return Tone.FIRING, f"🔴 Firing · For people · {target}"


def _action(story: _Story) -> Action:
    if story.proposal is not None:
        return action_adapter.validate_json(story.proposal.action)
    if story.decision is not None:
        return story.decision.action
    raise ValueError("neither proposal nor decision")


def _fields(story: _Story, now: datetime, approvers: Sequence[str]) -> list[CardField]:
    row = story.row
    target = _target(row)
    fields = [CardField(name="Target", value=f"{target.title} in {target.cluster}")]
    if story.decision is not None:
        action = _action(story)
        spec = spec_of(action.action)
        told = describe(action) if spec.executable else f"{describe(action)} — for people, never executed by this system"
        fields.append(CardField(name="Action", value=told))
        fields.append(CardField(name="Risk", value=risk_text(action)))
    fields.append(CardField(name="Severity", value=row.severity))
    fields.append(CardField(name="Since", value=_when(row.opened_at, now)))
    fields.append(CardField(name="Alerts", value=f"{story.alert_count}, last {_last_seen(story, now)}"))
    fields.append(CardField(name="Evidence weight", value=_weight_text(story.evidence)))
    if story.diagnosis is not None:
        fields.append(CardField(name="Confidence", value=f"{story.diagnosis.best.confidence:.2f} (triage's own; opens nothing)"))
        if story.diagnosis.best.edge:
            fields.append(CardField(name="Found through", value=story.diagnosis.best.edge))
    if story.decision is not None:
        decision = story.decision
        earned = f"ceiling {Rung(decision.ceiling)}, earned {Rung(decision.standing)}"
        fields.append(CardField(name="Rung", value=f"{Rung(decision.rung)} in scope {decision.scope or 'none'} ({earned})"))
        gate = decision.deciding_gate
        if gate is not None:
            fields.append(CardField(name="Deciding gate", value=f"{gate.gate.value}: {gate.sentence}"))
    fields.extend(_approval_fields(story, now, approvers))
    if story.outcome is not None:
        fields.append(CardField(name="Outcome", value=f"{story.outcome.end.value}: {story.outcome.sentence}"))
        fields.append(CardField(name="Severity µ", value=_severity_text(story.outcome)))
    if row.taken_by:
        fields.append(CardField(name="Taken over by", value=row.taken_by))
    if row.trouble:
        fields.append(CardField(name="Trouble", value=row.trouble))
    return fields


def risk_text(action: Action) -> str:
    """What can go wrong and what cannot be undone, before anybody approves."""
    spec = spec_of(action.action)
    if isinstance(action, Scale):
        undo = f"Undone by going back to {action.from_replicas} replicas."
    else:
        undo = spec.no_undo or (f"Undone by {spec.inverse.value.replace('_', ' ')}." if spec.inverse else "Nothing to undo.")
    return f"IRREVERSIBLE. {undo}" if spec.irreversible else undo


def _approval_fields(story: _Story, now: datetime, approvers: Sequence[str]) -> list[CardField]:
    fields = []
    proposal = story.proposal
    if proposal is not None and story.row.phase == Phase.PROPOSED.value:
        who = ", ".join(approvers) or "nobody is configured"
        fields.append(CardField(name="May approve", value=f"{who} ({len(story.approvals)} of {proposal.quorum})"))
        fields.append(CardField(name="Expires", value=_when(proposal.expires_at, now)))
    if story.approvals:
        named = ", ".join(f"{approval.person} via {approval.via} at {approval.at:%H:%M:%S}" for approval in story.approvals)
        fields.append(CardField(name="Approved by", value=named))
    elif story.order is not None and story.order.mode == "auto":
        fields.append(CardField(name="Approved by", value="nobody: automatic within its rung"))
    if proposal is not None and proposal.state not in ("pending", "approved"):
        reason = f": {proposal.state_reason}" if proposal.state_reason else ""
        fields.append(CardField(name="Proposal", value=f"{proposal.state}{reason}"))
    return fields


def _weight_text(evidence: Evidence | None) -> str:
    if evidence is None:
        return "not verified yet"
    counts = f"{evidence.supporting} support, {evidence.refuting} refute, {evidence.inconclusive} could not tell"
    if evidence.evidence_weight is None:
        return f"none ({counts}){': ' + evidence.note if evidence.note else ''}"
    tainted = f"; tainted: {evidence.tainted}" if evidence.tainted else ""
    return f"{evidence.evidence_weight:.2f} ({counts}){tainted}"


def _severity_text(outcome: Outcome) -> str:
    def shown(value: float | None) -> str:
        return "unknown" if value is None else f"{value:g}"

    return f"{shown(outcome.severity_before)} → {shown(outcome.severity_after)}"


def _when(at: datetime, now: datetime) -> str:
    seconds = int((now - at).total_seconds())
    span = _span(abs(seconds))
    return f"{at:%H:%M:%S} UTC ({span} ago)" if seconds >= 0 else f"{at:%H:%M:%S} UTC (in {span})"


def _span(seconds: int) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def _last_seen(story: _Story, now: datetime) -> str:
    seen = [alert.last_seen_at for alert in story.alerts]
    return _when(max(seen), now) if seen else "never: opened by a follow-up"


def _evidence_lines(evidence: Evidence | None) -> list[EvidenceLine]:
    if evidence is None:
        return []
    ranked = sorted(evidence.items, key=lambda item: (item.answer == "inconclusive", -abs(item.log_likelihood_ratio)))
    return [
        EvidenceLine(
            text=f"{item.question} — {item.seen}" + (f" [{item.reason}]" if item.reason else ""),
            answer=item.answer.value,
            source=item.source,
            observed_at=item.observed_at,
            link=item.link,
        )
        for item in ranked
    ]


def _anti_actions(diagnosis: Diagnosis | None) -> tuple[str, ...]:
    if diagnosis is None:
        return ()
    return tuple(f"do not {anti.action.value.replace('_', ' ')}: {anti.reason}" for anti in diagnosis.anti_actions)


def _check_lines(outcome: Outcome | None) -> tuple[TransactionLine, ...]:
    if outcome is None:
        return ()
    return tuple(
        TransactionLine(
            name=check.name,
            oracle=check.oracle.value,
            before=check.before.value,
            after=check.after.value if check.after else "not read",
            unstable=check.unstable,
            detail=check.detail,
        )
        for check in outcome.checks
    )


def _alert_text(alert: AlertRow) -> str:
    resends = f", {alert.resends} repeats" if alert.resends else ""
    return f"{alert.name} {alert.status} since {alert.starts_at:%H:%M:%S} UTC{resends}"


def _buttons(story: _Story) -> list[Button]:
    buttons = []
    row, proposal = story.row, story.proposal
    if proposal is not None and row.phase == Phase.PROPOSED.value and proposal.state == "pending":
        action = action_adapter.validate_json(proposal.action)
        effect = f"{describe(action)} on {_target(row).title}. {risk_text(action)}"
        buttons.append(Button(kind=ButtonKind.APPROVE, label="Approve", proposal_id=proposal.id, confirm=effect))
        buttons.append(Button(kind=ButtonKind.REJECT, label="Reject", proposal_id=proposal.id))
    if row.phase not in (Phase.CLOSED.value, Phase.WATCHING.value) and row.taken_by is None:
        buttons.append(Button(kind=ButtonKind.TAKE, label="Take over"))
    if row.diagnosis_id is not None and row.phase in (Phase.CLOSED.value, Phase.NOTIFIED.value, Phase.WATCHING.value):
        asked = [Question.DIAGNOSIS]
        if story.decision is not None and story.decision.action.action is not RemediationAction.NO_ACTION:
            asked.append(Question.ACTION)
        for question in asked:
            buttons.append(Button(kind=ButtonKind.LABEL_RIGHT, label=f"{question.value} right", question=question))
            buttons.append(Button(kind=ButtonKind.LABEL_WRONG, label=f"{question.value} wrong", question=question))
    return buttons


def _event_text(kind: EventKind, payload: dict[str, object] | None) -> str:
    name = kind.value.replace("_", " ")
    if payload is None:
        return f"{name} (details erased after their retention)"
    said = [str(payload[key]) for key in ("route", "name", "statement", "sentence", "reason", "why") if payload.get(key)]
    return f"{name}: {' · '.join(said)}" if said else name
