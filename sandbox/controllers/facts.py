"""Small facts about objects that several controllers ask for."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

Json = dict[str, Any]


def labels_of(obj: Mapping[str, Any]) -> dict[str, str]:
    """The labels of an object, {} where it has none."""
    return obj["metadata"].get("labels") or {}


def annotations_of(obj: Mapping[str, Any]) -> dict[str, str]:
    """The annotations of an object, {} where it has none."""
    return obj["metadata"].get("annotations") or {}


def is_terminating(obj: Mapping[str, Any]) -> bool:
    """Whether somebody deleted the object and it is still there."""
    return "deletionTimestamp" in obj["metadata"]


def is_finished(pod: Mapping[str, Any]) -> bool:
    """Whether a pod's containers have ended for good."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def is_active(pod: Mapping[str, Any]) -> bool:
    """Neither finished nor being deleted: what a ReplicaSet counts."""
    return not is_finished(pod) and not is_terminating(pod)


def condition_of(obj: Mapping[str, Any], type_: str) -> Json | None:
    """One condition of a status, or None."""
    for condition in (obj.get("status") or {}).get("conditions") or ():
        if condition["type"] == type_:
            return dict(condition)
    return None


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Whether the Ready condition of a pod is True."""
    ready = condition_of(pod, "Ready")
    return ready is not None and ready["status"] == "True"


def controller_of(obj: Mapping[str, Any]) -> Json | None:
    """The ownerReference that controls the object, or None."""
    for owner in obj["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            return dict(owner)
    return None


def instant(text: str) -> datetime:
    """The time a Kubernetes timestamp stands for."""
    return datetime.fromisoformat(text).astimezone(UTC)


def stamp(when: datetime) -> str:
    """A time as metadata and conditions write it: RFC 3339, whole seconds."""
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")


def micro(when: datetime) -> str:
    """A time as eventTime writes it: RFC 3339, six fraction digits."""
    return when.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
