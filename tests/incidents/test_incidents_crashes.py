"""kill -9 of the leader before and after every commit on the way from an alert to an order: the row is simply due again."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from phases_setting import Story

from catalog.events import verify_chain
from catalog.signatures import write_key_pair

CHILD = Path(__file__).with_name("reconcile_child.py")


async def lead(story: Story, key: Path, *death: str) -> tuple[int, int]:
    """A replica leads until nothing is due, or dies; its exit code and how many commits it made."""
    engine = story.ctx.database.engine
    url = engine.url.set(drivername=engine.url.get_backend_name()).render_as_string(hide_password=False)
    at = story.now.replace(tzinfo=None).isoformat()
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(CHILD), url, str(key), at, *death, stdout=subprocess.PIPE, env=dict(os.environ)
    )
    output, _ = await process.communicate()
    lines = [line for line in output.decode().splitlines() if line.startswith("commits ")]
    return process.returncode or 0, int(lines[-1].split()[1]) if lines else 0


@pytest.fixture
def key(tmp_path: Path) -> Path:
    write_key_pair(tmp_path / "order.pem", tmp_path / "order.pub")
    return tmp_path / "order.pem"


async def test_a_leader_that_dies_at_any_commit_is_followed_by_one_that_ends_the_same(story: Story, key: Path) -> None:
    """Each replica makes one more commit than the last and dies: right after it on SQLite, right before it on PostgreSQL."""
    when = "after" if story.ctx.database.dialect == "sqlite" else "before"
    await story.earned()
    await story.fires()
    deaths = 0
    while (code := (await lead(story, key, when, str(deaths + 1)))[0]) != 0:
        assert code == -signal.SIGKILL
        deaths += 1
        assert deaths < 12
        row = await story.incident()
        assert len(await story.orders()) == (1 if row.phase == "ordered" else 0)
        assert verify_chain(await story.events()) is None
    row = await story.incident()
    assert deaths >= 3
    assert (row.phase, len(await story.orders())) == ("ordered", 1)
    assert [kind for kind in await story.kinds() if kind in ("diagnosed", "decided", "ordered")] == [
        "diagnosed",
        "decided",
        "ordered",
    ]
    assert verify_chain(await story.events()) is None


async def test_the_way_to_an_order_is_one_commit_per_phase(story: Story, key: Path) -> None:
    await story.earned()
    await story.fires()
    code, commits = await lead(story, key)
    assert code == 0
    assert commits <= 9
    assert (await story.incident()).phase == "ordered"
