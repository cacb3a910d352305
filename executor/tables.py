"""The journal's tables. Orders, transactions and outcomes are kept whole beside the columns that are queried."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import BigInteger, Column, DateTime, Dialect, Index, Integer, MetaData, Text, TypeDecorator, text
from sqlalchemy.orm import registry
from sqlmodel import Field, SQLModel


class UtcDateTime(TypeDecorator[datetime]):
    """Aware UTC datetimes on every database: SQLite gives back naive ones."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a naive datetime cannot be stored")
        value = value.astimezone(UTC)
        return value.replace(tzinfo=None) if dialect.name == "sqlite" else value

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _instant(*, nullable: bool = False) -> Any:
    return Field(default=None, sa_column=Column(UtcDateTime, nullable=nullable))


def _text() -> Any:
    return Field(default="", sa_column=Column(Text, nullable=False, default=""))


class JournalModel(SQLModel, registry=registry(metadata=MetaData())):
    """Root of this journal's tables: a registry of their own, never mixed with another database's."""


class JournalRow(JournalModel, table=True):
    """One row: which journal this is. Its id is kept on the Lease as well, so that another journal is noticed."""

    __tablename__ = "journal"

    one: int = Field(default=1, primary_key=True)
    id: str
    created_at: datetime = _instant()


class OrderRow(JournalModel, table=True):
    """An order as delivered. Journaled before anything else is done with it; answers a second delivery of its id."""

    __tablename__ = "executor_order"
    __table_args__ = (Index("executor_order_at", "received_at"),)

    id: str = Field(primary_key=True)
    body: str = _text()
    key_id: str
    received_at: datetime = _instant()
    decided_at: datetime = _instant()
    mode: str
    action: str
    scope: str
    cluster_uid: str
    namespace: str
    target: str = Field(index=True, description="canonical key of the target")
    transaction_id: str | None = None
    outcome_id: str | None = None
    end: str | None = None
    ended_at: datetime | None = _instant(nullable=True)


class TransactionRow(JournalModel, table=True):
    """One transaction. At most one per target is open: the unique index is the lock, and it outlives its holder."""

    __tablename__ = "executor_transaction"
    __table_args__ = (
        Index(
            "executor_transaction_one_open",
            "target",
            unique=True,
            sqlite_where=text("ended_at IS NULL"),
            postgresql_where=text("ended_at IS NULL"),
        ),
    )

    id: str = Field(primary_key=True)
    order_id: str = Field(unique=True)
    target: str
    phase: str
    version: int = 1
    state: str = _text()
    template: str = _text()
    baseline: str = _text()
    snapshot: str = _text()
    began_at: datetime = _instant()
    touched_at: datetime = _instant()
    ended_at: datetime | None = _instant(nullable=True)


class EntryRow(JournalModel, table=True):
    """Append-only: every intent, every answer, every change of phase, in order."""

    __tablename__ = "executor_entry"
    __table_args__ = (Index("executor_entry_of", "transaction_id", "id"),)

    id: int | None = Field(default=None, sa_column=Column(BigInteger().with_variant(Integer, "sqlite"), primary_key=True))
    transaction_id: str
    at: datetime = _instant()
    kind: str
    detail: str = _text()


class OutcomeRow(JournalModel, table=True):
    """A signed outcome, kept for ever and posted until the bot took it."""

    __tablename__ = "executor_outcome"
    __table_args__ = (
        Index(
            "executor_outcome_due",
            "id",
            sqlite_where=text("delivered_at IS NULL"),
            postgresql_where=text("delivered_at IS NULL"),
        ),
    )

    id: str = Field(primary_key=True)
    order_id: str = Field(index=True)
    order_digest: str = Field(default="", description="of the bytes that were refused before they could be an order")
    body: str = _text()
    key_id: str
    signature: str = _text()
    at: datetime = _instant()
    delivered_at: datetime | None = _instant(nullable=True)
    refused: str = _text()
