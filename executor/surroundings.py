"""What a transaction needs around it: one cluster as this executor reaches it, and everything injected."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from catalog.clocks import Clock
from executor.bounds import Bounds
from executor.halting import Brakes
from executor.instants import Timeline
from executor.journal import Journal
from executor.lease import Lease
from executor.preflight.asking import FenceProbe
from executor.writing import KubernetesWriter
from sources.kubernetes import KubernetesReader
from sources.prometheus import PrometheusReader
from sources.redaction import Redactor


@dataclass(frozen=True)
class Surroundings:
    """Shared by all transactions of this process. `sleep` takes seconds of `clock`."""

    executor_id: str
    cluster_uid: str
    reader: KubernetesReader
    writer: KubernetesWriter
    prometheus: PrometheusReader | None
    journal: Journal
    bounds: Bounds
    brakes: Brakes
    lease: Lease
    fence: FenceProbe
    redactor: Redactor
    outcome_key: Ed25519PrivateKey
    clock: Clock
    timeline: Timeline
    sleep: Callable[[float], Awaitable[None]]
