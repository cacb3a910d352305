"""Tasks for the tests of the worker process: what a task can do to it, good and bad."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Any

from catalog.documents import Document


class Seen(Document):
    """What the child saw."""

    text: str = ""
    pid: int = 0
    key: str = ""


class Bench:
    def __init__(self, key: bytes) -> None:
        self.key = key

    async def close(self) -> None:
        """Nothing to give back."""


def open_bench(key: bytes) -> Bench:
    return Bench(key)


async def echo(bench: Bench, body: Mapping[str, Any]) -> Seen:
    print("a library that prints")
    return Seen(text=body["text"], pid=os.getpid(), key=bench.key.hex())


async def for_ever(_bench: Bench, _body: Mapping[str, Any]) -> Seen:
    await asyncio.Event().wait()
    return Seen()


async def raising(_bench: Bench, _body: Mapping[str, Any]) -> Seen:
    raise ValueError("no such thing")


async def dying(_bench: Bench, _body: Mapping[str, Any]) -> Seen:
    os.kill(os.getpid(), 9)
    return Seen()


TASKS = {"echo": echo, "for_ever": for_ever, "raising": raising, "dying": dying}
