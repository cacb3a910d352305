"""Specialists: each reads one source's part of the symptoms and votes. One file each; adding one touches that file and its test.

A module of this package that has a `SPECIALIST` is registered by being here.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import Literal, Protocol

from triage.signals import Ballot
from triage.symptoms import Symptoms

SpecialistName = Literal["metrics", "logs", "kubernetes", "traces"]


class Specialist(Protocol):
    """Reads symptoms, never a source: it is pure and can be asked again later."""

    @property
    def name(self) -> SpecialistName: ...

    @property
    def weight(self) -> float:
        """Share of the consensus before redistribution, in [0, 1]."""

    def vote(self, symptoms: Symptoms) -> Ballot: ...


@cache
def specialists() -> tuple[Specialist, ...]:
    """All specialists, by name."""
    found: list[Specialist] = []
    for module in pkgutil.iter_modules(__path__):
        specialist = getattr(importlib.import_module(f"{__name__}.{module.name}"), "SPECIALIST", None)
        if specialist is not None:
            found.append(specialist)
    return tuple(sorted(found, key=lambda specialist: specialist.name))
