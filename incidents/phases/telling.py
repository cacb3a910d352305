"""Words that follow from a change, enqueued in the same transaction: the card of the incident, mentions, pages.

A card is made where people have something to do or to learn that Alertmanager does not already tell them, and from then on kept
up to date. In a storm no new card is made: the storm has one of its own. The console shows every incident either way.
"""

from __future__ import annotations

from datetime import datetime

from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from catalog.decisions import Decision
from catalog.episodes import Phase
from catalog.events import EventKind
from incidents import outbox
from incidents.paging import raise_page
from incidents.phases.situations import merged_scope, read_document, target_of
from incidents.recording import append_event
from incidents.storms import storm_row
from incidents.tables import IncidentRow, OutboxRow, SwitchRow
from ladder.policy import Policy
from ladder.scopes import Channel

_WORTH_A_CARD = frozenset({Phase.PROPOSED, Phase.ORDERED, Phase.EXECUTING, Phase.WATCHING})


async def tell(session: AsyncSession, policy: Policy, row: IncidentRow, now: datetime, *, urgent: bool = False) -> None:
    """Bring the incident's card up to date on every surface of its scope, making it where it is worth one."""
    channels = channels_of(policy, row)
    if not channels or (not await _has_card(session, row) and not await _deserves_card(session, row)):
        return
    priority = outbox.APPROVAL if urgent or row.phase == Phase.PROPOSED.value else outbox.NORMAL
    for surface, channel in channels.items():
        await outbox.refresh_card(session, incident_id=row.id, surface=surface, channel=channel, now=now, priority=priority)


async def mention_on_call(session: AsyncSession, policy: Policy, row: IncidentRow, key: str, text: str, now: datetime) -> None:
    """Mention the scope's on-call once per `key`."""
    scope = merged_scope(policy, row)
    oncall = policy.defaults.oncall if scope is None else scope.oncall
    for surface, channel in channels_of(policy, row).items():
        body = {"text": text, "mention": getattr(oncall, surface), "number": row.number}
        await outbox.enqueue(
            session,
            key=f"mention:{row.id}:{key}:{surface}",
            surface=surface,
            channel=channel,
            kind="mention",
            now=now,
            incident_id=row.id,
            body=body,
            priority=outbox.URGENT,
        )


async def say(session: AsyncSession, policy: Policy, row: IncidentRow, kind: str, key: str, text: str, now: datetime) -> None:
    """Say something in the incident's thread, once per (kind, key), without mentioning anybody."""
    for surface, channel in channels_of(policy, row).items():
        await outbox.enqueue(
            session,
            key=f"{kind}:{key}:{surface}",
            surface=surface,
            channel=channel,
            kind=kind,
            now=now,
            incident_id=row.id,
            body={"text": text, "number": row.number},
            priority=outbox.APPROVAL,
        )


async def page(session: AsyncSession, policy: Policy, row: IncidentRow, name: str, summary: str, now: datetime) -> None:
    """Page through the cluster's Alertmanager until somebody takes the incident or unblocks the target."""
    target = target_of(row)
    new = await raise_page(
        session,
        key=f"{name}:{row.id}",
        name=name,
        cluster_uid=row.cluster_uid,
        summary=summary,
        now=now,
        incident_id=row.id,
        labels={"namespace": row.namespace, row.kind.lower(): row.name},
        annotations={"incident": f"#{row.number}", "target": target.title},
        mentions=channels_of(policy, row),
    )
    if new:
        append_event(session, row, EventKind.PAGED, at=now, now=now, actor="bot", payload={"name": name, "summary": summary})


async def tell_storm(session: AsyncSession, policy: Policy, storm: SwitchRow, now: datetime) -> None:
    """The one card of a storm, in the default channel."""
    for surface, channel in _named(policy.defaults.channel).items():
        await outbox.enqueue(
            session,
            key=f"storm:{storm.id}:{surface}",
            surface=surface,
            channel=channel,
            kind="storm",
            now=now,
            body={"reason": storm.reason, "cluster": storm.cluster_uid, "mention": getattr(policy.defaults.oncall, surface)},
            priority=outbox.URGENT,
        )


def channels_of(policy: Policy, row: IncidentRow) -> dict[str, str]:
    """Surface → channel of the incident's scope; the default one where no scope names it."""
    scope = merged_scope(policy, row)
    return _named(policy.defaults.channel if scope is None else scope.channel)


def _named(channel: Channel) -> dict[str, str]:
    return {surface: name for surface in ("slack", "discord") if (name := getattr(channel, surface))}


async def _has_card(session: AsyncSession, row: IncidentRow) -> bool:
    rows = await session.exec(
        select(OutboxRow.id).where(OutboxRow.incident_id == row.id, col(OutboxRow.kind) == outbox.CARD).limit(1)
    )
    return rows.first() is not None


async def _deserves_card(session: AsyncSession, row: IncidentRow) -> bool:
    if await storm_row(session, row.cluster_uid) is not None:
        return False
    if Phase(row.phase) in _WORTH_A_CARD:
        return True
    if row.phase != Phase.NOTIFIED.value:
        return False
    decision = await read_document(session, row.decision_id, Decision)
    return row.strongest is not None or (decision is not None and bool(decision.notability))
