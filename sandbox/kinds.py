"""What the emulated API server serves: one `Kind` per resource, with the traits that change how it is written and read.

Controllers name kinds by the constants below (`PODS`, `DEPLOYMENTS`, …). Custom resources are `Kind` values made from their
CustomResourceDefinition (`sandbox.api.custom`) and live in the same store.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """One resource of one API group in the version that is stored.

    `generation`: the server counts spec changes in metadata.generation. `graceful`: a deletion waits for its grace period
    (pods). `unconditional`: PUT without resourceVersion is accepted. `creates_on_put`: PUT of an absent name creates it.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    status: bool = False
    scale: bool = False
    generation: bool = False
    graceful: bool = False
    unconditional: bool = True
    creates_on_put: bool = False
    custom: bool = False
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    singular: str = ""

    @property
    def api_version(self) -> str:
        """`apps/v1`, or `v1` for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """`deployments.apps`, or `pods` for the core group: as messages name it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def qualified(self) -> str:
        """`Deployment.apps`, or `Pod` for the core group: as validation messages name it."""
        return f"{self.kind}.{self.group}" if self.group else self.kind

    @property
    def key(self) -> tuple[str, str]:
        """Identity in the store, whatever the version."""
        return (self.group, self.plural)


NAMESPACES = Kind("", "v1", "namespaces", "Namespace", namespaced=False, status=True, short_names=("ns",))
NODES = Kind("", "v1", "nodes", "Node", namespaced=False, status=True, short_names=("no",))
PERSISTENT_VOLUMES = Kind("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False, status=True, short_names=("pv",))
PODS = Kind("", "v1", "pods", "Pod", status=True, generation=True, graceful=True, short_names=("po",), categories=("all",))
SERVICES = Kind("", "v1", "services", "Service", status=True, short_names=("svc",), categories=("all",))
ENDPOINTS = Kind("", "v1", "endpoints", "Endpoints", short_names=("ep",), singular="endpoints", creates_on_put=True)
CONFIG_MAPS = Kind("", "v1", "configmaps", "ConfigMap", short_names=("cm",))
SECRETS = Kind("", "v1", "secrets", "Secret")
SERVICE_ACCOUNTS = Kind("", "v1", "serviceaccounts", "ServiceAccount", short_names=("sa",))
EVENTS = Kind("", "v1", "events", "Event", short_names=("ev",), creates_on_put=True)
RESOURCE_QUOTAS = Kind("", "v1", "resourcequotas", "ResourceQuota", status=True, short_names=("quota",))
LIMIT_RANGES = Kind("", "v1", "limitranges", "LimitRange", short_names=("limits",))
PERSISTENT_VOLUME_CLAIMS = Kind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", status=True, short_names=("pvc",))
REPLICATION_CONTROLLERS = Kind(
    "", "v1", "replicationcontrollers", "ReplicationController", status=True, scale=True, generation=True, short_names=("rc",)
)
POD_TEMPLATES = Kind("", "v1", "podtemplates", "PodTemplate", generation=True)

DEPLOYMENTS = Kind(
    "apps",
    "v1",
    "deployments",
    "Deployment",
    status=True,
    scale=True,
    generation=True,
    short_names=("deploy",),
    categories=("all",),
)
REPLICA_SETS = Kind(
    "apps", "v1", "replicasets", "ReplicaSet", status=True, scale=True, generation=True, short_names=("rs",), categories=("all",)
)
STATEFUL_SETS = Kind(
    "apps", "v1", "statefulsets", "StatefulSet", status=True, scale=True, generation=True, short_names=("sts",), categories=("all",)
)
DAEMON_SETS = Kind("apps", "v1", "daemonsets", "DaemonSet", status=True, generation=True, short_names=("ds",), categories=("all",))
CONTROLLER_REVISIONS = Kind("apps", "v1", "controllerrevisions", "ControllerRevision")

AUTOSCALERS = Kind(
    "autoscaling",
    "v2",
    "horizontalpodautoscalers",
    "HorizontalPodAutoscaler",
    status=True,
    short_names=("hpa",),
    categories=("all",),
)
BUDGETS = Kind(
    "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", status=True, generation=True, unconditional=False,
    short_names=("pdb",),
)  # fmt: skip
JOBS = Kind("batch", "v1", "jobs", "Job", status=True, generation=True, categories=("all",))
CRON_JOBS = Kind("batch", "v1", "cronjobs", "CronJob", status=True, generation=True, short_names=("cj",), categories=("all",))
LEASES = Kind("coordination.k8s.io", "v1", "leases", "Lease", unconditional=False, creates_on_put=True)
ENDPOINT_SLICES = Kind("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", generation=True)
NETWORK_POLICIES = Kind("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", generation=True, short_names=("netpol",))
INGRESSES = Kind("networking.k8s.io", "v1", "ingresses", "Ingress", status=True, generation=True, short_names=("ing",))
STORAGE_CLASSES = Kind("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False, short_names=("sc",))
PRIORITY_CLASSES = Kind(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False, generation=True, short_names=("pc",)
)
ADMISSION_POLICIES = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicies",
    "ValidatingAdmissionPolicy",
    namespaced=False,
    status=True,
    generation=True,
)
ADMISSION_BINDINGS = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicybindings",
    "ValidatingAdmissionPolicyBinding",
    namespaced=False,
    generation=True,
)
VALIDATING_WEBHOOKS = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    namespaced=False,
    generation=True,
)
MUTATING_WEBHOOKS = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    namespaced=False,
    generation=True,
)
ROLES = Kind("rbac.authorization.k8s.io", "v1", "roles", "Role")
ROLE_BINDINGS = Kind("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
CLUSTER_ROLES = Kind("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)
CLUSTER_ROLE_BINDINGS = Kind("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False)
CUSTOM_RESOURCE_DEFINITIONS = Kind(
    "apiextensions.k8s.io",
    "v1",
    "customresourcedefinitions",
    "CustomResourceDefinition",
    namespaced=False,
    status=True,
    generation=True,
    short_names=("crd", "crds"),
)

SERVED: tuple[Kind, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Kind))
"""Every built-in kind, in the order above."""
