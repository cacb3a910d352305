"""`sre-sandbox demo`: an installation from the backup, the story, and then the console to click in."""

from __future__ import annotations

import asyncio
import gzip
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

from sandbox.demo.installation import PEOPLE, PUBLISHED, Installation
from sandbox.demo.people import Operator, Person
from sandbox.demo.story import Act, Stage, acts, field_of

BACKUP = Path(__file__).parent / "backup" / "bot.db.gz"
WARM_UP_S = 15.0
NOTICE = (
    "This is a demo on an emulated cluster. The labels that opened its calibration gate are from sandbox incidents that were lived "
    "through and labelled through the front door; `sre-sandbox history` makes them again."
)


def restore(directory: Path) -> None:
    """Put the backup of the bot's database in place."""
    directory.mkdir(parents=True, exist_ok=True)
    with gzip.open(BACKUP, "rb") as packed, (directory / "bot.db").open("wb") as database:
        shutil.copyfileobj(packed, database)


async def show(directory: Path, *, once: bool, say: Callable[[str], None]) -> bool:
    """Play the story; whether it went as it says. Without `once` everything stays up until interrupted."""
    began = time.monotonic()

    def told(text: str) -> None:
        say(f"{time.monotonic() - began:6.1f} s  {text}")

    restore(directory)
    say(f"rules.yml\n\n{(PUBLISHED / 'rules.yml').read_text()}")
    say(f"autonomy.yaml\n\n{(PUBLISHED / 'autonomy.yaml').read_text()}")
    installation = Installation(directory, notice=NOTICE)
    interrupted = asyncio.Event()
    for name in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(name, interrupted.set)
    try:
        told("starting cluster, Prometheus, Alertmanager, bot and executor, each a process of its own")
        await installation.start()
        link = (await installation.run("sre-bot", "person", "link", "ana")).strip()
        told(f"console: {link}  (works once, for ten minutes; another: sre-bot person link ana)")
        told(f"files, databases and logs are in {directory}")
        playing = asyncio.create_task(_play(installation, told, wait_for_clicks=not once))
        stopping = asyncio.create_task(interrupted.wait())
        await asyncio.wait({playing, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not playing.done():
            playing.cancel()
            return False
        passed, report = playing.result()
        say(report)
        if not once:
            told(f"everything stays up; console {installation.bot_url}; end with Ctrl-C")
            await stopping
        stopping.cancel()
        return passed
    finally:
        await installation.stop()


async def _play(installation: Installation, told: Callable[[str], None], *, wait_for_clicks: bool) -> tuple[bool, str]:
    operator = Operator(installation)
    people = {name: Person(installation, name) for name in PEOPLE}
    try:
        told(f"a quiet {WARM_UP_S:.0f} s, so that there is a usual to compare with")
        await asyncio.sleep(WARM_UP_S)
        story = acts()
        passed = await Stage(operator, people, told, wait_for_clicks=wait_for_clicks).play(story)
        return passed, report(story)
    finally:
        await operator.close()
        for person in people.values():
            await person.close()


def report(story: list[Act]) -> str:
    """One paragraph per incident: alert, verdict, weight, deciding gate, approver, severity before and after, end."""
    return "\n\n".join(_paragraph(act) for act in story)


def _paragraph(act: Act) -> str:
    title = f"{'ok ' if act.passed else 'NOT AS TOLD'} {act.title}: {act.place}" + (f" #{act.number}" if act.number else "")
    if act.card is None:
        return f"{title}\n    {act.trouble}"
    card = act.card
    rows = [
        ("alert", "; ".join(card["alerts"])),
        ("verdict", card["cause"]),
        ("action", field_of(card, "Action")),
        ("evidence weight", field_of(card, "Evidence weight")),
        ("deciding gate", field_of(card, "Deciding gate")),
        ("approved by", field_of(card, "Approved by") or "–"),
        ("severity µ", field_of(card, "Severity µ") or "–"),
        ("outcome", field_of(card, "Outcome") or "nothing was ordered"),
        ("end", card["headline"]),
    ]
    if act.trouble:
        rows.append(("trouble", act.trouble))
    return title + "".join(f"\n    {name:<16} {value}" for name, value in rows if value)
