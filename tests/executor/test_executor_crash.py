"""kill -9 of the real process, and death at every journal boundary. Every open transaction is found and finished, nothing twice."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from executor_setting import ALERT, ERRORS, QUICK, Setting, running, until

from catalog.actions import RestartWorkload, Scale
from catalog.clocks import SystemClock
from catalog.marks import RESTART_ANNOTATION
from catalog.orders import Order
from catalog.outcomes import End
from executor.journal import Journal
from executor.pulling import Executor
from executor.starting import assembled
from sandbox.api.disturbances import Disturbance

UP = Scale(from_replicas=3, to_replicas=5)
REAL_PATCH = r"deployments/web\?(?!.*dryRun)"


@asynccontextmanager
async def process(setting: Setting, journal_url: str | None = None) -> AsyncIterator[asyncio.subprocess.Process]:
    """`sre-executor run` as a process of its own."""
    settings = setting.settings.model_copy(update={"journal_url": journal_url} if journal_url else {})
    names = {name: value for name, value in settings.model_dump(mode="json").items() if value is not None}
    environment = {f"SRE_EXECUTOR_{name.upper()}": str(value) for name, value in names.items()}
    program = [sys.executable, "-c", "from executor.entry import main; main()", "run"]
    with (setting.directory / "executor.log").open("ab") as log:
        running = await asyncio.create_subprocess_exec(*program, env={**os.environ, **environment}, stdout=log, stderr=log)
    try:
        yield running
    finally:
        if running.returncode is None:
            running.kill()
        await running.wait()


async def ready(setting: Setting) -> None:
    claims = len(setting.bot.claims)
    await until(lambda: any(claim.room for claim in setting.bot.claims[claims:]), 30.0, "a claim with room")


def roll_outs(setting: Setting) -> int:
    """How many templates the Deployment has had since it was made, by its own revision."""
    return int(setting.object()["metadata"]["annotations"]["deployment.kubernetes.io/revision"]) - 1


@pytest.mark.parametrize("when", ["before the stamp is stored", "after the stamp is stored", "settling"])
async def test_g13_killed_restart_goes_on_and_never_restarts_twice(setting: Setting, journal_url: str, when: str) -> None:
    order = setting.order()
    if when == "before the stamp is stored":
        setting.cluster.server.disturb(Disturbance(effect="delay", delay_s=5.0, methods=("PATCH",), path=REAL_PATCH, times=1))
    async with process(setting, journal_url) as first:
        await ready(setting)
        setting.send(order)
        match when:
            case "before the stamp is stored":
                await setting.phase(order, "intended")
            case "after the stamp is stored":
                await until(lambda: (setting.mark() or "").startswith("open/"), 20.0, "the mark")
            case _:
                await setting.phase(order, "settling")
        first.send_signal(signal.SIGKILL)
        await first.wait()
    setting.prometheus.signals[ALERT] = None
    async with process(setting, journal_url):
        outcome = await setting.outcome(order, within_s=45.0)
    # Away for longer than its settle window it cannot say what happened meanwhile, and says so.
    assert outcome.end in (End.COMMITTED, End.UNVERIFIED), outcome.sentence
    await setting.cluster.rolled_out("shop", "web")
    assert roll_outs(setting) == 1
    stamp = setting.object()["spec"]["template"]["metadata"]["annotations"][RESTART_ANNOTATION]
    assert stamp == outcome.transaction_id


@pytest.mark.parametrize("when", ["applying", "undoing"])
async def test_g13_killed_scale_goes_on_and_is_rolled_back(setting: Setting, when: str) -> None:
    order = setting.order(UP)
    async with process(setting) as first:
        await ready(setting)
        setting.send(order)
        if when == "applying":
            await setting.written(order, "PATCH web 200")
        else:
            await setting.phase(order, "settling")
            setting.cluster.server.disturb(Disturbance(effect="delay", delay_s=5.0, methods=("PATCH",), path=REAL_PATCH, times=1))
            setting.prometheus.signals[ERRORS] = 0.4
            await setting.phase(order, "intended")
        first.send_signal(signal.SIGKILL)
        await first.wait()
    setting.prometheus.signals[ERRORS] = 0.4
    async with process(setting):
        outcome = await setting.outcome(order, within_s=45.0)
    expected = {"applying": (End.UNVERIFIED, 5), "undoing": (End.ROLLED_BACK, 3)}[when]
    found = (outcome.end, setting.object()["spec"]["replicas"])
    assert found in (expected, (End.ROLLED_BACK, 3)), outcome.sentence
    done = [step.kind for step in outcome.steps if step.result == "done"]
    assert [done.count(kind) for kind in ("scale", "undo")] == [1, int(found[1] == 3)]


@pytest.mark.parametrize("when", ["applying", "settling"])
async def test_g13_settle_window_starts_again_in_full_and_commits(setting: Setting, when: str) -> None:
    order = setting.order(deadlines=QUICK.model_copy(update={"settle_floor": 8.0}))
    async with running(setting):
        setting.send(order)
        await setting.written(order, "PATCH web 200")
        if when == "settling":
            await setting.phase(order, "settling")
    setting.prometheus.signals[ALERT] = None
    left = SystemClock().now()
    async with running(setting):
        outcome = await setting.outcome(order, within_s=40.0)
    assert outcome.end is End.COMMITTED, outcome.sentence
    assert (outcome.ended_at - left).total_seconds() > 8.0
    assert setting.writes() == ["PATCH web 200", "PATCH web 200"]


async def test_stopped_by_sigterm_it_leaves_the_transaction_open_and_exits_cleanly(setting: Setting) -> None:
    order = setting.order()
    async with process(setting) as first:
        await ready(setting)
        setting.send(order)
        await setting.phase(order, "settling")
        first.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(first.wait(), 15) == 0
    assert (setting.mark() or "").startswith("open/")
    assert order.id not in setting.bot.outcomes
    assert b"Traceback" not in (setting.directory / "executor.log").read_bytes()


class Died(BaseException):
    """The process is gone at this instruction."""


class DyingJournal(Journal):
    """Dies before or after its n-th record."""

    def arm(self, at: int, *, after: bool) -> None:
        self.left, self.after, self.died = at, after, False

    async def save(self, *arguments: Any, **named: Any) -> int:
        return int(await self._dying(super().save, *arguments, **named))

    async def keep_checkpoint(self, *arguments: Any, **named: Any) -> int:
        return int(await self._dying(super().keep_checkpoint, *arguments, **named))

    async def end(self, *arguments: Any, **named: Any) -> None:
        await self._dying(super().end, *arguments, **named)

    async def _dying(self, record: Any, *arguments: Any, **named: Any) -> Any:
        self.left -= 1
        if self.left == 0 and not self.after:
            self._die()
        kept = await record(*arguments, **named)
        if self.left == 0 and self.after:
            self._die()
        return kept

    def _die(self) -> None:
        self.died = True
        raise Died


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("after", [False, True], ids=["before the record", "after the record"])
@pytest.mark.parametrize("action", [RestartWorkload(), UP], ids=["restart", "scale"])
async def test_death_at_every_boundary_ends_in_a_terminal_state(
    setting: Setting, journal_url: str, action: Any, after: bool
) -> None:
    boundary, died = 0, True
    while died:
        boundary += 1
        setting.prometheus.signals[ALERT] = 1.0
        replicas = setting.object()["spec"]["replicas"]
        chosen = action if not isinstance(action, Scale) else Scale(from_replicas=replicas, to_replicas=replicas + 1)
        order = setting.order(chosen, mode="auto")
        before, rolled = len(setting.writes()), roll_outs(setting)
        settings = setting.settings.model_copy(update={"journal_url": journal_url})
        async with assembled(settings, SystemClock()) as executor:
            journal = DyingJournal(executor.around.journal._database, executor.around.journal.id)
            journal.arm(boundary, after=after)
            executor.around = replace(executor.around, journal=journal)
            died = await lived_until_death(setting, executor, order, journal)
        setting.prometheus.signals[ALERT] = None
        async with assembled(settings, SystemClock()) as executor:
            task = asyncio.create_task(executor.run())
            outcome = await setting.outcome(order, within_s=60.0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert outcome.end in End
        told = f"boundary {boundary}: {outcome.end} {outcome.sentence} {setting.writes()[before:]}"
        await setting.cluster.rolled_out("shop", "web", within_s=30.0)
        assert roll_outs(setting) - rolled <= (0 if isinstance(action, Scale) else 1), told
        assert not (setting.mark() or "").startswith("open/"), told
    assert boundary > 8


async def lived_until_death(setting: Setting, executor: Executor, order: Order, journal: DyingJournal) -> bool:
    """Run until the journal dies, or until the order has ended. Returns whether it died."""
    task = asyncio.create_task(executor.run())
    await ready(setting)
    setting.send(order)
    await until(lambda: journal.died or order.id in setting.bot.outcomes, 60.0, "a death or an outcome")
    for one in (task, *executor._tasks.values()):
        one.cancel()
    await asyncio.gather(task, *executor._tasks.values(), return_exceptions=True)
    return journal.died


class FaultyJournal(Journal):
    """Fails once with a fault of the program, at the record of the checkpoint."""

    failed = False

    async def keep_checkpoint(self, *arguments: Any, **named: Any) -> int:
        if not self.failed:
            self.failed = True
            raise ZeroDivisionError("a fault")
        return int(await super().keep_checkpoint(*arguments, **named))


async def test_transaction_that_meets_a_fault_of_the_program_is_found_again(setting: Setting) -> None:
    order = setting.order()
    async with running(setting) as executor:
        journal = FaultyJournal(executor.around.journal._database, executor.around.journal.id)
        executor.around = replace(executor.around, journal=journal)
        setting.send(order)
        await setting.written(order, "PATCH web 200")
        setting.prometheus.signals[ALERT] = None
        outcome = await setting.outcome(order)
    assert (journal.failed, outcome.end) == (True, End.COMMITTED), outcome.sentence
