"""Alertmanager: the real one for what is right, scripted servers for what goes wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from source_servers import answering, eventually, free_port, has, raw_server, real_alertmanager, scripted

from sources.alertmanager import AlertmanagerReader
from sources.errors import SourceUnavailable

needs_alertmanager = pytest.mark.skipif(not has("prometheus-alertmanager"), reason="prometheus-alertmanager is not installed")

CONFIG = """
route: {receiver: nobody}
receivers: [{name: nobody}]
inhibit_rules:
  - source_matchers: [severity="critical"]
    target_matchers: [severity="warning"]
    equal: [namespace]
"""
LABELS = {"alertname": "CheckoutErrors", "namespace": "shop", "severity": "warning", "path": 'say "hi" \\ {x="y"}'}


@asynccontextmanager
async def reader_of(url: str, timeout_s: float = 5.0, token_file: Path | None = None) -> AsyncIterator[AlertmanagerReader]:
    reader = AlertmanagerReader(url, timeout_s, token_file)
    try:
        yield reader
    finally:
        await reader.close()


async def post(url: str, path: str, body: Any) -> Any:
    async with aiohttp.ClientSession() as session, session.post(url + path, json=body) as answer:
        assert answer.status == 200, await answer.text()
        return await answer.json() if "json" in answer.content_type else None


@needs_alertmanager
async def test_against_a_real_alertmanager(tmp_path: Path) -> None:
    """Firing, a neighbour, silenced, inhibited, resolved; labels that need quoting."""
    async with real_alertmanager(tmp_path / "am", CONFIG) as url, reader_of(url) as reader:
        assert await reader.firing(LABELS) is False
        await post(url, "/api/v2/alerts", [{"labels": LABELS}, {"labels": LABELS | {"namespace": "other"}}])
        assert await eventually(lambda: reader.firing(LABELS), bool)
        found = await reader.alert(LABELS)
        assert found is not None
        assert found.labels == LABELS
        assert await reader.firing({}, fingerprint=found.fingerprint)
        assert not await reader.firing({}, fingerprint="0" * 16)
        assert not await reader.firing(LABELS | {"namespace": "third"})
        assert not await reader.firing({name: value for name, value in LABELS.items() if name != "severity"}), (
            "a subset is another alert"
        )
        assert await reader.firing(LABELS | {"empty": ""}), "an empty label is an absent one"

        assert await reader.silenced(LABELS) is False
        now = datetime.now(UTC)
        silence = {
            "matchers": [
                {"name": "alertname", "value": "Checkout.*", "isRegex": True, "isEqual": True},
                {"name": "namespace", "value": "other", "isRegex": False, "isEqual": False},
            ],
            "startsAt": now.isoformat(),
            "endsAt": (now + timedelta(hours=1)).isoformat(),
            "createdBy": "ana",
            "comment": "at work",
        }
        await post(url, "/api/v2/silences", silence)
        assert await eventually(lambda: reader.silenced(LABELS), bool)
        assert await reader.silenced(LABELS | {"namespace": "other"}) is False
        assert await reader.firing(LABELS), "a silenced alert fires all the same"

        assert await reader.inhibited(LABELS) is False
        await post(url, "/api/v2/alerts", [{"labels": {"alertname": "Down", "namespace": "shop", "severity": "critical"}}])
        assert await eventually(lambda: reader.inhibited(LABELS), bool)
        assert await reader.firing(LABELS)

        ended = [{"labels": LABELS, "startsAt": now.isoformat(), "endsAt": datetime.now(UTC).isoformat()}]
        await post(url, "/api/v2/alerts", ended)
        assert not await eventually(lambda: reader.firing(LABELS), lambda firing: not firing)


def silence(state: str, *matchers: tuple[str, str, bool, bool]) -> dict[str, Any]:
    return {
        "status": {"state": state},
        "matchers": [{"name": name, "value": value, "isRegex": regex, "isEqual": equal} for name, value, regex, equal in matchers],
    }


@pytest.mark.parametrize(
    ("silences", "covered"),
    [
        ([], False),
        ([silence("active", ("namespace", "shop", False, True))], True),
        ([silence("expired", ("namespace", "shop", False, True))], False),
        ([silence("pending", ("namespace", "shop", False, True))], False),
        ([silence("active", ("namespace", "sh", True, True))], False),
        ([silence("active", ("team", "", False, True))], True),
        ([silence("active", ("team", "shop", False, False))], True),
        ([silence("active", ("namespace", "shop", False, True), ("severity", "critical", False, True))], False),
        ([silence("active")], False),
    ],
)
async def test_which_silences_cover_an_alert(silences: list[Any], covered: bool) -> None:
    async with scripted(answering(silences)) as server, reader_of(server.url) as reader:
        assert await reader.silenced(LABELS) is covered


@pytest.mark.parametrize(
    "answer",
    [
        "<html>",
        "{",
        "",
        {"code": 500},
        "null",
        [1],
        [{}],
        [{"labels": {}}],
        [{"status": None, "labels": {}}],
        [{"labels": {"a": 1}, "status": {}}],
        [{"labels": [], "status": []}],
    ],
)
async def test_a_lying_server_is_malformed(answer: Any) -> None:
    async with scripted(answering(answer)) as server, reader_of(server.url) as reader:
        for ask in (reader.firing, reader.silenced, reader.inhibited):
            with pytest.raises(SourceUnavailable) as caught:
                await ask(LABELS)
            assert (caught.value.source, caught.value.kind) == ("alertmanager", "malformed")


async def test_a_silence_with_a_broken_pattern_is_malformed_and_not_ignored() -> None:
    async with scripted(answering([silence("active", ("namespace", "(", True, True))])) as server, reader_of(server.url) as reader:
        with pytest.raises(SourceUnavailable):
            await reader.silenced(LABELS)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, "unauthorized"),
        (403, "forbidden"),
        (404, "server_error"),
        (429, "throttled"),
        (503, "server_error"),
        (302, "server_error"),
    ],
)
async def test_a_status_has_its_kind(status: int, kind: str) -> None:
    async with scripted(answering(lambda: web.Response(status=status, text="secret"))) as server, reader_of(server.url) as reader:
        with pytest.raises(SourceUnavailable) as caught:
            await reader.firing(LABELS)
        assert caught.value.kind == kind
        assert "secret" not in str(caught.value)


async def test_F32_a_server_that_is_down_or_hangs_is_unknown_and_never_resolved() -> None:
    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(5)

    for url, kind in ((f"http://127.0.0.1:{free_port()}", "unreachable"),):
        async with reader_of(url) as reader:
            with pytest.raises(SourceUnavailable) as caught:
                await reader.firing(LABELS)
            assert caught.value.kind == kind
    async with raw_server(hang) as url, reader_of(url, 0.3) as reader:
        with pytest.raises(SourceUnavailable) as caught:
            await reader.silenced(LABELS)
        assert caught.value.kind == "timeout"


async def test_F73_the_token_is_read_again_after_a_401_and_only_get_is_sent(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old")
    asked: list[str] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        asked.append(request.headers.get("Authorization", ""))
        if asked[-1] == "Bearer old":
            token.write_text("new")
            return web.json_response({}, status=401)
        return web.json_response([])

    async with scripted(handle) as server, reader_of(server.url, token_file=token) as reader:
        assert await reader.firing(LABELS) is False
        assert {method for method, _, _ in server.requests} == {"GET"}
    assert asked == ["Bearer old", "Bearer new"]
