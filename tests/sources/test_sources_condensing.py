"""Raw objects reduced to readings: recorded answers of a real API server, and the small print of quantities and instants."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from workload_scenes import HASHES, NOW, ago, event, healthy, pod, recorded_pod, recording, replica_set

from sources.condensing import MAX_EVENTS, MAX_PODS, content_digest, event_readings, instant, quantity
from sources.figures import TroubleKind, error_ratio, high_outlier, low_outlier, troubles
from sources.readings import Measure
from sources.redaction import Redactor

REDACTOR = Redactor(b"k" * 32)


@pytest.mark.parametrize(
    ("text", "value"),
    [("192Mi", 192 * 2**20), ("1Gi", 2**30), ("500m", Decimal("0.5")), ("2", 2), ("1e3", 1000), ("1.5G", 1_500_000_000), (3, 3)],
)
def test_quantities_as_kubernetes_writes_them(text: Any, value: Any) -> None:
    assert quantity(text) == value


@pytest.mark.parametrize("text", ["", "Mi", "abc", None, "1Qi", [], "--1"])
def test_what_is_no_quantity_is_none(text: Any) -> None:
    assert quantity(text) is None


def test_instants_of_null_and_of_a_failed_start_are_none() -> None:
    assert instant("2026-03-04T10:00:00Z") == NOW
    assert instant(None) is None
    assert instant("1970-01-01T00:00:00Z") is None
    assert instant("soon") is None


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("01-never-pull", TroubleKind.IMAGE),
        ("02-pull-backoff", TroubleKind.IMAGE),
        ("03-oom", TroubleKind.OUT_OF_MEMORY),
        ("04-not-ready", TroubleKind.UNREADY),
        ("05-liveness", TroubleKind.KILLED),
        ("07-no-node", TroubleKind.UNSCHEDULABLE),
        ("08-too-big", TroubleKind.UNSCHEDULABLE),
        ("09-no-cm", TroubleKind.CONFIG),
        ("10-no-secret", TroubleKind.CONFIG),
        ("12-init-fail", TroubleKind.CRASH),
        ("13-bad-cmd", TroubleKind.CANNOT_START),
    ],
)
def test_recorded_statuses_are_the_troubles_they_are(name: str, kind: TroubleKind) -> None:
    scene = healthy(1)
    scene.pods = [recorded_pod(0, name)]
    assert [trouble.kind for trouble in troubles(scene.reading())] == [kind]


def test_the_recorded_crash_of_a_release_is_told_from_the_old_revision() -> None:
    """Pods and Deployment as a real cluster had them 75 s into a failed roll-out; its ReplicaSets by name."""
    scene = healthy(2)
    pods = recording("01-deployment/33-crash-pods")["response"]["body"]["items"]
    uids = {owner["name"]: owner["uid"] for one in pods for owner in one["metadata"]["ownerReferences"]}
    scene.pods = pods
    scene.replica_sets = []
    for number, name in ((1, "crash-56f77f8496"), (2, "crash-688dd4ff8c")):
        made = replica_set(number, 1, created=ago(minutes=2), image=f"docker.io/local/app:{number}")
        made["metadata"] |= {"name": name, "uid": uids[name]}
        scene.replica_sets.append(made)
    reading = scene.reading()
    failing = [one for one in troubles(reading) if one.kind is TroubleKind.CRASH]
    assert [(one.newest, one.exit_code) for one in failing] == [(True, 1)]
    assert sum(1 for one in reading.pods if one.ready) == 2
    assert reading.release is not None
    assert reading.release.revision == 2


def test_a_pod_that_is_being_deleted_is_no_symptom() -> None:
    scene = healthy(2)
    scene.pods.append(pod(7, ready=False))
    scene.pods[-1]["metadata"]["deletionTimestamp"] = "2026-03-04T09:59:00Z"
    assert scene.reading().pods_total == 2


def test_many_pods_are_cut_the_unhealthy_and_the_named_first() -> None:
    scene = healthy(60)
    for index, one in enumerate(scene.pods):
        one["metadata"]["name"] = f"api-{HASHES[1]}-p{index:04d}"
    scene.pods[50]["status"]["conditions"][0]["status"] = "False"
    reading = scene.reading()
    assert len(reading.pods) == MAX_PODS
    assert reading.pods_total == 60
    assert not reading.pods[0].ready
    assert not reading.healthy


def test_a_restart_changes_no_content_and_an_image_does() -> None:
    first, restarted, released = (
        replica_set(1, 1, created=NOW)["spec"]["template"],
        replica_set(1, 1, created=NOW, stamp="01A")["spec"]["template"],
        replica_set(1, 1, created=NOW, image="registry.local/api:2")["spec"]["template"],
    )
    restarted["metadata"]["annotations"]["kubectl.kubernetes.io/restartedAt"] = "2026-03-04T10:00:00Z"
    restarted["metadata"]["labels"]["pod-template-hash"] = "x"
    assert content_digest(first) == content_digest(restarted)
    assert content_digest(first) != content_digest(released)


def test_events_of_all_three_writers_have_a_time_and_a_count() -> None:
    stored = [recording(f"09-events/{name}") for name in ("backoff", "failedscheduling-series", "failedcreate-combined")]
    for version in ("core/v1", "events.k8s.io/v1"):
        readings = event_readings([one[version] for one in stored], REDACTOR)
        assert {reading.reason for reading in readings} == {"BackOff", "FailedScheduling", "FailedCreate"}
        assert all(reading.at is not None and reading.count > 1 and reading.name and reading.message for reading in readings)


def test_events_are_newest_first_bounded_and_redacted() -> None:
    token = "ghp_" + "a1B2c3D4e5" * 4
    scene = healthy(1)
    scene.events = [event(f"R{index}", f"failed with token {token}", name="x") for index in range(40)]
    reading = scene.reading()
    assert len(reading.events) == MAX_EVENTS
    assert reading.events_cut == 40 - MAX_EVENTS
    assert token not in reading.to_json()


def measure(**by_pod: float) -> Measure:
    return Measure(name="m", by_pod=by_pod, unknown="" if by_pod else "empty", at=NOW)


@pytest.mark.parametrize(
    ("requests", "errors", "ratio"),
    [
        (measure(a=10), measure(a=1), 0.1),
        (measure(a=10), measure(), 0.0),
        (measure(a=0), measure(), None),
        (measure(), measure(a=1), None),
        (measure(a=10), measure(a=20), None),
        (measure(a=10), measure(a=10.4), 1.0),
        (None, measure(), None),
        (measure(a=10), Measure(name="m", unknown="timeout", at=NOW), None),
    ],
)
def test_f28_a_ratio_needs_both_its_parts(requests: Measure | None, errors: Measure | None, ratio: float | None) -> None:
    assert error_ratio(requests, errors) == ratio


@pytest.mark.parametrize(
    ("find", "values", "odd"),
    [
        (lambda by: high_outlier(by, floor=0.05), {"a": 2.0, "b": 0.2, "c": 0.2}, "a"),
        (lambda by: high_outlier(by, floor=0.05), {"a": 2.0, "b": 2.0, "c": 0.2}, None),
        (lambda by: high_outlier(by, floor=0.05), {"a": 2.0, "b": 0.2}, None),
        (lambda by: high_outlier(by, floor=0.05), {"a": 0.03, "b": 0.001, "c": 0.001}, None),
        (low_outlier, {"a": 0.0, "b": 10.0, "c": 11.0}, "a"),
        (low_outlier, {"a": 0.0, "b": 0.0, "c": 11.0}, None),
        (low_outlier, {"a": 0.0, "b": 0.0, "c": 0.0}, None),
    ],
)
def test_one_pod_is_odd_only_beside_two_that_are_not(find: Callable[..., Any], values: dict[str, float], odd: str | None) -> None:
    found = find(values)
    assert (found[0] if isinstance(found, tuple) else found) == odd
