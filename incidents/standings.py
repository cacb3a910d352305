"""Standing as people change it, and the record that `ladder.standing` computes it from.

A promotion or a demotion is a stored word of owners; harm is read from the outcomes themselves, so that there is no moment in
which an outcome is known and not yet counted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Literal

from sqlalchemy import select as columns
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from catalog.actions import RemediationAction
from catalog.cases import Rung, ScoredOutcome, StandingChange, StandingRecord
from catalog.documents import Document
from catalog.episodes import CloseReason
from catalog.ids import new_id
from catalog.outcomes import End
from catalog.registry import CATALOGUE
from catalog.targets import Target
from incidents.calibrating import cells_of
from incidents.tables import EpisodeRow, IncidentRow, OrderRow, OutcomeRow, StandingRow
from ladder.policy import Policy
from ladder.roles import Identity, refusal
from ladder.scopes import MergedScope
from ladder.standing import Promotion, owners_needed, promotion_refusal, standing_of

KEPT = 50
JOIN_WITHIN = timedelta(hours=24)

Key = tuple[str, str, RemediationAction]


class StandingRefused(Exception):
    """Nothing changed. The text says which rule refused it, with numbers; `unblock` what would change that."""

    def __init__(self, sentence: str, *, rule: str, unblock: str = "") -> None:
        super().__init__(sentence)
        self.rule = rule
        self.unblock = unblock


class StandingRequest(Document):
    """An owner's word on one scope. `action` None (demotion only): every action its ceiling names. `rung` None: one lower."""

    scope: str
    action: RemediationAction | None = None
    rung: Rung | None = None
    why: str
    identity: Identity


class StandingChanged(Document):
    """What is in force now, or that a second owner must say the same."""

    state: Literal["in_force", "pending"]
    scope: str
    changes: tuple[tuple[RemediationAction, Rung], ...]
    by: tuple[str, ...]
    sentence: str


async def standing_record(session: AsyncSession, policy: Policy, target: Target) -> StandingRecord:
    """The record for a `Case`: what was said and how it ended, for every action that a matching ceiling names."""
    scope = policy.scope_for(target)
    earned = scope.earned if scope is not None else {}
    return await record_of(session, [(one.scope, one.match_digest, action) for action, one in earned.items()])


async def record_of(session: AsyncSession, keys: Iterable[Key]) -> StandingRecord:
    """The record of some (scope, match, action): the last 50 changes and outcomes of each, by index."""
    changes: list[StandingChange] = []
    outcomes: list[ScoredOutcome] = []
    for key in keys:
        changes += await _changes(session, key)
        outcomes += await _outcomes(session, key)
    return StandingRecord(
        changes=tuple(sorted(changes, key=lambda one: one.at)), outcomes=tuple(sorted(outcomes, key=lambda one: one.at))
    )


async def promote(session: AsyncSession, policy: Policy, request: StandingRequest, *, now: datetime) -> StandingChanged:
    """Raise what (scope, action) has earned. R5 is in force once a second owner has said the same within a day.

    Raises:
        StandingRefused: not an owner, nothing to raise, or the evidence does not carry it (with numbers).
    """
    scope = _owned_scope(policy, request)
    if request.action is None or request.rung is None:
        raise StandingRefused(
            "A promotion names an action and a rung.", rule="grammar", unblock="/sre promote SCOPE ACTION RUNG WHY"
        )
    key = _key(scope, request.scope, request.action)
    record = await record_of(session, [key])
    held = standing_of(record, *key, now).rung
    if request.rung <= held:
        raise StandingRefused(f"{request.action.value} is at {held} in scope {request.scope} already.", rule="standing")
    promotion = Promotion(
        scope=key[0],
        match_digest=key[1],
        action=request.action,
        rung=request.rung,
        ceiling=scope.ceiling(request.action),
        propose_uncalibrated=scope.propose_uncalibrated,
        service_level_checks=len(scope.checks),
    )
    refused = promotion_refusal(promotion, record, await cells_of(session, policy, request.action), now)
    if refused is not None:
        raise StandingRefused(f"{request.action.value} stays at {held} in scope {request.scope}: {refused}.", rule="promotion")
    return await _said(session, key, request, request.rung, now)


async def demote(session: AsyncSession, policy: Policy, request: StandingRequest, *, now: datetime) -> StandingChanged:
    """Lower what a scope has earned, at once; one owner is enough.

    Raises:
        StandingRefused: not an owner, or nothing to lower.
    """
    scope = _owned_scope(policy, request)
    named = [action for action in scope.earned if CATALOGUE[action].executable]
    lowered: list[tuple[RemediationAction, Rung]] = []
    for action in [request.action] if request.action is not None else named:
        key = _key(scope, request.scope, action)
        held = standing_of(await record_of(session, [key]), *key, now).rung
        rung = request.rung if request.rung is not None else Rung(max(Rung.R3, held - 1))
        if rung >= held:
            continue
        session.add(_row(key, rung, (request.identity.person,), request.why, now))
        lowered.append((action, rung))
    if not lowered:
        raise StandingRefused(f"Nothing in scope {request.scope} stands higher than that.", rule="standing")
    told = ", ".join(f"{action.value} to {rung}" for action, rung in lowered)
    return StandingChanged(
        state="in_force",
        scope=request.scope,
        changes=tuple(lowered),
        by=(request.identity.person,),
        sentence=f"Demoted in scope {request.scope}: {told}.",
    )


