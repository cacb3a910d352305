"""Every reason to refuse an order for what the live objects are, before anything is written.

One small function per reason, in a registry (`scene.reason`); each answers None or a sentence for people. A part that a reason
needs and that could not be read refuses as `cannot_tell`: what is unknown never acts. Last come the questions to the server
itself (`asking`): does our own admission fence stand, and would it take this very patch (`dryRun=All`).
"""

from __future__ import annotations

from executor.preflight import capacity, checks, disruption, owners, rollout, target
from executor.preflight.scene import REASONS, CannotTell, Scene
from executor.transactions import Refused

__all__ = ["MODULES", "REASONS", "Scene", "refusal_of"]

MODULES = (target, owners, rollout, disruption, capacity, checks)
"""Importing them fills the registry, in the order in which reasons are asked."""


def refusal_of(scene: Scene) -> Refused | None:
    """The first reason that holds; None when the live objects allow the order."""
    for name, ask in REASONS.items():
        try:
            refused = ask(scene)
        except CannotTell as error:
            return Refused(reason="cannot_tell", sentence=f"Whether {name} holds could not be told: {error}.")
        if refused is not None:
            return refused
    return None
