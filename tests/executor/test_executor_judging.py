"""From samples to states: debounce, Kubernetes facts, instability, severity, and the numbers a transaction runs by."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from executor_orders import NOW, a_target, an_order, checks_for

from catalog.evidence import Oracle
from catalog.orders import Check, CheckSource, Deadlines, KubernetesFact
from catalog.outcomes import CheckReading, CheckState
from executor.judging import (
    UNSCHEDULABLE_FOR,
    Debounced,
    Look,
    WorkloadBase,
    fact_of,
    fresh_pod_failure,
    live,
    severity_after,
    severity_before,
    unstable_fact,
)
from executor.running import timing_of

PASSING, FAILING, UNKNOWN = CheckState.PASSING, CheckState.FAILING, CheckState.UNKNOWN


def pod(uid: str, *, ready: bool = True, restarts: int = 0, finished: str | None = None, **metadata: Any) -> dict[str, Any]:
    status: dict[str, Any] = {"restartCount": restarts, "lastState": {"terminated": {"finishedAt": finished}} if finished else {}}
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    named = {"name": f"web-1-{uid}", "uid": uid, **metadata}
    return {"metadata": named, "status": {"conditions": conditions, "containerStatuses": [status], "phase": "Running"}}


def workload(replicas: int = 3, **status: Any) -> dict[str, Any]:
    return {"metadata": {"generation": 1}, "spec": {"replicas": replicas}, "status": {"observedGeneration": 1, **status}}


def check(fact: KubernetesFact) -> Check:
    return Check(name=fact.value, oracle=Oracle.COMPONENT, source=CheckSource.KUBERNETES, target=a_target(), fact=fact)


def look(*pods: dict[str, Any], replicas: int = 3, **parts: Any) -> Look:
    return Look(workload=workload(replicas), pods=pods, **parts)


THREE = WorkloadBase(desired=3, ready=3, pods={"a": 40, "b": 0, "c": 0})


def test_state_changes_only_after_equal_samples_in_a_row() -> None:
    state, seen = Debounced(PASSING), []
    for sample in (FAILING, FAILING, PASSING, FAILING, FAILING, FAILING, UNKNOWN, PASSING, PASSING, PASSING):
        state = state.after(sample, 3)
        seen.append(state.state)
    assert seen == [PASSING] * 5 + [FAILING] * 4 + [PASSING]


def test_state_that_was_never_determined_stays_so_until_enough_samples() -> None:
    state = Debounced(None).after(PASSING, 3).after(PASSING, 3)
    assert state.state is None
    assert state.after(PASSING, 3).state is PASSING


@pytest.mark.parametrize(("ready", "dip", "state"), [(3, 0, PASSING), (2, 0, FAILING), (2, 1, PASSING), (1, 1, FAILING)])
def test_availability_within_the_allowed_dip_does_not_count_as_failing(ready: int, dip: int, state: CheckState) -> None:
    pods = [pod(name, ready=index < ready) for index, name in enumerate("abc")]
    assert fact_of(check(KubernetesFact.AVAILABILITY), look(*pods), THREE, dip=dip)[0] is state


def test_availability_of_a_scale_down_is_measured_by_what_was_ordered() -> None:
    two = look(pod("a"), pod("b"), replicas=2)
    assert fact_of(check(KubernetesFact.AVAILABILITY), two, THREE, scaled_to=2)[0] is PASSING


def test_g46_restarts_are_compared_with_the_checkpoint() -> None:
    restarts = check(KubernetesFact.RESTARTS)
    assert fact_of(restarts, look(pod("a", restarts=40)), THREE)[0] is PASSING
    assert fact_of(restarts, look(pod("a", restarts=41)), THREE)[0] is FAILING
    assert fact_of(restarts, look(pod("new", restarts=1)), THREE)[0] is FAILING


def test_g47_pods_that_were_replaced_are_judged_by_the_workload() -> None:
    fresh = look(pod("x"), pod("y"), pod("z"))
    assert fact_of(check(KubernetesFact.AVAILABILITY), fresh, THREE)[0] is PASSING
    assert fact_of(check(KubernetesFact.RESTARTS), fresh, THREE)[0] is PASSING


def test_f70_service_without_a_ready_endpoint_fails() -> None:
    endpoints = check(KubernetesFact.ENDPOINTS)
    assert fact_of(endpoints, look(ready_endpoints={"web": 2}), THREE)[0] is PASSING
    assert fact_of(endpoints, look(ready_endpoints={"web": 2, "api": 0}), THREE)[0] is FAILING
    assert fact_of(endpoints, look(ready_endpoints={}), THREE)[0] is UNKNOWN


def test_nodes_that_are_not_ready_fail() -> None:
    nodes = check(KubernetesFact.NODES_READY)
    assert fact_of(nodes, look(nodes={"node1": True}), THREE)[0] is PASSING
    assert fact_of(nodes, look(nodes={"node1": True, "node2": False}), THREE)[0] is FAILING


@pytest.mark.parametrize("fact", list(KubernetesFact))
def test_what_cannot_be_read_is_unknown_and_what_is_gone_fails(fact: KubernetesFact) -> None:
    assert fact_of(check(fact), Look(workload=None, pods=None), THREE)[0] is UNKNOWN
    assert fact_of(check(fact), Look(workload=None, pods=None, missing=True), THREE)[0] is FAILING


def test_transition_within_ten_minutes_is_unstable_and_no_time_is_stable() -> None:
    def available(minutes: int) -> Look:
        at = (NOW - timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")
        conditions = [{"type": "Available", "status": "True", "lastTransitionTime": at}]
        return Look(workload=workload(conditions=conditions), pods=())

    availability = check(KubernetesFact.AVAILABILITY)
    assert unstable_fact(availability, available(9), [], NOW)
    assert not unstable_fact(availability, available(11), [], NOW)
    assert not unstable_fact(availability, look(), [], NOW)


def test_restart_within_ten_minutes_is_unstable() -> None:
    recent, old = "2026-03-04T09:55:00Z", "2026-03-04T09:40:00Z"
    restarts = check(KubernetesFact.RESTARTS)
    assert unstable_fact(restarts, look(pod("a", restarts=1, finished=recent)), [], NOW)
    assert not unstable_fact(restarts, look(pod("a", restarts=1, finished=old)), [], NOW)


def readings(**states: tuple[CheckState, CheckState | None, bool]) -> list[CheckReading]:
    oracles = {"alert": Oracle.ALERT, "errors": Oracle.SERVICE_LEVEL, "availability": Oracle.COMPONENT}
    return [
        CheckReading(name=name, oracle=oracles[name], before=before, after=after, unstable=unstable)
        for name, (before, after, unstable) in states.items()
    ]


def test_severity_weighs_alerts_service_levels_and_nodes() -> None:
    order = an_order(severity_weights=(1.0, 2.0, 4.0))
    wrong = readings(alert=(FAILING, FAILING, False), errors=(FAILING, PASSING, False), availability=(FAILING, None, False))
    assert severity_before(order, wrong, 1) == 1.0 + 2.0 + 4.0
    assert severity_after(order, wrong, 0) == 1.0


def test_severity_with_a_check_that_became_unknown_cannot_be_told() -> None:
    assert severity_after(an_order(), readings(errors=(PASSING, UNKNOWN, False)), 0) is None
    assert severity_after(an_order(), readings(errors=(UNKNOWN, UNKNOWN, False)), 0) == 0.0
    assert severity_after(an_order(), readings(errors=(UNKNOWN, FAILING, False)), 0) == 1.0


def test_unstable_check_counts_at_most_what_it_counted_before() -> None:
    assert severity_after(an_order(), readings(errors=(PASSING, FAILING, True)), 0) == 0.0
    assert severity_after(an_order(), readings(errors=(FAILING, FAILING, True)), 0) == 1.0
    assert severity_after(an_order(), readings(errors=(FAILING, PASSING, True)), 0) == 0.0
    assert severity_after(an_order(), readings(errors=(PASSING, UNKNOWN, True)), 0) == 0.0


def test_failed_create_ends_a_roll_out_only_when_the_controller_has_seen_the_spec() -> None:
    conditions = [{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate"}]
    assert fresh_pod_failure(workload(conditions=conditions), [], {})[0] == "failed_create"
    assert fresh_pod_failure(workload(conditions=conditions, observedGeneration=0), [], {})[0] == ""


def test_f56_pod_that_no_node_takes_ends_a_roll_out_after_twenty_seconds() -> None:
    fresh = pod("a", ready=False)
    assert fresh_pod_failure(workload(), [fresh], {"a": UNSCHEDULABLE_FOR - 1})[0] == ""
    assert fresh_pod_failure(workload(), [fresh], {"a": UNSCHEDULABLE_FOR})[0] == "unschedulable"


def test_pod_that_is_being_deleted_or_has_ended_is_not_live() -> None:
    ended = pod("a")
    ended["status"]["phase"] = "Failed"
    assert live(pod("a"))
    assert not live(ended)
    assert not live(pod("a", deletionTimestamp="2026-03-04T10:00:00Z"))


@pytest.mark.parametrize(
    ("deadlines", "longest", "floor", "settle"),
    [
        (Deadlines(), 0, 60, 60),
        (Deadlines(scrape_interval=30, evaluation_interval=60), 0, 60, 180),
        (Deadlines(), 300, 60, 300),
        (Deadlines(), 3600, 60, 600),
        (Deadlines(settle_floor=0, scrape_interval=0, evaluation_interval=0), 0, 60, 60),
        (Deadlines(settle_cap=1), 0, 60, 60),
    ],
)
def test_settle_window_is_the_longest_need_within_its_bounds(
    deadlines: Deadlines, longest: float, floor: float, settle: float
) -> None:
    checks = tuple(one.model_copy(update={"longest_range": longest}) for one in checks_for(a_target()))
    assert timing_of(an_order(deadlines=deadlines, checks=checks), workload(), floor).settle == settle


@pytest.mark.parametrize(("progress", "apply"), [(None, 480), (600, 480), (300, 270), (40, 20), (15, 7.5)])
def test_apply_deadline_ends_before_the_controllers_own(progress: int | None, apply: float) -> None:
    found = workload()
    found["spec"]["progressDeadlineSeconds"] = progress
    assert timing_of(an_order(), found, 60).apply == apply
