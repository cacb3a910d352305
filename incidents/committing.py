"""Group commit: what several callers hand in at the same time is written in one transaction.

A caller returns only when the transaction that holds its item has been committed. While one group is being written the next
one gathers, so that the number of commits follows the disk and not the number of callers. What waits is bounded.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from incidents.database import StoreUnavailable

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


class Overloaded(Exception):
    """Too much is waiting to be written. Nothing of this call was kept; send it again later."""


@dataclass(frozen=True)
class _Waiting(Generic[ItemT, ResultT]):
    item: ItemT
    weight: int
    owner: str
    done: asyncio.Future[ResultT]


class GroupCommit(Generic[ItemT, ResultT]):
    """Collects items and has them written together. `write` gets the items in order and answers one result for each.

    When `write` fails for the group for another reason than the store, each item is written alone, so that only the one at
    fault fails.
    """

    def __init__(
        self, write: Callable[[Sequence[ItemT]], Awaitable[Sequence[ResultT]]], *, group_weight: int, waiting_weight: int
    ) -> None:
        self._write = write
        self._group_weight = group_weight
        self._waiting_weight = waiting_weight
        self._waiting: list[_Waiting[ItemT, ResultT]] = []
        self._weight = 0
        self._owned: Counter[str] = Counter()
        self._writer: asyncio.Task[None] | None = None

    @property
    def weight(self) -> int:
        """Weight of everything that waits or is being written."""
        return self._weight

    def refuse_when_full(self, owner: str, weight: int = 1) -> None:
        """Refuse before any work is done for an item that could not be taken. An item is always taken when nothing else waits,
        whatever its weight.

        Raises:
            Overloaded: with `weight` more than the bound would wait, or more than half of it would be one owner's.
        """
        if self._weight and self._weight + weight > self._waiting_weight:
            raise Overloaded(f"{self._weight} alerts are waiting to be stored, at most {self._waiting_weight} may")
        owned = self._owned[owner]
        if owned and owned + weight > self._waiting_weight // 2:
            raise Overloaded(f"{owned} alerts of one sender are waiting to be stored, at most {self._waiting_weight // 2} may")

    async def submit(self, item: ItemT, weight: int, owner: str) -> ResultT:
        """Have `item` written; returns after the commit. A caller that is cancelled does not take its item back: it may still be
        written.

        Raises:
            Overloaded: too much waits already.
            StoreUnavailable: the transaction failed; nothing of it was kept.
        """
        self.refuse_when_full(owner, weight)
        waiting = _Waiting[ItemT, ResultT](item, weight, owner, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._weight += weight
        self._owned[owner] += weight
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._drain(), name="group commit")
        return await waiting.done

    async def _drain(self) -> None:
        while self._waiting:
            group = self._next_group()
            try:
                await self._settle(group)
            finally:
                for waiting in group:
                    self._weight -= waiting.weight
                    self._owned[waiting.owner] -= waiting.weight
                    if not waiting.done.done():
                        waiting.done.set_exception(StoreUnavailable("the writer was stopped"))

    def _next_group(self) -> list[_Waiting[ItemT, ResultT]]:
        count, weight = 0, 0
        for waiting in self._waiting:
            if count and weight + waiting.weight > self._group_weight:
                break
            count, weight = count + 1, weight + waiting.weight
        group, self._waiting = self._waiting[:count], self._waiting[count:]
        return group

    async def _settle(self, group: list[_Waiting[ItemT, ResultT]]) -> None:
        try:
            results = await self._write([waiting.item for waiting in group])
        except Exception as error:  # noqa: BLE001 - every failure is handed to whoever waits for it
            if len(group) == 1 or isinstance(error, StoreUnavailable):
                for waiting in group:
                    if not waiting.done.done():
                        waiting.done.set_exception(error)
                return
            for waiting in group:
                await self._settle([waiting])
            return
        for waiting, result in zip(group, results, strict=True):
            if not waiting.done.done():
                waiting.done.set_result(result)
