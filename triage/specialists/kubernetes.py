"""Kubernetes: what the API says of the workload, its pods, revisions, nodes and quotas.

It reads states, conditions and termination reasons, not counters: forty restarts of last month say nothing about now, and exit
code 137 alone proves nothing, since a failed liveness probe kills with it too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from catalog.diagnoses import Family
from catalog.targets import WORKLOAD_KINDS, TargetKind
from sources.figures import Trouble, TroubleKind, idle_pod, quota_refusal, released_before, rolling_out, troubles
from sources.readings import WorkloadReading
from triage.signals import Ballot, Signal
from triage.specialists import SpecialistName
from triage.symptoms import Symptoms
from triage.vocabulary import kinds

# What it would see if it were there. A pod that leaks or hangs is Running and Ready, so of those it says nothing unless it sees it.
_LOOKED_FOR = (
    Family.BAD_RELEASE, Family.NODE_FAULT, Family.QUOTA, Family.SCHEDULING, Family.PROBE, Family.INTENDED, Family.AUTOSCALER_LIMIT,
    Family.STORAGE,
)  # fmt: skip
_RELEASE_SYMPTOMS = frozenset({"errors", "latency", "crash", "waiting", "unready", "rollout"})


@dataclass(frozen=True)
class KubernetesSpecialist:
    name: SpecialistName = "kubernetes"
    weight: float = 0.30

    def vote(self, symptoms: Symptoms) -> Ballot:
        if "kubernetes" in symptoms.faults or symptoms.workload is None:
            return Ballot(state="fault", note=symptoms.faults.get("kubernetes", "the Kubernetes API was not read"))
        workload = symptoms.workload
        if not workload.exists:
            return Ballot(state="voted", note=f"{symptoms.target.title} does not exist any more")
        if symptoms.target.kind is TargetKind.NODE:
            return Ballot.of(_node_signs(workload, is_target=True), (Family.NODE_FAULT,))
        if "pods" in workload.unreadable and symptoms.target.kind in WORKLOAD_KINDS:
            return Ballot(state="fault", note=f"the pods could not be read: {workload.unreadable['pods']}")
        return Ballot.of(_signs(symptoms, workload), _LOOKED_FOR)


def _signs(symptoms: Symptoms, workload: WorkloadReading) -> Iterator[Signal]:
    if workload.desired == 0:
        by = f" by {workload.replicas_set_by}" if workload.replicas_set_by else ""
        yield Signal(family=Family.INTENDED, score=0.9, sentence=f"it is scaled to 0{by}: nothing is meant to run")
        return
    found = troubles(workload)
    yield from _node_signs(workload, is_target=False)
    yield from _quota_signs(workload)
    yield from _autoscaler_signs(workload)
    yield from _pod_signs(symptoms, workload, found)
    if workload.paused:
        yield Signal(family=Family.INTENDED, score=0.4, sentence="the Deployment is paused")
    if rolling_out(workload) and not _failing_for_good(found):
        yield Signal(
            family=Family.INTENDED,
            score=0.75,
            sentence="a roll-out is under way and within its progress deadline, which is no fault yet",
        )
        return
    yield from _rollout_signs(symptoms, workload, found)
    yield from _unready_signs(workload, found)


def _failing_for_good(found: tuple[Trouble, ...]) -> bool:
    """Some pod is in a state that waiting does not mend: that is a fault within any deadline."""
    return any(trouble.kind is not TroubleKind.UNREADY for trouble in found)


def _pod_signs(symptoms: Symptoms, workload: WorkloadReading, found: tuple[Trouble, ...]) -> Iterator[Signal]:
    released = released_before(workload, symptoms.began_at)
    for kind in TroubleKind:
        same = [trouble for trouble in found if trouble.kind is kind]
        if not same:
            continue
        first = same[0]
        many = f"{len(same)} of {workload.pods_total} pods" if workload.pods_total > 1 else "its pod"
        match kind:
            case TroubleKind.IMAGE:
                yield Signal(family=Family.BAD_RELEASE, score=0.9, sentence=f"{many} cannot get the image: {first.detail}")
            case TroubleKind.CONFIG:
                yield Signal(family=Family.BAD_RELEASE, score=0.9, sentence=f"{many} cannot be configured: {first.detail}")
            case TroubleKind.VOLUME:
                yield Signal(family=Family.BAD_RELEASE, score=0.8, sentence=f"{many} wait for a volume: {first.detail}")
            case TroubleKind.CANNOT_START:
                yield Signal(family=Family.BAD_RELEASE, score=0.9, sentence=f"{many} cannot start: {first.detail}")
            case TroubleKind.OUT_OF_MEMORY:
                yield from _out_of_memory(workload, first, many, released)
            case TroubleKind.PROBE_KILL:
                yield Signal(
                    family=Family.PROBE, score=0.7, sentence=f"{many} were killed by a probe ({first.detail}), not by memory"
                )
            case TroubleKind.CRASH:
                yield from _crash(workload, same, many, released)
            case TroubleKind.KILLED:
                sentence = f"{many} were killed ({first.detail}) and nothing says by whom"
                yield Signal(family=Family.OUT_OF_MEMORY, score=0.2, sentence=sentence)
                yield Signal(family=Family.PROBE, score=0.2, sentence=sentence)
            case TroubleKind.UNSCHEDULABLE:
                unbound = "PersistentVolumeClaim" in first.detail
                family = Family.STORAGE if unbound else Family.SCHEDULING
                yield Signal(family=family, score=0.85, sentence=f"{many} find no node: {first.detail}")
            case TroubleKind.UNREADY:
                continue


def _out_of_memory(workload: WorkloadReading, first: Trouble, many: str, released: bool | None) -> Iterator[Signal]:
    lowered = lowered_limit(workload)
    if released and lowered:
        yield Signal(family=Family.BAD_RELEASE, score=0.93, sentence=f"{many} ran out of memory since the release, which {lowered}")
        yield Signal(family=Family.OUT_OF_MEMORY, score=0.8, sentence=f"{many} were OOMKilled ({first.detail})")
        return
    yield Signal(family=Family.OUT_OF_MEMORY, score=0.92, sentence=f"{many} were OOMKilled ({first.detail})")


def _crash(workload: WorkloadReading, same: list[Trouble], many: str, released: bool | None) -> Iterator[Signal]:
    detail = same[0].detail
    only_newest = all(trouble.newest for trouble in same) and any(pod.ready and pod.newest is False for pod in workload.pods)
    if only_newest:
        yield Signal(
            family=Family.BAD_RELEASE,
            score=0.93,
            sentence=f"{many} end by themselves ({detail}), all of the newest revision; older ones run",
        )
    elif released:
        yield Signal(
            family=Family.BAD_RELEASE, score=0.85, sentence=f"{many} end by themselves ({detail}) since the latest release"
        )
    else:
        yield Signal(family=Family.BAD_RELEASE, score=0.5, sentence=f"{many} end by themselves ({detail})")
        yield Signal(family=Family.DEPENDENCY, score=0.35, sentence="no release preceded it: something it needs may be missing")


def _rollout_signs(symptoms: Symptoms, workload: WorkloadReading, found: tuple[Trouble, ...]) -> Iterator[Signal]:
    progressing = workload.condition("Progressing")
    blocked = any(trouble.kind is TroubleKind.UNSCHEDULABLE for trouble in found) or quota_refusal(workload)
    if progressing and progressing.status == "False" and progressing.reason == "ProgressDeadlineExceeded" and not blocked:
        yield Signal(family=Family.BAD_RELEASE, score=0.6, sentence="the roll-out exceeded its progress deadline")
    if released_before(workload, symptoms.began_at) and kinds(symptoms.alert_names) & _RELEASE_SYMPTOMS:
        release = workload.release
        revision = f"revision {release.revision}" if release else "the latest release"
        yield Signal(family=Family.BAD_RELEASE, score=0.4, sentence=f"{revision} was released shortly before the alert")


def _unready_signs(workload: WorkloadReading, found: tuple[Trouble, ...]) -> Iterator[Signal]:
    unready = [trouble for trouble in found if trouble.kind is TroubleKind.UNREADY]
    lost = {node.name for node in workload.nodes if node.ready in ("False", "Unknown")}
    on_lost = {pod.name for pod in workload.pods if pod.node in lost}
    unready = [trouble for trouble in unready if trouble.pod not in on_lost]
    if not unready:
        return
    idle = idle_pod(workload)
    older_run = any(pod.ready and pod.newest is False for pod in workload.pods)
    if idle is not None:
        sentence = f"pod {idle} runs without restarts and is not ready, its siblings are"
        yield Signal(family=Family.WEDGED, score=0.75, sentence=sentence)
    elif older_run and all(trouble.newest for trouble in unready):
        sentence = f"{len(unready)} pods of the newest revision do not become ready; older ones are"
        yield Signal(family=Family.BAD_RELEASE, score=0.7, sentence=sentence)
    elif len(unready) == workload.pods_total:
        yield Signal(family=Family.WEDGED, score=0.4, sentence="every pod runs without restarts and none is ready")
        yield Signal(
            family=Family.DEPENDENCY, score=0.4, sentence="all pods became unready together, as when something they need is gone"
        )
    else:
        yield Signal(
            family=Family.WEDGED, score=0.35, sentence=f"{len(unready)} of {workload.pods_total} pods run and are not ready"
        )


def _node_signs(workload: WorkloadReading, *, is_target: bool) -> Iterator[Signal]:
    for node in workload.nodes:
        if node.ready in ("False", "Unknown"):
            state = "does not report" if node.ready == "Unknown" else "is not ready"
            hit = sum(1 for pod in workload.pods if pod.node == node.name and not pod.ready)
            if is_target or hit:
                tail = f", {hit} of the pods are on it" if hit else ""
                yield Signal(family=Family.NODE_FAULT, score=0.95, sentence=f"node {node.name} {state}{tail}")
        elif node.pressures:
            score = 0.7 if is_target else 0.35
            yield Signal(family=Family.NODE_FAULT, score=score, sentence=f"node {node.name} reports {', '.join(node.pressures)}")


def _quota_signs(workload: WorkloadReading) -> Iterator[Signal]:
    refusal = quota_refusal(workload)
    full = [f"{quota.name}: {', '.join(quota.full)}" for quota in workload.quotas if quota.full]
    if refusal:
        yield Signal(family=Family.QUOTA, score=0.93, sentence=f"new pods are refused: {refusal}")
    elif full and (workload.available or 0) < (workload.desired or 0):
        yield Signal(family=Family.QUOTA, score=0.4, sentence=f"a quota is used up ({'; '.join(full)})")


def _autoscaler_signs(workload: WorkloadReading) -> Iterator[Signal]:
    for autoscaler in workload.autoscalers:
        if autoscaler.at_maximum:
            sentence = f"autoscaler {autoscaler.name} is at its maximum of {autoscaler.maximum}"
            yield Signal(family=Family.AUTOSCALER_LIMIT, score=0.7, sentence=sentence)
        if autoscaler.blind:
            yield Signal(
                family=Family.DATA_FAULT, score=0.5, sentence=f"autoscaler {autoscaler.name} gets no metrics ({autoscaler.blind})"
            )


def lowered_limit(workload: WorkloadReading) -> str:
    """The memory limit that the release lowered, in words; '' when it lowered none."""
    release, before = workload.release, workload.before_release
    if release is None or before is None:
        return ""
    for container, limit in release.memory_limits.items():
        earlier = before.memory_limits.get(container)
        if earlier is not None and limit < earlier:
            return f"lowered the memory limit of {container} from {earlier // 2**20} Mi to {limit // 2**20} Mi"
        if earlier is None:
            return f"set a memory limit of {limit // 2**20} Mi on {container}"
    return ""


SPECIALIST = KubernetesSpecialist()
