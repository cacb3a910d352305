"""Start-up time and resident memory of both processes, once they serve and have worked through one incident.

    python -m bench.processes

Start-up is from spawning the process to the line of its log that says it works (bot: serving; executor: holds the lease), on an
installed database. Memory is VmRSS of the process; the bot's child that runs triage and verification is told apart.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from sandbox.demo.installation import Installation
from sandbox.demo.people import Operator, Person


async def main() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as place:
        installation = Installation(Path(place))
        try:
            await installation.start()
            await _one_incident(installation)
            for name in ("bot", "executor"):
                print(f"{name:<10} resident {_resident(installation.pid(name)):6.1f} MB after one incident", flush=True)
            for child in _children(installation.pid("bot")):
                print(f"{'  worker':<10} resident {_resident(child):6.1f} MB")
            for name, start, ready in (
                ("bot", installation.start_bot, '"event": "serving"'),
                ("executor", installation.start_executor, '"active": true'),
            ):
                await installation.end(name)
                print(f"{name:<10} starts in {await _start(installation, name, start, ready):5.2f} s", flush=True)
            await asyncio.sleep(3)
            for name in ("bot", "executor"):
                print(f"{name:<10} resident {_resident(installation.pid(name)):6.1f} MB idle")
        finally:
            await installation.stop()


async def _start(installation: Installation, name: str, start: Callable[[], Awaitable[None]], ready: str) -> float:
    """Seconds from spawning the process to the line of its log that says it works."""
    before = len(installation.log(name))
    began = time.monotonic()
    starting = asyncio.create_task(start())
    while ready not in installation.log(name)[before:]:  # noqa: ASYNC110 - another process writes the log
        await asyncio.sleep(0.02)
    took = time.monotonic() - began
    await starting
    return took


async def _one_incident(installation: Installation) -> None:
    operator, reader = Operator(installation), Person(installation, "ana")
    await operator.break_program("shop", "cart", {"leak_bytes_per_s": 900_000})
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if any(line["phase"] in ("notified", "proposed", "recorded") for line in await reader.incidents()):
            break
        await asyncio.sleep(0.5)
    await operator.close()
    await reader.close()


def _resident(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


if __name__ == "__main__":
    asyncio.run(main())
