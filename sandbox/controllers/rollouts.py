"""The arithmetic of a roll-out, pure: how many pods of which ReplicaSet, what its annotations and the Deployment's status say.

Follows the Deployment controller of Kubernetes 1.36, and where it matters to a reader, its order of conditions: one that changes
moves to the end of the list.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

from sandbox.controllers.facts import annotations_of, condition_of, is_terminating

Json = dict[str, Any]

_GROUP = "deployment.kubernetes.io"
REVISION = f"{_GROUP}/revision"
HISTORY = f"{_GROUP}/revision-history"
DESIRED = f"{_GROUP}/desired-replicas"
MAXIMUM = f"{_GROUP}/max-replicas"
HASH_LABEL = "pod-template-hash"
_NOT_COPIED = frozenset(
    {REVISION, HISTORY, DESIRED, MAXIMUM, "kubectl.kubernetes.io/last-applied-configuration", "deprecated.deployment.rollback.to"}
)
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


def replicas_of(obj: Json) -> int:
    """spec.replicas."""
    return int(obj["spec"].get("replicas", 1))


def is_rolling(deployment: Json) -> bool:
    """Whether the strategy is RollingUpdate."""
    return bool((deployment["spec"].get("strategy") or {}).get("type", "RollingUpdate") == "RollingUpdate")


def share_of(value: int | str, total: int, *, up: bool) -> int:
    """An absolute number, or a percentage of `total` rounded up or down."""
    if isinstance(value, str) and value.endswith("%"):
        part = int(value[:-1]) * total / 100
        return math.ceil(part) if up else math.floor(part)
    return int(value)


def bounds(deployment: Json) -> tuple[int, int]:
    """(maxSurge, maxUnavailable) in pods: surge rounds up, unavailable down; both 0 becomes one unavailable."""
    if not is_rolling(deployment):
        return 0, 0
    rolling = (deployment["spec"].get("strategy") or {}).get("rollingUpdate") or {}
    total = replicas_of(deployment)
    surge = share_of(rolling.get("maxSurge", "25%"), total, up=True)
    unavailable = share_of(rolling.get("maxUnavailable", "25%"), total, up=False)
    if surge == 0 and unavailable == 0:
        unavailable = 1
    return surge, min(unavailable, total)


def template_hash(template: Json, collisions: int = 0) -> str:
    """The pod-template-hash of a template: FNV-1a of its canonical JSON in the safe alphabet."""
    text = json.dumps([without_hash(template), collisions], sort_keys=True, separators=(",", ":"))
    value = 2166136261
    for byte in text.encode():
        value = ((value ^ byte) * 16777619) & 0xFFFFFFFF
    return "".join(_ALPHABET[ord(digit) % len(_ALPHABET)] for digit in str(value))


def without_hash(template: Json) -> Json:
    """A template without the pod-template-hash label, as a Deployment has it."""
    metadata = dict(template.get("metadata") or {})
    labels = {key: value for key, value in (metadata.get("labels") or {}).items() if key != HASH_LABEL}
    metadata.pop("creationTimestamp", None)
    metadata.pop("labels", None)
    if not metadata.get("annotations"):
        metadata.pop("annotations", None)
    if labels:
        metadata["labels"] = labels
    return {**template, "metadata": metadata}


def age_key(obj: Json) -> tuple[str, str]:
    """Sorts objects oldest first."""
    return (obj["metadata"]["creationTimestamp"], obj["metadata"]["name"])


def newest_set(deployment: Json, sets: Iterable[Json]) -> Json | None:
    """The ReplicaSet with the Deployment's present template, or None."""
    wanted = without_hash(deployment["spec"]["template"])
    for candidate in sorted(sets, key=age_key):
        if without_hash(candidate["spec"]["template"]) == wanted:
            return candidate
    return None


def revision_of(obj: Json) -> int:
    """The revision annotation, 0 where there is none."""
    text = annotations_of(obj).get(REVISION, "0")
    return int(text) if text.isdecimal() else 0


def set_annotations(deployment: Json, current: dict[str, str], revision: int, *, exists: bool) -> dict[str, str]:
    """What the annotations of the newest ReplicaSet should be: the Deployment's copied onto it, and the revision moved on."""
    wanted = dict(current)
    wanted.update({key: value for key, value in annotations_of(deployment).items() if key not in _NOT_COPIED})
    before = current.get(REVISION, "")
    if (int(before) if before.isdecimal() else 0) < revision:
        wanted[REVISION] = str(revision)
        if exists and before:
            wanted[HISTORY] = ",".join([*filter(None, [current.get(HISTORY, "")]), before])
    if not exists:
        wanted.update(scale_annotations(deployment))
    return wanted


def scale_annotations(deployment: Json) -> dict[str, str]:
    """The two annotations that remember for which size a ReplicaSet was scaled."""
    total = replicas_of(deployment)
    return {DESIRED: str(total), MAXIMUM: str(total + bounds(deployment)[0])}


def wanted_by(sets: Iterable[Json]) -> int:
    """Sum of spec.replicas."""
    return sum(replicas_of(item) for item in sets)


def counted(sets: Iterable[Json], key: str) -> int:
    """Sum of one count of their statuses; absent is 0."""
    return sum(int((item.get("status") or {}).get(key, 0)) for item in sets)


