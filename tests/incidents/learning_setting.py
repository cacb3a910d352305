"""Incidents as the phases leave them, and people who label them through the one function that every surface uses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from sqlmodel import select
from sqlmodel.ext.asyncio.session import AsyncSession

from catalog.actions import RemediationAction
from catalog.cases import Calibration
from catalog.diagnoses import Family
from catalog.episodes import Question
from catalog.events import EventKind
from catalog.ids import new_id
from incidents.calibrating import calibration_of
from incidents.database import Database
from incidents.episodes import close_episode
from incidents.labels import LabelRecorded, LabelRequest, record_label
from incidents.recording import append_event
from incidents.tables import ApprovalRow, CellRow, EpisodeRow, IncidentRow, LookRow, OrderRow, OutcomeRow, ProposalRow
from ladder.policy import Policy, parse_policy
from ladder.roles import Identity

START = datetime(2026, 3, 4, 10, 0, tzinfo=UTC)
POLICY = """
schema: 1
clusters: [{name: eu-1, uid: uid-eu-1, match: {cluster: eu-1}}]
people: {ana: {}, bo: {}, cy: {}, dora: {}}
scopes:
  - name: shop
    match: {cluster: eu-1, namespace: shop}
    roles:
      approver: [person:ana, person:cy]
      labeller: [person:ana, person:bo, person:cy, slack-group:S0LABEL]
      owner: [person:ana, person:bo]
    ceiling: {restart_workload: R5, scale: R4}
    checks: [{name: errors, query: errors, passing: "< 0.01"}]
"""
RESTART = RemediationAction.RESTART_WORKLOAD
WEDGED = Family.WEDGED


@dataclass
class Setting:
    """One installation: its database, its policy, and a clock that a test moves."""

    database: Database
    policy: Policy = field(default_factory=lambda: parse_policy(POLICY))
    now: datetime = START
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def tick(self, seconds: float = 1.0) -> datetime:
        self.now += timedelta(seconds=seconds)
        return self.now

    @property
    def match_digest(self) -> str:
        scope = self.policy.scope_named("shop")
        assert scope is not None
        return scope.match.digest

    async def incident(self, inside: AsyncSession | None = None, **changes: Any) -> str:
        """An incident that went through its phases and is over, with its episode. `end` adds an order, `approvers` a proposal."""
        now, number = self.tick(), next(self._numbers)
        end, approvers = changes.pop("end", "committed"), changes.pop("approvers", ())
        closed, proposed = changes.pop("closed", True), changes.pop("proposed", True)
        row = IncidentRow(
            **{
                "id": new_id(now),
                "number": number,
                "cluster_uid": "uid-eu-1",
                "cluster": "eu-1",
                "namespace": "shop",
                "kind": "Deployment",
                "name": f"workload-{number}",
                "phase": "closed" if closed else "notified",
                "opened_at": now,
                "updated_at": now,
                "closed_at": now if closed else None,
                "close_reason": "held" if closed else None,
                "scope": "shop",
                "family": WEDGED.value,
                "action": RESTART.value,
                "route": "propose",
                **changes,
            }
        )
        async with self._inside(inside) as session:
            session.add(row)
            append_event(session, row, EventKind.OPENED, at=now, now=now, actor="bot", payload={})
            if proposed:
                await self._proposal(session, row, approvers)
            if end is not None:
                self._order(session, row, end)
            await session.flush()
            if closed:
                await close_episode(session, self.policy, row, now)
        return row.id

    @asynccontextmanager
    async def _inside(self, session: AsyncSession | None) -> AsyncIterator[AsyncSession]:
        """A transaction of its own, or the one that is running."""
        if session is not None:
            yield session
            return
        async with self.database.transaction() as own:
            yield own

    async def _proposal(self, session: AsyncSession, row: IncidentRow, approvers: tuple[str, ...]) -> None:
        proposal = ProposalRow(
            id=new_id(self.now),
            incident_id=row.id,
            decision_id="d",
            scope="shop",
            action="{}",
            target_uid="u",
            fingerprint="f",
            created_at=self.now,
            expires_at=self.now,
        )
        session.add(proposal)
        append_event(session, row, EventKind.PROPOSED, at=self.now, now=self.now, actor="bot", payload={"proposal_id": proposal.id})
        for person in approvers:
            session.add(ApprovalRow(proposal_id=proposal.id, person=person, via="web", at=self.now))

    def _order(self, session: AsyncSession, row: IncidentRow, end: str) -> None:
        order_id = new_id(self.now)
        session.add(
            OrderRow(
                id=order_id,
                incident_id=row.id,
                decision_id="d",
                cluster_uid=row.cluster_uid,
                namespace=row.namespace,
                kind=row.kind,
                name=row.name,
                scope="shop",
                match_digest=self.match_digest,
                family=row.family or "",
                action=row.action or "",
                mode="approved",
                state="ended",
                key_id="k",
                signature="s",
                minted_at=self.now,
                expires_at=self.now,
                ended_at=self.now,
                end=end,
            )
        )
        session.add(
            OutcomeRow(order_id=order_id, incident_id=row.id, end=end, key_id="k", signature="s", at=self.now, received_at=self.now)
        )

    async def label(
        self, incident_id: str, right: bool, person: str = "bo", inside: AsyncSession | None = None, **changes: Any
    ) -> LabelRecorded:
        question = changes.pop("question", Question.ACTION)
        groups = changes.pop("groups", frozenset())
        request = LabelRequest(
            incident_id=incident_id, question=question, right=right, identity=Identity(person=person, groups=groups), **changes
        )
        async with self._inside(inside) as session:
            return await record_label(session, self.policy, request, now=self.tick())

    async def live(self, total: int, *, wrong: int = 0, persons: tuple[str, ...] = ("bo", "cy"), **changes: Any) -> list[str]:
        """So many incidents, each labelled once, by the persons in turn, the wrong ones first."""
        ids = []
        async with self.database.transaction() as session:
            for n in range(total):
                ids.append(await self.incident(session, **changes))
                await self.label(ids[-1], n >= wrong, persons[n % len(persons)], session)
        return ids

    async def open_gate(self, labelled: int = 5) -> None:
        """The cell as a passed look at 50 leaves it, and some labelled episodes of the scope on top."""
        async with self.database.transaction() as session:
            session.add(
                CellRow(
                    family=WEDGED.value,
                    action=RESTART.value,
                    settled=50,
                    right=50,
                    proposals=50,
                    proposals_settled=50,
                    open=True,
                    open_n=50,
                    last_look=50,
                )
            )
        await self.live(labelled)

    async def cell(self, family: Family = WEDGED, action: RemediationAction = RESTART) -> Calibration:
        async with self.database.reading() as session:
            return await calibration_of(session, self.policy, family, action)

    async def looked(self) -> list[LookRow]:
        async with self.database.reading() as session:
            return list((await session.exec(select(LookRow).order_by(LookRow.id))).all())

    async def episode(self, incident_id: str) -> EpisodeRow:
        async with self.database.reading() as session:
            row = await session.get(EpisodeRow, incident_id)
            assert row is not None
            return row
