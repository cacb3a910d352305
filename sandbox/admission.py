"""The executor's fence, enforced as the shipped ValidatingAdmissionPolicies would: what its account may write, and where.

In force while the policy binding of the same name is in the store, as in a real cluster: delete the binding and the fence is
gone. Other accounts are never concerned. The rules are those of the transaction design: on workloads only annotations of ours,
the restart stamp on the pod template and replicas within bounds, in namespaces that opted in or on an object whose transaction
is open (opting out stops beginnings, not endings); on pods only evictions and graceful, named deletions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from catalog.marks import OPT_IN_LABEL, OPT_IN_VALUE, RESTART_ANNOTATION, TXN_ANNOTATION, open_transaction
from sandbox.hooks import Review
from sandbox.kinds import ADMISSION_BINDINGS, NAMESPACES
from sandbox.statuses import Forbidden, Invalid, Json, details_of
from sandbox.store import Store

WORKLOADS_POLICY = "sre-ladder-executor-workloads"
PODS_POLICY = "sre-ladder-executor-pods"
EXECUTOR_ACCOUNT = "system:serviceaccount:sre-ladder:executor"
CAP_ANNOTATION = "sre-ladder.dev/max-replicas"
DEFAULT_CAP = 20
MAX_STEP = 5
_OURS = "sre-ladder.dev/"
_WORKLOADS = ("deployments", "statefulsets", "daemonsets", "replicasets", "controllerrevisions")
_DAEMON_SET_COUNTER = "deprecated.daemonset.template.generation"


@dataclass(frozen=True)
class Fence:
    """The admission of the emulated cluster; use an instance as `Hooks.admission`."""

    store: Store
    account: str = EXECUTOR_ACCOUNT

    def __call__(self, review: Review) -> None:
        """Refuse what the executor's account may not write.

        Raises:
            Forbidden: a rule denies it. Invalid: a rule cannot be evaluated, which denies as well.
        """
        if review.account.name != self.account:
            return
        if review.kind.group == "apps" and review.kind.plural in _WORKLOADS:
            self._judge(review, WORKLOADS_POLICY, self._workload_problem)
        elif review.kind.key == ("", "pods"):
            self._judge(review, PODS_POLICY, self._pod_problem)

    def _judge(self, review: Review, policy: str, problem_of: Any) -> None:
        if self.store.find(ADMISSION_BINDINGS, "", policy) is None:
            return
        try:
            problem = problem_of(review)
        except ValueError as error:
            raise _denial(review, policy, str(error), Invalid) from error
        if problem:
            raise _denial(review, policy, f"sre-ladder: {problem}", Forbidden)

    # -- workloads ------------------------------------------------------------

    def _workload_problem(self, review: Review) -> str | None:
        kinds = ("deployments", "statefulsets", "daemonsets")
        updates = review.operation == "UPDATE" and review.kind.plural in kinds and review.subresource in ("", "scale")
        if not updates or review.new is None or review.old is None:
            return "the executor may only update deployments, statefulsets, daemonsets and their scale"
        if not self._opted_in(review.namespace) and not self._transaction_open(review):
            return f"namespace {review.namespace} is not opted in (label {OPT_IN_LABEL}={OPT_IN_VALUE})"
        if review.subresource == "":
            problem = _content_problem(review.new, review.old, review.kind.plural)
            if problem:
                return problem
        return self._replicas_problem(review.new, review.old, review.namespace)

    def _opted_in(self, namespace: str) -> bool:
        found = self.store.find(NAMESPACES, "", namespace)
        return found is not None and found["metadata"].get("labels", {}).get(OPT_IN_LABEL) == OPT_IN_VALUE

    def _transaction_open(self, review: Review) -> bool:
        """Whether the stored object says that a transaction of ours is open on it. A foreign mark does not count."""
        stored = self.store.find(review.kind, review.namespace, review.name)
        mark = _annotations(stored["metadata"]).get(TXN_ANNOTATION) if stored else None
        try:
            return open_transaction(mark) is not None
        except ValueError:
            return False

    def _replicas_problem(self, new: Json, old: Json, namespace: str) -> str | None:
        before, after = old["spec"].get("replicas", 0), new["spec"].get("replicas", 0)
        if before == after:
            return None
        cap = self._cap(namespace)
        small = after <= 2 * before and before <= 2 * after and abs(after - before) <= MAX_STEP
        if 1 <= after <= cap and small:
            return None
        bounds = f"at least 1, at most double/half and {MAX_STEP} a step, at most {cap}"
        return f"replicas {before} -> {after} is not allowed: {bounds}"

    def _cap(self, namespace: str) -> int:
        found = self.store.find(NAMESPACES, "", namespace)
        text = _annotations(found["metadata"]).get(CAP_ANNOTATION) if found else None
        if text is None:
            return DEFAULT_CAP
        if not text.isdecimal():
            raise ValueError("composited variable \"maxReplicas\" fails to evaluate: type conversion error from 'string' to 'int'")
        return int(text)

    # -- pods ------------------------------------------------------------

    def _pod_problem(self, review: Review) -> str | None:
        deletes = review.operation == "DELETE" and not review.subresource
        if not deletes and not (review.operation == "CREATE" and review.subresource == "eviction"):
            return "the executor may only delete or evict pods"
        if not self._opted_in(review.namespace):
            return f"namespace {review.namespace} is not opted in (label {OPT_IN_LABEL}={OPT_IN_VALUE})"
        return _deletion_problem(review) if deletes else None


def _deletion_problem(review: Review) -> str | None:
    owners = (review.old or {}).get("metadata", {}).get("ownerReferences", ())
    replaced = ("ReplicaSet", "StatefulSet", "DaemonSet")
    if not any(owner.get("controller") and owner["kind"] in replaced for owner in owners):
        return "only pods owned by a ReplicaSet, StatefulSet or DaemonSet may be deleted"
    if review.options.get("gracePeriodSeconds", 1) <= 0:
        return "no force deletion (gracePeriodSeconds 0)"
    if not (review.options.get("preconditions") or {}).get("uid"):
        return "a pod delete must carry preconditions.uid"
    return None


def _content_problem(new: Json, old: Json, plural: str) -> str | None:
    if _apart(new["spec"], "replicas", "template") != _apart(old["spec"], "replicas", "template"):
        return "only spec.replicas and the template's restart annotation may change in spec"
    template, before = new["spec"]["template"], old["spec"]["template"]
    if template.get("spec") != before.get("spec"):
        return _template_problem(template["spec"], before["spec"])
    labels, kept = template.get("metadata", {}), before.get("metadata", {})
    if _apart(labels, "annotations") != _apart(kept, "annotations"):
        return "the pod template labels may not change"
    if _apart(_annotations(labels), RESTART_ANNOTATION) != _apart(_annotations(kept), RESTART_ANNOTATION):
        return f"only {RESTART_ANNOTATION} may change among the pod template annotations"
    return _metadata_problem(new["metadata"], old["metadata"], plural)


def _template_problem(spec: Json, before: Json) -> str:
    images = [[_apart(item, "image") for item in one.get("containers", ())] for one in (spec, before)]
    if images[0] == images[1] and _apart(spec, "containers") == _apart(before, "containers"):
        return "the image may not change"
    return "the pod template spec (env, volumes, resources, ...) may not change"


def _metadata_problem(metadata: Json, before: Json, plural: str) -> str | None:
    bookkeeping = ("annotations", "generation", "resourceVersion", "managedFields")
    same = _apart(metadata, *bookkeeping) == _apart(before, *bookkeeping)
    if same and _foreign(metadata, plural) == _foreign(before, plural):
        return None
    return "in metadata only sre-ladder.dev/* annotations may change"


def _foreign(metadata: Json, plural: str) -> Json:
    counter = _DAEMON_SET_COUNTER if plural == "daemonsets" else ""
    return {key: value for key, value in _annotations(metadata).items() if not key.startswith(_OURS) and key != counter}


def _apart(value: Json, *without: str) -> Json:
    return {key: item for key, item in value.items() if key not in without}


def _annotations(metadata: Json) -> dict[str, str]:
    return metadata.get("annotations") or {}


def _denial(review: Review, policy: str, why: str, refusal: type[Forbidden] | type[Invalid]) -> Forbidden | Invalid:
    told = f"ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied request: {why}"
    name = review.name or "Unknown"
    message = f'{review.kind.resource} "{name}" is forbidden: {told}'
    return refusal(message, details_of(review.kind, name, causes=[{"message": told}]))
