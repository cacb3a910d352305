"""Samples are finite numbers or unknown by name."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.documents import canonical
from sources.errors import SourceUnavailable
from sources.samples import Series, Unknown, Vector, increase, sample_of

NOW = datetime(2026, 11, 29, 18, tzinfo=UTC)


def vector(*samples: float | Unknown, inputs: str = "fresh") -> Vector:
    series = tuple(Series(labels={"n": str(number)}, sample=sample, at=NOW) for number, sample in enumerate(samples))
    return Vector(series=series, at=NOW, inputs=inputs)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("NaN", "nan"),
        ("nan", "nan"),
        ("+Inf", "inf"),
        ("-Inf", "inf"),
        ("Inf", "inf"),
        ("", "malformed"),
        ("x", "malformed"),
        (1.0, "malformed"),
        (None, "malformed"),
    ],
)
def test_F28_F37_what_is_no_number_is_unknown_by_name(text: object, reason: str) -> None:
    found = sample_of(text)
    assert isinstance(found, Unknown)
    assert found.reason == reason


@given(st.floats())
def test_F28_a_sample_is_finite_or_unknown(value: float) -> None:
    found = sample_of(repr(value))
    assert found == value if math.isfinite(value) else isinstance(found, Unknown)
    canonical(Series(labels={}, sample=found, at=NOW))


def test_F29_an_empty_vector_has_no_value_and_does_not_fail() -> None:
    assert vector().only() == Unknown(reason="empty")
    assert list(vector()) == []
    assert vector(1.5).only() == 1.5


def test_F38_stale_inputs_hide_every_value_and_the_lack_of_one() -> None:
    assert vector(1.5, inputs="stale").only() == Unknown(reason="stale")
    assert vector(inputs="stale").only() == Unknown(reason="stale")


def test_several_values_where_one_was_expected() -> None:
    found = vector(1.0, 2.0).only()
    assert isinstance(found, Unknown)
    assert found.reason == "malformed"


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("timeout", "timeout"), ("unreachable", "unreachable"), ("malformed", "malformed"), ("forbidden", "unreachable")],
)
def test_a_failed_read_leaves_an_unknown_with_its_name(kind: str, reason: str) -> None:
    found = Unknown.of(SourceUnavailable("prometheus", kind, "x"))  # type: ignore[arg-type]
    assert found.reason == reason
    assert "prometheus" in found.detail


def points(*samples: float | Unknown) -> list[tuple[datetime, float | Unknown]]:
    return [(NOW + timedelta(seconds=number), sample) for number, sample in enumerate(samples)]


def test_a_counter_that_went_down_was_reset() -> None:
    assert increase(points(1, 2, 5)) == 4
    assert increase(points(5, 1, 9)) == Unknown(reason="counter_reset")
    assert increase(points(1, Unknown(reason="nan"), 5)) == Unknown(reason="nan")
    assert isinstance(increase(points(1)), Unknown)
    assert isinstance(increase([]), Unknown)
