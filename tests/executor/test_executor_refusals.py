"""Every refusal before the first write, through the front door: its own reason, and nothing written."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from executor_setting import ALERT, LIMITS, Setting, deployment, running, until

from catalog.actions import RestartPod, RestartWorkload, Scale
from catalog.clocks import SystemClock
from catalog.orders import Order
from catalog.outcomes import End, Outcome
from catalog.signatures import load_private_key, write_key_pair
from catalog.targets import TargetKind
from sandbox.api.disturbances import Disturbance
from sandbox.kinds import ADMISSION_BINDINGS, CLUSTER_ROLES, NAMESPACES
from sandbox.kinds import PERSISTENT_VOLUME_CLAIMS as CLAIMS

UP = Scale(from_replicas=3, to_replicas=5)


async def refused(setting: Setting, order: Order) -> Outcome:
    async with running(setting):
        setting.send(order)
        outcome = await setting.outcome(order)
    assert setting.writes() == [], outcome.sentence
    assert outcome.end in (End.REFUSED, End.CONFLICT), outcome.sentence
    return outcome


def spec(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda found: found["spec"].update(changes)


def annotate(**marks: str) -> Callable[[dict[str, Any]], None]:
    named = {key.replace("__", "/").replace("_", "-"): value for key, value in marks.items()}
    return lambda found: found["metadata"].setdefault("annotations", {}).update(named)


def budget(**wanted: Any) -> dict[str, Any]:
    selector = {"selector": {"matchLabels": {"app": "web"}}}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {**selector, **wanted},
        "status": {"desiredHealthy": 3, "currentHealthy": 3, "disruptionsAllowed": 0, "expectedPods": 3},
    }


def autoscaler() -> dict[str, Any]:
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"scaleTargetRef": reference, "minReplicas": 3, "maxReplicas": 6},
    }


def quota(pods: int) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "pods", "namespace": "shop"},
        "spec": {"hard": {"pods": str(pods)}},
    }


async def test_p14_f43_paused(setting: Setting) -> None:
    order = setting.order()
    setting.edit(spec(paused=True))
    assert (await refused(setting, order)).reason == "paused"


async def test_p14_roll_out_in_progress(setting: Setting) -> None:
    await setting.cluster.apply([deployment("slow", minReadySeconds=500)])
    await until(lambda: len(setting.live_pods("slow")) == 3, 10.0, "three pods")
    await until(lambda: "observedGeneration" in setting.object("slow")["status"], 10.0, "a status")
    assert (await refused(setting, setting.order(name="slow"))).reason == "rolling_out"


async def test_single_replica_is_not_automatic(setting: Setting) -> None:
    await setting.cluster.apply([deployment("one", replicas=1)])
    await setting.cluster.rolled_out("shop", "one")
    assert (await refused(setting, setting.order(name="one", mode="auto"))).reason == "single_replica"


async def test_recreate_is_not_automatic(setting: Setting) -> None:
    await setting.cluster.apply([deployment("anew", strategy={"type": "Recreate"})])
    await setting.cluster.rolled_out("shop", "anew")
    assert (await refused(setting, setting.order(name="anew", mode="auto"))).reason == "recreate"
    assert (await refused(setting, setting.order(name="anew"))).reason == "full_outage"


async def test_f40_f58_autoscaler_owns_the_replicas(setting: Setting) -> None:
    await setting.cluster.apply([autoscaler()])
    assert (await refused(setting, setting.order(UP))).reason == "autoscaler"


async def test_g28_gitops_owns_the_replicas_but_not_the_restart_stamp(setting: Setting) -> None:
    def owned(found: dict[str, Any]) -> None:
        fields = {"fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:replicas": {}}}}
        manager = {"manager": "argocd-controller", "operation": "Apply", "apiVersion": "apps/v1"}
        found["metadata"]["managedFields"] = [manager | fields]

    setting.edit(owned)
    outcome = await refused(setting, setting.order(UP))
    assert outcome.reason == "gitops"
    assert "argocd-controller" in outcome.sentence
    order = setting.order()
    async with running(setting):
        setting.send(order)
        await setting.written(order, "PATCH web 200")


async def test_custom_resource_up_the_owner_chain(setting: Setting) -> None:
    owner = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "web", "uid": "x", "controller": True}
    setting.edit(lambda found: found["metadata"].update(ownerReferences=[owner]))
    assert (await refused(setting, setting.order())).reason == "custom_owner"


async def test_p10_budget_that_allows_no_eviction(setting: Setting) -> None:
    await setting.cluster.apply([budget(minAvailable=3)])
    pod = setting.live_pods()[0]["metadata"]
    outcome = await refused(setting, setting.order(RestartPod(pod=pod["name"], pod_uid=pod["uid"])))
    assert outcome.reason == "disruption_budget"
    assert pod["uid"] in {one["metadata"]["uid"] for one in setting.live_pods()}


async def test_budget_above_the_floor_of_the_roll_out(setting: Setting) -> None:
    await setting.cluster.apply([deployment("thin", strategy={"rollingUpdate": {"maxUnavailable": 2}})])
    wanted = budget(minAvailable=3)
    wanted["spec"]["selector"]["matchLabels"]["app"] = "thin"
    await setting.cluster.apply([wanted])
    await setting.cluster.rolled_out("shop", "thin")
    assert (await refused(setting, setting.order(name="thin"))).reason == "budget_floor"


@pytest.mark.parametrize(("action", "room"), [(None, 3), (UP, 4)])
async def test_f56_quota_without_room(setting: Setting, action: Any, room: int) -> None:
    await setting.cluster.apply([quota(room)])
    await until(lambda: bool(_quota_status(setting)), 10.0, "the quota's status")
    assert (await refused(setting, setting.order(action))).reason == "quota"


def _quota_status(setting: Setting) -> Any:
    from sandbox.kinds import RESOURCE_QUOTAS

    return (setting.cluster.store.get(RESOURCE_QUOTAS, "shop", "pods").get("status") or {}).get("used")


async def test_f52_read_write_once_volume_with_surge(setting: Setting) -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": "shop"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    found = deployment("disk", replicas=1)
    found["spec"]["template"]["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    await setting.cluster.apply([claim])
    stored = setting.cluster.store.get(CLAIMS, "shop", "data")
    setting.cluster.store.update(CLAIMS, {**stored, "status": {"phase": "Bound"}}, part="status")
    await setting.cluster.apply([found])
    await setting.cluster.rolled_out("shop", "disk")
    assert (await refused(setting, setting.order(name="disk"))).reason == "volume_surge"


async def test_namespace_that_opted_out(setting: Setting) -> None:
    namespace = setting.cluster.store.get(NAMESPACES, "", "shop")
    setting.cluster.store.update(NAMESPACES, {**namespace, "metadata": {**namespace["metadata"], "labels": {}}})
    assert (await refused(setting, setting.order())).reason == "not_opted_in"


@pytest.mark.parametrize("mark", ["open/01M8MBDTZ8ANHV2QXTS21P2TZ4/1", "mine"])
async def test_mark_that_the_journal_does_not_know_is_a_conflict(setting: Setting, mark: str) -> None:
    setting.edit(annotate(sre_ladder_dev__txn="x"))
    setting.edit(lambda found: found["metadata"]["annotations"].update({"sre-ladder.dev/txn": mark}))
    outcome = await refused(setting, setting.order())
    assert (outcome.end, outcome.reason) == (End.CONFLICT, "foreign_writer")
    assert setting.mark() == mark


async def test_closed_mark_of_whoever_is_accepted_as_read(setting: Setting) -> None:
    setting.edit(lambda found: found["metadata"]["annotations"].update({"sre-ladder.dev/txn": "closed/other"}))
    order = setting.order()
    async with running(setting):
        setting.send(order)
        await setting.written(order, "PATCH web 200")


async def test_template_that_changed_since_the_decision(setting: Setting) -> None:
    assert (await refused(setting, setting.order(template_hash="0" * 64))).reason == "stale_target"


async def test_replicas_that_changed_since_the_decision(setting: Setting) -> None:
    order = setting.order(Scale(from_replicas=4, to_replicas=5))
    assert (await refused(setting, order)).reason == "stale_target"


async def test_object_made_anew_under_the_same_name(setting: Setting) -> None:
    target = setting.target().model_copy(update={"uid": "another"})
    assert (await refused(setting, setting.order(target=target))).reason == "gone"


async def test_f62_pod_that_is_not_the_one_that_was_named(setting: Setting) -> None:
    pod = setting.live_pods()[0]["metadata"]
    order = setting.order(RestartPod(pod=pod["name"], pod_uid="another"))
    assert (await refused(setting, order)).reason == "pod_changed"


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (TargetKind.POD, "bare_pod"),
        (TargetKind.DAEMONSET, "daemon_set"),
        (TargetKind.STATEFULSET, "stateful_set"),
        (TargetKind.JOB, "job"),
    ],
)
async def test_p11_p13_kinds_that_are_not_changed(setting: Setting, kind: TargetKind, reason: str) -> None:
    order = setting.order(target=setting.target().model_copy(update={"kind": kind}))
    # The limits file says it first; the reason of preflight is asked where the file would allow the kind.
    outcome = await refused(setting, order)
    assert outcome.reason in (reason, "limit:kinds")


async def test_no_snapshot_no_restart(setting: Setting) -> None:
    path = "/log"
    setting.cluster.server.disturb(Disturbance(effect="status", status=500, methods=("GET",), path=path))
    assert (await refused(setting, setting.order())).reason == "no_snapshot"


async def test_alert_that_is_over_makes_nothing_automatic(setting: Setting) -> None:
    setting.prometheus.signals[ALERT] = None
    outcome = await refused(setting, setting.order(mode="auto"))
    assert (outcome.reason, "no longer true" in outcome.sentence) == ("no_baseline", True)


async def test_no_fence_no_writes(setting: Setting) -> None:
    setting.cluster.store.delete(ADMISSION_BINDINGS, "", "sre-ladder-executor-workloads")
    assert (await refused(setting, setting.order())).reason == "no_fence"


async def test_g25_account_that_may_not_patch(setting: Setting) -> None:
    role = setting.cluster.store.get(CLUSTER_ROLES, "", "sre-ladder-executor")
    rules = [rule for rule in role["rules"] if "create" not in rule["verbs"]]
    setting.cluster.store.update(CLUSTER_ROLES, {**role, "rules": rules})
    pod = setting.live_pods()[0]["metadata"]
    order = setting.order(RestartPod(pod=pod["name"], pod_uid=pod["uid"]))
    assert (await refused(setting, order)).reason == "forbidden"


async def test_part_that_cannot_be_read_refuses(setting: Setting) -> None:
    setting.cluster.server.disturb(Disturbance(effect="status", status=500, methods=("GET",), path="poddisruptionbudgets"))
    outcome = await refused(setting, setting.order())
    assert (outcome.reason, "disruption budgets" in outcome.sentence) == ("cannot_tell", True)


# The order itself


async def test_order_of_a_key_that_is_not_accepted_is_answered_and_never_run(setting: Setting) -> None:
    write_key_pair(setting.directory / "foreign.key", setting.directory / "foreign.pub")
    order = setting.order()
    async with running(setting):
        setting.send(order, load_private_key(setting.directory / "foreign.key"))
        outcome = await setting.outcome(order)
        assert (outcome.end, outcome.reason) == (End.REFUSED, "signature")
        # The id that it claimed is free for the real order.
        setting.send(order)
        await setting.written_after(order, outcome)
    assert "PATCH web 200" in setting.writes()


async def test_order_that_was_changed_on_the_way_is_never_run(setting: Setting) -> None:
    order = setting.order()
    async with running(setting):
        signed = setting.send(order)
        setting.bot.orders[:] = [signed.model_copy(update={"body": signed.body.replace('"attempt":1', '"attempt":2')})]
        outcome = await setting.outcome(order)
    assert (outcome.reason, setting.writes()) == ("signature", [])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"audience": "another"}, "audience"),
        ({"catalogue_version": "0"}, "catalogue"),
        ({"expires_at": SystemClock().now() - timedelta(seconds=6)}, "expired"),
        ({"not_before": SystemClock().now() + timedelta(hours=1)}, "not_yet"),
    ],
)
async def test_order_for_another_place_or_time(setting: Setting, changes: dict[str, Any], reason: str) -> None:
    assert (await refused(setting, setting.order(**changes))).reason == reason


async def test_captured_bot_can_do_at_most_what_the_limits_file_says(setting: Setting) -> None:
    (setting.directory / "limits.yaml").write_text(
        LIMITS.replace("restart_workload: auto", "restart_workload: approved").replace("target: 100/1h", "target: 1/1h")
    )
    automatic, first, second = setting.order(mode="auto"), setting.order(), setting.order()
    far = setting.order(Scale(from_replicas=3, to_replicas=30))
    async with running(setting):
        for order in (automatic, far):
            setting.send(order)
            await setting.outcome(order)
        setting.send(first)
        await setting.outcome(first)
        setting.send(second)
        await setting.outcome(second)
    reasons = [setting.bot.outcomes[order.id].reason for order in (automatic, far, second)]
    assert reasons == ["limit:actions", "limit:scale.max", "limit:orders.target"]


async def test_f01_second_order_on_a_target_that_is_worked_on_is_refused(setting: Setting) -> None:
    first, second = setting.order(), setting.order()
    async with running(setting):
        setting.send(first)
        await setting.phase(first, "settling")
        setting.send(second)
        outcome = await setting.outcome(second)
    assert outcome.reason == "target_busy"


async def test_replayed_order_is_answered_with_the_stored_outcome_and_runs_once(setting: Setting) -> None:
    order = setting.order(RestartWorkload())
    async with running(setting):
        setting.send(order)
        first = await setting.outcome(order)
        writes = setting.writes()
        setting.send(order)
        await until(lambda: setting.bot.posts.count(first.id) == 2, 10.0, "the outcome again")
    assert setting.writes() == writes
    assert setting.bot.outcomes[order.id] == first


async def test_outcome_is_posted_until_the_bot_takes_it(setting: Setting) -> None:
    setting.bot.refuse_outcomes = 2
    order = setting.order(audience="another")
    async with running(setting):
        setting.send(order)
        outcome = await setting.outcome(order)
    assert setting.bot.posts == [outcome.id]
