"""The calibration gate: one cell per (incident family, action), counted from settled human labels of this installation.

A cell's counters move with every label that settles or unsettles an episode, in the same database transaction and under the
cell's row lock, so that a decision reads one row and every declared look is met exactly when its number is reached. A look is
evaluated once and kept; between looks nothing opens. Machine, imported, simulated and follow-up episodes never count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Insert
from sqlalchemy.dialects import postgresql, sqlite
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from catalog.actions import RemediationAction
from catalog.cases import Calibration
from catalog.diagnoses import Family
from catalog.documents import Document
from catalog.ids import new_id
from incidents.bounding import lower_bounds
from incidents.database import Database
from incidents.settling import counting, labels_by_incident
from incidents.tables import CellRow, EpisodeRow, LookRow
from ladder.looks import CLOSING_WINDOW, Look, closes, evaluate, looks, next_look
from ladder.policy import Policy

LABELLERS = 2
LARGEST_SHARE = 0.60
COVERAGE = 0.80


class Verdict(Document):
    """What an episode's action came to, once its count settled."""

    right: bool


async def calibration_of(session: AsyncSession, policy: Policy, family: Family, action: RemediationAction) -> Calibration:
    """State of one cell for a `Case`: one row, and the last ten episodes by index."""
    cell = await session.get(CellRow, (family.value, action.value), populate_existing=True)
    return await _calibration(session, policy, cell or _fresh(family.value, action.value))


async def cells_of(session: AsyncSession, policy: Policy, action: RemediationAction | None = None) -> tuple[Calibration, ...]:
    """Every cell, or those of one action."""
    statement = select(CellRow).order_by(col(CellRow.family), col(CellRow.action)).execution_options(populate_existing=True)
    if action is not None:
        statement = statement.where(CellRow.action == action.value)
    return tuple([await _calibration(session, policy, cell) for cell in (await session.exec(statement)).all()])


async def count_episode(session: AsyncSession, episode: EpisodeRow) -> None:
    """Count a new episode's proposal towards the coverage of its cell. Call once, when the episode is made."""
    if not counts(episode) or not episode.proposed:
        return
    cell = await _locked_cell(session, episode)
    cell.proposals += 1
    session.add(cell)


async def settle_episode(
    session: AsyncSession, policy: Policy, episode: EpisodeRow, verdict: Verdict | None, now: datetime
) -> None:
    """Write how an episode's labels settled, move its cell's counters, and evaluate what that makes due.

    The caller holds the incident's row. `verdict` None: not settled (any more).
    """
    right = verdict.right if verdict is not None and counts(episode) else None
    if right is episode.right:
        return
    cell = await _locked_cell(session, episode)
    cell.settled += (right is not None) - (episode.right is not None)
    cell.right += (right is True) - (episode.right is True)
    if episode.proposed:
        cell.proposals_settled += (right is not None) - (episode.right is not None)
    episode.right, episode.settled_at = right, None if right is None else now
    session.add(episode)
    session.add(cell)
    await session.flush()
    await _look(session, policy, cell, now)
    await _close(session, cell, now)


def counts(episode: EpisodeRow) -> bool:
    """Only episodes that were lived through here and judged by people."""
    return episode.origin == "human"


async def refresh_bounds(database: Database) -> int:
    """Compute the lower bounds that the figures have outgrown; returns how many. They are shown and open nothing.

    Raises:
        BoundsUnavailable: try again later.
    """
    async with database.reading() as session:
        cells = [cell for cell in (await session.exec(select(CellRow).where(CellRow.settled > 0))).all() if _stale(cell)]
    bounds = await lower_bounds([(cell.right, cell.settled) for cell in cells])
    if not cells:
        return 0
    async with database.transaction() as session:
        for computed, bound in zip(cells, bounds, strict=True):
            cell = await session.get(CellRow, (computed.family, computed.action), with_for_update=True, populate_existing=True)
            if cell is not None:
                cell.bound, cell.bound_right, cell.bound_settled = bound, computed.right, computed.settled
                session.add(cell)
    return len(cells)


def _stale(cell: CellRow) -> bool:
    return (cell.bound_right, cell.bound_settled) != (cell.right, cell.settled)


def _fresh(family: str, action: str) -> CellRow:
    return CellRow(family=family, action=action, reason="nothing is labelled yet")


async def _calibration(session: AsyncSession, policy: Policy, cell: CellRow) -> Calibration:
    target = policy.defaults.target_precision
    following = next_look(looks(target), max(cell.settled, cell.last_look or 0))
    last = await _last(session, cell)
    strict_enough = cell.target_precision >= target
    reason = (
        cell.reason
        if strict_enough or not cell.open
        else f"it opened for a precision of {cell.target_precision:g}, and {target:g} is wanted now"
    )
    return Calibration(
        family=Family(cell.family),
        action=RemediationAction(cell.action),
        open=cell.open and strict_enough,
        settled=cell.settled,
        right=cell.right,
        wrong_of_last_ten=sum(not right for right in last),
        last_look=cell.last_look,
        next_look=following.n if following else None,
        lower_bound=None if _stale(cell) else cell.bound,
        reason=reason,
    )


