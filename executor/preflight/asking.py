"""The two questions that only the server can answer: does our fence stand, and would it take this very write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from catalog.marks import TXN_ANNOTATION
from catalog.orders import Order, PlanStep, StepKind
from executor.effects import JsonObject, TemplateUnsuitable, forbidden_patch, patch_for
from executor.transactions import Refused, Write, plan_kind
from executor.writing import KubernetesWriter, dry_run_refusal, is_our_denial
from sources.kubernetes import object_path

FENCE_GOOD_FOR = 3600.0
"""Seconds for which a denial counts: the fence is tried before the first write in a namespace, and hourly."""


class FenceProbe:
    """Tries, with a dry run of a forbidden patch, whether the admission policy denies this account what it must not do."""

    def __init__(self, writer: KubernetesWriter, monotonic: Callable[[], float]) -> None:
        self._writer = writer
        self._monotonic = monotonic
        self._denied: dict[str, float] = {}

    async def refusal(self, order: Order) -> Refused | None:
        """None when our own denial was seen here within the hour: no denial, no writes."""
        namespace = order.target.namespace
        seen = self._denied.get(namespace)
        if seen is not None and self._monotonic() - seen < FENCE_GOOD_FOR:
            return None
        path = object_path("apps/v1", "deployments", order.target.name, namespace)
        answer = await self._writer.patch(path, forbidden_patch(), dry_run=True)
        if is_our_denial(answer):
            self._denied[namespace] = self._monotonic()
            return None
        self._denied.pop(namespace, None)
        sentence = (
            f"A forbidden patch was not denied by our admission policy in namespace {namespace}; install deploy/ and try again."
        )
        return Refused(reason="no_fence", sentence=sentence)


async def dry_run(
    writer: KubernetesWriter, order: Order, steps: Iterable[PlanStep], workload: JsonObject, transaction_id: str
) -> Refused | None:
    """Send every write of the plan with `dryRun=All`; the answer of the first that would be refused."""
    try:
        return await _dry_run(writer, order, steps, workload, transaction_id)
    except TemplateUnsuitable as error:
        return Refused(reason="template", sentence=f"It cannot be restarted by a stamp: {error}.")


async def _dry_run(
    writer: KubernetesWriter, order: Order, steps: Iterable[PlanStep], workload: JsonObject, transaction_id: str
) -> Refused | None:
    path = object_path("apps/v1", "deployments", order.target.name, order.target.namespace)
    metadata: Mapping[str, JsonObject] = workload["metadata"]
    annotations = metadata.get("annotations")
    mark = (annotations or {}).get(TXN_ANNOTATION)
    for step in steps:
        if step.kind is StepKind.EVICT:
            answer = await writer.evict(order.target.namespace, step.pod or "", step.pod_uid or "", dry_run=True)
        else:
            write = Write(
                n=1,
                kind=plan_kind(step) if annotations is not None else "open",
                mark_before=str(mark) if mark is not None else None,
                mark_after=f"open/{transaction_id}/1",
                from_replicas=step.from_replicas,
                to_replicas=step.to_replicas,
            )
            patch = patch_for(
                write,
                transaction_id=transaction_id,
                uid=str(metadata["uid"]),
                template=workload["spec"]["template"],
                annotations_exist=annotations is not None,
            )
            answer = await writer.patch(path, patch, dry_run=True)
        refused = dry_run_refusal(answer)
        if refused:
            return Refused(reason=refused[0], sentence=refused[1])
    return None
