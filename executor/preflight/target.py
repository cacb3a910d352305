"""Is it the object that was decided on, of a kind we act on, in a namespace that opted in, and nobody else's?"""

from __future__ import annotations

from catalog.marks import OPT_IN_LABEL, OPT_IN_VALUE, open_transaction
from catalog.targets import TargetKind
from executor.preflight.scene import REASONS, Scene, known, reason
from executor.transactions import Refused
from sources.rollouts import template_hash


@reason("gone")
def gone(scene: Scene) -> str | None:
    """Deleted, being deleted, or made anew under the same name."""
    if not scene.facts.exists:
        return f"{scene.title} does not exist or is being deleted."
    if scene.order.target.uid is None:
        return f"The order does not name the UID of {scene.title}."
    if scene.facts.target.uid != scene.order.target.uid:
        return f"{scene.title} was deleted and made anew since the decision."
    return None


@reason("bare_pod")
def bare_pod(scene: Scene) -> str | None:
    if scene.order.target.kind is TargetKind.POD:
        return "A pod without a controller would not come back."
    return None


@reason("job")
def job(scene: Scene) -> str | None:
    if scene.order.target.kind in (TargetKind.JOB, TargetKind.CRONJOB):
        return "A Job runs to its end; it is not restarted or scaled."
    return None


@reason("daemon_set")
def daemon_set(scene: Scene) -> str | None:
    if scene.order.target.kind is TargetKind.DAEMONSET:
        return "A DaemonSet is not restarted or scaled by this executor."
    return None


@reason("stateful_set")
def stateful_set(scene: Scene) -> str | None:
    if scene.order.target.kind is TargetKind.STATEFULSET:
        return "A StatefulSet is not changed by this executor: its members are not interchangeable."
    return None


@reason("kind")
def kind(scene: Scene) -> str | None:
    if scene.order.target.kind is not TargetKind.DEPLOYMENT:
        return f"{scene.order.target.kind.value} is not a kind that this executor changes."
    return None


@reason("not_opted_in")
def not_opted_in(scene: Scene) -> str | None:
    if known(scene.facts.opted_in, "the namespace's opt-in label"):
        return None
    return f"Namespace {scene.order.target.namespace} is not opted in; an owner sets the label {OPT_IN_LABEL}={OPT_IN_VALUE}."


def foreign_transaction(scene: Scene) -> Refused | None:
    """A mark that this journal does not know: somebody else's transaction, which is a conflict and not a refusal."""
    try:
        transaction_id = open_transaction(scene.facts.txn)
    except ValueError as error:
        return Refused(reason="foreign_writer", sentence=f"{error}.", foreign=True)
    if transaction_id is None or scene.mark_known:
        return None
    sentence = f"{scene.title} carries the open transaction {transaction_id}, which this journal does not know."
    return Refused(reason="foreign_writer", sentence=sentence, foreign=True)


REASONS["foreign_writer"] = foreign_transaction


@reason("stale_target")
def stale_target(scene: Scene) -> str | None:
    """The field this action writes is not what it was when the decision was made."""
    scale = scene.scale
    if scale is not None and scene.facts.desired != scale.from_replicas:
        return f"{scene.title} has {scene.facts.desired} replicas now; the order was for {scale.from_replicas}."
    expected = scene.order.template_hash
    if scale is None and expected is not None and template_hash(scene.workload) != expected:
        return f"The pod template of {scene.title} changed since the decision."
    return None


@reason("pod_changed")
def pod_changed(scene: Scene) -> str | None:
    """The pod to evict must be a live pod of this workload, by UID."""
    if not scene.evictions:
        return None
    pods = {str(pod["metadata"].get("name")): str(pod["metadata"].get("uid")) for pod in known(scene.view.pods, "the pods")}
    for step in scene.evictions:
        if step.pod is None or step.pod_uid is None or pods.get(step.pod) != step.pod_uid:
            return f"Pod {step.pod or '(none)'} is not a live pod of {scene.title}, or no longer the one that was named."
    return None
