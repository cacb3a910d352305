"""Runs the journal's migrations on the connection that `executor.migrating` hands over."""

from __future__ import annotations

from alembic import context

from executor.tables import JournalModel

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=JournalModel.metadata,
    render_as_batch=True,
    transaction_per_migration=False,
)
with context.begin_transaction():
    context.run_migrations()
