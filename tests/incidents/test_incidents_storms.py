"""Storms: the numbers, what cannot be counted, the latch, and what it withholds."""

from __future__ import annotations

from datetime import timedelta

import pytest
from phases_setting import ANA, UID, WEB, Story, rows
from test_incidents_ledger import an_order, kept

from incidents.storms import Census, Signs, look_for_storm, storm_reason, storm_state
from incidents.switches import release
from incidents.tables import OutboxRow, SwitchRow
from ladder.numbers import Numbers

NUMBERS = Numbers()


def signs(unhealthy: int = 0, opted_in: int | None = 40, nodes: int | None = 0, orders: dict[str, int] | None = None) -> Signs:
    return Signs(unhealthy=unhealthy, opted_in=opted_in, nodes_not_ready=nodes, auto_orders=orders or {})


@pytest.mark.parametrize(
    ("found", "storm"),
    [
        (signs(4, 5), False),
        (signs(5, 25), True),
        (signs(5, 26), False),
        (signs(8, 40), True),
        (signs(7, 40), False),
        (signs(5, None), True),
        (signs(4, None), False),
        (signs(nodes=1), False),
        (signs(nodes=2), True),
        (signs(nodes=None), False),
        (signs(orders={"node1": 4, "node2": 4}), False),
        (signs(orders={"node1": 5}), True),
    ],
)
def test_G32_five_and_a_fifth_or_two_nodes_or_five_orders_in_one_place(found: Signs, storm: bool) -> None:
    assert (storm_reason(found, NUMBERS) is not None) == storm


async def many_fire(story: Story, count: int, namespace: str = "shop") -> None:
    for n in range(count):
        target = WEB.model_copy(update={"name": f"w{n}", "uid": f"uid-w{n}", "namespace": namespace})
        await story.fires(fingerprint=f"{namespace}-{n}", target=target)


async def look(story: Story, census: Census) -> SwitchRow | None:
    async with story.ctx.database.transaction() as session:
        return await look_for_storm(session, UID, census, story.now, NUMBERS)


async def test_G32_many_unhealthy_workloads_latch_until_an_owner_releases(story: Story) -> None:
    await many_fire(story, 8)
    census = Census(namespaces=("shop",), workloads=40, nodes_not_ready=0)
    row = await look(story, census)
    assert row is not None
    assert row.reason == "8 of 40 opted-in workloads unhealthy within 5m"
    assert await look(story, census) is None
    story.pass_time(hours=2)
    async with story.ctx.database.reading() as session:
        assert (await storm_state(session, UID)).latched
        assert not (await storm_state(session, "uid-us")).latched
    assert (await release(story.ctx, ANA, "calm")).ok
    async with story.ctx.database.reading() as session:
        assert not (await storm_state(session, UID)).latched


async def test_only_opted_in_workloads_of_the_last_minutes_count(story: Story) -> None:
    await many_fire(story, 8, namespace="elsewhere")
    assert await look(story, Census(namespaces=("shop",), workloads=40, nodes_not_ready=0)) is None
    assert await look(story, Census(namespaces=("shop", "elsewhere"), workloads=40, nodes_not_ready=0)) is not None


async def test_what_fired_earlier_does_not_count(story: Story) -> None:
    await many_fire(story, 8)
    story.pass_time(minutes=6)
    assert await look(story, Census(namespaces=("shop",), workloads=40, nodes_not_ready=0)) is None


async def test_a_census_that_failed_counts_as_a_storm_once_enough_is_unhealthy(story: Story) -> None:
    await many_fire(story, 4)
    assert await look(story, Census()) is None
    await story.fires(fingerprint="one-more")
    row = await look(story, Census())
    assert row is not None
    assert "could not be counted" in row.reason


async def test_our_own_orders_in_one_place_are_a_storm_too(story: Story) -> None:
    await kept(story, *(an_order(story.now - timedelta(minutes=n), f"w{n}", domain="node1") for n in range(5)))
    row = await look(story, Census(namespaces=(), workloads=0, nodes_not_ready=0))
    assert row is not None
    assert "5 automatic orders in node1" in row.reason


async def test_a_storm_withholds_proposals_and_makes_one_card(story: Story) -> None:
    story.change_policy("people:", "defaults: {channel: {slack: C0000}}\npeople:")
    await story.earned()
    await story.settle()
    assert story.term is not None
    await many_fire(story, 8)
    assert len(await story.reconciler.look_for_storms(story.term)) == 1
    assert await story.reconciler.look_for_storms(story.term) == []
    await story.settle()
    assert {row.phase for row in await story.incidents()} == {"notified"}
    async with story.ctx.database.reading() as session:
        messages = await rows(session, OutboxRow)
    assert [message.kind for message in messages] == ["storm"]
