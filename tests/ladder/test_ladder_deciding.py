"""decide: routes, notability, warnings, purity, and what must hold for any case at all."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ladder_cases import ALL_R5, NOW, POLICY, TARGET, CaseMaker, alert, calibration, case_maker, entry, evidence, facts, promoted

from catalog.actions import (
    Escalate,
    NoAction,
    RemediationAction,
    RestartPod,
    RestartWorkload,
    RollbackRelease,
    Scale,
    action_adapter,
)
from catalog.alerts import AlertSeverity
from catalog.cases import Case, Ledger, Notability, Rung, StandingRecord, Storm, Switches
from catalog.decisions import GateName, GateState, Route
from catalog.diagnoses import AntiAction, Family
from catalog.registry import CATALOGUE
from catalog.targets import TargetKind
from ladder.deciding import decide
from ladder.policy import Policy, parse_policy


def test_decide_is_a_pure_function_of_case_and_policy(make_case: CaseMaker, policy: Policy) -> None:
    case = make_case()
    again = Case.model_validate_json(case.to_json())
    assert decide(case, policy).to_json() == decide(again, parse_policy(POLICY)).to_json()


def test_replay_with_another_policy_is_another_decision(make_case: CaseMaker, policy: Policy) -> None:
    stricter = parse_policy(POLICY + "numbers: {weight_auto: 0.99}\n")
    case = make_case()
    assert decide(case, policy).route is Route.AUTO
    assert decide(case, stricter).route is Route.PROPOSE
    assert decide(case, stricter).policy_hash != decide(case, policy).policy_hash


def test_k01_a_rollback_is_named_for_people_and_never_proposed(make_case: CaseMaker, policy: Policy) -> None:
    case = make_case(action=RollbackRelease(to_revision=1), family=Family.BAD_RELEASE, evidence=evidence(family=Family.BAD_RELEASE))
    decision = decide(case, policy)
    assert decision.route is Route.NOTIFY
    assert decision.notability == (Notability.NAMED_CAUSE,)
    assert decision.deciding_gate is not None
    assert decision.deciding_gate.sentence.startswith("Rollback release to revision 1 is described, never executed.")
    assert not decision.would_auto


def test_g22_no_evidence_is_none_and_auto_is_impossible(make_case: CaseMaker, policy: Policy) -> None:
    decision = decide(make_case(evidence=evidence(evidence_weight=None, supporting=0, sources=(), oracles=())), policy)
    assert decision.route is Route.NOTIFY
    assert not decision.would_auto


def test_g23_a_contradicted_model_does_not_act_and_the_contradiction_is_told(make_case: CaseMaker, policy: Policy) -> None:
    decision = decide(make_case(family=Family.OUT_OF_MEMORY, evidence=evidence(family=Family.OUT_OF_MEMORY, refuted=True)), policy)
    assert decision.route is Route.NOTIFY
    assert Notability.REFUTED_SUSPICION in decision.notability


def test_g38_a_namespace_that_did_not_opt_in_is_notify_at_most_with_the_hint(make_case: CaseMaker, policy: Policy) -> None:
    decision = decide(make_case(facts=facts(opted_in=False)), policy)
    assert decision.route is Route.NOTIFY
    assert decision.deciding_gate is not None
    assert decision.deciding_gate.unblock == "kubectl label namespace shop sre-ladder.dev/autonomy=enabled"
    assert Notability.REFUSED_ACTION not in decision.notability


def test_g26_an_observability_outage_acts_on_nothing(make_case: CaseMaker, policy: Policy) -> None:
    decision = decide(make_case(evidence=None, alerts=(alert(firing_at_source=None, silenced=None),)), policy)
    assert decision.route is Route.NOTIFY


def test_g25_what_preflight_would_refuse_gets_no_card(make_case: CaseMaker, policy: Policy) -> None:
    assert decide(make_case(facts=facts(paused=True)), policy).route is Route.NOTIFY


def test_p08_nothing_to_do_is_no_proposal(make_case: CaseMaker, policy: Policy) -> None:
    decision = decide(
        make_case(action=NoAction(), family=Family.SELF_RESOLVED, evidence=evidence(family=Family.SELF_RESOLVED)), policy
    )
    assert decision.route is Route.NOTIFY
    assert decision.notability == ()


def test_p07_scale_from_zero_is_for_people(make_case: CaseMaker, policy: Policy) -> None:
    case = make_case(
        action=Scale(from_replicas=0, to_replicas=3),
        facts=facts(desired=0, scaled_to_zero=True),
        calibration=calibration(action="scale"),
    )
    assert decide(case, policy).route is Route.NOTIFY


def test_k03_the_second_firing_in_hours_escalates_instead_of_looping(make_case: CaseMaker, policy: Policy) -> None:
    decision = decide(make_case(ledger=Ledger(entries=(entry(150),))), policy)
    assert decision.route is Route.NOTIFY
    assert decision.deciding_gate is not None
    assert decision.deciding_gate.gate is GateName.REPETITION
    assert Notability.REFUSED_ACTION in decision.notability


@pytest.mark.parametrize("severity", [AlertSeverity.NONE, AlertSeverity.INFO])
def test_informational_alerts_are_recorded_whatever_the_gates_say(
    make_case: CaseMaker, policy: Policy, severity: AlertSeverity
) -> None:
    decision = decide(make_case(alerts=(alert(severity=severity),)), policy)
    assert decision.route is Route.RECORD
    assert "Informational alerts are recorded only." in decision.warnings
    mixed = decide(make_case(alerts=(alert(severity=severity), alert(name="B"))), policy)
    assert mixed.route is Route.AUTO


def test_f16_an_unchanged_verdict_is_recorded_and_a_proposal_is_not_swallowed(make_case: CaseMaker, policy: Policy) -> None:
    assert decide(make_case(unchanged=True, action=Escalate()), policy).route is Route.RECORD
    assert (
        decide(make_case(unchanged=True, standing=promoted(policy, ("restart_workload", Rung.R4))), policy).route is Route.PROPOSE
    )


@pytest.mark.parametrize(
    ("changes", "notable"),
    [
        ({"evidence": evidence(evidence_weight=0.59)}, {Notability.REFUSED_ACTION}),
        ({"evidence": evidence(evidence_weight=0.6), "action": Escalate()}, {Notability.NAMED_CAUSE}),
        ({"action": Escalate(), "evidence": None}, set()),
        (
            {"action": Escalate(), "evidence": None, "anti_actions": (AntiAction(action=RemediationAction.SCALE, reason="x"),)},
            {Notability.ANTI_ACTION},
        ),
        ({"action": Escalate(), "family": Family.UNKNOWN, "evidence": evidence(family=Family.UNKNOWN)}, set()),
        ({"action": Escalate(), "family": Family.CAPACITY}, set()),
    ],
)
def test_a_notify_is_notable_only_when_it_adds_something(
    make_case: CaseMaker, policy: Policy, changes: dict[str, Any], notable: set[Notability]
) -> None:
    decision = decide(make_case(**changes), policy)
    assert decision.route is Route.NOTIFY
    assert set(decision.notability) == notable


def test_would_auto_ignores_rung_and_calibration_and_nothing_else(make_case: CaseMaker, policy: Policy) -> None:
    shadow = {"standing": StandingRecord(), "calibration": calibration(open=False, settled=3, right=3)}
    decision = decide(make_case(**shadow), policy)
    assert decision.route is Route.NOTIFY
    assert decision.would_auto
    for changes in (
        {"facts": facts(opted_in=False)},
        {"storm": Storm(latched=True)},
        {"evidence": None},
        {"facts": facts(paused=True)},
    ):
        assert not decide(make_case(**shadow, **changes), policy).would_auto


def test_a_number_below_its_safety_minimum_is_on_every_card(make_case: CaseMaker) -> None:
    policy = parse_policy(
        POLICY.replace("    scale: {", "    numbers: {weight_auto: 0.7, watch_restart: 2m}\n    scale: {")
        + "numbers: {storm_share: 0.5}\n"
    )
    said = " ".join(decide(make_case(action=NoAction()), policy).warnings)
    assert "weight_auto is 0.7 in scope shop; the safety minimum is 0.85" in said
    assert "watch_restart is 2m in scope shop; the safety minimum is 30m" in said
    assert "storm_share is 0.5 in numbers; the safety minimum is 0.2" in said


def test_what_undo_cannot_bring_back_is_on_the_card_before_approval(make_case: CaseMaker, policy: Policy) -> None:
    decision = decide(make_case(facts=facts(strategy="Recreate", empty_dir=True)), policy)
    assert decision.route is Route.PROPOSE
    assert "Full outage: no pod stays ready while it restarts." in decision.warnings
    assert "emptyDir data of the restarted pods is lost." in decision.warnings


def test_h22_a_proposal_says_that_the_alert_does_not_fire_at_its_source(make_case: CaseMaker, policy: Policy) -> None:
    decision = decide(make_case(alerts=(alert(firing_at_source=False),)), policy)
    assert decision.route is Route.PROPOSE
    assert "NOT firing at its source now." in decision.warnings


def test_the_decision_names_the_scope_that_keeps_the_standing(make_case: CaseMaker) -> None:
    narrow = (
        "\n  - {name: checkout, match: {cluster: eu-1, namespace: shop, workload: Deployment/checkout}, channel: {slack: C9}}\n"
    )
    policy = parse_policy(POLICY + narrow.lstrip("\n"))
    decision = decide(make_case(), policy)
    assert decision.scope == "shop"
    assert decision.match_digest == promoted(policy, *ALL_R5).changes[0].match_digest
    assert decision.route is Route.AUTO


# for any case ----------------------------------------------------------------------------------------------------------------

maybe = st.sampled_from([True, False, None])
actions = st.sampled_from(
    [
        RestartWorkload(),
        RestartPod(pod="checkout-1"),
        RestartPod(pod="cart-1"),
        Scale(from_replicas=4, to_replicas=6),
        Scale(from_replicas=4, to_replicas=2),
        Scale(from_replicas=2, to_replicas=4),
        *(
            action_adapter.validate_python({"action": spec.action.value})
            for spec in CATALOGUE.values()
            if not spec.executable
            and spec.action.value not in {"cordon_node", "drain_node", "cleanup_node", "remove_taint", "delete_stuck_pod"}
        ),
        action_adapter.validate_python({"action": "drain_node", "node": "n"}),
    ]
)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    action = draw(actions)
    weight = draw(st.sampled_from([None, 0.0, 0.59, 0.6, 0.85, 0.99]))
    known = facts(
        opted_in=draw(maybe),
        paused=draw(maybe),
        rolling_out=draw(st.sampled_from([False, False, True, None])),
        desired=draw(st.sampled_from([None, 0, 1, 2, 3, 4, 4, 4])),
        ready=draw(st.sampled_from([None, 0, 2, 4, 4])),
        max_unavailable=draw(st.sampled_from([None, 0, 1, 1, 4])),
        strategy=draw(st.sampled_from(["RollingUpdate", "RollingUpdate", "Recreate", ""])),
        namespace_ready_pods=draw(st.sampled_from([None, 1, 12, 12])),
        disruptions_allowed=draw(st.sampled_from([None, None, 0, 1])),
        exists=draw(st.sampled_from([True, True, False])),
    )
    policy = parse_policy(POLICY)
    target = TARGET.model_copy(
        update={
            "kind": draw(st.sampled_from([TargetKind.DEPLOYMENT, TargetKind.DEPLOYMENT, TargetKind.STATEFULSET, TargetKind.NODE]))
        }
    )
    return case_maker(policy)(
        action=action,
        target=target,
        facts=draw(
            st.sampled_from([None, known.model_copy(update={"target": target}), known.model_copy(update={"target": target})])
        ),
        evidence=draw(st.sampled_from([None, evidence(evidence_weight=weight, refuted=draw(st.booleans()))])),
        calibration=draw(st.sampled_from([None, calibration(action=action.action, open=draw(st.booleans()))])),
        ledger=draw(st.sampled_from([None, Ledger(), Ledger(complete=False), Ledger(entries=(entry(30),))])),
        switches=Switches(halted=draw(maybe), override_reason=draw(st.sampled_from([None, "why"]))),
        storm=Storm(latched=draw(maybe)),
        alerts=(alert(firing_at_source=draw(maybe), silenced=draw(maybe)),),
        provenance=draw(st.sampled_from(["own", "own", "derived"])),
        standing=promoted(
            policy, ("restart_workload", draw(st.sampled_from(list(Rung)))), ("scale", Rung.R5), ("restart_pod", Rung.R5)
        ),
        origin=draw(st.sampled_from(["alert", "alert", "follow_up"])),
    )


@given(cases())
@settings(max_examples=400, deadline=None)
def test_auto_never_with_an_unknown_gate_nor_for_what_is_irreversible_or_not_executable(case: Case) -> None:
    policy = parse_policy(POLICY)
    decision = decide(case, policy)
    spec = CATALOGUE[case.action.action]
    states = {(result.route, result.gate): result.state for result in decision.gates}
    if decision.route is Route.AUTO:
        assert set(states.values()) == {GateState.PASSED}
        assert spec.executable
        assert spec.auto_eligible
        assert not spec.irreversible
        assert case.target.kind is TargetKind.DEPLOYMENT
        assert not (isinstance(case.action, Scale) and not case.action.upward)
    if decision.route.rank >= Route.PROPOSE.rank:
        assert {state for (route, _), state in states.items() if route == "propose"} == {GateState.PASSED}
        assert spec.executable
    if case.facts is None or case.ledger is None or case.switches.halted is None or case.storm.latched is None:
        assert decision.route.rank < Route.PROPOSE.rank
    assert decision.to_json()


@given(cases())
@settings(max_examples=200, deadline=None)
def test_auto_passes_no_gate_that_propose_does_not(case: Case) -> None:
    decision = decide(case, parse_policy(POLICY))
    states = {(result.route, result.gate): result.state for result in decision.gates}
    for name in GateName:
        if states["auto", name] is GateState.PASSED:
            assert states["propose", name] is GateState.PASSED


def test_now_is_the_cases_own(make_case: CaseMaker, policy: Policy) -> None:
    later = NOW + timedelta(seconds=101)
    assert decide(make_case(now=later), policy).route is Route.PROPOSE
    assert decide(make_case(now=later), policy).at == later


def test_where_only_labels_are_missing_people_are_asked_for_one(make_case: CaseMaker, policy: Policy) -> None:
    fresh = {"standing": StandingRecord(), "calibration": calibration(open=False, settled=3, right=3)}
    assert Notability.LABEL_REQUEST in decide(make_case(**fresh), policy).notability
    for changes in ({"facts": facts(opted_in=False)}, {"evidence": None}, {"action": Escalate()}):
        assert Notability.LABEL_REQUEST not in decide(make_case(**fresh, **changes), policy).notability
