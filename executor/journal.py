"""The executor's memory: what was ordered, what was intended, what was answered, how it ended.

An order is journaled before anything else is done with it. A transaction's state is replaced under a version, so that two
processes with one journal never both move it. Counts for limits come from here and from nowhere else.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import update
from sqlalchemy.exc import IntegrityError
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from catalog.ids import new_id
from catalog.orders import Order, Signed
from catalog.outcomes import End, Outcome
from catalog.targets import Target
from executor.database import JournalDatabase
from executor.errors import JournalSuperseded
from executor.instants import instant_of
from executor.tables import EntryRow, JournalRow, OrderRow, OutcomeRow, TransactionRow
from executor.transactions import Phase, Transaction

HARMFUL = tuple(end.value for end in End if end.harmful)


@dataclass(frozen=True)
class Receipt:
    """What the journal says of a delivered order: new, under way, or ended with the outcome that answered it."""

    new: bool
    outcome_id: str | None = None


@dataclass(frozen=True)
class Kept:
    """A transaction as journaled, with what the checkpoint stored beside it."""

    order: Order
    transaction: Transaction
    version: int
    template: dict[str, Any]
    baseline: dict[str, Any]
    snapshot: dict[str, Any]


@dataclass(frozen=True)
class History:
    """What limits count: instants of orders that were begun, by width, and how many are open now."""

    target: tuple[datetime, ...]
    namespace: tuple[datetime, ...]
    cluster: tuple[datetime, ...]
    open: int
    last_harm: datetime | None


def target_key(target: Target) -> str:
    """The target as one text, for the unique row."""
    return json.dumps(target.key)


class Journal:
    """Open with `Journal.open`, end with `close`."""

    def __init__(self, database: JournalDatabase, journal_id: str) -> None:
        self._database = database
        self.id = journal_id

    @classmethod
    async def open(cls, url: str, now: datetime) -> Journal:
        """Migrate the journal at `url` and read its id, giving it one when it is new.

        Raises:
            ConfigurationInvalid: the URL is not one of ours.
            JournalUnavailable: it cannot be reached or written.
        """
        from executor.migrating import migrate

        await asyncio.to_thread(migrate, url)
        database = JournalDatabase.open(url)
        async with database.transaction() as session:
            row = await session.get(JournalRow, 1)
            if row is None:
                row = JournalRow(one=1, id=new_id(now), created_at=now)
                session.add(row)
            journal_id = row.id
        return cls(database, journal_id)

    async def close(self) -> None:
        """Give back every connection."""
        await self._database.close()

    async def receive(self, order: Order, signed: Signed, now: datetime) -> Receipt:
        """Keep a delivered order, or say that its id is known."""
        async with self._database.transaction() as session:
            known = await session.get(OrderRow, order.id)
            if known is not None:
                return Receipt(new=False, outcome_id=known.outcome_id)
            session.add(
                OrderRow(
                    id=order.id,
                    body=signed.body,
                    key_id=signed.key_id,
                    received_at=now,
                    decided_at=order.decided_at,
                    mode=order.mode,
                    action=order.action.action.value,
                    scope=order.scope,
                    cluster_uid=order.target.cluster_uid,
                    namespace=order.target.namespace,
                    target=target_key(order.target),
                )
            )
        return Receipt(new=True)

    async def begin(self, order: Order, transaction: Transaction) -> bool:
        """Open the transaction of an order. False when another one is open on its target."""
        row = TransactionRow(
            id=transaction.id,
            order_id=order.id,
            target=target_key(order.target),
            phase=transaction.phase.value,
            state=transaction.to_json(),
            began_at=instant_of(transaction.began),
            touched_at=instant_of(transaction.touched),
        )
        try:
            async with self._database.transaction() as session:
                session.add(row)
                await session.exec(update(OrderRow).where(col(OrderRow.id) == order.id).values(transaction_id=transaction.id))
                session.add(_entry(transaction, "begin", ""))
                await session.flush()
        except IntegrityError:
            return False
        return True

    async def save(self, transaction: Transaction, version: int, kind: str, detail: str = "") -> int:
        """Replace the state, if it still has the version that was read, and append an entry. Returns the new version.

        Raises:
            JournalSuperseded: somebody else moved it.
        """
        async with self._database.transaction() as session:
            await _replace(session, transaction, version, {})
            session.add(_entry(transaction, kind, detail))
        return version + 1

    async def keep_checkpoint(
        self, transaction: Transaction, version: int, template: dict[str, Any], baseline: dict[str, Any], snapshot: dict[str, Any]
    ) -> int:
        """As `save`, with the evidence and the template that undo needs."""
        extra = {"template": json.dumps(template), "baseline": json.dumps(baseline), "snapshot": json.dumps(snapshot)}
        async with self._database.transaction() as session:
            await _replace(session, transaction, version, extra)
            session.add(_entry(transaction, "checkpoint", ""))
        return version + 1

    async def open_transactions(self) -> tuple[Kept, ...]:
        """Every transaction that has no end, oldest first."""
        async with self._database.reading() as session:
            rows = await session.exec(
                select(TransactionRow, OrderRow)
                .where(TransactionRow.order_id == OrderRow.id)
                .where(col(TransactionRow.ended_at).is_(None))
                .order_by(col(TransactionRow.began_at))
            )
            return tuple(
                Kept(
                    order=Order.model_validate_json(order.body),
                    transaction=Transaction.model_validate_json(row.state),
                    version=row.version,
                    template=json.loads(row.template or "{}"),
                    baseline=json.loads(row.baseline or "{}"),
                    snapshot=json.loads(row.snapshot or "{}"),
                )
                for row, order in rows
            )

    async def orders_without_transaction(self) -> tuple[Order, ...]:
        """Orders that were journaled and then nothing: the process died in between."""
        async with self._database.reading() as session:
            rows = await session.exec(
                select(OrderRow).where(col(OrderRow.transaction_id).is_(None)).where(col(OrderRow.outcome_id).is_(None))
            )
            return tuple(Order.model_validate_json(row.body) for row in rows)

    async def end(self, outcome: Outcome, signed: Signed, transaction: Transaction | None, version: int) -> None:
        """Store the outcome, end the order and its transaction, all or nothing.

        Raises:
            JournalSuperseded: somebody else moved it.
        """
        async with self._database.transaction() as session:
            if transaction is not None:
                await _replace(session, transaction, version, {"ended_at": outcome.ended_at})
                session.add(_entry(transaction, "end", f"{outcome.end}: {outcome.reason}"))
            values = {"outcome_id": outcome.id, "end": outcome.end.value, "ended_at": outcome.ended_at}
            await session.exec(update(OrderRow).where(col(OrderRow.id) == outcome.order_id).values(**values))
            session.add(_outcome_row(outcome, signed, ""))

    async def refuse_unaccepted(self, outcome: Outcome, signed: Signed, order_digest: str) -> None:
        """Keep the answer to bytes that never became an order. It does not answer for the id they claim."""
        async with self._database.transaction() as session:
            seen = await session.exec(select(OutcomeRow).where(OutcomeRow.order_digest == order_digest))
            row = seen.first()
            if row is None:
                session.add(_outcome_row(outcome, signed, order_digest))
            else:
                row.delivered_at = None
                session.add(row)

    async def repeat(self, outcome_id: str) -> None:
        """Post a stored outcome once more: its order was delivered again, so the bot may not have it."""
        async with self._database.transaction() as session:
            await session.exec(update(OutcomeRow).where(col(OutcomeRow.id) == outcome_id).values(delivered_at=None))

    async def undelivered(self) -> tuple[tuple[str, Signed], ...]:
        """Outcomes that the bot has not taken yet, oldest first."""
        async with self._database.reading() as session:
            rows = await session.exec(
                select(OutcomeRow).where(col(OutcomeRow.delivered_at).is_(None)).order_by(col(OutcomeRow.id)).limit(50)
            )
            return tuple((row.id, Signed(body=row.body, key_id=row.key_id, signature=row.signature)) for row in rows)

    async def delivered(self, outcome_id: str, now: datetime, refused: str = "") -> None:
        """The bot took it, or refused it for good with a sentence."""
        async with self._database.transaction() as session:
            values = {"delivered_at": now, "refused": refused[:500]}
            await session.exec(update(OutcomeRow).where(col(OutcomeRow.id) == outcome_id).values(**values))

    async def history(self, order: Order, now: datetime, *, widest: timedelta) -> History:
        """What limits count for `order`, not counting itself. A refused order gives its budget back."""
        since = now - widest
        async with self._database.reading() as session:
            rows = (
                await session.exec(
                    select(OrderRow)
                    .where(OrderRow.id != order.id)
                    .where(OrderRow.cluster_uid == order.target.cluster_uid)
                    .where(col(OrderRow.received_at) > since)
                )
            ).all()
            opened = (await session.exec(select(TransactionRow.id).where(col(TransactionRow.ended_at).is_(None)))).all()
            harm = (
                await session.exec(
                    select(OrderRow)
                    .where(OrderRow.scope == order.scope)
                    .where(col(OrderRow.end).in_(HARMFUL))
                    .order_by(col(OrderRow.ended_at).desc())
                    .limit(1)
                )
            ).first()
        counted = [row for row in rows if row.end != End.REFUSED.value]
        key = target_key(order.target)
        return History(
            target=tuple(row.received_at for row in counted if row.target == key),
            namespace=tuple(row.received_at for row in counted if row.namespace == order.target.namespace),
            cluster=tuple(row.received_at for row in counted),
            open=len(opened),
            last_harm=harm.ended_at if harm else None,
        )

    async def ended_transaction(self, transaction_id: str) -> bool:
        """Whether this journal knows the transaction and knows that it is over."""
        async with self._database.reading() as session:
            row = await session.get(TransactionRow, transaction_id)
            return row is not None and row.ended_at is not None

    async def entries(self, transaction_id: str) -> tuple[tuple[str, str], ...]:
        """(kind, detail) of every entry of a transaction, in order."""
        async with self._database.reading() as session:
            rows = await session.exec(select(EntryRow).where(EntryRow.transaction_id == transaction_id).order_by(col(EntryRow.id)))
            return tuple((row.kind, row.detail) for row in rows)


async def _replace(session: AsyncSession, transaction: Transaction, version: int, extra: dict[str, Any]) -> None:
    values = {
        "state": transaction.to_json(),
        "phase": transaction.phase.value,
        "version": version + 1,
        "touched_at": instant_of(transaction.touched),
        **extra,
    }
    changed = await session.exec(
        update(TransactionRow)
        .where(col(TransactionRow.id) == transaction.id)
        .where(col(TransactionRow.version) == version)
        .where(col(TransactionRow.ended_at).is_(None))
        .values(**values)
    )
    if changed.rowcount != 1:
        raise JournalSuperseded(f"transaction {transaction.id} is no longer at version {version}: another executor moved it")


def _entry(transaction: Transaction, kind: str, detail: str) -> EntryRow:
    phase = "" if transaction.phase is Phase.ENDED else f" [{transaction.phase.value}]"
    return EntryRow(
        transaction_id=transaction.id, at=instant_of(transaction.touched), kind=kind, detail=f"{detail}{phase}".strip()[:1000]
    )


def _outcome_row(outcome: Outcome, signed: Signed, order_digest: str) -> OutcomeRow:
    return OutcomeRow(
        id=outcome.id,
        order_id=outcome.order_id,
        order_digest=order_digest,
        body=signed.body,
        key_id=signed.key_id,
        signature=signed.signature,
        at=outcome.ended_at,
    )
