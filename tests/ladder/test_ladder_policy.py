"""autonomy.yaml: the example of the design loads; everything wrong is told with file, line, key and what would be right."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ladder_cases import POLICY, TARGET

from catalog.actions import RemediationAction
from catalog.cases import Rung
from catalog.limits import Budget
from catalog.targets import Target, TargetKind
from ladder.errors import PolicyInvalid, Problem
from ladder.numbers import DEFAULTS, RULES, Numbers, loosened
from ladder.policy import load_policy, parse_policy

FULL = Path(__file__).parent.parent / "data" / "policies" / "full.yaml"
RESTART, SCALE = RemediationAction.RESTART_WORKLOAD, RemediationAction.SCALE


def refused(text: str) -> PolicyInvalid:
    with pytest.raises(PolicyInvalid) as caught:
        parse_policy(text)
    return caught.value


def problems_of(text: str) -> tuple[Problem, ...] | None:
    """None for a good policy."""
    try:
        parse_policy(text)
    except PolicyInvalid as error:
        return error.problems
    return None


def said(text: str) -> str:
    return str(refused(text))


def test_the_example_of_the_design_loads_whole() -> None:
    policy = load_policy(FULL)
    scope = policy.scope_for(TARGET.model_copy(update={"cluster": "eu-1"}))
    assert scope is not None
    assert scope.approver == ("slack-group:S0SRE", "discord-role:789", "person:ana")
    assert (scope.ceiling(RESTART), scope.ceiling(SCALE)) == (Rung.R5, Rung.R4)
    assert (scope.scale_min, scope.scale_max, scope.scale_step) == (2, 10, 4)
    assert scope.budgets["workload"] == (Budget(count=1, per=timedelta(hours=1)),)
    assert scope.dependants == ("Deployment/checkout",)
    assert scope.checks[0].debounce == 3
    assert scope.channel.discord == "4567"
    assert scope.warnings == ()
    assert policy.person_with("slack", "T01/U03") == "bo"
    assert policy.person_with("discord", "9") is None


def test_the_hash_is_of_the_canonical_form_not_of_the_layout() -> None:
    one = parse_policy(POLICY)
    same = parse_policy(
        "# a comment\n"
        + POLICY.replace("clusters: [{name: eu-1, uid: uid-eu-1,", "clusters:\n  - {uid: uid-eu-1, name: eu-1,").replace(
            "match: {cluster: eu-1}}]", "match: {cluster: eu-1}}"
        )
    )
    assert one.hash == same.hash
    assert parse_policy(POLICY + "numbers: {weight_auto: 0.9}\n").hash != one.hash


def test_an_empty_policy_lets_nothing_happen() -> None:
    policy = parse_policy("schema: 1\n")
    assert policy.scope_for(TARGET) is None


@pytest.mark.parametrize(
    ("text", "line", "key", "sentence"),
    [
        ("schema: 2\n", 1, "schema", "2 is not one of 1"),
        ("scopes: []\n", 1, "schema", "is required"),
        ("schema: 1\nscope: []\n", 2, "scope", "did you mean 'scopes'?"),
        ("schema: 1\nclusters:\n  - name: a\n    uid: 12\n", 4, "clusters[0].uid", 'write it in quotes, "12"'),
        ("schema: 1\nclusters:\n  - name: a\n", 3, "clusters[0].uid", "is required"),
        ("schema: 1\npeople: {ana: {slack: U02}}\n", 2, "people.ana.slack", "write TEAM/USER"),
        ("schema: 1\npeople: {ana: {discord: 1234}}\n", 2, "people.ana.discord", 'in quotes, "1234"'),
        (
            "schema: 1\nnumbers:\n  weight_auto: 1.5\n",
            2,
            "numbers",
            "weight_auto: 1.5 is out of range; give between 0.5 and 1.0 (default 0.85)",
        ),
        ("schema: 1\nnumbers:\n  cool_down: 15\n", 3, "numbers.cool_down", "15 is not a duration; write a number with a unit"),
        ("schema: 1\nnumbers:\n  cool_dwn: 15m\n", 3, "numbers.cool_dwn", "did you mean 'cool_down'?"),
        (
            "schema: 1\nnumbers:\n  auto_per_workload: 3 per hour\n",
            3,
            "numbers.auto_per_workload",
            "write COUNT/WINDOW, for example 3/1h",
        ),
        ("schema: 1\nnumbers:\n  body_limit: 16 megabytes\n", 3, "numbers.body_limit", "for example 8kB or 16MiB"),
        ("schema: 1\ndefaults: {target_precision: 1.0}\n", 2, "defaults.target_precision", "less than or equal to 0.99"),
        (
            "schema: 1\ndefaults: {propose_unverified: yes}\n",
            2,
            "defaults.propose_unverified",
            "must be true or false, found 'yes'",
        ),
        ("schema: 1\nprotected: kube-system\n", 2, "protected", "must be a list"),
        ("schema: 1\nprotected: [Kube]\n", 2, "protected", "'Kube' is not a namespace name"),
        ('schema: 1\nfreezes: [{every: "FRI 25:00-26:00"}]\n', 2, "freezes[0]", "'25:00' is not a time of day"),
        ('schema: 1\nfreezes: [{every: "FREITAG 16:00-24:00"}]\n', 2, "freezes[0]", "is not a window"),
        (
            'schema: 1\nfreezes: [{every: "FRI 16:00-24:00", zone: Europe/Berln}]\n',
            2,
            "freezes[0].zone",
            "is not a known time zone",
        ),
        ('schema: 1\nfreezes: [{begin: "2026-12-24 12:00", end: "2026-12-24 11:00"}]\n', 2, "freezes[0]", "before it begins"),
        ("schema: 1\nfreezes: [{match: {namespace: shop}}]\n", 2, "freezes[0]", 'give every: "FRI 16:00-24:00"'),
    ],
)
def test_a_problem_names_line_key_and_what_would_be_right(text: str, line: int, key: str, sentence: str) -> None:
    problems = refused(text).problems
    assert any((problem.line, problem.key) == (line, key) and sentence in problem.sentence for problem in problems), problems
    assert all(problem.file == "autonomy.yaml" for problem in problems)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("approver: [person:ana], ", ""), "scope shop allows R5, so it needs at least one approver"),
        (("approver: [person:ana]", "approver: []"), "scope shop allows R5, so it needs at least one approver"),
        (("approver: [person:ana]", "approver: [person:anna]"), "nobody under people: is named 'anna'; did you mean 'ana'?"),
        (
            ("approver: [person:ana]", "approver: [everyone]"),
            "'everyone' is nobody; write person:NAME, slack-group:ID or discord-role:ID",
        ),
        (("approver: [person:ana]", "approver: [null]"), "must be text"),
        (("restart_workload: R5", "restart_workload: R6"), "'R6' is not a ceiling; write one of R1, R2, R3, R4, R5"),
        (("restart_workload: R5", "restart_workload: 5"), "5 is not a ceiling"),
        (("restart_workload: R5", "restart_deployment: R5"), "did you mean"),
        (("restart_workload: R5", "drain_node: R5"), "drain_node is described and never executed"),
        (("min: 2, max: 10", "min: 12, max: 10"), "max (10) is below min (12)"),
        (("step: 4", "stepp: 4"), "did you mean 'step'?"),
        (('passing: "< 0.01"', 'passing: "<0.01"'), 'for example "< 0.01"'),
        (("namespace: shop", "namespace: 'shop*'"), "patterns are not used here"),
        (("namespace: shop", "namespace: kube-system"), "kube-system is protected"),
        (("match: {cluster: eu-1, namespace: shop}", "match: {}"), "an empty match would apply to everything"),
        (("match: {cluster: eu-1, namespace: shop}", "match: {workload: Deployment/a}"), "a workload needs its namespace"),
        (("match: {cluster: eu-1, namespace: shop}", "match: {cluster: eu1}"), "no cluster is named 'eu1'; did you mean 'eu-1'?"),
        (("scale: {min", "numbers: {lease: 20s}\n    scale: {min"), "lease is of the whole installation"),
        (("name: shop", "name: Shop"), "use lower case letters"),
    ],
)
def test_scopes_that_make_no_sense_are_refused(change: tuple[str, str], sentence: str) -> None:
    assert change[0] in POLICY
    assert sentence in said(POLICY.replace(*change))


def test_names_and_matches_are_unique() -> None:
    twice = POLICY + "  - {name: shop, match: {namespace: other}}\n  - {name: again, match: {cluster: eu-1, namespace: shop}}\n"
    assert "'shop' is given twice (first in scopes[0])" in said(twice)
    assert "scope shop matches exactly the same" in said(twice)
    accounts = said("schema: 1\npeople: {ana: {slack: T01/U02}, bo: {slack: T01/U02}}\n")
    assert "people.bo.slack: 'T01/U02' is ana's account already" in accounts
    clusters = said("schema: 1\nclusters: [{name: a, uid: u}, {name: b, uid: u, match: {cluster: b}}]\n")
    assert "'u' is given twice" in clusters


@pytest.mark.parametrize(
    "text", ["lease: 8s", "claim: 9s", "weight_auto: 0.59", "radius_auto: 0.6", "settle_cap: 30s", "lease_renewal: 16s"]
)
def test_numbers_that_only_make_sense_in_one_order(text: str) -> None:
    assert "must not be above" in said(f"schema: 1\nnumbers: {{{text}}}\n")


def test_two_clusters_may_both_match_everything_because_tokens_are_bound() -> None:
    policy = parse_policy("schema: 1\nclusters: [{name: a, uid: ua}, {name: b, uid: ub}]\n")
    found = policy.cluster_of("ub")
    assert found is not None
    assert found.name == "b"
    assert policy.cluster_of("uc") is None


def test_all_problems_are_told_at_once() -> None:
    problems = refused("schema: 1\nnumbers: {weight_auto: a}\nprotcted: []\npeople: {ana: {slack: 1}}\n").problems
    assert {problem.line for problem in problems} == {2, 3, 4}


@pytest.mark.parametrize(
    ("text", "line", "sentence"),
    [
        ("schema: 1\nschema: 1\n", 2, "'schema' is given twice (first in line 1)"),
        ("a: &x [1]\nb: *x\n", 1, "anchors and aliases are not used here"),
        ("a: *x\n", 1, "anchors and aliases"),
        ("a:\n  <<: {b: 1}\n", 2, "merge keys"),
        ("a: !!python/object/apply:os.system [id]\n", 1, "tags are not used here"),
        ("schema: 1\n---\nschema: 1\n", 3, "a second document begins here"),
        ("[" * 200_000, 1, "nested deeper"),
        ("a: [b\n", 2, "not YAML"),
        ("a: 'b\n", 2, "not YAML"),
        ("\x00", 1, "not YAML"),
        ("? [a]\n: b\n", 1, "a key must be plain text"),
        ("", 1, "is empty; begin with: schema: 1"),
        ("- 1\n", 1, "must be a mapping"),
        ("just text", 1, "must be a mapping"),
        ("schema: 1\n# " + "x" * 300_000, 1, "larger than 256 KiB"),
    ],
)
def test_dangerous_or_broken_yaml_is_refused_with_its_line(text: str, line: int, sentence: str) -> None:
    problem = refused(text).problems[0]
    assert problem.line == line
    assert sentence in problem.sentence


def test_an_alias_bomb_is_refused_before_it_grows() -> None:
    bomb = "a: &a [x, x]\n" + "".join(f"{chr(98 + n)}: &{chr(98 + n)} [*{chr(97 + n)}, *{chr(97 + n)}]\n" for n in range(20))
    assert "anchors and aliases" in said(bomb)


def test_a_file_that_cannot_be_read_is_told_like_any_problem(tmp_path: Path) -> None:
    with pytest.raises(PolicyInvalid, match="No such file"):
        load_policy(tmp_path / "autonomy.yaml")
    with pytest.raises(PolicyInvalid, match="cannot be read"):
        load_policy(tmp_path)
    (tmp_path / "latin").write_bytes("schema: 1\n# übrig".encode("latin-1"))
    with pytest.raises(PolicyInvalid, match=r"latin:2: is not UTF-8 text"):
        load_policy(tmp_path / "latin")


@given(st.text(max_size=400) | st.from_regex(r"(schema: 1\n)?([a-z]+: [\[\]{}a-z0-9:, &*!'\"|>-]*\n){0,6}", fullmatch=True))
@settings(max_examples=300, deadline=None)
def test_any_text_is_a_policy_or_problems(text: str) -> None:
    problems = problems_of(text)
    assert problems is None or (problems and all(problem.sentence and problem.line >= 1 for problem in problems))


# numbers ---------------------------------------------------------------------------------------------------------------------


def test_every_default_number_of_the_design() -> None:
    numbers = Numbers()
    assert (numbers.weight_propose, numbers.weight_auto) == (0.60, 0.85)
    assert (numbers.radius_auto, numbers.radius_propose) == (0.30, 0.50)
    assert [str(getattr(numbers, f"auto_per_{part}")) for part in ("workload", "namespace", "cluster")] == ["1/1h", "3/1h", "10/1h"]
    assert numbers.evidence_freshness == timedelta(seconds=120)
    assert (numbers.proposal_lifetime, numbers.cool_down) == (timedelta(minutes=15), timedelta(minutes=15))
    assert (numbers.order_lifetime, numbers.clock_skew) == (timedelta(seconds=60), timedelta(seconds=5))
    assert (numbers.watch_restart, numbers.watch_scale) == (timedelta(minutes=30), timedelta(minutes=60))
    assert (numbers.lease, numbers.lease_renewal, numbers.lease_retry) == (
        timedelta(seconds=15),
        timedelta(seconds=10),
        timedelta(seconds=2),
    )
    assert (numbers.storm_workloads, numbers.storm_share, numbers.storm_nodes, numbers.storm_orders) == (5, 0.20, 2, 5)
    assert (numbers.scale_step, numbers.scale_cap, numbers.debounce) == (4, 20, 3)
    assert list(loosened(numbers, "numbers")) == []


def test_every_number_accepts_its_default_and_has_a_range() -> None:
    for name, rule in RULES.items():
        assert rule.accepts(DEFAULTS[name]), name


@pytest.mark.parametrize(
    ("text", "warned"),
    [
        ("weight_auto: 0.84", 1),
        ("weight_auto: 0.9", 0),
        ("cool_down: 14m", 1),
        ("radius_auto: 0.31", 1),
        ("auto_per_workload: 2/1h", 1),
        ("auto_per_workload: 2/4h", 1),
        ("auto_per_workload: 1/2h", 0),
        ("settle_cap: 1m", 0),
    ],
)
def test_only_the_unsafe_side_of_a_default_is_warned_of(text: str, warned: int) -> None:
    assert len(parse_policy(f"schema: 1\nnumbers: {{{text}}}\n").warnings) == warned


def test_a_budget_and_a_step_spelled_in_the_scope_are_warned_of_too() -> None:
    text = POLICY.replace("scale: {min: 2, max: 10, step: 4}", "scale: {step: 8}\n    budget: {workload: 5/1h}")
    scope = parse_policy(text).scope_for(TARGET)
    assert scope is not None
    assert sorted(warning.split()[0] for warning in scope.warnings) == ["auto_per_workload", "scale_step"]


# merging ---------------------------------------------------------------------------------------------------------------------

WIDE = """
  - name: all
    match: {cluster: eu-1}
    channel: {slack: C9}
    roles: {approver: [person:bo], owner: [person:bo]}
    ceiling: {restart_workload: R4}
    quorum: 2
    scale: {min: 3, max: 6, step: 2}
    budget: {workload: 2/6h}
    numbers: {weight_auto: 0.95, repeat_window: 1h}
    dependants: [Deployment/gateway]
    checks: [{name: errors, query: other, passing: "< 1"}, {name: latency, query: p99, passing: "< 2"}]
