"""What a transaction costs beyond what it must wait for: baseline window, roll-out and settle window.

    python -m bench.transaction [--runs 3]

An approved restart of a two-replica Deployment through the whole installation. From the executor's own log: the time from the
order's acceptance to the end, less the baseline window, the roll-out (write to complete) and the settle window (complete to end).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from sandbox.demo.installation import Installation
from sandbox.demo.people import Operator, Person

SERVICES = ("basket", "tax", "returns", "shipping", "fraud")


async def main(runs: int) -> None:
    """Print each run's parts."""
    with tempfile.TemporaryDirectory() as place:
        installation = Installation(Path(place))
        try:
            await installation.start()
            operator, ana = Operator(installation), Person(installation, "ana")
            await ana.say("promote orders restart_workload R4 to measure")
            for name in SERVICES[:runs]:
                await _restart(operator, ana, name)
                print(_parts(installation.log("executor"), f"Deployment orders/{name}"), flush=True)
            await operator.close()
            await ana.close()
        finally:
            await installation.stop()


async def _restart(operator: Operator, ana: Person, name: str) -> None:
    await operator.break_program("orders", name, {"leak_bytes_per_s": 900_000})
    asked = False
    deadline = time.monotonic() + 150
    while time.monotonic() < deadline:
        lines = [line for line in await ana.incidents() if line["target"]["name"] == name]
        if lines and lines[0]["phase"] == "proposed" and not asked:
            asked = True
            await ana.say(f"approve {lines[0]['number']}")
        if lines and lines[0]["phase"] == "watching":
            return
        await asyncio.sleep(0.5)
    raise SystemExit(f"{name}: not committed in time")


def _parts(log: str, target: str) -> str:
    """The phases of the newest transaction of a target, with how long each lasted."""
    entries: list[dict[str, Any]] = []
    for line in log.splitlines():
        if line.startswith("{"):
            entry = json.loads(line)
            if entry.get("target") == target:
                entries.append(entry)
    marks = [(entry["phase"], datetime.fromisoformat(entry["timestamp"])) for entry in entries if entry.get("event") == "phase"]
    spans = [f"{one[0]} {(two[1] - one[1]).total_seconds():.2f} s" for one, two in pairwise(marks)]
    whole = (marks[-1][1] - marks[0][1]).total_seconds() if marks else 0.0
    return f"{target}: {whole:.2f} s in all: {', '.join(spans)}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=3)
    asyncio.run(main(min(parser.parse_args().runs, len(SERVICES))))
