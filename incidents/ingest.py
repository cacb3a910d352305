"""Store, then act: a webhook is answered when its alerts are committed, and nothing else happens before the answer.

`accept` is the one way in, for HTTP as for a queue: one short transaction, no read of any cluster. Webhooks that come at the same
time are committed together (`incidents.committing`). What an alert is about is found later, by the leader (`incidents.resolving`).

An alert is one row per (cluster, fingerprint, startsAt), however often and by however many peers it is sent:

    not known, firing       stored, or dropped at once with its reason (helpers, our own pages, older than two days)
    not known, resolved     dropped: it is remembered only so that a firing copy on its way opens nothing
    firing, firing          resent: last seen and a counter
    firing, resolved        resolved; its incident is told and becomes due
    resolved, firing        late: noted, nothing is re-opened; a new firing has a new startsAt

Receivers retry on 5xx and drop on 4xx for good. So whatever may be better later (the database, too much at once) is refused with
`Overloaded` or `StoreUnavailable`, which the door answers with 503, and never with a 2xx or a 4xx.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal

import structlog
from sqlalchemy import bindparam, insert, text, update
from sqlalchemy import select as columns
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from catalog.alerts import AlertSeverity, AlertState
from catalog.clocks import Clock
from catalog.clusters import Cluster
from catalog.documents import Document, canonical
from catalog.events import EventKind
from catalog.marks import PAGE_PREFIX
from catalog.targets import TargetKind
from incidents import metrics
from incidents.committing import GroupCommit, Overloaded
from incidents.database import Database, StoreUnavailable
from incidents.dialects import EnvelopeForeign, WebhookRefused, WireAlert, read_envelope
from incidents.people import Credential, TokenRefused, check_token
from incidents.policies import Policies
from incidents.recording import append_event
from incidents.tables import AlertRow, IncidentRow
from sources.matching import EXPORTED
from sources.redaction import Redactor

if TYPE_CHECKING:
    from incidents.context import Context

STALE_AFTER = timedelta(days=2)
TEXT_LIMIT = 8 * 1024
"""Bytes kept of one annotation or label value."""
ANNOTATIONS_LIMIT = 64 * 1024
"""Bytes kept of all annotations of one alert."""
CLOCK_SKEW = timedelta(seconds=5)
HELPERS = frozenset({"Watchdog", "DeadMansSwitch", "InfoInhibitor"})
NEVER_FIRED = "resolved before it was ever seen firing"

_GROUP = 2_000
_WAITING = 40_000
_CHUNK = 1_000
_CREDENTIAL_SECONDS = 5.0
_WRITER_LOCK = 0x5E1ADDE3
_NAMED = (
    "cluster",
    "namespace",
    "pod",
    "container",
    "node",
    "service",
    "job",
    "job_name",
    *(kind.value.lower() for kind in TargetKind),
)
_NAMING = frozenset((*_NAMED, *(EXPORTED + name for name in _NAMED)))
_PLAIN = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")

Effect = Literal["stored", "resent", "resolved", "late", "dropped", "stale"]

log = structlog.get_logger(__name__)


class Receipt(Document):
    """What became of the alerts of one accepted webhook. They are committed."""

    alerts: int
    stored: int = 0
    resent: int = 0
    resolved: int = 0
    late: int = 0
    dropped: int = 0
    stale: int = 0
    truncated: int = 0


async def accept(context: Context, body: bytes, token: str | None) -> Receipt:
    """Store the alerts of one Alertmanager webhook; returns after the commit.

    Raises:
        TokenRefused: answer 401.
        WebhookRefused: answer its `status` (400, 413 or 422) with its message.
        Overloaded, StoreUnavailable: answer 503, so that it is sent again.
    """
    return await context.intake.accept(body, token)


@dataclass(frozen=True)
class _Webhook:
    alerts: tuple[WireAlert, ...]
    truncated: int
    credential: Credential


@dataclass(slots=True)
class _Known:
    """One alert row as this transaction leaves it."""

    id: int | None
    status: str
    incident_id: str | None = None
    wire: WireAlert | None = None
    state: AlertState = AlertState.STORED
    reason: str = ""
    token_id: str = ""
    resends: int = 0
    contradicted: bool = False
    ended: WireAlert | None = None


Key = tuple[str, str, datetime]


class Intake:
    """Stores webhooks. One per process: it gathers those that come together into one transaction."""

    def __init__(self, database: Database, clock: Clock, policies: Policies, redactor: Redactor) -> None:
        self._database = database
        self._clock = clock
        self._policies = policies
        self._redactor = redactor
        self._commits: GroupCommit[_Webhook, Receipt] = GroupCommit(self._write, group_weight=_GROUP, waiting_weight=_WAITING)
        self._credentials: dict[str, tuple[float, Credential]] = {}
        self._clean: dict[str, str] = {}

    async def accept(self, body: bytes, token: str | None) -> Receipt:
        """As the function `accept`."""
        began = self._clock.monotonic()
        try:
            credential = await self._credential(token)
            self._commits.refuse_when_full(credential.id)
            envelope = read_envelope(body)
            webhook = _Webhook(envelope.alerts, envelope.truncated_alerts, credential)
            if envelope.alerts:
                metrics.INGEST_WAITING.set(self._commits.weight + len(envelope.alerts))
                receipt = await self._commits.submit(webhook, len(envelope.alerts), credential.id)
            else:
                receipt = Receipt(alerts=0, truncated=envelope.truncated_alerts)
        except (TokenRefused, WebhookRefused, Overloaded, StoreUnavailable) as error:
            _count_refusal(error)
            raise
        finally:
            metrics.INGEST_WAITING.set(self._commits.weight)
        _count(receipt, self._clock.monotonic() - began)
        return receipt

    async def _credential(self, token: str | None) -> Credential:
        """The token's meaning, remembered for five seconds so that a storm does not read the same row each time."""
        known = self._credentials.get(token or "")
        if known is not None and known[0] > self._clock.monotonic():
            return known[1]
        async with self._database.reading() as session:
            credential = await check_token(session, token or "", "ingest", now=self._clock.now())
        if len(self._credentials) >= 1_000:
            self._credentials.clear()
        self._credentials[token or ""] = (self._clock.monotonic() + _CREDENTIAL_SECONDS, credential)
        return credential

    async def _write(self, webhooks: Sequence[_Webhook]) -> list[Receipt]:
        now = self._clock.now()
        clusters = self._policies.current.clusters
        with metrics.INGEST_COMMIT_SECONDS.time():
            async with self._database.transaction() as session:
                await hold_alerts(session)
                keyed = [_keyed(webhook, clusters) for webhook in webhooks]
                known = await _read_known(session, [key for keys in keyed for key in keys])
                receipts = [_fold(webhook, keys, known, now) for webhook, keys in zip(webhooks, keyed, strict=True)]
                await self._insert(session, known, now)
                await _note_resends(session, known, now)
                await _note_ends(session, known, now)
        return receipts

    async def _insert(self, session: AsyncSession, known: dict[Key, _Known], now: datetime) -> None:
        """New rows, a thousand at a time, so that a huge body is never held twice."""
        connection = await session.connection()
        fresh = [(key, entry) for key, entry in known.items() if entry.id is None]
        for start in range(0, len(fresh), _CHUNK):
            rows = [self._row(key, entry, now) for key, entry in fresh[start : start + _CHUNK]]
            await connection.execute(insert(AlertRow), rows)

    def _row(self, key: Key, entry: _Known, now: datetime) -> dict[str, object]:
        wire = entry.wire
        assert wire is not None
        ended = entry.ended or (wire if wire.status == "resolved" else None)
        return {
            "cluster_uid": key[0],
            "fingerprint": key[1],
            "starts_at": key[2],
            "status": entry.status,
            "state": entry.state.value,
            "reason": entry.reason,
            "name": _stored_text(wire.labels.get("alertname", ""))[:256],
            "severity": _severity(wire).value,
            "labels": json.dumps(self._labels(wire), ensure_ascii=False),
            "annotations": json.dumps(self._annotations(wire), ensure_ascii=False),
            "generator_url": _stored_text(self._redacted(_cut(wire.generator_url, TEXT_LIMIT))),
            "dialect": "alertmanager",
            "token_id": entry.token_id,
            "received_at": now,
            "last_seen_at": now,
            "resolved_at": None if ended is None else _end_of(ended, now),
            "contradicted_at": now if entry.contradicted else None,
            "resends": entry.resends,
        }

    def _labels(self, wire: WireAlert) -> dict[str, str]:
        """Labels as kept: empty ones are absent, names of objects stay as they are, other values lose their secrets."""
        kept: dict[str, str] = {}
        for name, value in wire.labels.items():
            if value:
                names_an_object = name in _NAMING and _PLAIN.fullmatch(value)
                kept[name] = value if names_an_object else self._redacted(_cut(value, TEXT_LIMIT))
        return kept

    def _annotations(self, wire: WireAlert) -> dict[str, str]:
        names = sorted({value for name, value in wire.labels.items() if name in _NAMING and len(value) > 3}, key=len, reverse=True)
        kept: dict[str, str] = {}
        room = ANNOTATIONS_LIMIT
        for name, value in wire.annotations.items():
            if value and room > 0:
                kept[name] = self._described(_cut(value, min(TEXT_LIMIT, room)), names)
                room -= len(name) + len(kept[name].encode())
        return kept

    def _described(self, value: str, names: Sequence[str]) -> str:
        """A rule writes the same text about every pod. It is judged once with the names of objects made equal; only where there
        is something to redact in that is the text itself looked at.
        """
        pattern = value
        for name in names:
            if _PLAIN.fullmatch(name):
                pattern = pattern.replace(name, "some-name")
        return value if self._redacted(pattern) == pattern else self._redactor.text(value)

    def _redacted(self, value: str) -> str:
        """The same few texts come with every alert of a rule, so that the short ones are worth remembering."""
        if len(value) > 1_024:
            return self._redactor.text(value)
        clean = self._clean.get(value)
        if clean is None:
            if len(self._clean) >= 10_000:
                self._clean.clear()
            clean = self._clean[value] = self._redactor.text(value)
        return clean


