"""How labels come to one answer. Pure but for the one query that fetches them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from catalog.episodes import CloseReason, LabelOrigin, Question
from catalog.outcomes import End
from incidents.tables import LabelRow

CHUNK = 200
_WRONG_REASONS = frozenset(
    {
        CloseReason.CAME_BACK,
        CloseReason.INEFFECTIVE,
        CloseReason.ROLLED_BACK,
        CloseReason.REGRESSED,
        CloseReason.UNVERIFIED,
        CloseReason.UNDO_INCOMPLETE,
    }
)


def latest(labels: Iterable[LabelRow], question: Question) -> dict[str, LabelRow]:
    """The label of each person that holds: their latest human one for the question."""
    held: dict[str, LabelRow] = {}
    for label in sorted(labels, key=lambda one: (one.at, one.id)):
        if label.question == question.value and label.origin == LabelOrigin.HUMAN.value:
            held[label.person] = label
    return held


def counting(labels: Iterable[LabelRow], approvers: str | Sequence[str], question: Question = Question.ACTION) -> list[LabelRow]:
    """Labels that count: the latest per person; whoever approved the action does not judge it. `approvers` may be JSON."""
    out = set(json.loads(approvers) if isinstance(approvers, str) else approvers) if question is Question.ACTION else set()
    return [label for person, label in latest(labels, question).items() if person not in out]


def answer(labels: Sequence[LabelRow]) -> bool | None:
    """What counting labels agree on; an owner's settling label decides a disagreement. None: no answer (yet)."""
    settling = [label for label in labels if label.settles]
    if settling:
        return max(settling, key=lambda one: (one.at, one.id)).right
    given = {label.right for label in labels}
    return given.pop() if len(given) == 1 else None


def disagreement(labels: Sequence[LabelRow]) -> bool:
    """Whether people differ and no owner has settled it."""
    return answer(labels) is None and bool(labels)


def wrong_end(end: End | None, close_reason: CloseReason | None) -> bool:
    """Whether the end makes the action wrong, whatever people say: no effect, rolled back, harm, or it came back."""
    return close_reason in _WRONG_REASONS or (end is not None and end.wrong)


def settled_right(labels: Sequence[LabelRow], end: End | None, close_reason: CloseReason | None) -> bool | None:
    """Whether the action was right, from labels that count and the end. None while nobody who counts has said, or they differ."""
    if labels and wrong_end(end, close_reason):
        return False
    return answer(labels)


async def labels_by_incident(session: AsyncSession, incident_ids: Sequence[str]) -> Mapping[str, list[LabelRow]]:
    """All labels of some incidents."""
    found: dict[str, list[LabelRow]] = {}
    for start in range(0, len(incident_ids), CHUNK):
        ids = incident_ids[start : start + CHUNK]
        for label in (await session.exec(select(LabelRow).where(col(LabelRow.incident_id).in_(ids)))).all():
            found.setdefault(label.incident_id, []).append(label)
    return found
