"""Whole transactions through the front door: a signed order in, a cluster over HTTP, a signed outcome out.

Writes are counted by the server: dry runs and the Lease left out, every request of the executor's account is listed.
"""

from __future__ import annotations

from typing import Any

import pytest
from executor_setting import ALERT, ERRORS, Setting, deployment, running, until

from catalog.actions import RestartPod, Scale
from catalog.marks import RESTART_ANNOTATION
from catalog.orders import Order
from catalog.outcomes import CheckState, End
from sandbox.api.disturbances import Disturbance
from sandbox.kinds import NODES, PODS

UP = Scale(from_replicas=3, to_replicas=5)
DOWN = Scale(from_replicas=3, to_replicas=2)
PATCHED = "PATCH web 200"


def replicas_of(setting: Setting) -> int:
    return int(setting.object()["spec"]["replicas"])


def template_annotations(setting: Setting) -> dict[str, str]:
    found: dict[str, str] = setting.object()["spec"]["template"]["metadata"].get("annotations") or {}
    return found


async def test_approved_restart_is_committed_with_one_changing_request(setting: Setting) -> None:
    before = {pod["metadata"]["uid"] for pod in setting.live_pods()}
    order = setting.order()
    async with running(setting):
        setting.send(order)
        await setting.written(order, PATCHED)
        setting.prometheus.signals[ALERT] = None
        outcome = await setting.outcome(order)
    assert (outcome.end, outcome.reason) == (End.COMMITTED, "improved"), outcome.sentence
    assert template_annotations(setting)[RESTART_ANNOTATION] == outcome.transaction_id
    assert not before & {pod["metadata"]["uid"] for pod in setting.live_pods()}
    assert setting.writes() == [PATCHED, PATCHED]  # the stamp, and the mark taken off
    assert setting.mark() == f"closed/{outcome.transaction_id}"
    assert (outcome.severity_before, outcome.severity_after) == (1.0, 0.0)
    assert all(pod.logs is not None and pod.status for pod in outcome.snapshot)
    assert {pod.uid for pod in outcome.snapshot} == before


async def test_automatic_restart_evicts_one_pod_settles_on_its_replacement_then_stamps(setting: Setting) -> None:
    order = setting.order(mode="auto")
    before = {pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in setting.live_pods()}
    async with running(setting):
        setting.send(order)
        await setting.phase(order, "settling")
        assert RESTART_ANNOTATION not in template_annotations(setting)
        gone = before.keys() - {pod["metadata"]["uid"] for pod in setting.live_pods()}
        assert [before[uid] for uid in gone] == [min(before.values())]  # the oldest; of one age the first by name
        await until(lambda: setting.writes().count(PATCHED) == 2, 30.0, "the stamp")
        setting.prometheus.signals[ALERT] = None
        outcome = await setting.outcome(order)
    assert outcome.end is End.COMMITTED, outcome.sentence
    assert setting.writes() == [PATCHED, "POST eviction 201", PATCHED, PATCHED]
    assert [step.kind for step in outcome.steps] == ["open", "evict", "stamp", "close"]


async def test_p01_restart_pod_replaces_that_pod_and_no_other(setting: Setting) -> None:
    chosen, *others = (pod["metadata"] for pod in setting.live_pods())
    order = setting.order(RestartPod(pod=chosen["name"], pod_uid=chosen["uid"]))
    async with running(setting):
        setting.send(order)
        await setting.phase(order, "settling")
        setting.prometheus.signals[ALERT] = None
        outcome = await setting.outcome(order)
    assert outcome.end is End.COMMITTED, outcome.sentence
    uids = {pod["metadata"]["uid"] for pod in setting.live_pods()}
    assert chosen["uid"] not in uids
    assert {one["uid"] for one in others} < uids
    assert setting.writes() == [PATCHED, "POST eviction 201", PATCHED]


async def test_p04_scale_up_is_committed_with_one_changing_request(setting: Setting) -> None:
    order = setting.order(UP, mode="auto")
    async with running(setting):
        setting.send(order)
        await setting.written(order, PATCHED)
        setting.prometheus.signals[ALERT] = None
        outcome = await setting.outcome(order)
    assert outcome.end is End.COMMITTED, outcome.sentence
    assert replicas_of(setting) == 5
    assert setting.writes() == [PATCHED, PATCHED]


