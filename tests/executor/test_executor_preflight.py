"""Reasons of preflight that the front-door tests do not reach one by one, asked of live objects as they are read. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from executor_orders import NOW, a_target, an_order, checks_for

from catalog.actions import RestartPod, RestartWorkload, Scale
from catalog.targets import TargetFacts
from executor.bounds import parse_bounds
from executor.preflight import ASKED, Scene, refusal_of, resolved_steps
from sources.errors import SourceUnavailable
from sources.workloads import WorkloadView

BOUNDS = parse_bounds(
    "schema: 1\nnamespaces: [shop]\nactions: {restart_workload: auto}\nradius: {auto: 0.3, approved: 0.5}\n", "limits.yaml"
)
UNREADABLE = SourceUnavailable("kubernetes", "timeout", "no answer")
UP = Scale(from_replicas=3, to_replicas=5)


def pod(name: str, node: str = "node1", created: str = "2026-03-04T09:00:00Z") -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": f"uid-{name}", "creationTimestamp": created}, "spec": {"nodeName": node}}


def node(name: str = "node1", ready: bool = True) -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": "True" if ready else "False"}]}}


WORKLOAD = {
    "metadata": {"name": "web", "uid": "U", "generation": 2},
    "spec": {"replicas": 3, "template": {"metadata": {}, "spec": {"containers": [{"name": "app", "resources": {}}]}}},
}
PODS = [pod("web-1-bbbbb"), pod("web-1-aaaaa"), pod("web-1-ccccc", created="2026-03-04T08:00:00Z")]
FACTS = TargetFacts(
    target=a_target(),
    exists=True,
    observed_at=NOW,
    opted_in=True,
    desired=3,
    ready=3,
    available=3,
    updated=3,
    generation=2,
    observed_generation=2,
    paused=False,
    rolling_out=False,
    strategy="RollingUpdate",
    max_unavailable=0,
    max_surge=1,
    read_write_once=False,
    namespace_ready_pods=10,
)


def scene(
    action: Any = None,
    mode: str = "approved",
    *,
    facts: dict[str, Any] | None = None,
    view: dict[str, Any] | None = None,
    order: dict[str, Any] | None = None,
) -> Scene:
    asked = an_order(action or RestartWorkload(), mode=mode, **(order or {}))
    seen = WorkloadView(target=a_target(), observed_at=NOW, workload=WORKLOAD, pods=PODS, nodes=[node()], namespace={})
    seen = replace(seen, **(view or {}))
    return Scene(asked, seen, FACTS.model_copy(update=facts or {}), BOUNDS, resolved_steps(asked, seen))


def reason(found: Scene) -> str | None:
    refused = refusal_of(found)
    return refused.reason if refused else None


@pytest.mark.parametrize(
    ("action", "mode"), [(None, "approved"), (None, "auto"), (UP, "auto"), (RestartPod(pod="web-1-aaaaa"), "approved")]
)
def test_healthy_workload_is_not_refused(action: Any, mode: str) -> None:
    assert reason(scene(action, mode)) is None


@pytest.mark.parametrize("kind", ["Pod", "Job", "CronJob", "DaemonSet", "StatefulSet", "Node"])
def test_p11_p13_kinds_have_reasons_of_their_own(kind: str) -> None:
    names = {
        "Pod": "bare_pod",
        "Job": "job",
        "CronJob": "job",
        "DaemonSet": "daemon_set",
        "StatefulSet": "stateful_set",
        "Node": "kind",
    }
    assert reason(scene(order={"kind": kind})) == names[kind]


@pytest.mark.parametrize(
    ("expected", "changes"),
    [
        ("gone", {"facts": {"exists": False}}),
        ("gone", {"order": {"target": a_target().model_copy(update={"uid": None})}}),
        ("not_opted_in", {"facts": {"opted_in": False}}),
        ("cannot_tell", {"facts": {"opted_in": None}}),
        ("paused", {"facts": {"paused": True}}),
        ("cannot_tell", {"facts": {"paused": None}}),
        ("behind", {"facts": {"observed_generation": 1}}),
        ("behind", {"facts": {"observed_generation": None}}),
        ("rolling_out", {"facts": {"rolling_out": True}}),
        ("scaled_to_zero", {"facts": {"desired": 0, "ready": 0}}),
        ("full_outage", {"facts": {"desired": 1, "ready": 1, "max_unavailable": 1}}),
        ("cannot_tell", {"view": {"budgets": UNREADABLE}}),
        ("cannot_tell", {"view": {"limit_ranges": UNREADABLE}}),
        ("cannot_tell", {"view": {"quotas": UNREADABLE}}),
        ("cannot_tell", {"facts": {"read_write_once": None}}),
        ("volume_surge", {"facts": {"read_write_once": True}}),
        ("limit:radius", {"facts": {"max_unavailable": 6, "desired": 9, "ready": 9}}),
        ("limit:radius", {"facts": {"max_unavailable": 2, "desired": 3, "ready": 3, "namespace_ready_pods": 3}, "mode": "auto"}),
        ("single_replica", {"facts": {"desired": 1, "ready": 1}, "mode": "auto"}),
        ("recreate", {"facts": {"strategy": "Recreate"}, "mode": "auto"}),
        ("full_outage", {"facts": {"ready": 1}, "mode": "auto"}),
        ("full_outage", {"facts": {"ready": 0}, "mode": "auto"}),
        ("dip", {"facts": {"ready": 2, "desired": 2}, "mode": "auto"}),
        ("dip", {"facts": {"disruptions_allowed": 0}, "mode": "auto"}),
        ("oracles", {"order": {"checks": checks_for(a_target())[2:]}, "mode": "auto"}),
        ("pod_changed", {"view": {"pods": []}, "mode": "auto"}),
        ("cannot_tell", {"view": {"pods": UNREADABLE}, "mode": "auto"}),
        ("node_lost", {"view": {"nodes": [node(ready=False)]}, "mode": "auto"}),
        ("node_lost", {"view": {"nodes": []}, "mode": "auto"}),
        ("autoscaler", {"action": UP, "facts": {"autoscaler": "HorizontalPodAutoscaler/web"}}),
        ("cannot_tell", {"action": UP, "view": {"autoscalers": UNREADABLE}}),
        ("gitops", {"action": UP, "facts": {"replicas_manager": "argocd"}}),
        ("stale_target", {"action": UP, "facts": {"desired": 4}}),
        ("pod_changed", {"action": RestartPod(pod="web-1-zzzzz")}),
    ],
)
def test_each_reason_refuses_and_unknown_never_acts(expected: str, changes: dict[str, Any]) -> None:
    assert reason(scene(**changes)) == expected


def test_full_outage_that_people_approved_is_not_refused_and_where_nothing_is_ready_none_is_added() -> None:
    thin = {"desired": 1, "ready": 1, "max_unavailable": 1, "max_surge": 0}
    assert reason(scene(facts=thin, order={"allowed_outage": True})) is None
    assert reason(scene(facts=thin | {"ready": 0})) is None


def test_what_restarts_do_not_touch_does_not_forbid_them() -> None:
    owned = {"autoscaler": "HorizontalPodAutoscaler/web", "replicas_manager": "argocd"}
    assert reason(scene(facts=owned)) is None


def budget(desired_healthy: int, allowed: int) -> dict[str, Any]:
    return {"metadata": {"name": "web"}, "status": {"desiredHealthy": desired_healthy, "disruptionsAllowed": allowed}}


def test_budget_that_the_roll_outs_floor_keeps_is_no_reason() -> None:
    assert reason(scene(view={"budgets": [budget(3, 0)]})) is None
    assert reason(scene(view={"budgets": [budget(3, 0)]}, facts={"max_unavailable": 1})) == "budget_floor"


def test_p10_budget_that_allows_no_eviction() -> None:
    assert reason(scene(RestartPod(pod="web-1-aaaaa"), view={"budgets": [budget(3, 0)]})) == "disruption_budget"
    assert reason(scene(RestartPod(pod="web-1-aaaaa"), view={"budgets": [budget(2, 1)]})) is None


def requesting(**resources: dict[str, str]) -> dict[str, Any]:
    containers = [{"name": "app", "resources": resources}]
    return {**WORKLOAD, "spec": {"replicas": 3, "template": {"metadata": {}, "spec": {"containers": containers}}}}


def quota(used: dict[str, str], **hard: str) -> dict[str, Any]:
    return {
        "metadata": {"name": "q"},
        "status": {"hard": {name.replace("__", "."): value for name, value in hard.items()}, "used": used},
    }


@pytest.mark.parametrize(
    ("expected", "found", "workload"),
    [
        ("quota", quota({"pods": "3"}, pods="4"), WORKLOAD),
        (None, quota({"pods": "3"}, pods="5"), WORKLOAD),
        ("quota", quota({"requests.memory": "768Mi"}, requests__memory="1Gi"), requesting(requests={"memory": "256Mi"})),
        (None, quota({"requests.memory": "512Mi"}, requests__memory="1Gi"), requesting(requests={"memory": "256Mi"})),
        ("quota", quota({"cpu": "1500m"}, cpu="2"), requesting(limits={"cpu": "300m"})),
        ("cannot_tell", quota({}, limits__memory="1Gi"), WORKLOAD),
        (None, quota({}, services="1"), WORKLOAD),
    ],
)
def test_f56_quota_must_have_room_for_every_pod_that_is_added(expected: str | None, found: dict[str, Any], workload: Any) -> None:
    assert reason(scene(UP, view={"quotas": [found], "workload": workload})) == expected


def test_restart_needs_room_for_its_surge_pod_only_where_no_pod_may_be_missing() -> None:
    full = quota({"pods": "3"}, pods="3")
    assert reason(scene(view={"quotas": [full]})) == "quota"
    assert reason(scene(view={"quotas": [full]}, facts={"max_unavailable": 1})) is None


def limit_range(**rule: Any) -> dict[str, Any]:
    return {"metadata": {"name": "l"}, "spec": {"limits": [{"type": "Container", **rule}]}}


def test_limit_range_that_would_reject_a_fresh_pod() -> None:
    large = requesting(limits={"memory": "1Gi"}, requests={"memory": "16Mi"})
    assert reason(scene(view={"limit_ranges": [limit_range(max={"memory": "512Mi"})], "workload": large})) == "limit_range"
    assert reason(scene(view={"limit_ranges": [limit_range(min={"memory": "32Mi"})], "workload": large})) == "limit_range"
    assert reason(scene(view={"limit_ranges": [limit_range(max={"memory": "2Gi"})], "workload": large})) is None


def test_defaults_of_a_limit_range_count_for_a_quota() -> None:
    defaults = limit_range(default={"memory": "256Mi"})
    room = {"quotas": [quota({"limits.memory": "900Mi"}, limits__memory="1Gi")], "limit_ranges": [defaults]}
    assert reason(scene(UP, view=room)) == "quota"


def test_first_pod_is_the_one_that_was_named_else_the_oldest() -> None:
    view = scene().view
    named = resolved_steps(an_order(RestartPod(pod="web-1-aaaaa")), view)
    assert (named[1].pod, named[1].pod_uid) == ("web-1-aaaaa", "uid-web-1-aaaaa")
    chosen = resolved_steps(an_order(mode="auto"), view)
    assert (chosen[1].pod, chosen[1].pod_uid) == ("web-1-ccccc", "uid-web-1-ccccc")


def test_every_reason_is_asked_once_and_says_what_it_is_about() -> None:
    names = [name for name, _ in ASKED]
    assert len(names) == len(set(names)) >= 25
