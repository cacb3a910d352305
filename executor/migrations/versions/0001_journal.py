"""The journal as first shipped."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from executor.tables import UtcDateTime

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "journal",
        sa.Column("one", sa.Integer, primary_key=True),
        sa.Column("id", sa.String, nullable=False),
        sa.Column("created_at", UtcDateTime, nullable=False),
    )
    op.create_table(
        "executor_order",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("key_id", sa.String, nullable=False),
        sa.Column("received_at", UtcDateTime, nullable=False),
        sa.Column("decided_at", UtcDateTime, nullable=False),
        sa.Column("mode", sa.String, nullable=False),
        sa.Column("action", sa.String, nullable=False),
        sa.Column("scope", sa.String, nullable=False),
        sa.Column("cluster_uid", sa.String, nullable=False),
        sa.Column("namespace", sa.String, nullable=False),
        sa.Column("target", sa.String, nullable=False),
        sa.Column("transaction_id", sa.String),
        sa.Column("outcome_id", sa.String),
        sa.Column("end", sa.String),
        sa.Column("ended_at", UtcDateTime),
    )
    op.create_index("executor_order_at", "executor_order", ["received_at"])
    op.create_index("ix_executor_order_target", "executor_order", ["target"])
    op.create_table(
        "executor_transaction",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("order_id", sa.String, nullable=False, unique=True),
        sa.Column("target", sa.String, nullable=False),
        sa.Column("phase", sa.String, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("template", sa.Text, nullable=False),
        sa.Column("baseline", sa.Text, nullable=False),
        sa.Column("snapshot", sa.Text, nullable=False),
        sa.Column("began_at", UtcDateTime, nullable=False),
        sa.Column("touched_at", UtcDateTime, nullable=False),
        sa.Column("ended_at", UtcDateTime),
    )
    open_only = sa.text("ended_at IS NULL")
    op.create_index(
        "executor_transaction_one_open",
        "executor_transaction",
        ["target"],
        unique=True,
        sqlite_where=open_only,
        postgresql_where=open_only,
    )
    op.create_table(
        "executor_entry",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
        sa.Column("transaction_id", sa.String, nullable=False),
        sa.Column("at", UtcDateTime, nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
    )
    op.create_index("executor_entry_of", "executor_entry", ["transaction_id", "id"])
    op.create_table(
        "executor_outcome",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("order_id", sa.String, nullable=False),
        sa.Column("order_digest", sa.String, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("key_id", sa.String, nullable=False),
        sa.Column("signature", sa.Text, nullable=False),
        sa.Column("at", UtcDateTime, nullable=False),
        sa.Column("delivered_at", UtcDateTime),
        sa.Column("refused", sa.Text, nullable=False),
    )
    undelivered = sa.text("delivered_at IS NULL")
    op.create_index("ix_executor_outcome_order_id", "executor_outcome", ["order_id"])
    op.create_index("executor_outcome_due", "executor_outcome", ["id"], sqlite_where=undelivered, postgresql_where=undelivered)
