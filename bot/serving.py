"""The bot's main loop: one event loop for webhooks, clicks, claims and words; triage and verification run in a child process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator

import structlog
import uvicorn

from bot.settings import BotSettings
from bot.web import make_app
from incidents.database import StoreUnavailable
from incidents.policies import PolicyInvalid
from incidents.replica import Replica

STOP_PATIENCE_S = 5.0

log = structlog.get_logger(__name__)


class ServeRefused(Exception):
    """The bot cannot start. The message says what to mend."""


async def serve_forever(settings: BotSettings) -> None:
    """Serve until SIGTERM or SIGINT. Ends open connections, gives the lease back, then returns.

    Raises:
        ServeRefused: no valid policy, the address is taken, or the database cannot be used.
    """
    set_up_logs(settings.log_format)
    listening = _listen(settings)
    with contextlib.closing(listening):
        try:
            replica = await Replica.open(
                database_url=settings.database,
                policy=settings.policy,
                order_key=settings.keys / "order.key",
                heads_key=settings.keys / "heads.key",
                name=settings.replica or f"{socket.gethostname()}-{os.getpid()}",
            )
        except PolicyInvalid as error:
            hint = "" if settings.policy.exists() else "; write one with: sre-bot init"
            raise ServeRefused(f"{error}{hint}") from error
        except StoreUnavailable as error:
            raise ServeRefused(f"the database does not answer: {error}") from error
        try:
            await _serve(replica, settings, listening)
        finally:
            await replica.close()


async def _serve(replica: Replica, settings: BotSettings, listening: socket.socket) -> None:
    app = make_app(replica.context, replica.commands, settings, notices=[settings.notice] if settings.notice else [])
    config = uvicorn.Config(
        app, log_config=None, access_log=False, server_header=False, timeout_graceful_shutdown=int(STOP_PATIENCE_S), lifespan="off"
    )
    server = Server(config)
    stopping: asyncio.Event = app.state.stopping
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, stopping.set)
    log.info("serving", address=settings.listen, policy=replica.context.policies.current.hash)
    working = asyncio.create_task(replica.run(surfaces=()), name="replica")
    serving = asyncio.create_task(server.serve([listening]), name="web")
    told = asyncio.create_task(stopping.wait(), name="stop signal")
    done, _ = await asyncio.wait({working, serving, told}, return_when=asyncio.FIRST_COMPLETED)
    stopping.set()
    server.should_exit = True
    working.cancel()
    told.cancel()
    await asyncio.gather(working, serving, told, return_exceptions=True)
    for task in done - {told}:
        task.result()  # a part that ended by itself is a defect: let it be seen


class Server(uvicorn.Server):
    """Signals are ours: the lease must be given back after the last answer."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _listen(settings: BotSettings) -> socket.socket:
    host, port = settings.address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named as TCP, so that the event loop switches Nagle's delay off: without it each answer waits for an acknowledgement.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise ServeRefused(f"cannot listen on {settings.listen}: {error.strerror}; set SRE_BOT_LISTEN") from error
    listening.listen(1024)
    listening.setblocking(False)
    return listening


def set_up_logs(form: str) -> None:
    """Structured logs on standard error: JSON lines, or text for people."""
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if form == "json"
        else structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(),
            exception_formatter=structlog.dev.plain_traceback,  # locals may hold secrets
        )
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s %(message)s")
