"""One active executor per cluster, and one journal."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

from executor_setting import ERRORS, Setting, running, until

from catalog.actions import Scale
from catalog.clocks import SystemClock
from catalog.clusters import KubernetesAccess
from catalog.marks import EXECUTOR_LEASE, JOURNAL_ANNOTATION
from catalog.outcomes import End
from executor.adopting import adopt_cluster
from executor.lease import DURATION, TRUST_FOR, Lease
from executor.starting import assembled
from executor.writing import KubernetesWriter
from sandbox.api.disturbances import Disturbance
from sandbox.kinds import LEASES, NAMESPACES
from sources.connecting import api_client
from sources.kubernetes import KubernetesReader


class Hands:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.passed = 0.0

    def now(self) -> datetime:
        return datetime(2026, 3, 4, 10, 0, tzinfo=UTC) + timedelta(seconds=self.passed)

    def monotonic(self) -> float:
        return self.passed


async def lease_of(setting: Setting, clock: Hands, holder: str, journal: str = "J") -> Lease:
    api = await api_client(KubernetesAccess(kubeconfig=setting.directory / "executor.kubeconfig"), user_agent="test")
    return Lease(
        reader=KubernetesReader(api, clock),
        writer=KubernetesWriter(api),
        now=clock.now,
        monotonic=clock.monotonic,
        holder=holder,
        journal_id=journal,
        home_namespace="sre-ladder",
    )


async def test_second_candidate_waits_until_the_holder_is_silent_for_the_duration(setting: Setting) -> None:
    clock = Hands()
    first, second = await lease_of(setting, clock, "a"), await lease_of(setting, clock, "b")
    assert await first.step()
    assert not await second.step()
    for _ in range(5):
        clock.passed += 4
        assert await first.step()
        assert not await second.step()
    clock.passed += TRUST_FOR
    assert not first.active  # gives up before anybody else may begin
    assert not await second.step()
    clock.passed += DURATION
    assert await second.step()
    assert second.active
    assert not await first.step()
    stored = setting.cluster.store.get(LEASES, "sre-ladder", EXECUTOR_LEASE)
    assert (stored["spec"]["holderIdentity"], stored["spec"]["leaseTransitions"]) == ("b", 1)
    for lease in (first, second):
        await lease.reader.close()


async def test_candidates_that_see_the_same_version_have_one_winner(setting: Setting) -> None:
    clock = Hands()
    first, second, dead = [await lease_of(setting, clock, name) for name in ("a", "b", "dead")]
    await dead.step()
    await first.step()
    await second.step()
    clock.passed += DURATION
    # The first reads, then the second takes it: the PUT of the first carries an old resourceVersion.
    setting.cluster.server.disturb(Disturbance(effect="status", status=409, methods=("PUT",), times=1))
    assert not await first.step()
    assert await second.step()
    for lease in (first, second, dead):
        await lease.reader.close()


async def test_another_journal_never_becomes_active_by_itself(setting: Setting) -> None:
    clock = Hands()
    owner, other = await lease_of(setting, clock, "a", "J"), await lease_of(setting, clock, "b", "K")
    await owner.step()
    clock.passed += 10 * DURATION
    assert not await other.step()
    clock.passed += 10 * DURATION
    assert not await other.step()
    assert (other.foreign_journal, "sre-executor adopt" in other.trouble) == ("J", True)
    for lease in (owner, other):
        await lease.reader.close()


async def test_lease_that_cannot_be_renewed_is_lost_in_time(setting: Setting) -> None:
    clock = Hands()
    lease = await lease_of(setting, clock, "a")
    assert await lease.step()
    setting.cluster.server.disturb(Disturbance(effect="status", status=500, path="leases"))
    clock.passed += TRUST_FOR - 1
    assert not await lease.step()
    assert lease.active
    clock.passed += 1
    assert not lease.active
    await lease.reader.close()


async def test_executor_of_another_journal_tells_the_bot_and_takes_no_order(setting: Setting, tmp_path: Path) -> None:
    lease = await lease_of(setting, Hands(), "gone", "LOST")
    await lease.step()
    await lease.reader.close()
    async with assembled(setting.settings, SystemClock()) as executor:
        task = asyncio.create_task(executor.run())
        await until(lambda: bool(setting.bot.claims) and "adopt" in setting.bot.claims[-1].halt_reason, 10.0, "a told claim")
        assert (setting.bot.claims[-1].active, setting.bot.claims[-1].room) == (False, 0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_adopt_lists_blocked_targets_and_puts_our_journal_on_the_lease(setting: Setting) -> None:
    clock = Hands()
    lease = await lease_of(setting, clock, "gone", "LOST")
    await lease.step()
    await lease.reader.close()
    setting.edit(lambda found: found["metadata"].setdefault("annotations", {}).update({"sre-ladder.dev/txn": "open/LOST/1"}))

    async def wait(seconds: float) -> None:
        clock.passed += seconds

    lines = await adopt_cluster(setting.settings, clock, wait)
    assert "blocked: Deployment shop/web carries open/LOST/1" in lines[0]
    stored = setting.cluster.store.get(LEASES, "sre-ladder", EXECUTOR_LEASE)
    assert stored["metadata"]["annotations"][JOURNAL_ANNOTATION] in lines[-1]
    async with running(setting):
        order = setting.order()
        setting.send(order)
        outcome = await setting.outcome(order)
    assert outcome.end == "conflict"


async def test_lost_lease_stops_every_write_and_leaves_the_transaction_to_the_next_holder(setting: Setting) -> None:
    order = setting.order(Scale(from_replicas=3, to_replicas=5))
    async with running(setting) as executor:
        setting.send(order)
        await setting.phase(order, "settling")
        writes = setting.writes()
        setting.cluster.server.disturb(Disturbance(effect="status", status=500, path="leases", for_s=8.0))
        executor.around.lease._renewed_at = float("-inf")
        setting.prometheus.signals[ERRORS] = 0.4
        await until(lambda: not setting.bot.claims[-1].active and not setting.bot.claims[-1].open, 20.0, "nothing worked on")
        assert setting.writes() == writes
        assert order.id not in setting.bot.outcomes
        outcome = await setting.outcome(order, within_s=40.0)
    # Held again: what was left open is found and finished.
    assert outcome.end in (End.ROLLED_BACK, End.UNVERIFIED), outcome.sentence


async def test_api_server_of_another_cluster_is_noticed_before_every_transaction(setting: Setting) -> None:
    order = setting.order()
    async with running(setting):
        store = setting.cluster.store
        store.delete(NAMESPACES, "", "kube-system")
        await until(lambda: store.find(NAMESPACES, "", "kube-system") is None, 10.0, "the deletion")
        store.create(NAMESPACES, {"metadata": {"name": "kube-system"}})
        setting.send(order)
        outcome = await setting.outcome(order)
    assert (outcome.end, outcome.reason, setting.writes()) == (End.REFUSED, "audience", [])
