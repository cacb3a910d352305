"""One replica that leads until nothing is due, and may be told to die by SIGKILL before or after its n-th commit.

    python reconcile_child.py DATABASE_URL ORDER_KEY [before|after N]

Prints the number of commits it made.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from phases_setting import POLICY, InProcess
from sqlalchemy import event
from sqlalchemy.orm import Session
from sqlmodel import select

from incidents.context import Context
from incidents.database import Database
from incidents.leading import Candidate
from incidents.mint import Mint
from incidents.policies import Policies
from incidents.reconciling import Reconciler
from incidents.tables import LeaseRow
from ladder.policy import parse_policy


class FixedClock:
    """The moment the test stands at: nothing becomes late while processes start and die."""

    def __init__(self, at: datetime) -> None:
        self.at = at

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return 0.0


def _die_at(when: str, n: int) -> None:
    commits = 0

    def count(_session: Session) -> None:
        nonlocal commits
        commits += 1
        if commits == n:
            os.kill(os.getpid(), signal.SIGKILL)

    event.listen(Session, f"{when}_commit", count)


async def _run(url: str, key: Path, at: datetime, death: tuple[str, int] | None) -> int:
    database = Database.open(url)
    async with database.transaction() as session:
        # Whoever led is dead and its lease is over; how long that takes is tested with the lease.
        for lease in await session.exec(select(LeaseRow)):
            lease.holder = ""
            session.add(lease)
    clock = FixedClock(at)
    ctx = Context(database, clock, Policies(parse_policy(POLICY)), b"k" * 32, f"replica-{os.getpid()}")
    term = await Candidate(database, clock, ctx.replica).acquire()
    assert term is not None
    commits = [0]
    event.listen(Session, "after_commit", lambda _session: commits.__setitem__(0, commits[0] + 1))
    if death is not None:
        _die_at(*death)
    reconciler = Reconciler(ctx, InProcess(), Mint.load(key))
    while await reconciler.settle(term):
        pass
    await database.close()
    return commits[0]


def main() -> None:
    url, key, at, *rest = sys.argv[1:]
    death = (rest[0], int(rest[1])) if rest else None
    moment = datetime.fromisoformat(at).replace(tzinfo=UTC) + timedelta(0)
    print("commits", asyncio.run(_run(url, Path(key), moment, death)), flush=True)


if __name__ == "__main__":
    main()
