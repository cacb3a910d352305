"""From stored alerts to incidents. The leader takes stored alerts in the order they came, finds what each is about, and attaches.

    stored → attached     to the open incident of its target, or to a new one
    stored → unresolved   no cluster or no object can be named; listed with its reason, told once from severity critical
    stored → stored       the cluster's API cannot be read: nothing is decided, it is tried again with growing pauses

Owners are looked up outside any transaction, once per object named, and everything found is written in one short transaction per
batch. An incident is per target, so that five pods of one Deployment are one incident; and one (cluster, fingerprint, startsAt) is
attached once, for ever. A newer start of the same fingerprint ends the older one, because Alertmanager sends no resolve for an
alert that came back within its group interval.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import structlog
from sqlalchemy import func, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import IntegrityError
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from catalog.alerts import AlertSeverity, AlertState
from catalog.clocks import Clock
from catalog.clusters import Cluster
from catalog.documents import instant_text
from catalog.episodes import Phase
from catalog.events import EventKind
from catalog.ids import new_id
from catalog.targets import Target
from incidents import metrics, outbox
from incidents.context import Context
from incidents.ingest import hold_alerts
from incidents.leading import Term, repeat
from incidents.recording import append_event
from incidents.remembering import RememberingReader
from incidents.tables import AlertRow, CounterRow, IncidentRow
from ladder.policy import Policy
from sources.endpoints import SourceSet, open_sources
from sources.errors import SourceError, SourceMisconfigured
from sources.owners import Unresolved, named_place, resolve_target

BATCH = 500
POLL_S = 0.25
NUMBER = "incident"
_LOOKUPS = 16
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0
_CHUNK = 1_000

OpenSources = Callable[[Cluster, Clock, bytes], Awaitable[SourceSet]]

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Found:
    """What one stored alert turned out to be about, or why that cannot be told."""

    alert_id: int
    target: Target | None
    reason: str = ""


@dataclass
class _Reachable:
    """One cluster as this task sees it."""

    cluster: Cluster
    sources: SourceSet | None = None
    reader: RememberingReader | None = None
    pause_s: float = 0.0
    rests_until: float = 0.0


@dataclass
class Resolving:
    """The leader's task. `open_cluster` gives the readers of a cluster; `on_settled` hears when alerts were attached."""

    context: Context
    open_cluster: OpenSources = open_sources
    on_settled: Callable[[], None] = lambda: None
    _clusters: dict[str, _Reachable] = field(default_factory=dict)

    async def run(self, term: Term) -> None:
        """Resolve until cancelled or the term is over.

        Raises:
            LeadershipLost: stop; the next leader goes on.
        """
        try:
            await repeat(lambda: self.step(term), pause_s=POLL_S, stage="resolving")
        finally:
            await self.close()

    async def close(self) -> None:
        """Close every reader."""
        for reachable in self._clusters.values():
            if reachable.sources is not None:
                await reachable.sources.close()
        self._clusters.clear()

    async def step(self, term: Term) -> int:
        """One batch; how many alerts left the state `stored`."""
        await self._follow_policy()
        rows = await self._stored()
        if not rows:
            return 0
        found: list[Found] = []
        for cluster_uid, group in _by_cluster(rows).items():
            found += await self._resolve(term, cluster_uid, group)
        if not found:
            return 0
        policy, now = self.context.policies.current, self.context.clock.now()
        try:
            async with term.transaction() as session:
                changed = await settle(session, found, policy, now)
        except IntegrityError:  # somebody opened an incident of one of these targets meanwhile: look again
            return 0
        for result, count in changed.items():
            metrics.RESOLVED_TARGETS.labels(result).inc(count)
        self.on_settled()
        return len(found)

    async def _follow_policy(self) -> None:
        """Forget readers of clusters that are described differently now."""
        current = {cluster.uid: cluster for cluster in self.context.policies.current.clusters}
        for uid, reachable in list(self._clusters.items()):
            if current.get(uid) != reachable.cluster:
                if reachable.sources is not None:
                    await reachable.sources.close()
                del self._clusters[uid]
        for uid, cluster in current.items():
            self._clusters.setdefault(uid, _Reachable(cluster))

    async def _stored(self) -> list[AlertRow]:
        """The next batch, without clusters that cannot be read just now."""
        resting = [uid for uid, one in self._clusters.items() if self.context.clock.monotonic() < one.rests_until]
        stored = AlertRow.state == AlertState.STORED.value
        async with self.context.database.reading() as session:
            backlog = (await session.exec(select(func.count()).select_from(AlertRow).where(stored))).one()
            rows = await session.exec(
                select(AlertRow).where(stored, col(AlertRow.cluster_uid).not_in(resting)).order_by(col(AlertRow.id)).limit(BATCH)
            )
            found = list(rows)
        metrics.ALERT_BACKLOG.set(backlog)
        return found

    async def _resolve(self, term: Term, cluster_uid: str, rows: Sequence[AlertRow]) -> list[Found]:
        reachable = self._clusters.get(cluster_uid)
        if reachable is None:
            return [Found(row.id or 0, None, _no_cluster(row)) for row in rows]
        try:
            reader = await self._reader(reachable)
            found = await _look_up(reader, reachable.cluster, rows)
        except SourceError as error:
            await self._rest(term, reachable, str(error), rows)
            return []
        if reachable.pause_s:
            log.info("cluster is readable again", cluster=reachable.cluster.name)
        reachable.pause_s = 0.0
        metrics.CLUSTER_UNREADABLE.labels(reachable.cluster.name).set(0)
        return found

    async def _reader(self, reachable: _Reachable) -> RememberingReader:
        """A reader that is known to speak of the cluster that the policy means.

        Raises:
            SourceError: it does not, or that cannot be told.
        """
        cluster = reachable.cluster
        if reachable.sources is None:
            reachable.sources = await self.open_cluster(cluster, self.context.clock, self.context.redactor_key)
        if reachable.reader is None or reachable.reader.stale:
            kubernetes = reachable.sources.kubernetes
            uid = await kubernetes.cluster_uid()
            if uid != cluster.uid:
                raise SourceMisconfigured(
                    f"the API configured for cluster {cluster.name} is of the cluster with UID {uid}, not {cluster.uid}"
                )
            reachable.reader = RememberingReader(kubernetes)
        return reachable.reader

    async def _rest(self, term: Term, reachable: _Reachable, reason: str, rows: Sequence[AlertRow]) -> None:
        """Leave the cluster alone for a while; its alerts stay stored and say why."""
        reachable.reader = None
        reachable.pause_s = min(_LONGEST_PAUSE_S, max(_FIRST_PAUSE_S, reachable.pause_s * 2))
        reachable.rests_until = self.context.clock.monotonic() + reachable.pause_s
        metrics.CLUSTER_UNREADABLE.labels(reachable.cluster.name).set(1)
        log.warning("cluster cannot be read", cluster=reachable.cluster.name, reason=reason, seconds=reachable.pause_s)
        async with term.transaction() as session:
            await session.exec(
                update(AlertRow)
                .where(
                    col(AlertRow.id).in_([row.id for row in rows]),
                    col(AlertRow.state) == AlertState.STORED.value,
                )
                .values(reason=f"waiting: {reason}"[:500])
            )