async def _locked_cell(session: AsyncSession, episode: EpisodeRow) -> CellRow:
    """The cell's row, made if need be, held until the transaction ends: two labels at once are counted one after the other."""
    key = (episode.family, episode.action)
    await session.exec(_insert(session, _fresh(*key)))
    cell = await session.get(CellRow, key, with_for_update=True, populate_existing=True)
    if cell is None:
        raise AssertionError(f"the cell {key} is gone")
    return cell


def _insert(session: AsyncSession, cell: CellRow) -> Insert:
    made = postgresql.insert(CellRow) if session.get_bind().dialect.name == "postgresql" else sqlite.insert(CellRow)
    return made.values(**cell.model_dump()).on_conflict_do_nothing(index_elements=["family", "action"])


async def _last(session: AsyncSession, cell: CellRow) -> list[bool]:
    rows = await session.exec(
        select(EpisodeRow.right)
        .where(EpisodeRow.family == cell.family, EpisodeRow.action == cell.action, col(EpisodeRow.settled_at).is_not(None))
        .order_by(col(EpisodeRow.settled_at).desc(), col(EpisodeRow.number).desc())
        .limit(CLOSING_WINDOW)
    )
    return [bool(right) for right in reversed(rows.all())]


async def _look(session: AsyncSession, policy: Policy, cell: CellRow, now: datetime) -> None:
    target = policy.defaults.target_precision
    for look in looks(target):
        if look.n > cell.settled or look.n <= (cell.last_look or 0):
            continue
        first = await _first(session, cell, look.n)
        result = evaluate([bool(episode.right) for episode in first], look)
        objection = await _objection(session, cell, first)
        opened = result.opened and objection is None
        reason = objection or _told(look, result.wrong, opened=result.opened)
        cell.last_look = look.n
        if opened and not cell.open:
            cell.open, cell.open_n, cell.target_precision, cell.reason = True, look.n, target, ""
        elif not cell.open:
            cell.reason = reason
        session.add(cell)
        session.add(_row(cell, n=look.n, right=result.right, opened=opened, reason=reason, target=target, now=now))


def _told(look: Look, wrong: int, *, opened: bool) -> str:
    if opened:
        return f"opened at {look.n} with {wrong} wrong"
    allowed = f"at most {look.max_wrong} wrong" if look.max_wrong >= 0 else "nothing"
    return f"the look at {look.n} allows {allowed}, and {wrong} were wrong"


async def _first(session: AsyncSession, cell: CellRow, n: int) -> list[EpisodeRow]:
    rows = await session.exec(
        select(EpisodeRow)
        .where(EpisodeRow.family == cell.family, EpisodeRow.action == cell.action, col(EpisodeRow.settled_at).is_not(None))
        .order_by(col(EpisodeRow.settled_at), col(EpisodeRow.number))
        .limit(n)
    )
    return list(rows.all())


async def _objection(session: AsyncSession, cell: CellRow, episodes: Sequence[EpisodeRow]) -> str | None:
    """Why these labels cannot open a gate however right they are."""
    by_incident = await labels_by_incident(session, [episode.incident_id for episode in episodes])
    people: Counter[str] = Counter()
    for episode in episodes:
        people.update(label.person for label in counting(by_incident.get(episode.incident_id, ()), episode.approvers))
    if len(people) < LABELLERS:
        return f"the labels come from {len(people)} person; at least {LABELLERS} are needed"
    person, most = people.most_common(1)[0]
    share = most / people.total()
    if share > LARGEST_SHARE:
        return f"{person} gave {share:.0%} of the labels; nobody may give more than {LARGEST_SHARE:.0%}"
    if cell.proposals and cell.proposals_settled < COVERAGE * cell.proposals:
        return f"{cell.proposals_settled} of {cell.proposals} proposals are labelled; at least {COVERAGE:.0%} are needed"
    return None


async def _close(session: AsyncSession, cell: CellRow, now: datetime) -> None:
    if not cell.open:
        return
    last = await _last(session, cell)
    if closes(last):
        reason = f"closed: {sum(not right for right in last)} of the last {len(last)} were wrong"
    elif cell.open_n is not None and cell.settled < cell.open_n:
        reason = f"closed: {cell.settled} labelled episodes are left of the {cell.open_n} it opened with"
    else:
        return
    cell.open, cell.open_n, cell.reason = False, None, reason
    session.add(cell)
    session.add(
        _row(
            cell, n=cell.settled, right=cell.right, opened=False, reason=reason, target=cell.target_precision, now=now, closed=True
        )
    )


def _row(
    cell: CellRow, *, n: int, right: int, opened: bool, reason: str, target: float, now: datetime, closed: bool = False
) -> LookRow:
    return LookRow(
        id=new_id(now),
        family=cell.family,
        action=cell.action,
        n=n,
        right=right,
        opened=opened,
        closed=closed,
        reason=reason,
        target_precision=target,
        at=now,
    )
