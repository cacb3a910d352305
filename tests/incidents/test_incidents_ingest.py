"""Webhooks: what every payload becomes, and that an acknowledgement means stored, on both databases."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import psycopg
import pytest
from incidents_setting import (
    MovableClock,
    Send,
    alert_rows,
    context_on,
    counted,
    envelope,
    held_alerts,
    ingest_token,
    one_alert,
    payload,
    until,
)
from sqlalchemy import event, text

from catalog.alerts import AlertState
from incidents.committing import Overloaded
from incidents.context import Context
from incidents.database import Database, StoreUnavailable
from incidents.dialects import BODY_LIMIT, BodyMalformed, BodyTooLarge, EnvelopeForeign, WebhookRefused
from incidents.ingest import ANNOTATIONS_LIMIT, TEXT_LIMIT, Receipt, accept
from incidents.people import TokenRefused, issue_token, revoke_token

# What each sample payload becomes when it is the first thing that ever arrives.
ACCEPTED = {
    "01": Receipt(alerts=1, stored=1),
    "02": Receipt(alerts=1, dropped=1),
    "03": Receipt(alerts=4, stored=2, dropped=2),
    "04": Receipt(alerts=1, stored=1),
    "06": Receipt(alerts=600, stored=600),
    "07": Receipt(alerts=1, stored=1),
    "10a": Receipt(alerts=1, stored=1),
    "10b": Receipt(alerts=1, stored=1),
    "12": Receipt(alerts=1, stored=1),
    "14": Receipt(alerts=1, dropped=1),
    "15": Receipt(alerts=1, dropped=1),
    "23": Receipt(alerts=1, stored=1),
    "26": Receipt(alerts=0),
    "27": Receipt(alerts=4, stored=4),
    "29": Receipt(alerts=1, stored=1),
    "30": Receipt(alerts=1, stored=1),
}


@pytest.mark.parametrize("number", ACCEPTED)
async def test_payload_is_stored(number: str, send: Send, database: Database) -> None:
    receipt = await send(payload(number))
    assert receipt == ACCEPTED[number]
    rows = await alert_rows(database)
    assert len(rows) == receipt.alerts
    assert sum(row.state == AlertState.STORED.value for row in rows) == receipt.stored


FOREIGN = {
    "16": ("grafana", "Grafana"),
    "17": ("grafana", "Grafana"),
    "19": ("pagerduty", "PagerDuty"),
    "20": ("opsgenie", "Opsgenie"),
    "21": ("cloudevents", "CloudEvents"),
    "25": ("unknown", "custom payload template"),
}


@pytest.mark.parametrize("number", FOREIGN)
async def test_payload_of_another_product_is_refused_by_name(number: str, send: Send, database: Database) -> None:
    vendor, word = FOREIGN[number]
    before = counted("sre_ladder_webhooks_foreign_total", vendor=vendor)
    with pytest.raises(EnvelopeForeign, match=word) as caught:
        await send(payload(number))
    assert caught.value.status == 422
    assert counted("sre_ladder_webhooks_foreign_total", vendor=vendor) == before + 1
    assert await alert_rows(database) == []


async def test_payload_04_without_cluster_label_belongs_to_no_cluster(send: Send, database: Database) -> None:
    await send(payload("04"))
    (row,) = await alert_rows(database)
    assert row.cluster_uid == ""


async def test_payload_07_keeps_unicode_names_and_text(send: Send, database: Database) -> None:
    await send(payload("07"))
    (row,) = await alert_rows(database)
    assert row.name == "Заказы зависли 🔥"
    assert json.loads(row.labels)["teamé🙂"] == "オンコール"


async def test_payload_08_invalid_utf8_is_400_with_the_byte_and_poisons_nothing(send: Send, database: Database) -> None:
    before = counted("sre_ladder_webhooks_total", result="malformed")
    with pytest.raises(BodyMalformed, match=r"not UTF-8: byte 0xff at position \d+") as caught:
        await send(payload("08"))
    assert caught.value.status == 400
    assert counted("sre_ladder_webhooks_total", result="malformed") == before + 1
    assert (await send(payload("01"))).stored == 1


@pytest.mark.parametrize(
    "body", [b"", b"{", b"null", b"[]", b'"x"', b'{"alerts": 1}', b"[" * 100_000, b'{"a": NaN}', b'{"alerts": [{}]}']
)
async def test_malformed_bodies_are_refused_with_a_sentence(body: bytes, send: Send) -> None:
    with pytest.raises(WebhookRefused) as caught:
        await send(body)
    assert 400 <= caught.value.status < 500
    assert len(str(caught.value)) > 10


async def test_an_alert_without_start_is_refused_because_it_has_no_identity(send: Send) -> None:
    with pytest.raises(EnvelopeForeign, match="startsAt"):
        await send(envelope(one_alert(starts_at="0001-01-01T00:00:00Z")))


async def test_oversized_body_is_413(send: Send) -> None:
    with pytest.raises(BodyTooLarge, match="16 MiB") as caught:
        await send(b" " * (BODY_LIMIT + 1))
    assert caught.value.status == 413


async def test_payload_12_resend_changes_only_counter_and_last_seen(send: Send, database: Database, clock: MovableClock) -> None:
    await send(payload("01"))
    clock.advance(300)
    assert await send(payload("12")) == Receipt(alerts=1, resent=1)
    (row,) = await alert_rows(database)
    assert (row.resends, row.last_seen_at, row.status) == (1, clock.now(), "firing")
    assert row.received_at < row.last_seen_at


async def test_payload_14_watchdog_is_a_heartbeat_record(send: Send, database: Database, clock: MovableClock) -> None:
    await send(payload("14"))
    clock.advance(60)
    await send(payload("14"))
    (row,) = await alert_rows(database)
    assert (row.state, row.reason, row.last_seen_at) == ("dropped", "a heartbeat", clock.now())


async def test_payload_15_infoinhibitor_is_dropped_with_its_reason(send: Send, database: Database) -> None:
    await send(payload("15"))
    (row,) = await alert_rows(database)
    assert row.state == "dropped"
    assert "inhibits" in row.reason


async def test_own_pages_never_come_back_as_alerts(send: Send, database: Database) -> None:
    assert (await send(envelope(one_alert(alertname="SreLadderUndoIncomplete", severity="critical")))).dropped == 1
    (row,) = await alert_rows(database)
    assert row.reason == "one of our own pages"


async def test_payload_23_gets_a_fingerprint_of_its_own_and_empty_is_missing(send: Send, database: Database) -> None:
    await send(payload("23"))
    assert (await send(payload("23"))).resent == 1
    (row,) = await alert_rows(database)
    assert len(row.fingerprint) == 16
    assert json.loads(row.labels) == {"severity": "page"}
    assert row.severity == "warning"


async def test_payload_27_is_split_by_cluster(send: Send, database: Database) -> None:
    await send(payload("27"))
    assert [row.cluster_uid for row in await alert_rows(database)] == ["uid-eu", "uid-us", "uid-eu", "uid-eu"]


async def test_payload_30_annotation_is_cut_to_8_kb_and_says_so(send: Send, database: Database) -> None:
    await send(payload("30"))
    (row,) = await alert_rows(database)
    kept = json.loads(row.annotations)["description"]
    assert len(kept.encode()) <= TEXT_LIMIT
    assert "cut: 200" in kept


async def test_G41_hostile_text_is_kept_as_data_and_bounded(send: Send, database: Database) -> None:
    hostile = "<!channel> @everyone \x1b[2J `rm -rf` \u202e\x00"
    alert = one_alert(severity="critical <!channel>", alertname=hostile)
    alert["annotations"] = {"summary": "é" * 50_000, **{f"a{n}": "x" * 9_000 for n in range(20)}}
    await send(envelope(alert))
    (row,) = await alert_rows(database)
    assert row.severity == "warning"
    assert row.name == hostile.replace("\x00", "\ufffd")
    kept = json.loads(row.annotations)
    assert all(len(value.encode()) <= TEXT_LIMIT for value in kept.values())
    assert len(row.annotations.encode()) <= ANNOTATIONS_LIMIT + 1_024


async def test_H12_secrets_leave_annotations_labels_and_urls_before_the_store(send: Send, database: Database) -> None:
    secret = "ghp_" + "A1b2C3d4E5" * 3 + "F6g7H8"
    alert = one_alert(note=f"token={secret}")
    alert["annotations"] = {"description": f"curl -H 'Authorization: Bearer {secret}'"}
    alert["generatorURL"] = f"http://user:pass@prom.example/graph?g0.expr=up&token={secret}"
    await send(envelope(alert))
    (row,) = await alert_rows(database)
    stored = row.labels + row.annotations + row.generator_url
    assert secret not in stored
    assert "pass@" not in stored
    assert json.loads(row.labels)["deployment"] == "cart"


async def test_H09_a_secret_in_one_of_many_like_texts_is_found(send: Send, database: Database) -> None:
    """Texts of one rule are judged together; the one that differs is still looked at."""
    alerts = []
    for n, word in enumerate(("hunter2", "Tr0ub4dor", "hunter2")):
        alert = one_alert(f"f{n}", pod=f"cart-{n}-abcde")
        alert["annotations"] = {"description": f"Pod cart-{n}-abcde of cart logs password={word}", "summary": f"cart-{n}-abcde"}
        alerts.append(alert)
    plain = one_alert("f3", pod="cart-3-abcde")
    plain["annotations"] = {"description": "Pod cart-3-abcde of cart logs much"}
    await send(envelope(*alerts, plain))
    texts = [json.loads(row.annotations)["description"] for row in await alert_rows(database)]
    assert all("password=[redacted:" in text for text in texts[:3])
    assert [text.startswith(f"Pod cart-{n}-abcde") for n, text in enumerate(texts)] == [True] * 4
    assert texts[3] == "Pod cart-3-abcde of cart logs much"


async def test_G01_F13_duplicates_of_peers_are_one_row(send: Send, database: Database) -> None:
    await send(payload("01"))
    await send(payload("01"))
    await send(payload("10b"))
    (row,) = await alert_rows(database)
    assert row.resends == 2


async def test_G01_F14_late_firing_copy_after_resolved_reopens_nothing(send: Send, database: Database, clock: MovableClock) -> None:
    clock.advance(3600)
    await send(payload("01"))
    assert (await send(payload("02"))).resolved == 1
    assert (await send(payload("10b"))).late == 1
    assert (await send(payload("02"))).resent == 1
    (row,) = await alert_rows(database)
    assert row.status == "resolved"
    assert row.resolved_at is not None
    assert row.resolved_at.isoformat() == "2026-03-04T10:21:30.500000+00:00"
    assert row.contradicted_at == clock.now()


async def test_F14_a_firing_copy_after_a_resolve_that_overtook_it_opens_nothing(send: Send, database: Database) -> None:
    await send(payload("02"))
    assert (await send(payload("01"))).late == 1
    (row,) = await alert_rows(database)
    assert (row.state, row.status) == ("dropped", "resolved")


async def test_F22_a_later_start_is_a_new_alert(send: Send, database: Database) -> None:
    await send(envelope(one_alert()))
    assert (await send(envelope(one_alert(starts_at="2026-03-04T10:04:30Z")))).stored == 1
    assert len(await alert_rows(database)) == 2


async def test_one_body_may_hold_both_states_of_one_alert(send: Send, database: Database) -> None:
    receipt = await send(envelope(one_alert(), one_alert(), one_alert(status="resolved"), one_alert()))
    assert receipt == Receipt(alerts=4, stored=1, resent=1, resolved=1, late=1)
    (row,) = await alert_rows(database)
    assert (row.state, row.status, row.resends) == ("stored", "resolved", 1)


async def test_G40_a_start_in_the_future_is_clamped_and_counted(send: Send, database: Database, clock: MovableClock) -> None:
    before = counted("sre_ladder_alerts_clamped_total")
    body = envelope(one_alert(starts_at="2026-03-04T12:00:00Z"))
    await send(body)
    clock.advance(600)
    assert (await send(body)).resent == 1, "a resend finds its first copy though its start was clamped"
    (row,) = await alert_rows(database)
    assert row.began_at == row.received_at < row.starts_at
    assert counted("sre_ladder_alerts_clamped_total") == before + 1


async def test_G40_older_than_two_days_is_refused_as_stale_and_counted(send: Send, database: Database) -> None:
    before = counted("sre_ladder_alerts_total", effect="stale")
    assert (await send(envelope(one_alert(starts_at="2026-03-02T10:00:00Z")))).stale == 1
    (row,) = await alert_rows(database)
    assert row.state == "dropped"
    assert "2026-03-02 10:00 UTC" in row.reason
    assert counted("sre_ladder_alerts_total", effect="stale") == before + 1


async def test_G40_an_alert_that_is_known_grows_old_without_being_refused(send: Send, clock: MovableClock) -> None:
    await send(envelope(one_alert()))
    clock.advance(3 * 86400)
    assert (await send(envelope(one_alert()))).resent == 1


async def test_H22_without_a_valid_token_nothing_is_stored(replica: Context, database: Database, clock: MovableClock) -> None:
    now = clock.now()
    async with database.transaction() as session:
        executor, _ = await issue_token(session, "executor", "x", now=now, clusters=["uid-eu"])
        taken_back, credential = await issue_token(session, "ingest", "am", now=now, clusters=["uid-eu"])
    assert (await accept(replica, payload("26"), taken_back)).alerts == 0
    async with database.transaction() as session:
        await revoke_token(session, credential.id, now=now)
    clock.advance(6)
    before = counted("sre_ladder_webhooks_total", result="unauthorized")
    for token in (None, "", "srl_i_wrong", executor, taken_back):
        with pytest.raises(TokenRefused):
            await accept(replica, payload("01"), token)
    assert await alert_rows(database) == []
    assert counted("sre_ladder_webhooks_total", result="unauthorized") == before + 5


async def test_H22_a_token_speaks_only_for_its_clusters(replica: Context, database: Database) -> None:
    await accept(replica, payload("27"), await ingest_token(replica, "uid-us"))
    assert [row.cluster_uid for row in await alert_rows(database)] == ["", "uid-us", "", ""]


OPEN_MATCH = """
schema: 1
clusters:
  - {name: only, uid: uid-only, match: {}, api: {server: "http://127.0.0.1:1", token_file: /nowhere}}
