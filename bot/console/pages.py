"""Routes of the console."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from fastapi import APIRouter, Form, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from sqlalchemy import func
from sqlmodel import select
from sse_starlette import EventSourceResponse

from bot.doors import SESSION_COOKIE, Speaker, speaker_of
from bot.rendering.text import render_answer
from bot.rest import InContext, commands_of
from bot.settings import BotSettings
from bot.showing import is_live_link, shown
from catalog.episodes import Question
from incidents.answers import Answer
from incidents.cards import ButtonKind
from incidents.context import Context
from incidents.database import StoreUnavailable
from incidents.grammar import (
    Approve,
    Command,
    IncidentId,
    LabelIncident,
    NotUnderstood,
    Reject,
    Take,
    help_text,
    parse_command,
    parse_incident_id,
)
from incidents.health import health_of
from incidents.levels import cells_in_use, levels
from incidents.people import SESSION_LIFETIME, TokenRefused, redeem_login
from incidents.reading import incident_card, list_incidents, list_unresolved
from incidents.tables import EventRow

TEMPLATES = Path(__file__).parent / "templates"
STATIC = Path(__file__).parent / "static"
LIVE_INTERVAL = 1.0

router = APIRouter(include_in_schema=False)

_environment = Environment(
    loader=FileSystemLoader(TEMPLATES), autoescape=select_autoescape(default=True), undefined=StrictUndefined, trim_blocks=True
)
_environment.filters["shown"] = shown


class Flashes:
    """Answers to show once, by session: they never travel in a URL, so that no link can put words on the page."""

    def __init__(self) -> None:
        self._waiting: dict[str, Answer] = {}

    def put(self, session: str, answer: Answer) -> None:
        if len(self._waiting) > 1000:
            self._waiting.clear()
        self._waiting[session] = answer

    def take(self, session: str) -> Answer | None:
        return self._waiting.pop(session, None)


async def _page(request: Request, context: Context, speaker: Speaker | None, template: str, **values: Any) -> HTMLResponse:
    session = request.cookies.get(SESSION_COOKIE, "")
    flash = request.app.state.flashes.take(session) if speaker else None
    status = await health_of(context) if speaker else None
    page = _environment.get_template(template).render(
        person=speaker.person if speaker else None, status=status, flash=flash, **values
    )
    return HTMLResponse(page)


async def _message(request: Request, context: Context, title: str, text: str, *, status: int = 200, **form: str) -> HTMLResponse:
    page = await _page(
        request, context, None, "message.html", title=title, text=text, form=form.get("form"), button=form.get("button")
    )
    page.status_code = status
    return page


async def _sign_in(request: Request, context: Context) -> HTMLResponse:
    text = "Ask for a log-in link: whoever runs the bot makes one with `sre-bot person link NAME`. It works once, for ten minutes."
    return await _message(request, context, "Log in", text, status=401)


@router.get("/")
async def incidents_page(request: Request, context: InContext) -> Response:
    """Open and lately closed incidents."""
    speaker = await speaker_of(context, request)
    if speaker is None:
        return await _sign_in(request, context)
    notices = request.app.state.notices
    return await _page(
        request,
        context,
        speaker,
        "incidents.html",
        open=await list_incidents(context, closed=False, limit=200),
        closed=await list_incidents(context, closed=True, limit=30),
        notices=notices,
    )


@router.get("/incidents/{name}")
async def incident_page(name: str, request: Request, context: InContext) -> Response:
    """One incident: its card, gates, transaction and timeline."""
    speaker = await speaker_of(context, request)
    if speaker is None:
        return await _sign_in(request, context)
    try:
        card = await incident_card(context, parse_incident_id(name))
    except NotUnderstood as error:
        return await _message(request, context, "No such incident", str(error), status=404)
    if card is None:
        return await _message(request, context, "No such incident", f"There is no incident {name}.", status=404)
    asks = [button.question for button in card.buttons if button.kind is ButtonKind.LABEL_RIGHT]
    return await _page(request, context, speaker, "incident.html", card=card, asks=asks)


@router.post("/incidents/{name}/approve")
async def approve_click(name: str, request: Request, context: InContext, proposal: Annotated[str, Form()]) -> Response:
    return await _click(name, request, context, lambda incident: Approve(incident=incident, proposal_id=proposal))


@router.post("/incidents/{name}/reject")
async def reject_click(
    name: str, request: Request, context: InContext, proposal: Annotated[str, Form()], why: Annotated[str, Form(max_length=500)]
) -> Response:
    return await _click(name, request, context, lambda incident: Reject(incident=incident, proposal_id=proposal, why=why))


@router.post("/incidents/{name}/take")
async def take_click(name: str, request: Request, context: InContext) -> Response:
    return await _click(name, request, context, lambda incident: Take(incident=incident))


@router.post("/incidents/{name}/label")
async def label_click(
    name: str, request: Request, context: InContext, question: Annotated[Question, Form()], right: Annotated[bool, Form()]
) -> Response:
    return await _click(name, request, context, lambda incident: LabelIncident(incident=incident, right=right, question=question))


async def _click(name: str, request: Request, context: Context, command_for: Any) -> Response:
    speaker = await speaker_of(context, request)
    if speaker is None:
        return await _sign_in(request, context)
    try:
        incident: IncidentId = parse_incident_id(name)
    except NotUnderstood as error:
        return await _message(request, context, "No such incident", str(error), status=404)
    command: Command = command_for(incident)
    answer = await commands_of(request).execute(command, person=speaker.person, via=speaker.via)
    request.app.state.flashes.put(request.cookies.get(SESSION_COOKIE, ""), answer)
    return RedirectResponse(f"/incidents/{name}", status_code=303)


@router.get("/ladder")
async def ladder_page(request: Request, context: InContext) -> Response:
    """Scope by action: ceiling, standing, rung in force; and the calibration gate's cells."""
    speaker = await speaker_of(context, request)
    if speaker is None:
        return await _sign_in(request, context)
    policies = context.policies
    return await _page(
        request,
        context,
        speaker,
        "ladder.html",
        levels=await levels(context, None),
        cells=await cells_in_use(context),
        policy_hash=policies.current.hash,
        policy_problem=policies.problem,
    )


