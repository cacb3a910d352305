"""Measures, rules and service-level checks in three states; series that still speak of a workload whose pods were replaced."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from catalog.evidence import Oracle
from catalog.orders import Check, CheckSource
from catalog.targets import Target, TargetKind
from sources.samples import InputState, Sample, Series, Unknown, Vector
from sources.telemetry import (
    MAX_PODS,
    MEMORY,
    REQUESTS,
    REQUESTS_USUAL,
    SPECS,
    Windows,
    level_of,
    measure_of,
    passes,
    query_for,
    rule_of,
)

NOW = datetime(2026, 3, 4, 10, 0, tzinfo=UTC)
TARGET = Target(cluster_uid="c1", cluster="eu-1", namespace="shop", kind=TargetKind.DEPLOYMENT, name="api")
POD = "api-6bd86f5796-b0000"
NAN, INF = Unknown(reason="nan"), Unknown(reason="inf")


def vector(*found: tuple[dict[str, str], Sample], inputs: InputState = "fresh") -> Vector:
    return Vector(tuple(Series(labels=labels, sample=sample, at=NOW) for labels, sample in found), NOW, inputs)


def rule(result: Vector, **labels: str) -> tuple[bool | None, str]:
    given = {"alertname": "A", "namespace": "shop", **labels}
    reading = rule_of("A", "metric > 1", result, TARGET, given, at=NOW, link=None)
    return reading.holds, reading.unknown


def test_a_rule_holds_for_the_target_and_not_for_its_neighbour() -> None:
    own = ({"namespace": "shop", "pod": POD}, 2.0)
    other = ({"namespace": "shop", "pod": "web-7bc478b4c9-x1234"}, 2.0)
    assert rule(vector(own, other), pod=POD) == (True, "")
    assert rule(vector(other), pod=POD) == (False, "")
    assert rule(vector(({"namespace": "prod", "pod": POD}, 2.0)), pod=POD) == (False, "")


def test_g47_a_rule_holds_for_the_pod_that_replaced_the_one_the_alert_names() -> None:
    replaced = ({"namespace": "shop", "pod": "api-7bc478b4c9-zz9zz"}, 2.0)
    assert rule(vector(replaced), pod=POD) == (True, "")


def test_an_exporters_own_labels_are_not_the_victims() -> None:
    series = {"namespace": "monitoring", "pod": "kube-state-metrics-0", "exported_namespace": "shop", "exported_pod": POD}
    assert rule(vector((series, 1.0)), exported_pod=POD, exported_namespace="shop", pod="kube-state-metrics-0") == (True, "")
    assert rule(vector(({**series, "exported_pod": "web-7bc478b4c9-x1234"}, 1.0)), exported_pod=POD) == (False, "")


def test_f28_f29_f31_f37_no_good_sample_is_neither_true_nor_false() -> None:
    own = {"namespace": "shop", "pod": POD}
    assert rule(vector((own, NAN))) == (None, "nan")
    assert rule(vector((own, INF))) == (None, "inf")
    assert rule(vector(inputs="absent")) == (None, "absent_metric")
    assert rule(vector(inputs="stale")) == (None, "stale")
    assert rule(vector((own, 2.0), inputs="stale")) == (None, "stale")
    assert rule(vector()) == (False, "")
    assert rule(vector((own, NAN), (own, 2.0))) == (True, "")


def test_a_measure_keeps_good_samples_and_names_the_others() -> None:
    result = vector(({"pod": "a"}, 1.0), ({"pod": "b"}, NAN), ({"pod": "x", "exported_pod": "c"}, 3.0))
    measure = measure_of(REQUESTS, "q", result, window=20, at=NOW, link=None)
    assert measure.by_pod == {"a": 1.0, "c": 3.0}
    assert measure.unknown_pods == {"b": "nan"}
    assert measure.total == 4.0
    assert measure.unknown == ""


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (vector(), "empty"),
        (vector(({"pod": "a"}, NAN)), "nan"),
        (vector(({"pod": "a"}, INF)), "inf"),
        (vector(({"pod": "a"}, 1.0), inputs="stale"), "stale"),
        (vector(inputs="stale"), "stale"),
    ],
)
def test_a_measure_without_a_good_sample_has_no_value_and_a_reason(result: Vector, reason: str) -> None:
    measure = measure_of(MEMORY, "q", result, window=20, at=NOW, link=None)
    assert measure.total is None
    assert measure.by_pod == {}
    assert measure.unknown == reason


def test_of_a_thousand_pods_the_extremes_are_kept_and_the_total_is_whole() -> None:
    result = vector(*(({"pod": f"p{index:04d}"}, float(index)) for index in range(1000)))
    measure = measure_of(REQUESTS, "q", result, window=20, at=NOW, link=None)
    assert len(measure.by_pod) == MAX_PODS
    assert {"p0000", "p0999"} <= measure.by_pod.keys()
    assert measure.pods_cut == 1000 - MAX_PODS
    assert measure.total == sum(range(1000))


def test_a_value_for_the_whole_has_the_empty_name() -> None:
    assert measure_of(REQUESTS_USUAL, "q", vector(({}, 7.0)), window=20, at=NOW, link=None).by_pod == {"": 7.0}


def level(result: Vector, passing: str | None = "< 0.01", empty: str = "unknown") -> tuple[str, str]:
    check = Check.model_validate(
        {
            "name": "errors",
            "oracle": Oracle.SERVICE_LEVEL,
            "source": CheckSource.PROMETHEUS,
            "target": TARGET,
            "query": "q",
            "passing": passing,
            "empty": empty,
        }
    )
    reading = level_of(check, result, at=NOW, link=None)
    return reading.state, reading.unknown


def test_f29_a_check_says_itself_what_empty_means() -> None:
    assert level(vector()) == ("unknown", "empty")
    assert level(vector(), empty="passing") == ("passing", "")
    assert level(vector(), empty="failing") == ("failing", "")
    assert level(vector(inputs="absent"), empty="passing") == ("unknown", "empty")
    assert level(vector(inputs="stale"), empty="passing") == ("unknown", "stale")


def test_f28_a_check_over_nan_neither_passes_nor_fails() -> None:
    assert level(vector(({}, 0.0))) == ("passing", "")
    assert level(vector(({}, 0.5))) == ("failing", "")
    assert level(vector(({}, NAN))) == ("unknown", "nan")
    assert level(vector(({"a": "1"}, 0.0), ({"a": "2"}, NAN))) == ("unknown", "nan")
    assert level(vector(({"a": "1"}, 0.5), ({"a": "2"}, NAN))) == ("failing", "")


@pytest.mark.parametrize(
    ("value", "passing", "expected"),
    [
        (1, "< 2", True),
        (2, "< 2", False),
        (2, "<= 2", True),
        (3, "> 2", True),
        (2, ">= 2", True),
        (2, "== 2", True),
        (2, "!= 2", False),
        (1, None, False),
        (1, "nonsense", False),
    ],
)
def test_comparisons(value: float, passing: str | None, expected: bool) -> None:
    assert passes(value, passing) is expected


def test_queries_name_the_workloads_pods_and_quote_what_they_are_given() -> None:
    windows = Windows.for_interval(15)
    assert (windows.rate, windows.trend) == (60, 600)
    query = query_for(REQUESTS, TARGET, windows)
    assert query == 'sum by (pod) (rate(http_requests_total{namespace="shop",pod=~"api-[a-z0-9]+-[a-z0-9]{5}"}[60s]))'
    dotted = query_for(REQUESTS, TARGET.model_copy(update={"name": "api.v2"}), windows)
    assert dotted is not None
    assert r"api\\.v2-" in dotted
    assert query_for(REQUESTS, TARGET.model_copy(update={"kind": TargetKind.NODE}), windows) is None
    assert all("$" not in (query_for(spec, TARGET, windows) or "$") for spec in SPECS)
