"""Is the workload standing still, and would it keep serving?"""

from __future__ import annotations

from executor.preflight.scene import Scene, known, reason


@reason("paused")
def paused(scene: Scene) -> str | None:
    """The server would take the patch and do nothing until somebody resumes."""
    if known(scene.facts.paused, "whether it is paused"):
        return f"{scene.title} is paused; whoever paused it has to resume it."
    return None


@reason("behind")
def behind(scene: Scene) -> str | None:
    generation, seen = scene.facts.generation, scene.facts.observed_generation
    if generation is None or seen is None or seen < generation:
        return f"The controller has not seen the present spec of {scene.title} yet (generation {generation}, observed {seen})."
    return None


@reason("rolling_out")
def rolling_out(scene: Scene) -> str | None:
    if known(scene.facts.rolling_out, "whether a roll-out is in progress"):
        return f"A roll-out of {scene.title} is in progress."
    return None


@reason("scaled_to_zero")
def scaled_to_zero(scene: Scene) -> str | None:
    if scene.facts.desired == 0:
        return f"{scene.title} is scaled to zero, which is somebody's decision."
    return None


@reason("single_replica")
def single_replica(scene: Scene) -> str | None:
    """Automatic only where another replica serves meanwhile."""
    if scene.auto and scene.scale is None and known(scene.facts.desired, "the number of replicas") < 2:
        return f"{scene.title} has a single replica; a person has to approve."
    return None


@reason("recreate")
def recreate(scene: Scene) -> str | None:
    if scene.auto and scene.restart and scene.facts.strategy != "RollingUpdate":
        return (
            f"The strategy of {scene.title} is {scene.facts.strategy or 'unknown'}: a full outage, which a person has to approve."
        )
    return None


@reason("full_outage")
def full_outage(scene: Scene) -> str | None:
    """No pod would stay ready. With approval only if the card said so."""
    ready = known(scene.facts.ready, "the ready pods")
    unavailable = known(scene.facts.max_unavailable, "maxUnavailable") if scene.restart else 0
    at_risk = max(unavailable, 1 if scene.evictions else 0)
    if scene.scale is not None or ready - at_risk >= 1:
        return None
    if scene.auto:
        return f"No pod of {scene.title} would stay ready ({ready} ready, {at_risk} at a time); a person has to approve."
    # Where nothing is ready there is no outage to add.
    if ready and at_risk and not scene.order.allowed_outage:
        return f"No pod of {scene.title} would stay ready, and the approval did not speak of a full outage."
    return None
