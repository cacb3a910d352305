"""The vocabulary of remediation: every action this system can name, with typed parameters.

Most actions are *described*: they can be recommended to people, never proposed and never executed. Three are executable:
`restart_workload`, `restart_pod` and `scale`. Which is which, how dangerous each is, and when it is right and wrong, is data
on the action's `ActionSpec`; nothing else in the system may decide it. `parse_action` (catalog.parsing) turns text into one of
these or into `no_action`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, model_validator

from catalog.documents import Document

Name = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]
Replicas = Annotated[int, Field(ge=0, le=10_000)]


class RemediationAction(StrEnum):
    """Every action by name. The order is that of the design's danger scale, least first."""

    NO_ACTION = "no_action"
    ESCALATE = "escalate"
    FIX_CONFIG = "fix_config"
    RESTART_POD = "restart_pod"
    SCALE = "scale"
    RESTART_WORKLOAD = "restart_workload"
    DELETE_STUCK_POD = "delete_stuck_pod"
    RAISE_HPA_MAX = "raise_hpa_max"
    RAISE_MEMORY_LIMIT = "raise_memory_limit"
    RAISE_CPU_LIMIT = "raise_cpu_limit"
    CORDON_NODE = "cordon_node"
    PATCH_CONFIGURATION = "patch_configuration"
    GIT_REVERT = "git_revert"
    ROLLBACK_RELEASE = "rollback_release"
    ROLLBACK_HELM = "rollback_helm"
    EXPAND_PVC = "expand_pvc"
    RELAX_PDB = "relax_pdb"
    REMOVE_TAINT = "remove_taint"
    FIX_NETWORK_POLICY = "fix_network_policy"
    FIX_AUTHORIZATION_POLICY = "fix_authorization_policy"
    FIX_CERTIFICATE = "fix_certificate"
    FIX_SECURITY_CONTEXT = "fix_security_context"
    REFRESH_IMAGE_PULL_SECRET = "refresh_image_pull_secret"
    RESTORE_ROLE_BINDING = "restore_role_binding"
    FIX_ROUTE_TARGET = "fix_route_target"
    FIX_BUILD_SOURCE = "fix_build_source"
    FIX_DATA_VOLUME_SOURCE = "fix_data_volume_source"
    RESTORE_OPERATOR = "restore_operator"
    MIGRATE_EMPTYDIR_TO_PVC = "migrate_emptydir_to_pvc"
    PROVISION_NODE = "provision_node"
    DEFRAGMENT_ETCD = "defragment_etcd"
    DRAIN_NODE = "drain_node"
    CLEANUP_NODE = "cleanup_node"
    CLEANUP_PVC = "cleanup_pvc"
    FIX_STATEFULSET_PVC = "fix_statefulset_pvc"


class NoAction(Document):
    """Nothing to do, or text that names no action of the catalogue (kept, redacted, for people)."""

    action: Literal[RemediationAction.NO_ACTION] = RemediationAction.NO_ACTION
    unparsed: str = Field(default="", max_length=500)


class Escalate(Document):
    action: Literal[RemediationAction.ESCALATE] = RemediationAction.ESCALATE
    reason: str = Field(default="", max_length=500)


class FixConfig(Document):
    action: Literal[RemediationAction.FIX_CONFIG] = RemediationAction.FIX_CONFIG
    what: str = Field(default="", max_length=500)


class RestartPod(Document):
    """Evict one pod of a controller through the eviction API; its controller replaces it."""

    action: Literal[RemediationAction.RESTART_POD] = RemediationAction.RESTART_POD
    pod: Name
    pod_uid: str | None = None


class RestartWorkload(Document):
    """Replace every pod of the workload by a roll-out of an unchanged template."""

    action: Literal[RemediationAction.RESTART_WORKLOAD] = RemediationAction.RESTART_WORKLOAD
    first_pod: Name | None = Field(default=None, description="the pod the evidence names; automatic restarts begin there")


