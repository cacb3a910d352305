"""What every request passes before any handler: which host it names, where it came from, who it speaks for, how large it is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from fastapi import HTTPException, Request
from starlette.datastructures import MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from incidents.context import Context
from incidents.people import Credential, TokenKind, TokenRefused, check_token

SESSION_COOKIE = "sre_session"
BODY_LIMIT = 16 * 1024 * 1024

_CONSOLE_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)
# The generated API page starts itself with an inline script; it shows nothing that comes from alerts or clusters.
_API_PAGE_POLICY = (
    "default-src 'none'; style-src 'self' 'unsafe-inline'; script-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'"
)
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class BodyOverLimit(Exception):
    """The request's body is over the limit. Answer 413."""


class Doors:
    """ASGI middleware: host allow-list, origin check for requests that carry the session cookie, security headers."""

    def __init__(self, app: ASGIApp, *, hosts: Iterable[str]) -> None:
        self._app = app
        self._hosts = frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        refusal = self._refusal(request)
        if refusal is not None:
            await PlainTextResponse(refusal + "\n", status_code=403 if "origin" in refusal else 400)(scope, receive, send)
            return
        policy = _API_PAGE_POLICY if request.url.path.startswith(("/docs", "/redoc")) else _CONSOLE_POLICY

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.setdefault("Content-Security-Policy", policy)
                headers.setdefault("X-Content-Type-Options", "nosniff")
                headers.setdefault("Referrer-Policy", "same-origin")
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        await self._app(scope, receive, send_with_headers)

    def _refusal(self, request: Request) -> str | None:
        host = _host_name(request.headers.get("host", ""))
        if host not in self._hosts:
            return "this host name is not served here; add it to SRE_BOT_HOSTS"
        if request.method in _SAFE_METHODS or SESSION_COOKIE not in request.cookies:
            return None
        origin = request.headers.get("origin")
        if origin is None or urlsplit(origin).netloc != request.headers.get("host"):
            return "the request's origin is not this console"
        return None


def _host_name(header: str) -> str:
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0]


async def read_body(request: Request, limit: int = BODY_LIMIT) -> bytes:
    """The body, read as it comes and given up as soon as it is over the limit.

    Raises:
        BodyOverLimit: over `limit` bytes.
        ClientDisconnect: the sender went away; nothing was taken.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise BodyOverLimit(f"the body has {declared} bytes; at most {limit} are taken: send smaller groups (max_alerts)")
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise BodyOverLimit(f"the body is over {limit} bytes: send smaller groups (max_alerts)")
        parts.append(part)
    return b"".join(parts)


def bearer(request: Request) -> str | None:
    """The bearer token of the request, if there is one."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token.strip() else None


@dataclass(frozen=True)
class Speaker:
    """A person who was proven to speak, and through which surface."""

    person: str
    via: str


async def speaker_of(context: Context, request: Request) -> Speaker | None:
    """Who speaks: a person's bearer token, or the console's session. None: nobody that we know."""
    token = bearer(request)
    kind: TokenKind = "person"
    if token is None:
        token, kind = request.cookies.get(SESSION_COOKIE), "session"
    if not token:
        return None
    async with context.database.reading() as session:
        try:
            credential = await check_token(session, token, kind, now=context.clock.now())
        except TokenRefused:
            return None
    return Speaker(person=credential.subject, via="web" if kind == "session" else "terminal")


async def require_speaker(context: Context, request: Request) -> Speaker:
    """As `speaker_of`, or 401 with a sentence."""
    speaker = await speaker_of(context, request)
    if speaker is None:
        raise HTTPException(401, "who are you? Send a person's token as: Authorization: Bearer TOKEN, or log in to the console")
    return speaker


async def require_executor(context: Context, request: Request) -> Credential:
    """The executor's credential, or 401."""
    async with context.database.reading() as session:
        try:
            return await check_token(session, bearer(request) or "", "executor", now=context.clock.now())
        except TokenRefused as error:
            raise HTTPException(401, str(error)) from error
