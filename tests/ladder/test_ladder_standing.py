"""Standing is computed from promotions and outcomes; nothing but people raises it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ladder_cases import NOW, calibration

from catalog.actions import RemediationAction
from catalog.cases import Rung, ScoredOutcome, StandingChange, StandingRecord
from catalog.outcomes import End
from ladder.standing import Promotion, owners_needed, promotion_refusal, standing_of

ACTION = RemediationAction.RESTART_WORKLOAD
R3, R4, R5 = Rung.R3, Rung.R4, Rung.R5


def change(rung: Rung, minute: int, **changes: Any) -> StandingChange:
    known: dict[str, Any] = {
        "id": f"c{minute}",
        "scope": "shop",
        "match_digest": "m",
        "action": ACTION,
        "rung": rung,
        "by": ("ana", "bo"),
        "at": NOW + timedelta(minutes=minute),
        "why": "earned",
    }
    return StandingChange(**{**known, **changes})


def outcome(end: str, minute: int, **changes: Any) -> ScoredOutcome:
    known: dict[str, Any] = {
        "incident_id": f"i{minute}",
        "scope": "shop",
        "match_digest": "m",
        "action": ACTION,
        "end": end,
        "at": NOW + timedelta(minutes=minute),
    }
    return ScoredOutcome(**{**known, **changes})


def rung(changes: Sequence[StandingChange], outcomes: Sequence[ScoredOutcome] = ()) -> Rung:
    record = StandingRecord(changes=tuple(changes), outcomes=tuple(outcomes))
    return standing_of(record, "shop", "m", ACTION, NOW + timedelta(days=1)).rung


def test_fresh_standing_is_r3_and_a_promotion_sets_it() -> None:
    assert rung([]) is R3
    assert rung([change(R5, 0)]) is R5
    assert rung([change(R5, 0), change(R4, 1)]) is R4


@pytest.mark.parametrize("other", [{"scope": "other"}, {"match_digest": "changed"}, {"action": RemediationAction.SCALE}])
def test_standing_is_keyed_by_scope_match_and_action(other: dict[str, Any]) -> None:
    assert rung([change(R5, 0, **other)]) is R3
    assert rung([change(R5, 0)], [outcome("regressed", 1, **other)]) is R5


def test_a_promotion_dated_after_now_is_not_in_force_and_an_outcome_is() -> None:
    record = StandingRecord(changes=(change(R5, 10),), outcomes=())
    assert standing_of(record, "shop", "m", ACTION, NOW).rung is R3
    record = StandingRecord(changes=(change(R5, 0),), outcomes=(outcome("regressed", 10),))
    assert standing_of(record, "shop", "m", ACTION, NOW).rung is R4


@pytest.mark.parametrize("end", ["regressed", "unverified", "undo_incomplete"])
def test_g35_harm_demotes_to_r4_at_once_and_the_second_time_to_r3(end: str) -> None:
    assert rung([change(R5, 0)], [outcome(end, 1)]) is R4
    assert rung([change(R5, 0)], [outcome(end, 1), outcome(end, 2)]) is R3


def test_harm_at_the_instant_of_a_promotion_takes_it_away() -> None:
    assert rung([change(R5, 1)], [outcome("regressed", 1)]) is R4


@pytest.mark.parametrize("end", ["rolled_back", "ineffective"])
def test_two_wrong_of_the_last_ten_take_one_rung(end: str) -> None:
    one = [outcome(end, 1), *(outcome("committed", n) for n in range(2, 10))]
    assert rung([change(R5, 0)], one) is R5
    assert rung([change(R5, 0)], [*one, outcome(end, 10)]) is R4
    spread = [outcome(end, 1), *(outcome("committed", n) for n in range(2, 11)), outcome(end, 11)]
    assert rung([change(R5, 0)], spread) is R5


def test_what_came_back_or_was_labelled_wrong_counts_as_wrong() -> None:
    assert rung([change(R5, 0)], [outcome("committed", 1, right=False), outcome("committed", 2, right=False)]) is R4


@pytest.mark.parametrize("end", ["refused", "conflict"])
def test_refused_and_conflict_say_nothing(end: str) -> None:
    assert rung([change(R5, 0)], [outcome(end, n) for n in range(1, 30)]) is R5


def test_after_a_demotion_the_window_starts_again() -> None:
    wrong = [outcome("ineffective", n) for n in (1, 2, 3)]
    assert rung([change(R5, 0)], wrong) is R4
    assert rung([change(R5, 0)], [*wrong, outcome("ineffective", 4)]) is R3


def test_a_person_may_raise_it_again_and_harm_counts_from_there() -> None:
    assert rung([change(R5, 0), change(R5, 2)], [outcome("regressed", 1), outcome("regressed", 3)]) is R4
    assert rung([change(R5, 0), change(R4, 2)], [outcome("regressed", 1), outcome("regressed", 3)]) is R3


@given(st.lists(st.tuples(st.sampled_from([end.value for end in End]), st.sampled_from([True, False, None])), max_size=30))
@settings(max_examples=200)
def test_outcomes_never_raise_a_rung(ends: list[tuple[str, bool | None]]) -> None:
    held = R5
    outcomes: list[ScoredOutcome] = []
    for minute, (end, right) in enumerate(ends, start=1):
        outcomes.append(outcome(end, minute, right=right))
        after = rung([change(R5, 0)], outcomes)
        assert R3 <= after <= held
        if End(end).harmful:
            assert after <= R4
        held = after


# promotion -------------------------------------------------------------------------------------------------------------------


def promotion(rung: Rung, **changes: Any) -> Promotion:
    known: dict[str, Any] = {
        "scope": "shop",
        "match_digest": "m",
        "action": ACTION,
        "rung": rung,
        "ceiling": R5,
        "service_level_checks": 1,
    }
    return Promotion(**{**known, **changes})


OPEN, SHUT = calibration(), calibration(open=False, settled=49, right=49, last_look=None, next_look=50)
LABELLED = tuple(outcome("committed", n, right=True, labelled=True) for n in range(1, 6))


def why(asked: Promotion, record: StandingRecord, cells: Sequence[Any]) -> str | None:
    return promotion_refusal(asked, record, cells, NOW + timedelta(days=1))


def test_r5_needs_two_owners() -> None:
    assert [owners_needed(one) for one in (R3, R4, R5)] == [1, 1, 2]


def test_r4_needs_the_gate_or_the_scopes_word() -> None:
    assert why(promotion(R4), StandingRecord(), [OPEN]) is None
    assert "49 of 49 labelled episodes of wedged were right, next look at 50" in (
        why(promotion(R4), StandingRecord(), [SHUT]) or ""
    )
    assert "nothing of this action is labelled yet" in (why(promotion(R4), StandingRecord(), []) or "")
    assert why(promotion(R4, propose_uncalibrated=True), StandingRecord(), [SHUT]) is None


def test_r5_needs_the_gate_whatever_the_scope_says() -> None:
    record = StandingRecord(outcomes=LABELLED)
    assert why(promotion(R5), record, [OPEN]) is None
    assert "the gate is closed" in (why(promotion(R5, propose_uncalibrated=True), record, [SHUT]) or "")


def test_r5_needs_five_labelled_episodes_of_the_scope_the_last_five_right() -> None:
    assert "has 4 labelled episodes" in (why(promotion(R5), StandingRecord(outcomes=LABELLED[:4]), [OPEN]) or "")
    unlabelled = StandingRecord(outcomes=tuple(outcome("committed", n) for n in range(20)))
    assert "has 0 labelled episodes" in (why(promotion(R5), unlabelled, [OPEN]) or "")
    wrong = StandingRecord(outcomes=(*LABELLED, outcome("ineffective", 9, right=False, labelled=True)))
    assert "1 of the last 5 labelled episodes of scope shop were wrong" in (why(promotion(R5), wrong, [OPEN]) or "")
    elsewhere = StandingRecord(outcomes=tuple(one.model_copy(update={"scope": "other"}) for one in LABELLED))
    assert "has 0 labelled episodes" in (why(promotion(R5), elsewhere, [OPEN]) or "")


def test_a_promotion_above_the_ceiling_or_without_a_check_is_refused() -> None:
    record = StandingRecord(outcomes=LABELLED)
    assert "the ceiling of restart_workload is R4" in (why(promotion(R5, ceiling=R4), record, [OPEN]) or "")
    assert "no service-level check" in (why(promotion(R5, service_level_checks=0), record, [OPEN]) or "")


def test_re_earning_r5_takes_ten_right_in_a_row_at_r4() -> None:
    lost = (outcome("regressed", 10, right=False, labelled=True),)

    def after(right: int) -> StandingRecord:
        row = tuple(outcome("committed", 20 + n, right=True, labelled=True) for n in range(right))
        return StandingRecord(changes=(change(R5, 0),), outcomes=(*LABELLED, *lost, *row))

    assert "re-earning it needs 10 right episodes in a row at R4, and there are 9" in (why(promotion(R5), after(9), [OPEN]) or "")
    assert why(promotion(R5), after(10), [OPEN]) is None
    assert "the gate is closed" in (why(promotion(R5), after(10), [SHUT]) or "")
