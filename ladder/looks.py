"""At which numbers of labels the calibration gate may open, and with how few errors: a table declared before the first label.

Opening whenever the figures happen to look good would open a gate of true precision 0.90 far too often. So the gate is asked
at declared looks only, and all looks together share one error budget: the probability that an action whose true precision is
the target ever opens the gate is at most `ERROR`. The dynamic programme carries, from look to look, the distribution of wrong
answers among the paths that have not opened yet. The first look that can be passed at all takes as much of the budget as it
can use; what is left is shared evenly among the later looks, and a look's unused share is not handed on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from math import comb

from catalog.documents import Document

SIZES = (50, 75, 100, 150, 200, 300)
ERROR = 0.05
CLOSING_WINDOW = 10
CLOSING_WRONG = 3


class Look(Document):
    """Opens with at most `max_wrong` of the first `n`; −1: not even without an error."""

    n: int
    max_wrong: int


class LookResult(Document):
    """One look, evaluated."""

    look: Look
    right: int
    opened: bool

    @property
    def wrong(self) -> int:
        return self.look.n - self.right


@lru_cache(maxsize=64)
def looks(target_precision: float, sizes: tuple[int, ...] = SIZES, error: float = ERROR) -> tuple[Look, ...]:
    """The table for a target precision.

    Raises:
        ValueError: a precision or error outside (0, 1), or sizes that do not grow.
    """
    if not (0 < target_precision < 1 and 0 < error < 1):
        raise ValueError("target precision and error must lie between 0 and 1")
    if not sizes or sizes[0] < 1 or any(later <= earlier for earlier, later in pairwise(sizes)):
        raise ValueError("looks must grow")
    table: list[Look] = []
    alive = {0: 1.0}
    share: float | None = None
    for position, (step, n) in enumerate(_steps(sizes)):
        alive = _advanced(alive, step, 1 - target_precision)
        max_wrong, spent = _largest(alive, n, error if share is None else share)
        table.append(Look(n=n, max_wrong=max_wrong))
        alive = {wrong: probability for wrong, probability in alive.items() if wrong > max_wrong}
        if share is None and max_wrong >= 0:
            later = len(sizes) - position - 1
            share = (error - spent) / later if later else 0.0
    return tuple(table)


def opening_probability(table: Sequence[Look], true_precision: float) -> float:
    """Exact probability that a gate of this true precision opens at one of the looks."""
    alive, opened = {0: 1.0}, 0.0
    for (step, _), look in zip(_steps(tuple(look.n for look in table)), table, strict=True):
        alive = _advanced(alive, step, 1 - true_precision)
        opened += sum(probability for wrong, probability in alive.items() if wrong <= look.max_wrong)
        alive = {wrong: probability for wrong, probability in alive.items() if wrong > look.max_wrong}
    return opened


def evaluate(results: Sequence[bool], look: Look) -> LookResult:
    """Judge the first `look.n` results in the order their count settled.

    Raises:
        ValueError: fewer results than the look needs.
    """
    if len(results) < look.n:
        raise ValueError(f"the look at {look.n} was asked with {len(results)} results")
    right = sum(results[: look.n])
    return LookResult(look=look, right=right, opened=look.n - right <= look.max_wrong)


def next_look(table: Sequence[Look], settled: int) -> Look | None:
    """The first look not reached yet, at which the gate can open."""
    return next((look for look in table if look.n > settled and look.max_wrong >= 0), None)


def closes(last: Sequence[bool]) -> bool:
    """Whether an open gate closes: three wrong among the last ten of its cell."""
    return sum(not right for right in last[-CLOSING_WINDOW:]) >= CLOSING_WRONG


def _steps(sizes: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    for earlier, n in pairwise((0, *sizes)):
        yield n - earlier, n


def _advanced(alive: dict[int, float], step: int, wrong_rate: float) -> dict[int, float]:
    chances = [comb(step, k) * wrong_rate**k * (1 - wrong_rate) ** (step - k) for k in range(step + 1)]
    after: dict[int, float] = {}
    for wrong, probability in alive.items():
        for more, chance in enumerate(chances):
            after[wrong + more] = after.get(wrong + more, 0.0) + probability * chance
    return after


def _largest(alive: dict[int, float], n: int, budget: float) -> tuple[int, float]:
    """The largest number of wrong answers whose opening costs at most `budget`, and what it costs."""
    spent, max_wrong = 0.0, -1
    for wrong in range(n + 1):
        cost = spent + alive.get(wrong, 0.0)
        if cost > budget:
            break
        spent, max_wrong = cost, wrong
    return max_wrong, spent