async def test_g07_scale_that_regresses_is_rolled_back_and_read_back(setting: Setting) -> None:
    order = setting.order(UP, mode="auto")
    async with running(setting):
        setting.send(order)
        await setting.written(order, PATCHED)
        setting.prometheus.signals |= {ALERT: None, ERRORS: 0.4}
        outcome = await setting.outcome(order)
    assert (outcome.end, outcome.reason) == (End.ROLLED_BACK, "check_failed"), outcome.sentence
    assert replicas_of(setting) == 3
    assert len(setting.live_pods()) == 3
    assert setting.writes() == [PATCHED, PATCHED, PATCHED]  # scale, undo, close
    assert next(check for check in outcome.checks if check.name == "errors").after is CheckState.FAILING


async def test_g07_restart_that_regresses_after_its_completion_is_not_rolled_again(setting: Setting) -> None:
    order = setting.order()
    async with running(setting):
        setting.send(order)
        await setting.phase(order, "settling")
        setting.prometheus.signals |= {ALERT: None, ERRORS: 0.4}
        outcome = await setting.outcome(order)
    assert (outcome.end, setting.writes()) == (End.REGRESSED, [PATCHED, PATCHED]), outcome.sentence


async def test_g08_check_that_was_failing_before_is_not_a_regression(setting: Setting) -> None:
    setting.prometheus.signals[ERRORS] = 0.4
    order = setting.order()
    async with running(setting):
        setting.send(order)
        await setting.written(order, PATCHED)
        setting.prometheus.signals[ALERT] = None
        outcome = await setting.outcome(order)
    assert outcome.end is End.COMMITTED, outcome.sentence


async def test_check_that_changed_in_the_last_ten_minutes_is_shown_but_cannot_veto(setting: Setting) -> None:
    setting.prometheus.past[ERRORS] = [0.5] * 100
    order = setting.order()
    async with running(setting):
        setting.send(order)
        await setting.written(order, PATCHED)
        setting.prometheus.signals |= {ALERT: None, ERRORS: 0.4}
        outcome = await setting.outcome(order)
    assert outcome.end is End.COMMITTED, outcome.sentence
    assert next(check for check in outcome.checks if check.name == "errors").unstable


async def test_fix_that_does_nothing_is_ineffective(setting: Setting) -> None:
    order = setting.order()
    async with running(setting):
        setting.send(order)
        outcome = await setting.outcome(order)
    assert (outcome.end, outcome.reason) == (End.INEFFECTIVE, "no_improvement"), outcome.sentence


async def test_scale_that_does_nothing_is_undone(setting: Setting) -> None:
    order = setting.order(UP)
    async with running(setting):
        setting.send(order)
        outcome = await setting.outcome(order)
    assert (outcome.end, replicas_of(setting)) == (End.INEFFECTIVE, 3), outcome.sentence


async def test_g05_g26_prometheus_lost_after_the_action_is_unverified_never_success(setting: Setting) -> None:
    order = setting.order(UP)
    async with running(setting):
        setting.send(order)
        await setting.written(order, PATCHED)
        setting.prometheus.down = True
        outcome = await setting.outcome(order)
    assert (outcome.end, outcome.reason, replicas_of(setting)) == (End.UNVERIFIED, "unknown", 5), outcome.sentence
    assert setting.mark() == f"closed/{outcome.transaction_id}"


async def test_unknown_undoes_a_scale_down_because_that_adds_capacity(setting: Setting) -> None:
    order = setting.order(DOWN)
    async with running(setting):
        setting.send(order)
        await setting.written(order, PATCHED)
        setting.prometheus.down = True
        outcome = await setting.outcome(order)
    assert (outcome.end, replicas_of(setting)) == (End.ROLLED_BACK, 3), outcome.sentence


async def test_g26_prometheus_lost_before_begin_is_refused(setting: Setting) -> None:
    setting.prometheus.down = True
    order = setting.order()
    async with running(setting):
        setting.send(order)
        outcome = await setting.outcome(order)
    assert (outcome.end, outcome.reason, setting.writes()) == (End.REFUSED, "no_baseline", []), outcome.sentence


async def test_f35_restart_whose_fresh_pods_crash_restores_the_old_template(setting: Setting) -> None:
    await setting.cluster.apply([deployment("slow", minReadySeconds=20)])
    await setting.cluster.rolled_out("shop", "slow")
    before = {pod["metadata"]["uid"] for pod in setting.live_pods("slow")}
    template = setting.object("slow")["spec"]["template"]
    setting.cluster.break_program("shop", "slow", pods="new", exit_after_s=5.0)
    order = setting.order(name="slow")
    async with running(setting):
        setting.send(order)
        outcome = await setting.outcome(order)
    assert (outcome.end, outcome.reason) == (End.ROLLED_BACK, "restarting"), outcome.sentence
    assert setting.object("slow")["spec"]["template"] == template
    assert {pod["metadata"]["uid"] for pod in setting.live_pods("slow")} == before  # the old ReplicaSet was used again
    assert setting.writes() == ["PATCH slow 200"] * 3


