"""Orders for tests that need no cluster."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from catalog.actions import Action, RestartPod, RestartWorkload, Scale
from catalog.documents import CATALOGUE_VERSION
from catalog.evidence import Oracle
from catalog.ids import new_id
from catalog.orders import Approval, Check, CheckSource, KubernetesFact, Order, PlanStep, StepKind
from catalog.targets import Target, TargetKind

NOW = datetime(2026, 3, 4, 10, 0, tzinfo=UTC)
CLUSTER = "6f1c0000-0000-4000-8000-000000000001"
POD_UID = "9f1c0000-0000-4000-8000-000000000001"


def a_target(namespace: str = "shop", kind: str = "Deployment", name: str = "web") -> Target:
    return Target(cluster_uid=CLUSTER, cluster="test", namespace=namespace, kind=TargetKind(kind), name=name, uid="U")


def checks_for(target: Target) -> tuple[Check, ...]:
    prometheus: dict[str, Any] = {"source": CheckSource.PROMETHEUS, "target": target}
    return (
        Check(name="alert", oracle=Oracle.ALERT, query="firing", empty="passing", opened=True, **prometheus),
        Check(name="errors", oracle=Oracle.SERVICE_LEVEL, query="errors", passing="< 0.01", **prometheus),
        Check(
            name="availability",
            oracle=Oracle.COMPONENT,
            source=CheckSource.KUBERNETES,
            target=target,
            fact=KubernetesFact.AVAILABILITY,
        ),
    )


def plan_of(action: Action, mode: str) -> tuple[PlanStep, ...]:
    opened = PlanStep(kind=StepKind.OPEN)
    evict = PlanStep(kind=StepKind.EVICT)
    match action:
        case Scale():
            return (PlanStep(kind=StepKind.SCALE, from_replicas=action.from_replicas, to_replicas=action.to_replicas),)
        case RestartPod():
            return (opened, PlanStep(kind=StepKind.EVICT, pod=action.pod, pod_uid=action.pod_uid))
        case _ if mode == "auto":
            return (opened, evict, PlanStep(kind=StepKind.STAMP))
        case _:
            return (PlanStep(kind=StepKind.STAMP),)


def an_order(
    action: Action | None = None, mode: str = "approved", namespace: str = "shop", kind: str = "Deployment", **changes: Any
) -> Order:
    """An order that is right in every respect but for `changes`."""
    action, target = action or RestartWorkload(), a_target(namespace, kind)
    fields: dict[str, Any] = {
        "id": new_id(NOW),
        "key_id": "0123456789abcdef",
        "audience": CLUSTER,
        "incident_id": new_id(NOW),
        "incident_number": 1,
        "decision_id": new_id(NOW),
        "scope": "shop",
        "mode": mode,
        "approvals": (Approval(person="ana", via="terminal", at=NOW),) if mode == "approved" else (),
        "action": action,
        "target": target,
        "steps": plan_of(action, mode),
        "checks": checks_for(target),
        "minted_at": NOW,
        "decided_at": NOW,
        "not_before": NOW,
        "expires_at": NOW + timedelta(seconds=60),
        "policy_hash": "p",
        "catalogue_version": CATALOGUE_VERSION,
    }
    if isinstance(action, Scale):
        fields |= {"from_replicas": action.from_replicas, "to_replicas": action.to_replicas}
    return Order.model_validate(fields | changes)
