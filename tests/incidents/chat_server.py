"""A chat service over HTTP, with the ways in which one fails, and the surface that speaks to it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from aiohttp import web

from incidents.outbox import ChannelBusy, Delivery, MessageGone, MessageRefused, SurfaceUnavailable


class ChatServer:
    """Messages by reference; each carries the key it was posted with."""

    def __init__(self) -> None:
        self.down = False
        self.hang_after_posting = False
        self.busy: dict[str, str] = {}
        self.refused: set[str] = set()
        self.messages: dict[str, dict[str, Any]] = {}
        self.calls: Counter[str] = Counter()
        self.hanging = asyncio.Event()
        self.released = asyncio.Event()
        self.url = ""

    @web.middleware
    async def moods(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.calls[request.method] += 1
        if self.down:
            return web.json_response({"error": "down"}, status=500)
        response: web.StreamResponse = await handler(request)
        return response

    async def post(self, request: web.Request) -> web.Response:
        body = await request.json()
        if body["channel"] in self.busy:
            return web.json_response({}, status=429, headers={"Retry-After": self.busy[body["channel"]]})
        if body["channel"] in self.refused:
            return web.json_response({"error": "channel_not_found"}, status=400)
        reference = f"m{len(self.messages) + 1}"
        self.messages[reference] = body
        if self.hang_after_posting:
            self.hanging.set()
            await self.released.wait()
        return web.json_response({"reference": reference})

    async def put(self, request: web.Request) -> web.Response:
        reference = request.match_info["reference"]
        if reference not in self.messages:
            return web.json_response({}, status=404)
        self.messages[reference] |= await request.json()
        return web.json_response({"reference": reference})

    async def find(self, request: web.Request) -> web.Response:
        key = request.query["key"]
        return web.json_response([reference for reference, body in self.messages.items() if body["key"] == key])


@asynccontextmanager
async def chatting() -> AsyncIterator[ChatServer]:
    """A chat service on loopback inside this block."""
    server = ChatServer()
    app = web.Application(middlewares=[server.moods])
    app.router.add_post("/messages", server.post)
    app.router.add_put("/messages/{reference}", server.put)
    app.router.add_get("/messages", server.find)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        server.released.set()
        await runner.cleanup()


class ChatSurface:
    """Translates deliveries into calls of the service."""

    def __init__(self, name: str, url: str, client: httpx.AsyncClient) -> None:
        self.name = name
        self._url = url
        self._client = client

    async def send(self, delivery: Delivery) -> str:
        body = {"channel": delivery.channel, "key": delivery.key, "content": delivery.content}
        if delivery.reference is None:
            answer = await self._call("POST", f"{self._url}/messages", json=body)
        else:
            answer = await self._call("PUT", f"{self._url}/messages/{delivery.reference}", json=body)
        return str(answer["reference"])

    async def find(self, delivery: Delivery) -> str | None:
        found = await self._call("GET", f"{self._url}/messages", params={"key": delivery.key})
        return found[0] if found else None

    async def _call(self, method: str, url: str, **arguments: Any) -> Any:
        try:
            answer = await self._client.request(method, url, **arguments)
        except httpx.HTTPError as error:
            raise SurfaceUnavailable(type(error).__name__) from error
        match answer.status_code:
            case 200:
                return answer.json()
            case 404:
                raise MessageGone("deleted")
            case 429:
                raise ChannelBusy("rate limited", float(answer.headers["Retry-After"]))
            case 400:
                raise MessageRefused(answer.json()["error"])
            case status:
                raise SurfaceUnavailable(f"answered {status}")