class Scale(Document):
    """Change `spec.replicas`. Up when `to_replicas` is greater."""

    action: Literal[RemediationAction.SCALE] = RemediationAction.SCALE
    from_replicas: Replicas
    to_replicas: Replicas

    @model_validator(mode="after")
    def _differs(self) -> Scale:
        if self.from_replicas == self.to_replicas:
            raise ValueError("scale must change the number of replicas")
        return self

    @property
    def upward(self) -> bool:
        return self.to_replicas > self.from_replicas


class DeleteStuckPod(Document):
    action: Literal[RemediationAction.DELETE_STUCK_POD] = RemediationAction.DELETE_STUCK_POD
    pod: Name


class RaiseHpaMax(Document):
    action: Literal[RemediationAction.RAISE_HPA_MAX] = RemediationAction.RAISE_HPA_MAX
    autoscaler: Name | None = None
    to_max: Annotated[int, Field(ge=1, le=10_000)] | None = None


class RaiseMemoryLimit(Document):
    action: Literal[RemediationAction.RAISE_MEMORY_LIMIT] = RemediationAction.RAISE_MEMORY_LIMIT
    container: Name | None = None
    to_bytes: Annotated[int, Field(ge=1)] | None = None


class RaiseCpuLimit(Document):
    action: Literal[RemediationAction.RAISE_CPU_LIMIT] = RemediationAction.RAISE_CPU_LIMIT
    container: Name | None = None
    to_millicores: Annotated[int, Field(ge=1)] | None = None


class CordonNode(Document):
    action: Literal[RemediationAction.CORDON_NODE] = RemediationAction.CORDON_NODE
    node: Name


class DrainNode(Document):
    action: Literal[RemediationAction.DRAIN_NODE] = RemediationAction.DRAIN_NODE
    node: Name


class CleanupNode(Document):
    action: Literal[RemediationAction.CLEANUP_NODE] = RemediationAction.CLEANUP_NODE
    node: Name


class PatchConfiguration(Document):
    action: Literal[RemediationAction.PATCH_CONFIGURATION] = RemediationAction.PATCH_CONFIGURATION
    config_map: Name | None = None
    key: str | None = Field(default=None, max_length=253)


class GitRevert(Document):
    action: Literal[RemediationAction.GIT_REVERT] = RemediationAction.GIT_REVERT
    commit: Annotated[str, Field(pattern=r"^[0-9a-f]{7,40}$")] | None = None


class RollbackRelease(Document):
    """Return to an earlier revision of the same workload: what the roll-out changed comes back with it."""

    action: Literal[RemediationAction.ROLLBACK_RELEASE] = RemediationAction.ROLLBACK_RELEASE
    to_revision: Annotated[int, Field(ge=1)] | None = None


class RollbackHelm(Document):
    action: Literal[RemediationAction.ROLLBACK_HELM] = RemediationAction.ROLLBACK_HELM
    release: Name | None = None
    to_revision: Annotated[int, Field(ge=1)] | None = None


class ExpandPvc(Document):
    action: Literal[RemediationAction.EXPAND_PVC] = RemediationAction.EXPAND_PVC
    claim: Name | None = None
    to_bytes: Annotated[int, Field(ge=1)] | None = None


class CleanupPvc(Document):
    action: Literal[RemediationAction.CLEANUP_PVC] = RemediationAction.CLEANUP_PVC
    claim: Name | None = None


class FixStatefulSetPvc(Document):
    action: Literal[RemediationAction.FIX_STATEFULSET_PVC] = RemediationAction.FIX_STATEFULSET_PVC
    claim: Name | None = None


class MigrateEmptyDirToPvc(Document):
    action: Literal[RemediationAction.MIGRATE_EMPTYDIR_TO_PVC] = RemediationAction.MIGRATE_EMPTYDIR_TO_PVC
    size_bytes: Annotated[int, Field(ge=1)] | None = None


class RelaxPdb(Document):
    action: Literal[RemediationAction.RELAX_PDB] = RemediationAction.RELAX_PDB
    budget: Name | None = None


