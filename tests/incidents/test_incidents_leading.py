"""One leader at a time, and an ex-leader that can write nothing, on both databases."""

from __future__ import annotations

import asyncio

import pytest
from incidents_setting import MovableClock, counted, until
from sqlalchemy import text, update
from sqlmodel import col, select

from incidents.database import Database, StoreUnavailable
from incidents.leading import LEASE_DURATION, Candidate, LeadershipLost, Term, repeat
from incidents.tables import CounterRow, LeaseRow


async def counters(database: Database) -> list[str]:
    async with database.reading() as session:
        return list(await session.exec(select(CounterRow.name)))


async def write(term: Term, name: str) -> None:
    async with term.transaction() as session:
        session.add(CounterRow(name=name, value=1))


async def test_the_first_candidate_leads_and_the_second_waits(database: Database, clock: MovableClock) -> None:
    one, two = Candidate(database, clock, "one"), Candidate(database, clock, "two")
    term = await one.acquire()
    assert term is not None
    assert await two.acquire() is None
    await write(term, "kept")
    assert await counters(database) == ["kept"]


async def test_a_renewed_lease_is_never_taken(database: Database, clock: MovableClock) -> None:
    one, two = Candidate(database, clock, "one"), Candidate(database, clock, "two")
    term = await one.acquire()
    assert term is not None
    for _ in range(20):
        assert await two.acquire() is None
        clock.advance(2)
        await one.renew(term)


async def test_a_silent_leader_is_replaced_after_15_s_and_can_write_no_more(database: Database, clock: MovableClock) -> None:
    one, two = Candidate(database, clock, "one"), Candidate(database, clock, "two")
    old = await one.acquire()
    assert old is not None
    assert await two.acquire() is None
    clock.advance(LEASE_DURATION.total_seconds() - 0.1)
    assert await two.acquire() is None
    clock.advance(0.1)
    new = await two.acquire()
    assert new is not None
    assert (new.number, new.holder) == (old.number + 1, "two")
    with pytest.raises(LeadershipLost):
        await write(old, "lost")
    with pytest.raises(LeadershipLost):
        await one.renew(old)
    await write(new, "kept")
    assert await counters(database) == ["kept"]


async def test_a_clock_that_is_an_hour_ahead_takes_nothing(database: Database, clock: MovableClock) -> None:
    one = Candidate(database, clock, "one")
    assert await one.acquire() is not None
    ahead = type(clock)(clock.now())  # type: ignore[call-arg]
    ahead.advance(3600)
    ahead.passed = 0.0
    two = Candidate(database, ahead, "two")
    assert await two.acquire() is None
    assert await two.acquire() is None


async def test_a_released_lease_is_free_at_once(database: Database, clock: MovableClock) -> None:
    one, two = Candidate(database, clock, "one"), Candidate(database, clock, "two")
    await one.acquire()
    await one.release()
    term = await two.acquire()
    assert term is not None
    assert term.number == 2


async def test_candidates_at_the_same_moment_make_one_leader(database_url: str, clock: MovableClock) -> None:
    databases = [Database.open(database_url) for _ in range(4)]
    terms = await asyncio.gather(*(Candidate(one, clock, f"replica-{n}").acquire() for n, one in enumerate(databases)))
    assert sum(term is not None for term in terms) == 1
    for database in databases:
        await database.close()


async def test_a_take_over_waits_for_the_leaders_open_transaction(postgres_url: str, clock: MovableClock) -> None:
    """No take-over can come between the check of the term and the commit."""
    one_database, two_database = Database.open(postgres_url), Database.open(postgres_url)
    term = await Candidate(one_database, clock, "one").acquire()
    two = Candidate(two_database, clock, "two")
    assert term is not None
    assert await two.acquire() is None
    clock.advance(16)
    async with term.transaction() as session:
        taking = asyncio.create_task(two.acquire())
        async with asyncio.timeout(10):
            while True:
                async with one_database.reading() as other:
                    waiting = await (await other.connection()).execute(text("SELECT count(*) FROM pg_locks WHERE NOT granted"))
                if waiting.scalar_one():
                    break
                await asyncio.sleep(0.01)
        assert not taking.done()
        session.add(CounterRow(name="kept", value=1))
    assert await taking is not None
    assert await counters(two_database) == ["kept"]
    await one_database.close()
    await two_database.close()


async def test_work_is_cancelled_when_the_lease_is_lost_and_begun_again_when_it_comes_back(
    database: Database, clock: MovableClock
) -> None:
    candidate = Candidate(database, clock, "one")
    begun: list[int] = []
    ended: list[int] = []

    async def work(term: Term) -> None:
        begun.append(term.number)
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(term.number)

    running = asyncio.create_task(candidate.run(work))
    await until(lambda: begun == [1])
    assert counted("sre_ladder_leading", lease="leader") == 1
    async with database.transaction() as session:
        await session.exec(update(LeaseRow).where(col(LeaseRow.name) == "leader").values(holder="other", term=2))
    await until(lambda: ended == [1])
    async with database.transaction() as session:
        await session.exec(update(LeaseRow).where(col(LeaseRow.name) == "leader").values(holder=""))
    await until(lambda: begun == [1, 3])
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ended == [1, 3]
    async with database.reading() as session:
        assert (await session.exec(select(LeaseRow.holder))).one() == "", "given back, so that nobody need wait"


async def test_a_defect_in_the_work_is_not_hidden(database: Database, clock: MovableClock) -> None:
    async def work(_: Term) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await Candidate(database, clock, "one").run(work)


async def test_steps_wait_for_a_store_in_trouble_and_go_on() -> None:
    before = counted("sre_ladder_store_trouble_total", stage="testing")
    steps: list[str] = []

    async def step() -> bool:
        steps.append("tried")
        if len(steps) == 1:
            raise StoreUnavailable("full")
        if len(steps) == 3:
            raise LeadershipLost("over")
        return True

    with pytest.raises(LeadershipLost):
        await repeat(step, pause_s=0.001, stage="testing")
    assert len(steps) == 3
    assert counted("sre_ladder_store_trouble_total", stage="testing") == before + 1
