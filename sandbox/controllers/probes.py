"""A kubelet's probes, asked only when their answer can change.

A probe that passes and is known to pass is not asked again until the program says its answer may change, or somebody injects a
fault (`disturb`). So healthy pods need no timers, while a failing probe is asked at every period, as the recordings show.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sandbox.workloads import Program

ProbeKind = Literal["startup", "readiness", "liveness"]
PROBE_KINDS: tuple[ProbeKind, ...] = ("startup", "readiness", "liveness")

FIRST_S = 0.05
"""Model seconds from the start of a container to its first probe, besides initialDelaySeconds."""
NOISY = 25
"""Failing answers in a row that are told one by one; then one in `QUIET_S` model seconds."""
QUIET_S = 300.0


@dataclass
class Probe:
    """One probe of one running container; `verdict` is what it has settled on."""

    kind: ProbeKind
    spec: Mapping[str, Any]
    verdict: bool
    at: float | None
    """Uptime of the next question, None while nothing can change."""
    streak: int = 0
    told: int = 0

    @classmethod
    def of(cls, kind: ProbeKind, spec: Mapping[str, Any]) -> Probe:
        """A probe of a container that just started."""
        return cls(kind, spec, kind == "liveness", float(spec.get("initialDelaySeconds", 0)) + FIRST_S)

    @property
    def period(self) -> float:
        return float(self.spec.get("periodSeconds", 10))

    def ask(self, program: Program, uptime: float) -> tuple[bool, int]:
        """Ask once. Returns whether the verdict changed, and how many failures to tell of."""
        answer = passes(self.kind, program, uptime)
        changed = False
        if answer == self.verdict:
            self.streak = 0
        else:
            self.streak += 1
            needed = int(self.spec.get("successThreshold", 1) if answer else self.spec.get("failureThreshold", 3))
            if self.streak >= needed:
                self.verdict, self.streak, changed = answer, 0, True
        failures = 0 if answer else self._failures()
        self.at = self._next(answer, program, uptime)
        return changed, failures

    def disturb(self, uptime: float) -> None:
        """Something may have changed: ask at the next period."""
        self.at = self._tick_after(uptime)

    def _failures(self) -> int:
        quiet = self.told >= NOISY and self.kind != "startup"
        count = max(1, round(QUIET_S / self.period)) if quiet else 1
        self.told += count
        return count

    def _next(self, answer: bool, program: Program, uptime: float) -> float | None:
        changes = program.changes_after(uptime)
        if answer and self.verdict:
            self.told = 0
            return None if changes is None else self._tick_after(changes - 1e-9)
        if not answer and not self.verdict and self.told >= NOISY and self.kind != "startup":
            quiet = uptime + QUIET_S
            return quiet if changes is None else min(quiet, self._tick_after(changes - 1e-9))
        return uptime + self.period

    def _tick_after(self, uptime: float) -> float:
        first = float(self.spec.get("initialDelaySeconds", 0)) + FIRST_S
        return first + max(0, math.floor((uptime - first) / self.period) + 1) * self.period


def passes(kind: ProbeKind, program: Program, uptime: float) -> bool:
    """What the program answers to a probe."""
    ask: Mapping[ProbeKind, Callable[[float], bool]] = {
        "startup": program.starts,
        "readiness": program.ready,
        "liveness": program.alive,
    }
    return ask[kind](uptime)


def failure_text(kind: ProbeKind, spec: Mapping[str, Any], program: Program, address: str) -> str:
    """The message of the Unhealthy event."""
    said = {"liveness": program.dead_message, "readiness": program.unready_message}.get(kind, "")
    if not said and "httpGet" in spec:
        said = "HTTP probe failed with statuscode: 503"
    elif not said and "tcpSocket" in spec:
        said = f"dial tcp {address}:{spec['tcpSocket'].get('port')}: connect: connection refused"
    elif said and "exec" in spec:
        said += "\n"
    return f"{kind.capitalize()} probe failed: {said}"
