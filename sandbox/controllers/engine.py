"""The work queue behind all controllers: level-triggered, one item at a time, woken by store changes and by timers.

A controller is asked to `sync` a key and looks at the whole present state; it never sees which event woke it. Keys that are
already waiting are not queued twice, and a sync says itself when it next wants to be asked. So an idle object costs nothing:
no timer runs for it, and ten thousand of them are ten thousand entries in no queue at all.

Two kinds of time: *real* seconds of the injected clock, and *model* seconds (container start, probes, back-offs, grace,
everything a manifest or a behaviour says), which pass `scale` times as fast. A reaction to a change takes `REACTION_S` real
seconds, like the few milliseconds between a write and a controller's answer; that is what makes old, complete-looking statuses
visible.

`run` serves the queue in an event loop. `run_due` serves what is due now, so a test can drive it with a hand-moved clock.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Iterable
from typing import Protocol

from catalog.clocks import Clock
from sandbox.statuses import StatusError

REACTION_S = 0.008
"""Real seconds from a change to the controller's look at it; divided by the scale, but never under `LEAST_REACTION_S`."""
LEAST_REACTION_S = 0.006
RETRY_S = 0.02
"""Real seconds before a sync that met a refusal is tried again; doubles with each refusal in a row up to 10 s."""
_PACES = {"replicaset": 1.3}
"""Controllers that are slower than others; not in step, so that the states between two of them can be seen."""
BATCH = 64
"""Items served before other tasks of the loop get their turn."""

Key = tuple[str, str]
"""(namespace, name); namespace "" for cluster-scoped objects."""

log = logging.getLogger(__name__)


class Controller(Protocol):
    """One control loop."""

    name: str

    def sync(self, key: Key) -> float | None:
        """Bring the object nearer to what it should be. Returns model seconds until it wants to look again, or None."""


class Engine:
    """The queue and its clock. Not thread-safe: one event loop, or one test, owns it."""

    def __init__(self, clock: Clock, *, scale: float = 1.0) -> None:
        if scale <= 0:
            raise ValueError(f"time scale must be positive, not {scale}")
        self.clock = clock
        self.scale = scale
        self.syncs = 0
        """Syncs done so far; an idle cluster does not add to it."""
        self._controllers: dict[str, Controller] = {}
        self._due: dict[tuple[str, Key], float] = {}
        self._heap: list[tuple[float, int, tuple[str, Key]]] = []
        self._order = 0
        self._refusals: dict[tuple[str, Key], int] = {}
        self._woken = asyncio.Event()

    @property
    def reaction(self) -> float:
        """Real seconds from a change to a controller's look at it."""
        return max(LEAST_REACTION_S, REACTION_S / self.scale)

    def monotonic(self) -> float:
        """Real seconds; what due times are measured in."""
        return self.clock.monotonic()

    def real(self, model_seconds: float) -> float:
        """Real seconds that `model_seconds` take."""
        return model_seconds / self.scale

    def model(self, real_seconds: float) -> float:
        """Model seconds that pass in `real_seconds`."""
        return real_seconds * self.scale

    def register(self, controllers: Iterable[Controller]) -> None:
        """Add controllers by their names."""
        for controller in controllers:
            self._controllers[controller.name] = controller

    def changed(self, controller: str, key: Key) -> None:
        """Something that `controller` may care about changed: look at `key` within a reaction time."""
        self._queue((controller, key), self.monotonic() + self.reaction * _PACES.get(controller, 1.0))

    def later(self, controller: str, key: Key, model_seconds: float) -> None:
        """Look at `key` after `model_seconds`, or earlier if it is due earlier."""
        self._queue((controller, key), self.monotonic() + self.real(max(0.0, model_seconds)))

    def next_due(self) -> float | None:
        """When the next item is due (clock.monotonic), or None if there is none."""
        while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def run_due(self, limit: int | None = None) -> int:
        """Serve items that are due now, oldest first, at most `limit`. Returns how many."""
        served = 0
        while limit is None or served < limit:
            due = self.next_due()
            if due is None or due > self.monotonic():
                break
            item = heapq.heappop(self._heap)[2]
            del self._due[item]
            self._serve(item)
            served += 1
        return served

    async def run(self) -> None:
        """Serve the queue until cancelled."""
        while True:
            served = self.run_due(BATCH)
            if served == BATCH:
                await asyncio.sleep(0)
                continue
            self._woken.clear()
            due = self.next_due()
            if due is None:
                await self._woken.wait()
                continue
            delay = due - self.monotonic()
            if delay > 0:
                await self._wait(delay)

    async def _wait(self, delay: float) -> None:
        try:
            async with asyncio.timeout(delay):
                await self._woken.wait()
        except TimeoutError:
            return

    def _queue(self, item: tuple[str, Key], due: float) -> None:
        waiting = self._due.get(item)
        if waiting is not None and waiting <= due:
            return
        self._due[item] = due
        self._order += 1
        heapq.heappush(self._heap, (due, self._order, item))
        if self._heap[0][2] == item:
            self._woken.set()

    def _serve(self, item: tuple[str, Key]) -> None:
        name, key = item
        self.syncs += 1
        try:
            again = self._controllers[name].sync(key)
        except StatusError as refusal:
            tries = self._refusals[item] = self._refusals.get(item, 0) + 1
            log.debug("%s %s: %s", name, key, refusal)
            self._queue(item, self.monotonic() + min(10.0, RETRY_S * 2 ** min(tries - 1, 10)))
            return
        self._refusals.pop(item, None)
        if again is not None:
            self.later(name, key, again)
