"""Persons and tokens, on both databases."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from incidents_setting import MovableClock
from sqlmodel import select

from incidents import people
from incidents.database import Database
from incidents.people import Credential, PersonExists, PersonUnknown, TokenRefused
from incidents.tables import TokenRow


async def checked(database: Database, token: str, kind: people.TokenKind, clock: MovableClock) -> Credential:
    async with database.reading() as session:
        return await people.check_token(session, token, kind, now=clock.now())


async def test_a_token_is_shown_once_and_kept_as_its_digest(database: Database, clock: MovableClock) -> None:
    async with database.transaction() as session:
        await people.add_person(session, "ana", now=clock.now())
        text, credential = await people.issue_token(session, "person", "ana", now=clock.now())
    async with database.reading() as session:
        (row,) = list(await session.exec(select(TokenRow)))
    assert text not in str(row.model_dump())
    assert await checked(database, text, "person", clock) == credential
    assert credential.subject == "ana"


async def test_a_token_serves_one_kind_only(database: Database, clock: MovableClock) -> None:
    async with database.transaction() as session:
        text, credential = await people.issue_token(session, "ingest", "am", now=clock.now(), clusters=["uid-1", "uid-2"])
    assert credential.clusters == ("uid-1", "uid-2")
    for kind in ("person", "executor", "login", "session"):
        with pytest.raises(TokenRefused, match="a token for ingest"):
            await checked(database, text, kind, clock)


async def test_every_token_is_bound(database: Database, clock: MovableClock) -> None:
    async with database.transaction() as session:
        with pytest.raises(ValueError, match="bound to a cluster"):
            await people.issue_token(session, "ingest", "am", now=clock.now())
        with pytest.raises(ValueError, match="exactly one cluster"):
            await people.issue_token(session, "executor", "e", now=clock.now(), clusters=["a", "b"])
        with pytest.raises(PersonUnknown, match="sre-bot person add ana"):
            await people.issue_token(session, "person", "ana", now=clock.now())


@pytest.mark.parametrize("token", ["", "x", "srl_p_unknown"])
async def test_unknown_tokens_are_refused(database: Database, clock: MovableClock, token: str) -> None:
    with pytest.raises(TokenRefused):
        await checked(database, token, "person", clock)


async def test_expired_and_revoked_tokens_are_refused(database: Database, clock: MovableClock) -> None:
    async with database.transaction() as session:
        await people.add_person(session, "ana", now=clock.now())
        short, _ = await people.issue_token(session, "person", "ana", now=clock.now(), lifetime=timedelta(minutes=1))
        long, credential = await people.issue_token(session, "person", "ana", now=clock.now())
        assert await people.revoke_token(session, credential.id, now=clock.now())
        assert not await people.revoke_token(session, credential.id, now=clock.now())
    clock.advance(60)
    with pytest.raises(TokenRefused, match="expired"):
        await checked(database, short, "person", clock)
    with pytest.raises(TokenRefused, match="taken back"):
        await checked(database, long, "person", clock)


async def test_removing_a_person_ends_every_token_of_theirs_and_nobody_elses(database: Database, clock: MovableClock) -> None:
    async with database.transaction() as session:
        for name in ("ana", "bo"):
            await people.add_person(session, name, now=clock.now())
        tokens = {name: (await people.issue_token(session, "person", name, now=clock.now()))[0] for name in ("ana", "bo")}
        link = await people.login_link_token(session, "ana", now=clock.now())
    async with database.transaction() as session:
        await people.remove_person(session, "ana", now=clock.now())
    with pytest.raises(TokenRefused):
        await checked(database, tokens["ana"], "person", clock)
    with pytest.raises(TokenRefused):
        await checked(database, link, "login", clock)
    assert (await checked(database, tokens["bo"], "person", clock)).subject == "bo"
    async with database.transaction() as session:
        assert [row.id for row in await people.list_people(session)] == ["bo"]
        assert [row.subject for row in await people.list_tokens(session)] == ["bo"]
        with pytest.raises(PersonUnknown):
            await people.remove_person(session, "ana", now=clock.now())
        with pytest.raises(PersonExists):
            await people.add_person(session, "bo", now=clock.now())
        await people.add_person(session, "ana", now=clock.now())


async def test_a_login_link_works_once_and_gives_a_session(database: Database, clock: MovableClock) -> None:
    async with database.transaction() as session:
        await people.add_person(session, "ana", now=clock.now())
        link = await people.login_link_token(session, "ana", now=clock.now())

    async def redeem() -> str | TokenRefused:
        try:
            async with database.transaction() as session:
                return await people.redeem_login(session, link, now=clock.now())
        except TokenRefused as refusal:
            return refusal

    results = await asyncio.gather(redeem(), redeem(), redeem())
    (made,) = [result for result in results if isinstance(result, str)]
    assert (await checked(database, made, "session", clock)).subject == "ana"
    async with database.transaction() as session:
        await people.end_session(session, made, now=clock.now())
    with pytest.raises(TokenRefused):
        await checked(database, made, "session", clock)


async def test_a_login_link_dies_after_ten_minutes_a_session_after_twelve_hours(database: Database, clock: MovableClock) -> None:
    async with database.transaction() as session:
        await people.add_person(session, "ana", now=clock.now())
        old = await people.login_link_token(session, "ana", now=clock.now())
        made = await people.redeem_login(session, await people.login_link_token(session, "ana", now=clock.now()), now=clock.now())
    clock.advance(10 * 60)
    async with database.transaction() as session:
        with pytest.raises(TokenRefused, match="expired"):
            await people.redeem_login(session, old, now=clock.now())
    clock.advance(12 * 3600)
    with pytest.raises(TokenRefused, match="expired"):
        await checked(database, made, "session", clock)