def _by_cluster(rows: Iterable[AlertRow]) -> dict[str, list[AlertRow]]:
    groups: dict[str, list[AlertRow]] = {}
    for row in rows:
        groups.setdefault(row.cluster_uid, []).append(row)
    return groups


def _no_cluster(row: AlertRow) -> str:
    if row.cluster_uid:
        return "The cluster that the alert was stored for is no longer in autonomy.yaml."
    return "No cluster of autonomy.yaml that the token is bound to matches the labels of the alert."


async def _look_up(reader: RememberingReader, cluster: Cluster, rows: Sequence[AlertRow]) -> list[Found]:
    """The target of each alert; alerts that name the same object are asked for once.

    Raises:
        SourceError: the API could not be asked; nothing of this batch is settled.
    """
    labels = {row.id or 0: json.loads(row.labels) for row in rows}
    places: dict[object, list[int]] = {}
    for alert_id, pairs in labels.items():
        places.setdefault(named_place(pairs), []).append(alert_id)
    gate = asyncio.Semaphore(_LOOKUPS)

    async def one(ids: Sequence[int]) -> Target | Unresolved:
        async with gate:
            return await resolve_target(reader, cluster, labels[ids[0]])

    answers = await asyncio.gather(*(one(ids) for ids in places.values()), return_exceptions=True)
    failures = [answer for answer in answers if isinstance(answer, BaseException)]
    if failures:
        raise failures[0]
    found: list[Found] = []
    for ids, answer in zip(places.values(), answers, strict=True):
        if isinstance(answer, Target):
            found += [Found(alert_id, answer) for alert_id in ids]
        elif isinstance(answer, Unresolved):
            found += [Found(alert_id, None, answer.sentence) for alert_id in ids]
    return found


