"""The worker process: one line in, one line out, and it may die at any time."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from incidents.worker import TaskFailed, Worker, WorkerLate, WorkerLost

sys.path.insert(0, str(Path(__file__).parent))

from worker_tasks import Seen


@pytest.fixture
async def worker(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Worker]:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    opened = Worker(b"key of this installation", module="worker_tasks")
    yield opened
    await opened.close()


async def test_a_task_runs_in_another_process_and_knows_the_key(worker: Worker) -> None:
    seen = Seen.model_validate(await worker.ask("echo", Seen(text="hello"), patience_s=20))
    assert seen.text == "hello"
    assert seen.pid == worker.pid != os.getpid()
    assert bytes.fromhex(seen.key) == b"key of this installation"


async def test_the_key_is_not_in_the_arguments_or_the_environment(worker: Worker) -> None:
    await worker.ask("echo", Seen(text="hello"), patience_s=20)
    key = b"key of this installation"
    for file in ("cmdline", "environ"):
        content = Path(f"/proc/{worker.pid}/{file}").read_bytes()  # noqa: ASYNC240 - never blocks
        assert key not in content
        assert key.hex().encode() not in content


async def test_tasks_run_side_by_side_and_a_late_one_is_cancelled(worker: Worker) -> None:
    late = asyncio.create_task(worker.ask("for_ever", Seen(), patience_s=20))
    assert (await worker.ask("echo", Seen(text="meanwhile"), patience_s=20))["text"] == "meanwhile"
    late.cancel()
    with pytest.raises(WorkerLate):
        await worker.ask("for_ever", Seen(), patience_s=0.05)
    assert (await worker.ask("echo", Seen(text="after"), patience_s=20))["text"] == "after"


async def test_what_a_task_raises_is_told_and_ends_nobody_else(worker: Worker) -> None:
    with pytest.raises(TaskFailed, match="ValueError: no such thing"):
        await worker.ask("raising", Seen(), patience_s=20)
    with pytest.raises(TaskFailed, match="KeyError"):
        await worker.ask("unheard_of", Seen(), patience_s=20)
    assert (await worker.ask("echo", Seen(text="still here"), patience_s=20))["text"] == "still here"


async def test_a_worker_that_dies_loses_its_tasks_and_the_next_request_starts_another(worker: Worker) -> None:
    first = Seen.model_validate(await worker.ask("echo", Seen(), patience_s=20)).pid
    waiting = asyncio.create_task(worker.ask("for_ever", Seen(), patience_s=20))
    with pytest.raises(WorkerLost):
        await worker.ask("dying", Seen(), patience_s=20)
    with pytest.raises(WorkerLost):
        await waiting
    second = Seen.model_validate(await worker.ask("echo", Seen(), patience_s=20)).pid
    assert second != first


async def test_the_child_ends_with_its_parent(tmp_path: Path) -> None:
    program = (
        "import asyncio, sys\n"
        "from incidents.worker import Worker\n"
        "from worker_tasks import Seen\n"
        "async def main():\n"
        "    worker = Worker(b'k', module='worker_tasks')\n"
        "    await worker.ask('echo', Seen(), patience_s=20)\n"
        "    print(worker.pid, flush=True)\n"
        "    await worker.ask('for_ever', Seen(), patience_s=50)\n"
        "asyncio.run(main())\n"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=subprocess.PIPE, env=environment)
    assert parent.stdout is not None
    child = int(await parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    await parent.wait()
    async with asyncio.timeout(20):
        while _alive(child):  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.02)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False
