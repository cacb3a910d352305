"""`sre-sandbox history`: lives through the incidents whose labels open the demo's calibration gate, and keeps the database.

Nothing is written into the database from outside: each incident is an alert of the real Prometheus, a diagnosis, a proposal that a
person approves, a transaction of the executor and two people's labels, all through the front door. Only the numbers that spread
incidents over days are loosened (`LOOSENED`), since here they come within minutes; every card of them says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import shutil
import time
from collections.abc import AsyncIterator, Callable
from itertools import cycle
from pathlib import Path
from typing import Any

from sandbox.demo.installation import PEOPLE, PUBLISHED, Installation
from sandbox.demo.people import Operator, Person, Refusal
from sandbox.demo.story import LEAK, POLL_S, USUAL_LOAD
from sandbox.demo.world import CAPACITY_RPS, ORDERS, SHOP

LOOSENED = """  cool_down: 0s
  repeat_window: 0s
  third_window: 0s
  repeat_people: 0s
  storm_workloads: 10000
  storm_share: 1.0
  storm_orders: 1000
  radius_propose: 1.0
"""
LIMITS = """schema: 1
namespaces: [shop, orders]
kinds: [Deployment]
actions: {restart_workload: approved, restart_pod: approved, scale: approved}
replicas: {min: 2, max: 10, step: 4}
radius: {auto: 0.3, approved: 1.0}
orders: {target: 100/1h, namespace: 1000/1h, cluster: 1000/1h}
settle: 8
"""
WANTED = 52
"""Incidents of each kind: the first look is at 50."""
SIDE_BY_SIDE = 14
PATIENCE_S = 240.0
STARTED = (
    ("shop", "restart_workload"), ("shop", "restart_pod"), ("shop", "scale"), ("orders", "restart_workload"), ("orders", "scale"),
    ("billing", "restart_workload"),
)  # fmt: skip
EARNED = (("shop", "restart_workload"), ("orders", "scale"))

Place = tuple[str, str]


class HistoryError(Exception):
    """The history could not be lived through. The text says what is missing."""


def places() -> list[Place]:
    """Workloads that have incidents. `checkout` is left out: its database cannot carry more of it."""
    return [("shop", name) for name in SHOP] + [("orders", name) for name in ORDERS if name != "checkout"]


async def live_through(directory: Path, backup: Path, *, wanted: int, say: Callable[[str], None]) -> None:
    """Make the backup anew.

    Raises:
        HistoryError: too few incidents ended well, or what they earned was refused.
    """
    began = time.monotonic()

    def told(text: str) -> None:
        say(f"{time.monotonic() - began:7.1f} s  {text}")

    policy = (PUBLISHED / "autonomy.yaml").read_text() + LOOSENED
    installation = Installation(directory, policy=policy, limits=LIMITS)
    try:
        say(f"autonomy.yaml, with what the history loosens at its end\n\n{policy}")
        told("starting")
        await installation.start()
        async with _people(installation) as people:
            operator = Operator(installation)
            for scope, action in STARTED:
                await people["ana"].say(f"promote {scope} {action} R4 to begin to ask people")
            life = _Life(operator, people, told)
            await life.live(wanted)
            await operator.close()
            for scope, action in EARNED:
                for owner in ("ana", "bo"):
                    told(await _said(people[owner], f"promote {scope} {action} R5 the labels carry it"))
    finally:
        await installation.stop()
    size = await asyncio.to_thread(_keep, directory / "bot.db", backup)
    told(f"kept as {backup} ({size / 1e6:.1f} MB)")


def _keep(database: Path, backup: Path) -> int:
    """Pack the database of the stopped bot; the size of the backup in bytes."""
    backup.parent.mkdir(parents=True, exist_ok=True)
    with database.open("rb") as plain, gzip.GzipFile(backup, "wb", mtime=0) as packed:
        shutil.copyfileobj(plain, packed)
    return backup.stat().st_size


async def _said(person: Person, line: str) -> str:
    try:
        return f"{person.name}: {await person.say(line)}"
    except Refusal as refusal:
        raise HistoryError(f"{person.name} was refused: {refusal}") from refusal


@contextlib.asynccontextmanager
async def _people(installation: Installation) -> AsyncIterator[dict[str, Person]]:
    people = {name: Person(installation, name) for name in PEOPLE}
    try:
        yield people
    finally:
        for person in people.values():
            await person.close()


class _Life:
    """Incidents on many workloads, a few at a time: first a leak, then too much load."""

    def __init__(self, operator: Operator, people: dict[str, Person], told: Callable[[str], None]) -> None:
        self._operator = operator
        self._people = people
        self._told = told
        self._done = {"leak": 0, "load": 0}
        self._tried = {"leak": 0, "load": 0}
        self._room = asyncio.Semaphore(SIDE_BY_SIDE)

    async def live(self, wanted: int) -> None:
        await asyncio.sleep(20.0)
        for kind in ("leak", "load"):
            waiting = cycle(places())
            for round_number in range(1, 6):
                missing = wanted - self._done[kind]
                if missing <= 0:
                    break
                self._told(f"{kind}, round {round_number}: {missing} to go")
                # Round and round, and each workload at most twice: what comes back a third time is for people.
                turn = [next(waiting) for _ in range(min(missing, len(places())))]
                await asyncio.gather(*(self._incident(kind, place) for place in turn))
            if self._done[kind] < wanted:
                raise HistoryError(f"only {self._done[kind]} of {wanted} incidents of kind {kind} ended well")

    async def _incident(self, kind: str, place: Place) -> None:
        async with self._room:
            self._tried[kind] += 1
            try:
                async with asyncio.timeout(PATIENCE_S):
                    good = await (self._leak(place) if kind == "leak" else self._load(place))
            except TimeoutError:
                good = False
                self._told(f"{kind} of {'/'.join(place)} was given up after {PATIENCE_S:.0f} s")
                await self._calm(place)
            self._done[kind] += good

    async def _leak(self, place: Place) -> bool:
        before = await self._numbers()
        await self._operator.break_program(*place, {"leak_bytes_per_s": LEAK})
        good = await self._see_through(place, before)
        await self._operator.mend(*place)
        return good

    async def _load(self, place: Place) -> bool:
        before = await self._numbers()
        replicas = int((await self._operator.deployment(*place))["spec"]["replicas"])
        await self._operator.load(*place, replicas * CAPACITY_RPS * 0.95)
        good = await self._see_through(place, before)
        await self._operator.load(*place, USUAL_LOAD)
        await self._operator.scale(*place, replicas)
        return good

    async def _calm(self, place: Place) -> None:
        await self._operator.mend(*place)
        await self._operator.load(*place, USUAL_LOAD)

    async def _numbers(self) -> frozenset[int]:
        reader = self._people["ana"]
        return frozenset(line["number"] for line in [*await reader.incidents(), *await reader.incidents(closed=True, limit=500)])

    async def _see_through(self, place: Place, before: frozenset[int]) -> bool:
        """Follow the place's new incident to its end, approve what is proposed, label it; whether it held."""
        asked: set[str] = set()
        while True:
            await asyncio.sleep(2 * POLL_S)
            line = await self._line(place, before)
            if line is None:
                continue
            if line["phase"] == "proposed":
                card = await self._people["cy"].card(line["number"])
                for proposal in {button["proposal_id"] for button in card["buttons"] if button["proposal_id"]} - asked:
                    asked.add(proposal)
                    with contextlib.suppress(Refusal):
                        await self._people["cy"].say(f"approve {line['number']}")
            if line["phase"] == "notified":
                await self._calm(place)  # the bot leaves it to people: they mend it
            if line["phase"] == "closed":
                return await self._label(line)

    async def _line(self, place: Place, before: frozenset[int]) -> dict[str, Any] | None:
        reader = self._people["ana"]
        lines = [*await reader.incidents(), *await reader.incidents(closed=True, limit=80)]
        mine = [
            line
            for line in lines
            if line["number"] not in before
            and (line["target"]["namespace"], line["target"]["name"]) == place
            and line["linked_to"] is None
        ]
        return min(mine, key=lambda line: line["number"], default=None)

    async def _label(self, line: dict[str, Any]) -> bool:
        """Two people look at how it ended and say so; who approved does not judge the action."""
        held = bool(line["close_reason"] == "held")
        verdict = "right" if held else "wrong"
        for person in ("ana", "bo"):
            with contextlib.suppress(Refusal):
                await self._people[person].say(f"label {line['number']} {verdict} action it {line['close_reason']}")
                await self._people[person].say(f"label {line['number']} right diagnosis")
        if not held:
            self._told(f"#{line['number']} {line['headline']}")
        await self._hand_over_follow_up(line)
        return held

    async def _hand_over_follow_up(self, line: dict[str, Any]) -> None:
        """A committed scale-up is followed by an incident of its own; here a person takes it and scales back."""
        for follow_up in await self._people["ana"].incidents():
            if follow_up["linked_to"] == line["incident_id"]:
                with contextlib.suppress(Refusal):
                    await self._people["ana"].say(f"take {follow_up['number']}")