async def test_canary_whose_replacement_crashes_stops_the_restart(setting: Setting) -> None:
    setting.cluster.break_program("shop", "web", pods="new", exit_after_s=1.0)
    order = setting.order(mode="auto")
    async with running(setting):
        setting.send(order)
        outcome = await setting.outcome(order)
    assert (outcome.end, outcome.reason) == (End.REGRESSED, "restarting"), outcome.sentence
    assert RESTART_ANNOTATION not in template_annotations(setting)


async def test_f56_scale_that_finds_no_node_is_put_back(setting: Setting) -> None:
    order = setting.order(UP, deadlines={"settle_floor": 1, "apply_cap": 3, "evaluation_interval": 0.3, "kubernetes_sample": 0.15})
    for node in setting.cluster.store.list(NODES):
        setting.cluster.store.update(NODES, {**node, "spec": {**node["spec"], "unschedulable": True}})
    async with running(setting):
        setting.send(order)
        outcome = await setting.outcome(order)
    assert (outcome.end, replicas_of(setting)) == (End.ROLLED_BACK, 3), outcome.sentence
    assert outcome.reason in ("not_in_time", "unschedulable")


def set_replicas(number: int) -> Any:
    return lambda found: found["spec"].update(replicas=number)


async def test_g10_replicas_set_by_a_person_are_a_conflict_and_never_forced(setting: Setting) -> None:
    order = setting.order(UP)
    async with running(setting):
        setting.send(order)
        await setting.phase(order, "settling")
        setting.edit(set_replicas(6))
        setting.prometheus.signals[ERRORS] = 0.4
        outcome = await setting.outcome(order)
    assert (outcome.end, outcome.reason, replicas_of(setting)) == (End.CONFLICT, "foreign_writer", 6), outcome.sentence
    assert setting.writes() == [PATCHED, PATCHED]  # scale, and our own mark taken off
    assert setting.mark() == f"closed/{outcome.transaction_id}"


async def test_g10_replicas_set_by_a_person_while_the_undo_is_under_way_stay(setting: Setting) -> None:
    order = setting.order(UP)
    async with running(setting):
        setting.send(order)
        await setting.phase(order, "settling")
        # The undo arrives after the person: its test fails, and it is not sent again.
        late = Disturbance(effect="delay", delay_s=1.0, methods=("PATCH",), path="deployments/web", times=1)
        setting.cluster.server.disturb(late)
        setting.prometheus.signals[ERRORS] = 0.4
        await setting.phase(order, "intended")
        setting.edit(set_replicas(6))
        outcome = await setting.outcome(order)
    assert (outcome.end, replicas_of(setting)) == (End.CONFLICT, 6), outcome.sentence
    assert setting.writes() == [PATCHED, "PATCH web 422", PATCHED]


async def test_g34_release_in_the_middle_of_a_restart_is_a_conflict(setting: Setting) -> None:
    def release(found: dict[str, Any]) -> None:
        found["spec"]["template"]["spec"]["containers"][0]["image"] = "sandbox/web:2"

    order = setting.order()
    async with running(setting):
        setting.send(order)
        await setting.phase(order, "settling")
        setting.edit(release)
        outcome = await setting.outcome(order)
    assert outcome.end is End.CONFLICT, outcome.sentence
    assert setting.object()["spec"]["template"]["spec"]["containers"][0]["image"] == "sandbox/web:2"


async def test_mark_rewound_by_somebody_is_a_conflict(setting: Setting) -> None:
    order = setting.order()
    async with running(setting):
        setting.send(order)
        await setting.phase(order, "settling")
        setting.edit(lambda found: found["metadata"]["annotations"].pop("sre-ladder.dev/txn"))
        outcome = await setting.outcome(order)
    assert (outcome.end, setting.mark()) == (End.CONFLICT, None), outcome.sentence


async def lost_answer(setting: Setting, effect: Any, *, skip: int = 0) -> Order:
    """Disturb the next patches that are no dry runs."""
    setting.cluster.server.disturb(
        Disturbance(effect=effect, methods=("PATCH",), path=r"deployments/web\?(?!.*dryRun)", times=1, after=skip)
    )
    return setting.order()


