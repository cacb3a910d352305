"""Anti-actions: what would do harm here, and why. As important as the action.

Some hold by the facts whatever the cause (a pod that would be refused if it were made again forbids any restart); others follow
from the cause (a restart brings a bad release back as it was).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from catalog.actions import RemediationAction
from catalog.diagnoses import AntiAction, Family
from sources.figures import TroubleKind, rolling_out, single_outlier, troubles
from sources.readings import WorkloadReading
from triage.symptoms import Symptoms
from triage.vocabulary import kinds

RESTARTS = (RemediationAction.RESTART_WORKLOAD, RemediationAction.RESTART_POD)
LEAK_WINDOW = timedelta(hours=6)
_BY_FAMILY: dict[Family, tuple[tuple[RemediationAction, ...], str]] = {
    Family.BAD_RELEASE: (
        (*RESTARTS, RemediationAction.SCALE),
        "new pods come from the same template and configuration and would fail the same way",
    ),
    Family.DATA_FAULT: ((*RESTARTS, RemediationAction.SCALE), "the data are at fault, nothing shows that the workload is"),
    Family.NODE_FAULT: (
        (RemediationAction.RESTART_WORKLOAD, RemediationAction.DRAIN_NODE),
        "the fault is the node's; moving pods in a hurry takes capacity that may be the last",
    ),
    Family.CAPACITY: (RESTARTS, "a restart takes capacity away while there is too little of it"),
    Family.INTENDED: ((*RESTARTS, RemediationAction.SCALE), "somebody means it to be so"),
    Family.QUOTA: ((*RESTARTS, RemediationAction.SCALE), "the quota would refuse the new pods"),
    Family.SCHEDULING: ((*RESTARTS, RemediationAction.SCALE), "new pods would find no node either"),
    Family.AUTOSCALER_LIMIT: ((RemediationAction.SCALE,), "the autoscaler would set the replicas back"),
    Family.DEPENDENCY: (RESTARTS, "the fault lies in what it calls; a restart adds a cold start to it"),
    Family.SELF_RESOLVED: ((*RESTARTS, RemediationAction.SCALE), "it is over"),
    Family.CONNECTION_EXHAUSTION: ((RemediationAction.SCALE,), "every new replica would take more connections"),
    Family.STORAGE: (RESTARTS, "the volume is at fault; a restarted pod may not get it back"),
}


def standing_cautions(symptoms: Symptoms) -> tuple[AntiAction, ...]:
    """What the facts forbid, whatever the cause."""
    found: list[AntiAction] = list(_alert_cautions(symptoms))
    workload = symptoms.workload
    if workload is not None and workload.exists:
        found += _recreation_cautions(workload)
        found += _workload_cautions(symptoms, workload)
    return _distinct(found)


def family_cautions(family: Family, symptoms: Symptoms) -> tuple[AntiAction, ...]:
    """What this cause forbids."""
    found: list[AntiAction] = []
    actions, reason = _BY_FAMILY.get(family, ((), ""))
    found += [AntiAction(action=action, reason=reason) for action in actions]
    workload = symptoms.workload
    if family is Family.OUT_OF_MEMORY and workload is not None:
        found.append(AntiAction(action=RemediationAction.SCALE, reason="every replica has the same limit and would run into it"))
        if limit_too_low(workload):
            reason = "it is killed shortly after every start: a restart leaves the limit as low as it is"
            found += [AntiAction(action=action, reason=reason) for action in RESTARTS]
    if family is Family.WEDGED and workload is not None and (odd := single_outlier(workload, symptoms.measures)):
        reason = f"only pod {odd[0]} is ill, its siblings are fine"
        found.append(AntiAction(action=RemediationAction.RESTART_WORKLOAD, reason=reason))
    return _distinct(found)


def limit_too_low(workload: WorkloadReading) -> bool:
    """Its containers are OOMKilled within three minutes of their start: it never fits, there is no leak to wait for."""
    killed = [trouble for trouble in troubles(workload) if trouble.kind is TroubleKind.OUT_OF_MEMORY]
    return bool(killed) and all(trouble.ran_seconds is not None and trouble.ran_seconds < 180 for trouble in killed)


def _recreation_cautions(workload: WorkloadReading) -> Iterator[AntiAction]:
    """Reasons why a pod that runs now would not come back."""
    full = next((f"quota {quota.name} is used up ({', '.join(quota.full)})" for quota in workload.quotas if quota.full), "")
    webhook = next((event for event in workload.events if "failed calling webhook" in event.message), None)
    kinds_now = {trouble.kind: trouble for trouble in troubles(workload)}
    if full:
        for action in (*RESTARTS, RemediationAction.SCALE):
            yield AntiAction(action=action, reason=f"{full}: a new pod would be refused")
    if webhook is not None:
        for action in (*RESTARTS, RemediationAction.SCALE):
            yield AntiAction(action=action, reason="an admission webhook does not answer: a new pod would be refused")
    for kind, words in (
        (TroubleKind.IMAGE, "a new pod would not get its image"),
        (TroubleKind.CONFIG, "a new pod would miss its configuration"),
        (TroubleKind.VOLUME, "a new pod would wait for its volume"),
    ):
        if kind in kinds_now:
            for action in RESTARTS:
                yield AntiAction(action=action, reason=f"{words} ({kinds_now[kind].detail[:120]})")
    if TroubleKind.UNSCHEDULABLE in kinds_now or (workload.nodes and all(node.cordoned for node in workload.nodes)):
        for action in (*RESTARTS, RemediationAction.SCALE):
            yield AntiAction(action=action, reason="a new pod would find no node")


def _workload_cautions(symptoms: Symptoms, workload: WorkloadReading) -> Iterator[AntiAction]:
    if workload.data_on_empty_dir:
        for action in RESTARTS:
            yield AntiAction(action=action, reason="its pods keep files on an emptyDir, which a restart empties")
    if workload.autoscalers:
        name = workload.autoscalers[0].name
        yield AntiAction(action=RemediationAction.SCALE, reason=f"autoscaler {name} owns the replicas and would set them back")
    if any(budget.allowed == 0 for budget in workload.budgets):
        budget = next(budget for budget in workload.budgets if budget.allowed == 0)
        yield AntiAction(action=RemediationAction.RESTART_POD, reason=f"disruption budget {budget.name} allows no eviction now")
    if workload.paused:
        yield AntiAction(
            action=RemediationAction.RESTART_WORKLOAD,
            reason="the Deployment is paused: a restart would wait for whoever resumes it",
        )
    if rolling_out(workload):
        for action in (RemediationAction.RESTART_WORKLOAD, RemediationAction.SCALE):
            yield AntiAction(action=action, reason="a roll-out is in progress")
    restarted = workload.restarts_since(symptoms.at - LEAK_WINDOW)
    if restarted >= 2 and "memory" in kinds(symptoms.alert_names):
        reason = f"it was restarted {restarted} times within 6 h and runs out of memory again: people must look at the leak"
        for action in RESTARTS:
            yield AntiAction(action=action, reason=reason)


def _alert_cautions(symptoms: Symptoms) -> Iterator[AntiAction]:
    if "connections" in kinds(symptoms.alert_names):
        yield AntiAction(
            action=RemediationAction.SCALE, reason="connections are exhausted: every new replica would take more of them"
        )
    if any("Inodes" in name or "OutOfFiles" in name or "FilesFilling" in name for name in symptoms.alert_names):
        yield AntiAction(
            action=RemediationAction.EXPAND_PVC, reason="inodes run out, not bytes: a larger volume does not mend that"
        )


def _distinct(found: list[AntiAction]) -> tuple[AntiAction, ...]:
    """One reason per action, the first."""
    first: dict[RemediationAction, AntiAction] = {}
    for caution in found:
        first.setdefault(caution.action, caution)
    return tuple(first.values())