"""


async def test_match_nothing_names_the_cluster_only_for_a_token_bound_to_it_alone(database: Database, clock: MovableClock) -> None:
    context = context_on(database, clock, OPEN_MATCH)
    await accept(context, envelope(one_alert("a", cluster="")), await ingest_token(context, "uid-only"))
    await accept(context, envelope(one_alert("b", cluster="")), await ingest_token(context, "uid-only", "uid-other"))
    assert [row.cluster_uid for row in await alert_rows(database)] == ["uid-only", ""]


async def test_G02_two_replicas_take_the_same_alert_at_once_and_keep_one(database_url: str, clock: MovableClock) -> None:
    databases = [Database.open(database_url) for _ in range(2)]
    replicas = [context_on(database, clock, replica=f"replica-{n}") for n, database in enumerate(databases)]
    token = await ingest_token(replicas[0], "uid-eu")
    bodies = [envelope(*(one_alert(f"f{n}") for n in range(start, start + 40))) for start in range(0, 100, 20)]
    receipts = await asyncio.gather(*(accept(replica, body, token) for body in bodies for replica in replicas))
    rows = await alert_rows(databases[0])
    assert len(rows) == len({row.fingerprint for row in rows}) == 120
    assert sum(receipt.stored for receipt in receipts) == 120
    assert sum(row.resends for row in rows) == sum(receipt.resent for receipt in receipts) == 400 - 120
    for database in databases:
        await database.close()


async def test_webhooks_that_come_together_are_committed_together(send: Send, database: Database) -> None:
    commits = 0

    def count(_: Any) -> None:
        nonlocal commits
        commits += 1

    event.listen(database.engine.sync_engine, "commit", count)
    receipts = await asyncio.gather(*(send(envelope(one_alert(f"f{n}"))) for n in range(200)))
    assert sum(receipt.stored for receipt in receipts) == 200
    assert commits < 20


async def test_F25_ten_thousand_alerts_in_one_body_with_bounded_memory(send: Send, database: Database) -> None:
    alerts = []
    for n in range(10_000):
        alert = one_alert(f"f{n}", pod=f"svc-{n % 97}-66f8d-{n:05}")
        alert["annotations"] = {"summary": "Pod is crash looping. " + "detail " * 60}
        alerts.append(alert)
    body = envelope(*alerts)
    del alerts
    tracemalloc.start()
    receipt = await send(body)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert receipt.stored == 10_000
    assert peak < 150 * 1024 * 1024
    async with database.reading() as session:
        assert (await (await session.connection()).execute(text("SELECT count(*) FROM alert"))).scalar() == 10_000


async def test_overload_is_refused_for_later_and_what_waited_is_stored(send: Send, database: Database) -> None:
    """One sender may not fill the queue: while the store is busy, what is over its half is told to come again."""
    bodies = [envelope(*(one_alert(f"{start}-{n}") for n in range(10_000))) for start in range(2)]
    async with held_alerts(database):
        waiting = [asyncio.ensure_future(send(body)) for body in bodies[:2]]
        await until(lambda: counted("sre_ladder_ingest_waiting") == 20_000)
        with pytest.raises(Overloaded, match="waiting to be stored"):
            await send(b"not even read")
    assert [receipt.stored for receipt in await asyncio.gather(*waiting)] == [10_000, 10_000]
    assert (await send(payload("01"))).stored == 1


async def test_a_full_disk_is_503_and_nothing_is_acknowledged(sqlite_url: str, clock: MovableClock) -> None:
    database = Database.open(sqlite_url)
    context = context_on(database, clock)
    token = await ingest_token(context, "uid-eu")
    pages = await sqlite_pages(database)
    limit = [pages + 3]
    event.listen(database.engine.sync_engine, "checkout", lambda raw, *_: raw.execute(f"PRAGMA max_page_count={limit[0]}"))
    stored = 0
    refusal = ""
    for n in range(1_000):
        try:
            stored += (await accept(context, envelope(*(one_alert(f"{n}-{m}") for m in range(20))), token)).stored
        except StoreUnavailable as error:
            refusal = str(error)
            break
    assert "full" in refusal
    assert len(await alert_rows(database)) == stored
    limit[0] = pages + 1_000
    assert (await accept(context, envelope(one_alert("after")), token)).stored == 1
    await database.close()


async def sqlite_pages(database: Database) -> int:
    async with database.reading() as session:
        return int((await (await session.connection()).execute(text("PRAGMA page_count"))).scalar_one())


async def test_a_read_only_database_is_503(database_url: str, clock: MovableClock) -> None:
    writable = Database.open(database_url)
    token = await ingest_token(context_on(writable, clock), "uid-eu")
    await writable.close()
    if database_url.startswith("sqlite"):
        database = Database.open(database_url.replace("sqlite:///", "sqlite:///file:") + "?mode=ro&uri=true")
    else:
        with psycopg.connect(database_url, autocommit=True) as connection:
            name = connection.execute("SELECT current_database()").fetchone()
            assert name is not None
            connection.execute(f"ALTER DATABASE {name[0]} SET default_transaction_read_only = on")
        database = Database.open(database_url)
    before = counted("sre_ladder_webhooks_total", result="store_unavailable")
    with pytest.raises(StoreUnavailable, match=r"read-?only"):
        await accept(context_on(database, clock), payload("01"), token)
    assert counted("sre_ladder_webhooks_total", result="store_unavailable") == before + 1
    await database.close()


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:////nowhere/at/all/incidents.db",
        "postgresql://postgres@127.0.0.1:1/nothing",
        "postgresql://postgres@/x?host=/nowhere",
    ],
)
async def test_an_unreachable_database_is_503(url: str, clock: MovableClock) -> None:
    database = Database.open(url)
    with pytest.raises(StoreUnavailable):
        await accept(context_on(database, clock), payload("01"), "srl_i_any")
    await database.close()


async def test_a_store_that_stays_locked_is_503_and_not_a_hang(postgres_url: str, clock: MovableClock) -> None:
    database, other = Database.open(postgres_url), Database.open(postgres_url)
    context = context_on(database, clock)
    token = await ingest_token(context, "uid-eu")
    async with held_alerts(other):
        with pytest.raises(StoreUnavailable, match="lock timeout"):
            await accept(context, payload("01"), token)
    assert (await accept(context, payload("01"), token)).stored == 1
    await database.close()
    await other.close()


async def test_acknowledged_means_stored_after_kill_9(database_url: str, clock: MovableClock) -> None:
    """The writer says each acknowledgement aloud; it is killed in full flow; everything it said is there."""
    database = Database.open(database_url)
    token = await ingest_token(context_on(database, clock), "uid-eu")
    writer = await asyncio.create_subprocess_exec(
        sys.executable, str(Path(__file__).parent / "ingest_writer.py"), database_url, token, stdout=asyncio.subprocess.PIPE
    )
    assert writer.stdout is not None
    said: list[str] = []
    async with asyncio.timeout(40):
        while len(said) < 60:
            said.append((await writer.stdout.readline()).decode().strip())
    os.kill(writer.pid, signal.SIGKILL)
    said += (await writer.stdout.read()).decode().split("\n")[:-1]
    await writer.wait()
    stored = {row.fingerprint for row in await alert_rows(database)}
    acknowledged = {f"{batch}-{n}" for batch in said for n in range(20)}
    assert acknowledged <= stored
    assert len(stored) % 20 == 0, "a webhook is stored whole or not at all"
    await database.close()
