"""To page is to post a firing alert to the cluster's own Alertmanager, which already knows whom to wake.

A page is a row. It is posted every five minutes until somebody takes it (`resolve_page`), each time with an end a quarter of an
hour ahead, so that it neither flaps between two posts nor fires for ever when the bot is gone; then it is posted once more as
ended. Pages are named `SreLadder…`; alerts of that name are never taken as alerts (`incidents.ingest`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import httpx
import structlog
from sqlalchemy import func
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from catalog.clusters import Cluster
from catalog.documents import instant_text
from catalog.marks import PAGE_PREFIX
from incidents import metrics, outbox
from incidents.context import Context
from incidents.leading import Term, repeat
from incidents.tables import ExecutorRow, OrderRow, PageRow

REPEAT = timedelta(minutes=5)
AHEAD = timedelta(minutes=15)
SILENT_AFTER = timedelta(seconds=60)
SILENT_NAME = "SreLadderExecutorSilent"
POST_TIMEOUT_S = 10.0
POLL_S = 1.0
_FIRST_RETRY, _LONGEST_RETRY = timedelta(seconds=5), timedelta(minutes=1)

log = structlog.get_logger(__name__)


async def raise_page(
    session: AsyncSession,
    *,
    key: str,
    name: str,
    cluster_uid: str,
    summary: str,
    now: datetime,
    incident_id: str | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    mentions: Mapping[str, str] | None = None,
) -> bool:
    """Page. While the page of this key fires, raising it again changes nothing; once it ended, it fires anew.

    `mentions`: surface → channel in which the on-call is told as well. True when the page is new.

    Raises:
        ValueError: a name without the prefix of our own pages, which would come back to us as an alert.
    """
    if not name.startswith(PAGE_PREFIX):
        raise ValueError(f"{name} is not the name of a page; it must begin with {PAGE_PREFIX}")
    row = await session.get(PageRow, key, with_for_update=True)
    if row is not None and row.ended_at is None:
        return False
    row = row or PageRow(key=key, name=name, cluster_uid=cluster_uid)
    row.name, row.cluster_uid, row.incident_id = name, cluster_uid, incident_id
    row.labels = json.dumps(dict(labels or {}), ensure_ascii=False)
    row.annotations = json.dumps({"summary": summary, **(annotations or {})}, ensure_ascii=False)
    row.since = row.next_at = now
    row.last_posted_at = row.ended_at = row.ended_by = row.settled_at = None
    row.trouble = ""
    session.add(row)
    for surface, channel in (mentions or {}).items():
        await outbox.enqueue(
            session,
            key=f"page:{key}:{instant_text(now)}:{surface}",
            surface=surface,
            channel=channel,
            kind="page",
            now=now,
            incident_id=incident_id,
            body={"name": name, "summary": summary},
            priority=outbox.URGENT,
        )
    return True


async def resolve_page(session: AsyncSession, key: str, *, by: str, now: datetime) -> bool:
    """Somebody took it: stop paging and tell Alertmanager so. False when it does not fire."""
    row = await session.get(PageRow, key, with_for_update=True)
    if row is None or row.ended_at is not None:
        return False
    _end(session, row, by, now)
    return True


async def resolve_pages_of(session: AsyncSession, incident_id: str, *, by: str, now: datetime) -> int:
    """End every page of an incident; how many fired."""
    rows = await session.exec(
        select(PageRow).where(PageRow.incident_id == incident_id, col(PageRow.ended_at).is_(None)).with_for_update()
    )
    ended = list(rows)
    for row in ended:
        _end(session, row, by, now)
    return len(ended)


def _end(session: AsyncSession, row: PageRow, by: str, now: datetime) -> None:
    row.ended_at, row.ended_by, row.next_at = now, by, now
    session.add(row)


async def watch_executors(session: AsyncSession, clusters: Mapping[str, str], now: datetime) -> None:
    """Page for every cluster (UID → name) that has a delivered order and whose executor has been silent for 60 s; end the page when
    it speaks again or nothing is open there.
    """
    delivered = await session.exec(
        select(OrderRow.cluster_uid, func.min(OrderRow.delivered_at))
        .where(OrderRow.state == "delivered")
        .group_by(OrderRow.cluster_uid)
    )
    open_since = {uid: since for uid, since in delivered if since is not None}
    spoken = await session.exec(
        select(ExecutorRow.cluster_uid, func.max(ExecutorRow.heard_at)).where(ExecutorRow.active).group_by(ExecutorRow.cluster_uid)
    )
    heard = dict(list(spoken))
    silent = {uid for uid, since in open_since.items() if now - max(since, heard.get(uid, since)) >= SILENT_AFTER}
    firing = await session.exec(select(PageRow.cluster_uid).where(PageRow.name == SILENT_NAME, col(PageRow.ended_at).is_(None)))
    for uid in set(firing) - silent:
        await resolve_page(session, _silent_key(uid), by="bot", now=now)
    for uid in silent:
        last = max(open_since[uid], heard.get(uid, open_since[uid]))
        await raise_page(
            session,
            key=_silent_key(uid),
            name=SILENT_NAME,
            cluster_uid=uid,
            summary=f"The executor of {clusters.get(uid, uid)} has an open order and was last heard at {instant_text(last)}.",
            now=now,
        )


def _silent_key(cluster_uid: str) -> str:
    return f"executor_silent:{cluster_uid}"


class Pager:
    """Posts pages that are due. Runs on the leader."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def run(self, term: Term) -> None:
        """Watch the executors and post, until cancelled or the term is over.

        Raises:
            LeadershipLost: stop; the next leader goes on.
        """
        async with httpx.AsyncClient(timeout=POST_TIMEOUT_S, trust_env=False) as client:
            await repeat(lambda: self.step(term, client), pause_s=POLL_S, stage="paging")

    async def step(self, term: Term, client: httpx.AsyncClient) -> int:
        """One look: how many pages were posted or tried."""
        now = self._context.clock.now()
        clusters = {cluster.uid: cluster.name for cluster in self._context.policies.current.clusters}
        async with term.transaction() as session:
            await watch_executors(session, clusters, now)
        async with self._context.database.reading() as session:
            await _measure(session)
            due = await session.exec(
                select(PageRow).where(col(PageRow.next_at) <= now, col(PageRow.settled_at).is_(None)).order_by(col(PageRow.next_at))
            )
            rows = list(due)
        for row in rows:
            trouble = await self._post(client, row, now)
            await self._note(term, row, trouble, now)
        return len(rows)

    async def _post(self, client: httpx.AsyncClient, row: PageRow, now: datetime) -> str:
        """Post one page; what stood in the way, '' for nothing."""
        cluster = self._context.policies.current.cluster_of(row.cluster_uid)
        if cluster is None or cluster.alertmanager is None:
            return "no Alertmanager is configured for this cluster, so nobody can be paged through it"
        try:
            answer = await client.post(
                f"{cluster.alertmanager.rstrip('/')}/api/v2/alerts",
                json=[_alert(row, cluster, now)],
                headers=_authorization(cluster),
            )
        except (httpx.HTTPError, OSError) as error:
            return f"Alertmanager cannot be reached: {type(error).__name__}"
        return "" if answer.is_success else f"Alertmanager answered {answer.status_code}"

    async def _note(self, term: Term, row: PageRow, trouble: str, now: datetime) -> None:
        metrics.PAGE_POSTS.labels("failed" if trouble else "posted").inc()
        if trouble:
            log.error("page not posted", page=row.name, reason=trouble)
        async with term.transaction() as session:
            stored = await session.get(PageRow, row.key, with_for_update=True)
            if stored is None or (stored.since, stored.ended_at) != (row.since, row.ended_at):
                return  # raised anew or taken while it was being posted: due at once as it is
            stored.trouble = trouble
            if trouble:
                stored.next_at = now + _retry(row, now)
            else:
                stored.last_posted_at, stored.next_at = now, now + REPEAT
                stored.settled_at = now if row.ended_at is not None else None
            if trouble and row.ended_at is not None and now - row.ended_at > AHEAD:
                stored.settled_at = now  # Alertmanager has let it end by itself
            session.add(stored)


