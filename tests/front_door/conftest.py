"""A whole installation as separate processes, started from the demo's backup so that its gates are open; shared by a module."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from front_door_site import Site

from sandbox.demo.installation import Installation
from sandbox.demo.show import restore


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    directory: Path = tmp_path_factory.mktemp("installation")
    restore(directory)
    installation = Installation(directory)
    try:
        await installation.start()
        running = Site(installation)
        await running.begin()
        yield running
        await running.close()
    finally:
        await installation.stop()
