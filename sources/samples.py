"""Samples in three states: a number, or `Unknown` with the reason by name. No sample is ever NaN or infinite."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from catalog.documents import Document, Instant
from sources.errors import FailureKind, SourceUnavailable

UnknownReason = Literal[
    "nan", "inf", "empty", "stale", "timeout", "unreachable", "malformed", "counter_reset", "not_configured"
]  # fmt: skip

_REASON_OF_FAILURE: dict[FailureKind, UnknownReason] = {
    "unreachable": "unreachable",
    "timeout": "timeout",
    "unauthorized": "unreachable",
    "forbidden": "unreachable",
    "throttled": "unreachable",
    "server_error": "unreachable",
    "malformed": "malformed",
}


class Unknown(Document):
    """A value that could not be told, and why. Never passes, never fails, never counts as success."""

    reason: UnknownReason
    detail: str = ""

    @classmethod
    def of(cls, error: SourceUnavailable) -> Unknown:
        """The unknown that a failed read leaves behind."""
        return cls(reason=_REASON_OF_FAILURE[error.kind], detail=str(error))


Sample = float | Unknown
"""One value: a finite number, or why there is none."""


def sample_of(text: object) -> Sample:
    """A sample as Prometheus writes it: a number in a string, `NaN`, `+Inf` or `-Inf`."""
    if not isinstance(text, str):
        return Unknown(reason="malformed", detail=f"a sample of type {type(text).__name__}")
    try:
        value = float(text)
    except ValueError:
        return Unknown(reason="malformed", detail="a sample that is not a number")
    if math.isnan(value):
        return Unknown(reason="nan")
    if math.isinf(value):
        return Unknown(reason="inf", detail=text)
    return value


class Series(Document):
    """One element of a result: its labels and its sample. `at` is the instant it was evaluated for."""

    labels: dict[str, str]
    sample: Sample
    at: Instant


InputState = Literal["fresh", "stale", "absent", "unchecked"]
"""Of the raw series behind a result: scraped lately, scraped too long ago, none of one selector at all, or not looked at."""


@dataclass(frozen=True)
class Vector:
    """Result of an instant query. Iterating gives (labels, sample).

    An empty vector is not a verdict by itself: a caller declares what empty means, after looking at `inputs`. Over `stale`
    inputs every sample is `Unknown("stale")`, and an empty vector proves nothing either.
    """

    series: tuple[Series, ...]
    at: datetime
    inputs: InputState = "unchecked"
    newest_at: datetime | None = None
    warnings: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[tuple[dict[str, str], Sample]]:
        return ((one.labels, one.sample) for one in self.series)

    def __len__(self) -> int:
        return len(self.series)

    def only(self) -> Sample:
        """The one sample of a query that aggregates to one value; nothing is `empty`, several are `malformed`."""
        if self.inputs == "stale":
            return Unknown(reason="stale")
        if not self.series:
            return Unknown(reason="empty")
        if len(self.series) > 1:
            return Unknown(reason="malformed", detail=f"{len(self.series)} series where one was expected")
        return self.series[0].sample


@dataclass(frozen=True)
class RangeSeries:
    """One series of a range query, oldest point first."""

    labels: dict[str, str]
    points: tuple[tuple[datetime, Sample], ...]


@dataclass(frozen=True)
class Matrix:
    """Result of a range query. Iterating gives its series."""

    series: tuple[RangeSeries, ...]
    warnings: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[RangeSeries]:
        return iter(self.series)

    def __len__(self) -> int:
        return len(self.series)


def increase(points: Sequence[tuple[datetime, Sample]]) -> Sample:
    """How much a counter grew over `points`. A counter that went down was reset: unknown, not a negative increase."""
    if len(points) < 2:
        return Unknown(reason="empty", detail="fewer than two points")
    values: list[float] = []
    for _, sample in points:
        if isinstance(sample, Unknown):
            return sample
        values.append(sample)
    if any(later < earlier for earlier, later in itertools.pairwise(values)):
        return Unknown(reason="counter_reset")
    return values[-1] - values[0]
