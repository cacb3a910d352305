"""What each scope may do and has earned: ceiling, standing, rung in force, and what is missing for the next rung."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import func
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from catalog.actions import RemediationAction
from catalog.cases import Calibration, Rung, StandingRecord
from catalog.documents import Document
from catalog.registry import spec_of
from incidents.calibrating import cells_of
from incidents.context import Context
from incidents.standings import record_of
from incidents.tables import IncidentRow
from ladder.scopes import MergedScope
from ladder.standing import Promotion, owners_needed, promotion_refusal, rung_in_force, standing_of


class LevelLine(Document):
    """One action of one scope."""

    scope: str
    action: RemediationAction
    ceiling: Rung
    standing: Rung
    in_force: Rung
    why: str
    would_auto: int
    missing: str


async def levels(context: Context, scope: str | None) -> list[LevelLine]:
    """Every executable action that a ceiling names, of one scope or of all."""
    policy, now = context.policies.current, context.clock.now()
    lines: list[LevelLine] = []
    async with context.database.reading() as session:
        cells = await cells_of(session, policy)
        for entry in policy.scopes:
            merged = policy.merged_as(entry.name)
            if merged is None or scope not in (None, entry.name):
                continue
            named = [action for action, one in merged.earned.items() if one.scope == entry.name and spec_of(action).executable]
            record = await record_of(session, [(entry.name, merged.earned[action].match_digest, action) for action in named])
            for action in sorted(named):
                wished = await _would_auto(session, entry.name, action)
                lines.append(_line(merged, entry.name, action, record, cells, wished, now))
    return lines


async def cells_in_use(context: Context) -> Sequence[Calibration]:
    """Every cell of the calibration gate that has counted an episode."""
    async with context.database.reading() as session:
        return await cells_of(session, context.policies.current)


def _line(
    scope: MergedScope,
    name: str,
    action: RemediationAction,
    record: StandingRecord,
    cells: Sequence[Calibration],
    would_auto: int,
    now: datetime,
) -> LevelLine:
    held = rung_in_force(record, scope, action, now)
    earned = standing_of(record, name, scope.earned[action].match_digest, action, now)
    return LevelLine(
        scope=name,
        action=action,
        ceiling=held.ceiling,
        standing=held.standing,
        in_force=held.rung,
        why=earned.why,
        would_auto=would_auto,
        missing=_missing(scope, name, action, record, cells, held.standing, now),
    )


def _missing(
    scope: MergedScope,
    name: str,
    action: RemediationAction,
    record: StandingRecord,
    cells: Sequence[Calibration],
    standing: Rung,
    now: datetime,
) -> str:
    """In one sentence, what keeps the next rung out of reach."""
    if standing >= Rung.R5:
        return "nothing: R5 is the highest that is earned"
    following = Rung(standing + 1)
    promotion = Promotion(
        scope=name,
        match_digest=scope.earned[action].match_digest,
        action=action,
        rung=following,
        ceiling=scope.ceiling(action),
        propose_uncalibrated=scope.propose_uncalibrated,
        service_level_checks=len(scope.checks),
    )
    refused = promotion_refusal(promotion, record, [cell for cell in cells if cell.action is action], now)
    if refused is not None:
        return f"for {following}: {refused}"
    owners = owners_needed(following)
    return f"for {following}: {owners} owner{'s' if owners > 1 else ''}: /sre promote {name} {action.value} {following} WHY"


async def _would_auto(session: AsyncSession, scope: str, action: RemediationAction) -> int:
    """Incidents of the scope that would have been acted on if rung and calibration had allowed it."""
    counted = await session.exec(
        select(func.count())
        .select_from(IncidentRow)
        .where(IncidentRow.scope == scope, IncidentRow.action == action.value, col(IncidentRow.would_auto).is_(True))
    )
    return counted.one()
