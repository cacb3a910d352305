"""Group commit by itself: order, bounds, and that one bad item spoils no other."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from incidents.committing import GroupCommit, Overloaded
from incidents.database import StoreUnavailable


class Store:
    """Writes groups one at a time, when told to."""

    def __init__(self) -> None:
        self.groups: list[list[str]] = []
        self.open = asyncio.Event()
        self.open.set()
        self.down = False

    async def write(self, items: Sequence[str]) -> list[str]:
        await self.open.wait()
        if self.down:
            raise StoreUnavailable("down")
        if "poison" in items:
            raise ValueError("poison")
        self.groups.append(list(items))
        return [f"wrote {item}" for item in items]


async def begun() -> None:
    """Let every task that can run do so."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_what_gathers_while_one_group_is_written_is_the_next_group() -> None:
    store = Store()
    commits = GroupCommit(store.write, group_weight=10, waiting_weight=100)
    store.open.clear()
    first = asyncio.create_task(commits.submit("a", 1, "x"))
    await begun()
    rest = [asyncio.create_task(commits.submit(item, 1, "x")) for item in "bcd"]
    await begun()
    store.open.set()
    assert await asyncio.gather(first, *rest) == ["wrote a", "wrote b", "wrote c", "wrote d"]
    assert store.groups == [["a"], ["b", "c", "d"]]
    assert commits.weight == 0


async def test_a_group_is_bounded_and_a_heavy_item_goes_alone() -> None:
    store = Store()
    commits = GroupCommit(store.write, group_weight=3, waiting_weight=1_000)
    store.open.clear()
    tasks = [asyncio.create_task(commits.submit(f"{weight}", weight, str(weight))) for weight in (1, 2, 2, 50, 1)]
    await begun()
    store.open.set()
    await asyncio.gather(*tasks)
    assert [sum(int(item) for item in group) for group in store.groups] == [3, 2, 50, 1]


async def test_too_much_is_refused_and_one_sender_gets_half() -> None:
    store = Store()
    commits = GroupCommit(store.write, group_weight=5, waiting_weight=10)
    store.open.clear()
    first = asyncio.create_task(commits.submit("first", 5, "x"))
    await begun()
    with pytest.raises(Overloaded, match="of one sender"):
        await commits.submit("more", 1, "x")
    second = asyncio.create_task(commits.submit("second", 5, "y"))
    await begun()
    with pytest.raises(Overloaded, match="at most 10"):
        commits.refuse_when_full("z")
    store.open.set()
    assert await asyncio.gather(first, second) == ["wrote first", "wrote second"]
    assert await commits.submit("later", 1, "x") == "wrote later"


async def test_a_bad_item_fails_alone() -> None:
    store = Store()
    commits = GroupCommit(store.write, group_weight=10, waiting_weight=100)
    results = await asyncio.gather(*(commits.submit(item, 1, "x") for item in ("a", "poison", "b")), return_exceptions=True)
    assert (results[0], results[2]) == ("wrote a", "wrote b")
    assert isinstance(results[1], ValueError)


async def test_a_store_in_trouble_fails_the_group_and_the_next_one_is_tried() -> None:
    store = Store()
    commits = GroupCommit(store.write, group_weight=10, waiting_weight=100)
    store.down = True
    results = await asyncio.gather(*(commits.submit(item, 1, "x") for item in "ab"), return_exceptions=True)
    assert all(isinstance(result, StoreUnavailable) for result in results)
    store.down = False
    assert await commits.submit("c", 1, "x") == "wrote c"


async def test_a_caller_that_goes_away_takes_nobody_with_it() -> None:
    store = Store()
    commits = GroupCommit(store.write, group_weight=10, waiting_weight=100)
    store.open.clear()
    leaving, staying = (asyncio.create_task(commits.submit(item, 1, "x")) for item in "ab")
    await begun()
    leaving.cancel()
    await begun()
    store.open.set()
    assert await staying == "wrote b"
    assert commits.weight == 0
