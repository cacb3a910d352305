"""A whole installation as separate processes, started from the demo's backup so that its gates are open; shared by a module."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from sandbox.demo.installation import PEOPLE, Installation
from sandbox.demo.people import Operator, Person

Json = dict[str, Any]


class Site:
    """A running installation, its operator and its people."""

    def __init__(self, installation: Installation) -> None:
        self.installation = installation
        self.operator = Operator(installation)
        self.people = {name: Person(installation, name) for name in PEOPLE}
        self._before: frozenset[int] = frozenset()

    async def begin(self) -> None:
        """Forget the incidents that are there already."""
        reader = self.people["ana"]
        lines = await reader.incidents() + await reader.incidents(closed=True)
        self._before = frozenset(line["number"] for line in lines)

    async def incidents_of(self, namespace: str, name: str) -> list[Json]:
        """Incidents of a workload since `begin`, oldest first."""
        reader = self.people["ana"]
        lines = await reader.incidents() + await reader.incidents(closed=True, limit=100)
        mine = [
            line
            for line in lines
            if line["number"] not in self._before
            and (line["target"]["namespace"], line["target"]["name"]) == (namespace, name)
            and line["linked_to"] is None
        ]
        return sorted(mine, key=lambda line: int(line["number"]))

    async def reaches(self, namespace: str, name: str, *phases: str, within_s: float = 120.0) -> Json:
        """Wait until the workload's incident is in one of the phases; its card."""
        seen: list[str] = []

        async def there() -> Json | None:
            for line in await self.incidents_of(namespace, name):
                if not seen or seen[-1] != line["headline"]:
                    seen.append(line["headline"])
                if line["phase"] in phases:
                    return await self.people["ana"].card(line["number"])
            return None

        return await until(there, within_s, lambda: f"{namespace}/{name} never was {' or '.join(phases)}; seen: {seen}")

    async def close(self) -> None:
        await self.operator.close()
        for person in self.people.values():
            await person.close()


async def until(condition: Callable[[], Awaitable[Any]], within_s: float, what: Callable[[], str]) -> Any:
    """Wait for a condition with a deadline; its value."""
    deadline = time.monotonic() + within_s
    while True:
        value = await condition()
        if value:
            return value
        assert time.monotonic() < deadline, what()
        await asyncio.sleep(0.5)


def field(card: Json, name: str) -> str:
    """A fixed field of a card."""
    return next((str(item["value"]) for item in card["fields"] if item["name"] == name), "")


def buttons(card: Json) -> set[str]:
    """Kinds of the buttons that the card has."""
    return {str(button["kind"]) for button in card["buttons"]}
