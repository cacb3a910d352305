"""One incident from alert to end: a policy, a scripted outside, an executor's pulls, and how a test drives them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import scripted_assessing
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from catalog.actions import Action, RestartWorkload, Scale
from catalog.alerts import AlertSeverity
from catalog.cases import Rung
from catalog.diagnoses import Diagnosis, Family, Hypothesis
from catalog.documents import Document, canonical
from catalog.events import Event
from catalog.evidence import Evidence, Oracle
from catalog.ids import new_id
from catalog.orders import ClaimAnswer, ClaimRequest, Order, Signed
from catalog.outcomes import End, Outcome
from catalog.signatures import key_id, sign
from catalog.targets import Target, TargetFacts, TargetKind
from incidents.assessing import AlertAtSource, Readings
from incidents.context import Context
from incidents.desk import Desk
from incidents.exchange import Accepted, accept_outcome, claim_orders
from incidents.leading import Candidate, Term
from incidents.mint import Mint
from incidents.people import Credential
from incidents.reconciling import Reconciler
from incidents.recording import read_events
from incidents.resolving import attach
from incidents.tables import AlertRow, CellRow, DocumentRow, IncidentRow, OrderRow, ProposalRow, StandingRow
from incidents.worker import Assessor, TaskFailed
from ladder.checking import AlertExpression
from ladder.policy import Policy, parse_policy
from ladder.roles import Identity
from sources.errors import SourceUnavailable
from triage.symptoms import AlertSymptom, Symptoms

UID = "uid-eu"
WEB = Target(cluster_uid=UID, cluster="eu-1", namespace="shop", kind=TargetKind.DEPLOYMENT, name="web", uid="uid-web")
POLICY = """
schema: 1
clusters:
  - {name: eu-1, uid: uid-eu, match: {cluster: eu-1}, api: {server: "http://127.0.0.1:1", token_file: /nowhere}}
people: {ana: {}, bo: {}, cy: {}, dee: {slack: T01/U09}}
scopes:
  - name: shop
    match: {cluster: eu-1, namespace: shop}
    channel: {slack: C0123}
    roles: {approver: [person:ana, person:bo], labeller: [person:cy], owner: [person:ana]}
    ceiling: {restart_workload: R5, scale: R5}
    scale: {min: 2, max: 10, step: 4}
    checks:
      - {name: errors, query: 'sum(rate(errors[1m]))', passing: "< 0.01"}