async def settle(session: AsyncSession, found: Sequence[Found], policy: Policy, now: datetime) -> dict[str, int]:
    """Write what was found, in one transaction: attach to open or new incidents, or mark as unresolved with the reason.

    An alert that somebody settled meanwhile is left as it is. Returns how many were attached and unresolved.
    """
    await hold_alerts(session)
    by_id = {one.alert_id: one for one in found}
    rows = await session.exec(
        select(AlertRow)
        .where(col(AlertRow.id).in_(by_id), AlertRow.state == AlertState.STORED.value)
        .order_by(col(AlertRow.id))
        .with_for_update()
        .execution_options(populate_existing=True)
    )
    alerts = list(rows)
    named = [(row, target) for row in alerts if (target := by_id[row.id or 0].target) is not None]
    unnamed = [row for row in alerts if by_id[row.id or 0].target is None]
    for row in unnamed:
        row.state, row.reason = AlertState.UNRESOLVED.value, by_id[row.id or 0].reason
        session.add(row)
    await _tell_unresolved(session, unnamed, policy, now)
    await attach(session, named, now)
    return {"attached": len(named), "unresolved": len(unnamed)}


async def attach(session: AsyncSession, named: Sequence[tuple[AlertRow, Target]], now: datetime) -> None:
    """Attach alerts to the open incidents of their targets; open those that are missing. Every touched incident becomes due."""
    targets = {target.key: target for _, target in named}
    incidents = await _open_incidents(session, targets)
    await _open_missing(session, targets, incidents, now)
    for row, target in named:
        incident = incidents[target.key]
        row.state, row.incident_id, row.reason = AlertState.ATTACHED.value, incident.id, ""
        session.add(row)
        _append_attached(session, incident, row, now)
        if row.status == "resolved":
            _append_resolved(session, incident, row, row.resolved_at or now, now, "")
        _raise_to(incident, row)
        incident.next_at = now
    await session.flush()
    await _end_superseded(session, [row for row, _ in named], incidents, now)


async def _open_incidents(session: AsyncSession, targets: Mapping[tuple[str, str, str, str], Target]) -> dict[Any, IncidentRow]:
    """Open incidents of the targets, held until the transaction ends, in the order of their ids."""
    found: dict[Any, IncidentRow] = {}
    places = sorted({(key[0], key[1]) for key in targets})
    for cluster_uid, namespace in places:
        names = sorted({key[3] for key in targets if key[:2] == (cluster_uid, namespace)})
        rows = await session.exec(
            select(IncidentRow)
            .where(
                IncidentRow.cluster_uid == cluster_uid,
                IncidentRow.namespace == namespace,
                col(IncidentRow.name).in_(names),
                IncidentRow.phase != Phase.CLOSED.value,
            )
            .order_by(col(IncidentRow.id))
            .with_for_update()
            .execution_options(populate_existing=True)
        )
        for row in rows:
            key = (row.cluster_uid, row.namespace, row.kind, row.name)
            if key in targets:
                found[key] = row
    return found


async def _open_missing(
    session: AsyncSession, targets: Mapping[tuple[str, str, str, str], Target], incidents: dict[Any, IncidentRow], now: datetime
) -> None:
    missing = [target for key, target in targets.items() if key not in incidents]
    if not missing:
        return
    last = await next_numbers(session, len(missing))
    for number, target in enumerate(missing, start=last - len(missing) + 1):
        incidents[target.key] = open_incident(session, target, number=number, origin="alert", now=now)
        metrics.INCIDENTS_OPENED.labels("alert").inc()


def open_incident(session: AsyncSession, target: Target, *, number: int, origin: str, now: datetime) -> IncidentRow:
    """A new incident on `target`, due at once. The unique index refuses a second open one of the same target."""
    incident = IncidentRow(
        id=new_id(now),
        number=number,
        cluster_uid=target.cluster_uid,
        cluster=target.cluster,
        namespace=target.namespace,
        kind=target.kind.value,
        name=target.name,
        uid=target.uid,
        origin=origin,
        phase=Phase.OPEN.value,
        severity=AlertSeverity.NONE.value,
        next_at=now,
        opened_at=now,
        updated_at=now,
    )
    payload = {"number": number, "origin": origin, "target": target.model_dump(mode="json")}
    append_event(session, incident, EventKind.OPENED, at=now, now=now, actor="bot", payload=payload)
    return incident


async def next_numbers(session: AsyncSession, count: int) -> int:
    """Reserve `count` incident numbers; the last of them. A number is never given twice; one may be skipped."""
    insert = postgresql.insert(CounterRow) if session.get_bind().dialect.name == "postgresql" else sqlite.insert(CounterRow)
    statement = insert.values(name=NUMBER, value=count)
    rows = await session.exec(
        statement.on_conflict_do_update(
            index_elements=["name"], set_={"value": col(CounterRow.value) + statement.excluded.value}
        ).returning(col(CounterRow.value))
    )
    return int(rows.scalar_one())


