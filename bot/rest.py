"""The HTTP interface: webhooks in, orders out, outcomes in, and everything a person may ask or do.

Handlers translate: they find out who speaks, call one function of `incidents`, and turn its answer into a status and JSON.
"""

from __future__ import annotations

from typing import Annotated

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from fastapi import APIRouter, Depends, HTTPException, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from pydantic import Field
from starlette.requests import ClientDisconnect
from starlette.routing import Route

from bot.doors import BodyOverLimit, Speaker, bearer, read_body, require_executor, require_speaker
from bot.rendering.text import render_answer
from bot.settings import BotSettings
from catalog.documents import Document
from catalog.episodes import Question
from catalog.orders import ClaimAnswer, ClaimRequest, Signed
from catalog.signatures import load_public_keys
from incidents.answers import Answer
from incidents.cards import Card
from incidents.commands import Commands
from incidents.committing import Overloaded
from incidents.context import Context
from incidents.database import StoreUnavailable
from incidents.dialects import WebhookRefused
from incidents.exchange import Accepted, ExchangeError, NotYours, OrderUnknown, OutcomeUnreadable, accept_outcome, claim_orders
from incidents.grammar import (
    Approve,
    Command,
    IncidentId,
    LabelIncident,
    NotUnderstood,
    Reject,
    Take,
    parse_command,
    parse_incident_id,
)
from incidents.health import Health, health_of
from incidents.ingest import accept
from incidents.people import Credential, TokenRefused
from incidents.reading import IncidentLine, incident_card, list_incidents

RETRY_AFTER = {"Retry-After": "5"}

_STATUS = {"done": 200, "refused": 409, "not_found": 404, "not_understood": 400, "not_allowed": 403, "unavailable": 503}


class CommandRequest(Document):
    """One line of the grammar. The same key again gets the same answer and does nothing twice."""

    line: str = Field(max_length=2000)
    key: str = Field(min_length=8, max_length=128)


class RejectRequest(Document):
    why: str = Field(min_length=1, max_length=500)
    proposal_id: str | None = None


class ApproveRequest(Document):
    proposal_id: str | None = None


class LabelRequest(Document):
    right: bool
    question: Question | None = None
    note: str = Field(default="", max_length=2000)


def context_of(request: Request) -> Context:
    """The replica this request was served by."""
    context = request.app.state.context
    assert isinstance(context, Context)
    return context


def commands_of(request: Request) -> Commands:
    """Runs commands on this replica."""
    commands = request.app.state.commands
    assert isinstance(commands, Commands)
    return commands


async def _speaker(request: Request) -> Speaker:
    return await require_speaker(context_of(request), request)


async def _executor(request: Request) -> Credential:
    return await require_executor(context_of(request), request)


InContext = Annotated[Context, Depends(context_of)]
ByCommands = Annotated[Commands, Depends(commands_of)]
ByPerson = Annotated[Speaker, Depends(_speaker)]
ByExecutor = Annotated[Credential, Depends(_executor)]

router = APIRouter(prefix="/v1")


async def alertmanager_webhook(request: Request) -> Response:
    """Store one webhook. 200 means stored; 503 means send it again; 4xx means that sending it again is useless."""
    try:
        receipt = await accept(context_of(request), await read_body(request), bearer(request))
    except TokenRefused as error:
        return _refusal(401, str(error))
    except BodyOverLimit as error:
        return _refusal(413, str(error))
    except WebhookRefused as error:
        return _refusal(error.status, str(error))
    except (Overloaded, StoreUnavailable) as error:
        return _refusal(503, f"not stored, send it again: {error}", RETRY_AFTER)
    except ClientDisconnect:
        return _refusal(400, "the sender went away before the body was complete")
    return JSONResponse(receipt.model_dump(mode="json"))


ingest_route = Route("/v1/alerts/alertmanager", alertmanager_webhook, methods=["POST"])
"""A plain route: the hottest path pays for no dependency injection."""


@router.get("/incidents")
async def get_incidents(context: InContext, _: ByPerson, state: str = "open", limit: int = 100) -> list[IncidentLine]:
    """Open incidents, newest first, or those closed lately (`state=closed`)."""
    if state not in ("open", "closed"):
        raise HTTPException(400, "state is open or closed")
    return await list_incidents(context, closed=state == "closed", limit=max(1, min(limit, 500)))


@router.get("/incidents/{name}")
async def get_incident(name: str, context: InContext, _: ByPerson) -> Card:
    """One incident's card: everything people see, as data."""
    card = await incident_card(context, _incident_id(name))
    if card is None:
        raise HTTPException(404, f"there is no incident {name}")
    return card


