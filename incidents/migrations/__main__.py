"""Write the next revision: the difference between the newest migration and `incidents.tables`."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from alembic import command
from sqlalchemy import create_engine

from incidents.schema import MIGRATIONS, configuration, migrate


def main(message: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "reference.db"
        asyncio.run(migrate(f"sqlite:///{path}"))
        engine = create_engine(f"sqlite:///{path}")
        with engine.connect() as connection:
            config = configuration()
            config.attributes["connection"] = connection
            number = len(list((MIGRATIONS / "versions").glob("[0-9]*.py"))) + 1
            command.revision(config, message, autogenerate=True, rev_id=f"{number:04d}")
        engine.dispose()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit('usage: python -m incidents.migrations "what changed"')
    main(sys.argv[1])
