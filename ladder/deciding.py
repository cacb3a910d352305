"""`decide(case, policy) -> Decision`: pure, total, replayable.

Every gate is asked for both routes. `propose` needs every gate of propose, `auto` every gate of both. What no route opens is
`notify`; informational alerts and an unchanged `notify` are `record`. The same case with another policy is a replay.
"""

from __future__ import annotations

from dataclasses import replace

from catalog.cases import Case
from catalog.decisions import Decision, GateName, GateResult, GateState, Route
from catalog.documents import VersionVector
from catalog.registry import CATALOGUE, Catalogue
from catalog.targets import Provenance
from ladder.gates import GATES
from ladder.gates.blast_radius import full_outage
from ladder.gates.reversibility import quorum
from ladder.gates.scope import membership
from ladder.gates.source import seen_at_source
from ladder.notability import EARNED_GATES, informational, notability
from ladder.policy import Policy
from ladder.questions import GatedRoute, Question
from ladder.scopes import MergedScope
from ladder.standing import FRESH, RungInForce, rung_in_force


def decide(case: Case, policy: Policy, catalogue: Catalogue = CATALOGUE) -> Decision:
    """The highest route whose gates all passed, with every gate asked and its sentence. Another `catalogue` is for tests."""
    scope = policy.scope_for(case.target)
    question = _question(case, policy, scope, catalogue)
    proposals, autos = _asked(question, "propose"), _asked(question, "auto")
    route, deciding = _route(case, proposals, autos)
    kept = _kept_by(scope, case)
    return Decision(
        incident_id=case.incident_id,
        at=case.now,
        route=route,
        action=case.action,
        gates=(*proposals, *autos),
        deciding_gate=deciding,
        would_auto=_would_auto(question, autos),
        scope=kept[0],
        match_digest=kept[1],
        rung=question.in_force.rung,
        ceiling=question.in_force.ceiling,
        standing=question.in_force.standing,
        quorum=quorum(question),
        notability=notability(question, proposals) if route is Route.NOTIFY else (),
        warnings=_warnings(question, proposals) if route.rank >= Route.PROPOSE.rank else _numbers(question),
        policy_hash=policy.hash,
        versions=VersionVector(**{**case.versions.model_dump(), "policy": policy.hash}),
    )


def _question(case: Case, policy: Policy, scope: MergedScope | None, catalogue: Catalogue) -> Question:
    in_force = _in_force(case, scope)
    return Question(
        gate=GateName.SWITCHES, route="propose", case=case, policy=policy, scope=scope, in_force=in_force, catalogue=catalogue
    )


def _in_force(case: Case, scope: MergedScope | None) -> RungInForce:
    record = case.standing
    if scope is None:
        return RungInForce(ceiling=FRESH, standing=FRESH)
    return rung_in_force(record, scope, case.action.action, case.now)


def _kept_by(scope: MergedScope | None, case: Case) -> tuple[str | None, str | None]:
    """Scope and match that the outcome will count for: where the standing of this action is kept."""
    if scope is None:
        return None, None
    earned = scope.earned.get(case.action.action)
    return (earned.scope, earned.match_digest) if earned else (scope.name, scope.match_digest)


def _asked(question: Question, route: GatedRoute) -> tuple[GateResult, ...]:
    return tuple(gate(replace(question, gate=name, route=route)) for name, gate in GATES.items())


def _route(case: Case, proposals: tuple[GateResult, ...], autos: tuple[GateResult, ...]) -> tuple[Route, GateResult | None]:
    shut_propose, shut_auto = _first_shut(proposals), _first_shut(autos)
    if informational(case):
        return Route.RECORD, shut_propose
    if shut_propose is not None:
        return (Route.RECORD if case.unchanged else Route.NOTIFY), shut_propose
    if shut_auto is not None:
        return Route.PROPOSE, shut_auto
    return Route.AUTO, None


def _first_shut(results: tuple[GateResult, ...]) -> GateResult | None:
    return next((result for result in results if result.state is not GateState.PASSED), None)


def _would_auto(question: Question, autos: tuple[GateResult, ...]) -> bool:
    others = all(result.state is GateState.PASSED for result in autos if result.gate not in EARNED_GATES)
    in_scope = membership(replace(question, gate=GateName.SCOPE, route="auto")) is None
    return others and in_scope


def _numbers(question: Question) -> tuple[str, ...]:
    here = question.scope.warnings if question.scope else ()
    recorded = ("Informational alerts are recorded only.",) if informational(question.case) else ()
    return tuple(dict.fromkeys((*recorded, *question.policy.warnings, *here)))


def _warnings(question: Question, proposals: tuple[GateResult, ...]) -> tuple[str, ...]:
    case, facts = question.case, question.case.facts
    found = [result.sentence for result in proposals if result.sentence.startswith(("UNCALIBRATED", "NOT VERIFIED"))]
    if case.switches.override_reason:
        found += [result.sentence for result in proposals if result.gate is GateName.SWITCHES and "overridden" in result.sentence]
    if question.spec.no_undo:
        found.append(question.spec.no_undo)
    if facts is not None and case.action.action.value.startswith("restart_"):
        if full_outage(facts):
            found.append("Full outage: no pod stays ready while it restarts.")
        if facts.empty_dir:
            found.append("emptyDir data of the restarted pods is lost.")
    if case.evidence is not None and case.evidence.tainted:
        found.append(f"The evidence is tainted: {case.evidence.tainted}.")
    if case.provenance is Provenance.DERIVED:
        found.append(f"The target was derived through {case.edge}.")
    source = seen_at_source(replace(question, gate=GateName.SOURCE))
    if not source.startswith(("Firing", "A follow-up")):
        found.append(source)
    return tuple(dict.fromkeys((*found, *_numbers(question))))