def cluster_of(labels: dict[str, str], credential: Credential, clusters: Iterable[Cluster]) -> Cluster | None:
    """The cluster that an alert speaks of: its labels match, and the token is bound to it.

    The most specific match counts; two equally specific ones are none. `match: {}` names a cluster only for a token that is
    bound to that one cluster.
    """
    found: list[Cluster] = []
    for cluster in clusters:
        if cluster.uid not in credential.clusters or (not cluster.match and len(credential.clusters) != 1):
            continue
        if all(labels.get(name) == value for name, value in cluster.match.items()):
            found.append(cluster)
    found.sort(key=lambda cluster: len(cluster.match), reverse=True)
    if not found or (len(found) > 1 and len(found[0].match) == len(found[1].match)):
        return None
    return found[0]


def own_fingerprint(labels: dict[str, str]) -> str:
    """A fingerprint for an alert that came without one: from its labels, in which an empty value is an absent label."""
    return hashlib.sha256(canonical({name: value for name, value in labels.items() if value})).hexdigest()[:16]


def _keyed(webhook: _Webhook, clusters: Iterable[Cluster]) -> list[Key]:
    keys: list[Key] = []
    candidates = list(clusters)
    for wire in webhook.alerts:
        cluster = cluster_of(wire.labels, webhook.credential, candidates)
        fingerprint = _stored_text(wire.fingerprint)
        if not fingerprint or len(fingerprint) > 128:
            fingerprint = own_fingerprint(wire.labels)
        keys.append((cluster.uid if cluster else "", fingerprint, wire.starts_at.astimezone(UTC)))
    return keys