class RemoveTaint(Document):
    action: Literal[RemediationAction.REMOVE_TAINT] = RemediationAction.REMOVE_TAINT
    node: Name
    taint: str = Field(min_length=1, max_length=316)


class ProvisionNode(Document):
    action: Literal[RemediationAction.PROVISION_NODE] = RemediationAction.PROVISION_NODE


class DefragmentEtcd(Document):
    action: Literal[RemediationAction.DEFRAGMENT_ETCD] = RemediationAction.DEFRAGMENT_ETCD


class FixNetworkPolicy(Document):
    action: Literal[RemediationAction.FIX_NETWORK_POLICY] = RemediationAction.FIX_NETWORK_POLICY
    policy: Name | None = None


class FixAuthorizationPolicy(Document):
    action: Literal[RemediationAction.FIX_AUTHORIZATION_POLICY] = RemediationAction.FIX_AUTHORIZATION_POLICY
    policy: Name | None = None


class FixCertificate(Document):
    action: Literal[RemediationAction.FIX_CERTIFICATE] = RemediationAction.FIX_CERTIFICATE
    issuer: Name | None = None


class FixSecurityContext(Document):
    action: Literal[RemediationAction.FIX_SECURITY_CONTEXT] = RemediationAction.FIX_SECURITY_CONTEXT


class RefreshImagePullSecret(Document):
    action: Literal[RemediationAction.REFRESH_IMAGE_PULL_SECRET] = RemediationAction.REFRESH_IMAGE_PULL_SECRET
    secret: Name | None = None


class RestoreRoleBinding(Document):
    action: Literal[RemediationAction.RESTORE_ROLE_BINDING] = RemediationAction.RESTORE_ROLE_BINDING
    binding: str | None = Field(default=None, max_length=253)


class FixRouteTarget(Document):
    action: Literal[RemediationAction.FIX_ROUTE_TARGET] = RemediationAction.FIX_ROUTE_TARGET


class FixBuildSource(Document):
    action: Literal[RemediationAction.FIX_BUILD_SOURCE] = RemediationAction.FIX_BUILD_SOURCE


class FixDataVolumeSource(Document):
    action: Literal[RemediationAction.FIX_DATA_VOLUME_SOURCE] = RemediationAction.FIX_DATA_VOLUME_SOURCE


class RestoreOperator(Document):
    action: Literal[RemediationAction.RESTORE_OPERATOR] = RemediationAction.RESTORE_OPERATOR


Action = Annotated[
    NoAction
    | Escalate
    | FixConfig
    | RestartPod
    | RestartWorkload
    | Scale
    | DeleteStuckPod
    | RaiseHpaMax
    | RaiseMemoryLimit
    | RaiseCpuLimit
    | CordonNode
    | DrainNode
    | CleanupNode
    | PatchConfiguration
    | GitRevert
    | RollbackRelease
    | RollbackHelm
    | ExpandPvc
    | CleanupPvc
    | FixStatefulSetPvc
    | MigrateEmptyDirToPvc
    | RelaxPdb
    | RemoveTaint
    | ProvisionNode
    | DefragmentEtcd
    | FixNetworkPolicy
    | FixAuthorizationPolicy
    | FixCertificate
    | FixSecurityContext
    | RefreshImagePullSecret
    | RestoreRoleBinding
    | FixRouteTarget
    | FixBuildSource
    | FixDataVolumeSource
    | RestoreOperator,
    Field(discriminator="action"),
]
"""One typed action. `action_adapter.validate_python` reads it from data."""

action_adapter: TypeAdapter[Action] = TypeAdapter(Action)


def describe(action: Action) -> str:
    """The action in a few words, with from → to, as the fixed fields of a card show it."""
    match action:
        case Scale():
            return f"scale {action.from_replicas} → {action.to_replicas} replicas"
        case RestartPod():
            return f"restart pod {action.pod}"
        case RestartWorkload():
            return "restart workload"
        case RollbackRelease(to_revision=int(revision)):
            return f"rollback release to revision {revision}"
        case _:
            return action.action.value.replace("_", " ")
