"""The console in a real browser: log in, read, click; hostile text stays text (H13, H15, H18, H19, G41)."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from bot_site import Site, target
from playwright.async_api import Page, async_playwright, expect

from catalog.actions import RestartWorkload
from catalog.alerts import AlertSeverity
from catalog.decisions import Decision, GateName, GateResult, GateState, Route
from catalog.diagnoses import Diagnosis, Family, Hypothesis
from catalog.episodes import Phase
from catalog.evidence import Answer, Evidence, EvidenceItem, Oracle
from catalog.ids import new_id
from incidents.people import login_link_token
from incidents.recording import store_document
from incidents.resolving import next_numbers, open_incident
from incidents.tables import ProposalRow

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
HOSTILE = "<img src=x onerror=alert(1)> <!channel> rev\u202e5 ot odnu \x1b[2Jgood <https://evil.example|approve>"

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine; install the package chromium")


@pytest.fixture
async def page() -> AsyncIterator[Page]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        opened = await browser.new_page(viewport={"width": 1400, "height": 1000})
        yield opened
        await browser.close()


async def log_in(site: Site, page: Page, person: str = "ana") -> list[str]:
    """Through a log-in link, by its button; what the page's scripts complained of or asked is collected."""
    said: list[str] = []
    page.on("dialog", lambda dialog: said.append(f"dialog: {dialog.message}"))
    page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    async with site.context.database.transaction() as session:
        token = await login_link_token(session, person, now=site.context.clock.now())
    await page.goto(f"{site.url}/login?token={token}")
    await page.get_by_role("button", name="Log in").click()
    await expect(page.get_by_role("heading", name="Open incidents")).to_be_visible()
    return said


async def proposed(site: Site) -> int:
    """An incident that waits for a click, with hostile text wherever text comes from outside."""
    now = site.context.clock.now()
    async with site.context.database.transaction() as session:
        number = await next_numbers(session, 1)
        row = open_incident(session, target(), number=number, origin="alert", now=now)
        await session.flush()
        hypothesis = Hypothesis(family=Family.WEDGED, statement=HOSTILE, confidence=0.9, action=RestartWorkload(), target=target())
        diagnosis = Diagnosis(incident_id=row.id, at=now, severity=AlertSeverity.WARNING, hypotheses=(hypothesis,))
        item = EvidenceItem(
            id="one", group="one", family=Family.WEDGED, question="is it stuck?", seen=HOSTILE, answer=Answer.SUPPORTS,
            log_likelihood_ratio=2.0, source="prometheus", oracle=Oracle.SERVICE_LEVEL, observed_at=now,
            link="javascript:alert(2)",
        )  # fmt: skip
        evidence = Evidence(
            incident_id=row.id,
            at=now,
            family=Family.WEDGED,
            evidence_weight=0.9,
            supporting=1,
            items=(item,),
            sources=("prometheus",),
        )
        gate = GateResult(gate=GateName.SCOPE, route="auto", state=GateState.BLOCKED, sentence="R5 is needed.", unblock="owners")
        decision = Decision(
            incident_id=row.id,
            at=now,
            route=Route.PROPOSE,
            action=RestartWorkload(),
            gates=(gate,),
            deciding_gate=gate,
            scope="shop",
        )
        row.diagnosis_id = store_document(session, row.id, "diagnosis", diagnosis, now=now).id
        row.evidence_id = store_document(session, row.id, "evidence", evidence, now=now).id
        row.decision_id = store_document(session, row.id, "decision", decision, now=now).id
        proposal = ProposalRow(
            id=new_id(now), incident_id=row.id, decision_id=row.decision_id, scope="shop", action=RestartWorkload().to_json(),
            target_uid="u1", fingerprint="h1", created_at=now, expires_at=now + timedelta(minutes=15),
        )  # fmt: skip
        session.add(proposal)
        row.proposal_id, row.phase, row.scope, row.route = proposal.id, Phase.PROPOSED.value, "shop", "propose"
        session.add(row)
    return number


