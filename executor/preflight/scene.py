"""What preflight looks at, and the registry of reasons."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from catalog.actions import RestartPod, RestartWorkload, Scale
from catalog.orders import Order, PlanStep, StepKind
from catalog.targets import TargetFacts
from executor.bounds import Bounds
from executor.transactions import Refused
from sources.errors import SourceUnavailable
from sources.kubernetes import JsonObject
from sources.workloads import WorkloadView

_T = TypeVar("_T")


class CannotTell(Exception):
    """A part that a reason needs could not be read. The message says which and why."""


@dataclass(frozen=True)
class Scene:
    """One order before the live objects, and what the journal says of the mark that was found."""

    order: Order
    view: WorkloadView
    facts: TargetFacts
    bounds: Bounds
    steps: tuple[PlanStep, ...]
    mark_known: bool = False

    @property
    def auto(self) -> bool:
        return self.order.mode == "auto"

    @property
    def restart(self) -> bool:
        return isinstance(self.order.action, RestartWorkload)

    @property
    def scale(self) -> Scale | None:
        return self.order.action if isinstance(self.order.action, Scale) else None

    @property
    def restart_pod(self) -> RestartPod | None:
        return self.order.action if isinstance(self.order.action, RestartPod) else None

    @property
    def evictions(self) -> tuple[PlanStep, ...]:
        return tuple(step for step in self.steps if step.kind is StepKind.EVICT)

    @property
    def workload(self) -> JsonObject:
        """The live object; asked only after `target.gone` has passed."""
        return known(self.view.workload, "the workload") or {}

    @property
    def title(self) -> str:
        return self.order.target.title


def resolved_steps(order: Order, view: WorkloadView) -> tuple[PlanStep, ...]:
    """The plan with every eviction naming one live pod by UID: the pod that the order names, else the oldest.

    What cannot be resolved stays open, and is refused as `pod_changed`.
    """
    pods = view.pods if isinstance(view.pods, list) else []
    by_age = sorted(pods, key=lambda pod: (str(pod["metadata"].get("creationTimestamp") or ""), str(pod["metadata"].get("name"))))
    uids = {str(pod["metadata"].get("name")): str(pod["metadata"].get("uid")) for pod in by_age}
    steps: list[PlanStep] = []
    for step in order.steps:
        if step.kind is StepKind.EVICT:
            name = step.pod or next(iter(uids), None)
            step = step.model_copy(update={"pod": name, "pod_uid": step.pod_uid or uids.get(name or "")})
        steps.append(step)
    return tuple(steps)


Reason = Callable[[Scene], Refused | None]
REASONS: dict[str, Reason] = {}


def reason(name: str) -> Callable[[Callable[[Scene], str | None]], Reason]:
    """Register a reason: the function answers with a sentence when the order must be refused for `name`."""

    def register(ask: Callable[[Scene], str | None]) -> Reason:
        def asked(scene: Scene) -> Refused | None:
            sentence = ask(scene)
            return None if sentence is None else Refused(reason=name, sentence=sentence)

        asked.__doc__, asked.__module__ = ask.__doc__, ask.__module__
        REASONS[name] = asked
        return asked

    return register


def known(part: _T | SourceUnavailable | None, what: str) -> _T:
    """The part, which was read.

    Raises:
        CannotTell: it was not.
    """
    if part is None:
        raise CannotTell(f"{what} is not known")
    if isinstance(part, SourceUnavailable):
        raise CannotTell(f"{what}: {part}")
    return part