"""


def test_all_scopes_that_match_apply_and_people_are_of_the_most_specific() -> None:
    scope = parse_policy(POLICY + WIDE).scope_for(TARGET)
    assert scope is not None
    assert scope.scopes == ("shop", "all")
    assert scope.ceiling(RESTART) is Rung.R4
    assert scope.ceiling(SCALE) is Rung.R5
    assert scope.ceiling(RemediationAction.DRAIN_NODE) is Rung.R3
    assert scope.earned[RESTART].scope == "shop"
    assert scope.quorum == 2
    assert (scope.scale_min, scope.scale_max, scope.scale_step) == (3, 6, 2)
    assert [str(one) for one in scope.budgets["workload"]] == ["1/1h", "2/6h"]
    assert (scope.numbers.weight_auto, scope.numbers.repeat_window) == (0.95, timedelta(hours=6))
    assert (scope.approver, scope.labeller, scope.owner) == (
        ("person:ana",),
        ("person:ana", "person:bo"),
        ("person:ana", "person:bo"),
    )
    assert scope.channel.slack == "C9"
    assert scope.dependants == ("Deployment/gateway",)
    assert [check.name for check in scope.checks] == ["errors", "all errors", "latency"]


def test_an_explicit_empty_list_is_nobody_and_does_not_fall_back() -> None:
    text = POLICY + WIDE.replace("roles: {approver: [person:bo], owner: [person:bo]}", "roles: {approver: [person:bo]}")
    scope = parse_policy(text.replace("owner: [person:ana, person:bo]}", "owner: []}")).scope_for(TARGET)
    assert scope is not None
    assert scope.owner == ()


def test_a_workload_scope_is_the_most_specific() -> None:
    text = POLICY + "  - {name: one, match: {namespace: shop, workload: Deployment/checkout}, channel: {slack: C1}}\n"
    policy = parse_policy(text)
    here, there = policy.scope_for(TARGET), policy.scope_for(TARGET.model_copy(update={"name": "cart"}))
    assert here is not None
    assert there is not None
    assert (here.name, there.name) == ("one", "shop")
    assert here.earned[RESTART].scope == "shop"
    merged = policy.merged_as("shop")
    assert merged is not None
    assert merged.scopes == ("shop",)


def test_a_changed_match_has_another_digest() -> None:
    one = parse_policy(POLICY).scope_named("shop")
    other = parse_policy(POLICY.replace("match: {cluster: eu-1, namespace: shop}", "match: {namespace: shop}")).scope_named("shop")
    assert one is not None
    assert other is not None
    assert one.match.digest != other.match.digest


def test_cluster_scoped_targets_are_matched_by_cluster_scopes_only() -> None:
    node = Target(cluster_uid="uid-eu-1", cluster="eu-1", kind=TargetKind.NODE, name="node-1")
    assert parse_policy(POLICY).scope_for(node) is None
    assert parse_policy(POLICY + WIDE).scope_for(node) is not None


rungs = st.sampled_from(["R3", "R4", "R5"])


@st.composite
def extra_scope(draw: st.DrawFn) -> str:
    weight, radius = draw(st.floats(0.6, 1)), draw(st.floats(0, 0.5))
    numbers = f"{{weight_auto: {weight:.3f}, repeat_window: {draw(st.integers(0, 24))}h, radius_auto: {radius:.3f}}}"
    matches = ["{cluster: eu-1}", "{namespace: shop}", "{cluster: eu-1, namespace: shop, workload: Deployment/checkout}"]
    return f"""
  - name: extra
    match: {draw(st.sampled_from(matches))}
    roles: {{approver: [person:bo]}}
    ceiling: {{restart_workload: {draw(rungs)}, scale: {draw(rungs)}, restart_pod: {draw(rungs)}}}
    quorum: {draw(st.integers(1, 4))}
    scale: {{min: {draw(st.integers(1, 5))}, max: {draw(st.integers(5, 30))}, step: {draw(st.integers(1, 9))}}}
    budget: {{workload: {draw(st.integers(0, 9))}/{draw(st.integers(1, 9))}h}}
    numbers: {numbers}
    propose_unverified: {draw(st.sampled_from(["true", "false", "null"]))}
    propose_uncalibrated: {draw(st.sampled_from(["true", "false", "null"]))}
