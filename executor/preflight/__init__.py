"""Every reason to refuse an order for what the live objects are, before anything is written.

One small function per reason, in a registry (`scene.reason`); each answers None or a sentence for people. A part that a reason
needs and that could not be read refuses as `cannot_tell`: what is unknown never acts. Last come the questions to the server
itself (`asking`): does our own admission fence stand, and would it take this very patch (`dryRun=All`).
"""

from __future__ import annotations

from executor.preflight import capacity, checks, disruption, owners, rollout, target
from executor.preflight.scene import REASONS, CannotTell, Scene, resolved_steps
from executor.transactions import Refused

__all__ = ["ASKED", "REASONS", "Scene", "refusal_of", "resolved_steps"]

MODULES = (target, owners, rollout, disruption, capacity, checks)
"""In the order in which their reasons are asked: what people should hear first comes first."""

ASKED = tuple((name, ask) for module in MODULES for name, ask in REASONS.items() if ask.__module__ == module.__name__)


def refusal_of(scene: Scene) -> Refused | None:
    """The first reason that holds; None when the live objects allow the order."""
    for name, ask in ASKED:
        try:
            refused = ask(scene)
        except CannotTell as error:
            return Refused(reason="cannot_tell", sentence=f"Whether {name} holds could not be told: {error}.")
        if refused is not None:
            return refused
    return None