@router.post("/incidents/{name}/approve")
async def approve(name: str, commands: ByCommands, speaker: ByPerson, body: ApproveRequest) -> Response:
    """Approve the pending proposal, or the one the button named."""
    return await _run(commands, speaker, Approve(incident=_incident_id(name), proposal_id=body.proposal_id))


@router.post("/incidents/{name}/reject")
async def reject(name: str, commands: ByCommands, speaker: ByPerson, body: RejectRequest) -> Response:
    """Reject the pending proposal; people own the incident from then on."""
    return await _run(commands, speaker, Reject(incident=_incident_id(name), proposal_id=body.proposal_id, why=body.why))


@router.post("/incidents/{name}/label")
async def label(name: str, commands: ByCommands, speaker: ByPerson, body: LabelRequest) -> Response:
    """Say whether the diagnosis or the action was right."""
    command = LabelIncident(incident=_incident_id(name), right=body.right, question=body.question, note=body.note)
    return await _run(commands, speaker, command)


@router.post("/incidents/{name}/take")
async def take(name: str, commands: ByCommands, speaker: ByPerson) -> Response:
    """Take over: the bot keeps its hands off this incident."""
    return await _run(commands, speaker, Take(incident=_incident_id(name)))


@router.post("/commands")
async def command(commands: ByCommands, speaker: ByPerson, body: CommandRequest) -> Response:
    """One line of the grammar, answered with a typed answer."""
    try:
        parsed = parse_command(body.line)
    except NotUnderstood as error:
        return _answer(Answer(ok=False, code="not_understood", text=str(error)))
    return await _run(commands, speaker, parsed, line=body.line, key=body.key)


@router.post("/orders/claim")
async def claim(context: InContext, executor: ByExecutor, body: ClaimRequest) -> ClaimAnswer:
    """The executor's pull and heartbeat. An order is marked as delivered before this answer is written."""
    try:
        return await claim_orders(context, body, executor)
    except ExchangeError as error:
        raise _exchange_refusal(error) from error


@router.post("/outcomes")
async def outcome(request: Request, context: InContext, executor: ByExecutor, body: Signed) -> Accepted:
    """A signed outcome; the same one again is answered the same way."""
    settings: BotSettings = request.app.state.settings
    try:
        return await accept_outcome(context, body, executor, executor_keys(settings))
    except ExchangeError as error:
        raise _exchange_refusal(error) from error


def executor_keys(settings: BotSettings) -> dict[str, Ed25519PublicKey]:
    """The public keys of the executors, read each time so that a new one counts at once."""
    return load_public_keys(*sorted((settings.keys / "executors").glob("*.pub")))


def _exchange_refusal(error: ExchangeError) -> HTTPException:
    status = 409
    if isinstance(error, NotYours):
        status = 403
    elif isinstance(error, OrderUnknown):
        status = 404
    elif isinstance(error, OutcomeUnreadable):
        status = 422
    return HTTPException(status, str(error))


@router.get("/health")
async def health(context: InContext, _: ByPerson) -> Health:
    """What the console's first line shows: halt, storm, executors, backlog, sources in trouble."""
    return await health_of(context)


async def healthz() -> Response:
    """The process serves."""
    return PlainTextResponse("ok\n")


async def readyz(request: Request) -> Response:
    """The database takes transactions."""
    context = context_of(request)
    try:
        async with context.database.reading() as session:
            await session.connection()
    except StoreUnavailable as error:
        return PlainTextResponse(f"the database does not answer: {error}\n", status_code=503)
    return PlainTextResponse("ok\n")


async def metrics() -> Response:
    """Prometheus text format."""
    from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

    return Response(generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})


async def _run(commands: Commands, speaker: Speaker, parsed: Command, *, line: str = "", key: str | None = None) -> Response:
    return _answer(await commands.execute(parsed, person=speaker.person, via=speaker.via, line=line, key=key))


def _answer(answer: Answer) -> Response:
    """The typed answer; its text is complete, so that a terminal need not know about cards."""
    told = answer.model_copy(update={"text": render_answer(answer)})
    return JSONResponse(told.model_dump(mode="json"), status_code=_STATUS[answer.code])


def _incident_id(name: str) -> IncidentId:
    try:
        return parse_incident_id(name)
    except NotUnderstood as error:
        raise HTTPException(400, str(error)) from error


def _refusal(status: int, sentence: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"detail": sentence}, status_code=status, headers=headers)
