"""A reader that asks once. Many alerts of one storm name pods of the same few workloads: their owners are looked up together.

What was read is kept for ten seconds. When a fourth object of one collection is wanted, the whole collection is listed instead;
an object that is not in such a list is still asked for by itself, because it may be newer than the list.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Any

from sources.errors import SourceUnavailable
from sources.kubernetes import JsonObject, KubernetesReader

REMEMBER_S = 10.0
SINGLE_READS = 3
LIST_LIMIT = 5_000


class RememberingReader(KubernetesReader):
    """Reads through `reader`, each object at most once in ten seconds. Only `get` remembers."""

    def __init__(self, reader: KubernetesReader) -> None:
        super().__init__(reader.api, reader.clock)
        self._reader = reader
        self._objects: dict[str, JsonObject | None] = {}
        self._reads: Counter[str] = Counter()
        self._listed: set[str] = set()
        self._locks: dict[str, asyncio.Lock] = {}
        self._since = reader.clock.monotonic()

    @property
    def stale(self) -> bool:
        """Whether what is remembered is too old to be used."""
        return self.clock.monotonic() - self._since >= REMEMBER_S

    async def get(self, path: str, **query: Any) -> JsonObject | None:
        """As `KubernetesReader.get`.

        Raises:
            SourceUnavailable: as there.
        """
        if query:
            return await self._reader.get(path, **query)
        collection = path.rpartition("/")[0]
        async with self._lock(path):
            if path not in self._objects:
                self._reads[collection] += 1
                if self._reads[collection] > SINGLE_READS:
                    await self._list_once(collection)
            if path not in self._objects:
                self._objects[path] = await self._reader.get(path)
            return self._objects[path]

    def _lock(self, path: str) -> asyncio.Lock:
        return self._locks.setdefault(path, asyncio.Lock())

    async def _list_once(self, collection: str) -> None:
        """What a list cannot give (too large, not allowed, no answer in time) is then asked for one by one."""
        async with self._lock(collection):
            if collection in self._listed:
                return
            self._listed.add(collection)
            with suppress(SourceUnavailable):
                for item in await self._reader.list(collection, limit=LIST_LIMIT):
                    name = (item.get("metadata") or {}).get("name")
                    if isinstance(name, str):
                        self._objects[f"{collection}/{name}"] = item
