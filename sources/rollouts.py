"""How far a roll-out is, from one object. Counts that the API omits are 0; a status older than the spec proves nothing.

Right after a write the API answers with the old, complete-looking status whose observedGeneration lags; then for a moment with
the new generation and counts that are absent. Only all four counts together, at the right generation, say that it is done.
"""

from __future__ import annotations

from typing import Any

from catalog.documents import digest

_MOVING = frozenset({"NewReplicaSetCreated", "FoundNewReplicaSet", "ReplicaSetUpdated"})


def template_hash(workload: dict[str, Any]) -> str:
    """SHA-256 of the canonical pod template: equal templates, equal hash, whatever the order of keys."""
    return digest((workload.get("spec") or {}).get("template") or {})


def count(status: dict[str, Any], key: str) -> int:
    """A count of a status; absent is 0."""
    return int(status.get(key) or 0)


def observed(workload: dict[str, Any]) -> bool:
    """Whether the controller has seen the present spec, so that the status speaks of it."""
    generation = (workload.get("metadata") or {}).get("generation")
    seen = (workload.get("status") or {}).get("observedGeneration")
    return isinstance(generation, int) and isinstance(seen, int) and seen >= generation


def desired_replicas(workload: dict[str, Any]) -> int:
    """`spec.replicas`, 1 when absent; of a DaemonSet the nodes it should run on."""
    status = workload.get("status") or {}
    if "desiredNumberScheduled" in status:
        return count(status, "desiredNumberScheduled")
    replicas = (workload.get("spec") or {}).get("replicas")
    return 1 if replicas is None else int(replicas)


def deployment_complete(deployment: dict[str, Any]) -> bool:
    """Whether a Deployment is rolled out: observed, and updated = replicas = available = desired.

    Pods that are being deleted may still run; who must not count them looks at the pods.
    """
    status, desired = deployment.get("status") or {}, desired_replicas(deployment)
    counts = {count(status, key) for key in ("updatedReplicas", "replicas", "availableReplicas")}
    return observed(deployment) and counts == {desired}


def deployment_rolling(deployment: dict[str, Any]) -> bool:
    """Whether a roll-out has begun and not ended: pods of an older template are left, or new ones are to come or not available yet.

    Steady but unhealthy is not rolling: pods of the newest template that stopped being available, a first roll-out that missed
    its deadline, pods that cannot be made (ReplicaFailure).
    """
    if not observed(deployment):
        return True
    status = deployment.get("status") or {}
    if count(status, "replicas") != count(status, "updatedReplicas"):
        return True
    conditions = {condition.get("type"): condition for condition in status.get("conditions") or ()}
    failing = (conditions.get("ReplicaFailure") or {}).get("status") == "True"
    if count(status, "replicas") < desired_replicas(deployment) and not failing:
        return True  # Recreate passes through a state without any pod that otherwise looks finished
    moving = (conditions.get("Progressing") or {}).get("reason") in _MOVING
    return moving and count(status, "availableReplicas") < desired_replicas(deployment)


def stateful_set_rolling(stateful_set: dict[str, Any]) -> bool:
    """Whether a StatefulSet replaces its pods: two revisions at once, unless its strategy leaves that to people."""
    if not observed(stateful_set):
        return True
    spec, status = stateful_set.get("spec") or {}, stateful_set.get("status") or {}
    strategy = spec.get("updateStrategy") or {}
    held = int(((strategy.get("rollingUpdate") or {}).get("partition")) or 0)
    to_update = max(0, desired_replicas(stateful_set) - held)
    if strategy.get("type") == "OnDelete" or status.get("currentRevision") == status.get("updateRevision"):
        return False
    return count(status, "updatedReplicas") < to_update or held == 0


def daemon_set_rolling(daemon_set: dict[str, Any]) -> bool:
    """Whether a DaemonSet replaces its pods."""
    if not observed(daemon_set):
        return True
    status = daemon_set.get("status") or {}
    on_delete = ((daemon_set.get("spec") or {}).get("updateStrategy") or {}).get("type") == "OnDelete"
    return not on_delete and count(status, "updatedNumberScheduled") < count(status, "desiredNumberScheduled")
