"""A worker whose answers a test writes down: documents go through the real process and its pipe, the outside is a file.

The file named by SCRIPT holds, per task, the answer as JSON, or {"raise": TEXT}, {"die": true} or {"hang": true}. A list is
answered one by one, its last entry for ever. What was asked is appended to SCRIPT.asked, one line each.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import RootModel

_asked: Counter[str] = Counter()


class Bench:
    async def close(self) -> None:
        """Nothing to give back."""


class Scripted(RootModel[dict[str, Any]]):
    """Any document."""


def open_bench(_key: bytes) -> Bench:
    return Bench()


def _task(name: str) -> Any:
    async def answer(_bench: Bench, body: Mapping[str, Any]) -> Scripted:
        script, written = _read(name, body)
        if isinstance(written, list):
            written = written[min(_asked[f"{script}:{name}"], len(written) - 1)]
        _asked[f"{script}:{name}"] += 1
        if "raise" in written:
            raise ValueError(written["raise"])
        if "die" in written:
            os.kill(os.getpid(), 9)
        if "hang" in written:
            await asyncio.Event().wait()
        if "incident_id" in json.dumps(written):
            written = json.loads(json.dumps(written).replace("INCIDENT", _incident(body)))
        return Scripted(written)

    return answer


def _read(name: str, body: Mapping[str, Any]) -> tuple[str, Any]:
    script = Path(os.environ["SCRIPT"])
    with Path(f"{script}.asked").open("a") as asked:
        asked.write(json.dumps({"task": name, "body": body}) + "\n")
    return str(script), json.loads(script.read_text()).get(name, {})


def _incident(body: Mapping[str, Any]) -> str:
    found = body.get("incident_id") or body.get("diagnosis", {}).get("incident_id", "")
    return str(found)


TASKS = {name: _task(name) for name in ("triage", "verify", "confirm", "census")}
