"""Does somebody else own the very field this action writes?"""

from __future__ import annotations

from executor.preflight.scene import Scene, known, reason


@reason("custom_owner")
def custom_owner(scene: Scene) -> str | None:
    """A custom resource up the owner chain: its operator would set back whatever is written here."""
    if scene.facts.custom_owner is None:
        return None
    return f"{scene.title} is owned by a {scene.facts.custom_owner}; change that, or ask its operator."


@reason("autoscaler")
def autoscaler(scene: Scene) -> str | None:
    """An HPA or KEDA sets replicas back within seconds. A restart does not touch replicas."""
    if scene.scale is None:
        return None
    known(scene.view.autoscalers, "the autoscalers")
    if scene.facts.autoscaler is None:
        return None
    return f"{scene.facts.autoscaler} owns the replicas of {scene.title} and would undo a scale."


@reason("gitops")
def gitops(scene: Scene) -> str | None:
    """A GitOps manager that owns spec.replicas. The restart stamp is ours alone, and survives its next apply."""
    if scene.scale is None or scene.facts.replicas_manager is None:
        return None
    return f"{scene.facts.replicas_manager} owns the replicas of {scene.title} and would revert a scale; change it in git."