async def test_answer_that_was_lost_is_read_back_and_the_write_not_repeated(setting: Setting) -> None:
    order = await lost_answer(setting, "cut_after")
    async with running(setting):
        setting.send(order)
        await setting.phase(order, "settling")
        setting.prometheus.signals[ALERT] = None
        outcome = await setting.outcome(order)
    assert outcome.end is End.COMMITTED, outcome.sentence
    assert setting.writes() == ["PATCH web 0", PATCHED]  # the stamp once, its answer cut; then the close


async def test_write_that_never_arrived_is_sent_again_after_reading(setting: Setting) -> None:
    order = await lost_answer(setting, "cut_before")
    async with running(setting):
        setting.send(order)
        await setting.phase(order, "settling")
        setting.prometheus.signals[ALERT] = None
        outcome = await setting.outcome(order)
    assert outcome.end is End.COMMITTED, outcome.sentence
    assert setting.writes() == ["PATCH web 0", PATCHED, PATCHED]


@pytest.mark.parametrize("status", [429, 409])
async def test_write_that_was_turned_away_is_sent_again_with_the_same_number(setting: Setting, status: int) -> None:
    path = r"deployments/web\?(?!.*dryRun)"
    setting.cluster.server.disturb(Disturbance(effect="status", status=status, methods=("PATCH",), path=path, times=1))
    order = setting.order()
    async with running(setting):
        setting.send(order)
        await setting.phase(order, "settling")
        setting.prometheus.signals[ALERT] = None
        outcome = await setting.outcome(order)
    assert outcome.end is End.COMMITTED, outcome.sentence
    assert setting.writes() == [f"PATCH web {status}", PATCHED, PATCHED]


async def test_f50_undo_that_a_broken_webhook_stops_is_incomplete_and_says_so(setting: Setting) -> None:
    order = setting.order(UP, deadlines={"settle_floor": 1, "evaluation_interval": 0.3, "kubernetes_sample": 0.15})
    async with running(setting):
        setting.send(order)
        await setting.phase(order, "settling")
        path = r"deployments/web\?(?!.*dryRun)"
        setting.cluster.server.disturb(Disturbance(effect="status", status=403, methods=("PATCH",), path=path))
        setting.prometheus.signals[ERRORS] = 0.4
        outcome = await setting.outcome(order)
    assert (outcome.end, outcome.not_undone[0]) == (End.UNDO_INCOMPLETE, "the number of replicas"), outcome.sentence
    assert replicas_of(setting) == 5


async def test_two_targets_are_worked_on_at_the_same_time(setting: Setting) -> None:
    await setting.cluster.apply([deployment("api")])
    await setting.cluster.rolled_out("shop", "api")
    orders = [setting.order(), setting.order(name="api")]
    async with running(setting):
        for order in orders:
            setting.send(order)
        await until(lambda: len(setting.bot.claims[-1].open) == 2, 20.0, "two open transactions")
        setting.prometheus.signals[ALERT] = None
        outcomes = [await setting.outcome(order) for order in orders]
    assert {outcome.end for outcome in outcomes} <= {End.COMMITTED, End.INEFFECTIVE}


async def test_secrets_in_logs_are_redacted_before_they_are_kept(setting: Setting) -> None:
    setting.cluster.break_program("shop", "web", first_words="password=hunter2hunter2")
    before = setting.live_pods()[0]["metadata"]
    setting.cluster.store.delete(PODS, "shop", before["name"])
    await setting.cluster.rolled_out("shop", "web")
    order = setting.order()
    async with running(setting):
        setting.send(order)
        outcome = await setting.outcome(order)
    assert "hunter2" not in outcome.to_json()


async def test_expression_whose_range_reaches_back_before_completion_is_unknown_then_judged_in_a_second_window(
    setting: Setting,
) -> None:
    order = setting.order()
    order = order.model_copy(
        update={"checks": tuple(one.model_copy(update={"longest_range": 2.0 * one.opened}) for one in order.checks)}
    )
    async with running(setting):
        setting.send(order)
        await setting.phase(order, "settling")
        asked = setting.prometheus.asked.count(ALERT)
        await until(lambda: setting.prometheus.asked.count(ALERT) >= asked + 4, 10.0, "four samples after completion")
        setting.prometheus.signals[ALERT] = None
        outcome = await setting.outcome(order)
    assert outcome.end is End.COMMITTED, outcome.sentence
