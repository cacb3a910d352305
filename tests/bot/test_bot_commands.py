"""Commands through the served API and the terminal: typed answers, sentences, idempotency."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from bot_site import Site, target
from sqlmodel import select

from incidents.resolving import next_numbers, open_incident
from incidents.tables import SwitchRow


async def opened(site: Site) -> int:
    """An open incident of Deployment shop/cart."""
    async with site.context.database.transaction() as session:
        number = await next_numbers(session, 1)
        open_incident(session, target(), number=number, origin="alert", now=site.context.clock.now())
    return number


async def say(site: Site, person: str, line: str, key: str = "k" * 16) -> tuple[int, dict[str, object]]:
    async with site.client(person) as client:
        answer = await client.post("/v1/commands", json={"line": line, "key": key})
    return answer.status_code, answer.json()


@pytest.mark.parametrize(
    ("line", "status", "told"),
    [
        ("help", 200, "approve ID"),
        ("status", 200, "no executor has ever reported"),
        ("level", 200, "restart_workload: R3 in force (ceiling R5"),
        ("level nowhere", 404, "No scope is named nowhere"),
        ("aprove 1", 400, "did you mean `approve ID`"),
        ("incident 99", 404, "There is no incident #99"),
        ("approve 99", 404, "There is no incident #99"),
        ("label 99 right", 404, "There is no incident #99"),
        ("unblock shop/cart looked at it", 409, "is not blocked"),
        ("resume drill over", 409, "Nothing is halted"),
        ("release node is back", 409, "No storm is latched"),
        ("promote shop restart_workload R5 please", 409, "the gate is closed"),
        ("promote shop scale R4 please", 409, "No ceiling of scope shop names scale"),
    ],
)
async def test_answers(site: Site, line: str, status: int, told: str) -> None:
    code, body = await say(site, "ana", line)
    assert code == status, body
    assert told in str(body["text"])
    assert body["ok"] is (status == 200)


async def test_f07_a_proposal_nobody_knows_is_answered(site: Site) -> None:
    number = await opened(site)
    async with site.client("ana") as client:
        answer = await client.post(f"/v1/incidents/{number}/approve", json={"proposal_id": "01J9ZX8Q6R3M5N7P9T0V2W4Y6A"})
    assert answer.status_code in (404, 409)
    assert "nothing was done" in answer.json()["text"]


async def test_an_incident_without_a_proposal_says_why_there_is_nothing_to_approve(site: Site) -> None:
    number = await opened(site)
    code, body = await say(site, "ana", f"approve {number}")
    assert code == 409
    assert "has no proposal" in str(body["text"])


async def test_story_and_why_are_complete_texts(site: Site) -> None:
    number = await opened(site)
    _, story = await say(site, "ana", f"incident {number}")
    assert "Deployment shop/cart in eu-1" in str(story["text"])
    _, why = await say(site, "ana", f"why {number}", key="w" * 16)
    assert "nothing has been decided yet" in str(why["text"])


async def test_g17_a_person_without_the_role_is_refused_by_name_of_who_may(site: Site) -> None:
    code, body = await say(site, "eve", "promote shop restart_workload R5 because I can")
    assert code == 409
    assert "ana, bo may" in str(body["text"])
    code, body = await say(site, "eve", "halt because I can", key="h" * 16)
    assert code == 403
    assert "autonomy.yaml" in str(body["text"])


async def test_the_same_key_again_gets_the_first_answer_and_does_nothing(site: Site) -> None:
    first = await say(site, "ana", "halt fire drill", key="a" * 16)
    assert first[0] == 200
    assert (await say(site, "ana", "resume over", key="b" * 16))[0] == 200
    again = await say(site, "ana", "halt fire drill", key="a" * 16)
    assert again == first
    async with site.context.database.reading() as session:
        rows = (await session.exec(select(SwitchRow))).all()
    assert len(rows) == 1
    assert rows[0].lifted_at is not None


async def test_a_key_of_somebody_else_is_refused(site: Site) -> None:
    await say(site, "ana", "status", key="c" * 16)
    code, body = await say(site, "bo", "status", key="c" * 16)
    assert code == 409
    assert "somebody else" in str(body["text"])


async def test_an_invalid_body_says_which_field(site: Site) -> None:
    async with site.client("ana") as client:
        answer = await client.post("/v1/commands", json={"line": "status"})
    assert answer.status_code == 422
    assert "key" in answer.json()["detail"]


async def terminal(*words: str, **environment: str) -> tuple[int, str]:
    """Run `sre` as a person does."""
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).parent / "sre"),
        *words,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return process.returncode or 0, output.decode()


async def test_the_terminal_speaks_the_same_grammar(site: Site) -> None:
    number = await opened(site)
    code, text = await terminal("incident", str(number), SRE_URL=site.url, SRE_TOKEN=site.tokens["ana"])
    assert code == 0
    assert "Deployment shop/cart" in text
    code, text = await terminal("aprove", "1", SRE_URL=site.url, SRE_TOKEN=site.tokens["ana"])
    assert code == 1
    assert "did you mean" in text


async def test_the_terminal_says_what_is_missing() -> None:
    code, text = await terminal("status")
    assert (code, "SRE_TOKEN" in text) == (2, True)
    code, text = await terminal("status", SRE_URL="http://127.0.0.1:9", SRE_TOKEN="x")
    assert (code, "does not answer" in text) == (2, True)
    assert "Traceback" not in text
