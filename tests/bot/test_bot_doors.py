"""What every request passes: host, origin, who speaks, how large. Through a served application."""

from __future__ import annotations

import pytest
from bot_site import Site, firing, webhook

from bot.doors import BODY_LIMIT, SESSION_COOKIE
from incidents.people import login_link_token

PERSON_ONLY = [
    ("GET", "/v1/incidents"),
    ("GET", "/v1/incidents/1"),
    ("GET", "/v1/health"),
    ("POST", "/v1/commands"),
    ("POST", "/v1/incidents/1/approve"),
    ("POST", "/v1/incidents/1/reject"),
    ("POST", "/v1/incidents/1/take"),
    ("POST", "/v1/incidents/1/label"),
]


@pytest.mark.parametrize("token", [None, "ingest", "executor"])
@pytest.mark.parametrize(("method", "path"), PERSON_ONLY)
async def test_only_a_person_is_let_in(site: Site, method: str, path: str, token: str | None) -> None:
    body = {"line": "status", "key": "k" * 16, "right": True, "why": "x"}
    async with site.client(token) as client:
        answer = await client.request(method, path, json=body if method == "POST" else None)
    assert answer.status_code == 401
    assert "Authorization: Bearer" in answer.json()["detail"]


@pytest.mark.parametrize("token", [None, "ana", "ingest"])
@pytest.mark.parametrize("path", ["/v1/orders/claim", "/v1/outcomes"])
async def test_only_an_executor_gets_orders(site: Site, path: str, token: str | None) -> None:
    async with site.client(token) as client:
        assert (await client.post(path, json={})).status_code == 401


@pytest.mark.parametrize("token", [None, "ana", "executor"])
async def test_h22_a_webhook_needs_its_own_token(site: Site, token: str | None) -> None:
    async with site.client(token) as client:
        answer = await client.post("/v1/alerts/alertmanager", content=webhook(firing()))
    assert answer.status_code == 401


async def test_another_host_name_is_refused(site: Site) -> None:
    async with site.client("ana", Host="evil.example") as client:
        answer = await client.get("/v1/incidents")
    assert answer.status_code == 400
    assert "SRE_BOT_HOSTS" in answer.text


@pytest.mark.parametrize("origin", [None, "https://evil.example", "null"])
async def test_a_post_with_the_session_cookie_must_come_from_the_console(site: Site, origin: str | None) -> None:
    async with site.client() as client:
        client.cookies.set(SESSION_COOKIE, "anything")
        answer = await client.post("/incidents/1/take", headers={"Origin": origin} if origin else {})
    assert answer.status_code == 403
    assert "origin" in answer.text


async def test_pages_forbid_what_is_not_ours(site: Site) -> None:
    async with site.client() as client:
        answer = await client.get("/")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe-inline" not in policy


async def test_f25_an_oversized_body_is_413_before_it_is_read(site: Site) -> None:
    async with site.client("ingest") as client:
        answer = await client.post("/v1/alerts/alertmanager", content=b"x" * (BODY_LIMIT + 1))
    assert answer.status_code == 413
    assert "max_alerts" in answer.json()["detail"]


async def test_a_log_in_link_works_once_and_only_by_its_button(site: Site) -> None:
    async with site.context.database.transaction() as session:
        token = await login_link_token(session, "ana", now=site.context.clock.now())
    async with site.client() as client:
        assert (await client.get(f"/login?token={token}")).status_code == 200  # a link preview does no harm
        first = await client.post(f"/login?token={token}")
        assert first.status_code == 303
        cookie = first.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert (await client.get("/")).status_code == 200
    async with site.client() as other:
        again = await other.post(f"/login?token={token}")
        assert again.status_code == 401
        assert "used already" in again.text
        assert SESSION_COOKIE not in other.cookies


async def test_the_api_page_needs_nothing_from_elsewhere(site: Site) -> None:
    async with site.client() as client:
        page = await client.get("/docs")
        schema = (await client.get("/openapi.json")).json()
    assert page.status_code == 200
    assert "https://" not in page.text
    assert {"/v1/incidents", "/v1/orders/claim", "/v1/outcomes", "/v1/commands"} <= set(schema["paths"])


async def test_probes_and_metrics_answer_anybody(site: Site) -> None:
    async with site.client() as client:
        assert (await client.get("/healthz")).text == "ok\n"
        assert (await client.get("/readyz")).text == "ok\n"
        assert "sre_ladder_webhooks_total" in (await client.get("/metrics")).text


async def test_readiness_and_ingest_fail_with_the_database(site_without_database: Site) -> None:
    async with site_without_database.client("ingest") as client:
        ready = await client.get("/readyz")
        stored = await client.post("/v1/alerts/alertmanager", content=webhook(firing()))
    assert ready.status_code == 503
    assert stored.status_code == 503
    assert "retry-after" in stored.headers


async def test_a_command_without_a_database_is_503_and_says_so(site_without_database: Site) -> None:
    async with site_without_database.client("ana") as client:
        answer = await client.post("/v1/commands", json={"line": "status", "key": "k" * 16})
    assert answer.status_code == 503
    assert "nothing was done" in answer.json()["detail"]