async def hold_alerts(session: AsyncSession) -> None:
    """Be the only writer of alerts over all replicas until this transaction ends: what is unknown now stays so, and nobody waits
    for a row of somebody who waits for ours. (On SQLite every write transaction is alone anyway.)
    """
    connection = await session.connection()
    if connection.dialect.name == "postgresql":
        await connection.execute(text("SET LOCAL lock_timeout = '5s'"))
        await connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _WRITER_LOCK})


async def _read_known(session: AsyncSession, keys: Sequence[Key]) -> dict[Key, _Known]:
    """Rows that are there already. Asked by fingerprint within the span of the starts, which one index answers."""
    connection = await session.connection()
    wanted = set(keys)
    known: dict[Key, _Known] = {}
    by_cluster: dict[str, list[Key]] = {}
    for key in wanted:
        by_cluster.setdefault(key[0], []).append(key)
    for cluster_uid, group in by_cluster.items():
        group.sort(key=lambda key: key[1])
        for start in range(0, len(group), _CHUNK):
            part = group[start : start + _CHUNK]
            rows = await connection.execute(
                columns(
                    col(AlertRow.id),
                    col(AlertRow.fingerprint),
                    col(AlertRow.starts_at),
                    col(AlertRow.status),
                    col(AlertRow.incident_id),
                ).where(
                    col(AlertRow.cluster_uid) == cluster_uid,
                    col(AlertRow.fingerprint).in_({key[1] for key in part}),
                    col(AlertRow.starts_at).between(min(key[2] for key in part), max(key[2] for key in part)),
                )
            )
            for row_id, fingerprint, starts_at, status, incident_id in rows:
                key = (cluster_uid, fingerprint, starts_at)
                if key in wanted:
                    known[key] = _Known(row_id, status, incident_id)
    return known


