"""What is an order for this executor, now. A captured bot can sign; it cannot make a plan do what its action does not say."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from executor_orders import NOW, POD_UID, a_target, an_order, checks_for

from catalog.actions import DrainNode, RestartPod, RestartWorkload, Scale
from catalog.evidence import Oracle
from catalog.orders import Order, PlanStep, StepKind
from catalog.signatures import key_id, load_private_key, load_public_keys, sign, write_key_pair
from executor.accepting import SKEW, NotAnOrder, accepted_order, missing_oracles, order_refusal

CLUSTER = a_target().cluster_uid
OPEN, STAMP = PlanStep(kind=StepKind.OPEN), PlanStep(kind=StepKind.STAMP)
EVICT = PlanStep(kind=StepKind.EVICT, pod="web-1", pod_uid=POD_UID)

CHOOSE = PlanStep(kind=StepKind.EVICT)


def scales(before: int, after: int) -> PlanStep:
    return PlanStep(kind=StepKind.SCALE, from_replicas=before, to_replicas=after)


UP = Scale(from_replicas=3, to_replicas=4)


@pytest.mark.parametrize(
    "order",
    [
        an_order(),
        an_order(mode="auto"),
        an_order(UP),
        an_order(UP, mode="auto"),
        an_order(RestartPod(pod="web-1", pod_uid=POD_UID)),
        an_order(RestartWorkload(first_pod="web-1"), mode="auto", steps=(OPEN, EVICT, STAMP)),
        an_order(steps=(OPEN, CHOOSE, STAMP)),
        an_order(UP, steps=(OPEN, scales(3, 4))),
    ],
)
def test_order_as_minted_is_accepted(order: Order) -> None:
    assert order_refusal(order, CLUSTER, NOW) is None


@pytest.mark.parametrize(
    ("changes", "at", "reason"),
    [
        ({"audience": "another"}, timedelta(), "audience"),
        ({"target": a_target().model_copy(update={"cluster_uid": "another"})}, timedelta(), "audience"),
        ({"catalogue_version": "0"}, timedelta(), "catalogue"),
        ({}, timedelta(seconds=66), "expired"),
        ({}, -timedelta(seconds=6), "not_yet"),
        ({"target": a_target().model_copy(update={"name": "web/../x"})}, timedelta(), "names"),
        ({"target": a_target().model_copy(update={"namespace": ""})}, timedelta(), "names"),
        ({"approvals": ()}, timedelta(), "approvals"),
        ({"checks": checks_for(a_target())[:2]}, timedelta(), "checks"),
        ({"checks": (*checks_for(a_target()), checks_for(a_target())[0])}, timedelta(), "checks"),
    ],
)
def test_order_for_another_place_or_time_is_refused(changes: dict[str, Any], at: timedelta, reason: str) -> None:
    refused = order_refusal(an_order(**changes), CLUSTER, NOW + at)
    assert refused is not None
    assert refused.reason == reason


def test_both_clocks_may_differ_by_the_skew() -> None:
    order = an_order()
    assert order_refusal(order, CLUSTER, order.expires_at + SKEW) is None
    assert order_refusal(order, CLUSTER, order.not_before - SKEW) is None


@pytest.mark.parametrize(
    ("action", "mode", "steps"),
    [
        (RestartWorkload(), "auto", (STAMP,)),
        (RestartWorkload(), "auto", (OPEN, STAMP)),
        (RestartWorkload(), "approved", (STAMP, STAMP)),
        (RestartWorkload(), "approved", (scales(3, 4),)),
        (RestartWorkload(first_pod="web-2"), "auto", (OPEN, EVICT, STAMP)),
        (RestartWorkload(), "auto", (OPEN, EVICT, EVICT, STAMP)),
        (RestartWorkload(), "auto", (OPEN, EVICT, STAMP)),
        (RestartPod(pod="web-1", pod_uid=POD_UID), "approved", (OPEN, EVICT, STAMP)),
        (RestartPod(pod="web-2", pod_uid=POD_UID), "approved", (OPEN, EVICT)),
        (RestartPod(pod="web-1", pod_uid="another"), "approved", (OPEN, EVICT)),
        (UP, "approved", (scales(3, 20),)),
        (UP, "approved", (scales(2, 4),)),
        (UP, "approved", (scales(3, 4), scales(3, 4))),
        (UP, "approved", (STAMP,)),
    ],
)
def test_captured_bot_cannot_make_a_plan_of_its_own(action: Any, mode: str, steps: tuple[PlanStep, ...]) -> None:
    refused = order_refusal(an_order(action, mode=mode, steps=steps), CLUSTER, NOW)
    assert refused is not None
    assert refused.reason == "plan"


def test_scale_down_is_never_automatic() -> None:
    refused = order_refusal(an_order(Scale(from_replicas=4, to_replicas=3), mode="auto"), CLUSTER, NOW)
    assert refused is not None
    assert refused.reason == "approvals"


def test_described_actions_are_never_run() -> None:
    refused = order_refusal(an_order(DrainNode(node="node1")), CLUSTER, NOW)
    assert refused is not None
    assert refused.reason == "plan"


def test_automatic_orders_need_every_oracle() -> None:
    order = an_order(mode="auto", checks=checks_for(a_target())[2:])
    assert missing_oracles(order, service_level=True) == (Oracle.ALERT.value, Oracle.SERVICE_LEVEL.value)
    assert missing_oracles(order, service_level=False) == (Oracle.ALERT.value,)


def test_only_bytes_signed_by_an_accepted_key_are_an_order(tmp_path: Path) -> None:
    for name in ("first", "second", "foreign"):
        write_key_pair(tmp_path / name, tmp_path / f"{name}.pub")
    accepted = load_public_keys(tmp_path / "first.pub", tmp_path / "second.pub")
    for name in ("first", "second"):
        private = load_private_key(tmp_path / name)
        order = an_order(key_id=key_id(private.public_key()))
        assert accepted_order(sign(private, order.to_json().encode()), accepted) == order
    foreign = load_private_key(tmp_path / "foreign")
    private = load_private_key(tmp_path / "first")
    signed = sign(private, an_order(key_id=key_id(private.public_key())).to_json().encode())
    for bad in (
        sign(foreign, an_order().to_json().encode()),
        signed.model_copy(update={"body": signed.body.replace("shop", "bank")}),
        sign(private, b'{"id": "x"}'),
        sign(private, an_order(key_id="another").to_json().encode()),
    ):
        with pytest.raises(NotAnOrder):
            accepted_order(bad, accepted)
