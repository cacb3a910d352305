"""Work that asks the outside: triage, verification, whether an incident is over, whether an action held.

`prepare` reads what to ask in the transaction that found the work due; `look` asks, without any transaction; `keep` stores the
answer in the transaction that advances the row.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from catalog.alerts import Alert
from catalog.cases import FollowUp
from catalog.diagnoses import Diagnosis
from catalog.episodes import CloseReason, Phase
from catalog.events import EventKind
from catalog.targets import Target
from incidents import watching
from incidents.assessing import ConfirmAnswer, ConfirmRequest
from incidents.phases import deciding, triaging
from incidents.phases.moving import take_move
from incidents.phases.situations import alerts_of, read_document, target_of
from incidents.recording import append_event
from incidents.tables import AlertRow, IncidentRow
from incidents.transitions import Again, Move, Situation, Work, ended, watched
from incidents.worker import Assessor, WorkerError, WorkerLate
from ladder.policy import Policy

WORK = frozenset({Work.TRIAGE, Work.DECIDE, Work.CONFIRM_END, Work.CONFIRM_HOLD})
GIVE_UP_AFTER = 2
"""Failed triages in a row after which the incident goes on without one."""

CONFIRM_PATIENCE_S = 12.0


@dataclass(frozen=True)
class Look:
    """What is asked, and where the row was when it was."""

    incident_id: str
    version: int
    phase: Phase
    work: Work
    target: Target
    alerts: tuple[Alert, ...]
    seen: triaging.Seen
    failures: int = 0
    diagnosis: Diagnosis | None = None
    follow_up: FollowUp | None = None
    origin: str = "alert"


Answer = triaging.Triaged | deciding.Verified | ConfirmAnswer


async def prepare(session: AsyncSession, policy: Policy, row: IncidentRow, situation: Situation, work: Work) -> Look:
    """Everything the question needs, read now."""
    return Look(
        incident_id=row.id,
        version=row.version,
        phase=Phase(row.phase),
        work=work,
        target=target_of(row),
        alerts=await alerts_of(session, row.id),
        seen=triaging.Seen.of(row.id, situation),
        failures=row.failures,
        diagnosis=await read_document(session, row.diagnosis_id, Diagnosis) if work is Work.DECIDE else None,
        follow_up=await watching.justification(session, row, situation.now) if row.origin == "follow_up" else None,
        origin=row.origin,
    )


async def look(worker: Assessor, policy: Policy, asked: Look, now: datetime) -> Answer:
    """Ask. Only triage of an alert is worth waiting for again; everything else goes on with "could not tell".

    Raises:
        WorkerError: triage gave no answer; try again.
    """
    match asked.work:
        case Work.TRIAGE if asked.origin == "alert":
            return await _triage(worker, policy, asked, now)
        case Work.DECIDE if asked.diagnosis is not None:
            return await deciding.verify(worker, policy, asked.diagnosis, asked.target, asked.alerts, follow_up=asked.follow_up)
        case _:
            return await _confirm(worker, policy, asked)


async def keep(
    session: AsyncSession, policy: Policy, row: IncidentRow, situation: Situation, asked: Look, answer: Answer, now: datetime
) -> None:
    """Store the answer and advance the row by the phase it belongs to."""
    match answer:
        case triaging.Triaged():
            await triaging.keep_diagnosis(session, policy, row, answer, now)
        case deciding.Verified():
            await deciding.keep_decision(session, row, answer, policy, now)
        case ConfirmAnswer() if asked.work is Work.TRIAGE:
            await _begin_follow_up(session, policy, row, asked, answer, now)
        case ConfirmAnswer() if asked.work is Work.CONFIRM_HOLD:
            await _end_watch(session, policy, row, situation, answer, now)
        case ConfirmAnswer() if asked.work is Work.CONFIRM_END:
            await _end(session, policy, row, situation, answer, now)
        case ConfirmAnswer():
            lost = Move(why="the diagnosis is not stored any more", to=Phase.OPEN, again=Again.STALE_TARGET, next_at=now)
            await take_move(session, policy, row, lost, now)


async def _triage(worker: Assessor, policy: Policy, asked: Look, now: datetime) -> triaging.Triaged:
    cluster = policy.cluster_of(asked.target.cluster_uid)
    if cluster is None:
        reason = f"cluster {asked.target.cluster} is not named in autonomy.yaml any more"
        return triaging.without_diagnosis(asked.target, asked.seen, reason, now)
    try:
        patience = policy.numbers.triage_time.total_seconds()
        return await triaging.triage(worker, cluster, asked.target, asked.alerts, asked.seen, patience_s=patience)
    except WorkerError as error:
        if isinstance(error, WorkerLate) or asked.failures >= GIVE_UP_AFTER:
            return triaging.without_diagnosis(asked.target, asked.seen, f"triage gave no answer: {error}", now)
        raise


async def _confirm(worker: Assessor, policy: Policy, asked: Look) -> ConfirmAnswer:
    cluster = policy.cluster_of(asked.target.cluster_uid)
    if cluster is None:
        return ConfirmAnswer()
    request = ConfirmRequest(cluster=cluster, target=asked.target, alerts=asked.alerts)
    try:
        return ConfirmAnswer.model_validate(await worker.ask("confirm", request, patience_s=CONFIRM_PATIENCE_S))
    except WorkerError:
        return ConfirmAnswer()


async def _begin_follow_up(
    session: AsyncSession, policy: Policy, row: IncidentRow, asked: Look, answer: ConfirmAnswer, now: datetime
) -> None:
    if answer.facts is None:
        row.failures += 1
        row.trouble = "the live target could not be read, so nothing can be followed up yet"
        await take_move(session, policy, row, Move(why=row.trouble, next_at=now + policy.numbers.verifier_time), now)
        return
    diagnosis = await watching.follow_up_of(session, row, answer.facts, now)
    if diagnosis is None:
        nothing = Move(
            why="nothing is left to take back",
            to=Phase.CLOSED,
            close_reason=CloseReason.PEOPLE,
            events=(EventKind.CLOSED,),
        )
        await take_move(session, policy, row, nothing, now)
        return
    await triaging.keep_diagnosis(session, policy, row, triaging.Triaged(diagnosis, None, asked.seen), now)


async def _end(
    session: AsyncSession, policy: Policy, row: IncidentRow, situation: Situation, answer: ConfirmAnswer, now: datetime
) -> None:
    if answer.still_firing:
        await _fire_again(session, row, answer.firing, now)
    outside = await watching.changed_outside(session, row, answer.facts)
    move = ended(situation, still_firing=answer.still_firing, changed_outside=outside)
    await take_move(session, policy, row, move, now)


async def _fire_again(session: AsyncSession, row: IncidentRow, fingerprints: tuple[str, ...], now: datetime) -> None:
    """An alert that was said to be resolved fires at its source: it never ended, whatever the message said."""
    rows = await session.exec(
        select(AlertRow)
        .where(AlertRow.incident_id == row.id, col(AlertRow.fingerprint).in_(fingerprints))
        .order_by(col(AlertRow.starts_at))
    )
    newest = {alert.fingerprint: alert for alert in rows}
    for alert in newest.values():
        alert.status, alert.resolved_at, alert.last_seen_at = "firing", None, now
        session.add(alert)
    payload = {"why": "the source says it still fires", "fingerprints": sorted(newest)}
    append_event(session, row, EventKind.REOPENED, at=now, now=now, actor="bot", payload=payload)


async def _end_watch(
    session: AsyncSession, policy: Policy, row: IncidentRow, situation: Situation, answer: ConfirmAnswer, now: datetime
) -> None:
    move = watched(situation, still_firing=answer.still_firing)
    await take_move(session, policy, row, move, now)
    if move.to is Phase.CLOSED and move.close_reason is CloseReason.HELD:
        await session.flush()
        await watching.follow_up(session, policy, row, situation, now)