def _fold(webhook: _Webhook, keys: Sequence[Key], known: dict[Key, _Known], now: datetime) -> Receipt:
    """Apply one webhook to what is known, alert by alert in the order sent."""
    counts: dict[Effect, int] = dict.fromkeys(("stored", "resent", "resolved", "late", "dropped", "stale"), 0)
    for wire, key in zip(webhook.alerts, keys, strict=True):
        entry = known.get(key)
        if entry is None:
            known[key] = entry = _first(wire, now)
            entry.token_id = webhook.credential.id
            counts["stored" if entry.state is AlertState.STORED else "stale" if _is_stale(entry) else "dropped"] += 1
        else:
            counts[_again(entry, wire)] += 1
    return Receipt(alerts=len(webhook.alerts), truncated=webhook.truncated, **counts)


def _first(wire: WireAlert, now: datetime) -> _Known:
    name = wire.labels.get("alertname", "")
    reason = ""
    if name.startswith(PAGE_PREFIX):
        reason = "one of our own pages"
    elif name in HELPERS:
        reason = "a heartbeat" if name != "InfoInhibitor" else "a helper that only inhibits other alerts"
    elif wire.labels.get("severity") == "none":
        reason = "severity none: a helper of the alerting rules"
    elif wire.status == "resolved":
        reason = NEVER_FIRED
    elif wire.starts_at < now - STALE_AFTER:
        reason = f"{_STALE} it started on {wire.starts_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC, more than two days before it came"
    elif wire.starts_at > now + CLOCK_SKEW:
        metrics.CLAMPED.inc()
    return _Known(None, wire.status, wire=wire, state=AlertState.DROPPED if reason else AlertState.STORED, reason=reason)


_STALE = "stale:"


def _is_stale(entry: _Known) -> bool:
    return entry.reason.startswith(_STALE)


def _again(entry: _Known, wire: WireAlert) -> Effect:
    if entry.status == "firing" and wire.status == "resolved":
        entry.status, entry.ended = "resolved", wire
        return "resolved"
    if entry.status == "resolved" and wire.status == "firing":
        entry.contradicted = True
        return "late"
    entry.resends += 1
    return "resent"


async def _note_resends(session: AsyncSession, known: dict[Key, _Known], now: datetime) -> None:
    """Counters of rows that were there, one statement for all rows with the same change."""
    connection = await session.connection()
    changes: dict[tuple[int, bool], list[int]] = {}
    for entry in known.values():
        if entry.id is not None and (entry.resends or entry.contradicted):
            changes.setdefault((entry.resends, entry.contradicted), []).append(entry.id)
    for (resends, contradicted), ids in changes.items():
        values: dict[str, object] = {"resends": col(AlertRow.resends) + resends, "last_seen_at": now}
        if contradicted:
            values["contradicted_at"] = now
        for start in range(0, len(ids), _CHUNK):
            await connection.execute(update(AlertRow).where(col(AlertRow.id).in_(ids[start : start + _CHUNK])).values(values))


