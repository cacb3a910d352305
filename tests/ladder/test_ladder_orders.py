"""Steps, deadlines and checks of an order, and who holds which role."""

from __future__ import annotations

from datetime import timedelta

import pytest
from ladder_cases import POLICY, TARGET, facts

from catalog.actions import Action, DrainNode, RestartPod, RestartWorkload, Scale
from catalog.evidence import Oracle
from catalog.orders import CheckSource, KubernetesFact, SeriesMatcher, StepKind
from catalog.targets import TargetKind
from ladder.checking import AlertExpression, checks_for, longest_range
from ladder.errors import NotCheckable, NotPlannable
from ladder.numbers import Numbers
from ladder.planning import deadlines, plan
from ladder.policy import parse_policy
from ladder.roles import Holding, Identity, holds, refusal
from ladder.scopes import MergedScope

STATEFUL = facts(
    target=TARGET.model_copy(update={"kind": TargetKind.STATEFULSET, "name": "db"}), pods=("db-0", "db-2", "db-10", "db-1")
)


def merged(text: str = POLICY) -> MergedScope:
    scope = parse_policy(text).scope_for(TARGET)
    assert scope is not None
    return scope


def expression(**changes: object) -> AlertExpression:
    matcher = SeriesMatcher(label="deployment", value="checkout")
    known = {"alertname": "Wedged", "expression": "rate(x[5m]) > 0", "target": TARGET, "series": (matcher,), "opened": True}
    return AlertExpression.model_validate({**known, **changes})


# steps -----------------------------------------------------------------------------------------------------------------------


def test_an_approved_restart_is_one_stamp() -> None:
    assert [step.kind for step in plan(RestartWorkload(), facts(), "approved")] == [StepKind.STAMP]


def test_an_automatic_restart_begins_with_the_pod_the_evidence_names() -> None:
    steps = plan(RestartWorkload(first_pod="checkout-3"), facts(), "auto")
    assert [(step.kind, step.pod) for step in steps] == [
        (StepKind.OPEN, None),
        (StepKind.EVICT, "checkout-3"),
        (StepKind.STAMP, None),
    ]
    gone = plan(RestartWorkload(first_pod="checkout-9"), facts(), "auto")
    assert gone[1].pod is None


def test_one_pod_is_opened_then_evicted_with_its_uid() -> None:
    steps = plan(RestartPod(pod="checkout-1", pod_uid="u"), facts(), "auto")
    assert [(step.kind, step.pod, step.pod_uid) for step in steps] == [
        (StepKind.OPEN, None, None),
        (StepKind.EVICT, "checkout-1", "u"),
    ]


def test_a_scale_is_one_step() -> None:
    (step,) = plan(Scale(from_replicas=2, to_replicas=4), facts(), "auto")
    assert (step.kind, step.from_replicas, step.to_replicas) == (StepKind.SCALE, 2, 4)


def test_f53_a_stateful_set_goes_one_eviction_at_a_time_highest_ordinal_first() -> None:
    steps = plan(RestartWorkload(), STATEFUL, "approved")
    assert [step.pod for step in steps] == [None, "db-10", "db-2", "db-1", "db-0"]


@pytest.mark.parametrize(
    ("action", "known", "mode", "said"),
    [
        (RestartWorkload(), STATEFUL, "auto", "never restarted without a person"),
        (RestartWorkload(), STATEFUL.model_copy(update={"pods": ()}), "approved", "no pod to evict"),
        (RestartWorkload(), STATEFUL.model_copy(update={"pods": tuple(f"db-{n}" for n in range(20))}), "approved", "at most 19"),
        (RestartWorkload(), facts(target=TARGET.model_copy(update={"kind": TargetKind.DAEMONSET})), "approved", "never executed"),
        (DrainNode(node="n"), facts(), "approved", "drain_node on a Deployment has no plan"),
    ],
)
def test_what_has_no_plan_says_why(action: Action, known: object, mode: str, said: str) -> None:
    with pytest.raises(NotPlannable, match=said):
        plan(action, known, mode)  # type: ignore[arg-type]


def test_deadlines_are_the_numbers_in_seconds() -> None:
    found = deadlines(Numbers(settle_floor=timedelta(minutes=1)), scrape_interval=5, evaluation_interval=10)
    assert (found.settle_floor, found.settle_cap, found.apply_cap) == (60, 600, 480)
    assert (found.scrape_interval, found.evaluation_interval, found.kubernetes_sample) == (5, 10, 2)


# checks ----------------------------------------------------------------------------------------------------------------------