def _owned_scope(policy: Policy, request: StandingRequest) -> MergedScope:
    scope = policy.merged_as(request.scope)
    if scope is None:
        names = ", ".join(sorted(one.name for one in policy.scopes)) or "none"
        raise StandingRefused(f"There is no scope {request.scope}; there are: {names}.", rule="scope")
    refused = refusal(scope, "owner", request.identity)
    if refused is not None:
        raise StandingRefused(refused, rule="roles.owner", unblock="the role owner in autonomy.yaml")
    if not request.why.strip():
        raise StandingRefused("Say why.", rule="why", unblock="a sentence for those who read it later")
    return scope


def _key(scope: MergedScope, name: str, action: RemediationAction) -> Key:
    earned = scope.earned.get(action)
    if earned is None:
        raise StandingRefused(
            f"No ceiling of scope {name} names {action.value}, so it is R3.",
            rule="ceiling",
            unblock=f"ceiling: {{{action.value}: R4}}",
        )
    if earned.scope != name:
        raise StandingRefused(
            f"The ceiling of {action.value} is named by scope {earned.scope}; its standing is kept there.", rule="ceiling"
        )
    return (earned.scope, earned.match_digest, action)


async def _said(session: AsyncSession, key: Key, request: StandingRequest, rung: Rung, now: datetime) -> StandingChanged:
    person = request.identity.person
    pending = await _pending(session, key, rung, now)
    said = tuple(dict.fromkeys((*(json.loads(pending.by) if pending else ()), person)))
    in_force = len(said) >= owners_needed(rung)
    if pending is not None:
        pending.by = json.dumps(said)
        row = pending
    else:
        row = _row(key, rung, said, request.why, now, state="pending")
    if in_force:
        row.state, row.at = "in_force", now
    session.add(row)
    action = key[2]
    sentence = f"{action.value} is at {rung} in scope {key[0]}, by {' and '.join(said)}."
    if not in_force:
        sentence = f"{rung} needs two owners: another one says the same within {JOIN_WITHIN.total_seconds() / 3600:.0f} h."
    return StandingChanged(
        state="in_force" if in_force else "pending", scope=key[0], changes=((action, rung),), by=said, sentence=sentence
    )


async def _pending(session: AsyncSession, key: Key, rung: Rung, now: datetime) -> StandingRow | None:
    scope, match_digest, action = key
    statement = (
        select(StandingRow)
        .where(
            StandingRow.scope == scope,
            StandingRow.action == action.value,
            StandingRow.match_digest == match_digest,
            StandingRow.rung == int(rung),
            StandingRow.state == "pending",
            col(StandingRow.at) > now - JOIN_WITHIN,
        )
        .order_by(col(StandingRow.at).desc())
        .limit(1)
        .with_for_update()
    )
    return (await session.exec(statement)).first()


async def _changes(session: AsyncSession, key: Key) -> list[StandingChange]:
    scope, match_digest, action = key
    rows = await session.exec(
        select(StandingRow)
        .where(
            StandingRow.scope == scope,
            StandingRow.action == action.value,
            StandingRow.match_digest == match_digest,
            StandingRow.state == "in_force",
        )
        .order_by(col(StandingRow.at).desc())
        .limit(KEPT)
        .execution_options(populate_existing=True)
    )
    return [
        StandingChange(
            id=row.id,
            scope=row.scope,
            match_digest=row.match_digest,
            action=action,
            rung=Rung(row.rung),
            by=tuple(json.loads(row.by)),
            at=row.at,
            why=row.why,
        )
        for row in rows.all()
    ]


async def _outcomes(session: AsyncSession, key: Key) -> list[ScoredOutcome]:
    scope, match_digest, action = key
    # sqlmodel's own select is typed for at most four columns; SQLAlchemy's is the same statement without its types.
    statement: Any = (
        columns(
            col(OutcomeRow.incident_id),
            col(OutcomeRow.end),
            col(OutcomeRow.at),
            col(IncidentRow.strongest),
            col(IncidentRow.close_reason),
            col(EpisodeRow.right),
        )
        .select_from(OrderRow)
        .join(OutcomeRow, col(OutcomeRow.order_id) == col(OrderRow.id))
        .join(IncidentRow, col(IncidentRow.id) == col(OrderRow.incident_id))
        .outerjoin(EpisodeRow, col(EpisodeRow.incident_id) == col(OrderRow.incident_id))
        .where(
            col(OrderRow.scope) == scope,
            col(OrderRow.action) == action.value,
            col(OrderRow.match_digest) == match_digest,
            col(OutcomeRow.end) != End.REFUSED.value,
        )
        .order_by(col(OrderRow.minted_at).desc())
        .limit(KEPT)
    )
    return [
        ScoredOutcome(
            incident_id=incident_id,
            scope=scope,
            match_digest=match_digest,
            action=action,
            end=End(end),
            at=at,
            right=False if CloseReason.CAME_BACK.value in (strongest, close_reason) else right,
            labelled=right is not None,
        )
        for incident_id, end, at, strongest, close_reason, right in await session.exec(statement)
    ]


def _row(key: Key, rung: Rung, by: Iterable[str], why: str, now: datetime, *, state: str = "in_force") -> StandingRow:
    scope, match_digest, action = key
    return StandingRow(
        id=new_id(now),
        scope=scope,
        match_digest=match_digest,
        action=action.value,
        rung=int(rung),
        by=json.dumps(list(by)),
        at=now,
        why=why,
        state=state,
    )
