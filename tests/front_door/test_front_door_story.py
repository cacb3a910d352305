"""The demo as a newcomer runs it: the story goes as told, with exit code 0."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

PATIENCE_S = 400


@pytest.mark.timeout(PATIENCE_S + 60)
async def test_the_story_ends_as_it_says(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).parent / "sre-sandbox"),
        "demo",
        "--once",
        "--state",
        str(tmp_path / "demo"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(PATIENCE_S):
        output, _ = await process.communicate()
    told = output.decode()
    assert process.returncode == 0, told[-6000:]
    assert "autonomy.yaml" in told
    titles = ("informed only", "asked, and approved", "by itself", "by itself, and undone by itself", "refused", "not opted in")
    for title in titles:
        assert f"ok  {title}" in told
