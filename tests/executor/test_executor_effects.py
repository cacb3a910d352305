"""The bodies that are sent, against the recorded behaviour of a real API server, and what its answers mean."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from executor.effects import eviction_of, forbidden_patch, patch_for, stamped_metadata, stamped_template
from executor.transactions import Answered, Lost, Write
from executor.writing import Response, answer_of, dry_run_refusal, is_our_denial

RECORDINGS = Path(__file__).parent.parent / "data" / "kubernetes"
TEMPLATE: dict[str, Any] = {"metadata": {"labels": {"app": "web"}, "annotations": {"a": "b"}}, "spec": {"containers": []}}
MARK = "/metadata/annotations/sre-ladder.dev~1txn"


def patch(write: Write, *, annotations: bool = True) -> list[dict[str, Any]]:
    return patch_for(write, transaction_id="T", uid="U", template=TEMPLATE, annotations_exist=annotations)


def test_restart_tests_the_whole_template_and_replaces_its_metadata_only() -> None:
    found = patch(Write(n=1, kind="stamp", mark_before=None, mark_after="open/T/1"))
    assert found == [
        {"op": "test", "path": "/metadata/uid", "value": "U"},
        {"op": "test", "path": MARK, "value": None},
        {"op": "test", "path": "/spec/template", "value": TEMPLATE},
        {
            "op": "replace",
            "path": "/spec/template/metadata",
            "value": {"labels": {"app": "web"}, "annotations": {"a": "b", "sre-ladder.dev/restart": "T"}},
        },
        {"op": "add", "path": MARK, "value": "open/T/1"},
    ]


def test_undo_of_a_restart_is_its_exact_inverse() -> None:
    found = patch(Write(n=2, kind="undo", mark_before="open/T/1", mark_after="open/T/2"))
    assert found[2:4] == [
        {"op": "test", "path": "/spec/template", "value": stamped_template(TEMPLATE, "T")},
        {"op": "replace", "path": "/spec/template/metadata", "value": TEMPLATE["metadata"]},
    ]


@pytest.mark.parametrize("kind", ["scale", "undo"])
def test_scale_and_its_undo_test_the_replicas(kind: Any) -> None:
    found = patch(Write(n=1, kind=kind, mark_after="open/T/1", from_replicas=2, to_replicas=4))
    assert found[2:4] == [
        {"op": "test", "path": "/spec/replicas", "value": 2},
        {"op": "replace", "path": "/spec/replicas", "value": 4},
    ]


@pytest.mark.parametrize("kind", ["open", "close", "fence"])
def test_annotation_only_writes_touch_nothing_else(kind: Any) -> None:
    found = patch(Write(n=1, kind=kind, mark_before="open/T/1", mark_after="open/T/2"))
    assert [one["path"] for one in found] == ["/metadata/uid", MARK, MARK]


def test_missing_annotations_map_is_tested_to_be_missing_and_made() -> None:
    found = patch(Write(n=1, kind="open", mark_after="open/T/1"), annotations=False)
    assert found[1:] == [
        {"op": "test", "path": "/metadata/annotations", "value": None},
        {"op": "add", "path": "/metadata/annotations", "value": {"sre-ladder.dev/txn": "open/T/1"}},
    ]


def test_template_of_the_checkpoint_is_never_changed_in_place() -> None:
    before = json.dumps(TEMPLATE)
    stamped_metadata(TEMPLATE, "T")["annotations"]["x"] = "y"
    assert json.dumps(TEMPLATE) == before


def test_eviction_names_the_uid() -> None:
    assert eviction_of("shop", "web-1", "P")["deleteOptions"] == {"preconditions": {"uid": "P"}}
    assert eviction_of("shop", "web-1", "P", dry_run=True)["deleteOptions"]["dryRun"] == ["All"]


def test_probe_of_the_fence_is_what_a_person_would_never_miss_if_it_were_applied() -> None:
    assert forbidden_patch() == [{"op": "add", "path": "/spec/paused", "value": True}]


def response(status: int, message: str = "", **details: Any) -> Response:
    return Response(status, {"kind": "Status", "message": message, "details": details})


def recorded(name: str) -> Response:
    found = next(RECORDINGS.rglob(name), None)
    if found is None:
        pytest.skip(f"the recording {name} is not among the test data")
    answer = json.loads(found.read_text())["response"]
    return Response(answer["status"], answer["body"])


WEBHOOK = 'Internal error occurred: failed calling webhook "check.example.org": connection refused'


@pytest.mark.parametrize(
    ("answer", "meaning"),
    [
        (response(200), Answered(done=True)),
        (response(409), Answered(done=False, retry=True, reason="changed")),
        (response(422), Answered(done=False, maybe_fence=True, reason="invalid")),
        (response(429), Answered(done=False, retry=True, reason="throttled")),
        (response(401), Answered(done=False, retry=True, reason="unauthorized")),
        (response(403), Answered(done=False, reason="forbidden")),
        (response(404), Answered(done=False, reason="gone")),
        (response(500, WEBHOOK), Answered(done=False, retry=True, reason="webhook_down")),
        (response(500), Lost()),
        (response(504), Lost()),
        (Lost(detail="cut"), Lost()),
    ],
)
def test_each_answer_took_effect_or_certainly_did_not_or_is_in_doubt(answer: Response | Lost, meaning: Answered | Lost) -> None:
    found = answer_of(answer)
    assert type(found) is type(meaning)
    if isinstance(found, Answered) and isinstance(meaning, Answered):
        assert found.model_copy(update={"sentence": ""}) == meaning


def test_f50_webhook_that_is_down_is_named() -> None:
    found = answer_of(response(500, WEBHOOK))
    assert isinstance(found, Answered)
    assert "check.example.org" in found.sentence


@pytest.mark.parametrize("status", [409, 422, 429, 404])
def test_eviction_is_never_worth_sending_again(status: int) -> None:
    found = answer_of(response(status), eviction=True)
    assert isinstance(found, Answered)
    assert (found.retry, found.maybe_fence) == (False, False)


def test_p10_budget_is_told_from_a_recorded_answer() -> None:
    found = answer_of(recorded("42-evict-blocked.json"), eviction=True)
    assert isinstance(found, Answered)
    assert (found.reason, "needs 1 healthy pods" in found.sentence) == ("disruption_budget", True)


def test_recorded_failed_test_may_be_the_fence() -> None:
    found = answer_of(recorded("49c-undo-patch-test-fails.json"))
    assert isinstance(found, Answered)
    assert found.maybe_fence


def test_object_quoted_in_a_422_is_never_shown() -> None:
    secret = 'Deployment.apps "" is invalid: patch: Invalid value: "{\\"env\\":[{\\"value\\":\\"hunter2\\"}]}"'
    found = answer_of(response(422, secret))
    assert "hunter2" not in str(found)
    assert "hunter2" not in str(dry_run_refusal(response(422, secret)))


def test_dry_run_that_a_webhook_does_not_support_is_its_own_reason() -> None:
    told = 'admission webhook "side.example.org" does not support dry run'
    assert dry_run_refusal(response(400, told)) == (
        "webhook_without_dry_run",
        "A webhook here does not support dry runs: side.example.org.",
    )


def test_only_our_own_policy_counts_as_the_fence() -> None:
    ours = "ValidatingAdmissionPolicy 'sre-ladder-executor-workloads' with binding 'x' denied request: no"
    assert is_our_denial(response(403, ours))
    assert not is_our_denial(response(403, ours.replace("sre-ladder", "other")))
    assert not is_our_denial(response(403, "forbidden by RBAC"))
    assert not is_our_denial(response(200))
    assert not is_our_denial(Lost())
