"""Two clocks: wall time for what is stored and shown, monotonic time for intervals inside one process."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """A source of time. Code takes a clock as a parameter and never asks the system itself."""

    def now(self) -> datetime:
        """Wall time, UTC, aware."""

    def monotonic(self) -> float:
        """Seconds that only grow; comparable inside one process."""


class SystemClock:
    """The machine's clocks."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()
