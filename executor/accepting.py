"""What a delivered order must be before anything is read from the cluster for its sake. Pure.

The signature says who ordered; these functions say that it is an order for this cluster, for now, in this vocabulary, and that
its plan does what its action says and nothing else. A captured bot that signs a plan of its own is refused here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pydantic import ValidationError

from catalog.actions import RestartPod, RestartWorkload, Scale
from catalog.documents import CATALOGUE_VERSION
from catalog.evidence import Oracle
from catalog.names import is_dns_label, is_dns_subdomain
from catalog.orders import CheckSource, Order, PlanStep, Signed, StepKind
from catalog.signatures import SignatureRefused, verified_body
from executor.transactions import Refused

SKEW = timedelta(seconds=5)


class NotAnOrder(Exception):
    """The delivered bytes are not an order of an accepted key. Never run, never counted; the message is for people."""


def accepted_order(signed: Signed, keys: Mapping[str, Ed25519PublicKey]) -> Order:
    """The order in `signed`.

    Raises:
        NotAnOrder: unknown key, wrong signature, or bytes that are no order of this version.
    """
    try:
        body = verified_body(signed, keys)
    except SignatureRefused as error:
        raise NotAnOrder(str(error)) from error
    try:
        order = Order.model_validate_json(body)
    except ValidationError as error:
        raise NotAnOrder(f"signed by {signed.key_id}, but not an order of this version ({error.error_count()} problems)") from error
    if order.key_id != signed.key_id:
        raise NotAnOrder(f"the order names key {order.key_id}, but {signed.key_id} signed it")
    return order


def order_refusal(order: Order, cluster_uid: str, now: datetime) -> Refused | None:
    """Why this order is not for this executor now; None when it may be looked at further."""
    if order.audience != cluster_uid or order.target.cluster_uid != cluster_uid:
        return Refused(reason="audience", sentence=f"The order is for cluster {order.audience}; this is {cluster_uid}.")
    if order.catalogue_version != CATALOGUE_VERSION:
        versions = f"{order.catalogue_version!r}, this executor {CATALOGUE_VERSION!r}"
        return Refused(reason="catalogue", sentence=f"The order speaks catalogue version {versions}; run the same version of both.")
    if now > order.expires_at + SKEW:
        return Refused(reason="expired", sentence=f"The order was valid until {order.expires_at:%H:%M:%S} UTC; nothing was done.")
    if now < order.not_before - SKEW:
        return Refused(reason="not_yet", sentence=f"The order is valid from {order.not_before:%H:%M:%S} UTC; check both clocks.")
    return _names(order) or _consent(order) or _plan(order) or _checks(order)


def _names(order: Order) -> Refused | None:
    target = order.target
    pods = [step.pod for step in order.steps if step.pod is not None]
    if is_dns_label(target.namespace) and is_dns_subdomain(target.name) and all(is_dns_subdomain(pod) for pod in pods):
        return None
    return Refused(reason="names", sentence="A name in the order is not a Kubernetes name.")


def _consent(order: Order) -> Refused | None:
    if order.mode == "approved" and not order.approvals:
        return Refused(reason="approvals", sentence="The order says that people approved it and names nobody.")
    if order.mode == "auto" and isinstance(order.action, Scale) and not order.action.upward:
        return Refused(reason="approvals", sentence="Scaling down is never automatic.")
    return None


def _plan(order: Order) -> Refused | None:
    """Exactly the steps that the action and the mode allow, each with what it needs."""
    kinds = [step.kind for step in order.steps]
    held = False
    match order.action:
        case RestartWorkload(first_pod=first):
            if order.mode == "auto":
                held = kinds == [StepKind.OPEN, StepKind.EVICT, StepKind.STAMP] and _evicts(order.steps, first)
            else:
                held = _after_open(kinds) in ([StepKind.STAMP], [StepKind.EVICT, StepKind.STAMP]) and _evicts(order.steps, first)
        case RestartPod(pod=pod, pod_uid=uid):
            named = [(step.pod, step.pod_uid) for step in order.steps if step.kind is StepKind.EVICT]
            held = kinds == [StepKind.OPEN, StepKind.EVICT] and named == [(pod, uid)]
        case Scale(from_replicas=before, to_replicas=after):
            scales = [step for step in order.steps if step.kind is StepKind.SCALE]
            told = [(step.from_replicas, step.to_replicas) for step in scales] == [(before, after)]
            held = _after_open(kinds) == [StepKind.SCALE] and told and (order.from_replicas, order.to_replicas) == (before, after)
    if held:
        return None
    steps = ", ".join(kinds)
    return Refused(reason="plan", sentence=f"{order.action.action.value} ({order.mode}) may not have the plan: {steps}.")


def _after_open(kinds: list[StepKind]) -> list[StepKind]:
    return kinds[1:] if kinds[:1] == [StepKind.OPEN] else kinds


def _evicts(steps: Iterable[PlanStep], pod: str | None) -> bool:
    """Whether every eviction is of the pod that the action names, or leaves the choice to this executor."""
    return all(step.pod in (None, pod) for step in steps if step.kind is StepKind.EVICT)


def _checks(order: Order) -> Refused | None:
    names = [check.name for check in order.checks]
    if len(set(names)) != len(names):
        return Refused(reason="checks", sentence="Two checks of the order have the same name.")
    for check in order.checks:
        if check.source is CheckSource.KUBERNETES and check.fact is None:
            return Refused(reason="checks", sentence=f"Check {check.name} reads Kubernetes but names no fact.")
        if check.source is CheckSource.PROMETHEUS and not check.query:
            return Refused(reason="checks", sentence=f"Check {check.name} reads Prometheus but has no query.")
    oracles = {check.oracle for check in order.checks}
    if Oracle.COMPONENT not in oracles:
        return Refused(reason="checks", sentence="No check reads the workload itself.")
    return None


def missing_oracles(order: Order, *, service_level: bool) -> tuple[str, ...]:
    """Oracles that an automatic order must have and has not."""
    needed = {Oracle.ALERT, Oracle.COMPONENT} | ({Oracle.SERVICE_LEVEL} if service_level else set())
    return tuple(sorted(oracle.value for oracle in needed - {check.oracle for check in order.checks}))
