"""Transaction time: wall time at the start of the process, advanced by the monotonic clock.

Intervals do not jump with the wall clock, and what one process stored can be compared by the next.
"""

from __future__ import annotations

from datetime import UTC, datetime

from catalog.clocks import Clock


class Timeline:
    """Seconds since the epoch that only grow inside one process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wall = clock.now().timestamp()
        self._started = clock.monotonic()

    def now(self) -> float:
        return self._wall + self._clock.monotonic() - self._started

    def instant(self) -> datetime:
        """Now, as stored documents hold it."""
        return instant_of(self.now())


def instant_of(seconds: float) -> datetime:
    """The instant of a point of transaction time."""
    return datetime.fromtimestamp(seconds, UTC)
