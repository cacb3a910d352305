"""The ledger: what counts, what is given back, and that it costs the same after a million orders."""

from __future__ import annotations

from datetime import datetime, timedelta

from phases_setting import UID, WEB, Story
from sqlalchemy import text

from catalog.ids import new_id
from catalog.outcomes import End
from incidents.blocks import block_after, block_on
from incidents.ledger import MAX_ENTRIES, auto_orders_by_domain, ledger_of
from incidents.tables import OrderRow


def an_order(at: datetime, name: str = "web", **changes: object) -> OrderRow:
    values: dict[str, object] = {
        "id": new_id(at),
        "incident_id": "i",
        "decision_id": "d",
        "cluster_uid": UID,
        "namespace": "shop",
        "kind": "Deployment",
        "name": name,
        "scope": "shop",
        "match_digest": "",
        "family": "wedged",
        "action": "restart_workload",
        "mode": "auto",
        "state": "ended",
        "key_id": "k",
        "signature": "s",
        "minted_at": at,
        "expires_at": at,
        "ended_at": at,
        "end": "committed",
    }
    return OrderRow(**(values | changes))


async def kept(story: Story, *orders: OrderRow) -> None:
    async with story.ctx.database.transaction() as session:
        session.add_all(orders)


async def test_entries_of_the_last_day_in_this_cluster_oldest_first(story: Story) -> None:
    now = story.now
    await kept(
        story,
        an_order(now - timedelta(hours=25)),
        an_order(now - timedelta(minutes=59), "api"),
        an_order(now - timedelta(minutes=61), "cart"),
        an_order(now - timedelta(minutes=59), "web", namespace="elsewhere"),
        an_order(now - timedelta(minutes=61), "web", namespace="elsewhere"),
        an_order(now - timedelta(hours=23), end="rolled_back"),
        an_order(now - timedelta(hours=1), cluster_uid="uid-us"),
    )
    async with story.ctx.database.reading() as session:
        ledger = await ledger_of(session, WEB, story.policy.scope_for(WEB), now)
    found = sorted((entry.target.namespace, entry.target.name, entry.at) for entry in ledger.entries)
    assert found == [
        ("elsewhere", "web", now - timedelta(minutes=59)),
        ("shop", "api", now - timedelta(minutes=59)),
        ("shop", "web", now - timedelta(hours=23)),
    ]
    assert [entry.at for entry in ledger.entries] == sorted(entry.at for entry in ledger.entries)
    assert ledger.entries[0].end is End.ROLLED_BACK
    assert (ledger.complete, ledger.contested, ledger.block) == (True, None, None)


async def test_refused_and_undelivered_orders_spent_nothing_and_open_ones_did(story: Story) -> None:
    now = story.now
    await kept(
        story,
        an_order(now - timedelta(hours=1), end="refused"),
        an_order(now - timedelta(minutes=50), "api", state="expired", end=None),
        an_order(now - timedelta(minutes=50), "cart", state="minted", end=None, ended_at=None),
        an_order(now - timedelta(days=3), "old", state="delivered", end=None, ended_at=None),
    )
    async with story.ctx.database.reading() as session:
        ledger = await ledger_of(session, WEB, story.policy.scope_for(WEB), now)
    assert [(entry.target.name, entry.end) for entry in ledger.entries] == [("old", None), ("cart", None)]


async def test_more_than_can_be_read_is_incomplete_which_no_gate_passes(story: Story) -> None:
    now = story.now
    await kept(story, *(an_order(now - timedelta(seconds=n), f"w{n}") for n in range(MAX_ENTRIES + 1)))
    async with story.ctx.database.reading() as session:
        ledger = await ledger_of(session, WEB, story.policy.scope_for(WEB), now)
    assert (ledger.complete, len(ledger.entries)) == (False, MAX_ENTRIES)


async def test_what_people_approved_elsewhere_spends_no_budget_and_never_makes_the_ledger_incomplete(story: Story) -> None:
    now = story.now
    approved = (an_order(now - timedelta(seconds=n), f"w{n}", mode="approved") for n in range(2 * MAX_ENTRIES))
    await kept(story, an_order(now - timedelta(minutes=5), "api"), *approved)
    async with story.ctx.database.reading() as session:
        ledger = await ledger_of(session, WEB, story.policy.scope_for(WEB), now)
    assert (ledger.complete, [entry.target.name for entry in ledger.entries]) == (True, ["api"])


async def test_a_conflict_on_the_target_is_a_contested_field_for_six_hours(story: Story) -> None:
    now = story.now
    await kept(story, an_order(now - timedelta(hours=5), end="conflict"), an_order(now - timedelta(hours=1), "api", end="conflict"))
    async with story.ctx.database.reading() as session:
        assert (await ledger_of(session, WEB, story.policy.scope_for(WEB), now)).contested is not None
        assert (await ledger_of(session, WEB, story.policy.scope_for(WEB), now + timedelta(hours=2))).contested is None


async def test_automatic_orders_are_counted_by_domain(story: Story) -> None:
    now = story.now
    await kept(
        story,
        an_order(now, "a", domain="node1"),
        an_order(now, "b", domain="node1"),
        an_order(now, "c", domain="node2"),
        an_order(now, "d", domain="node1", mode="approved"),
        an_order(now - timedelta(hours=1), "e", domain="node1"),
    )
    async with story.ctx.database.reading() as session:
        assert await auto_orders_by_domain(session, UID, now - timedelta(minutes=10)) == {"node1": 2, "node2": 1}


async def test_the_hardest_block_is_the_one_in_force_and_blocks_end(story: Story) -> None:
    now = story.now
    async with story.ctx.database.transaction() as session:
        block_after(session, WEB, End.REGRESSED, incident_id="i", reason="regressed", now=now - timedelta(days=9))
        block_after(session, WEB, End.ROLLED_BACK, incident_id="i", reason="undone", now=now)
    async with story.ctx.database.reading() as session:
        block = await block_on(session, WEB, now)
        other = await block_on(session, WEB.model_copy(update={"name": "api"}), now)
    assert block is not None
    assert (block.forbids, block.reason, other) == ("all", "regressed", None)


async def test_every_query_of_the_ledger_uses_an_index(story: Story) -> None:
    """Cost independent of the history: the plan never scans the table of orders."""
    if story.ctx.database.dialect != "sqlite":
        return
    queries = {
        "window": "SELECT * FROM execution_order WHERE cluster_uid = 'u' AND minted_at > '2026' ORDER BY minted_at DESC LIMIT 501",
        "open": "SELECT * FROM execution_order WHERE cluster_uid = 'u' AND state IN ('minted', 'delivered')",
        "block": "SELECT * FROM target_block WHERE cluster_uid = 'u' AND namespace = 'n' AND kind = 'k' AND name = 'w'",
    }
    async with story.ctx.database.reading() as session:
        connection = await session.connection()
        for name, query in queries.items():
            plan = [str(row[-1]) for row in await connection.execute(text(f"EXPLAIN QUERY PLAN {query}"))]
            assert all("SCAN" not in line for line in plan), (name, plan)