def _retry(row: PageRow, now: datetime) -> timedelta:
    """The longer it fails the longer we wait, from 5 s to a minute."""
    failing = now - (row.last_posted_at or row.since)
    return min(_LONGEST_RETRY, max(_FIRST_RETRY, failing))


def _alert(row: PageRow, cluster: Cluster, now: datetime) -> dict[str, Any]:
    ends = now if row.ended_at is not None else now + AHEAD
    return {
        "labels": {"severity": "critical", **json.loads(row.labels), "alertname": row.name, "page": row.key, **cluster.match},
        "annotations": json.loads(row.annotations),
        "startsAt": instant_text(row.since),
        "endsAt": instant_text(ends),
    }


def _authorization(cluster: Cluster) -> dict[str, str]:
    if cluster.alertmanager_token_file is None:
        return {}
    return {"Authorization": f"Bearer {cluster.alertmanager_token_file.read_text().strip()}"}


async def _measure(session: AsyncSession) -> None:
    rows = await session.exec(select(PageRow.name, func.count()).where(col(PageRow.ended_at).is_(None)).group_by(PageRow.name))
    firing = dict(list(rows))
    known = {sample.labels["name"] for metric in metrics.PAGES_FIRING.collect() for sample in metric.samples}
    for name in known | set(firing):
        metrics.PAGES_FIRING.labels(name).set(firing.get(name, 0))