def _append_attached(session: AsyncSession, incident: IncidentRow, row: AlertRow, now: datetime) -> None:
    payload = {
        "alert_id": row.id,
        "fingerprint": row.fingerprint,
        "name": row.name,
        "severity": row.severity,
        "starts_at": instant_text(row.began_at),
    }
    append_event(session, incident, EventKind.ALERT_ATTACHED, at=row.received_at, now=now, actor="alertmanager", payload=payload)


def _append_resolved(session: AsyncSession, incident: IncidentRow, row: AlertRow, at: datetime, now: datetime, why: str) -> None:
    payload = {"alert_id": row.id, "fingerprint": row.fingerprint, "name": row.name} | ({"why": why} if why else {})
    append_event(session, incident, EventKind.ALERT_RESOLVED, at=at, now=now, actor="alertmanager", payload=payload)


def _raise_to(incident: IncidentRow, row: AlertRow) -> None:
    """The incident knows every alert name it ever had, and the highest severity."""
    names = set(json.loads(incident.alert_names)) | {row.name}
    incident.alert_names = json.dumps(sorted(names), ensure_ascii=False)
    if AlertSeverity(row.severity).rank > AlertSeverity(incident.severity).rank:
        incident.severity = row.severity


async def _end_superseded(
    session: AsyncSession, rows: Sequence[AlertRow], incidents: Mapping[Any, IncidentRow], now: datetime
) -> None:
    """Older starts of the same fingerprints, still called firing, ended when the newer one began."""
    newest: dict[tuple[str, str], datetime] = {}
    for row in rows:
        key = (row.cluster_uid, row.fingerprint)
        newest[key] = max(newest.get(key, row.starts_at), row.starts_at)
    older: list[AlertRow] = []
    for cluster_uid in sorted({key[0] for key in newest}):
        prints = sorted(key[1] for key in newest if key[0] == cluster_uid)
        for start in range(0, len(prints), _CHUNK):
            found = await session.exec(
                select(AlertRow)
                .where(
                    AlertRow.cluster_uid == cluster_uid,
                    col(AlertRow.fingerprint).in_(prints[start : start + _CHUNK]),
                    AlertRow.status == "firing",
                    AlertRow.state == AlertState.ATTACHED.value,
                )
                .order_by(col(AlertRow.id))
            )
            older += [row for row in found if row.starts_at < newest[(row.cluster_uid, row.fingerprint)]]
    if older:
        await _end(session, older, newest, incidents, now)


async def _end(
    session: AsyncSession,
    older: Sequence[AlertRow],
    newest: Mapping[tuple[str, str], datetime],
    incidents: Mapping[Any, IncidentRow],
    now: datetime,
) -> None:
    held = {incident.id: incident for incident in incidents.values()}
    others = sorted({row.incident_id for row in older if row.incident_id} - set(held))
    if others:
        rows = await session.exec(
            select(IncidentRow)
            .where(col(IncidentRow.id).in_(others), IncidentRow.phase != Phase.CLOSED.value)
            .order_by(col(IncidentRow.id))
            .with_for_update()
            .execution_options(populate_existing=True)
        )
        held |= {row.id: row for row in rows}
    for row in older:
        at = min(newest[(row.cluster_uid, row.fingerprint)], now)
        row.status, row.resolved_at = "resolved", at
        session.add(row)
        incident = held.get(row.incident_id or "")
        if incident is not None:
            _append_resolved(session, incident, row, at, now, "the same alert came back with a later start")
            incident.next_at = now


async def _tell_unresolved(session: AsyncSession, rows: Sequence[AlertRow], policy: Policy, now: datetime) -> None:
    """From severity critical, once per alert name, cluster and hour in the default channel; all are listed in the console."""
    channels = {surface: channel for surface, channel in policy.defaults.channel.model_dump().items() if channel}
    groups: dict[tuple[str, str], list[AlertRow]] = {}
    for row in rows:
        if AlertSeverity(row.severity) is AlertSeverity.CRITICAL and row.status == "firing":
            groups.setdefault((row.cluster_uid, row.name), []).append(row)
    for (cluster_uid, name), group in groups.items():
        for surface, channel in channels.items():
            await outbox.enqueue(
                session,
                key=f"unresolved:{cluster_uid}:{name}:{now:%Y-%m-%dT%H}:{surface}",
                surface=surface,
                channel=channel,
                kind="unresolved",
                now=now,
                body={
                    "alert": name,
                    "count": len(group),
                    "reason": group[0].reason,
                    "received_at": instant_text(group[0].received_at),
                },
            )
