"""Can the result be judged at all? Without a check of each oracle nothing is done by itself."""

from __future__ import annotations

from catalog.targets import TargetKind
from executor.accepting import missing_oracles
from executor.preflight.scene import Scene, known, reason
from sources.workloads import pod_ready


@reason("oracles")
def oracles(scene: Scene) -> str | None:
    """An automatic order needs a check of the alert, of the component and, unless the limits file says no, of the service level."""
    if not scene.auto:
        return None
    missing = missing_oracles(scene.order, service_level=scene.bounds.automatic_needs_service_level)
    return f"An automatic order needs a check of each oracle; missing: {', '.join(missing)}." if missing else None


@reason("node_lost")
def node_lost(scene: Scene) -> str | None:
    """A pod on a node that does not answer cannot be evicted: it would stay Terminating and might still run."""
    if not scene.evictions or scene.order.target.kind is not TargetKind.DEPLOYMENT:
        return None
    evicted = {step.pod for step in scene.evictions}
    pods = [pod for pod in known(scene.view.pods, "the pods") if pod["metadata"].get("name") in evicted]
    nodes = {str(node["metadata"].get("name")): node for node in known(scene.view.nodes, "the nodes")}
    for pod in pods:
        name = str((pod.get("spec") or {}).get("nodeName") or "")
        if name and (name not in nodes or not pod_ready(nodes[name])):
            return f"Pod {pod['metadata']['name']} is on node {name}, which is not Ready; it is not evicted from there."
    return None
