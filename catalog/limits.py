"""Pure arithmetic of bounds. The bot decides with it and the executor checks again with it, from its own file and journal.

Every function answers None when the bound holds, else a `Breach` that says which limit, its value and what was found.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Literal

from catalog.documents import Document

_BUDGET = re.compile(r"(\d{1,4})/(\d{1,4})([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


class Breach(Document):
    """A bound that does not hold."""

    limit: str
    allowed: str
    found: str
    free_at: datetime | None = None

    @property
    def sentence(self) -> str:
        until = f"; free again at {self.free_at:%Y-%m-%d %H:%M:%S} UTC" if self.free_at else ""
        return f"{self.limit} allows {self.allowed}, found {self.found}{until}"


class Budget(Document):
    """At most `count` in any window of `per`."""

    count: int
    per: timedelta

    @classmethod
    def parse(cls, text: str) -> Budget:
        """Read `3/1h`. Units: s, m, h, d.

        Raises:
            ValueError: not of that form, or a window of nothing.
        """
        found = _BUDGET.fullmatch(text)
        if found is None or int(found[2]) == 0:
            raise ValueError(f"{text!r} is not a budget; write COUNT/WINDOW, for example 3/1h")
        return cls(count=int(found[1]), per=timedelta(**{_UNITS[found[3]]: int(found[2])}))

    def __str__(self) -> str:
        seconds = int(self.per.total_seconds())
        for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
            if seconds % size == 0:
                return f"{self.count}/{seconds // size}{unit}"
        return f"{self.count}/{seconds}s"

    def breach(self, name: str, times: Iterable[datetime], now: datetime) -> Breach | None:
        """Whether one more at `now` would be too many, given when the earlier ones were. Instants after `now` count."""
        recent = sorted(at for at in times if at > now - self.per)
        if len(recent) < self.count:
            return None
        free_at = recent[len(recent) - self.count] + self.per if self.count else None
        return Breach(limit=name, allowed=str(self), found=f"{len(recent)} in the window", free_at=free_at)


def rounded_pods(value: int | str | None, desired: int, *, rounding: Literal["up", "down"]) -> int:
    """An absolute or percentage count as Kubernetes resolves it: maxSurge rounds up, maxUnavailable down.

    Raises:
        ValueError: neither an integer nor `N%`.
    """
    if value is None:
        value = "25%"
    if isinstance(value, int):
        return value
    found = re.fullmatch(r"(\d{1,3})%", value)
    if found is None:
        raise ValueError(f"{value!r} is neither a number of pods nor a percentage")
    share = int(found[1]) * desired / 100
    return math.ceil(share) if rounding == "up" else math.floor(share)


def resolved_roll_out(max_surge: int | str | None, max_unavailable: int | str | None, desired: int) -> tuple[int, int]:
    """(surge, unavailable) in pods. When both come to 0, Kubernetes takes 1 unavailable."""
    surge = rounded_pods(max_surge, desired, rounding="up")
    unavailable = rounded_pods(max_unavailable, desired, rounding="down")
    if surge == 0 and unavailable == 0:
        unavailable = 1
    return surge, unavailable


def allowed_dip(max_unavailable: int, ready: int, disruptions_allowed: int | None) -> int:
    """Pods that may be unready during a roll-out without that counting as failing."""
    dip = max(max_unavailable, 1 if ready >= 3 else 0)
    return dip if disruptions_allowed is None else min(dip, disruptions_allowed)


def pods_at_risk(action: Literal["restart_workload", "restart_pod", "scale"], *, max_unavailable: int, one_pod_first: bool) -> int:
    """Pods that may be unready at the same time: the canary 1, a roll-out maxUnavailable, a scale-up 0."""
    match action:
        case "scale":
            return 0
        case "restart_pod":
            return 1
        case "restart_workload":
            return max(max_unavailable, 1 if one_pod_first else 0)


def radius_breach(at_risk: int, namespace_ready: int, share: float, limit: str) -> Breach | None:
    """Whether more pods than `share` of the namespace's ready pods may be unready at once (rounded up to at least 1)."""
    bound = max(1, math.ceil(share * namespace_ready))
    if at_risk <= bound:
        return None
    return Breach(limit=limit, allowed=f"{bound} of {namespace_ready} ready pods", found=f"{at_risk} at the same time")


def scale_breach(from_replicas: int, to_replicas: int, *, minimum: int, maximum: int, step: int, cap: int = 20) -> Breach | None:
    """Bounds of one step: never to or from 0, within [minimum, maximum] and cap, up by at most min(step, +100 %), down by half."""
    change = f"{from_replicas} → {to_replicas}"
    if to_replicas < 1:
        return Breach(limit="scale to zero", allowed="at least 1 replica", found=change)
    if from_replicas < 1:
        return Breach(limit="scale from zero", allowed="only what runs: zero is somebody's decision", found=change)
    if to_replicas > min(maximum, cap):
        return Breach(limit="scale.max", allowed=f"at most {min(maximum, cap)} replicas", found=change)
    if to_replicas < minimum:
        return Breach(limit="scale.min", allowed=f"at least {minimum} replicas", found=change)
    if to_replicas > from_replicas and to_replicas - from_replicas > min(step, from_replicas):
        return Breach(limit="scale.step", allowed=f"at most +{min(step, from_replicas)} in one step", found=change)
    if to_replicas < from_replicas and to_replicas * 2 < from_replicas:
        return Breach(limit="scale.step", allowed="at most −50 % in one step", found=change)
    return None
