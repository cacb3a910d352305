"""Where a cluster is reached: its API, Prometheus and Alertmanager."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from catalog.documents import Document


class KubernetesAccess(Document):
    """How to reach an API server. Exactly one of: in-cluster account, kubeconfig, or server with token file."""

    in_cluster: bool = False
    kubeconfig: Path | None = None
    context: str | None = None
    server: str | None = None
    token_file: Path | None = None
    ca_file: Path | None = None


class Cluster(Document):
    """One cluster as `clusters:` of autonomy.yaml maps it."""

    name: str = Field(min_length=1, max_length=63)
    uid: str = Field(min_length=1, description="UID of the kube-system namespace")
    match: dict[str, str] = Field(default={}, description="alert labels that name this cluster; {} only with a token bound to it")
    api: KubernetesAccess = KubernetesAccess(in_cluster=True)
    prometheus: str | None = None
    alertmanager: str | None = None
    prometheus_token_file: Path | None = None
    alertmanager_token_file: Path | None = None