async def _note_ends(session: AsyncSession, known: dict[Key, _Known], now: datetime) -> None:
    """Resolves of rows that were there: the row, and the incident it belongs to."""
    connection = await session.connection()
    ended = [(key, entry) for key, entry in known.items() if entry.id is not None and entry.ended is not None]
    changes = [{"row": entry.id, "ended": _end_of(entry.ended, now)} for _, entry in ended if entry.ended is not None]
    if changes:
        await connection.execute(
            update(AlertRow)
            .where(col(AlertRow.id) == bindparam("row"))
            .values(status="resolved", resolved_at=bindparam("ended"), last_seen_at=now),
            changes,
        )
    of_incidents = [(key, entry) for key, entry in ended if entry.incident_id is not None]
    incidents = await open_incidents(session, {entry.incident_id for _, entry in of_incidents if entry.incident_id})
    for key, entry in of_incidents:
        incident = incidents.get(entry.incident_id or "")
        if incident is None or entry.ended is None:
            continue
        at = _end_of(entry.ended, now)
        payload = {"alert_id": entry.id, "fingerprint": key[1], "name": _stored_text(entry.ended.labels.get("alertname", ""))[:256]}
        append_event(session, incident, EventKind.ALERT_RESOLVED, at=at, now=now, actor="alertmanager", payload=payload)
        incident.next_at = now


async def open_incidents(session: AsyncSession, ids: Iterable[str]) -> dict[str, IncidentRow]:
    """Incidents of `ids` that are not closed, held until the transaction ends; always taken in the order of their ids."""
    found: dict[str, IncidentRow] = {}
    wanted = sorted(ids)
    for start in range(0, len(wanted), _CHUNK):
        rows = await session.exec(
            select(IncidentRow)
            .where(col(IncidentRow.id).in_(wanted[start : start + _CHUNK]), IncidentRow.phase != "closed")
            .order_by(col(IncidentRow.id))
            .with_for_update()
            .execution_options(populate_existing=True)
        )
        found |= {row.id: row for row in rows}
    return found


def _end_of(wire: WireAlert, now: datetime) -> datetime:
    """When it ended: as sent, never in the future."""
    return min(wire.ends_at.astimezone(UTC), now) if wire.ends_at is not None else now


def _severity(wire: WireAlert) -> AlertSeverity:
    try:
        return AlertSeverity(wire.labels.get("severity", "").lower())
    except ValueError:
        return AlertSeverity.WARNING


def _stored_text(value: str) -> str:
    """PostgreSQL stores no NUL characters."""
    return value.replace("\x00", "\ufffd")


def _cut(value: str, limit: int) -> str:
    """At most `limit` bytes, whole characters, and a note of how much there was."""
    if 4 * len(value) <= limit:
        return value
    raw = value.encode()
    if len(raw) <= limit:
        return value
    note = f" … (cut: {len(raw)} bytes)"
    return raw[: max(0, limit - len(note.encode()))].decode(errors="ignore") + note


def _count(receipt: Receipt, seconds: float) -> None:
    metrics.WEBHOOKS.labels("accepted").inc()
    metrics.INGEST_ACCEPT_SECONDS.observe(seconds)
    for effect in ("stored", "resent", "resolved", "late", "dropped", "stale"):
        count = getattr(receipt, effect)
        if count:
            metrics.ALERTS.labels(effect).inc(count)
    if receipt.truncated:
        metrics.TRUNCATED.inc(receipt.truncated)


def _count_refusal(error: Exception) -> None:
    match error:
        case EnvelopeForeign():
            metrics.FOREIGN_WEBHOOKS.labels(error.vendor).inc()
            result = error.result
        case WebhookRefused():
            result = error.result
        case TokenRefused():
            result = "unauthorized"
        case Overloaded():
            result = "overloaded"
        case _:
            result = "store_unavailable"
            metrics.STORE_TROUBLE.labels("ingest").inc()
    metrics.WEBHOOKS.labels(result).inc()
    log.info("webhook refused", result=result, reason=str(error)[:300])