@router.get("/unresolved")
async def unresolved_page(request: Request, context: InContext) -> Response:
    """Alerts that name no workload."""
    speaker = await speaker_of(context, request)
    if speaker is None:
        return await _sign_in(request, context)
    return await _page(request, context, speaker, "unresolved.html", alerts=await list_unresolved(context))


@router.get("/command")
async def command_page(request: Request, context: InContext) -> Response:
    """The command line, as in chat."""
    speaker = await speaker_of(context, request)
    if speaker is None:
        return await _sign_in(request, context)
    return await _page(request, context, speaker, "command.html", line="", key=os.urandom(16).hex(), answer=None, help=help_text())


@router.post("/command")
async def run_command(
    request: Request, context: InContext, line: Annotated[str, Form(max_length=2000)], key: Annotated[str, Form(max_length=128)]
) -> Response:
    """Run one line and show its answer."""
    speaker = await speaker_of(context, request)
    if speaker is None:
        return await _sign_in(request, context)
    try:
        answer = await commands_of(request).execute(parse_command(line), person=speaker.person, via=speaker.via, line=line, key=key)
        answer = answer.model_copy(update={"text": render_answer(answer)})
    except NotUnderstood as error:
        answer = Answer(ok=False, code="not_understood", text=str(error))
    values = {"line": line, "key": os.urandom(16).hex(), "answer": answer, "help": help_text()}
    return await _page(request, context, speaker, "command.html", **values)


@router.get("/login")
async def login_page(request: Request, context: InContext, token: str = "") -> Response:
    """A log-in link. Nothing happens before the button: link previews must not use it up."""
    if not token:
        return await _sign_in(request, context)
    form = f"/login?token={token}" if token.replace("_", "").replace("-", "").isalnum() else ""
    return await _message(request, context, "Log in", "This link works once.", form=form, button="Log in")


@router.post("/login")
async def log_in(request: Request, context: InContext, token: str = "") -> Response:
    """Trade the link's token for a session."""
    settings: BotSettings = request.app.state.settings
    try:
        async with context.database.transaction() as session:
            made = await redeem_login(session, token, now=context.clock.now())
    except TokenRefused as error:
        return await _message(request, context, "Log in", f"{error}.", status=401)
    answer = RedirectResponse("/", status_code=303)
    answer.set_cookie(
        SESSION_COOKIE,
        made,
        max_age=int(SESSION_LIFETIME.total_seconds()),
        httponly=True,
        samesite="strict",
        secure=settings.secure_cookies,
    )
    return answer


@router.get("/live")
async def live(request: Request, context: InContext) -> Response:
    """Server-sent events: a line whenever something was recorded."""
    if await speaker_of(context, request) is None:
        return Response(status_code=401)
    return EventSourceResponse(_changes(request, context))


async def _changes(request: Request, context: Context) -> AsyncIterator[dict[str, str]]:
    seen: Any = None
    while not await request.is_disconnected() and not request.app.state.stopping.is_set():
        try:
            async with context.database.reading() as session:
                now: object = (await session.exec(select(func.max(EventRow.recorded_at)))).one()
        except StoreUnavailable:
            now = "unavailable"
        if now != seen:
            seen = now
            yield {"data": str(now)}
        await asyncio.sleep(LIVE_INTERVAL)


def register_links(hosts: set[str]) -> None:
    """Name the hosts whose links may be live: those of the clusters' own Prometheus and Alertmanager."""
    _environment.filters["live"] = lambda link: is_live_link(link, hosts)


def link_hosts(context: Context) -> set[str]:
    """Hosts of the links that this system builds itself."""
    urls = [url for cluster in context.policies.current.clusters for url in (cluster.prometheus, cluster.alertmanager) if url]
    return {urlsplit(url).netloc for url in urls}
