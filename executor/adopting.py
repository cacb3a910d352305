"""`sre-executor adopt`: a person's word that the journal on the Lease is lost.

Targets that carry its `open/…` marks stay blocked by the mark itself: every order on them ends as a conflict until a person has
looked at the target and taken the annotation off.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from catalog.clocks import Clock
from catalog.marks import TXN_ANNOTATION, open_transaction
from executor.errors import ConfigurationInvalid
from executor.journal import Journal
from executor.lease import DURATION, RENEW_EVERY, Lease
from executor.settings import Settings
from executor.starting import USER_AGENT
from executor.writing import KubernetesWriter
from sources.connecting import api_client
from sources.errors import SourceMisconfigured, SourceUnavailable
from sources.kubernetes import KubernetesReader, object_path


async def adopt_cluster(
    settings: Settings, clock: Clock, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> tuple[str, ...]:
    """Put our journal on the Lease, once nobody renews it. Returns lines for the person who asked.

    Raises:
        ConfigurationInvalid: the cluster cannot be read, or another executor holds the Lease right now.
    """
    journal = await Journal.open(settings.journal_url, clock.now())
    try:
        async with _clients(settings, clock) as (reader, writer):
            lines = await _blocked(reader, journal)
            lease = Lease(
                reader=reader,
                writer=writer,
                now=clock.now,
                monotonic=clock.monotonic,
                holder=settings.executor_id,
                journal_id=journal.id,
                home_namespace=settings.home_namespace,
            )
            if not await _taken(lease, clock, sleep):
                raise ConfigurationInvalid(f"not adopted: {lease.trouble}; stop that executor first")
            return (*lines, f"journal {journal.id} owns the cluster now; start the executor")
    finally:
        await journal.close()


@asynccontextmanager
async def _clients(settings: Settings, clock: Clock) -> AsyncIterator[tuple[KubernetesReader, KubernetesWriter]]:
    try:
        api = await api_client(settings.access, user_agent=USER_AGENT)
    except SourceMisconfigured as error:
        raise ConfigurationInvalid(str(error)) from error
    reader = KubernetesReader(api, clock)
    try:
        yield reader, KubernetesWriter(api)
    finally:
        await reader.close()


async def _taken(lease: Lease, clock: Clock, sleep: Callable[[float], Awaitable[None]]) -> bool:
    """Whether the Lease could be taken within its own duration: a holder that renews it is alive and keeps it."""
    until = clock.monotonic() + DURATION + RENEW_EVERY
    while not await lease.step(adopt=True):
        if clock.monotonic() >= until:
            return False
        await sleep(1.0)
    return True


async def _blocked(reader: KubernetesReader, journal: Journal) -> list[str]:
    try:
        deployments = await reader.list(object_path("apps/v1", "deployments"))
    except SourceUnavailable as error:
        raise ConfigurationInvalid(f"the Deployments could not be listed: {error}") from error
    lines: list[str] = []
    for one in deployments:
        metadata = one["metadata"]
        mark = (metadata.get("annotations") or {}).get(TXN_ANNOTATION)
        try:
            transaction_id = open_transaction(mark)
        except ValueError:
            transaction_id = str(mark)
        if transaction_id is not None and not await journal.ended_transaction(transaction_id):
            space, name = metadata["namespace"], metadata["name"]
            release = f"kubectl annotate -n {space} deployment/{name} {TXN_ANNOTATION}-"
            lines.append(f"blocked: Deployment {space}/{name} carries {mark}; look at it, then: {release}")
    return lines