def test_every_oracle_has_a_check_and_dependants_are_watched() -> None:
    scope = merged(POLICY.replace("    scale: {", "    dependants: [Deployment/gateway, Deployment/checkout]\n    scale: {"))
    checks = checks_for(facts(), scope, [expression()], mode="auto")
    assert {check.oracle for check in checks} == set(Oracle)
    assert [check.name for check in checks if check.opened] == ["alert Wedged"]
    assert {check.fact for check in checks if check.source is CheckSource.KUBERNETES and check.target == TARGET} == set(
        KubernetesFact
    )
    assert [check.target.name for check in checks if check.target != TARGET] == ["gateway"]
    assert len({check.name for check in checks}) == len(checks)


def test_an_alert_check_passes_when_empty_and_a_service_level_does_not() -> None:
    checks = {check.oracle: check for check in checks_for(facts(), merged(), [expression()], mode="auto")}
    assert checks[Oracle.ALERT].empty == "passing"
    assert checks[Oracle.ALERT].longest_range == 300
    assert checks[Oracle.SERVICE_LEVEL].empty == "unknown"
    assert checks[Oracle.SERVICE_LEVEL].passing == "< 0.01"
    assert checks[Oracle.SERVICE_LEVEL].longest_range == 120


def test_no_service_level_check_no_automatic_order() -> None:
    scope = merged("\n".join(line for line in POLICY.splitlines() if "checks:" not in line))
    with pytest.raises(NotCheckable, match="scope shop has no service-level check"):
        checks_for(facts(), scope, [expression()], mode="auto")
    assert checks_for(facts(), scope, [expression()], mode="approved")


@pytest.mark.parametrize("alerts", [[], [expression(opened=False)]])
def test_cannot_tell_whether_it_improved_no_order(alerts: list[AlertExpression]) -> None:
    for mode in ("auto", "approved"):
        with pytest.raises(NotCheckable, match="could not be read"):
            checks_for(facts(), merged(), alerts, mode=mode)  # type: ignore[arg-type]
    assert checks_for(facts(), merged(), alerts, mode="approved", origin="follow_up")


def test_two_rules_of_one_name_stay_two_checks() -> None:
    checks = checks_for(facts(), merged(), [expression(), expression(expression="y > 1")], mode="auto")
    assert [check.name for check in checks if check.oracle is Oracle.ALERT] == ["alert Wedged", "alert Wedged (2)"]
    same = checks_for(facts(), merged(), [expression(), expression()], mode="auto")
    assert [check.name for check in same if check.oracle is Oracle.ALERT] == ["alert Wedged"]


@pytest.mark.parametrize(
    ("query", "seconds"),
    [
        ("up", 0),
        ("rate(x[2m])", 120),
        ("rate(x[1h30m]) / rate(y[5m])", 5400),
        ('x{path="[9h]"}', 0),
        ("x{path='a\\'[9h]'}", 0),
        ("max_over_time(rate(x[5m])[30m:1m])", 2100),
        ("sum_over_time(x[1d:])", 86400),
        ("rate(x[1w])", 604800),
        ("x[500ms]", 0.5),
    ],
)
def test_the_longest_range_of_an_expression(query: str, seconds: float) -> None:
    assert longest_range(query) == seconds


# roles -----------------------------------------------------------------------------------------------------------------------

ENTRIES = ("person:ana", "slack-group:S0SRE", "discord-role:789")


@pytest.mark.parametrize(
    ("identity", "held"),
    [
        (Identity(person="ana", groups=None), Holding.YES),
        (Identity(person="bo"), Holding.NO),
        (Identity(person="bo", groups=frozenset({"slack-group:S0SRE"})), Holding.YES),
        (Identity(person="bo", groups=frozenset({"slack-group:OTHER"})), Holding.NO),
        (Identity(person="bo", groups=None), Holding.UNKNOWN),
        (Identity(person="person:ana"), Holding.NO),
        (Identity(person=""), Holding.NO),
    ],
)
def test_roles_are_held_by_identity(identity: Identity, held: Holding) -> None:
    assert holds(ENTRIES, identity) is held


def test_an_empty_list_is_nobody_even_when_groups_could_not_be_asked() -> None:
    assert holds((), Identity(person="ana", groups=None)) is Holding.NO
    assert holds(("person:bo",), Identity(person="ana", groups=None)) is Holding.NO


def test_a_refusal_says_who_may() -> None:
    scope = merged()
    assert refusal(scope, "approver", Identity(person="ana")) is None
    assert refusal(scope, "approver", Identity(person="eve")) == "eve is not an approver of scope shop; ana may."
    assert refusal(scope, "labeller", Identity(person="eve")) == "eve is not a labeller of scope shop; ana, bo may."
    groups = merged(POLICY.replace("approver: [person:ana]", "approver: [slack-group:S0SRE]"))
    assert "could not be checked" in (refusal(groups, "approver", Identity(person="eve", groups=None)) or "")
    assert "No scope" in (refusal(None, "approver", Identity(person="ana")) or "")
