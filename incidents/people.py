"""Persons and the tokens that speak for them, for webhooks and for executors.

A token is 32 random bytes, shown once and kept as its SHA-256. What a token is for is part of it: an ingest token can store
alerts of the clusters it is bound to and nothing else, an executor's can fetch the orders of one cluster. Roles are not kept here:
they come from autonomy.yaml, by identity.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Literal

from sqlalchemy import update
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from catalog.documents import Document
from catalog.ids import new_id
from incidents.tables import PersonRow, TokenRow

TokenKind = Literal["person", "ingest", "executor", "login", "session"]

LOGIN_LIFETIME = timedelta(minutes=10)
SESSION_LIFETIME = timedelta(hours=12)

_PREFIXES: dict[TokenKind, str] = {
    "person": "srl_p_",
    "ingest": "srl_i_",
    "executor": "srl_e_",
    "login": "srl_l_",
    "session": "srl_s_",
}

Entropy = Callable[[int], str]


class TokenRefused(Exception):
    """A token that is unknown, over, taken back or made for something else. Answer 401; the message may be shown."""


class PersonUnknown(Exception):
    """No such person. Add one with: sre-bot person add NAME."""


class PersonExists(Exception):
    """The person is there already."""


class Credential(Document):
    """What a valid token says: who or what speaks, and for which clusters (by UID)."""

    id: str
    kind: TokenKind
    subject: str
    clusters: tuple[str, ...] = ()


async def add_person(session: AsyncSession, person: str, *, now: datetime) -> PersonRow:
    """Let a person sign in; one who was removed comes back.

    Raises:
        PersonExists: already there.
    """
    row = await session.get(PersonRow, person)
    if row is not None and row.removed_at is None:
        raise PersonExists(f"{person} is there already")
    row = row or PersonRow(id=person)
    row.added_at, row.removed_at = now, None
    session.add(row)
    return row


async def remove_person(session: AsyncSession, person: str, *, now: datetime) -> None:
    """End a person's access at once: every token of theirs is taken back.

    Raises:
        PersonUnknown: not there.
    """
    row = await session.get(PersonRow, person)
    if row is None or row.removed_at is not None:
        raise PersonUnknown(f"{person} is not there")
    row.removed_at = now
    session.add(row)
    await session.exec(
        update(TokenRow)
        .where(
            col(TokenRow.subject) == person,
            col(TokenRow.kind).in_(("person", "login", "session")),
            col(TokenRow.revoked_at).is_(None),
        )
        .values(revoked_at=now)
    )


async def list_people(session: AsyncSession) -> list[PersonRow]:
    """Persons who may sign in, by name."""
    return list(await session.exec(select(PersonRow).where(col(PersonRow.removed_at).is_(None)).order_by(col(PersonRow.id))))


async def issue_token(
    session: AsyncSession,
    kind: TokenKind,
    subject: str,
    *,
    now: datetime,
    clusters: Sequence[str] = (),
    lifetime: timedelta | None = None,
    entropy: Entropy = secrets.token_urlsafe,
) -> tuple[str, Credential]:
    """Make a token; its text is returned once and never stored.

    Raises:
        PersonUnknown: a token for a person who is not there.
        ValueError: an ingest or executor token that is bound to no cluster, or an executor token bound to several.
    """
    if kind in ("person", "login", "session"):
        person = await session.get(PersonRow, subject)
        if person is None or person.removed_at is not None:
            raise PersonUnknown(f"{subject} is not there; add them with: sre-bot person add {subject}")
    elif not clusters:
        raise ValueError(f"an {kind} token must be bound to a cluster")
    if kind == "executor" and len(clusters) != 1:
        raise ValueError("an executor token is bound to exactly one cluster")
    text = _PREFIXES[kind] + entropy(32)
    row = TokenRow(
        digest=_digest(text),
        id=new_id(now),
        kind=kind,
        subject=subject,
        clusters=json.dumps(list(clusters)),
        created_at=now,
        expires_at=None if lifetime is None else now + lifetime,
    )
    session.add(row)
    return text, _credential(row)


async def check_token(session: AsyncSession, text: str, kind: TokenKind, *, now: datetime) -> Credential:
    """What a token says.

    Raises:
        TokenRefused: it does not hold.
    """
    row = await _valid(session, text, kind, now)
    return _credential(row)


async def revoke_token(session: AsyncSession, token_id: str, *, now: datetime) -> bool:
    """Take a token back; False when there is no such token in force."""
    changed = await session.exec(
        update(TokenRow).where(col(TokenRow.id) == token_id, col(TokenRow.revoked_at).is_(None)).values(revoked_at=now)
    )
    return changed.rowcount == 1


async def list_tokens(session: AsyncSession) -> list[TokenRow]:
    """Tokens in force of persons, webhooks and executors; never their texts."""
    rows = await session.exec(
        select(TokenRow)
        .where(col(TokenRow.revoked_at).is_(None), col(TokenRow.kind).in_(("person", "ingest", "executor")))
        .order_by(col(TokenRow.kind), col(TokenRow.subject), col(TokenRow.created_at))
    )
    return list(rows)


async def login_link_token(session: AsyncSession, person: str, *, now: datetime, entropy: Entropy = secrets.token_urlsafe) -> str:
    """A token for one log-in within ten minutes.

    Raises:
        PersonUnknown: not there.
    """
    text, _ = await issue_token(session, "login", person, now=now, lifetime=LOGIN_LIFETIME, entropy=entropy)
    return text


async def redeem_login(session: AsyncSession, text: str, *, now: datetime, entropy: Entropy = secrets.token_urlsafe) -> str:
    """Trade a log-in token for a session token. It works once: of two at the same moment one wins.

    Raises:
        TokenRefused: it does not hold, or was used.
    """
    row = await _valid(session, text, "login", now)
    changed = await session.exec(
        update(TokenRow).where(col(TokenRow.digest) == row.digest, col(TokenRow.used_at).is_(None)).values(used_at=now)
    )
    if changed.rowcount != 1:
        raise TokenRefused("this log-in link was used already; ask for a new one")
    made, _ = await issue_token(session, "session", row.subject, now=now, lifetime=SESSION_LIFETIME, entropy=entropy)
    return made


async def end_session(session: AsyncSession, text: str, *, now: datetime) -> None:
    """Log out."""
    await session.exec(
        update(TokenRow).where(col(TokenRow.digest) == _digest(text), col(TokenRow.kind) == "session").values(revoked_at=now)
    )


async def _valid(session: AsyncSession, text: str, kind: TokenKind, now: datetime) -> TokenRow:
    if not text:
        raise TokenRefused("no token was sent; send it as: Authorization: Bearer TOKEN")
    row = await session.get(TokenRow, _digest(text))
    if row is None:
        raise TokenRefused("the token is not known")
    if row.kind != kind:
        raise TokenRefused(f"this is a token for {row.kind}, not for {kind}")
    if row.revoked_at is not None:
        raise TokenRefused("the token was taken back")
    if row.expires_at is not None and row.expires_at <= now:
        raise TokenRefused("the token has expired")
    return row


def _digest(text: str) -> str:
    # The text has 256 random bits, so that a plain hash cannot be searched; no salt is needed.
    return hashlib.sha256(text.encode()).hexdigest()


def _credential(row: TokenRow) -> Credential:
    return Credential(id=row.id, kind=row.kind, subject=row.subject, clusters=tuple(json.loads(row.clusters)))
