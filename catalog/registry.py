"""What each remediation is: how dangerous, on what it may be used, whether it may ever be executed, and when it is right.

This table is the only place that decides it. Nothing that a model, an alert or a cluster says can change a row, and a row that
is not `executable` never becomes a proposal, a button or an order. The letters are those of the field survey: A auto-eligible,
B harmless enough for a button elsewhere, C destructive, X described but never executed, N needs Git or domain knowledge.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from catalog.actions import RemediationAction as R
from catalog.documents import Document
from catalog.targets import TargetKind as K

FieldClass = Literal["A", "B", "C", "X", "N"]


class ActionSpec(Document):
    """One action of the catalogue."""

    action: R
    title: str
    irreversible: bool = False
    target_kinds: tuple[K, ...] = ()
    executable: bool = False
    auto_eligible: bool = False
    inverse: R | None = None
    no_undo: str = ""
    verbs: tuple[str, ...] = ()
    field_class: FieldClass
    when: str
    when_not: str

    @property
    def danger(self) -> int:
        """Position on the danger scale, 0 the least: the order of `RemediationAction`."""
        return list(R).index(self.action)

    @property
    def undo(self) -> str:
        """One sentence for a card: what brings the target back, or that nothing does."""
        if self.no_undo:
            return self.no_undo
        return f"Undone by {_TITLES[self.inverse]}." if self.inverse else "Nothing to undo."


_WORKLOADS = (K.DEPLOYMENT, K.STATEFULSET, K.DAEMONSET)
_ANY = tuple(K)

_SPECS: tuple[ActionSpec, ...] = (
    ActionSpec(
        action=R.NO_ACTION,
        title="no action",
        target_kinds=_ANY,
        field_class="A",
        when="Nothing is wrong, it heals by itself, or the text named no action of this catalogue.",
        when_not="A cause is named and an action fits it.",
    ),
    ActionSpec(
        action=R.ESCALATE,
        title="hand over to people",
        target_kinds=_ANY,
        field_class="A",
        when="The cause needs judgement: capacity, quota, scheduling, a fault that came back, a contested field.",
        when_not="Never wrong; it only costs attention.",
    ),
    ActionSpec(
        action=R.FIX_CONFIG,
        title="correct the configuration",
        target_kinds=_ANY,
        no_undo="Whatever people change, they change back.",
        field_class="N",
        when="A wrong value, image, probe or reference is named by the evidence.",
        when_not="The configuration did not change and the same one works elsewhere.",
    ),
    ActionSpec(
        action=R.RESTART_POD,
        title="restart one pod",
        target_kinds=(K.DEPLOYMENT, K.STATEFULSET),
        executable=True,
        auto_eligible=True,
        no_undo="No undo: memory, emptyDir data and open connections of the pod are lost.",
        verbs=("create pods/eviction", "patch deployments"),
        field_class="A",
        when="One pod of several is wedged while its siblings are healthy.",
        when_not="The whole workload is sick, a release just went out, a budget forbids it, or the pod has no controller.",
    ),
    ActionSpec(
        action=R.SCALE,
        title="change the number of replicas",
        target_kinds=(K.DEPLOYMENT,),
        executable=True,
        auto_eligible=True,
        inverse=R.SCALE,
        verbs=("patch deployments",),
        field_class="A",
        when="Load outgrew the replicas: saturated, no errors before, every replica busy.",
        when_not="An autoscaler or Git owns the count, a dependency is the bottleneck, quota or nodes are full, 0 is intended.",
    ),
    ActionSpec(
        action=R.RESTART_WORKLOAD,
        title="restart the workload",
        target_kinds=(K.DEPLOYMENT, K.STATEFULSET),
        executable=True,
        auto_eligible=True,
        no_undo="No undo: memory, emptyDir data and open connections of every pod are lost.",
        verbs=("patch deployments", "create pods/eviction"),
        field_class="A",
        when="Most pods carry stale or exhausted state: leaked memory, expired credentials, wedged threads.",
        when_not="Configuration or code is wrong, it was restarted for the same reason before, or new pods would not be admitted.",
    ),
    ActionSpec(
        action=R.DELETE_STUCK_POD,
        title="delete a stuck pod",
        target_kinds=(K.DEPLOYMENT, K.STATEFULSET, K.DAEMONSET, K.JOB, K.POD),
        no_undo="No undo: a forced deletion can leave two writers behind.",
        field_class="B",
        when="A pod hangs in Terminating and its node is known to be gone.",
        when_not="As a general restart, or while the node may still run it.",
    ),
    ActionSpec(
        action=R.RAISE_HPA_MAX,
        title="raise the autoscaler's maximum",
        target_kinds=(K.HORIZONTAL_POD_AUTOSCALER, K.DEPLOYMENT),
        inverse=R.RAISE_HPA_MAX,
        field_class="B",
        when="The autoscaler is at its maximum and the pods are still hot.",
        when_not="A code regression burns the capacity, or nodes and quota are full.",
    ),
    ActionSpec(
        action=R.RAISE_MEMORY_LIMIT,
        title="raise the memory limit",
        target_kinds=_WORKLOADS,
        inverse=R.RAISE_MEMORY_LIMIT,
        field_class="B",
        when="Killed for memory at start-up or under normal load: the limit is too low.",
        when_not="Memory grows without bound, or a quota binds.",
    ),
    ActionSpec(
        action=R.RAISE_CPU_LIMIT,
        title="raise the CPU limit",
        target_kinds=_WORKLOADS,
        inverse=R.RAISE_CPU_LIMIT,
        field_class="B",
        when="Throttled under normal load while latency suffers.",
        when_not="Throttling without any other symptom.",
    ),
    ActionSpec(
        action=R.CORDON_NODE,
        title="cordon the node",
        target_kinds=(K.NODE,),
        field_class="B",
        no_undo="Undone by uncordon, by hand.",
        when="A node degrades while its pods are still fine.",
        when_not="Pods fail already, or the node is in planned maintenance.",
    ),
    ActionSpec(
        action=R.PATCH_CONFIGURATION,
        title="change one configuration key",
        target_kinds=(*_WORKLOADS, K.NAMESPACE),
        inverse=R.PATCH_CONFIGURATION,
        field_class="N",
        when="Exactly one bad key is identified.",
        when_not="The cause is unclear, or Git owns the object.",
    ),
    ActionSpec(
        action=R.GIT_REVERT,
        title="revert a commit",
        target_kinds=(*_WORKLOADS, K.NAMESPACE),
        inverse=R.GIT_REVERT,
        field_class="N",
        when="The bad change came through Git.",
        when_not="Git does not own the workload.",
    ),
    ActionSpec(
        action=R.ROLLBACK_RELEASE,
        title="roll back the release",
        irreversible=True,
        target_kinds=(K.DEPLOYMENT, K.STATEFULSET, K.DAEMONSET),
        no_undo="Not safely undone: what the newer release already wrote or migrated stays.",
        field_class="C",
        when="The regression began with the present revision and the revision before it was healthy.",
        when_not="Out of memory, a reference both revisions share, or no healthy earlier revision.",
    ),
    ActionSpec(
        action=R.ROLLBACK_HELM,
        title="roll back the Helm release",
        irreversible=True,
        target_kinds=(K.DEPLOYMENT, K.STATEFULSET, K.DAEMONSET, K.NAMESPACE),
        no_undo="Not safely undone: hooks and migrations of the release have run.",
        field_class="C",
        when="Helm manages it and the previous release was healthy.",
        when_not="Not installed by Helm.",
    ),
    ActionSpec(
        action=R.EXPAND_PVC,
        title="expand the volume",
        irreversible=True,
        target_kinds=(K.PERSISTENT_VOLUME_CLAIM,),
        no_undo="No undo: a volume cannot shrink, and may not grow again for hours.",
        field_class="C",
        when="The volume fills within the day and its class can expand.",
        when_not="Stale data fills it, or inodes are what ran out.",
    ),
    ActionSpec(
        action=R.RELAX_PDB,
        title="relax the disruption budget",
        target_kinds=(K.POD_DISRUPTION_BUDGET, *_WORKLOADS),
        inverse=R.RELAX_PDB,
        field_class="C",
        when="An intended drain is blocked by a budget nobody can satisfy.",
        when_not="The budget is right.",
    ),
    ActionSpec(
        action=R.REMOVE_TAINT,
        title="remove a taint",
        target_kinds=(K.NODE,),
        field_class="C",
        no_undo="Undone by setting the taint again; pods scheduled meanwhile stay.",
        when="The taint is stale.",
        when_not="A person set it for maintenance.",
    ),
    ActionSpec(
        action=R.FIX_NETWORK_POLICY,
        title="correct the network policy",
        target_kinds=(K.NAMESPACE, *_WORKLOADS),
        field_class="C",
        no_undo="Undone by the policy as it was; traffic let through meanwhile is not taken back.",
        when="A policy denies what the workload needs.",
        when_not="The isolation is intended.",
    ),
    ActionSpec(
        action=R.FIX_AUTHORIZATION_POLICY,
        title="correct the authorization policy",
        target_kinds=(K.NAMESPACE, *_WORKLOADS),
        field_class="C",
        no_undo="Undone by the policy as it was; access granted meanwhile is not taken back.",
        when="The mesh denies every request after a policy change.",
        when_not="The denial is intended.",
    ),
    ActionSpec(
        action=R.FIX_CERTIFICATE,
        title="repair the certificate",
        target_kinds=(K.NAMESPACE, *_WORKLOADS),
        field_class="N",
        no_undo="A new certificate replaces the old one.",
        when="Issuer or CA secret is missing or misnamed.",
        when_not="Validation waits for DNS.",
    ),
    ActionSpec(
        action=R.FIX_SECURITY_CONTEXT,
        title="correct the security context",
        target_kinds=_WORKLOADS,
        field_class="N",
        no_undo="Undone by the template as it was.",
        when="Admission refuses the pods for their security context.",
        when_not="The workload truly needs the privilege.",
    ),
    ActionSpec(
        action=R.REFRESH_IMAGE_PULL_SECRET,
        title="renew the image pull secret",
        target_kinds=(*_WORKLOADS, K.NAMESPACE),
        field_class="C",
        no_undo="The earlier secret cannot be brought back.",
        irreversible=True,
        when="The pull secret is gone or expired.",
        when_not="The tag is wrong, or the registry limits the rate.",
    ),
    ActionSpec(
        action=R.RESTORE_ROLE_BINDING,
        title="restore the role binding",
        target_kinds=(K.NAMESPACE, *_WORKLOADS),
        field_class="C",
        no_undo="Undone by deleting it; what was done with the rights stays done.",
        when="A binding that worked was deleted.",
        when_not="The account or the role is what is missing.",
    ),
    ActionSpec(
        action=R.FIX_ROUTE_TARGET,
        title="correct the route's target",
        target_kinds=(K.SERVICE, K.NAMESPACE),
        field_class="N",
        no_undo="Undone by the route as it was.",
        when="A route points at a Service that does not exist.",
        when_not="The Service is down for another reason.",
    ),
    ActionSpec(
        action=R.FIX_BUILD_SOURCE,
        title="correct the build's source",
        target_kinds=(K.NAMESPACE, K.CUSTOM),
        field_class="N",
        no_undo="Undone by the source as it was.",
        when="A build fails for its source reference.",
        when_not="The code does not build.",
    ),
    ActionSpec(
        action=R.FIX_DATA_VOLUME_SOURCE,
        title="correct the data volume's source",
        target_kinds=(K.PERSISTENT_VOLUME_CLAIM, K.CUSTOM),
        field_class="N",
        no_undo="Undone by the source as it was.",
        when="An import fails for its source reference.",
        when_not="Storage itself is down.",
    ),
    ActionSpec(
        action=R.RESTORE_OPERATOR,
        title="restore the operator's installation",
        target_kinds=(K.NAMESPACE, K.CUSTOM, K.DEPLOYMENT),
        field_class="N",
        no_undo="A re-installed operator reconciles everything it owns.",
        irreversible=True,
        when="The operator's own resources were deleted.",
        when_not="The operator runs and its operand fails.",
    ),
    ActionSpec(
        action=R.MIGRATE_EMPTYDIR_TO_PVC,
        title="move emptyDir data to a volume",
        target_kinds=(K.DEPLOYMENT, K.STATEFULSET),
        field_class="N",
        irreversible=True,
        no_undo="No undo: data in the emptyDir is lost when the pod goes.",
        when="A database on emptyDir fills its node.",
        when_not="The data is a cache.",
    ),
    ActionSpec(
        action=R.PROVISION_NODE,
        title="add a node",
        target_kinds=(K.CLUSTER, K.NODE, K.NAMESPACE, *_WORKLOADS),
        field_class="X",
        no_undo="Costs money until somebody removes it.",
        when="The cluster is really full.",
        when_not="A taint or affinity keeps pods away from free nodes.",
    ),
    ActionSpec(
        action=R.DEFRAGMENT_ETCD,
        title="defragment etcd",
        irreversible=True,
        target_kinds=(K.CLUSTER, K.NODE, K.POD),
        field_class="X",
        no_undo="No undo: a member is unavailable meanwhile.",
        when="Fragmentation is high and every member is healthy.",
        when_not="Quorum is at risk.",
    ),
    ActionSpec(
        action=R.DRAIN_NODE,
        title="drain the node",
        irreversible=True,
        target_kinds=(K.NODE,),
        field_class="X",
        no_undo="No undo: evicted pods do not come back to the node with their state.",
        when="A node-level fault hits several workloads.",
        when_not="One pod only, or a budget forbids it.",
    ),
    ActionSpec(
        action=R.CLEANUP_NODE,
        title="clean the node's disk",
        irreversible=True,
        target_kinds=(K.NODE,),
        field_class="X",
        no_undo="No undo: deleted data is gone.",
        when="Ephemeral data fills the disk.",
        when_not="Real data does.",
    ),
    ActionSpec(
        action=R.CLEANUP_PVC,
        title="delete data of a volume",
        irreversible=True,
        target_kinds=(K.PERSISTENT_VOLUME_CLAIM,),
        field_class="X",
        no_undo="No undo: deleted data is gone.",
        when="Logs or temporary files fill it.",
        when_not="Application data does.",
    ),
    ActionSpec(
        action=R.FIX_STATEFULSET_PVC,
        title="replace a StatefulSet's lost volume",
        irreversible=True,
        target_kinds=(K.STATEFULSET, K.PERSISTENT_VOLUME_CLAIM),
        field_class="X",
        no_undo="No undo: the member begins without its data.",
        when="The claim is lost and members can rebuild from their peers.",
        when_not="The storage backend is down, or data must be recovered.",
    ),
)

_TITLES: Mapping[R | None, str] = {
    R.SCALE: "the previous number of replicas",
    R.RAISE_HPA_MAX: "the previous maximum",
    R.RAISE_MEMORY_LIMIT: "the previous limit",
    R.RAISE_CPU_LIMIT: "the previous limit",
    R.PATCH_CONFIGURATION: "the previous value",
    R.GIT_REVERT: "reverting the revert",
    R.RELAX_PDB: "the previous budget",
}

Catalogue = Mapping[R, ActionSpec]

CATALOGUE: Catalogue = MappingProxyType({spec.action: spec for spec in _SPECS})
"""Every action by name; complete."""


def spec_of(action: R) -> ActionSpec:
    """The row of one action."""
    return CATALOGUE[action]


def executable_actions() -> tuple[R, ...]:
    """Actions that can be proposed and ordered, least dangerous first."""
    return tuple(spec.action for spec in sorted(CATALOGUE.values(), key=lambda spec: spec.danger) if spec.executable)
