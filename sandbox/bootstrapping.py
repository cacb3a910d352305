"""A fresh cluster: its namespaces, the default roles of Kubernetes, and the accounts of the demo and the tests.

* `admin` may do everything (group system:masters).
* `bot` reads everything but Secrets, logs included, and writes nothing.
* `executor` reads what preflight and checks need, patches Deployments, evicts pods, keeps its own Lease and reads the halt
  ConfigMap; the admission fence narrows that further.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from catalog.marks import EXECUTOR_LEASE, HALT_CONFIG_MAP, HOME_NAMESPACE
from sandbox.access import AUTHENTICATED, MASTERS, Account, Accounts
from sandbox.admission import PODS_POLICY, WORKLOADS_POLICY
from sandbox.kinds import (
    ADMISSION_BINDINGS,
    ADMISSION_POLICIES,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CUSTOM_RESOURCE_DEFINITIONS,
    NAMESPACES,
    ROLE_BINDINGS,
    ROLES,
    SERVED,
    SERVICE_ACCOUNTS,
    Kind,
)
from sandbox.statuses import Json
from sandbox.store import Store

READ = ["get", "list", "watch"]
_PUBLIC = ["/healthz", "/livez", "/readyz", "/version", "/version/"]
_CUSTOM_GROUPS = [
    "argoproj.io",
    "keda.sh",
    "kustomize.toolkit.fluxcd.io",
    "helm.toolkit.fluxcd.io",
    "apps.kruise.io",
    "sandbox.dev",
]
_EXECUTOR_READS: list[Json] = [
    {"verbs": READ, "apiGroups": ["apps"], "resources": ["deployments", "statefulsets", "replicasets"]},
    {
        "verbs": READ,
        "apiGroups": [""],
        "resources": [
            "pods",
            "events",
            "nodes",
            "namespaces",
            "resourcequotas",
            "limitranges",
            "services",
            "persistentvolumeclaims",
        ],
    },
    {"verbs": ["get"], "apiGroups": [""], "resources": ["pods/log"]},
    {"verbs": READ, "apiGroups": ["autoscaling"], "resources": ["horizontalpodautoscalers"]},
    {"verbs": READ, "apiGroups": ["policy"], "resources": ["poddisruptionbudgets"]},
    {"verbs": READ, "apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"]},
]
_EXECUTOR_WRITES: list[Json] = [
    {"verbs": ["patch"], "apiGroups": ["apps"], "resources": ["deployments"]},
    {"verbs": ["create"], "apiGroups": [""], "resources": ["pods/eviction"]},
]
_EXECUTOR_HOME: list[Json] = [
    {"verbs": ["create"], "apiGroups": ["coordination.k8s.io"], "resources": ["leases"]},
    {
        "verbs": ["get", "update"],
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "resourceNames": [EXECUTOR_LEASE],
    },
    {"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"], "resourceNames": [HALT_CONFIG_MAP]},
]


@dataclass(frozen=True)
class Tokens:
    """Bearer tokens of the default accounts."""

    admin: str
    bot: str
    executor: str


def bootstrap(store: Store, accounts: Accounts, *, admin_token: str | None = None) -> Tokens:
    """Fill an empty store and accept the default accounts. The UID of kube-system is the identity of the cluster."""
    for name in ("default", "kube-system", "kube-public", "kube-node-lease", HOME_NAMESPACE):
        store.create(NAMESPACES, {"metadata": {"name": name}})
    _default_roles(store)
    _policies(store)
    for name in ("bot", "executor"):
        store.create(SERVICE_ACCOUNTS, {"metadata": {"name": name, "namespace": HOME_NAMESPACE}})
    grant(store, "sre-ladder-bot", _bot_rules(), name="bot")
    grant(store, "sre-ladder-executor", [*_EXECUTOR_READS, *_EXECUTOR_WRITES], name="executor")
    grant(store, "sre-ladder-executor-home", _EXECUTOR_HOME, name="executor", namespace=HOME_NAMESPACE)
    admin = admin_token or secrets.token_hex(16)
    accounts.accept(admin, Account("admin", (MASTERS, AUTHENTICATED)))
    return Tokens(admin, accounts.issue(HOME_NAMESPACE, "bot"), accounts.issue(HOME_NAMESPACE, "executor"))


def grant(
    store: Store, role: str, rules: list[Json], *, name: str, namespace: str = "", account_namespace: str = HOME_NAMESPACE
) -> None:
    """Give service account `name` a new role: in `namespace`, or everywhere."""
    subject = {"kind": "ServiceAccount", "name": name, "namespace": account_namespace}
    _role(store, role, rules, [subject], namespace=namespace)


def _role(store: Store, name: str, rules: list[Json], subjects: list[Json], *, namespace: str = "") -> None:
    role_kind, binding_kind = (ROLES, ROLE_BINDINGS) if namespace else (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS)
    metadata: Json = {"name": name} | ({"namespace": namespace} if namespace else {})
    store.create(role_kind, {"metadata": dict(metadata), "rules": rules})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind.kind, "name": name}
    store.create(binding_kind, {"metadata": dict(metadata), "subjects": subjects, "roleRef": reference})


def _group(name: str) -> Json:
    return {"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": name}


def _default_roles(store: Store) -> None:
    authenticated = [_group(AUTHENTICATED)]
    reviews: list[Json] = [
        {
            "verbs": ["create"],
            "apiGroups": ["authorization.k8s.io"],
            "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
        },
        {"verbs": ["create"], "apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"]},
    ]
    paths = [
        "/api",
        "/api/*",
        "/apis",
        "/apis/*",
        "/healthz",
        "/livez",
        "/openapi",
        "/openapi/*",
        "/readyz",
        "/version",
        "/version/",
    ]
    _role(store, "cluster-admin", _everything(), [_group(MASTERS)])
    _role(store, "system:basic-user", reviews, authenticated)
    _role(store, "system:discovery", [{"verbs": ["get"], "nonResourceURLs": paths}], authenticated)
    _role(
        store,
        "system:public-info-viewer",
        [{"verbs": ["get"], "nonResourceURLs": _PUBLIC}],
        [*authenticated, _group("system:unauthenticated")],
    )
    store.create(
        CLUSTER_ROLES, {"metadata": {"name": "view"}, "rules": _readable(without=("secrets", "nodes", "persistentvolumes"))}
    )


def _everything() -> list[Json]:
    return [
        {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
        {"verbs": ["*"], "nonResourceURLs": ["*"]},
    ]


def _readable(without: tuple[str, ...]) -> list[Json]:
    core = [kind.plural for kind in SERVED if kind.group == "" and kind.plural not in without]
    return [
        {"verbs": READ, "apiGroups": [""], "resources": [*core, "pods/log", "pods/status"]},
        {
            "verbs": READ,
            "apiGroups": ["apps", "autoscaling", "batch", "policy", "discovery.k8s.io", "networking.k8s.io"],
            "resources": ["*"],
        },
    ]


def _bot_rules() -> list[Json]:
    core = [kind.plural for kind in SERVED if kind.group == "" and kind.plural != "secrets"]
    groups = sorted({kind.group for kind in SERVED if kind.group} | {"events.k8s.io"})
    return [
        {"verbs": READ, "apiGroups": [""], "resources": [*core, "pods/log"]},
        {"verbs": READ, "apiGroups": [*groups, *_CUSTOM_GROUPS], "resources": ["*"]},
    ]


def _policies(store: Store) -> None:
    """The names of the fence's policies; `sandbox.admission` enforces what they say while the bindings exist."""
    for name, groups, resources in (
        (
            WORKLOADS_POLICY,
            ["apps"],
            ["deployments", "deployments/*", "statefulsets", "statefulsets/*", "daemonsets", "daemonsets/*"],
        ),
        (PODS_POLICY, [""], ["pods", "pods/*"]),
    ):
        rules = [{"apiGroups": groups, "apiVersions": ["*"], "operations": ["*"], "resources": resources}]
        spec: Json = {"failurePolicy": "Fail", "matchConstraints": {"resourceRules": rules}}
        store.create(ADMISSION_POLICIES, {"metadata": {"name": name}, "spec": spec})
        binding: Json = {"policyName": name, "validationActions": ["Deny", "Audit"]}
        store.create(ADMISSION_BINDINGS, {"metadata": {"name": name}, "spec": binding})


def add_kind(store: Store, kind: Kind) -> None:
    """Store the CustomResourceDefinition of a custom kind, so that it is served."""
    version: Json = {"name": kind.version, "served": True, "storage": True}
    version |= {"subresources": {"status": {}}} if kind.status else {}
    spec: Json = {
        "group": kind.group,
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "names": {"plural": kind.plural, "kind": kind.kind, "singular": kind.singular or kind.kind.lower()},
        "versions": [version],
    }
    store.create(CUSTOM_RESOURCE_DEFINITIONS, {"metadata": {"name": f"{kind.plural}.{kind.group}"}, "spec": spec})
