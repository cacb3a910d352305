"""Evidence weighed over scenes: clear cases reach the bar for acting alone, ambiguous ones stay below, unknown weighs nothing."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from workload_scenes import (
    NOW,
    Scene,
    ago,
    alert,
    crashing,
    each,
    healthy,
    holds,
    leaking,
    loaded,
    measure,
    node,
    outlier,
    over,
    pod,
    recorded_events,
    recorded_pod,
    replica_set,
    with_measures,
)

from catalog.cases import EvidenceSummary
from catalog.diagnoses import Diagnosis, Family, Hypothesis
from catalog.documents import canonical, instant_text
from catalog.evidence import Answer, Evidence, Oracle
from catalog.targets import TargetKind
from sources.errors import SourceUnavailable
from sources.readings import LevelReading, RuleReading
from triage.diagnosing import diagnose
from verifier.observations import FiringReading, Observations
from verifier.predictions import predictions
from verifier.ratios import NONE_OF_THESE, ratios
from verifier.weighing import REFUTED_WEIGHT_CAP, weigh

FIVE = (Family.BAD_RELEASE, Family.OUT_OF_MEMORY, Family.WEDGED, Family.CAPACITY, Family.NODE_FAULT, Family.DATA_FAULT)
AUTO_BAR = 0.85
PROPOSE_BAR = 0.60


def leak() -> Scene:
    scene = leaking(healthy(2))
    with_measures(scene, cpu=each(scene, 0.05), requests=each(scene, 10), errors=None, requests_usual=20, scraped=each(scene, 1))
    scene.alerts = [alert("ContainerMemoryExhaustionPredicted", deployment="api")]
    scene.rules = [holds("ContainerMemoryExhaustionPredicted")]
    return scene


def evidence_of(scene: Scene, **changes: object) -> Evidence:
    return weigh(scene.observations(diagnose(scene.symptoms()), **changes))


def suspected(scene: Scene, family: Family, *rivals: Family) -> Diagnosis:
    """The diagnosis of a triage (or a model) that names `family` whatever the scene shows."""
    found = diagnose(scene.symptoms())
    named = [Hypothesis(family=one, statement="suspected", confidence=0.9, target=scene.target) for one in (family, *rivals)]
    return found.model_copy(update={"hypotheses": tuple(named)})


def found(evidence: Evidence, prediction: str) -> Answer | None:
    return next((item.answer for item in evidence.items if item.id == prediction), None)


@pytest.mark.parametrize(
    "scene",
    [pytest.param(leak, id="k03-leak"), pytest.param(loaded, id="p04-load"), pytest.param(outlier, id="p01-outlier")],
)
def test_k03_p04_p01_clear_cases_reach_the_bar_for_acting_alone(scene: Callable[[], Scene]) -> None:
    evidence = evidence_of(scene())
    assert evidence.evidence_weight is not None
    assert evidence.evidence_weight >= AUTO_BAR
    assert not evidence.refuted
    assert len(evidence.sources) >= 2
    assert "kubernetes" in evidence.sources
    assert set(EvidenceSummary.of(evidence).oracles) == set(Oracle)


def test_k01_the_crash_of_a_release_is_borne_out() -> None:
    evidence = evidence_of(crashing())
    assert evidence.family is Family.BAD_RELEASE
    assert (evidence.evidence_weight or 0) >= AUTO_BAR


@pytest.mark.parametrize("change", ["no-history-of-traffic", "no-growth"])
def test_p04_ambiguous_load_lies_between_the_bars(change: str) -> None:
    scene = loaded(growth=3.0 if change == "no-history-of-traffic" else 1.0)
    if change == "no-history-of-traffic":
        del scene.measures["requests_usual"]
    weight = evidence_of(scene).evidence_weight
    assert weight is not None
    assert PROPOSE_BAR - 0.1 <= weight < AUTO_BAR


def test_k03_a_leak_right_after_a_release_does_not_act_alone() -> None:
    scene = leak()
    scene.replica_sets.append(replica_set(2, 2, created=ago(minutes=20), image="registry.local/api:2"))
    scene.alerts = [alert("ContainerMemoryExhaustionPredicted", minutes_ago=3, deployment="api")]
    released = weigh(scene.observations(suspected(scene, Family.OUT_OF_MEMORY, Family.BAD_RELEASE)))
    assert found(released, "release") is Answer.REFUTES
    assert (released.evidence_weight or 0) < (evidence_of(leak()).evidence_weight or 0)


def test_g23_a_suspicion_of_memory_is_refuted_by_exit_code_one() -> None:
    scene = crashing()
    evidence = weigh(scene.observations(suspected(scene, Family.OUT_OF_MEMORY)))
    assert evidence.refuted
    assert evidence.evidence_weight is not None
    assert evidence.evidence_weight <= REFUTED_WEIGHT_CAP
    assert found(evidence, "termination") is Answer.REFUTES
    assert "exit code 1" in evidence.note


def test_a_liveness_kill_with_137_refutes_memory_and_supports_the_probe() -> None:
    scene = healthy(3)
    scene.pods[0] = recorded_pod(0, "05-liveness")
    scene.events = recorded_events("05-liveness", scene.names()[0])
    scene.alerts = [alert("KubePodCrashLooping", pod=scene.names()[0])]
    assert weigh(scene.observations(suspected(scene, Family.OUT_OF_MEMORY))).refuted
    assert found(weigh(scene.observations(suspected(scene, Family.PROBE))), "termination") is Answer.SUPPORTS


def test_a_kill_with_137_that_nothing_explains_is_inconclusive() -> None:
    scene = healthy(3)
    scene.pods[0] = recorded_pod(0, "05-liveness")
    scene.alerts = [alert("KubePodCrashLooping", pod=scene.names()[0])]
    for family in (Family.OUT_OF_MEMORY, Family.PROBE):
        assert found(weigh(scene.observations(suspected(scene, family))), "termination") is Answer.INCONCLUSIVE


def test_oom_killed_in_the_recorded_status_supports_memory() -> None:
    scene = healthy(3)
    scene.pods = [recorded_pod(index, "03-oom") for index in range(3)]
    scene.alerts = [alert("ContainerOOMKilling", pod=scene.names()[0])]
    evidence = weigh(scene.observations(suspected(scene, Family.OUT_OF_MEMORY)))
    assert found(evidence, "termination") is Answer.SUPPORTS
    assert (evidence.evidence_weight or 0) > AUTO_BAR


def test_bad_release_and_bad_dependency_are_told_apart_by_when_the_errors_began() -> None:
    scene = healthy(3)
    scene.replica_sets.append(replica_set(2, 3, created=ago(minutes=9), image="registry.local/api:2"))
    scene.pods = [pod(index, revision=2, created=ago(minutes=9)) for index in range(3)]
    scene.alerts = [alert("ErrorBudgetBurn", deployment="api")]
    with_measures(scene, requests=each(scene, 10), errors=each(scene, 4), requests_before=each(scene, 10), errors_before=None)
    since = weigh(scene.observations(suspected(scene, Family.BAD_RELEASE, Family.DEPENDENCY)))
    with_measures(scene, errors_before=each(scene, 4))
    before = weigh(scene.observations(suspected(scene, Family.BAD_RELEASE, Family.DEPENDENCY)))
    assert (since.evidence_weight or 0) >= AUTO_BAR
    assert (before.evidence_weight or 0) < 0.3
    assert before.posterior["dependency"] > before.posterior["bad_release"]


def test_capacity_quota_and_scheduling_are_told_apart() -> None:
    scene = loaded()
    scene.pods[1] = recorded_pod(1, "08-too-big")
    assert (weigh(scene.observations(suspected(scene, Family.CAPACITY, Family.SCHEDULING))).evidence_weight or 0) < PROPOSE_BAR
    scene = loaded()
    message = 'pods "api-x" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2'
    scene.conditions.append({"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": message})
    refused = weigh(scene.observations(suspected(scene, Family.CAPACITY, Family.QUOTA)))
    assert found(refused, "admission") is Answer.REFUTES
    assert refused.posterior["quota"] > 0.3


def test_intended_is_told_from_failure() -> None:
    scene = healthy(0)
    scene.alerts = [alert("DeploymentReplicasZero", deployment="api")]
    assert weigh(scene.observations(suspected(scene, Family.WEDGED))).refuted
    assert (weigh(scene.observations(suspected(scene, Family.INTENDED))).evidence_weight or 0) >= AUTO_BAR


def test_a_lost_node_is_told_from_a_wedged_pod() -> None:
    scene = healthy(3)
    scene.nodes = [node("n1"), node("n2", ready="Unknown")]
    scene.pods[2] = pod(2, node_name="n2", ready=False)
    scene.alerts = [alert("KubePodNotReady", pod=scene.names()[2])]
    evidence = weigh(scene.observations(suspected(scene, Family.WEDGED, Family.NODE_FAULT)))
    assert (evidence.evidence_weight or 0) < PROPOSE_BAR
    assert evidence.posterior["node_fault"] > 0.5


def test_p08_an_expression_that_is_over_refutes_every_cause_that_would_act() -> None:
    for make in (leak, loaded, outlier):
        scene = make()
        scene.rules = [over(rule.alert) for rule in scene.rules]
        for family in (Family.OUT_OF_MEMORY, Family.CAPACITY, Family.WEDGED):
            evidence = weigh(scene.observations(suspected(scene, family)))
            assert evidence.refuted
            assert (evidence.evidence_weight or 0) <= REFUTED_WEIGHT_CAP


def test_f32_healthy_pods_do_not_make_a_rule_that_still_holds_over() -> None:
    scene = healthy(3)
    scene.alerts = [alert("ErrorBudgetBurn", deployment="api")]
    scene.rules = [holds("ErrorBudgetBurn")]
    evidence = weigh(scene.observations(suspected(scene, Family.SELF_RESOLVED)))
    assert found(evidence, "readiness") is Answer.SUPPORTS
    assert found(evidence, "rule_holds") is Answer.REFUTES
    assert evidence.refuted
    scene.rules = [RuleReading(alert="ErrorBudgetBurn", unknown="unreachable", at=NOW)]
    unasked = weigh(scene.observations(suspected(scene, Family.SELF_RESOLVED)))
    assert (unasked.evidence_weight or 0) < AUTO_BAR


def test_f28_f29_f37_no_good_sample_never_adds_up_to_support() -> None:
    """Every measure in turn is NaN, infinite, empty, stale, late, reset or unreachable, and so is everything else."""
    for reason in ("nan", "inf", "empty", "stale", "timeout", "unreachable", "malformed", "counter_reset"):
        for make in (leak, loaded, outlier):
            scene = make()
            scene.faults = {"kubernetes": "down"}
            scene.measures = {name: measure(name, None, unknown=reason) for name in scene.measures}
            scene.rules = [
                RuleReading(alert=rule.alert, unknown="empty" if reason in ("nan", "inf") else reason, at=NOW)
                for rule in scene.rules
            ]
            scene.levels = [LevelReading(name="errors", state="unknown", unknown=reason, at=NOW)]
            scene.firing = [FiringReading(alert="x", unknown=reason, at=NOW)]
            healthy_scene = make()
            evidence = weigh(scene.observations(diagnose(healthy_scene.symptoms())))
            assert evidence.evidence_weight is None
            assert evidence.supporting == evidence.refuting == 0
            assert evidence.inconclusive > 5
            assert not evidence.refuted
            assert all(item.log_likelihood_ratio == 0 and item.reason for item in evidence.items)


@pytest.mark.parametrize("reason", ["nan", "inf", "empty", "stale", "timeout"])
def test_f28_a_bad_sample_only_ever_lowers_the_weight(reason: str) -> None:
    """Taking a supporting measure away never raises the weight."""
    for make, names in ((leak, ("memory",)), (loaded, ("cpu", "requests")), (outlier, ("latency", "requests"))):
        full = evidence_of(make()).evidence_weight
        scene = make()
        diagnosis = diagnose(scene.symptoms())
        for name in names:
            scene.measures[name] = measure(name, None, unknown=reason)
        weight = weigh(scene.observations(diagnosis)).evidence_weight
        assert full is not None
        assert weight is None or weight < full


def test_f28_no_traffic_is_no_error_ratio() -> None:
    scene = healthy(3)
    scene.alerts = [alert("ErrorBudgetBurn", deployment="api")]
    with_measures(scene, requests=each(scene, 0), errors=None)
    evidence = weigh(scene.observations(suspected(scene, Family.BAD_RELEASE)))
    assert found(evidence, "errors") is Answer.INCONCLUSIVE


def test_f29_no_series_of_errors_beside_good_requests_means_no_errors() -> None:
    scene = healthy(3)
    scene.alerts = [alert("ErrorBudgetBurn", deployment="api")]
    with_measures(scene, requests=each(scene, 10), errors=None)
    assert found(weigh(scene.observations(suspected(scene, Family.BAD_RELEASE))), "errors") is Answer.REFUTES
    scene.measures["errors"] = measure("errors", None, unknown="timeout")
    assert found(weigh(scene.observations(suspected(scene, Family.BAD_RELEASE))), "errors") is Answer.INCONCLUSIVE


def test_f31_a_rule_whose_metric_has_no_series_is_inconclusive_and_not_over() -> None:
    scene = leak()
    scene.rules = [RuleReading(alert="ContainerMemoryExhaustionPredicted", unknown="absent_metric", at=NOW)]
    evidence = evidence_of(scene)
    item = next(item for item in evidence.items if item.id == "rule_holds")
    assert item.answer is Answer.INCONCLUSIVE
    assert item.reason == "absent_metric"


def test_f37_a_rule_over_nan_speaks_for_the_data_and_against_the_workload() -> None:
    scene = outlier()
    scene.rules = [RuleReading(alert="PodLatencyOutlier", unknown="nan", at=NOW)]
    wedged = weigh(scene.observations(suspected(scene, Family.WEDGED, Family.DATA_FAULT)))
    assert found(wedged, "rule_holds") is Answer.REFUTES
    assert found(weigh(scene.observations(suspected(scene, Family.DATA_FAULT))), "rule_holds") is Answer.SUPPORTS


def test_a_service_level_check_that_cannot_be_told_is_not_passing() -> None:
    scene = healthy(3)
    scene.alerts = [alert("ErrorBudgetBurn", deployment="api")]
    passing = LevelReading(name="latency", state="passing", at=NOW)
    scene.levels = [passing]
    assert found(weigh(scene.observations(suspected(scene, Family.SELF_RESOLVED))), "level_checks") is Answer.SUPPORTS
    scene.levels = [passing, LevelReading(name="errors", state="unknown", unknown="nan", at=NOW)]
    assert found(weigh(scene.observations(suspected(scene, Family.SELF_RESOLVED))), "level_checks") is Answer.INCONCLUSIVE


def test_f28_pods_are_not_alike_where_one_of_them_has_no_good_sample() -> None:
    scene = healthy(4)
    scene.alerts = [alert("HighLatency", deployment="api")]
    with_measures(scene, latency=each(scene, 0.2))
    assert found(weigh(scene.observations(suspected(scene, Family.WEDGED))), "outlier") is Answer.REFUTES
    alike = each(scene, 0.2)
    silent = scene.names()[0]
    del alike[silent]
    scene.measures["latency"] = measure("latency", alike).model_copy(update={"unknown_pods": {silent: "nan"}})
    assert found(weigh(scene.observations(suspected(scene, Family.WEDGED))), "outlier") is Answer.INCONCLUSIVE


def test_a_release_of_yesterday_is_none_that_was_shortly_before() -> None:
    scene = healthy(3)
    scene.replica_sets.append(replica_set(2, 3, created=ago(hours=20), image="registry.local/api:2"))
    scene.alerts = [alert("ErrorBudgetBurn", deployment="api")]
    assert found(weigh(scene.observations(suspected(scene, Family.BAD_RELEASE))), "release") is Answer.REFUTES


def test_f38_rules_over_a_frozen_exporter_prove_nothing() -> None:
    scene = healthy(3)
    scene.alerts = [alert("KubeDeploymentReplicasMismatch", deployment="api")]
    expression = 'kube_deployment_spec_replicas{namespace="shop"} != kube_deployment_status_replicas_available'
    scene.rules = [holds("KubeDeploymentReplicasMismatch").model_copy(update={"expression": expression})]
    with_measures(scene, exported_replicas=3)
    assert found(weigh(scene.observations(suspected(scene, Family.WEDGED))), "rule_holds") is Answer.SUPPORTS
    with_measures(scene, exported_replicas=5)
    evidence = weigh(scene.observations(suspected(scene, Family.WEDGED)))
    item = next(item for item in evidence.items if item.id == "rule_holds")
    assert (item.answer, item.reason) == (Answer.INCONCLUSIVE, "stale")
    assert found(weigh(scene.observations(suspected(scene, Family.DATA_FAULT))), "exporter") is Answer.SUPPORTS


def test_f38_an_exporter_that_lags_seconds_behind_a_change_is_no_contradiction() -> None:
    scene = healthy(3)
    scene.alerts = [alert("KubeDeploymentReplicasMismatch", deployment="api")]
    scene.managed_fields = [
        {"manager": "kubectl", "time": instant_text(ago(seconds=20)), "fieldsV1": {"f:spec": {"f:replicas": {}}}}
    ]
    with_measures(scene, exported_replicas=2)
    evidence = weigh(scene.observations(suspected(scene, Family.DATA_FAULT)))
    assert found(evidence, "exporter") is Answer.REFUTES


def test_memory_that_a_kill_has_just_emptied_is_no_steady_memory() -> None:
    scene = healthy(3)
    scene.pods[0] = recorded_pod(0, "03-oom")
    scene.alerts = [alert("ContainerOOMKilling", pod=scene.names()[0])]
    with_measures(scene, memory=each(scene, 1e6), memory_slope=each(scene, 0), memory_samples=each(scene, 30))
    item = next(i for i in weigh(scene.observations(suspected(scene, Family.OUT_OF_MEMORY))).items if i.id == "memory_trend")
    assert (item.answer, item.reason) == (Answer.INCONCLUSIVE, "counter_reset")


def test_steady_memory_refutes_a_leak() -> None:
    scene = leak()
    with_measures(scene, memory=each(scene, 20e6), memory_slope=each(scene, 0), memory_samples=each(scene, 30))
    assert weigh(scene.observations(suspected(scene, Family.OUT_OF_MEMORY))).refuted


def test_too_few_samples_are_no_trend() -> None:
    scene = leak()
    with_measures(scene, memory_samples=each(scene, 2))
    evidence = weigh(scene.observations(suspected(scene, Family.OUT_OF_MEMORY)))
    item = next(item for item in evidence.items if item.id == "memory_trend")
    assert (item.answer, item.reason) == (Answer.INCONCLUSIVE, "too_few_samples")


def test_g46_forty_old_restarts_are_no_recent_end() -> None:
    scene = healthy(3)
    old = {"reason": "Error", "exitCode": 1, "startedAt": instant_text(ago(days=9)), "finishedAt": instant_text(ago(days=8))}
    scene.pods = [pod(index, container={"restartCount": 40, "lastState": {"terminated": old}}) for index in range(3)]
    scene.alerts = [alert("KubePodCrashLooping", pod=scene.names()[0])]
    evidence = weigh(scene.observations(suspected(scene, Family.BAD_RELEASE)))
    item = next(item for item in evidence.items if item.id == "termination")
    assert item.answer is Answer.REFUTES
    assert "no container ended" in item.seen


def test_g22_nothing_read_in_time_is_none_and_not_one_half() -> None:
    scene = outlier()
    diagnosis = diagnose(scene.symptoms())
    late = ("alert PodLatencyOutlier", "kubernetes", "measures", "rule PodLatencyOutlier")
    evidence = weigh(scene.observations(diagnosis, workload=None, measures={}, rules=(), late=late, tainted="could not be told"))
    assert evidence.evidence_weight is None
    assert evidence.note.startswith("not verified")
    assert {item.reason for item in evidence.items} <= {"timeout", "not_configured"}
    assert evidence.tainted == "could not be told"


def test_a_family_that_no_prediction_is_declared_for_cannot_be_verified() -> None:
    scene = outlier()
    evidence = weigh(scene.observations(suspected(scene, Family.UNKNOWN)))
    assert evidence.evidence_weight is None
    assert "cannot be verified" in evidence.note


def test_unreadable_parts_are_inconclusive_by_name() -> None:
    scene = outlier()
    diagnosis = diagnose(scene.symptoms())
    scene.unreadable = {
        "pods": SourceUnavailable("kubernetes", "forbidden", "pods"),
        "quotas": SourceUnavailable("kubernetes", "timeout", "x"),
    }
    evidence = weigh(scene.observations(diagnosis))
    unreadable = {item.id for item in evidence.items if item.reason == "unreadable"}
    assert {"readiness", "outlier", "termination"} <= unreadable
    quota = weigh(scene.observations(suspected(scene, Family.QUOTA)))
    assert found(quota, "admission") is Answer.INCONCLUSIVE


def test_of_one_evidence_group_only_the_strongest_counts() -> None:
    scene = outlier()
    alone = evidence_of(scene)
    scene.firing = [FiringReading(alert="PodLatencyOutlier", firing=True, at=NOW)]
    both = evidence_of(scene)
    assert found(both, "alert_firing") is Answer.SUPPORTS
    assert both.supporting == alone.supporting + 1
    assert both.evidence_weight == alone.evidence_weight


def test_the_posterior_adds_up_and_is_shown_with_none_of_these() -> None:
    for make in (crashing, leak, loaded, outlier):
        evidence = evidence_of(make())
        assert math.isclose(sum(evidence.posterior.values()), 1.0, abs_tol=1e-4)
        assert NONE_OF_THESE in evidence.posterior


def test_evidence_is_the_same_after_its_observations_were_stored() -> None:
    for make in (crashing, leak, loaded, outlier):
        scene = make()
        observations = scene.observations(diagnose(scene.symptoms()))
        again = Observations.model_validate_json(observations.to_json())
        assert canonical(weigh(again)) == canonical(weigh(observations))


def test_every_family_has_predictions_for_every_oracle() -> None:
    for family in FIVE:
        oracles = {prediction.oracle for prediction in predictions() if ratios().speaks_of(prediction.id, family)}
        assert oracles == set(Oracle), family


def test_every_prediction_has_its_rows_and_every_row_its_prediction() -> None:
    assert {prediction.id for prediction in predictions()} == set(ratios().predictions)
    for rows in ratios().predictions.values():
        for row in rows.values():
            assert all(0 < ratio <= 50 for ratio in row.ratios.values())


def test_the_target_that_is_gone_verifies_nothing() -> None:
    scene = outlier()
    diagnosis = diagnose(scene.symptoms())
    gone = scene.reading().model_copy(update={"exists": False})
    evidence = weigh(scene.observations(diagnosis, workload=gone, measures={}, rules=()))
    assert evidence.evidence_weight is None


def test_a_node_target_is_verified_by_its_conditions() -> None:
    scene = Scene(nodes=[node("n1", ready="Unknown")])
    scene.target = scene.target.model_copy(update={"kind": TargetKind.NODE, "name": "n1", "namespace": ""})
    scene.alerts = [alert("KubeNodeNotReady", node="n1")]
    evidence = evidence_of(scene)
    assert evidence.family is Family.NODE_FAULT
    assert (evidence.evidence_weight or 0) > AUTO_BAR


values = st.floats(min_value=0, max_value=1e12, allow_nan=False)


MEASURED = ("latency", "cpu", "memory", "memory_slope", "requests", "errors")


@given(
    numbers=st.fixed_dictionaries({name: st.lists(values, max_size=6) for name in MEASURED}),
    slope=st.lists(st.floats(min_value=-1e9, max_value=1e9, allow_nan=False), max_size=6),
    family=st.sampled_from(sorted(Family)),
)
def test_any_measures_give_a_diagnosis_and_evidence_within_bounds(
    numbers: dict[str, list[float]], slope: list[float], family: Family
) -> None:
    scene = healthy(4)
    scene.alerts = [alert("HighLatency", deployment="api")]
    for name, samples in (numbers | {"memory_slope": slope}).items():
        scene.measures[name] = measure(name, dict(zip(scene.names(), samples, strict=False)))
    scene.measures["memory_samples"] = measure("memory_samples", each(scene, 20))
    evidence = weigh(scene.observations(suspected(scene, family)))
    canonical(evidence)
    assert evidence.evidence_weight is None or 0 <= evidence.evidence_weight <= 1
    assert (evidence.evidence_weight is None) == (evidence.supporting + evidence.refuting == 0)
