"""Alembic's entry: runs on the connection that `incidents.schema` hands over."""

from __future__ import annotations

from typing import Any, Literal

from alembic import context
from alembic.autogenerate.api import AutogenContext

from incidents import tables


def render_item(kind: str, item: Any, autogen: AutogenContext) -> str | Literal[False]:
    """Revisions are frozen: they name the plain column type, not a class that may change later."""
    if kind == "type" and isinstance(item, tables.UtcDateTime):
        return "sa.DateTime(timezone=True)"
    if kind == "type" and type(item).__name__ == "AutoString":
        return "sa.String()"
    return False


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=tables.METADATA,
    render_as_batch=True,
    render_item=render_item,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
