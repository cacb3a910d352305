"""What must not happen, through the shipped processes: webhook in, click in, and the cluster does not change."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from front_door_site import Site, buttons, field

from sandbox.demo.people import Refusal

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

CRASH = {"exit-after-s": "0.5", "exit-code": "1", "last-words": "fatal: unknown setting"}
MEND = {"exit-after-s": None, "exit-code": None, "last-words": None}
LEAK = {"leak_bytes_per_s": 900_000}

WRITES = [
    ("PATCH", "/apis/apps/v1/namespaces/shop/deployments/cart", {"metadata": {"annotations": {"a": "b"}}}),
    ("PATCH", "/apis/apps/v1/namespaces/shop/deployments/cart/scale", {"spec": {"replicas": 1}}),
    ("DELETE", "/apis/apps/v1/namespaces/shop/deployments/cart", None),
    ("POST", "/api/v1/namespaces/shop/configmaps", {"metadata": {"name": "x"}}),
    ("POST", "/api/v1/namespaces/shop/pods/x/eviction", {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "x"}}),
    ("PUT", "/apis/coordination.k8s.io/v1/namespaces/sre-ladder/leases/x", {"metadata": {"name": "x"}}),
    ("GET", "/api/v1/namespaces/shop/secrets", None),
]


@pytest.mark.parametrize(("method", "path", "body"), WRITES)
async def test_the_bots_account_gets_403_on_any_write_and_on_secrets(site: Site, method: str, path: str, body: object) -> None:
    token = (site.installation.directory / "cluster" / "bot.token").read_text().strip()
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    headers = {"Authorization": f"Bearer {token}", "Content-Type": kind}
    async with httpx.AsyncClient(base_url=site.installation.cluster_url, headers=headers, trust_env=False) as client:
        answer = await client.request(method, path, json=body)
    assert answer.status_code == 403, answer.text


async def test_k01_k23_a_bad_release_is_one_card_that_names_the_rollback_and_has_no_button(site: Site) -> None:
    await site.operator.release("shop", "images", dict(CRASH))
    card = await site.reaches("shop", "images", "notified")
    assert "rollback release" in field(card, "Action")
    assert "never executed by this system" in field(card, "Action")
    assert not buttons(card) & {"approve", "reject"}
    with pytest.raises(Refusal, match="has no proposal"):
        await site.people["ana"].say(f"approve {card['number']}")
    assert len(await site.incidents_of("shop", "images")) == 1
    await site.operator.release("shop", "images", MEND)
    assert (await site.reaches("shop", "images", "closed"))["close_reason"] in ("people", "self_resolved")


async def test_g38_a_namespace_that_did_not_opt_in_is_told_how_and_nothing_more(site: Site) -> None:
    await site.operator.break_program("legacy", "mailer", LEAK)
    card = await site.reaches("legacy", "mailer", "notified", "recorded")
    assert card["deciding_gate"]["gate"] in ("scope", "target")
    told = " ".join(gate["sentence"] + gate["unblock"] for gate in card["gates"])
    assert "sre-ladder.dev/autonomy=enabled" in told
    assert not buttons(card) & {"approve", "reject"}
    await site.operator.mend("legacy", "mailer")


async def test_g14_f01_two_clicks_in_the_same_second_and_one_execution(site: Site) -> None:
    pods = await site.operator.pods("shop", "suggest")
    await site.operator.break_program("shop", "suggest", {"wedged_after_s": 0}, [pods[0]["metadata"]["name"]])
    card = await site.reaches("shop", "suggest", "proposed")
    number = card["number"]

    async def click(person: str) -> str:
        try:
            return await site.people[person].say(f"approve {number}")
        except Refusal as refusal:
            return f"refused: {refusal}"

    answers = await asyncio.gather(click("ana"), click("cy"), click("ana"))
    assert sum(not answer.startswith("refused") for answer in answers) == 1, answers
    card = await site.reaches("shop", "suggest", "closed", within_s=150)
    assert card["close_reason"] == "held", card["headline"]
    survivors = {pod["metadata"]["uid"] for pod in await site.operator.pods("shop", "suggest")}
    assert len(survivors & {pod["metadata"]["uid"] for pod in pods}) == 2, "exactly one pod is another one now"


async def test_g29_halted_nothing_is_ordered_and_the_card_says_by_whom(site: Site) -> None:
    await site.people["ana"].say("halt fire drill")
    try:
        await site.operator.break_program("shop", "kiosk", LEAK)
        card = await site.reaches("shop", "kiosk", "notified", "recorded")
        told = " ".join(gate["sentence"] for gate in card["gates"] if gate["gate"] == "switches")
        assert "ana" in told
        assert "fire drill" in told
        before = {pod["metadata"]["uid"] for pod in await site.operator.pods("shop", "kiosk")}
        await asyncio.sleep(5)
        assert {pod["metadata"]["uid"] for pod in await site.operator.pods("shop", "kiosk")} == before
    finally:
        await site.people["ana"].say("resume drill over")
        await site.operator.mend("shop", "kiosk")


async def test_p08_f02_a_click_after_the_alert_ended_is_refused_with_the_reason(site: Site) -> None:
    pods = await site.operator.pods("shop", "bazaar")
    await site.operator.break_program("shop", "bazaar", {"wedged_after_s": 0}, [pods[0]["metadata"]["name"]])
    card = await site.reaches("shop", "bazaar", "proposed")
    await site.operator.mend("shop", "bazaar")
    await site.reaches("shop", "bazaar", "closed")
    with pytest.raises(Refusal):
        await site.people["ana"].say(f"approve {card['number']}")
    after = {pod["metadata"]["uid"] for pod in await site.operator.pods("shop", "bazaar")}
    assert after == {pod["metadata"]["uid"] for pod in pods}


async def test_g26_without_prometheus_nothing_is_invented_and_nothing_acts(site: Site) -> None:
    await site.installation.alerting.stop_prometheus()
    token = site.installation.tokens["ingest"]
    alert = {
        "status": "firing",
        "labels": {"alertname": "ContainerMemoryExhaustionPredicted", "namespace": "shop", "deployment": "arcade"},
        "annotations": {},
        "startsAt": "2026-01-01T00:00:00Z",
        "fingerprint": "feedfacefeedface",
    }
    import datetime

    alert["startsAt"] = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    body = {"version": "4", "status": "firing", "alerts": [alert]}
    async with httpx.AsyncClient(trust_env=False) as client:
        answer = await client.post(
            f"{site.installation.bot_url}/v1/alerts/alertmanager", json=body, headers={"Authorization": f"Bearer {token}"}
        )
    assert answer.status_code == 200
    card = await site.reaches("shop", "arcade", "notified", "recorded", "proposed")
    assert card["phase"] != "proposed", "what cannot be verified is not proposed"
    assert any("prometheus" in line.lower() for line in card["degraded"]), card["degraded"]
