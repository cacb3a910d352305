"""The story: six things that go wrong, what the installation should make of each, and how it is checked.

An act breaks something, and is over when its incident is closed. It passes when the incident took the route, ended and closed as
the act says; nothing about the product is looked at but what its API shows to a person.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from sandbox.demo.people import Operator, Person, Refusal

Json = dict[str, Any]

LEAK = 900_000
"""Bytes per second: from a third of the limit to the limit in about two and a half minutes."""
HIGH_LOAD = 190.0
USUAL_LOAD = 60.0
ACT_PATIENCE_S = 170.0
POLL_S = 0.5
CLICK_PATIENCE_S = 40.0


@dataclass
class Act:
    """One thing that goes wrong."""

    title: str
    namespace: str
    name: str
    expects: str
    """For people: what should happen."""
    begin: Callable[[Operator], Awaitable[None]]
    route: str
    end: str | None
    """End of the transaction; None: nothing was ordered."""
    close: frozenset[str]
    approver: str | None = None
    """Who approves, where a person is asked."""
    mend: Callable[[Operator], Awaitable[None]] | None = None
    """What people do once the bot has said all it has to say; None: nothing is left to mend."""
    after_s: float = 0.0
    """Seconds into the story when it begins."""
    number: int | None = None
    routes: list[str] = field(default_factory=list)
    card: Json | None = None
    trouble: str = ""

    @property
    def place(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def passed(self) -> bool:
        """Whether its incident ended as the story says."""
        return not self.trouble


def acts() -> list[Act]:
    """The story, in the order of its beginning."""

    async def bad_release(operator: Operator) -> None:
        changes = {"exit-after-s": "0.5", "exit-code": "1", "last-words": "fatal: unknown setting price_rounding"}
        await operator.release("shop", "prices", dict(changes))

    async def undo_release(operator: Operator) -> None:
        await operator.release("shop", "prices", {"exit-after-s": None, "exit-code": None, "last-words": None})

    async def wedge(operator: Operator) -> None:
        pods = await operator.pods("shop", "suggest")
        await operator.break_program("shop", "suggest", {"wedged_after_s": 0}, [pods[0]["metadata"]["name"]])

    async def leak(operator: Operator) -> None:
        await operator.break_program("shop", "storefront", {"leak_bytes_per_s": LEAK})

    async def overload(operator: Operator) -> None:
        await operator.load("orders", "checkout", HIGH_LOAD)

    async def calm(operator: Operator) -> None:
        await operator.load("orders", "checkout", USUAL_LOAD)

    async def leak_outside(operator: Operator) -> None:
        await operator.break_program("billing", "statements", {"leak_bytes_per_s": LEAK})

    async def mend_outside(operator: Operator) -> None:
        await operator.mend("billing", "statements")

    async def leak_unlabelled(operator: Operator) -> None:
        await operator.break_program("legacy", "mailer", {"leak_bytes_per_s": LEAK})

    async def mend_unlabelled(operator: Operator) -> None:
        await operator.mend("legacy", "mailer")

    people = frozenset({"people", "self_resolved"})
    return [
        Act("informed only", "shop", "prices", "a bad release: the card names the rollback for people and has no button",
            bad_release, "notify", None, people, mend=undo_release),
        Act("not opted in", "legacy", "mailer", "a leak where nobody opted in: said, with how to opt in, and nothing done",
            leak_unlabelled, "notify", None, people, mend=mend_unlabelled),
        Act("asked, and approved", "shop", "suggest", "one wedged pod of three: a person approves its restart, and it holds",
            wedge, "propose", "committed", frozenset({"held"}), approver="ana"),
        Act("by itself", "shop", "storefront", "a leak: restarted by itself, one pod first, and it holds",
            leak, "auto", "committed", frozenset({"held"})),
        Act("by itself, and undone by itself", "orders", "checkout",
            "more load than it can carry: scaled up by itself; its database has no connections left, errors rise, rolled back",
            overload, "auto", "rolled_back", frozenset({"rolled_back"}), mend=calm, after_s=35.0),
        Act("refused", "billing", "statements", "approved by a person, but outside the executor's own limits: refused by it",
            leak_outside, "propose", "refused", frozenset({"refused"}), approver="cy", mend=mend_outside),
    ]  # fmt: skip


class Stage:
    """Plays acts side by side and watches their incidents."""

    def __init__(self, operator: Operator, people: dict[str, Person], say: Callable[[str], None], *, wait_for_clicks: bool) -> None:
        self._operator = operator
        self._people = people
        self._say = say
        self._wait_for_clicks = wait_for_clicks
        self._before: frozenset[int] = frozenset()

    async def play(self, story: list[Act]) -> bool:
        """Play to the end; whether every act passed."""
        first = self._people["ana"]
        self._before = frozenset(line["number"] for line in await first.incidents() + await first.incidents(closed=True))
        await asyncio.gather(*(self._act(act) for act in story))
        return all(act.passed for act in story)

    async def _act(self, act: Act) -> None:
        await asyncio.sleep(act.after_s)
        self._say(f"{act.place}: {act.expects}")
        await act.begin(self._operator)
        try:
            async with asyncio.timeout(ACT_PATIENCE_S):
                await self._follow(act)
        except TimeoutError:
            state = "no incident was opened" if act.number is None else "its incident is not closed"
            act.trouble = f"after {ACT_PATIENCE_S:.0f} s {state}"
        if not act.trouble:
            act.trouble = _verdict(act)

    async def _follow(self, act: Act) -> None:
        asked = mended = False
        shown = ""
        while True:
            await asyncio.sleep(POLL_S)
            line = await self._line(act)
            if line is None:
                continue
            if line["headline"] != shown:
                shown = line["headline"]
                self._say(f"#{line['number']} {shown}")
            if line["route"] and (not act.routes or act.routes[-1] != line["route"]):
                act.routes.append(line["route"])
            if line["phase"] == "closed":
                act.card = await self._people["ana"].card(line["number"])
                return
            if line["phase"] == "proposed" and act.approver and not asked:
                asked = True
                await self._approve(act, line["number"])
            if not mended and act.mend is not None and await self._settled(act, line):
                mended = True
                await act.mend(self._operator)

    async def _line(self, act: Act) -> Json | None:
        """The act's incident as the list shows it: the newest of its target that is not from the backup."""
        reader = self._people["ana"]
        lines = [*await reader.incidents(), *await reader.incidents(closed=True, limit=60)]
        mine = [
            line
            for line in lines
            if line["number"] not in self._before
            and (line["target"]["namespace"], line["target"]["name"]) == (act.namespace, act.name)
            and line["linked_to"] is None
        ]
        if not mine:
            return None
        first = min(mine, key=lambda line: line["number"])
        act.number = first["number"]
        return first

    async def _settled(self, act: Act, line: Json) -> bool:
        """Whether the bot has said what it has to say, so that people do their part."""
        if act.end == "refused":
            card = await self._people["ana"].card(line["number"])
            return any(item["name"] == "Outcome" and item["value"].startswith("refused") for item in card["fields"])
        return bool(line["phase"] == "notified")

    async def _approve(self, act: Act, number: int) -> None:
        person = self._people[act.approver or ""]
        if self._wait_for_clicks:
            self._say(
                f"#{number} is yours: open it in the console and approve it, or {person.name} will in {CLICK_PATIENCE_S:.0f} s"
            )
            deadline = asyncio.get_running_loop().time() + CLICK_PATIENCE_S
            while asyncio.get_running_loop().time() < deadline:
                await asyncio.sleep(POLL_S)
                if (await person.card(number))["phase"] != "proposed":
                    return
        try:
            self._say(f"#{number} {person.name}: {await person.say(f'approve {number}')}")
        except Refusal as refusal:
            self._say(f"#{number} {person.name}: {refusal}")


def _verdict(act: Act) -> str:
    """What is not as the story says; '' when all is."""
    assert act.card is not None
    wrong = []
    outcome = field_of(act.card, "Outcome")
    end = outcome.split(":")[0] if outcome else None
    if act.route not in act.routes:
        wrong.append(f"route {' then '.join(act.routes) or 'none'}, expected {act.route}")
    if end != act.end:
        wrong.append(f"end {end or 'none'}, expected {act.end or 'none'}")
    if act.card["close_reason"] not in act.close:
        wrong.append(f"closed as {act.card['close_reason']}, expected {' or '.join(sorted(act.close))}")
    return "; ".join(wrong)


def field_of(card: Json, name: str) -> str:
    """A fixed field of a card, '' when it has none of that name."""
    return next((str(item["value"]) for item in card["fields"] if item["name"] == name), "")
