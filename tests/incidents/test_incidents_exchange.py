"""Orders out, outcomes in: delivered at most once to one journal, ended exactly once, and everything an end does in one go."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from phases_setting import ANA, BO, CY, UID, WEB, Story, rows

from catalog.actions import RemediationAction
from catalog.cases import Rung
from catalog.documents import canonical
from catalog.ids import new_id
from catalog.orders import OpenTransaction, Order
from catalog.outcomes import End
from catalog.signatures import sign
from incidents.blocks import unblock
from incidents.exchange import NotYours, OrderUnknown, OutcomeConflict, OutcomeUnreadable, accept_outcome
from incidents.people import Credential
from incidents.standings import standing_record
from incidents.switches import halt, halt_state, resume
from incidents.tables import BlockRow, ExecutorRow, OutboxRow, OutcomeRow, PageRow
from ladder.standing import rung_in_force


async def minted(story: Story) -> None:
    await story.earned()
    await story.fires()
    await story.settle()
    assert (await story.incident()).phase == "ordered"


async def test_executing_is_committed_before_the_answer_that_delivers(story: Story) -> None:
    await minted(story)
    answer = await story.claim()
    (row,) = await story.orders()
    assert (row.state, row.delivered_to, row.delivered_at) == ("delivered", "exec-1", story.now)
    assert (await story.incident()).phase == "executing"
    assert answer.orders[0].body == row.body
    assert (await story.kinds())[-1] == "order_delivered"


async def test_two_claims_at_once_deliver_once(story: Story) -> None:
    await minted(story)
    answers = await asyncio.gather(*(story.claim(executor_id=f"exec-{n}", journal=f"journal-{n}") for n in range(4)))
    assert sum(len(answer.orders) for answer in answers) == 1


async def test_an_answer_that_was_lost_is_given_again_to_the_same_journal_only(story: Story) -> None:
    await minted(story)
    first = await story.claim()
    assert (await story.claim()).orders == first.orders
    assert (await story.claim(executor_id="exec-2", journal="journal-1", room=0)).orders == first.orders
    assert (await story.claim(executor_id="exec-3", journal="journal-3")).orders == ()
    assert (await story.claim(executor_id="exec-1", journal="journal-1", active=False)).orders == ()
    order = Order.model_validate_json(first.orders[0].body)
    spoken = OpenTransaction(order_id=order.id, transaction_id=new_id(story.now), phase="settle", since=story.now)
    assert (await story.claim(open=(spoken,))).orders == ()


async def test_a_delivered_order_never_expires(story: Story) -> None:
    order = await story.executing()
    story.pass_time(hours=30)
    await story.settle()
    assert (await story.incident()).phase == "executing"
    assert (await story.ends(order, End.COMMITTED)).end == "committed"


async def test_nothing_new_is_delivered_while_halted_and_open_orders_are_given_again(story: Story) -> None:
    await minted(story)
    await halt(story.ctx, CY, "network work", hard=False)
    answer = await story.claim()
    assert (answer.orders, answer.switch.halted, answer.switch.by) == ((), True, "cy")
    await resume(story.ctx, ANA, "done")
    delivered = await story.claim()
    assert len(delivered.orders) == 1
    await halt(story.ctx, CY, "again")
    assert (await story.claim()).orders == delivered.orders


@pytest.mark.parametrize("changes", [{"room": 0}, {"halted": True}, {"draining": True}, {"active": False}])
async def test_an_executor_that_cannot_begin_gets_nothing(story: Story, changes: dict[str, object]) -> None:
    await minted(story)
    assert (await story.claim(**changes)).orders == ()
    (row,) = await story.orders()
    assert row.state == "minted"


async def test_an_expired_order_is_not_delivered_and_is_decided_again(story: Story) -> None:
    await minted(story)
    story.pass_time(seconds=60)
    assert (await story.claim()).orders == ()
    await story.settle()
    first, second = await story.orders()
    assert (first.state, second.state) == ("expired", "minted")
    assert "order_expired" in await story.kinds()


async def test_an_executor_that_never_comes_leaves_it_to_people_in_the_end(story: Story) -> None:
    await minted(story)
    for _ in range(8):
        story.pass_time(seconds=61)
        await story.settle()
    row = await story.incident()
    assert row.phase == "notified"
    assert all(order.state == "expired" for order in await story.orders())


async def test_a_credential_is_bound_to_its_cluster(story: Story) -> None:
    await minted(story)
    story.credential = Credential(id="c2", kind="executor", subject="executor-us", clusters=("uid-us",))
    with pytest.raises(NotYours):
        await story.claim()
    story.credential = Credential(id="c3", kind="ingest", subject="webhook", clusters=(UID,))
    with pytest.raises(NotYours):
        await story.claim()


async def test_an_executors_name_belongs_to_one_cluster(story: Story) -> None:
    async with story.ctx.database.transaction() as session:
        session.add(ExecutorRow(executor_id="exec-1", cluster_uid="uid-us", journal_id="j", active=True, heard_at=story.now))
    with pytest.raises(NotYours, match="belongs to cluster uid-us"):
        await story.claim()


async def test_an_order_of_another_cluster_is_not_delivered(story: Story) -> None:
    await minted(story)
    async with story.ctx.database.transaction() as session:
        (row,) = await rows(session, type((await story.orders())[0]))
        row.cluster_uid = "uid-us"
        session.add(row)
    assert (await story.claim()).orders == ()


# outcomes ------------------------------------------------------------------------------------------------------------------------


async def test_an_outcome_is_accepted_once_and_again_the_same(story: Story) -> None:
    order = await story.executing()
    signed = story.signed(story.outcome(order, End.COMMITTED))
    first = await accept_outcome(story.ctx, signed, story.credential, story.keys)
    second = await accept_outcome(story.ctx, signed, story.credential, story.keys)
    assert (first.duplicate, second.duplicate, second.end) == (False, True, "committed")
    assert (await story.kinds()).count("outcome") == 1
    with pytest.raises(OutcomeConflict, match="already ended as committed"):
        await story.ends(order, End.ROLLED_BACK)


async def test_two_deliveries_of_one_outcome_at_once_are_one(story: Story) -> None:
    order = await story.executing()
    signed = story.signed(story.outcome(order, End.REGRESSED))
    answers = await asyncio.gather(*(accept_outcome(story.ctx, signed, story.credential, story.keys) for _ in range(4)))
    assert sorted(answer.duplicate for answer in answers) == [False, True, True, True]
    async with story.ctx.database.reading() as session:
        assert len(await rows(session, BlockRow)) == 1


async def test_what_is_not_an_outcome_is_refused_with_a_sentence(story: Story) -> None:
    order = await story.executing()
    outcome = story.outcome(order, End.COMMITTED)
    stranger = sign(Ed25519PrivateKey.generate(), canonical(outcome))
    with pytest.raises(OutcomeUnreadable, match="not among the accepted keys"):
        await accept_outcome(story.ctx, stranger, story.credential, story.keys)
    changed = story.signed(outcome).model_copy(update={"body": canonical(outcome.model_copy(update={"end": End.REFUSED})).decode()})
    with pytest.raises(OutcomeUnreadable, match="does not fit"):
        await accept_outcome(story.ctx, changed, story.credential, story.keys)
    with pytest.raises(OutcomeUnreadable, match="not an outcome"):
        await accept_outcome(story.ctx, sign(story.executor_key, b'{"id": 1}'), story.credential, story.keys)
    with pytest.raises(OrderUnknown):
        await story.ends(order.model_copy(update={"id": new_id(story.now)}), End.COMMITTED)
    with pytest.raises(NotYours):
        await story.ends(order, End.COMMITTED, cluster_uid="uid-us")
    with pytest.raises(OutcomeConflict, match="not Deployment shop/api"):
        await story.ends(order, End.COMMITTED, target=WEB.model_copy(update={"name": "api"}))
    assert (await story.incident()).phase == "executing"


async def test_an_order_that_was_never_delivered_cannot_have_ended(story: Story) -> None:
    await minted(story)
    (row,) = await story.orders()
    with pytest.raises(OutcomeConflict, match="never delivered"):
        await story.ends(Order.model_validate_json(row.body), End.COMMITTED)


EXPECTED = {
    End.COMMITTED: ("watching", None, None, False, False),
    End.REFUSED: ("decided", None, None, False, False),
    End.INEFFECTIVE: ("notified", None, None, True, False),
    End.ROLLED_BACK: ("notified", "auto", False, True, False),
    End.CONFLICT: ("notified", "all", False, True, False),
    End.REGRESSED: ("notified", "all", True, False, True),
    End.UNVERIFIED: ("notified", "all", True, False, True),
    End.UNDO_INCOMPLETE: ("notified", "all", True, False, True),
}


@pytest.mark.parametrize("end", list(End))
async def test_each_end_does_its_row_of_the_table_in_one_go(story: Story, end: End) -> None:
    order = await story.executing()
    await story.ends(order, end)
    phase, forbids, owner_only, mentioned, paged = EXPECTED[end]
    row = await story.incident()
    assert row.phase == phase
    async with story.ctx.database.reading() as session:
        blocks, pages = await rows(session, BlockRow), await rows(session, PageRow)
        outbox = await rows(session, OutboxRow)
        (outcome,) = await rows(session, OutcomeRow)
    assert [(block.forbids, block.owner_only) for block in blocks] == ([(forbids, owner_only)] if forbids else [])
    assert bool(pages) == paged
    assert any(message.kind == "mention" for message in outbox) == mentioned
    assert outcome.end == end.value
    if end is End.ROLLED_BACK:
        assert blocks[0].until == story.now + timedelta(hours=6)
    expected_attempt = 0 if end is End.REFUSED else 1
    assert (row.attempt, row.strongest) == (expected_attempt, None if end is End.COMMITTED else end.value)


@pytest.mark.parametrize(("end", "rung"), [(End.COMMITTED, 5), (End.ROLLED_BACK, 5), (End.REGRESSED, 4), (End.UNVERIFIED, 4)])
async def test_G35_standing_sees_the_outcome_at_once(story: Story, end: End, rung: int) -> None:
    order = await story.executing()
    await story.ends(order, end)
    scope = story.policy.scope_for(WEB)
    assert scope is not None
    async with story.ctx.database.reading() as session:
        record = await standing_record(session, story.policy, WEB)
    assert rung_in_force(record, scope, RemediationAction.RESTART_WORKLOAD, story.now).rung == Rung(rung)


async def test_a_refused_order_is_decided_once_more_and_then_people_have_it(story: Story) -> None:
    order = await story.executing()
    await story.ends(order, End.REFUSED)
    await story.settle()
    assert (await story.incident()).phase == "ordered"
    (signed,) = (await story.claim()).orders
    await story.ends(Order.model_validate_json(signed.body), End.REFUSED)
    await story.settle()
    row = await story.incident()
    assert (row.phase, row.strongest) == ("notified", "refused")
    assert len(await story.orders()) == 2


@pytest.mark.parametrize("end", [End.ROLLED_BACK, End.REGRESSED])
async def test_a_wrong_end_is_not_closed_while_its_alert_fires_and_closes_as_what_it_was(story: Story, end: End) -> None:
    order = await story.executing()
    await story.ends(order, end)
    story.pass_time(hours=1)
    await story.settle()
    assert (await story.incident()).phase == "notified"
    await story.resolves()
    story.pass_time(seconds=31)
    await story.settle()
    row = await story.incident()
    assert (row.phase, row.close_reason) == ("closed", end.value)


async def test_harm_pages_until_an_owner_unblocks(story: Story) -> None:
    order = await story.executing()
    await story.ends(order, End.UNDO_INCOMPLETE)
    async with story.ctx.database.reading() as session:
        (page,) = await rows(session, PageRow)
    assert (page.name, page.ended_at) == ("SreLadderUndoIncomplete", None)
    by_approver = await unblock(story.ctx, BO, WEB, "looked at it")
    assert (by_approver.ok, by_approver.rule) == (False, "role")
    assert (await unblock(story.ctx, ANA, WEB, "looked at it")).ok
    async with story.ctx.database.reading() as session:
        (page,) = await rows(session, PageRow)
    assert (page.ended_by, (await story.kinds())[-1]) == ("ana", "unblocked")
    assert (await unblock(story.ctx, ANA, WEB, "again")).rule == "not_blocked"


async def test_a_conflict_may_be_unblocked_by_an_approver(story: Story) -> None:
    order = await story.executing()
    await story.ends(order, End.CONFLICT)
    assert (await unblock(story.ctx, BO, WEB, "it was us")).ok


async def test_an_end_that_comes_after_a_take_over_leaves_it_to_the_person(story: Story) -> None:
    order = await story.executing()
    await story.desk.take((await story.incident()).id, ANA, "web")
    await story.ends(order, End.REFUSED)
    await story.settle()
    row = await story.incident()
    assert (row.phase, row.close_reason, len(await story.orders())) == ("closed", "taken_over", 1)


async def test_an_end_dated_in_the_future_counts_as_now(story: Story) -> None:
    order = await story.executing()
    await story.ends(order, End.COMMITTED, ended_at=story.now + timedelta(hours=1))
    (row,) = await story.orders()
    assert row.ended_at == story.now


async def test_a_halt_drains_until_the_last_outcome(story: Story) -> None:
    order = await story.executing()
    await halt(story.ctx, CY, "stop")
    async with story.ctx.database.reading() as session:
        assert (await halt_state(session, story.now)).word == "draining"
    await story.ends(order, End.COMMITTED)
    async with story.ctx.database.reading() as session:
        assert (await halt_state(session, story.now)).word == "halted"


async def test_parked_transactions_go_on_as_an_owner_says(story: Story) -> None:
    order = await story.executing()
    await halt(story.ctx, CY, "stop", hard=True)
    spoken = OpenTransaction(order_id=order.id, transaction_id=new_id(story.now), phase="parked", since=story.now)
    parked = await story.claim(open=(spoken,), parked=(order.id,), halted=True)
    assert (parked.switch.hard, parked.resume) == (True, ())
    await resume(story.ctx, ANA, "go on", parked="settle")
    assert (await story.claim(open=(spoken,), parked=(order.id,))).resume == ((order.id, "settle"),)
