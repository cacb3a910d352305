"""How far an expression looks back and what it reads."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st
from source_servers import has

from sources.expressions import ExpressionInvalid, duration_seconds, longest_range, selectors


@pytest.mark.parametrize(
    ("query", "seconds"),
    [
        ("up == 0", 0),
        ('sum(rate(http_requests_total{code=~"5.."}[2m])) / sum(rate(http_requests_total[5m])) > 0.01', 300),
        ("max_over_time(rate(x[5m])[1h:30s])", 3900),
        ("max_over_time(rate(x[5m])[1h:30s] offset 10m)", 4500),
        ("min_over_time((x > 5)[10m:])", 600),
        ("max_over_time(min_over_time(x[1m])[10m:1m])[1h:] ", 60 + 600 + 3600),
        ("x offset 1d > y", 86400),
        ("x offset -5m", 0),
        ("rate(x[1h30m15s250ms])", 5415.25),
        ("rate(x[1w]) or rate(x[1y])", 31536000),
        ("x{a=\"[99d]\",b='[9y]'} + foo", 0),
        ('x{a="\\"[9d]"}[1m]', 60),
        ('label_replace(x[1m], `a[9d]`, "b", "c", "d")', 60),
        ("x[5m] # [5y]\n > 1", 300),
        ('x{a="}"}[7m]', 420),
        ('{"my.metric"}[7m]', 420),
        ("sum by (offset) (x[1m])", 60),
        ("rate(x[300])", 300),
        ("x @ 1609746000 offset 5m", 300),
        ("rate(x[5m]) @ end()", 300),
        ("(rate(a[1m]) + rate(b[9m])) / rate(c[3m])", 540),
        ("", 0),
    ],
)
def test_the_longest_range(query: str, seconds: float) -> None:
    assert longest_range(query) == seconds


@pytest.mark.parametrize(
    "query",
    ["rate(x[$__rate_interval])", "rate(x[5m)", "x]", "x)", '"abc', "x[5q]", "x[]", "(x", "x offset", "x offset y", "{", "'a"],
)
def test_what_makes_no_sense_is_refused(query: str) -> None:
    with pytest.raises(ExpressionInvalid):
        longest_range(query)


@pytest.mark.parametrize(
    ("query", "read"),
    [
        ("up == 0", ("up",)),
        ('sum(rate(a{x="1"}[2m])) / sum(rate(a{x="1"}[5m]))', ('a{x="1"}',)),
        ("sum by (pod) (x) / on(pod) group_left(node) y", ("x", "y")),
        ("sum(x) by (pod, namespace)", ("x",)),
        ("topk by (a) (5, z) and inf > bool q unless on() absent(r)", ("z", "q", "r")),
        ("min_over_time((x > 5)[10m:30s])", ("x",)),
        ('{__name__=~"a|b", c!="d"}', ('{__name__=~"a|b",c!="d"}',)),
        ("x @ end() offset 5m", ("x",)),
        ("vector(1)", ()),
        ("job:errors:rate5m > 0.1", ("job:errors:rate5m",)),
        ('kube_pod_info * on (node) group_left () kube_node_info{a="by"}', ("kube_pod_info", 'kube_node_info{a="by"}')),
        ("SUM(x)", ("x",)),
        ("count", ("count",)),
    ],
)
def test_what_an_expression_reads(query: str, read: tuple[str, ...]) -> None:
    assert selectors(query) == read


@given(st.text(max_size=60))
def test_any_text_gives_a_number_or_is_refused(text: str) -> None:
    try:
        assert longest_range(text) >= 0
        selectors(text)
    except ExpressionInvalid:
        pass


UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


@given(st.lists(st.tuples(st.integers(0, 500), st.sampled_from(list(UNITS))), min_size=1, max_size=4))
def test_durations_add_up(parts: list[tuple[int, str]]) -> None:
    text = "".join(f"{number}{unit}" for number, unit in parts)
    assert duration_seconds(text) == pytest.approx(sum(number * UNITS[unit] for number, unit in parts))
    assert longest_range(f"rate(x[{text}])") == pytest.approx(duration_seconds(text))


@pytest.mark.parametrize("text", ["", "5", "m5", "5 m", "-5m", "5m ", "1e3s"])
def test_what_is_no_duration(text: str) -> None:
    if text == "5":
        assert duration_seconds(text) == 5.0
    else:
        with pytest.raises(ExpressionInvalid):
            duration_seconds(text)


@pytest.mark.skipif(not has("promtool"), reason="promtool is not installed")
def test_the_freshness_query_is_valid_promql(tmp_path: object) -> None:
    """The query that goes with each instant query, as Prometheus's own parser sees it."""
    from pathlib import Path

    from sources.answers import freshness_query

    read = selectors('sum(rate(a{x="1",y=~"b|c"}[2m])) / sum({__name__="q"})')
    rules = Path(str(tmp_path)) / "rules.yml"
    rules.write_text(f"groups: [{{name: g, rules: [{{record: r, expr: '{freshness_query(read)}'}}]}}]")
    found = subprocess.run(["promtool", "check", "rules", str(rules)], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
