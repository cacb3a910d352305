"""One watch: which lines to send, from a resourceVersion on, until its time is over.

A `Watch` listens to the store from the moment it is made, so nothing is lost between what it replays and what it hears. It
answers in (type, entry) pairs; how an entry is written is the caller's business. A selector turns changes around: what leaves
it is DELETED (in its old form, under the new resourceVersion), what enters is ADDED.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from sandbox.kinds import EVENTS, Kind
from sandbox.shelves import Change, Entry
from sandbox.statuses import Expired, Json
from sandbox.store import Store

LineType = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
BACKLOG = 20_000
BOOKMARK_LEAD_S = 2.0
BOOKMARK_EVERY_S = 60.0


@dataclass(frozen=True)
class Line:
    """One line of a watch. `entry` is None for a bookmark, whose `revision` is all it says."""

    type: LineType
    entry: Entry | None
    revision: int
    initial_end: bool = False


@dataclass(frozen=True)
class Scope:
    """What is watched: a kind, one namespace (None: all), and a test of the objects."""

    kind: Kind
    namespace: str | None
    matches: Callable[[Json], bool]

    def covers(self, entry: Entry) -> bool:
        """Whether the object is inside."""
        if self.namespace is not None and entry.body["metadata"].get("namespace", "") != self.namespace:
            return False
        return self.matches(entry.body)


class Watch:
    """A running watch. It listens until `release`.

    `after` is the revision after which changes count; None sends what exists first. `timeout_s` ends it, cleanly.
    """

    def __init__(
        self, store: Store, scope: Scope, *, after: int | None, timeout_s: float, bookmarks: bool, initial_end: bool = False
    ) -> None:
        self._store = store
        self._scope = scope
        self._after = after
        self._timeout_s = timeout_s
        self._bookmarks = bookmarks
        self._initial_end = initial_end
        self._heard: asyncio.Queue[Change | None] = asyncio.Queue()
        self._future = after is not None and after > store.revision
        self._unsubscribe = store.subscribe(self._hear, scope.kind)
        self._first: list[Line] = []
        self._closed = False

    def release(self) -> None:
        """Stop listening. Whoever made the watch must call it, however it ended."""
        self._unsubscribe()

    def start(self) -> None:
        """Prepare what is sent first.

        Raises:
            Expired: changes after the wanted revision are no longer kept.
        """
        if self._after is None:
            self._first = [
                Line("ADDED", entry, entry.revision)
                for entry in self._store.entries(self._scope.kind, self._scope.namespace)
                if self._scope.covers(entry)
            ]
            if self._initial_end:
                self._first.append(Line("BOOKMARK", None, self._store.revision, initial_end=True))
        elif not self._future:
            try:
                changes = self._store.changes(self._scope.kind, self._after)
            except Expired as error:
                if self._scope.kind.key == EVENTS.key:
                    raise Expired("The resourceVersion for the provided watch is too old.") from error
                raise
            self._first = [line for change in changes for line in self._lines(change)]

    async def lines(self) -> AsyncIterator[list[Line]]:
        """Batches of lines until the time is over, the backlog overflows or `close` is called."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self._timeout_s
        bookmark_at = min(end - BOOKMARK_LEAD_S, loop.time() + BOOKMARK_EVERY_S) if self._bookmarks else None
        if self._first:
            yield self._first
            self._first = []
        while True:
            until = end if bookmark_at is None else min(end, bookmark_at)
            try:
                change = await asyncio.wait_for(self._heard.get(), max(0.0, until - loop.time()))
            except TimeoutError:
                if bookmark_at is None or loop.time() >= end:
                    return
                yield [Line("BOOKMARK", None, self._store.revision)]
                bookmark_at = _next_bookmark(loop.time(), end)
                continue
            batch = list(self._drain(change))
            if batch:
                yield batch
            if self._closed or self._heard.qsize() > BACKLOG:
                return

    def close(self) -> None:
        """End the watch from outside."""
        self._closed = True
        self._heard.put_nowait(None)

    def _hear(self, change: Change) -> None:
        if not self._future:
            self._heard.put_nowait(change)

    def _drain(self, change: Change | None) -> Iterator[Line]:
        while change is not None:
            yield from self._lines(change)
            change = None if self._heard.empty() else self._heard.get_nowait()

    def _lines(self, change: Change) -> Iterator[Line]:
        now = change.type != "DELETED" and self._scope.covers(change.entry)
        before = change.previous is not None and self._scope.covers(change.previous)
        if now:
            yield Line("MODIFIED" if before else "ADDED", change.entry, change.revision)
        elif before and change.type == "DELETED":
            yield Line("DELETED", change.entry, change.revision)
        elif before and change.previous is not None:
            body = change.previous.body
            left = {**body, "metadata": {**body["metadata"], "resourceVersion": str(change.revision)}}
            yield Line("DELETED", Entry(change.entry.key, left, change.revision), change.revision)


def _next_bookmark(now: float, end: float) -> float | None:
    following = now + BOOKMARK_EVERY_S
    last = end - BOOKMARK_LEAD_S
    if now >= last - 0.01:
        return None
    return min(following, last)
