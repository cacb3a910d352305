"""What an incident is about: one object of one cluster, named as the API names it."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field

from catalog.documents import Document, Instant


class TargetKind(StrEnum):
    """Kinds that an incident can be about. `Custom` is any owner whose kind Kubernetes itself does not define."""

    DEPLOYMENT = "Deployment"
    STATEFULSET = "StatefulSet"
    DAEMONSET = "DaemonSet"
    REPLICASET = "ReplicaSet"
    JOB = "Job"
    CRONJOB = "CronJob"
    POD = "Pod"
    NODE = "Node"
    NAMESPACE = "Namespace"
    SERVICE = "Service"
    PERSISTENT_VOLUME_CLAIM = "PersistentVolumeClaim"
    PERSISTENT_VOLUME = "PersistentVolume"
    HORIZONTAL_POD_AUTOSCALER = "HorizontalPodAutoscaler"
    POD_DISRUPTION_BUDGET = "PodDisruptionBudget"
    RESOURCE_QUOTA = "ResourceQuota"
    CLUSTER = "Cluster"
    CUSTOM = "Custom"


WORKLOAD_KINDS = frozenset({TargetKind.DEPLOYMENT, TargetKind.STATEFULSET, TargetKind.DAEMONSET})


class Provenance(StrEnum):
    """How the target was found: from the alert's own labels and owner chain, or through a named evidence edge."""

    OWN = "own"
    DERIVED = "derived"


class Target(Document):
    """One object. `namespace` is '' for cluster-scoped kinds (a unique index does not compare NULLs)."""

    cluster_uid: str
    cluster: str
    namespace: str = ""
    kind: TargetKind
    name: str
    uid: str | None = None

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Identity across re-creation: (cluster UID, namespace, kind, name)."""
        return (self.cluster_uid, self.namespace, self.kind.value, self.name)

    @property
    def title(self) -> str:
        """`Deployment shop/checkout`, for people."""
        place = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind.value} {place}"


class OwnerRef(Document):
    """One controller up the owner chain."""

    kind: str
    api_version: str
    name: str
    uid: str


class TargetFacts(Document):
    """What the gates need to know of the live target, read in one go. `None` means could not be read."""

    target: Target
    exists: bool
    observed_at: Instant
    owners: tuple[OwnerRef, ...] = ()
    custom_owner: str | None = Field(default=None, description="kind of an owner that Kubernetes does not define")
    opted_in: bool | None = Field(default=None, description="namespace label sre-ladder.dev/autonomy=enabled")
    desired: int | None = None
    ready: int | None = None
    available: int | None = None
    updated: int | None = None
    generation: int | None = None
    observed_generation: int | None = None
    paused: bool | None = None
    rolling_out: bool | None = None
    strategy: Literal["RollingUpdate", "Recreate", "OnDelete", ""] = ""
    max_unavailable: int | None = Field(default=None, description="pods, rounded as Kubernetes rounds")
    max_surge: int | None = Field(default=None, description="pods, rounded as Kubernetes rounds")
    template_hash: str | None = Field(default=None, description="SHA-256 of the canonical pod template")
    txn: str | None = Field(default=None, description="annotation sre-ladder.dev/txn as read")
    autoscaler: str | None = Field(default=None, description="HPA or ScaledObject that owns replicas")
    replicas_manager: str | None = Field(default=None, description="GitOps manager that owns spec.replicas")
    empty_dir: bool | None = None
    read_write_once: bool | None = None
    namespace_ready_pods: int | None = None
    services: tuple[str, ...] = Field(default=(), description="Services that select the target's pods")
    disruptions_allowed: int | None = Field(default=None, description="least over matching budgets; None = no budget")
    restarts: int | None = Field(default=None, description="sum of container restarts of live pods")
    nodes: tuple[str, ...] = ()
    pods: tuple[str, ...] = Field(default=(), description="names of live pods, at most 50")
    revision: str | None = None
    last_rollout_at: Instant | None = None
    scaled_to_zero: bool | None = None
    unread: tuple[str, ...] = Field(
        default=(),
        description="parts that could not be read (autoscalers, budgets, services, …): what depends on them is unknown, not absent",
    )

    @property
    def changed_marks(self) -> tuple[str | None, int | None, str | None]:
        """What a reader compares before and after reading: (txn, generation, template hash)."""
        return (self.txn, self.generation, self.template_hash)
