"""The web application of one replica: doors, API, console."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from fastapi_offline import FastAPIOffline

from bot import rest
from bot.console import pages
from bot.doors import Doors
from bot.settings import BotSettings
from incidents.commands import Commands
from incidents.context import Context
from incidents.database import StoreUnavailable

DESCRIPTION = (
    "Alertmanager posts alerts here, executors fetch signed orders and post signed outcomes, and people ask and decide. "
    "Every call but /healthz, /readyz and /metrics needs a bearer token of its own kind."
)


def make_app(context: Context, commands: Commands, settings: BotSettings, *, notices: Sequence[str] = ()) -> FastAPI:
    """The application. `notices` are shown on the console's first page."""
    app: FastAPI = FastAPIOffline(title="sre-ladder", version="1", description=DESCRIPTION, redoc_url=None)
    app.state.context = context
    app.state.commands = commands
    app.state.settings = settings
    app.state.flashes = pages.Flashes()
    app.state.notices = tuple(notices)
    app.state.stopping = asyncio.Event()
    pages.register_links(pages.link_hosts(context))
    app.router.routes.append(rest.ingest_route)
    app.include_router(rest.router)
    for path, probe in (("/healthz", rest.healthz), ("/readyz", rest.readyz), ("/metrics", rest.metrics)):
        app.add_api_route(path, probe, methods=["GET"], include_in_schema=path != "/metrics")
    app.include_router(pages.router)
    app.mount("/static", StaticFiles(directory=pages.STATIC), name="console")
    app.add_exception_handler(StoreUnavailable, _store_unavailable)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(Exception, _defect)
    app.add_middleware(Doors, hosts=settings.allowed_hosts)
    return app


async def _store_unavailable(_request: Request, error: Exception) -> Response:
    return JSONResponse(
        {"detail": f"the database does not answer: {error}; nothing was done, try again"}, status_code=503, headers=rest.RETRY_AFTER
    )


async def _defect(_request: Request, _error: Exception) -> Response:
    """A defect of ours: the log has it, the caller gets a sentence. The server logs the exception after this answer."""
    return JSONResponse(
        {"detail": "this is a defect of the bot; its log says more. Nothing else is known to have changed"}, status_code=500
    )


async def _invalid(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    told = "; ".join(f"{'.'.join(str(part) for part in item['loc'])}: {item['msg']}" for item in error.errors()[:5])
    return JSONResponse({"detail": told}, status_code=422)
