"""Runs the process until it is told to stop. Stopping drops work where it stands; the journal has the rest."""

from __future__ import annotations

import asyncio
import signal

import structlog

from catalog.clocks import Clock
from executor.settings import Settings
from executor.starting import assembled

log = structlog.get_logger()


async def serve(settings: Settings, clock: Clock) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        ConfigurationInvalid: a person must correct something.
        JournalUnavailable: the journal cannot be opened.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with assembled(settings, clock) as executor:
        log.info(
            "started", executor=executor.around.executor_id, cluster=executor.around.cluster_uid, journal=executor.around.journal.id
        )
        running = asyncio.create_task(executor.run())
        stopping = asyncio.create_task(stop.wait())
        done, _ = await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        if running in done:
            running.result()
        log.info("stopped")