def new_set_size(deployment: Json, sets: Sequence[Json], newest: Json | None) -> int:
    """How many replicas the newest ReplicaSet may have now."""
    total = replicas_of(deployment)
    if not is_rolling(deployment):
        return total
    size = 0 if newest is None else replicas_of(newest)
    room = total + bounds(deployment)[0] - wanted_by(sets)
    return size if room <= 0 else size + min(room, total - size)


def status_of(deployment: Json, sets: Sequence[Json], newest: Json | None) -> Json:
    """The status that follows from the ReplicaSets, with the Deployment's conditions and a fresh Available. Zeros are left out."""
    available = counted(sets, "availableReplicas")
    surplus = wanted_by(sets) - available
    counts = {
        "replicas": counted(sets, "replicas"),
        "updatedReplicas": counted([newest] if newest else [], "replicas"),
        "readyReplicas": counted(sets, "readyReplicas"),
        "availableReplicas": available,
        "unavailableReplicas": max(0, surplus),
    }
    status: Json = {"observedGeneration": deployment["metadata"]["generation"]}
    status |= {key: value for key, value in counts.items() if value}
    status["terminatingReplicas"] = counted(sets, "terminatingReplicas")
    status["conditions"] = list((deployment.get("status") or {}).get("conditions") or ())
    return status


def availability(deployment: Json, status: Json) -> tuple[str, str, str]:
    """(status, reason, message) of the Available condition."""
    least = replicas_of(deployment) - bounds(deployment)[1]
    if int(status.get("availableReplicas", 0)) >= least:
        return "True", "MinimumReplicasAvailable", "Deployment has minimum availability."
    return "False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability."


def set_condition(status: Json, type_: str, value: str, reason: str, message: str, now: str, *, refresh: bool = False) -> None:
    """Put a condition at the end, unless status and reason are the same. `refresh` replaces it even then (but keeps
    lastTransitionTime while the status stays)."""
    current = next((item for item in status["conditions"] if item["type"] == type_), None)
    if current and not refresh and (current["status"], current["reason"]) == (value, reason):
        return
    changed = now if current is None or current["status"] != value else current["lastTransitionTime"]
    drop_condition(status, type_)
    status["conditions"].append(
        {"type": type_, "status": value, "lastUpdateTime": now, "lastTransitionTime": changed, "reason": reason, "message": message}
    )


def drop_condition(status: Json, type_: str) -> None:
    """Remove a condition."""
    status["conditions"] = [item for item in status["conditions"] if item["type"] != type_]


def is_complete(deployment: Json, status: Json) -> bool:
    """Everything updated and available, nothing more."""
    total = replicas_of(deployment)
    counts = (status.get("updatedReplicas", 0), status.get("replicas", 0), status.get("availableReplicas", 0))
    return counts == (total, total, total) and status.get("observedGeneration", 0) >= deployment["metadata"]["generation"]


def has_progressed(before: Json, after: Json) -> bool:
    """Whether a status shows progress against the one before."""

    def old_pods(status: Json) -> int:
        return int(status.get("replicas", 0)) - int(status.get("updatedReplicas", 0))

    return old_pods(after) < old_pods(before) or any(
        after.get(key, 0) > before.get(key, 0) for key in ("updatedReplicas", "readyReplicas", "availableReplicas")
    )


def failure_of(sets: Iterable[Json], newest: Json | None) -> Json | None:
    """The ReplicaFailure condition to show: the newest set's, else any other's."""
    ordered = [*([newest] if newest else []), *sets]
    return next((failure for item in ordered if (failure := condition_of(item, "ReplicaFailure"))), None)


def leftovers(deployment: Json, old: Sequence[Json]) -> list[Json]:
    """Old ReplicaSets beyond revisionHistoryLimit that nobody needs, least revision first."""
    living = [item for item in old if not is_terminating(item)]
    surplus = len(living) - int(deployment["spec"].get("revisionHistoryLimit", 10))
    cleanable = []
    for item in sorted(living, key=revision_of)[: max(0, surplus)]:
        status = item.get("status") or {}
        behind = item["metadata"]["generation"] > status.get("observedGeneration", 0)
        if not (status.get("replicas") or replicas_of(item) or behind):
            cleanable.append(item)
    return cleanable


def proportions(deployment: Json, active: Sequence[Json]) -> dict[str, int]:
    """Sizes by name when a Deployment is scaled in the middle of a roll-out: each set gets its share, the largest the rest."""
    total = replicas_of(deployment)
    allowed = total + bounds(deployment)[0] if total else 0
    to_add = allowed - wanted_by(active)
    order = sorted(active, key=age_key, reverse=to_add >= 0)
    order.sort(key=replicas_of, reverse=True)
    sizes: dict[str, int] = {}
    added = 0
    for item in order:
        share = _proportion(deployment, item, allowed, to_add, added) if to_add else 0
        sizes[item["metadata"]["name"]] = replicas_of(item) + share
        added += share
    if order and to_add:
        name = order[0]["metadata"]["name"]
        sizes[name] = max(0, sizes[name] + to_add - added)
    return sizes


def _proportion(deployment: Json, item: Json, allowed: int, to_add: int, added: int) -> int:
    size = replicas_of(item)
    if size == 0:
        return 0
    if replicas_of(deployment) == 0:
        share = -size
    else:
        before = int(annotations_of(item).get(MAXIMUM, 0)) or int((deployment.get("status") or {}).get("replicas", 0)) or size
        share = math.floor(size * allowed / before + 0.5) - size
    left = to_add - added
    return min(share, left) if to_add > 0 else max(share, left)