"""
ANA, BO, CY = Identity(person="ana"), Identity(person="bo"), Identity(person="cy")


class Live:
    """The live target as a click reads it: what the test says it is."""

    def __init__(self, facts: TargetFacts) -> None:
        self.now = facts
        self.down = False

    async def facts(self, target: Target) -> TargetFacts:
        if self.down:
            raise SourceUnavailable("kubernetes", "timeout", "as the test wishes")
        return self.now


@dataclass
class Outside:
    """What the scripted worker answers."""

    script: Path
    now: datetime
    action: Action = field(default_factory=RestartWorkload)
    family: Family = Family.WEDGED
    weight: float | None = 0.95
    firing: bool | None = True
    silenced: bool | None = False
    facts: TargetFacts | None = None
    target: Target = WEB
    still_firing: bool | None = False
    changes: dict[str, Any] = field(default_factory=dict)

    def write(self, **changes: Any) -> None:
        """Write the script anew; `changes` replace whole tasks."""
        self.changes |= changes
        tasks = {
            "triage": self._triage(),
            "verify": self._verify(),
            "confirm": {
                "still_firing": self.still_firing,
                "firing": ["f1"] if self.still_firing else [],
                "facts": None if self.facts is None else self.facts.model_dump(mode="json"),
            },
            "census": {"namespaces": ["shop"], "workloads": 40, "nodes_not_ready": 0},
        }
        self.script.write_text(json.dumps(tasks | self.changes))

    def asked(self) -> list[str]:
        """Tasks the worker was given, in order."""
        path = Path(f"{self.script}.asked")
        return [json.loads(line)["task"] for line in path.read_text().splitlines()] if path.exists() else []

    def _triage(self) -> dict[str, Any]:
        alert = AlertSymptom(
            name="PodWedged", fingerprint="f1", status="firing", severity=AlertSeverity.WARNING, starts_at=self.now, labels={}
        )
        symptoms = Symptoms(incident_id="INCIDENT", at=self.now, target=WEB, alerts=(alert,), facts=self.facts)
        best = Hypothesis(
            family=self.family, statement="A worker thread hangs.", confidence=0.8, action=self.action, target=self.target
        )
        diagnosis = Diagnosis(incident_id="INCIDENT", at=self.now, severity=AlertSeverity.WARNING, hypotheses=(best,))
        return {
            "symptoms": symptoms.model_dump(mode="json", by_alias=True),
            "diagnosis": diagnosis.model_dump(mode="json", by_alias=True),
        }

    def _verify(self) -> dict[str, Any]:
        evidence = Evidence(
            incident_id="INCIDENT",
            at=self.now,
            family=self.family,
            evidence_weight=self.weight,
            supporting=3,
            sources=("kubernetes", "prometheus"),
            oldest_at=self.now,
            items=tuple(_item(oracle, self.family, self.now) for oracle in Oracle),
        )
        readings = Readings(
            at_source=(AlertAtSource(fingerprint="f1", firing=self.firing, silenced=self.silenced),),
            expressions=(AlertExpression(alertname="PodWedged", expression="wedged > 0", target=WEB, series=(), opened=True),),
            scrape_interval=5.0,
            evaluation_interval=5.0,
        )
        return {
            "evidence": evidence.model_dump(mode="json", by_alias=True),
            "facts": None if self.facts is None else self.facts.model_dump(mode="json"),
            "readings": readings.model_dump(mode="json", by_alias=True),
        }


def _item(oracle: Oracle, family: Family, now: datetime) -> Any:
    from catalog.evidence import Answer, EvidenceItem

    return EvidenceItem(
        id=oracle.value,
        group=oracle.value,
        family=family,
        question="is it so?",
        seen="yes",
        answer=Answer.SUPPORTS,
        log_likelihood_ratio=1.5,
        source="kubernetes",
        oracle=oracle,
        observed_at=now,
    )


def web_facts(now: datetime, **changes: Any) -> TargetFacts:
    """Deployment shop/web with four ready pods, opted in, nothing in the way."""
    facts = TargetFacts(
        target=WEB,
        exists=True,
        observed_at=now,
        opted_in=True,
        desired=4,
        ready=4,
        available=4,
        updated=4,
        generation=3,
        observed_generation=3,
        paused=False,
        rolling_out=False,
        strategy="RollingUpdate",
        max_unavailable=1,
        max_surge=1,
        template_hash="hash-1",
        empty_dir=False,
        read_write_once=False,
        namespace_ready_pods=20,
        services=("web",),
        restarts=0,
        nodes=("node1", "node2"),
        pods=("web-1", "web-2", "web-3", "web-4"),
    )
    return facts.model_copy(update=changes)


class InProcess:
    """The scripted assessor without a process of its own: documents are written and read as JSON all the same."""

    async def ask(self, task: str, request: Document, *, patience_s: float) -> dict[str, Any]:
        body = json.loads(canonical(request))
        try:
            async with asyncio.timeout(patience_s):
                answer = await scripted_assessing.TASKS[task](scripted_assessing.Bench(), body)
        except ValueError as error:
            raise TaskFailed("ValueError", str(error)) from error
        data: dict[str, Any] = json.loads(canonical(answer))
        return data


class Story:
    """A replica with its worker, its desk and one executor, on a clock that the test moves."""

    def __init__(self, ctx: Context, worker: Assessor, outside: Outside, live: Live) -> None:
        self.ctx = ctx
        self.worker = worker
        self.outside = outside
        self.live = live
        self.order_key = Ed25519PrivateKey.generate()
        self.executor_key = Ed25519PrivateKey.generate()
        self.mint = Mint(self.order_key)
        self.reconciler = Reconciler(ctx, worker, self.mint)
        self.desk = Desk(ctx, live, wake=self.reconciler.wake)
        self.credential = Credential(id="c1", kind="executor", subject="executor-eu", clusters=(UID,))
        self.term: Term | None = None

    @property
    def keys(self) -> dict[str, Ed25519PublicKey]:
        public = self.executor_key.public_key()
        return {key_id(public): public}

    @property
    def now(self) -> datetime:
        return self.ctx.clock.now()

    def pass_time(self, **span: float) -> None:
        """Move the clock; what the outside says is as fresh as before."""
        self.ctx.clock.advance(timedelta(**span).total_seconds())  # type: ignore[attr-defined]
        self.outside.now = self.now
        self.outside.write()

    async def settle(self) -> None:
        """Reconcile until nothing is due."""
        if self.term is None:
            self.term = await Candidate(self.ctx.database, self.ctx.clock, self.ctx.replica).acquire()
        assert self.term is not None
        async with asyncio.timeout(40):
            while await self.reconciler.settle(self.term):
                pass

    async def fires(
        self, name: str = "PodWedged", fingerprint: str = "f1", severity: str = "warning", target: Target = WEB
    ) -> None:
        """An alert arrives and is attached to its target's incident."""
        row = AlertRow(
            cluster_uid=UID,
            fingerprint=fingerprint,
            starts_at=self.now,
            status="firing",
            state="stored",
            name=name,
            severity=severity,
            labels=json.dumps({"alertname": name, "severity": severity, "namespace": target.namespace, "deployment": target.name}),
            received_at=self.now,
            last_seen_at=self.now,
        )
        async with self.ctx.database.transaction() as session:
            session.add(row)
            await session.flush()
            await attach(session, [(row, target)], self.now)

    async def resolves(self, incident_id: str | None = None) -> None:
        """Every alert of the incident resolves now."""
        async with self.ctx.database.transaction() as session:
            for alert in await session.exec(select(AlertRow).where(AlertRow.status == "firing")):
                if incident_id in (None, alert.incident_id):
                    alert.status, alert.resolved_at, alert.last_seen_at = "resolved", self.now, self.now
                    session.add(alert)
            for row in await session.exec(select(IncidentRow).where(IncidentRow.phase != "closed")):
                row.next_at = self.now
                session.add(row)

    async def earned(
        self, rung: Rung = Rung.R5, *, calibrated: bool = True, actions: Sequence[str] = ("restart_workload", "scale")
    ) -> None:
        """The scope has earned a rung for its actions, and their calibration gates are open."""
        scope = self.policy.merged_as("shop")
        assert scope is not None
        async with self.ctx.database.transaction() as session:
            for action in actions:
                session.add(
                    StandingRow(
                        id=new_id(self.now),
                        scope="shop",
                        match_digest=scope.match_digest,
                        action=action,
                        rung=int(rung),
                        by='["ana"]',
                        at=self.now - timedelta(days=1),
                        why="as the test wishes",
                    )
                )
                if calibrated:
                    for family in (Family.WEDGED, Family.CAPACITY):
                        session.add(CellRow(family=family.value, action=action, settled=60, right=60, open=True, open_n=50))

    @property
    def policy(self) -> Policy:
        return self.ctx.policies.current

    def change_policy(self, old: str, new: str) -> None:
        """An edit of autonomy.yaml is in force."""
        assert old in POLICY
        self.ctx.policies.current = parse_policy(POLICY.replace(old, new))

    async def incident(self, number: int = 1) -> IncidentRow:
        async with self.ctx.database.reading() as session:
            return (await session.exec(select(IncidentRow).where(IncidentRow.number == number))).one()

    async def incidents(self) -> list[IncidentRow]:
        async with self.ctx.database.reading() as session:
            return list(await session.exec(select(IncidentRow).order_by(col(IncidentRow.number))))

    async def proposal(self, number: int = 1) -> ProposalRow:
        row = await self.incident(number)
        assert row.proposal_id is not None
        async with self.ctx.database.reading() as session:
            found = await session.get(ProposalRow, row.proposal_id)
        assert found is not None
        return found

    async def stored(self, proposal_id: str) -> ProposalRow:
        async with self.ctx.database.reading() as session:
            found = await session.get(ProposalRow, proposal_id)
        assert found is not None
        return found

    async def orders(self) -> list[OrderRow]:
        async with self.ctx.database.reading() as session:
            return list(await session.exec(select(OrderRow).order_by(col(OrderRow.minted_at), col(OrderRow.id))))

    async def documents(self, kind: str) -> list[DocumentRow]:
        async with self.ctx.database.reading() as session:
            return list(await session.exec(select(DocumentRow).where(DocumentRow.kind == kind).order_by(col(DocumentRow.id))))

    async def events(self, number: int = 1) -> list[Event]:
        row = await self.incident(number)
        async with self.ctx.database.reading() as session:
            return await read_events(session, row.id)

    async def kinds(self, number: int = 1) -> list[str]:
        return [event.kind.value for event in await self.events(number)]

    async def claim(self, *, executor_id: str = "exec-1", journal: str = "journal-1", room: int = 4, **changes: Any) -> ClaimAnswer:
        """The executor pulls."""
        request = ClaimRequest(executor_id=executor_id, cluster_uid=UID, journal_id=journal, active=True, room=room).model_copy(
            update=changes
        )
        return await claim_orders(self.ctx, request, self.credential)

    def outcome(self, order: Order, end: End, **changes: Any) -> Outcome:
        made = Outcome(
            id=new_id(self.now),
            order_id=order.id,
            transaction_id=new_id(self.now),
            executor_id="exec-1",
            cluster_uid=UID,
            target=order.target,
            end=end,
            reason="as the test wishes",
            sentence=f"It ended as {end.value}.",
            severity_before=1.0,
            severity_after=0.0,
            ended_at=self.now,
        )
        return made.model_copy(update=changes)

    def signed(self, outcome: Outcome) -> Signed:
        return sign(self.executor_key, canonical(outcome))

    async def ends(self, order: Order, end: End, **changes: Any) -> Accepted:
        """The executor posts an outcome."""
        return await accept_outcome(self.ctx, self.signed(self.outcome(order, end, **changes)), self.credential, self.keys)

    async def proposed(self) -> ProposalRow:
        """An incident whose restart waits for a click."""
        await self.earned(Rung.R4)
        await self.fires()
        await self.settle()
        return await self.proposal()

    async def executing(self) -> Order:
        """An incident whose automatic order an executor has."""
        await self.earned()
        await self.fires()
        await self.settle()
        answer = await self.claim()
        (signed,) = answer.orders
        return Order.model_validate_json(signed.body)


def scale_up() -> Scale:
    return Scale(from_replicas=4, to_replicas=6)


async def rows(session: AsyncSession, model: Any) -> list[Any]:
    """All rows of a table."""
    return list(await session.exec(select(model)))
