"""Faults between client and server: each effect, its bounds, who may set it; and the counting of requests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web
from sandbox_replay import Json, World, open_world

from sandbox.access import Account
from sandbox.api.disturbances import Disturbance
from sandbox.kinds import CONFIG_MAPS

PATH = "/api/v1/namespaces/default/configmaps"
BOT = "system:serviceaccount:sre-ladder:bot"


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with open_world() as opened:
        yield opened


def _create(name: str) -> Json:
    body = {"metadata": {"name": name}}
    return {"method": "POST", "path": PATH, "contentType": "application/json", "body": body}


async def test_status_for_the_next_two_matching_requests(world: World) -> None:
    world.server.disturb(Disturbance(effect="status", status=429, methods=("GET",), path="configmaps", times=2, retry_after_s=1))
    found = [await world.send({"method": "GET", "path": PATH}) for _ in range(3)]
    other = await world.send({"method": "GET", "path": "/api/v1/namespaces"})
    assert [reply.status for reply in found] == [429, 429, 200]
    assert (found[0].headers["Retry-After"], found[0].body["reason"]) == ("1", "TooManyRequests")
    assert other.status == 200


async def test_after_lets_some_pass_first_and_user_restricts(world: World) -> None:
    world.server.disturb(Disturbance(effect="status", status=503, user=BOT, after=1, times=1))
    bot = {"as": BOT, "method": "GET", "path": PATH}
    found = [(await world.send(bot)).status for _ in range(3)]
    assert found == [200, 503, 200]
    world.server.disturb(Disturbance(effect="status", status=503, user=BOT))
    assert (await world.send({"method": "GET", "path": PATH})).status == 200


async def test_delay_waits(world: World) -> None:
    world.server.disturb(Disturbance(effect="delay", delay_s=0.3, times=1))
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert (await world.send({"method": "GET", "path": PATH})).status == 200
    assert loop.time() - began >= 0.3


async def test_cut_before_does_nothing_and_cut_after_has_done_it(world: World) -> None:
    for effect, name in (("cut_before", "undone"), ("cut_after", "done")):
        world.server.disturb(Disturbance.model_validate({"effect": effect, "methods": ["POST"], "times": 1}))
        with pytest.raises(aiohttp.ClientError):
            await world.send(_create(name))
    assert world.store.find(CONFIG_MAPS, "default", "undone") is None
    assert world.store.find(CONFIG_MAPS, "default", "done") is not None
    assert [asked.status for asked in world.server.writes("admin")] == [0, 0]


async def test_unavailable_until_its_time_is_over(world: World) -> None:
    world.server.disturb(Disturbance(effect="unavailable", for_s=0.2))
    loop = asyncio.get_running_loop()
    end = loop.time() + 10
    with pytest.raises(aiohttp.ClientError):
        await world.send({"method": "GET", "path": "/readyz"})
    status = 0
    while status != 200 and loop.time() < end:
        try:
            status = (await world.send({"method": "GET", "path": "/readyz"})).status
        except aiohttp.ClientError:
            await asyncio.sleep(0.02)
    assert status == 200


async def test_an_admin_sets_and_ends_faults_over_http(world: World) -> None:
    fault = {"effect": "status", "status": 500, "path": "configmaps", "id": "mine"}
    request = {"path": "/sandbox/faults", "contentType": "application/json"}
    made = await world.send({**request, "method": "POST", "body": fault})
    assert [item["id"] for item in made.body["faults"]] == ["mine"]
    assert (await world.send({"method": "GET", "path": PATH})).status == 500
    listed = await world.send({"method": "GET", "path": "/sandbox/faults"})
    assert listed.body["faults"][0]["used"] == 1
    assert (await world.send({"method": "DELETE", "path": "/sandbox/faults/none"})).status == 404
    assert (await world.send({"method": "DELETE", "path": "/sandbox/faults/mine"})).status == 200
    assert (await world.send({"method": "GET", "path": PATH})).status == 200


@pytest.mark.parametrize("body", [{"effect": "explode"}, {"effect": "status", "path": "("}, {"effect": "status", "extra": 1}, "{"])
async def test_a_bad_fault_is_refused_with_a_reason(world: World, body: Json | str) -> None:
    text = body if isinstance(body, str) else json.dumps(body)
    reply = await world.send({"method": "POST", "path": "/sandbox/faults", "contentType": "application/json", "body": text})
    assert reply.status == 400
    assert reply.body["message"]


@pytest.mark.parametrize("who", [BOT, "system:serviceaccount:sre-ladder:executor", "anonymous"])
async def test_others_may_not_touch_faults(world: World, who: str) -> None:
    for method in ("GET", "POST", "DELETE"):
        assert (await world.send({"as": who, "method": method, "path": "/sandbox/faults"})).status == 403


async def test_mounted_paths_under_sandbox_are_for_admins_only(world: World) -> None:
    async def answer(request: web.BaseRequest, account: Account) -> web.StreamResponse:
        return web.json_response({"hello": account.name})

    world.server.mount("/sandbox/more", answer)
    world.server.mount("/open", answer)
    assert (await world.send({"method": "GET", "path": "/sandbox/more/x"})).body == {"hello": "admin"}
    assert (await world.send({"as": BOT, "method": "GET", "path": "/sandbox/more/x"})).status == 403
    assert (await world.send({"as": BOT, "method": "GET", "path": "/open"})).status == 200


async def test_requests_are_counted_by_method_path_and_user(world: World) -> None:
    await world.send({"as": BOT, "method": "GET", "path": PATH})
    await world.send({**_create("x"), "as": BOT})
    await world.send(_create("x"))
    await world.send({"as": "bad token", "method": "GET", "path": PATH})
    assert world.server.requests["GET", PATH, BOT] == 1
    assert world.server.count(user=BOT) == 2
    assert world.server.count(methods=("POST",), path="configmaps") == 2
    assert [asked.status for asked in world.server.writes(BOT)] == [403]
    assert world.server.requests["GET", PATH, "system:anonymous"] == 1
