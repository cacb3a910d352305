"""How many pods of a namespace are ready, at a cost that does not grow with their number.

The pods are not listed: Deployments, StatefulSets and DaemonSets say how many of theirs are ready, and of each kind only one
page is read. In a larger namespace the sum is a bound from below, which is the strict side for every limit made of it.
"""

from __future__ import annotations

import asyncio

from catalog.targets import Target, TargetKind
from sources.kubernetes import JsonObject, KubernetesReader, object_path
from sources.rollouts import count

PAGE = 100


async def namespace_ready(reader: KubernetesReader, target: Target, workload: JsonObject) -> int:
    """Ready pods of the namespace, from a bounded page of its Deployments, StatefulSets and DaemonSets; at least the target's."""
    paths = [object_path("apps/v1", plural, namespace=target.namespace) for plural in ("deployments", "statefulsets", "daemonsets")]
    ready = await asyncio.gather(*(_ready_page(reader, path) for path in paths))
    total = sum(sum(page.values()) for page in ready)
    kinds = (TargetKind.DEPLOYMENT, TargetKind.STATEFULSET, TargetKind.DAEMONSET)
    if target.kind in kinds and target.name not in ready[kinds.index(target.kind)]:
        status = workload.get("status") or {}
        total += count(status, "readyReplicas") or count(status, "numberReady")
    return total


async def _ready_page(reader: KubernetesReader, path: str) -> dict[str, int]:
    found = ready_by_name(await reader.table(path, PAGE))
    if found is None:  # a server whose table of this kind does not show it
        found = ready_by_name({"items": await reader.list(path, limit=PAGE)})
    return found or {}


def ready_by_name(page: JsonObject) -> dict[str, int] | None:
    """Ready pods per workload, from a Table (columns Name and Ready: `2/3` or `2`) or from a plain list; None for a table
    without these columns."""
    if page.get("kind") != "Table":
        return {
            item["metadata"]["name"]: count(item.get("status") or {}, "readyReplicas")
            or count(item.get("status") or {}, "numberReady")
            for item in page.get("items") or ()
        }
    columns = [str(column.get("name", "")).lower() for column in page.get("columnDefinitions") or ()]
    if "name" not in columns or "ready" not in columns:
        return None
    name, ready = columns.index("name"), columns.index("ready")
    return {row["cells"][name]: int(str(row["cells"][ready]).split("/")[0]) for row in page.get("rows") or ()}