async def test_hostile_text_is_shown_and_does_nothing(site: Site, page: Page) -> None:
    number = await proposed(site)
    said = await log_in(site, page)
    await page.goto(f"{site.url}/incidents/{number}")
    text = await page.locator(".card").inner_text()
    assert "<img src=x onerror=alert(1)>" in text
    assert "\\u{202e}" in text
    assert "\x1b" not in text
    assert await page.locator(".card img").count() == 0
    assert await page.locator('a[href^="javascript"], a[href*="evil"]').count() == 0
    assert said == []


async def test_h19_the_fixed_fields_stand_above_evidence_and_buttons(site: Site, page: Page) -> None:
    number = await proposed(site)
    await log_in(site, page)
    await page.goto(f"{site.url}/incidents/{number}")
    # One look at all three: the page replaces its live parts while it is read.
    tops = await page.evaluate(
        """() => ["dl", ".evidence", ".buttons"].map(
            (part) => document.querySelector(`.card ${part}`).getBoundingClientRect().top)"""
    )
    assert tops == sorted(tops)
    text = await page.locator(".card dl").inner_text()
    for needed in ("Deployment shop/cart in eu-1", "restart workload", "No undo", "May approve", "Expires", f"#{number}"):
        assert needed in text


async def test_a_click_asks_first_then_answers_on_the_card(site: Site, page: Page) -> None:
    number = await proposed(site)
    await log_in(site, page)
    await page.goto(f"{site.url}/incidents/{number}")
    await page.get_by_text("Approve…").click()
    await expect(page.get_by_text("restart workload on Deployment shop/cart")).to_be_visible()
    await page.get_by_role("button", name="Yes, approve exactly this").click()
    flash = page.get_by_role("status")
    await expect(flash).to_contain_text("could not be read")  # this replica's cluster cannot be reached: nothing is assumed
    await page.reload()
    await expect(flash).to_have_count(0)


async def test_rejecting_takes_a_reason_and_the_buttons_go(site: Site, page: Page) -> None:
    number = await proposed(site)
    await log_in(site, page)
    await page.goto(f"{site.url}/incidents/{number}")
    await page.get_by_text("Reject…").click()
    await page.get_by_label("Reason").fill("we are deploying")
    await page.get_by_role("button", name="Reject", exact=True).click()
    await expect(page.get_by_role("status")).to_contain_text("ejected")
    await expect(page.get_by_text("Approve…")).to_have_count(0)


async def test_the_page_follows_what_happens(site: Site, page: Page) -> None:
    await log_in(site, page)
    await expect(page.get_by_text("Nothing is open.")).to_be_visible()
    number = await proposed(site)
    async with site.client("ana") as client:
        await client.post(f"/v1/incidents/{number}/reject", json={"why": "seen"})
    await expect(page.get_by_role("link", name=f"#{number}")).to_be_visible(timeout=10_000)


async def test_every_page_opens_and_says_the_notice(site: Site, page: Page) -> None:
    beat = {"executor_id": "executor-1", "cluster_uid": "uid-eu", "journal_id": "j1", "active": True}
    async with site.client("executor") as client:
        assert (await client.post("/v1/orders/claim", json=beat)).status_code == 200
    said = await log_in(site, page)
    await expect(page.get_by_text("executor executor-1 active")).to_be_visible()
    await expect(page.get_by_text("a notice")).to_be_visible()
    for path, heading in (("/ladder", "Ladder"), ("/unresolved", "Alerts that name no workload"), ("/command", "Command")):
        await page.goto(f"{site.url}{path}")
        await expect(page.get_by_role("heading", name=heading, exact=True)).to_be_visible()
    await page.get_by_label("One line, as in chat").fill("level")
    await page.get_by_role("button", name="Run").click()
    await expect(page.locator("pre.answer")).to_contain_text("restart_workload: R3 in force")
    assert said == []


async def test_without_a_session_nothing_is_shown(site: Site, page: Page) -> None:
    number = await proposed(site)
    answer = await page.goto(f"{site.url}/incidents/{number}")
    assert answer is not None
    assert answer.status == 401
    assert "cart" not in await page.content()
