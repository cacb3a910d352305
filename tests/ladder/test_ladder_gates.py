"""Every gate for both routes: what passes, what is blocked, and what cannot be told, which never acts.

Each row changes one thing of a case that otherwise goes by itself, so that the gate named is the only one that can stop it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from ladder_cases import ALL_R5, NOW, POLICY, TARGET, CaseMaker, alert, calibration, entry, evidence, facts, gate, promoted

from catalog.actions import Escalate, NoAction, RemediationAction, RestartPod, RestartWorkload, RollbackRelease, Scale
from catalog.cases import FollowUp, Freeze, Ledger, Rung, StandingRecord, Storm, Switches, TargetBlock
from catalog.decisions import GateName, GateState, Route
from catalog.diagnoses import AntiAction, Family
from catalog.evidence import Oracle
from catalog.outcomes import End
from catalog.registry import CATALOGUE
from catalog.targets import TargetKind
from ladder.deciding import decide
from ladder.gates import GATES
from ladder.policy import Policy, parse_policy

P, B, U = GateState.PASSED, GateState.BLOCKED, GateState.UNKNOWN
Row = tuple[str, dict[str, Any], GateState, GateState, str]


def elsewhere(**changes: Any) -> Any:
    return TARGET.model_copy(update=changes)


def scale(low: int, high: int) -> dict[str, Any]:
    return {
        "action": Scale(from_replicas=low, to_replicas=high),
        "facts": facts(desired=low, ready=low),
        "calibration": calibration(action="scale"),
    }


def pod(name: str = "checkout-1", **changes: Any) -> dict[str, Any]:
    return {"action": RestartPod(pod=name), "facts": facts(**changes), "calibration": calibration(action="restart_pod")}


def stateful(**changes: Any) -> dict[str, Any]:
    target = elsewhere(kind=TargetKind.STATEFULSET)
    return {"target": target, "facts": facts(target=target, **changes)}


def on(kind: TargetKind) -> dict[str, Any]:
    target = elsewhere(kind=kind)
    return {"target": target, "facts": facts(target=target)}


LATER = NOW + timedelta(hours=1)
FROZEN = Switches(freezes=(Freeze(name="release", until=LATER, reason="launch"),))
OVERRIDE = FROZEN.model_copy(update={"override_reason": "customers are down"})

ROWS: list[Row] = [
    # 1 switches
    ("switches", {"switches": Switches(halted=True, halted_by="ana", halt_reason="drill")}, B, B, "Halted by ana: drill"),
    ("switches", {"switches": Switches(halted=None)}, U, U, "could not be read"),
    ("switches", {"switches": FROZEN}, B, B, "Frozen until 2026-03-04 11:00 UTC (release: launch)"),
    ("switches", {"switches": OVERRIDE}, P, B, "overridden for this proposal: customers are down"),
    ("switches", {"switches": FROZEN.model_copy(update={"override_reason": "  "})}, B, B, "Frozen"),
    ("switches", {"switches": OVERRIDE.model_copy(update={"halted": True})}, B, B, "Halted"),
    ("switches", {"switches": Switches(freezes=(Freeze(name="old", until=NOW),))}, P, P, "no freeze"),
    ("switches", {"switches": Switches(freezes=(Freeze(name="for ever"),))}, B, B, "for ever"),
    # 2 target
    ("target", {"target_invalid": "pod='a$(id)'"}, B, B, "invalid: pod='a$(id)'"),
    ("target", {"target": elsewhere(name="Checkout")}, B, B, "invalid"),
    ("target", {"target": elsewhere(namespace="")}, B, B, "no namespace"),
    ("target", {"facts": None}, U, U, "could not be read"),
    ("target", {"facts": facts(exists=False)}, B, B, "does not exist"),
    ("target", {"facts": facts(target=elsewhere(name="cart"))}, B, B, "What was read is not"),
    ("target", {"facts": facts(target=elsewhere(uid="another"))}, B, B, "re-created"),
    ("target", {"facts": facts(target=elsewhere(uid=None))}, U, U, "UID"),
    ("target", {"target": elsewhere(uid=None)}, P, P, "own target"),
    ("target", {"facts": facts(custom_owner="Rollout")}, B, B, "custom resource (Rollout)"),
    ("target", {"provenance": "derived", "edge": "Service/db"}, P, B, "derived"),
    ("target", {"provenance": "derived", "edge": " "}, B, B, "derived"),
    ("target", stateful(), P, B, "StatefulSet"),
    # 3 action
    ("action", {"action": NoAction()}, B, B, "No action"),
    ("action", {"action": Escalate()}, B, B, "hand over to people"),
    ("action", {"action": RollbackRelease(to_revision=3)}, B, B, "described, never executed"),
    ("action", on(TargetKind.DAEMONSET), B, B, "this is a DaemonSet"),
    ("action", on(TargetKind.JOB), B, B, "this is a Job"),
    (
        "action",
        {"anti_actions": (AntiAction(action=RemediationAction.RESTART_WORKLOAD, reason="quota is full"),)},
        B,
        B,
        "quota is full",
    ),
    ("action", {"anti_actions": (AntiAction(action=RemediationAction.SCALE, reason="quota is full"),)}, P, P, "fits"),
    ("action", {"facts": None}, U, U, "could not be read"),
    ("action", {"facts": facts(paused=True)}, B, B, "paused"),
    ("action", {"facts": facts(paused=None)}, U, U, "could not be read"),
    ("action", {"facts": facts(rolling_out=True)}, B, B, "roll-out is in progress"),
    ("action", {"facts": facts(rolling_out=None)}, U, U, "could not be read"),
    ("action", {"facts": facts(generation=8)}, B, B, "not observed"),
    ("action", {"facts": facts(observed_generation=None)}, U, U, "could not be read"),
    ("action", {"facts": facts(desired=0)}, B, B, "scaled to 0"),
    ("action", {"facts": facts(disruptions_allowed=0, max_unavailable=1)}, B, B, "PodDisruptionBudget wants 4"),
    ("action", {"facts": facts(disruptions_allowed=1)}, P, P, "fits"),
    ("action", {"facts": facts(disruptions_allowed=1, ready=None)}, U, U, "PodDisruptionBudget"),
    ("action", {"facts": facts(unread=("budgets",))}, U, U, "PodDisruptionBudget"),
    ("action", pod(), P, P, "fits"),
    ("action", pod("cart-1"), B, B, "not a live pod"),
    ("action", pod("cart-1", pods=tuple(f"checkout-{n}" for n in range(50))), U, U, "could not be read"),
    ("action", pod(pods=(), unread=("pods",)), U, U, "could not be read"),
    ("action", pod(disruptions_allowed=0), B, B, "allows no eviction"),
    ("action", pod(unread=("budgets",)), U, U, "could not be read"),
    ("action", on(TargetKind.POD), B, B, "this is a Pod"),
    ("action", scale(2, 4), P, P, "fits"),
    ("action", scale(2, 4) | {"facts": facts(desired=3)}, B, B, "3 replicas now, not 2"),
    ("action", scale(2, 4) | {"facts": facts(desired=2, autoscaler="HorizontalPodAutoscaler checkout")}, B, B, "would undo it"),
    ("action", scale(2, 4) | {"facts": facts(desired=2, unread=("autoscalers",))}, U, U, "could not be read"),
    ("action", scale(2, 4) | {"facts": facts(desired=2, replicas_manager="argocd")}, B, B, "would revert it"),
    ("action", scale(2, 4) | {"facts": facts(desired=None)}, U, U, "could not be read"),
    ("action", scale(2, 5), B, B, "scale.step"),
    ("action", scale(2, 1), B, B, "scale.min"),
    ("action", scale(8, 12), B, B, "scale.max"),
    ("action", scale(0, 3), B, B, "scale from zero"),
    ("action", scale(3, 0), B, B, "scale to zero"),
    # 4 reversibility
    ("reversibility", {}, P, P, "No undo"),
    ("reversibility", scale(4, 2), P, B, "only goes up"),
    ("reversibility", {"action": RollbackRelease()}, P, B, "irreversible"),
    # 5 scope and rung
    ("scope", {"facts": facts(opted_in=False)}, B, B, "not opted in"),
    ("scope", {"facts": facts(opted_in=None)}, U, U, "could not be read"),
    ("scope", {"facts": None}, U, U, "could not be read"),
    ("scope", {"target": elsewhere(namespace="billing")}, B, B, "No scope"),
    ("scope", {"standing": StandingRecord()}, B, B, "at R3"),
    ("scope", {"action": RollbackRelease()}, B, B, "ceiling R3"),
    # 6 evidence
    ("evidence", {"evidence": None}, U, U, "Nothing verified"),
    ("evidence", {"evidence": evidence(evidence_weight=None)}, U, U, "Nothing verified"),
    ("evidence", {"evidence": evidence(refuted=True)}, B, B, "refutes wedged"),
    ("evidence", {"evidence": evidence(evidence_weight=0.59)}, B, B, "below 0.60"),
    ("evidence", {"evidence": evidence(evidence_weight=0.60)}, P, B, "0.60"),
    ("evidence", {"evidence": evidence(evidence_weight=0.84)}, P, B, "0.84"),
    ("evidence", {"evidence": evidence(evidence_weight=0.85)}, P, P, "0.85"),
    ("evidence", {"evidence": evidence(family=Family.CAPACITY)}, U, U, "about capacity, not about wedged"),
    ("evidence", {"evidence": evidence(tainted="generation 7 to 8")}, P, B, "ainted"),
    ("evidence", {"evidence": evidence(oldest_at=NOW - timedelta(seconds=121))}, P, B, "weight|121 s old"),
    ("evidence", {"evidence": evidence(oldest_at=NOW - timedelta(seconds=120))}, P, P, "weight"),
    ("evidence", {"evidence": evidence(oldest_at=NOW + timedelta(seconds=6))}, P, U, "weight|future"),
    ("evidence", {"evidence": evidence(oldest_at=None)}, P, U, "weight|not known"),
    ("evidence", {"evidence": evidence(sources=("kubernetes",))}, P, B, "weight|two are needed"),
    ("evidence", {"evidence": evidence(sources=("prometheus", "logs"))}, P, B, "weight|Kubernetes API"),
    ("evidence", {"evidence": evidence(oracles=(Oracle.ALERT,))}, P, B, "weight|watch the component"),
    (
        "evidence",
        {"evidence": evidence(oracles=(Oracle.COMPONENT,)), "alerts": (alert(firing_at_source=False),)},
        P,
        B,
        "weight|watch the alert",
    ),
    ("evidence", {"evidence": evidence(oracles=(Oracle.COMPONENT,))}, P, P, "weight"),
    # 7 calibration
    ("calibration", {"calibration": None}, U, U, "could not be read"),
    ("calibration", {"calibration": calibration(open=False, settled=49, right=49, next_look=50)}, B, B, "49 of 49"),
    ("calibration", {"calibration": calibration(family=Family.CAPACITY)}, U, U, "not of (wedged, restart_workload)"),
    ("calibration", {"calibration": calibration(action="scale")}, U, U, "not of (wedged, restart_workload)"),
    # 8 repetition
    ("repetition", {"ledger": None}, U, U, "could not be read"),
    ("repetition", {"ledger": Ledger(complete=False)}, U, U, "could not be read"),
    ("repetition", {"ledger": Ledger(contested="kubectl-edit")}, B, B, "kubectl-edit keeps changing"),
    ("repetition", {"rejected_by": "bo"}, B, B, "bo rejected"),
    ("repetition", {"ledger": Ledger(entries=(entry(359),))}, B, B, "once in 6h"),
    ("repetition", {"ledger": Ledger(entries=(entry(361),))}, P, B, "repetition|only people"),
    ("repetition", {"ledger": Ledger(entries=(entry(24 * 60 + 1),))}, P, P, "Not a repetition"),
    ("repetition", {"ledger": Ledger(entries=(entry(359, end="refused"),))}, P, P, "Not a repetition"),
    ("repetition", {"ledger": Ledger(entries=(entry(359, action="scale"),))}, P, P, "Not a repetition"),
    ("repetition", {"ledger": Ledger(entries=(entry(359, target=elsewhere(name="cart")),))}, P, P, "Not a repetition"),
    ("repetition", {"ledger": Ledger(entries=(entry(700, end="ineffective"),))}, B, B, "no effect"),
    (
        "repetition",
        {"ledger": Ledger(entries=(entry(700, action="scale"), entry(500, action="restart_pod")))},
        B,
        B,
        "order number 3",
    ),
    ("repetition", {"ledger": Ledger(entries=(entry(500, action="scale"),))}, P, P, "Not a repetition"),
    (
        "repetition",
        {"ledger": Ledger(block=TargetBlock(forbids="auto", reason="rolled back", since=NOW, until=LATER))},
        P,
        B,
        "repetition|blocked until",
    ),
    (
        "repetition",
        {"ledger": Ledger(block=TargetBlock(forbids="auto", reason="rolled back", since=NOW, until=NOW))},
        P,
        P,
        "Not a repetition",
    ),
    (
        "repetition",
        {"ledger": Ledger(block=TargetBlock(forbids="all", reason="regressed", since=NOW))},
        B,
        B,
        "until a person lifts it: regressed",
    ),
    # 9 budget
    ("budget", {"ledger": None}, U, U, "could not be read"),
    ("budget", {"ledger": Ledger(complete=False)}, U, U, "could not be read"),
    ("budget", {"ledger": Ledger(entries=(entry(59, action="scale"),))}, P, B, "per workload"),
    ("budget", {"ledger": Ledger(entries=(entry(61, action="scale"),))}, P, P, "Within budget"),
    ("budget", {"ledger": Ledger(entries=(entry(59, action="scale", end="refused"),))}, P, P, "Within budget"),
    ("budget", {"ledger": Ledger(entries=(entry(59, action="scale", mode="approved"),))}, P, P, "Within budget"),
    ("budget", {"ledger": Ledger(entries=(entry(14, action="scale", mode="approved"),))}, P, B, "cools down"),
    (
        "budget",
        {"ledger": Ledger(entries=tuple(entry(n, target=elsewhere(name=f"w{n}")) for n in range(20, 23)))},
        P,
        B,
        "per namespace",
    ),
    (
        "budget",
        {"ledger": Ledger(entries=tuple(entry(n, target=elsewhere(name=f"w{n}", namespace=f"n{n}")) for n in range(20, 30)))},
        P,
        B,
        "per cluster",
    ),
    (
        "budget",
        {"ledger": Ledger(entries=tuple(entry(n, target=elsewhere(cluster_uid="other")) for n in range(20, 30)))},
        P,
        P,
        "Within budget",
    ),
    ("budget", {"ledger": Ledger(entries=(entry(2, action="scale", end=None),))}, B, B, "open on this target"),
    (
        "budget",
        {
            "ledger": Ledger(
                entries=tuple(
                    entry(70 + n, end=None, mode="approved", target=elsewhere(name=f"w{n}", namespace=f"n{n}")) for n in range(16)
                )
            )
        },
        P,
        B,
        "16 transactions are open",
    ),
    # 10 blast radius
    ("blast_radius", {"facts": None}, U, U, "could not be read"),
    ("blast_radius", {"facts": facts(max_unavailable=None)}, U, U, "not known"),
    ("blast_radius", {"facts": facts(namespace_ready_pods=None)}, U, U, "not known"),
    ("blast_radius", {"facts": facts(strategy="")}, U, U, "not known"),
    ("blast_radius", {"facts": facts(desired=8, ready=8, max_unavailable=5)}, P, B, "5 at the same time|At most 5"),
    ("blast_radius", {"facts": facts(desired=12, ready=12, max_unavailable=7)}, B, B, "7 at the same time"),
    ("blast_radius", {"facts": facts(desired=2, ready=2)}, P, B, "At most 1|has 2 replicas"),
    ("blast_radius", {"facts": facts(desired=3, ready=3)}, P, P, "At most 1"),
    ("blast_radius", {"facts": facts(strategy="Recreate")}, P, B, "At most 4|No pod would stay ready"),
    ("blast_radius", {"facts": facts(desired=3, ready=2, max_unavailable=0)}, P, B, "At most 0|allowed dip"),
    ("blast_radius", {"facts": facts(desired=3, ready=None)}, P, U, "At most 1|not known"),
    ("blast_radius", {"facts": facts(disruptions_allowed=0)}, P, B, "At most 1|allowed dip"),
    ("blast_radius", {"facts": facts(unread=("services",))}, P, U, "At most 1|Services"),
    ("blast_radius", {"facts": facts(desired=None)}, P, U, "At most 1|number of replicas is not known"),
    ("blast_radius", {"action": RollbackRelease()}, B, B, "not executable"),
    ("blast_radius", scale(2, 4), P, P, "At most 0"),
    ("blast_radius", scale(1, 2), P, B, "At most 0|has 1 replicas"),
    ("blast_radius", pod(), P, P, "At most 1"),
    ("blast_radius", pod(desired=2, ready=2), P, B, "At most 1|has 2 replicas"),
    # 11 storm
    ("storm", {"storm": Storm(latched=True, reason="9 workloads unhealthy", since=NOW)}, B, B, "9 workloads unhealthy"),
    ("storm", {"storm": Storm(latched=None)}, U, U, "could not be read"),
    # 12 source
    ("source", {"alerts": (alert(firing_at_source=False),)}, P, B, "firing at its source"),
    ("source", {"alerts": (alert(firing_at_source=None),)}, P, U, "could not be asked"),
    ("source", {"alerts": (alert(silenced=True),)}, P, B, "ilence"),
    ("source", {"alerts": (alert(silenced=None),)}, P, U, "Firing|silence"),
    ("source", {"alerts": (alert(), alert(name="B", silenced=True))}, P, B, "ilence"),
    ("source", {"alerts": (alert(), alert(name="B", firing_at_source=False))}, P, P, "Firing"),
    ("source", {"alerts": ()}, P, B, "NOT firing|no alert"),
]


@pytest.mark.parametrize(
    ("name", "changes", "propose", "auto", "said"), ROWS, ids=[f"{n}-{row[0]}-{row[4][:24]}" for n, row in enumerate(ROWS)]
)
def test_gate(
    make_case: CaseMaker, policy: Policy, name: str, changes: dict[str, Any], propose: GateState, auto: GateState, said: str
) -> None:
    decision = decide(make_case(**changes), policy)
    results = gate(decision, name, "propose"), gate(decision, name, "auto")
    assert (results[0].state, results[1].state) == (propose, auto), [result.sentence for result in results]
    assert any(part in result.sentence for result in results for part in said.split("|"))
    if propose is not P:
        assert decision.route in (Route.NOTIFY, Route.RECORD)
    elif auto is not P:
        assert decision.route is not Route.AUTO


def test_the_case_of_these_tests_goes_by_itself(make_case: CaseMaker, policy: Policy) -> None:
    decision = decide(make_case(), policy)
    assert decision.route is Route.AUTO
    assert decision.deciding_gate is None
    assert decision.would_auto


def test_all_twelve_gates_are_asked_in_order_for_both_routes(make_case: CaseMaker, policy: Policy) -> None:
    decision = decide(make_case(), policy)
    assert list(GATES) == list(GateName)
    assert [(result.route, result.gate) for result in decision.gates] == [
        (route, name) for route in ("propose", "auto") for name in GateName
    ]


def test_every_gate_that_shuts_a_route_says_so_in_a_sentence(make_case: CaseMaker, policy: Policy) -> None:
    for name, changes, *_ in ROWS:
        for result in decide(make_case(**changes), policy).gates:
            assert result.sentence, (name, result)
            assert result.sentence.rstrip()[-1] in ".)", result.sentence


@pytest.mark.parametrize("kind", [TargetKind.DEPLOYMENT, TargetKind.STATEFULSET])
def test_p11_a_stateful_set_is_restarted_by_people_only(make_case: CaseMaker, policy: Policy, kind: TargetKind) -> None:
    decision = decide(make_case(**on(kind)), policy)
    assert decision.route is (Route.AUTO if kind is TargetKind.DEPLOYMENT else Route.PROPOSE)


# freezes of the file ---------------------------------------------------------------------------------------------------------


def test_a_freeze_of_the_file_is_computed_from_now(make_case: CaseMaker) -> None:
    policy = parse_policy(
        POLICY + 'freezes: [{match: {namespace: shop}, every: "WED 10:00-12:00", zone: Europe/Berlin, name: weekly}]\n'
    )
    frozen = decide(make_case(), policy)  # 10:00 UTC is 11:00 in Berlin
    assert gate(frozen, "switches", "propose").state is B
    assert "until 2026-03-04 11:00 UTC (weekly)" in gate(frozen, "switches", "propose").sentence
    later = make_case(now=NOW + timedelta(hours=1), evidence=evidence(oldest_at=NOW + timedelta(hours=1)))
    assert gate(decide(later, policy), "switches", "auto").state is P


# protected namespaces --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("namespace", ["kube-system", "kube-node-lease", "sre-ladder", "monitoring"])
def test_h03_protected_namespaces_are_never_touched_whatever_a_scope_says(make_case: CaseMaker, namespace: str) -> None:
    policy = parse_policy(POLICY.replace("match: {cluster: eu-1, namespace: shop}", "match: {cluster: eu-1}"))
    target = elsewhere(namespace=namespace)
    decision = decide(make_case(target=target, facts=facts(target=target), standing=promoted(policy, *ALL_R5)), policy)
    assert gate(decision, "target", "propose").sentence == f"Namespace {namespace} is protected."
    assert decision.route is Route.NOTIFY


def test_naming_other_namespaces_does_not_unprotect_our_own(make_case: CaseMaker) -> None:
    policy = parse_policy(POLICY + "protected: [billing]\n")
    assert policy.is_protected("kube-system")
    assert policy.is_protected("sre-ladder")
    assert policy.is_protected("billing")


# permissions that loosen -----------------------------------------------------------------------------------------------------


def test_propose_unverified_lets_a_proposal_through_loudly_and_auto_never(make_case: CaseMaker) -> None:
    policy = parse_policy(POLICY + "defaults: {propose_unverified: true}\n")
    decision = decide(make_case(evidence=None), policy)
    assert decision.route is Route.PROPOSE
    assert gate(decision, "evidence", "auto").state is U
    assert any("NOT VERIFIED" in warning for warning in decision.warnings)
    refuted = decide(make_case(evidence=evidence(refuted=True, evidence_weight=None)), policy)
    assert refuted.route is Route.NOTIFY


@pytest.mark.parametrize("cell", [None, calibration(open=False, settled=3, right=3)])
def test_propose_uncalibrated_lets_a_proposal_through_loudly_and_auto_never(make_case: CaseMaker, cell: Any) -> None:
    policy = parse_policy(POLICY + "defaults: {propose_uncalibrated: true}\n")
    decision = decide(make_case(calibration=cell), policy)
    assert decision.route is Route.PROPOSE
    assert gate(decision, "calibration", "auto").state is not P
    assert any("UNCALIBRATED" in warning for warning in decision.warnings)


# irreversible: a test catalogue, since nothing irreversible is executable -----------------------------------------------------


def test_irreversible_needs_two_people_and_is_never_automatic(make_case: CaseMaker, policy: Policy) -> None:
    restart = CATALOGUE[RemediationAction.RESTART_WORKLOAD].model_copy(update={"irreversible": True})
    decision = decide(make_case(), policy, {**CATALOGUE, RemediationAction.RESTART_WORKLOAD: restart})
    assert decision.route is Route.PROPOSE
    assert decision.quorum == 2
    assert decision.deciding_gate is not None
    assert decision.deciding_gate.gate is GateName.REVERSIBILITY
    assert not decision.would_auto


def test_what_is_not_auto_eligible_is_proposed_at_most(make_case: CaseMaker, policy: Policy) -> None:
    restart = CATALOGUE[RemediationAction.RESTART_WORKLOAD].model_copy(update={"auto_eligible": False})
    decision = decide(make_case(), policy, {**CATALOGUE, RemediationAction.RESTART_WORKLOAD: restart})
    assert (decision.route, decision.quorum) == (Route.PROPOSE, 1)


# rungs -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ceiling", "standing", "route"),
    [
        ("R5", Rung.R5, Route.AUTO),
        ("R4", Rung.R5, Route.PROPOSE),
        ("R5", Rung.R4, Route.PROPOSE),
        ("R3", Rung.R5, Route.NOTIFY),
        ("R5", Rung.R3, Route.NOTIFY),
    ],
)
def test_the_lower_of_ceiling_and_standing_is_in_force(make_case: CaseMaker, ceiling: str, standing: Rung, route: Route) -> None:
    policy = parse_policy(POLICY.replace("restart_workload: R5", f"restart_workload: {ceiling}"))
    decision = decide(make_case(standing=promoted(policy, ("restart_workload", standing))), policy)
    assert decision.route is route
    assert decision.would_auto
    assert (decision.rung, decision.standing) == (min(Rung[ceiling], standing), standing)


def test_a_service_level_check_is_needed_for_auto(make_case: CaseMaker) -> None:
    policy = parse_policy("\n".join(line for line in POLICY.splitlines() if "checks:" not in line))
    decision = decide(make_case(standing=promoted(policy, *ALL_R5), evidence=evidence(oracles=tuple(Oracle))), policy)
    assert decision.route is Route.PROPOSE
    assert "service level" in gate(decision, "evidence", "auto").sentence


def test_g35_one_regression_demotes_before_the_next_decision(make_case: CaseMaker, policy: Policy) -> None:
    from catalog.cases import ScoredOutcome

    record = promoted(policy, *ALL_R5)
    digest = record.changes[0].match_digest
    harm = ScoredOutcome(
        incident_id="i", scope="shop", match_digest=digest, action=RemediationAction.RESTART_WORKLOAD, end=End.REGRESSED, at=NOW
    )
    decision = decide(make_case(standing=record.model_copy(update={"outcomes": (harm,)})), policy)
    assert decision.rung is Rung.R4
    assert decision.route is Route.PROPOSE


# follow-ups ------------------------------------------------------------------------------------------------------------------


def follow_up(held: timedelta, **changes: Any) -> dict[str, Any]:
    return {
        **scale(4, 2),
        "origin": "follow_up",
        "alerts": (),
        "evidence": None,
        "calibration": None,
        "follow_up": FollowUp(of_incident="earlier", check="latency", held_for=held),
        "ledger": Ledger(entries=(entry(62, action="scale"),)),
        **changes,
    }


def test_a_follow_up_is_proposed_once_its_check_has_held_and_never_automatic(make_case: CaseMaker, policy: Policy) -> None:
    decision = decide(make_case(**follow_up(timedelta(minutes=60))), policy)
    assert decision.route is Route.PROPOSE
    assert gate(decision, "evidence", "auto").state is B
    early = decide(make_case(**follow_up(timedelta(minutes=59))), policy)
    assert early.route is Route.NOTIFY
    assert early.deciding_gate is not None
    assert early.deciding_gate.gate is GateName.EVIDENCE


@pytest.mark.parametrize("changes", [scale(2, 4), {"action": RestartWorkload(), "facts": facts()}, {"follow_up": None}])
def test_only_taking_back_a_scale_up_is_a_follow_up(make_case: CaseMaker, policy: Policy, changes: dict[str, Any]) -> None:
    decision = decide(make_case(**follow_up(timedelta(hours=2), **changes)), policy)
    assert gate(decision, "evidence", "propose").state is B
    assert decision.route is Route.NOTIFY


def test_a_follow_up_named_by_an_alert_incident_replaces_nothing(make_case: CaseMaker, policy: Policy) -> None:
    decision = decide(make_case(**follow_up(timedelta(hours=2), origin="alert", alerts=(alert(),))), policy)
    assert gate(decision, "evidence", "propose").state is U
    assert gate(decision, "calibration", "propose").state is U


def test_a_follow_up_takes_at_most_half(make_case: CaseMaker, policy: Policy) -> None:
    decision = decide(make_case(**follow_up(timedelta(hours=2), **(scale(8, 3) | {"calibration": None}))), policy)
    assert "−50 %" in gate(decision, "action", "propose").sentence
