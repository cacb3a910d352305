"""A process that stores webhooks over ten connections as fast as it can and prints the number of each one that was acknowledged."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime
from itertools import count

from incidents_setting import context_on, envelope, one_alert

from incidents.database import Database
from incidents.ingest import accept


class PresentClock:
    """The machine's time, five minutes after the alerts began."""

    def now(self) -> datetime:
        return datetime(2026, 3, 4, 10, 5, tzinfo=UTC)

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


async def main(url: str, token: str) -> None:
    context = context_on(Database.open(url), PresentClock())
    numbers = count()

    async def send() -> None:
        while True:
            number = next(numbers)
            await accept(context, envelope(*(one_alert(f"{number}-{n}") for n in range(20))), token)
            print(number, flush=True)

    await asyncio.gather(*(send() for _ in range(10)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
