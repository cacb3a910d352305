"""From objects recorded from a real API server to `TargetFacts`."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from source_servers import DATA, recording, target

from catalog.limits import resolved_roll_out
from catalog.targets import TargetKind
from sources.errors import SourceUnavailable
from sources.facts import facts_of, replicas_manager
from sources.rollouts import deployment_complete, deployment_rolling, stateful_set_rolling, template_hash
from sources.workloads import WorkloadView, event_count, event_time, taint

NOW = datetime(2026, 11, 29, 18, 0, tzinfo=UTC)
GONE = SourceUnavailable("kubernetes", "timeout", "no answer")


def stable() -> dict[str, Any]:
    return copy.deepcopy(recording("01-deployment/05-get-stable.json"))


def deployment(path: str) -> dict[str, Any]:
    """A recorded Deployment; one whose recording was reduced to a few fields is put back into the form of an object."""
    body = copy.deepcopy(recording(path))
    if "metadata" in body:
        return dict(body)
    whole = stable()
    whole["metadata"]["generation"] = body["generation"]
    whole["spec"]["replicas"] = body["spec.replicas"]
    if "spec.paused" in body:
        whole["spec"]["paused"] = body["spec.paused"]
    return whole | {"status": body["status"]}


def view(workload: Any = None, **parts: Any) -> WorkloadView:
    namespace = {"metadata": {"name": "shop", "labels": {"sre-ladder.dev/autonomy": "enabled"}}}
    kind = parts.pop("kind", TargetKind.DEPLOYMENT)
    base = WorkloadView(
        target=target(kind), observed_at=NOW, workload=stable() if workload is None else workload, namespace=namespace
    )
    return replace(base, **parts)


def facts(workload: Any = None, **parts: Any) -> Any:
    return facts_of(view(workload, **parts), NOW)


def test_a_stable_deployment() -> None:
    pods = recording("01-deployment/07-pods-stable.json")["items"]
    sets = recording("01-deployment/06-rs-stable.json")["items"]
    found = facts(pods=pods, replica_sets=sets, namespace_ready=7)
    assert found.exists
    assert found.target.uid == stable()["metadata"]["uid"]
    assert (found.desired, found.ready, found.available, found.updated) == (2, 2, 2, 2)
    assert (found.rolling_out, found.paused, found.scaled_to_zero) == (False, False, False)
    assert (found.strategy, found.max_surge, found.max_unavailable) == ("RollingUpdate", 1, 0)
    assert found.opted_in is True
    assert found.pods == tuple(sorted(pod["metadata"]["name"] for pod in pods))
    assert found.nodes == ("node1",)
    assert found.restarts == 0
    assert found.namespace_ready_pods == 7
    assert found.last_rollout_at == datetime.fromisoformat(sets[0]["metadata"]["creationTimestamp"])
    assert found.unread == ()


def test_counts_that_the_api_omits_are_zero() -> None:
    found = facts(deployment("01-deployment/65-scaled-to-zero.json"))
    assert (found.desired, found.ready, found.available, found.updated) == (0, 0, 0, 0)
    assert found.scaled_to_zero is True
    unready = facts(deployment("02-faults/21-all-unready.json"))
    assert (unready.ready, unready.available) == (0, 0)
    assert unready.desired == 2


def test_a_status_that_is_empty_or_behind_is_a_roll_out() -> None:
    fresh = deployment("01-deployment/02-get-right-after-create.json")
    assert fresh["status"] == {}
    assert facts(fresh).rolling_out is True
    behind = deployment("01-deployment/11-get-right-after-restart.json")
    assert behind["status"]["availableReplicas"] == behind["spec"]["replicas"]
    found = facts(behind)
    assert found.rolling_out is True
    assert found.observed_generation < found.generation
    assert not deployment_complete(behind)


def states(path: str) -> list[dict[str, Any]]:
    """Deployment states of a recorded watch, as objects."""
    events = json.loads((DATA / "kubernetes" / path).read_text())["events"]
    return [
        {
            "metadata": {"generation": event["generation"]},
            "spec": {"replicas": event["spec.replicas"]},
            "status": event["status"],
        }
        for event in events
        if event["kind"] == "Deployment" and event["type"] != "DELETED"
    ]


@pytest.mark.parametrize(
    "recorded", ["12b-watch-restart", "80-watch-overlapping-restarts", "75-watch-restart-minready", "64-watch-restart-recreate"]
)
def test_every_recorded_state_of_a_restart_is_rolling_until_it_is_complete(recorded: str) -> None:
    seen = [(deployment_complete(state), deployment_rolling(state)) for state in states(f"01-deployment/{recorded}.json")]
    assert seen[-1] == (True, False)
    assert (False, True) in seen
    assert (True, True) not in seen
    first = seen.index((True, False))
    assert set(seen[:first]) == {(False, True)}
    assert set(seen[first:]) == {(True, False)}


def test_a_scale_up_is_not_complete_until_all_are_available() -> None:
    seen = [deployment_complete(state) for state in states("01-deployment/22b-watch-scale-up.json")]
    assert seen[0] is False
    assert seen[-1] is True
    assert seen == sorted(seen)


def test_F35_available_is_not_ready_while_min_ready_seconds_run() -> None:
    waiting = [
        s
        for s in states("01-deployment/75-watch-restart-minready.json")
        if s["status"].get("readyReplicas") != s["status"].get("availableReplicas")
    ]
    assert waiting
    assert not any(deployment_complete(state) for state in waiting)


def test_F34_unready_pods_of_a_finished_roll_out_are_not_a_roll_out() -> None:
    assert facts(deployment("02-faults/21-all-unready.json")).rolling_out is False


def test_F56_pods_that_a_quota_refuses_are_not_a_roll_out() -> None:
    found = facts(deployment("02-faults/32-quota-deployment.json"))
    assert found.desired > found.ready
    assert found.rolling_out is False


def test_K01_a_stuck_roll_out_is_still_one() -> None:
    stuck = deployment("01-deployment/32-crash-deployment.json")
    found = facts(stuck)
    assert found.rolling_out is True
    assert found.available == 2


def test_F43_a_paused_deployment_says_so_though_its_generation_is_observed() -> None:
    paused = deployment("01-deployment/55-get-after-restart-while-paused.json")
    found = facts(paused)
    assert found.paused is True
    assert found.observed_generation == found.generation
    assert found.updated == 0
    assert not deployment_complete(paused)


def test_percentages_are_rounded_as_kubernetes_rounds() -> None:
    workload = stable()
    for surge, unavailable, replicas in ((None, None, 2), ("25%", "25%", 10), (0, 0, 3), ("0%", "10%", 3), (2, "50%", 5)):
        workload["spec"]["replicas"] = replicas
        workload["spec"]["strategy"] = {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable},
        }
        found = facts(workload)
        assert (found.max_surge, found.max_unavailable) == resolved_roll_out(surge, unavailable, replicas)
    workload["spec"]["strategy"]["rollingUpdate"]["maxSurge"] = "lots"
    assert (facts(workload).max_surge, facts(workload).max_unavailable) == (None, None)
    workload["spec"]["strategy"] = {"type": "Recreate"}
    assert (facts(workload).strategy, facts(workload).max_unavailable) == ("Recreate", 5)


def test_a_stateful_set_and_a_daemon_set() -> None:
    found = facts(recording("08-owners/10-sts-get.json"), kind=TargetKind.STATEFULSET)
    assert (found.desired, found.ready, found.updated, found.rolling_out) == (2, 2, 2, False)
    assert (found.max_surge, found.max_unavailable) == (0, 1)
    assert found.revision == "db-5b6fb96c55"
    daemon = recording("08-owners/25-ds-get.json")
    found = facts(daemon, kind=TargetKind.DAEMONSET)
    assert found.desired == daemon["status"]["desiredNumberScheduled"]
    assert found.ready == daemon["status"]["numberReady"]
    assert found.rolling_out is False


def test_a_stateful_set_rolls_from_the_first_new_revision_to_the_last_pod() -> None:
    events = json.loads((DATA / "kubernetes/08-owners/13-watch-sts-restart.json").read_text())["events"]
    seen = [
        stateful_set_rolling(
            {
                "metadata": {"generation": e["generation"]},
                "spec": {"replicas": e["spec.replicas"], "updateStrategy": e["updateStrategy"]},
                "status": e["status"],
            }
        )
        for e in events
        if e["kind"] == "StatefulSet"
    ]
    assert seen[0] is True
    assert seen[-1] is False
    assert seen == sorted(seen, reverse=True)


def test_what_could_not_be_read_is_none_and_named() -> None:
    found = facts(autoscalers=GONE, budgets=GONE, claims=GONE, namespace=GONE, namespace_ready=GONE, pods=GONE, services=GONE)
    assert found.opted_in is None
    assert found.read_write_once is None
    assert found.namespace_ready_pods is None
    assert found.restarts is None
    assert found.autoscaler is None
    assert set(found.unread) == {"autoscalers", "budgets", "claims", "namespace", "namespace_ready", "pods", "services"}


def test_the_object_itself_unread_is_an_error_and_not_an_absence() -> None:
    with pytest.raises(SourceUnavailable):
        facts_of(replace(view(), workload=GONE), NOW)
    assert facts_of(replace(view(), workload=None), NOW).exists is False


def test_an_object_that_is_being_deleted_does_not_exist() -> None:
    workload = stable()
    workload["metadata"]["deletionTimestamp"] = "2026-11-29T18:00:00Z"
    assert facts(workload).exists is False


@pytest.mark.parametrize(
    ("labels", "opted_in"),
    [({"sre-ladder.dev/autonomy": "enabled"}, True), ({"sre-ladder.dev/autonomy": "Enabled"}, False), ({}, False), (None, False)],
)
def test_opting_in_is_one_label_with_one_value(labels: Any, opted_in: bool) -> None:
    assert facts(namespace={"metadata": {"labels": labels}}).opted_in is opted_in
    assert facts(namespace=None).opted_in is None


def managed(*entries: tuple[str, str, str | None, bool]) -> dict[str, Any]:
    fields = [
        {
            "manager": manager,
            "operation": operation,
            **({"subresource": subresource} if subresource else {}),
            "fieldsV1": {"f:spec": {"f:replicas": {}} if owns else {"f:template": {}}},
        }
        for manager, operation, subresource, owns in entries
    ]
    return {"metadata": {"managedFields": fields}}


def test_F40_the_owner_of_replicas_by_recorded_server_side_apply() -> None:
    created = recording("08-owners/30-ssa-create-argocd.json")
    fields = created if isinstance(created, list) else created["metadata"]["managedFields"]
    assert replicas_manager({"metadata": {"managedFields": fields}}) == "argocd-controller"


def test_F40_a_foreign_scale_takes_the_field_away_from_the_manager() -> None:
    after = managed(
        ("argocd-controller", "Apply", None, False),
        ("sre-ladder", "Update", "scale", True),
        ("kubectl-rollout", "Update", None, False),
    )
    assert replicas_manager(after) is None
    shared = managed(("argocd-controller", "Apply", None, True), ("kustomize-controller", "Apply", None, True))
    assert replicas_manager(shared) == "argocd-controller"


@pytest.mark.parametrize(
    ("entry", "manager"),
    [
        (("somebody", "Apply", None, True), "somebody"),
        (("helm-controller", "Update", None, True), "helm-controller"),
        (("helm", "Update", None, True), "helm"),
        (("argocd-application-controller", "Update", "scale", True), "argocd-application-controller"),
        (("kubectl-client-side-apply", "Update", None, True), None),
        (("kube-controller-manager", "Update", "scale", True), None),
        (("sre-executor", "Apply", None, True), None),
        (("kustomize-controller", "Apply", None, False), None),
    ],
)
def test_F40_who_counts_as_a_manager_of_the_field(entry: tuple[str, str, str | None, bool], manager: str | None) -> None:
    assert replicas_manager(managed(entry)) == manager


def test_F40_the_last_applied_manifest_counts_on_what_a_gitops_tool_looks_after() -> None:
    applied = json.dumps({"spec": {"replicas": 2}})
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": applied}
    assert replicas_manager({"metadata": {"annotations": annotations}}) is None
    tracked = annotations | {"argocd.argoproj.io/tracking-id": "shop:apps/Deployment:shop/web"}
    assert replicas_manager({"metadata": {"annotations": tracked}}) == "argocd.argoproj.io"
    without = tracked | {"kubectl.kubernetes.io/last-applied-configuration": json.dumps({"spec": {}})}
    assert replicas_manager({"metadata": {"annotations": without}}) is None
    garbled = tracked | {"kubectl.kubernetes.io/last-applied-configuration": "{"}
    assert replicas_manager({"metadata": {"annotations": garbled}}) == "argocd.argoproj.io"
    labelled = {"annotations": annotations, "labels": {"kustomize.toolkit.fluxcd.io/name": "apps"}}
    assert replicas_manager({"metadata": labelled}) == "kustomize.toolkit.fluxcd.io"


def test_the_autoscaler_is_named_and_a_scaled_object_before_its_own_hpa() -> None:
    hpa = recording("08-owners/51-hpa-get.json")
    assert facts(autoscalers=[hpa]).autoscaler == "HorizontalPodAutoscaler/hp"
    scaled = {"kind": "ScaledObject", "metadata": {"name": "web"}}
    assert facts(autoscalers=[hpa, scaled]).autoscaler == "ScaledObject/web"


def test_a_custom_owner_is_named_and_a_built_in_one_is_not() -> None:
    workload = stable()
    workload["metadata"]["ownerReferences"] = [
        {"kind": "Kafka", "apiVersion": "kafka.strimzi.io/v1", "name": "k", "uid": "u", "controller": True}
    ]
    found = facts(workload)
    assert found.custom_owner == "Kafka"
    assert found.owners[0].uid == "u"
    workload["metadata"]["ownerReferences"] = [{"kind": "ReplicaSet", "apiVersion": "apps/v1", "name": "r", "uid": "u"}]
    assert facts(workload).custom_owner is None


@pytest.mark.parametrize(
    ("modes", "once"),
    [(["ReadWriteOnce"], True), (["ReadWriteOncePod"], True), (["ReadWriteMany"], False), (["ReadOnlyMany"], False)],
)
def test_F52_a_volume_for_one_node(modes: list[str], once: bool) -> None:
    assert facts(claims=[{"spec": {"accessModes": modes}}]).read_write_once is once
    assert facts().read_write_once is False


def test_an_empty_dir_on_disk_is_data_and_one_in_memory_is_not() -> None:
    workload = stable()
    workload["spec"]["template"]["spec"]["volumes"] = [{"name": "a", "emptyDir": {}}]
    assert facts(workload).empty_dir is True
    workload["spec"]["template"]["spec"]["volumes"] = [
        {"name": "a", "emptyDir": {"medium": "Memory"}},
        {"name": "b", "configMap": {}},
    ]
    assert facts(workload).empty_dir is False


def test_the_least_disruption_that_any_budget_allows() -> None:
    budgets = [{"status": {"disruptionsAllowed": 2}}, recording("02-faults/41-pdb-get.json")]
    assert facts(budgets=budgets).disruptions_allowed == 0
    assert facts(budgets=[{}]).disruptions_allowed == 0
    assert facts(budgets=[]).disruptions_allowed is None


def test_restarts_are_summed_over_live_pods() -> None:
    pods = recording("01-deployment/33-crash-pods.json")["items"]
    total = sum(status["restartCount"] for pod in pods for status in pod["status"]["containerStatuses"])
    assert total > 0
    assert facts(pods=pods).restarts == total


def test_F41_a_reused_replica_set_rolled_when_the_deployment_last_progressed() -> None:
    """After an undo the old ReplicaSet is taken up again: its creation says nothing of when it rolled."""
    workload, sets = stable(), copy.deepcopy(recording("01-deployment/06-rs-stable.json")["items"])
    progressing = next(one for one in workload["status"]["conditions"] if one["type"] == "Progressing")
    progressing["lastUpdateTime"] = "2026-11-29T17:59:00Z"
    sets[0]["metadata"]["annotations"]["deployment.kubernetes.io/revision-history"] = "1"
    assert facts(workload, replica_sets=sets).last_rollout_at == datetime(2026, 11, 29, 17, 59, tzinfo=UTC)
    assert facts(workload, replica_sets=[]).last_rollout_at is None


@given(st.permutations(list(stable()["spec"]["template"]["spec"])))
def test_the_template_hash_does_not_depend_on_the_order_of_keys(order: list[str]) -> None:
    workload = stable()
    template = workload["spec"]["template"]
    template["spec"] = {key: template["spec"][key] for key in order}
    assert template_hash(workload) == template_hash(stable())


def test_the_template_hash_changes_with_a_restart_and_not_with_a_scale() -> None:
    scaled = stable()
    scaled["spec"]["replicas"] = 5
    assert template_hash(scaled) == template_hash(stable())
    stamped = stable()
    stamped["spec"]["template"]["metadata"].setdefault("annotations", {})["sre-ladder.dev/restart"] = "x"
    assert template_hash(stamped) != template_hash(stable())


def test_taint_names_what_changed_meanwhile() -> None:
    before = facts()
    assert taint(before, before) is None
    workload = stable()
    workload["metadata"]["generation"] += 1
    assert "generation" in (taint(before, facts(workload)) or "")
    workload["metadata"]["annotations"] = {"sre-ladder.dev/txn": "open/01J/1"}
    assert "transaction was open" in (taint(before, facts(workload)) or "")
    assert taint(facts(workload), facts(workload)) is not None, "open all the while is tainted too"
    assert taint(before, (None, None, None)) is not None
    assert taint((None, 1, "a"), ("closed/01J", 1, "a")) is not None


def test_the_three_writers_of_events() -> None:
    kubelet = _event("09-events/backoff.json")
    assert event_count(kubelet) == kubelet["count"]
    assert event_time(kubelet) == datetime.fromisoformat(kubelet["lastTimestamp"])
    once = _event("09-events/failedscheduling.json")
    assert event_count(once) == 1
    assert event_time(once) == datetime.fromisoformat(once["eventTime"])
    series = _event("09-events/failedscheduling-series.json")
    assert event_count(series) == series["series"]["count"] > 1
    assert event_time(series) == datetime.fromisoformat(series["series"]["lastObservedTime"])
    assert event_time({"metadata": {"creationTimestamp": "2026-11-29T17:00:00Z"}}) == datetime(2026, 11, 29, 17, tzinfo=UTC)
    assert event_time({"lastTimestamp": "yesterday"}) is None


def _event(path: str) -> dict[str, Any]:
    found = json.loads((DATA / "kubernetes" / path).read_text())
    stack: list[Any] = [found]
    while stack:
        one = stack.pop()
        if isinstance(one, dict):
            if "involvedObject" in one and "reason" in one:
                return one
            stack.extend(one.values())
        elif isinstance(one, list):
            stack.extend(one)
    raise AssertionError(path)
