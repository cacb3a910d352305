"""What a cause calls for: one action of the catalogue and a statement in plain words, per family.

Only three actions can ever be executed; the rest is named for people. Where nothing safe is known the answer is `escalate`:
a person with the facts beats a machine with a guess.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from catalog.actions import (
    Action,
    CordonNode,
    Escalate,
    FixConfig,
    NoAction,
    RaiseHpaMax,
    RaiseMemoryLimit,
    RestartPod,
    RestartWorkload,
    RollbackRelease,
    Scale,
)
from catalog.diagnoses import Family
from catalog.documents import Document
from catalog.limits import scale_breach
from catalog.targets import TargetKind
from sources.figures import forecasts, single_outlier, traffic_growth, utilisation
from triage.cautions import limit_too_low
from triage.signals import Signal
from triage.symptoms import Symptoms

COMFORTABLE = 0.70
SATURATED_FOR_SURE = 0.90
STEP = 4
CAP = 20


class Remedy(Document):
    """What to do and how to say what is wrong."""

    action: Action
    statement: str


def remedy(family: Family, symptoms: Symptoms, signals: Sequence[Signal]) -> Remedy:
    """The remedy of one family, given the signs that speak for it, strongest first."""
    said = signals[0].sentence if signals else ""
    action = _ACTIONS[family](symptoms) if family in _ACTIONS else Escalate(reason=_ESCALATIONS.get(family, ""))
    statement = f"{_NAMES[family]}: {said}" if said else f"{_NAMES[family]}, by the alert's name alone"
    return Remedy(action=action, statement=statement[:500])


def _bad_release(symptoms: Symptoms) -> Action:
    workload = symptoms.workload
    before = workload.before_release if workload else None
    if workload is not None and symptoms.target.kind is TargetKind.DEPLOYMENT and before is not None:
        return RollbackRelease(to_revision=before.revision)
    return FixConfig(what="no earlier release is kept to return to: its template or configuration must be corrected")


def _out_of_memory(symptoms: Symptoms) -> Action:
    workload = symptoms.workload
    if workload is None:
        return Escalate(reason="it runs out of memory; which workload could not be read")
    if limit_too_low(workload):
        hungry = next((c for pod in workload.pods for c in pod.containers if c.ended and c.ended.reason == "OOMKilled"), None)
        limit = hungry.memory_limit if hungry else None
        return RaiseMemoryLimit(container=hungry.name if hungry else None, to_bytes=2 * limit if limit else None)
    if symptoms.target.kind not in (TargetKind.DEPLOYMENT, TargetKind.STATEFULSET):
        return Escalate(reason=f"a {symptoms.target.kind.value} that runs out of memory is restarted by people")
    hottest = max(forecasts(workload, symptoms.measures), key=lambda forecast: (forecast.share, forecast.pod), default=None)
    return RestartWorkload(first_pod=hottest.pod if hottest else None)


def _wedged(symptoms: Symptoms) -> Action:
    workload = symptoms.workload
    if workload is None or symptoms.target.kind not in (TargetKind.DEPLOYMENT, TargetKind.STATEFULSET):
        return Escalate(reason="what owns the pod is not a workload that restarts safely")
    odd = single_outlier(workload, symptoms.measures)
    if symptoms.target.kind is TargetKind.STATEFULSET:
        return Escalate(reason="members of a StatefulSet are restarted by people, who know its quorum")
    if odd is None:
        return RestartWorkload(first_pod=next((pod.name for pod in workload.pods if not pod.ready), None))
    uid = next((pod.uid for pod in workload.pods if pod.name == odd[0]), None)
    return RestartPod(pod=odd[0], pod_uid=uid)


def _capacity(symptoms: Symptoms) -> Action:
    workload = symptoms.workload
    if workload is None or symptoms.target.kind is not TargetKind.DEPLOYMENT or not workload.desired:
        return Escalate(reason="it needs more capacity; what could be scaled is not known")
    if workload.autoscalers:
        return _autoscaler_limit(symptoms)
    wanted = wanted_replicas(symptoms)
    if wanted is None:
        return Escalate(reason="how much capacity is missing cannot be computed without its CPU figures")
    if scale_breach(workload.desired, wanted, minimum=1, maximum=CAP, step=STEP) is not None:
        return Escalate(reason=f"{workload.desired} replicas are as far as scaling goes here")
    return Scale(from_replicas=workload.desired, to_replicas=wanted)


def wanted_replicas(symptoms: Symptoms) -> int | None:
    """Replicas at which the load would use at most 70 % of the CPU, within one step (at most double, at most four more).

    At 90 % and above the CPU figure is a floor of the demand, not its size: the growth of traffic counts then, or doubling.
    """
    workload = symptoms.workload
    used = utilisation(workload, symptoms.measures) if workload else None
    if workload is None or used is None or not workload.desired:
        return None
    now = workload.desired
    need = now * used / COMFORTABLE
    if used >= SATURATED_FOR_SURE:
        need = max(need, now * (traffic_growth(symptoms.measures) or 2.0))
    return min(max(math.ceil(need - 1e-9), now + 1), now + min(STEP, now))


def _autoscaler_limit(symptoms: Symptoms) -> Action:
    workload = symptoms.workload
    full = next((scaler for scaler in workload.autoscalers if scaler.at_maximum), None) if workload else None
    if full is None:
        return Escalate(reason="an autoscaler owns the replicas and has not reached its maximum")
    return RaiseHpaMax(autoscaler=full.name, to_max=full.maximum + 2)


def _node_fault(symptoms: Symptoms) -> Action:
    if symptoms.target.kind is TargetKind.NODE:
        return CordonNode(node=symptoms.target.name)
    lost = [node.name for node in symptoms.workload.nodes if node.ready in ("False", "Unknown")] if symptoms.workload else []
    return Escalate(
        reason=f"node {', '.join(lost)} must be looked at; its pods move by themselves" if lost else "the node must be looked at"
    )


def _data_fault(symptoms: Symptoms) -> Action:
    not_a_number = any(rule.unknown in ("nan", "inf") for rule in symptoms.rules)
    return NoAction() if not_a_number else Escalate(reason="the telemetry must be mended; the workload is not touched on its word")


def _nothing(symptoms: Symptoms) -> Action:
    return NoAction()


_ACTIONS: dict[Family, Callable[[Symptoms], Action]] = {
    Family.BAD_RELEASE: _bad_release,
    Family.OUT_OF_MEMORY: _out_of_memory,
    Family.WEDGED: _wedged,
    Family.CAPACITY: _capacity,
    Family.AUTOSCALER_LIMIT: _autoscaler_limit,
    Family.NODE_FAULT: _node_fault,
    Family.DATA_FAULT: _data_fault,
    Family.INTENDED: _nothing,
    Family.SELF_RESOLVED: _nothing,
}
_ESCALATIONS: dict[Family, str] = {
    Family.QUOTA: "the quota decides: raising it or asking for less is for whoever owns it",
    Family.SCHEDULING: "no node has room or fits; more nodes or other constraints are for people",
    Family.PROBE: "a probe kills it: whether the probe or the process is wrong is for people",
    Family.DEPENDENCY: "what it depends on must be looked at first",
    Family.NETWORK_POLICY: "access is denied by a policy, which somebody wrote on purpose or by mistake",
    Family.CERTIFICATE: "a certificate must be renewed by its issuer",
    Family.STORAGE: "its storage must be looked at: no restart gives a volume back",
    Family.CONNECTION_EXHAUSTION: "who holds the connections must be found before anything is restarted",
    Family.UNKNOWN: "no cause has been found that the sources bear out",
}
_NAMES: dict[Family, str] = {
    Family.BAD_RELEASE: "bad release or configuration",
    Family.OUT_OF_MEMORY: "out of memory",
    Family.WEDGED: "wedged or stale process",
    Family.CAPACITY: "not enough capacity for the load",
    Family.NODE_FAULT: "node fault",
    Family.DATA_FAULT: "fault of the telemetry, not of the workload",
    Family.QUOTA: "quota used up",
    Family.SCHEDULING: "pods find no node",
    Family.PROBE: "killed by its probe",
    Family.DEPENDENCY: "fault of a dependency",
    Family.NETWORK_POLICY: "denied by a policy",
    Family.CERTIFICATE: "certificate",
    Family.STORAGE: "storage",
    Family.CONNECTION_EXHAUSTION: "connections exhausted",
    Family.AUTOSCALER_LIMIT: "autoscaler at its maximum",
    Family.INTENDED: "intended, not a failure",
    Family.SELF_RESOLVED: "over by itself",
    Family.UNKNOWN: "cause unknown",
}
