"""The process that assesses: triage and verification run here, with an event loop of their own.

A storm of assessments can then never delay an acknowledgement, a click or a claim in the bot's main process. Requests and answers
are one JSON line each; a request carries everything it needs, so the process holds nothing that is lost with it. When it dies,
what it was working on fails with `WorkerLost`, the next request starts a new one, and the incident is simply due again.

Run by `Worker` as `python -m incidents.worker MODULE`; MODULE offers `open_bench(key)` and `TASKS`, a function per task name.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import itertools
import json
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from catalog.documents import Document, canonical

TASKS_MODULE = "incidents.assessing"
MAX_LINE = 8 * 1024 * 1024
START_PATIENCE_S = 30.0
_log = logging.getLogger(__name__)


class WorkerError(Exception):
    """The worker process gave no answer. Nothing was changed; try the incident again later."""


class WorkerLost(WorkerError):
    """The process died, or could not be started, while it was asked. The next request starts a new one."""


class WorkerLate(WorkerError):
    """No answer within the caller's patience. The task was cancelled."""


class TaskFailed(WorkerError):
    """The task itself raised. The message is what it raised; `kind` is the class."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(f"{kind}: {detail}" if detail else kind)
        self.kind = kind


class Assessor(Protocol):
    """Whoever assesses: a task by name, a document in, a document out as data."""

    async def ask(self, task: str, request: Document, *, patience_s: float) -> dict[str, Any]:
        """The answer document, as data.

        Raises:
            WorkerLost, WorkerLate, TaskFailed: no answer; nothing was changed.
        """


class Bench(Protocol):
    """What a worker keeps between tasks, such as connections."""

    async def close(self) -> None:
        """Give back every connection."""


Task = Callable[[Any, Mapping[str, Any]], Awaitable[Document]]


class Worker:
    """The parent's end. One child process at a time, started when first asked."""

    def __init__(self, key: bytes, *, module: str = TASKS_MODULE) -> None:
        self._key = key
        self._module = module
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._starting = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the live child, if there is one."""
        return self._process.pid if self._process is not None and self._process.returncode is None else None

    async def ask(self, task: str, request: Document, *, patience_s: float) -> dict[str, Any]:
        """The answer document, as data.

        Raises:
            WorkerLost, WorkerLate, TaskFailed: no answer; nothing was changed.
        """
        process = await self._running()
        number = next(self._ids)
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            await self._send(process, {"id": number, "task": task, "body": request.model_dump(mode="json", by_alias=True)})
            return await asyncio.wait_for(answer, patience_s)
        except TimeoutError as error:
            with contextlib.suppress(WorkerLost):
                await self._send(process, {"id": number, "cancel": True})
            raise WorkerLate(f"{task} gave no answer within {patience_s:g} s") from error
        finally:
            self._waiting.pop(number, None)

    async def close(self) -> None:
        """End the child and wait for it."""
        process, reading = self._process, self._reading
        self._process = self._reading = None
        if process is not None:
            if process.stdin is not None:
                process.stdin.close()
            try:
                await asyncio.wait_for(process.wait(), 5)
            except TimeoutError:
                process.kill()
                await process.wait()
        if reading is not None:
            await reading

    async def _running(self) -> asyncio.subprocess.Process:
        async with self._starting:
            if self._process is not None and self._process.returncode is None:
                return self._process
            if self._reading is not None:
                await self._reading
            try:
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    "incidents.worker",
                    self._module,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    limit=MAX_LINE,
                )
            except OSError as error:
                raise WorkerLost(f"the worker process could not be started: {error}") from error
            self._process = process
            self._reading = asyncio.create_task(self._read(process))
            # The key goes through the pipe: arguments and environment can be read by others.
            await self._send(process, {"key": self._key.hex()})
            return process

    async def _send(self, process: asyncio.subprocess.Process, message: dict[str, Any]) -> None:
        assert process.stdin is not None
        try:
            process.stdin.write(canonical(message) + b"\n")
            await process.stdin.drain()
        except (BrokenPipeError, ConnectionResetError, RuntimeError) as error:
            raise WorkerLost("the worker process is gone") from error

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        try:
            while line := await process.stdout.readline():
                self._deliver(json.loads(line))
        except ValueError:
            _log.error("the worker process sent a line that cannot be read; it is ended")
            process.kill()
        code = await process.wait()
        for answer in list(self._waiting.values()):
            if not answer.done():
                answer.set_exception(WorkerLost(f"the worker process ended (exit code {code}) while it was asked"))

    def _deliver(self, message: dict[str, Any]) -> None:
        answer = self._waiting.get(message["id"])
        if answer is None or answer.done():
            return
        if "error" in message:
            answer.set_exception(TaskFailed(message["error"]["kind"], message["error"]["detail"]))
        else:
            answer.set_result(message["answer"])


# the child -------------------------------------------------------------------------------------------------------------------


class _Child:
    def __init__(self, module: str, answers: asyncio.StreamWriter) -> None:
        self._module = importlib.import_module(module)
        self._answers = answers
        self._running: dict[int, asyncio.Task[None]] = {}
        self._bench: Bench | None = None

    async def serve(self, requests: asyncio.StreamReader) -> None:
        """Until the parent closes the pipe, or is gone."""
        while line := await requests.readline():
            message = json.loads(line)
            if "key" in message:
                self._bench = self._module.open_bench(bytes.fromhex(message["key"]))
            elif message.get("cancel"):
                running = self._running.get(message["id"])
                if running is not None:
                    running.cancel()
            else:
                self._running[message["id"]] = asyncio.create_task(self._work(message))
        for task in list(self._running.values()):
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)
        if self._bench is not None:
            await self._bench.close()

    async def _work(self, message: dict[str, Any]) -> None:
        number = message["id"]
        try:
            task: Task = self._module.TASKS[message["task"]]
            document = await task(self._bench, message["body"])
            await self._answer({"id": number, "answer": document.model_dump(mode="json", by_alias=True)})
        except asyncio.CancelledError:
            raise
        # Whatever a task raises belongs to its incident: it is reported there and must not end the others' work.
        except Exception as error:  # noqa: BLE001
            await self._answer({"id": number, "error": {"kind": type(error).__name__, "detail": str(error)[:500]}})
        finally:
            self._running.pop(number, None)

    async def _answer(self, message: dict[str, Any]) -> None:
        self._answers.write(canonical(message) + b"\n")
        await self._answers.drain()


async def _serve(module: str, answers_to: int) -> None:
    loop = asyncio.get_running_loop()
    requests = asyncio.StreamReader(limit=MAX_LINE)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(requests), sys.stdin)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, os.fdopen(answers_to, "wb"))
    await _Child(module, asyncio.StreamWriter(transport, protocol, None, loop)).serve(requests)


def main() -> None:
    """Serve the parent that started this process. What a library prints goes to stderr and cannot break the protocol."""
    answers_to = os.dup(1)
    os.dup2(2, 1)
    asyncio.run(_serve(sys.argv[1] if len(sys.argv) > 1 else TASKS_MODULE, answers_to))


if __name__ == "__main__":
    main()
