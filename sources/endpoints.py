"""All readers of one cluster, opened and closed together."""

from __future__ import annotations

from dataclasses import dataclass

from catalog.clocks import Clock
from catalog.clusters import Cluster
from sources.alertmanager import AlertmanagerReader
from sources.connecting import api_client
from sources.errors import SourceMisconfigured
from sources.kubernetes import KubernetesReader
from sources.prometheus import PrometheusReader
from sources.redaction import Redactor

USER_AGENT = "sre-ladder"


@dataclass(frozen=True)
class SourceSet:
    """The readers of one cluster. A source that is not configured is None, which is not the same as one that fails."""

    cluster: Cluster
    kubernetes: KubernetesReader
    prometheus: PrometheusReader | None
    alertmanager: AlertmanagerReader | None
    redactor: Redactor
    clock: Clock

    async def close(self) -> None:
        """Close all connections."""
        await self.kubernetes.close()
        if self.prometheus is not None:
            await self.prometheus.close()
        if self.alertmanager is not None:
            await self.alertmanager.close()


async def open_sources(
    cluster: Cluster, clock: Clock, redactor_key: bytes, *, timeout_s: float = 5.0, user_agent: str = USER_AGENT
) -> SourceSet:
    """Readers for `cluster`. Nothing is asked yet: a server that is down shows at the first read.

    Raises:
        SourceMisconfigured: an address, a kubeconfig or a token file that cannot be used.
    """
    prometheus = alertmanager = None
    if cluster.prometheus is not None:
        prometheus = PrometheusReader(cluster.prometheus, clock, timeout_s, cluster.prometheus_token_file)
    try:
        if cluster.alertmanager is not None:
            alertmanager = AlertmanagerReader(cluster.alertmanager, timeout_s, cluster.alertmanager_token_file)
        api = await api_client(cluster.api, user_agent=user_agent)
    except SourceMisconfigured:
        if prometheus is not None:
            await prometheus.close()
        raise
    return SourceSet(
        cluster=cluster,
        kubernetes=KubernetesReader(api, clock, timeout_s),
        prometheus=prometheus,
        alertmanager=alertmanager,
        redactor=Redactor(redactor_key),
        clock=clock,
    )
