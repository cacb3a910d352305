"""The table of looks is what the dynamic programme gives, and what it promises is exact."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ladder.looks import ERROR, SIZES, Look, closes, evaluate, looks, next_look, opening_probability


def test_the_table_for_090() -> None:
    assert [(look.n, look.max_wrong) for look in looks(0.90)] == [(50, 1), (75, 1), (100, 2), (150, 6), (200, 9), (300, 17)]


@pytest.mark.parametrize(("true_precision", "opened"), [(0.90, 0.042), (0.95, 0.80), (0.97, 0.996)])
def test_exact_opening_probabilities(true_precision: float, opened: float) -> None:
    assert opening_probability(looks(0.90), true_precision) == pytest.approx(opened, abs=0.0007)


def test_the_programme_agrees_with_a_simulation_of_the_gate() -> None:
    table, dice = looks(0.90), random.Random(7)
    runs, opened = 6_000, 0
    for _ in range(runs):
        results = [dice.random() < 0.95 for _ in range(SIZES[-1])]
        opened += any(evaluate(results, look).opened for look in table)
    assert opened / runs == pytest.approx(opening_probability(table, 0.95), abs=0.02)


@pytest.mark.parametrize("target", [0.80, 0.85, 0.90, 0.95, 0.97])
def test_other_targets_keep_the_error_budget_and_grow(target: float) -> None:
    table = looks(target)
    assert opening_probability(table, target) <= ERROR
    assert [look.max_wrong for look in table] == sorted(look.max_wrong for look in table)


def test_fifty_labels_never_certify_095() -> None:
    first = looks(0.95)[0]
    assert (first.n, first.max_wrong) == (50, -1)
    assert not evaluate([True] * 50, first).opened
    following = next_look(looks(0.95), 0)
    assert following is not None
    assert following.n == 75


@given(st.floats(0.5, 0.98), st.lists(st.integers(1, 60), min_size=1, max_size=5))
@settings(max_examples=60, deadline=None)
def test_any_table_keeps_the_error_budget(target: float, steps: list[int]) -> None:
    sizes = tuple(sum(steps[: n + 1]) for n in range(len(steps)))
    assert opening_probability(looks(target, sizes), target) <= ERROR + 1e-9


@pytest.mark.parametrize(("target", "sizes"), [(1.0, SIZES), (0.0, SIZES), (0.9, ()), (0.9, (50, 50)), (0.9, (0, 5))])
def test_a_table_of_nothing_is_refused(target: float, sizes: tuple[int, ...]) -> None:
    with pytest.raises(ValueError):
        looks(target, sizes)


def test_at_fifty_48_right_does_not_open_and_49_does() -> None:
    look = looks(0.90)[0]
    assert not evaluate([True] * 48 + [False] * 2, look).opened
    assert evaluate([True] * 49 + [False], look).opened
    with pytest.raises(ValueError):
        evaluate([True] * 49, look)


def test_a_look_judges_the_first_n_only() -> None:
    result = evaluate([True] * 50 + [False] * 9, Look(n=50, max_wrong=1))
    assert (result.right, result.wrong, result.opened) == (50, 0, True)


def test_three_wrong_of_the_last_ten_close() -> None:
    assert not closes([False] * 2 + [True] * 8)
    assert closes([False] * 3 + [True] * 7)
    assert not closes([False] * 3 + [True] * 8)
    assert closes([False] * 3)


def test_no_look_is_left_after_the_last() -> None:
    assert next_look(looks(0.90), 300) is None
    following = next_look(looks(0.90), 50)
    assert following is not None
    assert following.n == 75
