"""What (scope, match, action) has earned: promotions by people minus outcomes that disqualify them. Computed, never stored.

Fresh standing is R3. A promotion sets the rung it names. Harm takes it to R4 at once and, the second time since it was last
raised, to R3. Two wrong ends among the last ten since the last change take one rung. Nothing here ever raises a rung.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Literal

from catalog.actions import RemediationAction
from catalog.cases import Calibration, Rung, ScoredOutcome, StandingChange, StandingRecord
from catalog.documents import Document
from catalog.outcomes import End
from ladder.scopes import MergedScope

FRESH = Rung.R3
WINDOW = 10
WRONG_IN_WINDOW = 2
SCOPE_LABELS = 5
IN_A_ROW = 10

Event = StandingChange | ScoredOutcome


class RungInForce(Document):
    """Ceiling, standing, and the lower of the two."""

    ceiling: Rung
    standing: Rung

    @property
    def rung(self) -> Rung:
        return min(self.ceiling, self.standing)


class Standing(Document):
    """Where the fold over the record ended."""

    rung: Rung = FRESH
    harms: int = 0
    window: tuple[bool, ...] = ()
    demoted_from: Rung | None = None
    why: str = ""


def counts(outcome: ScoredOutcome) -> bool:
    """Refused and conflict say nothing about the action."""
    return outcome.end not in (End.REFUSED, End.CONFLICT)


def is_wrong(outcome: ScoredOutcome) -> bool:
    """Wrong by its end whatever its label, or settled wrong, or finished and came back."""
    return outcome.end.wrong or outcome.right is False


def standing_of(record: StandingRecord, scope: str, match_digest: str, action: RemediationAction, now: datetime) -> Standing:
    """Fold the record of one (scope, match, action). A promotion dated after `now` is not in force; an outcome always counts."""
    state = Standing()
    for event in _events(record, scope, match_digest, action, now):
        state = _changed(state, event) if isinstance(event, StandingChange) else _ended(state, event)
    return state


def rung_in_force(record: StandingRecord, scope: MergedScope, action: RemediationAction, now: datetime) -> RungInForce:
    """min(lowest ceiling of all matching scopes, standing of the most specific scope whose ceiling names the action)."""
    named = scope.earned.get(action)
    if named is None:
        return RungInForce(ceiling=Rung.R3, standing=FRESH)
    state = standing_of(record, named.scope, named.match_digest, action, now)
    return RungInForce(ceiling=named.ceiling, standing=state.rung)


def _events(record: StandingRecord, scope: str, match_digest: str, action: RemediationAction, now: datetime) -> Iterator[Event]:
    every: list[Event] = [change for change in record.changes if change.at <= now]
    every += [outcome for outcome in record.outcomes if counts(outcome)]
    mine = [one for one in every if (one.scope, one.match_digest, one.action) == (scope, match_digest, action)]
    # At the same instant the promotion goes first, so that the outcome takes it away.
    yield from sorted(mine, key=lambda one: (one.at, isinstance(one, ScoredOutcome)))


def _changed(state: Standing, change: StandingChange) -> Standing:
    if change.rung > state.rung:
        return Standing(rung=change.rung, why=f"raised by {' and '.join(change.by)}: {change.why}")
    return state.model_copy(
        update={"rung": change.rung, "window": (), "why": f"lowered by {' and '.join(change.by)}: {change.why}"}
    )


def _ended(state: Standing, outcome: ScoredOutcome) -> Standing:
    if outcome.end.harmful:
        harms = state.harms + 1
        floor = Rung.R4 if harms == 1 else Rung.R3
        why = f"{outcome.end.value} in {outcome.incident_id}" + ("" if harms == 1 else f", harm number {harms} since it was raised")
        return _lowered(state, min(state.rung, floor), why).model_copy(update={"harms": harms})
    window = (*state.window, is_wrong(outcome))[-WINDOW:]
    if sum(window) >= WRONG_IN_WINDOW:
        return _lowered(state, max(FRESH, Rung(state.rung - 1)), f"{sum(window)} of the last {len(window)} were wrong")
    return state.model_copy(update={"window": window})


def _lowered(state: Standing, rung: Rung, why: str) -> Standing:
    demoted = state.rung if rung < state.rung else state.demoted_from
    return Standing(rung=min(rung, state.rung), harms=state.harms, demoted_from=demoted, why=why)


class Promotion(Document):
    """What a promotion is judged by."""

    scope: str
    match_digest: str
    action: RemediationAction
    rung: Rung
    ceiling: Rung
    propose_uncalibrated: bool = False
    service_level_checks: int = 0


def owners_needed(rung: Rung) -> Literal[1, 2]:
    """R5 needs two owners, everything else one."""
    return 2 if rung >= Rung.R5 else 1


def promotion_refusal(promotion: Promotion, record: StandingRecord, cells: Sequence[Calibration], now: datetime) -> str | None:
    """Why the evidence does not carry the promotion, with numbers; None when it does. Owners are counted elsewhere.

    `cells` are the calibration cells of the action: one per incident family. R4 and R5 need at least one with an open gate; the
    gate itself is asked per family again at every decision.
    """
    if promotion.rung > promotion.ceiling:
        return f"the ceiling of {promotion.action.value} is {promotion.ceiling}, so {promotion.rung} cannot be in force"
    if promotion.rung <= Rung.R3:
        return None
    gate_open = any(cell.open for cell in cells)
    if promotion.rung == Rung.R4:
        return None if gate_open or promotion.propose_uncalibrated else f"{_gate(cells)}; or set propose_uncalibrated: true there"
    return _refused_at_r5(promotion, record, cells, now, gate_open=gate_open)


def _refused_at_r5(
    promotion: Promotion, record: StandingRecord, cells: Sequence[Calibration], now: datetime, *, gate_open: bool
) -> str | None:
    if not gate_open:
        return _gate(cells)
    if promotion.service_level_checks == 0:
        return f"scope {promotion.scope} has no service-level check; R5 needs at least one under checks:"
    key = (promotion.scope, promotion.match_digest, promotion.action)
    mine = [one for one in record.outcomes if (one.scope, one.match_digest, one.action) == key and counts(one)]
    labelled = [one for one in mine if one.labelled and one.right is not None]
    if len(labelled) < SCOPE_LABELS:
        return f"scope {promotion.scope} has {len(labelled)} labelled episodes of {promotion.action.value}; R5 needs {SCOPE_LABELS}"
    wrong = sum(is_wrong(one) for one in labelled[-SCOPE_LABELS:])
    if wrong:
        return (
            f"{wrong} of the last {SCOPE_LABELS} labelled episodes of scope {promotion.scope} were wrong; R5 needs them all right"
        )
    return _refused_again(promotion, record, now)


def _refused_again(promotion: Promotion, record: StandingRecord, now: datetime) -> str | None:
    state = standing_of(record, promotion.scope, promotion.match_digest, promotion.action, now)
    if state.demoted_from is None or state.demoted_from < Rung.R5:
        return None
    mine = list(_events(record, promotion.scope, promotion.match_digest, promotion.action, now))
    row = _right_in_a_row(mine)
    if row >= IN_A_ROW:
        return None
    return f"it lost R5 ({state.why}); re-earning it needs {IN_A_ROW} right episodes in a row at R4, and there are {row}"


def _right_in_a_row(events: Sequence[Event]) -> int:
    row = 0
    for event in reversed(events):
        if isinstance(event, StandingChange):
            continue
        if event.right is not True or is_wrong(event):
            break
        row += 1
    return row


def _gate(cells: Sequence[Calibration]) -> str:
    if not cells:
        return "the gate is closed: nothing of this action is labelled yet, and it opens at 50 human labels at the earliest"
    best = max(cells, key=lambda cell: cell.settled)
    following = f", next look at {best.next_look}" if best.next_look else ", and no later look is declared"
    return f"the gate is closed: {best.right} of {best.settled} labelled episodes of {best.family.value} were right{following}"
