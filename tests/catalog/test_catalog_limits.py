"""The arithmetic of bounds, which bot and executor share."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.limits import (
    Budget,
    allowed_dip,
    pods_at_risk,
    radius_breach,
    resolved_roll_out,
    rounded_pods,
    scale_breach,
)

NOW = datetime(2026, 3, 4, 10, 0, tzinfo=UTC)


def test_a_budget_counts_a_sliding_window_and_says_when_it_is_free_again() -> None:
    budget = Budget.parse("2/1h")
    times = [NOW - timedelta(minutes=50), NOW - timedelta(minutes=10)]
    breach = budget.breach("budget", times, NOW)
    assert breach is not None
    assert breach.free_at == NOW + timedelta(minutes=10)
    assert "free again at 2026-03-04 10:10:00 UTC" in breach.sentence
    assert budget.breach("budget", times, NOW + timedelta(minutes=10)) is None


def test_a_budget_of_nothing_is_never_free() -> None:
    breach = Budget.parse("0/1h").breach("budget", [], NOW)
    assert breach is not None
    assert breach.free_at is None


def test_an_order_dated_in_the_future_counts() -> None:
    assert Budget.parse("1/1h").breach("budget", [NOW + timedelta(hours=5)], NOW) is not None


@pytest.mark.parametrize("text", ["", "3", "3/h", "3/0h", "-1/1h", "3/1w", "3 / 1h", "3/1h\n", "99999/1h"])
def test_what_is_not_a_budget_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Budget.parse(text)


@given(st.integers(0, 9999), st.integers(1, 9999), st.sampled_from("smhd"))
def test_budgets_round_trip(count: int, per: int, unit: str) -> None:
    budget = Budget.parse(f"{count}/{per}{unit}")
    assert Budget.parse(str(budget)) == budget if budget.per.total_seconds() < 9999 * 86400 and len(str(budget)) < 12 else True


@pytest.mark.parametrize(
    ("value", "desired", "up", "down"), [("25%", 3, 1, 0), ("25%", 4, 1, 1), (2, 10, 2, 2), (None, 10, 3, 2), ("0%", 7, 0, 0)]
)
def test_percentages_round_as_kubernetes_rounds(value: int | str | None, desired: int, up: int, down: int) -> None:
    assert rounded_pods(value, desired, rounding="up") == up
    assert rounded_pods(value, desired, rounding="down") == down


def test_a_roll_out_that_could_move_nothing_may_lose_one_pod() -> None:
    assert resolved_roll_out(0, 0, 3) == (0, 1)
    with pytest.raises(ValueError):
        resolved_roll_out("many", 0, 3)


@pytest.mark.parametrize(
    ("max_unavailable", "ready", "allowed", "dip"), [(0, 3, None, 1), (0, 2, None, 0), (2, 8, None, 2), (2, 8, 1, 1), (0, 3, 0, 0)]
)
def test_the_allowed_dip_is_bounded_by_every_budget(max_unavailable: int, ready: int, allowed: int | None, dip: int) -> None:
    assert allowed_dip(max_unavailable, ready, allowed) == dip


def test_pods_at_risk() -> None:
    assert pods_at_risk("scale", max_unavailable=5, one_pod_first=False) == 0
    assert pods_at_risk("restart_pod", max_unavailable=5, one_pod_first=False) == 1
    assert pods_at_risk("restart_workload", max_unavailable=0, one_pod_first=True) == 1
    assert pods_at_risk("restart_workload", max_unavailable=3, one_pod_first=True) == 3


@pytest.mark.parametrize(
    ("at_risk", "ready", "share", "held"),
    [(1, 1, 0.3, True), (1, 0, 0.3, True), (2, 3, 0.3, False), (4, 12, 0.3, True), (5, 12, 0.3, False)],
)
def test_the_radius_rounds_up_to_at_least_one_pod(at_risk: int, ready: int, share: float, held: bool) -> None:
    assert (radius_breach(at_risk, ready, share, "radius") is None) is held


@pytest.mark.parametrize(
    ("low", "high", "limit"),
    [
        (2, 4, None),
        (4, 2, None),
        (3, 2, None),
        (2, 0, "scale to zero"),
        (0, 3, "scale from zero"),
        (2, 5, "scale.step"),
        (8, 13, "scale.step"),
        (8, 12, "scale.max"),
        (5, 2, "scale.step"),
        (3, 1, "scale.min"),
    ],
)
def test_f70_p07_bounds_of_one_scale_step(low: int, high: int, limit: str | None) -> None:
    maximum = 20 if (low, high) == (8, 13) else 10
    breach = scale_breach(low, high, minimum=2, maximum=maximum, step=4)
    assert (breach.limit if breach else None) == limit


@given(st.integers(0, 50), st.integers(0, 50))
def test_no_accepted_step_reaches_zero_or_more_than_doubles_or_halves(low: int, high: int) -> None:
    if low != high and scale_breach(low, high, minimum=1, maximum=30, step=4) is None:
        assert 1 <= high <= 20
        assert low >= 1
        assert high <= 2 * low
        assert high <= low + 4
        assert 2 * high >= low
