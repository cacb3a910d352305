"""The brake in all its forms, through the front door. Undo, verification and closing are never stopped by it, except by hard."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from executor_setting import ALERT, ERRORS, Setting, running, until

from catalog.actions import Scale
from catalog.clusters import KubernetesAccess
from catalog.marks import HALT_CONFIG_MAP, RESTART_ANNOTATION
from catalog.orders import ClaimAnswer, HaltSwitch
from catalog.outcomes import End
from executor.halting import SWITCH_GOOD_FOR, Brakes
from sandbox.api.disturbances import Disturbance
from sources.connecting import api_client
from sources.kubernetes import KubernetesReader

UP = Scale(from_replicas=3, to_replicas=5)
HALT = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": HALT_CONFIG_MAP, "namespace": "sre-ladder"}}


class Ticks:
    """Seconds that move when told to."""

    def __init__(self) -> None:
        self.at = 0.0

    def __call__(self) -> float:
        return self.at


async def brakes_of(setting: Setting, ticks: Ticks, halt_file: Path | None = None) -> tuple[Brakes, KubernetesReader]:
    class Clock:
        def now(self) -> datetime:
            return datetime.now(UTC)

        def monotonic(self) -> float:
            return ticks.at

    api = await api_client(KubernetesAccess(kubeconfig=setting.directory / "executor.kubeconfig"), user_agent="test")
    reader = KubernetesReader(api, Clock())
    return Brakes(reader, ticks, "sre-ladder", halt_file), reader


def answer(**switch: object) -> ClaimAnswer:
    return ClaimAnswer(switch=HaltSwitch.model_validate({"halted": False} | switch), at=datetime.now(UTC))


async def test_every_form_of_halt_and_every_unreadable_one_pulls_the_brake(setting: Setting, tmp_path: Path) -> None:
    ticks, halt_file = Ticks(), tmp_path / "halt"
    brakes, reader = await brakes_of(setting, ticks, halt_file)
    assert (await brakes.state()).reason == "halt_unreadable"  # nothing heard yet
    brakes.heard(answer())
    assert (await brakes.state()).reason == ""
    ticks.at += SWITCH_GOOD_FOR + 0.1
    assert (await brakes.state()).reason == "halt_unreadable"
    brakes.heard(answer(halted=True, by="ana", reason="storm"))
    assert (await brakes.state()).sentence == "Halted by ana: storm."
    brakes.heard(answer())
    halt_file.touch()
    assert (await brakes.state()).reason == "halted"
    halt_file.unlink()
    await setting.cluster.apply([HALT])
    assert (await brakes.state()).reason == "halted"
    await reader.close()


@pytest.mark.parametrize("status", [403, 500])
async def test_only_a_404_means_that_the_config_map_is_not_there(setting: Setting, status: int) -> None:
    brakes, reader = await brakes_of(setting, Ticks())
    brakes.heard(answer())
    setting.cluster.server.disturb(Disturbance(effect="status", status=status, methods=("GET",), path="configmaps"))
    assert (await brakes.state()).reason == "halt_unreadable"
    await reader.close()


async def test_hard_halt_stays_when_the_bot_falls_silent(setting: Setting) -> None:
    ticks = Ticks()
    brakes, reader = await brakes_of(setting, ticks)
    brakes.heard(answer(halted=True, hard=True))
    ticks.at += 1000
    assert brakes.hard
    await reader.close()


async def test_g29_halted_executor_takes_no_order_and_says_so(setting: Setting) -> None:
    async with running(setting):
        setting.bot.switch = HaltSwitch(halted=True, by="ana", reason="storm")
        await until(lambda: setting.bot.claims[-1].halted, 10.0, "halted in a claim")
        assert (setting.bot.claims[-1].room, setting.bot.claims[-1].draining) == (0, False)
        order = setting.order()
        setting.send(order)
        await until(lambda: len(setting.bot.claims) > 20, 10.0, "more claims")
        assert order.id not in setting.bot.outcomes
        setting.bot.switch = HaltSwitch(halted=False)
        await setting.written(order, "PATCH web 200")


async def test_g29_halt_between_delivery_and_the_first_write_is_refused_and_named(setting: Setting) -> None:
    order = setting.order()
    delay = Disturbance(effect="delay", delay_s=1.0, methods=("GET",), path="deployments/web", times=1)
    async with running(setting):
        setting.cluster.server.disturb(delay)
        setting.send(order)
        await setting.phase(order, "preflight")
        setting.bot.switch = HaltSwitch(halted=True, by="ana", reason="storm")
        outcome = await setting.outcome(order)
    assert (outcome.end, outcome.reason, outcome.sentence) == (End.REFUSED, "halted", "Halted by ana: storm.")
    assert setting.writes() == []


async def test_config_map_that_cannot_be_read_is_reported_as_halted(setting: Setting) -> None:
    async with running(setting):
        setting.cluster.server.disturb(Disturbance(effect="status", status=500, methods=("GET",), path="configmaps"))
        await until(lambda: setting.bot.claims[-1].halted, 10.0, "halted in a claim")
        assert setting.bot.claims[-1].room == 0
        assert "could not be told" in setting.bot.claims[-1].halt_reason


async def test_halt_by_config_map_between_two_steps_drains(setting: Setting) -> None:
    order = setting.order(mode="auto")
    async with running(setting):
        setting.send(order)
        await setting.phase(order, "settling")
        await setting.cluster.apply([HALT])
        await until(lambda: setting.bot.claims[-1].draining, 10.0, "draining")
        outcome = await setting.outcome(order)
        await until(lambda: setting.bot.claims[-1].halted and not setting.bot.claims[-1].draining, 10.0, "halted")
    assert (outcome.end, outcome.reason) == (End.INEFFECTIVE, "halted"), outcome.sentence
    assert RESTART_ANNOTATION not in (setting.object()["spec"]["template"]["metadata"].get("annotations") or {})
    assert setting.mark() == f"closed/{outcome.transaction_id}"


async def test_take_over_acts_like_halt_for_that_transaction(setting: Setting) -> None:
    order = setting.order(mode="auto")
    async with running(setting):
        setting.send(order)
        await setting.phase(order, "settling")
        setting.bot.taken_over = (order.id,)
        outcome = await setting.outcome(order)
    assert (outcome.end, outcome.reason) == (End.INEFFECTIVE, "taken_over"), outcome.sentence


async def test_halt_does_not_stop_the_undo(setting: Setting) -> None:
    order = setting.order(UP)
    async with running(setting):
        setting.send(order)
        await setting.phase(order, "settling")
        setting.bot.switch = HaltSwitch(halted=True)
        await until(lambda: setting.bot.claims[-1].halted, 10.0, "halted in a claim")
        setting.prometheus.signals[ERRORS] = 0.4
        outcome = await setting.outcome(order)
    assert (outcome.end, setting.object()["spec"]["replicas"]) == (End.ROLLED_BACK, 3)


async def test_bot_away_lets_open_transactions_go_on_and_begins_none(setting: Setting) -> None:
    order = setting.order(UP)
    async with running(setting):
        setting.send(order)
        await setting.written(order, "PATCH web 200")
        setting.bot.away = True
        setting.prometheus.signals[ALERT] = None
        await until(lambda: (setting.mark() or "").startswith("closed/"), 30.0, "the end")
        setting.bot.away = False
        outcome = await setting.outcome(order)
    assert outcome.end is End.COMMITTED


@pytest.mark.parametrize(("word", "end", "replicas"), [("undo", End.ROLLED_BACK, 3), ("settle", End.COMMITTED, 5)])
async def test_hard_halt_parks_until_an_owner_says_how_to_go_on(setting: Setting, word: str, end: End, replicas: int) -> None:
    order = setting.order(UP)
    async with running(setting):
        setting.send(order)
        await setting.phase(order, "settling")
        setting.bot.switch = HaltSwitch(halted=True, hard=True)
        await setting.phase(order, "parked")
        parked = setting.bot.claims[-1].open[0].transaction_id
        await until(lambda: setting.bot.claims[-1].parked == (parked,), 10.0, "the parked list")
        writes = setting.writes()
        setting.prometheus.signals[ALERT] = None
        setting.bot.switch = HaltSwitch(halted=True)
        await until(lambda: len(setting.bot.claims) > 10, 10.0, "more claims")
        assert setting.writes() == writes  # lifting the hard halt alone moves nothing
        setting.bot.resume = ((parked, word),)
        outcome = await setting.outcome(order)
    assert (outcome.end, setting.object()["spec"]["replicas"]) == (end, replicas), outcome.sentence
