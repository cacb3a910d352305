"""A case in which everything passes, the policy that lets it, and the parts to change."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from catalog.actions import RemediationAction, RestartWorkload
from catalog.alerts import AlertSeverity
from catalog.cases import (
    Calibration,
    Case,
    CaseAlert,
    EvidenceSummary,
    Ledger,
    LedgerEntry,
    Rung,
    StandingChange,
    StandingRecord,
)
from catalog.decisions import Decision, GateName, GateResult
from catalog.diagnoses import Family
from catalog.evidence import Oracle
from catalog.targets import Target, TargetFacts, TargetKind
from ladder.policy import Policy

NOW = datetime(2026, 3, 4, 10, 0, tzinfo=UTC)
POLICY = """
schema: 1
clusters: [{name: eu-1, uid: uid-eu-1, match: {cluster: eu-1}}]
people: {ana: {slack: T01/U02}, bo: {slack: T01/U03}}
scopes:
  - name: shop
    match: {cluster: eu-1, namespace: shop}
    roles: {approver: [person:ana], labeller: [person:ana, person:bo], owner: [person:ana, person:bo]}
    ceiling: {restart_workload: R5, restart_pod: R5, scale: R5}
    scale: {min: 2, max: 10, step: 4}
    checks: [{name: errors, query: "sum(rate(errors_total[2m]))", passing: "< 0.01"}]
"""
TARGET = Target(
    cluster_uid="uid-eu-1", cluster="eu-1", namespace="shop", kind=TargetKind.DEPLOYMENT, name="checkout", uid="uid-checkout"
)


def facts(**changes: Any) -> TargetFacts:
    """A healthy Deployment of four in an opted-in namespace."""
    known: dict[str, Any] = {
        "target": TARGET,
        "exists": True,
        "observed_at": NOW,
        "opted_in": True,
        "desired": 4,
        "ready": 4,
        "available": 4,
        "updated": 4,
        "generation": 7,
        "observed_generation": 7,
        "paused": False,
        "rolling_out": False,
        "strategy": "RollingUpdate",
        "max_unavailable": 1,
        "max_surge": 1,
        "template_hash": "a" * 64,
        "empty_dir": False,
        "read_write_once": False,
        "namespace_ready_pods": 12,
        "pods": ("checkout-1", "checkout-2", "checkout-3", "checkout-4"),
        "services": ("checkout",),
    }
    return TargetFacts(**{**known, **changes})


def evidence(**changes: Any) -> EvidenceSummary:
    known: dict[str, Any] = {
        "family": Family.WEDGED,
        "evidence_weight": 0.93,
        "supporting": 3,
        "sources": ("kubernetes", "prometheus"),
        "oracles": (Oracle.ALERT, Oracle.COMPONENT),
        "oldest_at": NOW - timedelta(seconds=20),
    }
    return EvidenceSummary(**{**known, **changes})


def alert(**changes: Any) -> CaseAlert:
    known: dict[str, Any] = {
        "name": "Wedged",
        "severity": AlertSeverity.CRITICAL,
        "starts_at": NOW - timedelta(minutes=5),
        "firing_at_source": True,
        "silenced": False,
    }
    return CaseAlert(**{**known, **changes})


def calibration(**changes: Any) -> Calibration:
    known: dict[str, Any] = {
        "family": Family.WEDGED,
        "action": RemediationAction.RESTART_WORKLOAD,
        "open": True,
        "settled": 50,
        "right": 50,
        "last_look": 50,
        "next_look": 75,
        "lower_bound": 0.942,
    }
    return Calibration(**{**known, **changes})


def entry(minutes_ago: float, **changes: Any) -> LedgerEntry:
    known: dict[str, Any] = {
        "order_id": f"order-{minutes_ago}",
        "incident_id": "earlier",
        "target": TARGET,
        "action": RemediationAction.RESTART_WORKLOAD,
        "mode": "auto",
        "at": NOW - timedelta(minutes=minutes_ago),
        "end": "committed",
    }
    return LedgerEntry(**{**known, **changes})


def promoted(
    policy: Policy, *rungs: tuple[str, Rung], scope: str = "shop", at: datetime = NOW - timedelta(days=9)
) -> StandingRecord:
    """Promotions by two owners, for the match that `policy` gives the scope."""
    named = policy.scope_named(scope)
    assert named is not None
    return StandingRecord(
        changes=tuple(
            StandingChange(
                id=f"{scope}-{action}",
                scope=scope,
                match_digest=named.match.digest,
                action=RemediationAction(action),
                rung=rung,
                by=("ana", "bo"),
                at=at,
                why="earned",
            )
            for action, rung in rungs
        )
    )


ALL_R5 = (("restart_workload", Rung.R5), ("restart_pod", Rung.R5), ("scale", Rung.R5))
CaseMaker = Callable[..., Case]


def case_maker(policy: Policy) -> CaseMaker:
    """Makes cases that `decide` lets go by itself, with changes."""

    def make(**changes: Any) -> Case:
        known: dict[str, Any] = {
            "incident_id": "incident",
            "now": NOW,
            "alerts": (alert(),),
            "target": TARGET,
            "facts": facts(),
            "action": RestartWorkload(),
            "family": Family.WEDGED,
            "severity": AlertSeverity.CRITICAL,
            "evidence": evidence(),
            "standing": promoted(policy, *ALL_R5),
            "calibration": calibration(),
            "ledger": Ledger(),
        }
        return Case(**{**known, **changes})

    return make


def gate(decision: Decision, name: str, route: str) -> GateResult:
    """The answer of one gate for one route."""
    return next(result for result in decision.gates if result.gate is GateName(name) and result.route == route)
