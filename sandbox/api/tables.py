"""What `kubectl get` prints: Table answers for pods and Deployments, name and age for the rest; and metadata-only objects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from sandbox.kinds import DEPLOYMENTS, PODS, Kind
from sandbox.statuses import Json

Row = list[object]


def partial_object(obj: Json) -> Json:
    """Metadata only."""
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


def table(kind: Kind, objects: Sequence[Json], metadata: Json, now: datetime | None = None) -> Json:
    """A Table with one row per object; the object's metadata rides along."""
    columns, row = _COLUMNS.get(kind.key, (("Name", "Age"), _any_row))
    at = now or datetime.now(UTC)
    rows = [{"cells": row(obj, at), "object": partial_object(obj)} for obj in objects]
    definitions = [
        {
            "name": name,
            "type": "string",
            "format": "name" if name == "Name" else "",
            "description": "",
            "priority": 0 if index < 5 else 1,
        }
        for index, name in enumerate(columns)
    ]
    return {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "columnDefinitions": definitions, "rows": rows}


def age(timestamp: str | None, now: datetime) -> str:
    """`5d`, `3h12m`, `10m`, `45s`: as kubectl shortens it."""
    if not timestamp:
        return "<unknown>"
    seconds = max(0, int((now - datetime.fromisoformat(timestamp)).total_seconds()))
    days, hours, minutes = seconds // 86400, seconds // 3600, seconds // 60
    if days >= 2:
        return f"{days}d"
    if hours >= 10:
        return f"{hours}h"
    if hours >= 2:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if minutes >= 10:
        return f"{minutes}m"
    if minutes >= 2:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    return f"{seconds}s"


def _any_row(obj: Json, now: datetime) -> Row:
    return [obj["metadata"]["name"], age(obj["metadata"].get("creationTimestamp"), now)]


def _pod_row(pod: Json, now: datetime) -> Row:
    status, spec = pod.get("status", {}), pod.get("spec", {})
    statuses = status.get("containerStatuses", [])
    ready = sum(1 for item in statuses if item.get("ready"))
    return [
        pod["metadata"]["name"],
        f"{ready}/{len(spec.get('containers', []))}",
        _pod_state(pod),
        _restarts([*statuses, *status.get("initContainerStatuses", [])], now),
        age(pod["metadata"].get("creationTimestamp"), now),
        status.get("podIP", "<none>"),
        spec.get("nodeName", "<none>"),
        status.get("nominatedNodeName", "<none>"),
        "<none>",
    ]


def _restarts(statuses: list[Json], now: datetime) -> str:
    count = sum(int(item.get("restartCount", 0)) for item in statuses)
    ended = [item.get("lastState", {}).get("terminated", {}).get("finishedAt") for item in statuses]
    times = sorted(text for text in ended if text)
    return f"{count} ({age(times[-1], now)} ago)" if count and times else str(count)


def _pod_state(pod: Json) -> str:
    status = pod.get("status", {})
    if "deletionTimestamp" in pod["metadata"]:
        return "Terminating"
    for item in status.get("initContainerStatuses", []):
        found = _state_reason(item)
        if found and found != "Completed":
            return f"Init:{found}"
    for item in status.get("containerStatuses", []):
        found = _state_reason(item)
        if found:
            return found
    return str(status.get("reason") or status.get("phase", "Unknown"))


def _state_reason(item: Json) -> str:
    state = item.get("state", {})
    for name in ("waiting", "terminated"):
        if name in state:
            return str(state[name].get("reason") or "")
    return ""


def _deployment_row(obj: Json, now: datetime) -> Row:
    status, spec = obj.get("status", {}), obj.get("spec", {})
    containers = spec.get("template", {}).get("spec", {}).get("containers", [])
    return [
        obj["metadata"]["name"],
        f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 1)}",
        status.get("updatedReplicas", 0),
        status.get("availableReplicas", 0),
        age(obj["metadata"].get("creationTimestamp"), now),
        ",".join(item["name"] for item in containers),
        ",".join(item.get("image", "") for item in containers),
        ",".join(f"{key}={value}" for key, value in sorted(spec.get("selector", {}).get("matchLabels", {}).items())),
    ]


_COLUMNS: dict[tuple[str, str], tuple[tuple[str, ...], Callable[[Json, datetime], Row]]] = {
    PODS.key: (("Name", "Ready", "Status", "Restarts", "Age", "IP", "Node", "Nominated Node", "Readiness Gates"), _pod_row),
    DEPLOYMENTS.key: (("Name", "Ready", "Up-to-date", "Available", "Age", "Containers", "Images", "Selector"), _deployment_row),
}
