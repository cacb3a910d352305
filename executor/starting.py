"""Puts the process together from its settings, and takes it apart."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from catalog.clocks import Clock
from catalog.signatures import KeyUnreadable, load_private_key, load_public_keys
from executor.bounds import load_bounds
from executor.errors import ConfigurationInvalid
from executor.halting import Brakes
from executor.instants import Timeline
from executor.journal import Journal
from executor.lease import Lease
from executor.preflight.asking import FenceProbe
from executor.pulling import Executor
from executor.reporting import BotClient
from executor.settings import Settings
from executor.surroundings import Surroundings
from executor.writing import KubernetesWriter
from sources.connecting import api_client
from sources.errors import SourceMisconfigured, SourceUnavailable
from sources.kubernetes import KubernetesReader
from sources.prometheus import PrometheusReader
from sources.redaction import Redactor

USER_AGENT = "sre-executor"
RETRY_CLUSTER = 5.0

log = structlog.get_logger()


@asynccontextmanager
async def assembled(
    settings: Settings, clock: Clock, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> AsyncIterator[Executor]:
    """An executor that is ready to run. Waits for the cluster; everything else must be right at once.

    Raises:
        ConfigurationInvalid: a setting, key or file cannot be used, or the cluster is not the one that was named.
        JournalUnavailable: the journal cannot be opened.
    """
    bounds, limits_digest = load_bounds(settings.limits_file)
    outcome_key, bot_keys = _keys(settings)
    async with AsyncExitStack() as stack:
        bot = BotClient(settings.bot_url, settings.bot_token_file)
        stack.push_async_callback(bot.close)
        journal = await Journal.open(settings.journal_url, clock.now())
        stack.push_async_callback(journal.close)
        reader, writer = await _cluster(settings, clock)
        stack.push_async_callback(reader.close)
        prometheus = _prometheus(settings, clock)
        if prometheus is not None:
            stack.push_async_callback(prometheus.close)
        uid = await _wait_for_uid(reader, sleep)
        if settings.cluster_uid not in (None, uid):
            raise ConfigurationInvalid(f"SRE_EXECUTOR_CLUSTER_UID is {settings.cluster_uid}, the API server is of {uid}")
        lease = Lease(
            reader=reader,
            writer=writer,
            now=clock.now,
            monotonic=clock.monotonic,
            holder=settings.executor_id,
            journal_id=journal.id,
            home_namespace=settings.home_namespace,
        )
        around = Surroundings(
            executor_id=settings.executor_id,
            cluster_uid=uid,
            reader=reader,
            writer=writer,
            prometheus=prometheus,
            journal=journal,
            bounds=bounds,
            brakes=Brakes(reader, clock.monotonic, settings.home_namespace, settings.halt_file),
            lease=lease,
            fence=FenceProbe(writer, clock.monotonic),
            redactor=Redactor(redaction_key(outcome_key)),
            outcome_key=outcome_key,
            clock=clock,
            timeline=Timeline(clock),
            sleep=sleep,
        )
        yield Executor(around, bot, bot_keys, limits_digest=limits_digest, claim_every=settings.claim_every)


def redaction_key(key: Ed25519PrivateKey) -> bytes:
    """The key of redaction tags, derived so that there is one secret less to keep."""
    return hmac.new(key.private_bytes_raw(), b"redaction", hashlib.sha256).digest()


def _keys(settings: Settings) -> tuple[Ed25519PrivateKey, dict[str, Ed25519PublicKey]]:
    try:
        keys = load_public_keys(*settings.public_key_paths)
        own = load_private_key(settings.private_key)
    except KeyUnreadable as error:
        raise ConfigurationInvalid(str(error).replace("sre-bot keys", "sre-executor keys")) from error
    if not 1 <= len(keys) <= 2:
        raise ConfigurationInvalid(f"SRE_EXECUTOR_BOT_PUBLIC_KEYS: one key, or two during a rotation; {len(keys)} were given")
    return own, dict(keys)


async def _cluster(settings: Settings, clock: Clock) -> tuple[KubernetesReader, KubernetesWriter]:
    try:
        api = await api_client(settings.access, user_agent=USER_AGENT)
    except SourceMisconfigured as error:
        raise ConfigurationInvalid(str(error)) from error
    return KubernetesReader(api, clock), KubernetesWriter(api)


def _prometheus(settings: Settings, clock: Clock) -> PrometheusReader | None:
    if settings.prometheus_url is None:
        return None
    try:
        return PrometheusReader(settings.prometheus_url, clock, token_file=settings.prometheus_token_file)
    except SourceMisconfigured as error:
        raise ConfigurationInvalid(str(error)) from error


async def _wait_for_uid(reader: KubernetesReader, sleep: Callable[[float], Awaitable[None]]) -> str:
    told = ""
    while True:
        try:
            return await reader.cluster_uid()
        except SourceUnavailable as error:
            if str(error) != told:
                told = str(error)
                log.warning("waiting for the cluster", detail=told)
            await sleep(RETRY_CLUSTER)
