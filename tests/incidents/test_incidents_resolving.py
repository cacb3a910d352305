"""From stored alerts to incidents, against an API server over HTTP, on both databases."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from api_server import APPS, CORE, ApiServer, policy_for, serving
from incidents_setting import (
    MovableClock,
    alert_rows,
    context_on,
    counted,
    envelope,
    incident_rows,
    ingest_token,
    one_alert,
    payload,
)
from sqlalchemy import event, text
from sqlmodel import col, select

from catalog.events import EventKind, verify_chain
from catalog.targets import Target, TargetKind
from incidents.context import Context
from incidents.database import Database
from incidents.ingest import accept
from incidents.leading import Candidate, LeadershipLost, Term
from incidents.recording import read_events
from incidents.resolving import Resolving, attach, next_numbers, open_incident
from incidents.tables import AlertRow, IncidentRow, OutboxRow


class Scene:
    """A leader on one database, with the clusters eu-1 and us-1."""

    def __init__(self, context: Context, token: str, term: Term, eu: ApiServer, us: ApiServer) -> None:
        self.context, self.token, self.term, self.eu, self.us = context, token, term, eu, us
        self.resolving = Resolving(context)

    async def send(self, body: bytes) -> None:
        await accept(self.context, body, self.token)

    async def settle(self) -> int:
        """Work until nothing more can be settled now."""
        done = 0
        while settled := await self.resolving.step(self.term):
            done += settled
        return done

    async def incidents(self) -> Sequence[IncidentRow]:
        return await incident_rows(self.context.database)

    async def alerts(self) -> Sequence[AlertRow]:
        return await alert_rows(self.context.database)

    async def kinds(self, incident: IncidentRow) -> list[EventKind]:
        async with self.context.database.reading() as session:
            events = await read_events(session, incident.id)
        assert verify_chain(events) is None
        assert incident.last_hash == events[-1].hash
        return [one.kind for one in events]

    async def messages(self) -> list[OutboxRow]:
        async with self.context.database.reading() as session:
            return list(await session.exec(select(OutboxRow).order_by(col(OutboxRow.id))))


@pytest.fixture
async def scene(database: Database, clock: MovableClock, tmp_path: Path) -> AsyncIterator[Scene]:
    async with serving(ApiServer("uid-eu")) as eu, serving(ApiServer("uid-us")) as us:
        context = context_on(database, clock, policy_for(tmp_path, ("eu-1", eu), ("us-1", us)))
        token = await ingest_token(context, "uid-eu", "uid-us")
        term = await Candidate(database, clock, "replica-1").acquire()
        assert term is not None
        made = Scene(context, token, term, eu, us)
        yield made
        await made.resolving.close()


async def test_payload_01_opens_one_incident_on_the_top_owner(scene: Scene) -> None:
    scene.eu.workload("shop", "cart", 2)
    scene.eu.add(CORE, "pods", "shop", "cart-7c9d8f6b5-x2k4p", "Pod", owner=("apps/v1", "ReplicaSet", "cart-7c9d8f6b5"))
    await scene.send(payload("01"))
    assert await scene.settle() == 1
    (incident,) = await scene.incidents()
    assert (incident.cluster, incident.namespace, incident.kind, incident.name) == ("eu-1", "shop", "Deployment", "cart")
    assert (incident.number, incident.phase, incident.severity, incident.origin) == (1, "open", "warning", "alert")
    assert json.loads(incident.alert_names) == ["KubePodCrashLooping"]
    assert incident.next_at == scene.context.clock.now()
    (alert,) = await scene.alerts()
    assert (alert.state, alert.incident_id) == ("attached", incident.id)
    assert await scene.kinds(incident) == [EventKind.OPENED, EventKind.ALERT_ATTACHED]


async def test_payload_02_tells_the_incident_and_makes_it_due(scene: Scene, clock: MovableClock) -> None:
    scene.eu.workload("shop", "cart", 1)
    scene.eu.add(CORE, "pods", "shop", "cart-7c9d8f6b5-x2k4p", "Pod", owner=("apps/v1", "ReplicaSet", "cart-7c9d8f6b5"))
    await scene.send(payload("01"))
    await scene.settle()
    clock.advance(3600)
    await scene.send(payload("02"))
    (incident,) = await scene.incidents()
    assert incident.next_at == clock.now()
    assert (await scene.kinds(incident))[-1] is EventKind.ALERT_RESOLVED


async def test_payload_04_and_29_H06_end_unresolved_with_a_sentence(scene: Scene) -> None:
    await scene.send(payload("04"))
    await scene.send(payload("29").replace(b'"namespace"', b'"cluster": "eu-1", "namespace"').replace(b"a1b2", b"b1b2"))
    await scene.settle()
    assert await scene.incidents() == []
    without, hostile = await scene.alerts()
    assert without.state == hostile.state == "unresolved"
    assert "No cluster" in without.reason
    assert "--server=https://203.0.113.9:6443" in hostile.reason
    assert "is not a Kubernetes name" in hostile.reason
    assert sum(scene.eu.asked.values()) == 1, "a hostile name never becomes a request; only the cluster's UID was asked"


async def test_H18_invisible_and_bidi_characters_in_a_name_are_shown_as_code_points(scene: Scene) -> None:
    await scene.send(envelope(one_alert(namespace="kube\u200b-system"), one_alert("f2", deployment="rev\u202e5 ot odnu")))
    await scene.settle()
    reasons = [row.reason for row in await scene.alerts()]
    assert "\\u200b" in reasons[0]
    assert "\\u202e" in reasons[1]
    assert all(reason.isascii() for reason in reasons)


async def test_a_missing_namespace_is_never_searched_for(scene: Scene) -> None:
    scene.eu.workload("shop", "api", 1)
    await scene.send(envelope(one_alert(namespace="", deployment="", pod="api-7c9d8f6b5-x0000")))
    await scene.settle()
    (row,) = await scene.alerts()
    assert row.state == "unresolved"
    assert "no namespace" in row.reason
    assert sum(scene.eu.asked.values()) == 1


async def test_an_unresolved_critical_alert_is_told_once_in_the_default_channel(scene: Scene) -> None:
    alerts = [one_alert(f"f{n}", severity="critical", deployment=f"gone-{n}") for n in range(30)]
    await scene.send(envelope(*alerts, one_alert("w", severity="warning", deployment="gone")))
    await scene.settle()
    await scene.send(envelope(one_alert("again", severity="critical", deployment="gone-again")))
    await scene.settle()
    assert {row.state for row in await scene.alerts()} == {"unresolved"}
    (message,) = await scene.messages()
    assert (message.surface, message.channel, message.kind) == ("slack", "C0000", "unresolved")
    assert json.loads(message.body)["count"] == 30


async def test_payload_27_is_split_per_cluster_namespace_and_workload(scene: Scene) -> None:
    for namespace, name in (("shop", "cart"), ("pay", "ledger"), ("kube-system", "coredns")):
        scene.eu.workload(namespace, name, 1)
    scene.us.workload("shop", "cart", 1)
    await scene.send(payload("27"))
    await scene.settle()
    found = {(row.cluster, row.namespace, row.name) for row in await scene.incidents()}
    system = ("eu-1", "kube-system", "coredns")
    assert found == {
        system,
        ("eu-1", "shop", "cart"),
        ("us-1", "shop", "cart"),
        ("eu-1", "pay", "ledger"),
        ("eu-1", "kube-system", "coredns"),
    }
    assert sorted(row.number for row in await scene.incidents()) == [1, 2, 3, 4]


async def test_F17_K23_five_pods_of_one_owner_are_one_incident(scene: Scene) -> None:
    pods = scene.eu.workload("shop", "api-gateway", 5)
    alerts = [one_alert(f"f{n}", deployment="", pod=pod) for n, pod in enumerate(pods)]
    await scene.send(envelope(*alerts))
    await scene.settle()
    for _ in range(3):
        await scene.send(envelope(*alerts))
    await scene.settle()
    (incident,) = await scene.incidents()
    kinds = await scene.kinds(incident)
    assert kinds == [EventKind.OPENED] + [EventKind.ALERT_ATTACHED] * 5, "resends add nothing to the record"
    assert [row.resends for row in await scene.alerts()] == [3] * 5


async def test_a_second_family_attaches_to_the_open_incident_and_raises_severity(scene: Scene, clock: MovableClock) -> None:
    scene.eu.workload("shop", "cart", 1)
    await scene.send(envelope(one_alert()))
    await scene.settle()
    clock.advance(60)
    await scene.send(envelope(one_alert("f2", alertname="HighErrors", severity="critical")))
    await scene.settle()
    (incident,) = await scene.incidents()
    assert json.loads(incident.alert_names) == ["HighErrors", "KubePodCrashLooping"]
    assert incident.severity == "critical"
    assert incident.next_at == clock.now()


async def test_F22_a_later_start_ends_the_older_one_and_joins_the_open_incident(scene: Scene) -> None:
    scene.eu.workload("shop", "cart", 1)
    await scene.send(envelope(one_alert()))
    await scene.settle()
    await scene.send(envelope(one_alert(starts_at="2026-03-04T10:04:00Z")))
    await scene.settle()
    (incident,) = await scene.incidents()
    older, newer = await scene.alerts()
    assert (older.status, newer.status) == ("resolved", "firing")
    assert older.resolved_at == newer.starts_at
    assert (await scene.kinds(incident))[2:] == [EventKind.ALERT_ATTACHED, EventKind.ALERT_RESOLVED]


async def test_F20_a_resolve_in_a_reload_gap_closes_nothing_and_is_contradicted(scene: Scene, clock: MovableClock) -> None:
    scene.eu.workload("shop", "cart", 1)
    await scene.send(envelope(one_alert()))
    await scene.settle()
    await scene.send(envelope(one_alert(status="resolved")))
    clock.advance(2)
    await scene.send(envelope(one_alert()))
    await scene.settle()
    (incident,) = await scene.incidents()
    (row,) = await scene.alerts()
    assert incident.phase == "open"
    assert (row.status, row.contradicted_at, row.incident_id) == ("resolved", clock.now(), incident.id)


async def test_after_an_incident_closed_only_a_later_start_opens_another(scene: Scene) -> None:
    scene.eu.workload("shop", "cart", 1)
    await scene.send(envelope(one_alert()))
    await scene.settle()
    async with scene.context.database.transaction() as session:
        row = (await session.exec(select(IncidentRow))).one()
        row.phase, row.closed_at, row.close_reason = "closed", scene.context.clock.now(), "self_resolved"
        session.add(row)
    await scene.send(envelope(one_alert()))
    assert await scene.settle() == 0
    await scene.send(envelope(one_alert(starts_at="2026-03-04T10:04:00Z")))
    await scene.settle()
    first, second = await scene.incidents()
    assert (first.phase, second.phase, second.number) == ("closed", "open", 2)
    assert [row.incident_id for row in await scene.alerts()] == [first.id, second.id]
    assert (await scene.alerts())[0].status == "resolved"


async def test_an_alert_that_ended_before_it_was_looked_at_still_becomes_an_incident(scene: Scene) -> None:
    scene.eu.workload("shop", "cart", 1)
    await scene.send(envelope(one_alert()))
    await scene.send(envelope(one_alert(status="resolved")))
    await scene.settle()
    (incident,) = await scene.incidents()
    assert await scene.kinds(incident) == [EventKind.OPENED, EventKind.ALERT_ATTACHED, EventKind.ALERT_RESOLVED]


async def test_G38_a_namespace_that_did_not_opt_in_gets_its_incident_all_the_same(scene: Scene) -> None:
    scene.eu.workload("unlabelled", "cart", 1)
    await scene.send(envelope(one_alert(namespace="unlabelled")))
    await scene.settle()
    (incident,) = await scene.incidents()
    assert incident.namespace == "unlabelled"


async def test_an_unreachable_cluster_keeps_its_alerts_and_delays_no_other(scene: Scene, clock: MovableClock) -> None:
    scene.eu.workload("shop", "cart", 1)
    scene.us.workload("shop", "cart", 1)
    scene.eu.down = True
    await scene.send(envelope(one_alert(), one_alert("f2", cluster="us-1")))
    await scene.settle()
    waiting, attached = await scene.alerts()
    assert (waiting.state, attached.state) == ("stored", "attached")
    assert waiting.reason.startswith("waiting: kubernetes answered with an error")
    assert counted("sre_ladder_cluster_unreadable", cluster="eu-1") == 1
    asked = sum(scene.eu.asked.values())
    await scene.settle()
    assert sum(scene.eu.asked.values()) == asked, "it is left alone while it rests"
    scene.eu.down = False
    clock.advance(2)
    assert await scene.settle() == 1
    assert [row.state for row in await scene.alerts()] == ["attached", "attached"]
    assert (await scene.alerts())[0].reason == ""
    assert counted("sre_ladder_cluster_unreadable", cluster="eu-1") == 0


async def test_an_api_of_another_cluster_is_not_believed(scene: Scene) -> None:
    scene.eu.workload("shop", "cart", 1)
    scene.eu.uid = "uid-somebody-else"
    await scene.send(envelope(one_alert()))
    assert await scene.settle() == 0
    (row,) = await scene.alerts()
    assert row.state == "stored"
    assert "uid-somebody-else" in row.reason


async def test_a_storm_of_one_body_costs_few_statements_and_few_lookups(scene: Scene) -> None:
    """600 alerts of 600 pods in 25 workloads: the pods of a namespace are listed once, not asked for one by one."""
    alerts = []
    for n in range(25):
        for m, pod in enumerate(scene.eu.workload(f"team-{n}", f"svc-{n}", 24)):
            alerts.append(one_alert(f"{n}-{m}", namespace=f"team-{n}", deployment="", pod=pod))
    await scene.send(envelope(*alerts))
    statements = 0

    def count(*_: Any) -> None:
        nonlocal statements
        statements += 1

    event.listen(scene.context.database.engine.sync_engine, "before_cursor_execute", count)
    assert await scene.settle() == 600
    assert len(await scene.incidents()) == 25
    assert sum(scene.eu.asked.values()) < 25 * 8
    assert statements < 150
    for incident in await scene.incidents():
        assert len(await scene.kinds(incident)) == 25


async def test_a_pod_newer_than_the_list_is_asked_for_by_itself(scene: Scene) -> None:
    pods = scene.eu.workload("shop", "api", 5)
    await scene.send(envelope(*(one_alert(f"f{n}", deployment="", pod=pod) for n, pod in enumerate(pods))))
    await scene.settle()
    scene.eu.add(CORE, "pods", "shop", "api-7c9d8f6b5-newer", "Pod", owner=("apps/v1", "ReplicaSet", "api-7c9d8f6b5"))
    await scene.send(envelope(one_alert("newer", deployment="", pod="api-7c9d8f6b5-newer")))
    await scene.settle()
    assert len(await scene.incidents()) == 1
    assert {row.state for row in await scene.alerts()} == {"attached"}
    assert scene.eu.asked[f"{APPS}/namespaces/shop/deployments/api"] == 1


async def test_an_ex_leader_attaches_nothing(scene: Scene, clock: MovableClock) -> None:
    scene.eu.workload("shop", "cart", 1)
    await scene.send(envelope(one_alert()))
    other = Candidate(scene.context.database, clock, "replica-2")
    assert await other.acquire() is None
    clock.advance(16)
    assert await other.acquire() is not None
    with pytest.raises(LeadershipLost):
        await scene.resolving.step(scene.term)
    assert [row.state for row in await scene.alerts()] == ["stored"]
    assert await scene.incidents() == []


async def test_an_incident_opened_meanwhile_is_met_by_looking_again(postgres_url: str, clock: MovableClock, tmp_path: Path) -> None:
    """The unique index decides; the batch is done again and joins the incident that won."""
    database = Database.open(postgres_url)
    target = Target(cluster_uid="uid-eu", cluster="eu-1", namespace="shop", kind=TargetKind.DEPLOYMENT, name="cart")
    async with serving(ApiServer("uid-eu")) as eu:
        eu.workload("shop", "cart", 1)
        context = context_on(database, clock, policy_for(tmp_path, ("eu-1", eu)))
        await accept(context, envelope(one_alert()), await ingest_token(context, "uid-eu"))
        term = await Candidate(database, clock, "replica-1").acquire()
        assert term is not None
        resolving = Resolving(context)
        async with database.transaction() as session:
            opened = open_incident(session, target, number=7, origin="follow_up", now=clock.now())
            await session.flush()
            step = asyncio.create_task(resolving.step(term))
            await until_waiting(database)
        assert await step == 0
        assert await resolving.step(term) == 1
        await resolving.close()
    (row,) = await alert_rows(database)
    assert row.incident_id == opened.id
    await database.close()


async def until_waiting(database: Database) -> None:
    """Until another transaction waits for what this one holds."""
    async with asyncio.timeout(10):
        while True:
            async with database.reading() as session:
                waiting = await (await session.connection()).execute(text("SELECT count(*) FROM pg_locks WHERE NOT granted"))
            if waiting.scalar_one():
                return
            await asyncio.sleep(0.01)


async def test_numbers_are_given_once_under_contention(database: Database) -> None:
    async def reserve() -> int:
        async with database.transaction() as session:
            return await next_numbers(session, 3)

    lasts = await asyncio.gather(*(reserve() for _ in range(12)))
    assert sorted(lasts) == [3 * n for n in range(1, 13)]


async def test_attaching_nothing_is_nothing(database: Database, clock: MovableClock) -> None:
    async with database.transaction() as session:
        await attach(session, [], clock.now())
    assert await incident_rows(database) == []


async def test_the_task_works_by_itself_and_survives_a_policy_change(scene: Scene, tmp_path: Path) -> None:
    scene.eu.workload("shop", "cart", 1)
    task = asyncio.create_task(scene.resolving.run(scene.term))
    await scene.send(envelope(one_alert()))
    async with asyncio.timeout(10):
        while not await scene.incidents():  # noqa: ASYNC110 - the condition is in the database
            await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
