"""The limits file: read with line and key, applied with the pure arithmetic, counted from the journal."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from executor_orders import an_order

from catalog.actions import RestartPod, Scale
from executor.bounds import breach_of, load_bounds, parse_bounds
from executor.errors import ConfigurationInvalid
from executor.journal import History

NOW = datetime(2026, 3, 4, 10, 0, tzinfo=UTC)
TEXT = """\
schema: 1
namespaces: [shop]
actions: {restart_workload: auto, restart_pod: never, scale: approved}
replicas: {min: 2, max: 10, step: 4}
orders: {target: 1/1h, namespace: 2/1h, cluster: 3/1h}
open: 2
"""
BOUNDS = parse_bounds(TEXT, "limits.yaml")
NOTHING = History(target=(), namespace=(), cluster=(), open=1, last_harm=None)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (TEXT + "opne: 3\n", "limits.yaml:7: opne: this key is not known here"),
        (TEXT.replace("open: 2", "open: 0"), "limits.yaml:6: open: "),
        (TEXT.replace("1/1h", "often"), "limits.yaml:5: orders.target: "),
        (TEXT.replace("[shop]", "[shop, 'te*m']"), "limits.yaml:2: namespaces.1: "),
        (TEXT.replace("min: 2", "mim: 2"), "limits.yaml:4: replicas.mim: this key is not known here"),
        (TEXT.replace("scale: approved", "scale: maybe"), "limits.yaml:3: actions.scale: "),
        (TEXT.replace("schema: 1", "schema: 2"), "limits.yaml:1: schema: "),
        (TEXT.replace("namespaces: [shop]\n", ""), "limits.yaml:1: namespaces: "),
        (TEXT + "open: 3\n", "limits.yaml:7: open: this key is here twice"),
        ("a: [", "limits.yaml:1: not YAML"),
        ("- 1\n", "limits.yaml:1: a mapping is needed"),
    ],
)
def test_problem_is_told_with_line_and_key(text: str, problem: str) -> None:
    with pytest.raises(ConfigurationInvalid) as caught:
        parse_bounds(text, "limits.yaml")
    assert problem in str(caught.value)


def test_file_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationInvalid, match="cannot be read: No such file"):
        load_bounds(tmp_path / "none.yaml")


def test_empty_list_of_namespaces_allows_nothing() -> None:
    bounds = parse_bounds(TEXT.replace("[shop]", "[]"), "limits.yaml")
    refused = breach_of(an_order(), bounds, NOTHING, NOW)
    assert refused is not None
    assert refused.reason == "limit:namespaces"


def test_what_is_within_all_limits_passes() -> None:
    assert breach_of(an_order(), BOUNDS, NOTHING, NOW) is None


@pytest.mark.parametrize(
    ("changes", "history", "reason"),
    [
        ({"namespace": "bank"}, NOTHING, "limit:namespaces"),
        ({"kind": "StatefulSet"}, NOTHING, "limit:kinds"),
        ({"action": RestartPod(pod="web-1", pod_uid="u")}, NOTHING, "limit:actions"),
        ({"action": Scale(from_replicas=3, to_replicas=4), "mode": "auto"}, NOTHING, "limit:actions"),
        ({"action": Scale(from_replicas=3, to_replicas=1)}, NOTHING, "limit:scale.min"),
        ({"action": Scale(from_replicas=8, to_replicas=12)}, NOTHING, "limit:scale.max"),
        ({"action": Scale(from_replicas=3, to_replicas=8)}, NOTHING, "limit:scale.step"),
        ({"action": Scale(from_replicas=3, to_replicas=0)}, NOTHING, "limit:scale to zero"),
        ({}, History((NOW - timedelta(minutes=59),), (), (), 1, None), "limit:orders.target"),
        ({}, History((), (NOW, NOW), (), 1, None), "limit:orders.namespace"),
        ({}, History((), (), (NOW, NOW, NOW), 1, None), "limit:orders.cluster"),
        ({}, History((), (), (), 3, None), "limit:open"),
    ],
)
def test_g31_each_limit_refuses_with_its_own_name(changes: dict[str, object], history: History, reason: str) -> None:
    refused = breach_of(an_order(**changes), BOUNDS, history, NOW)
    assert refused is not None
    assert refused.reason == reason


def test_budget_is_free_again_when_its_window_is_over_and_says_when() -> None:
    history = History((NOW - timedelta(minutes=59),), (), (), 1, None)
    refused = breach_of(an_order(), BOUNDS, history, NOW)
    assert refused is not None
    assert "10:01:00" in refused.sentence
    assert breach_of(an_order(), BOUNDS, history, NOW + timedelta(minutes=2)) is None


def test_automatic_order_decided_before_the_last_harm_of_its_scope_is_refused() -> None:
    history = History((), (), (), 1, NOW)
    before = an_order(mode="auto", decided_at=NOW - timedelta(seconds=1))
    refused = breach_of(before, BOUNDS, history, NOW)
    assert refused is not None
    assert refused.reason == "harmful_outcome"
    assert breach_of(an_order(mode="auto", decided_at=NOW + timedelta(seconds=1)), BOUNDS, history, NOW) is None
    assert breach_of(an_order(mode="approved", decided_at=NOW - timedelta(seconds=1)), BOUNDS, history, NOW) is None
