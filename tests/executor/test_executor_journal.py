"""The journal on both databases: the lock per target, versions, replay, what limits count."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from executor_orders import NOW, an_order

from catalog.ids import new_id
from catalog.orders import Order, Signed
from catalog.outcomes import End, Outcome
from executor.errors import ConfigurationInvalid, JournalSuperseded, JournalUnavailable
from executor.journal import Journal
from executor.running import new_transaction
from executor.transactions import Phase, Transaction

HOUR = timedelta(hours=1)


def signed(order: Order) -> Signed:
    return Signed(body=order.to_json(), key_id=order.key_id, signature="s")


def outcome(order: Order, end: End = End.COMMITTED) -> tuple[Outcome, Signed]:
    document = Outcome(
        id=new_id(NOW),
        order_id=order.id,
        executor_id="e",
        cluster_uid=order.audience,
        target=order.target,
        end=end,
        reason="r",
        sentence="s",
        ended_at=NOW,
    )
    return document, Signed(body=document.to_json(), key_id="k", signature="s")


def transaction(order: Order) -> Transaction:
    return new_transaction(order, NOW.timestamp(), new_id(NOW))


async def begun(journal: Journal, order: Order) -> Transaction:
    txn = transaction(order)
    assert (await journal.receive(order, signed(order), NOW)).new
    assert await journal.begin(order, txn)
    return txn


async def test_journal_keeps_its_id(journal_url: str) -> None:
    first = await Journal.open(journal_url, NOW)
    await first.close()
    again = await Journal.open(journal_url, NOW + HOUR)
    assert again.id == first.id
    await again.close()


async def test_second_delivery_of_an_order_is_answered_with_its_outcome(journal_url: str) -> None:
    journal, order = await Journal.open(journal_url, NOW), an_order()
    txn = await begun(journal, order)
    assert await journal.receive(order, signed(order), NOW) == (await journal.receive(order, signed(order), NOW))
    assert (await journal.receive(order, signed(order), NOW)).new is False
    document, bytes_of = outcome(order)
    await journal.end(document, bytes_of, txn, 1)
    receipt = await journal.receive(order, signed(order), NOW)
    assert (receipt.new, receipt.outcome_id) == (False, document.id)
    await journal.delivered(document.id, NOW)
    assert await journal.undelivered() == ()
    await journal.repeat(document.id)
    assert [found for found, _ in await journal.undelivered()] == [document.id]
    await journal.close()


async def test_one_open_transaction_per_target(journal_url: str) -> None:
    journal, first, second = await Journal.open(journal_url, NOW), an_order(), an_order()
    txn = await begun(journal, first)
    await journal.receive(second, signed(second), NOW)
    assert not await journal.begin(second, transaction(second))
    await journal.end(*outcome(first), txn, 1)
    assert await journal.begin(second, transaction(second))
    await journal.close()


async def test_state_moves_only_from_the_version_that_was_read(journal_url: str) -> None:
    journal, order = await Journal.open(journal_url, NOW), an_order()
    txn = await begun(journal, order)
    version = await journal.save(txn.model_copy(update={"phase": Phase.PREFLIGHT}), 1, "passed")
    with pytest.raises(JournalSuperseded):
        await journal.save(txn, 1, "passed")
    kept = (await journal.open_transactions())[0]
    assert (kept.version, kept.transaction.phase, kept.order) == (version, Phase.PREFLIGHT, order)
    await journal.end(*outcome(order), txn, version)
    with pytest.raises(JournalSuperseded):
        await journal.save(txn, version + 1, "after the end")
    assert await journal.open_transactions() == ()
    assert await journal.ended_transaction(txn.id)
    await journal.close()


async def test_order_that_nothing_was_done_with_is_found(journal_url: str) -> None:
    journal, order = await Journal.open(journal_url, NOW), an_order()
    await journal.receive(order, signed(order), NOW)
    assert await journal.orders_without_transaction() == (order,)
    await begun(journal, other := an_order(namespace="bank"))
    assert await journal.orders_without_transaction() == (order,)
    assert other.id != order.id
    await journal.close()


async def test_limits_count_what_was_begun_and_give_refused_orders_back(journal_url: str) -> None:
    journal = await Journal.open(journal_url, NOW)
    done, refused, elsewhere, asked = an_order(), an_order(), an_order(namespace="bank"), an_order()
    for order, end in ((done, End.COMMITTED), (refused, End.REFUSED), (elsewhere, End.REGRESSED)):
        await journal.receive(order, signed(order), NOW)
        await journal.end(*outcome(order, end), None, 0)
    history = await journal.history(asked, NOW, widest=HOUR)
    assert (len(history.target), len(history.namespace), len(history.cluster)) == (1, 1, 2)
    assert history.last_harm == NOW
    later = await journal.history(asked, NOW + 2 * HOUR, widest=HOUR)
    assert later.cluster == ()
    await journal.close()


async def test_checkpoint_survives(journal_url: str) -> None:
    journal, order = await Journal.open(journal_url, NOW), an_order()
    txn = await begun(journal, order)
    await journal.keep_checkpoint(txn, 1, {"metadata": {}}, {"baseline": {}}, {"pods": []})
    kept = (await journal.open_transactions())[0]
    assert (kept.template, kept.baseline, kept.snapshot) == ({"metadata": {}}, {"baseline": {}}, {"pods": []})
    assert [kind for kind, _ in await journal.entries(txn.id)] == ["begin", "checkpoint"]
    await journal.close()


async def test_answer_to_bytes_that_are_no_order_is_kept_once_and_answers_for_no_id(journal_url: str) -> None:
    journal, order = await Journal.open(journal_url, NOW), an_order()
    for _ in range(2):
        await journal.refuse_unaccepted(*outcome(order, End.REFUSED), "digest")
    assert len(await journal.undelivered()) == 1
    assert (await journal.receive(order, signed(order), NOW)).new
    await journal.close()


async def test_journal_that_cannot_be_opened_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalUnavailable):
        await Journal.open(f"sqlite:///{tmp_path}/file/journal.db", NOW)
    with pytest.raises(ConfigurationInvalid, match="sqlite:///FILE"):
        await Journal.open("mysql://x/y", NOW)