"""


@given(extra_scope())
@settings(max_examples=150, deadline=None)
def test_adding_a_scope_never_raises_autonomy(extra: str) -> None:
    before, after = parse_policy(POLICY).scope_for(TARGET), parse_policy(POLICY + extra).scope_for(TARGET)
    assert before is not None
    assert after is not None
    for action in before.earned:
        assert after.ceiling(action) <= before.ceiling(action)
    for name, rule in RULES.items():
        was, now = getattr(before.numbers, name), getattr(after.numbers, name)
        if rule.safer == "more":
            assert now >= was, name
        if rule.safer == "less" and not isinstance(was, Budget):
            assert now <= was, name
    for part, budgets in before.budgets.items():
        assert set(budgets) <= set(after.budgets[part])
    assert after.quorum >= before.quorum
    assert after.scale_min >= before.scale_min
    assert after.scale_max <= before.scale_max
    assert after.scale_step <= before.scale_step
    assert not after.propose_unverified or before.propose_unverified
    assert not after.propose_uncalibrated or before.propose_uncalibrated
    assert {check.query for check in before.checks} <= {check.query for check in after.checks}


# freezes ---------------------------------------------------------------------------------------------------------------------


def frozen(entry: str, at: datetime) -> datetime | None:
    found = parse_policy(f"schema: 1\nfreezes: [{entry}]\n").freezes_for(TARGET, at)
    return found[0].until if found else None


@pytest.mark.parametrize(
    ("at", "until"),
    [
        (datetime(2026, 3, 6, 14, 59, tzinfo=UTC), None),  # Friday 15:59 in Berlin
        (datetime(2026, 3, 6, 15, 0, tzinfo=UTC), datetime(2026, 3, 6, 23, 0, tzinfo=UTC)),
        (datetime(2026, 3, 6, 22, 59, tzinfo=UTC), datetime(2026, 3, 6, 23, 0, tzinfo=UTC)),
        (datetime(2026, 3, 6, 23, 0, tzinfo=UTC), None),
        (datetime(2026, 7, 3, 14, 0, tzinfo=UTC), datetime(2026, 7, 3, 22, 0, tzinfo=UTC)),  # summer time
        (datetime(2026, 3, 5, 16, 0, tzinfo=UTC), None),
    ],
)
def test_a_weekly_freeze_follows_its_zone(at: datetime, until: datetime | None) -> None:
    assert frozen('{match: {namespace: shop}, every: "FRI 16:00-24:00", zone: Europe/Berlin}', at) == until


@pytest.mark.parametrize(
    ("at", "until"),
    [
        (datetime(2026, 3, 6, 23, 0, tzinfo=UTC), datetime(2026, 3, 7, 6, 0, tzinfo=UTC)),
        (datetime(2026, 3, 7, 5, 59, tzinfo=UTC), datetime(2026, 3, 7, 6, 0, tzinfo=UTC)),
        (datetime(2026, 3, 7, 23, 0, tzinfo=UTC), None),
        (datetime(2026, 3, 9, 3, 0, tzinfo=UTC), None),
    ],
)
def test_a_window_may_pass_midnight(at: datetime, until: datetime | None) -> None:
    assert frozen('{every: "MON-FRI 22:00-06:00"}', at) == until


def test_the_night_when_clocks_go_back_is_frozen_in_both_passes() -> None:
    entry = '{every: "SUN 02:00-03:00", zone: Europe/Berlin}'
    assert frozen(entry, datetime(2026, 10, 25, 0, 30, tzinfo=UTC)) is not None
    assert frozen(entry, datetime(2026, 10, 25, 1, 30, tzinfo=UTC)) is not None
    assert frozen(entry, datetime(2026, 10, 25, 2, 30, tzinfo=UTC)) is None


def test_a_dated_freeze_and_one_for_another_namespace() -> None:
    dated = '{begin: "2026-12-24 12:00", end: "2026-12-27 00:00", zone: UTC, name: holidays, reason: quiet}'
    assert frozen(dated, datetime(2026, 12, 25, tzinfo=UTC)) == datetime(2026, 12, 27, tzinfo=UTC)
    assert frozen(dated, datetime(2026, 12, 27, tzinfo=UTC)) is None
    assert frozen('{match: {namespace: billing}, every: "00:00-24:00"}', datetime(2026, 3, 6, tzinfo=UTC)) is None
