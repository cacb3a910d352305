"""Prometheus: the real one for what is right, scripted servers for what goes wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from source_servers import answering, eventually, free_port, has, raw_server, real_prometheus, scripted

from catalog.clocks import SystemClock
from sources.answers import AnswerMalformed, Intervals, freshness, intervals_of, matrix_of, rules_of, vector_of
from sources.errors import SourceMisconfigured, SourceUnavailable
from sources.prometheus import PrometheusReader
from sources.samples import Series, Unknown, increase

needs_prometheus = pytest.mark.skipif(not has("prometheus"), reason="the program prometheus is not installed")

RULES = """
groups:
  - name: shop
    interval: 2s
    rules:
      - alert: CheckoutErrors
        expr: shop_errors > 5
        for: 1m
        labels: {severity: critical, team: shop}
      - alert: CheckoutErrors
        expr: shop_errors > 1
        labels: {severity: warning}
      - alert: Templated
        expr: shop_errors > 0
        labels: {severity: "{{ $labels.code }}"}
      - record: shop:errors
        expr: sum(shop_errors)
"""


@asynccontextmanager
async def reader_of(url: str, timeout_s: float = 5.0, token_file: Path | None = None) -> AsyncIterator[PrometheusReader]:
    reader = PrometheusReader(url, SystemClock(), timeout_s, token_file)
    try:
        yield reader
    finally:
        await reader.close()


def success(kind: str, result: Any, **more: Any) -> dict[str, Any]:
    return {"status": "success", "data": {"resultType": kind, "result": result}, **more}


def sample(value: str, at: float | None = None, **labels: str) -> dict[str, Any]:
    return {"metric": labels, "value": [at or datetime.now(UTC).timestamp(), value]}


async def failing(url: str, timeout_s: float = 5.0) -> SourceUnavailable:
    async with reader_of(url, timeout_s) as reader:
        with pytest.raises(SourceUnavailable) as caught:
            await reader.instant("up", check_inputs=False)
        return caught.value


# --- the real one


@needs_prometheus
async def test_against_a_real_prometheus(tmp_path: Path) -> None:
    """One server, one story: values, three states, rules, intervals, warnings, a target that goes away (F28, F29, F37, F38)."""
    text = """# TYPE shop_errors gauge
shop_errors{code="500"} 7
shop_nan NaN
shop_inf +Inf
# TYPE shop_total counter
shop_total 3
"""

    async def metrics(_: web.Request) -> web.StreamResponse:
        return web.Response(text=text)

    async with scripted(metrics) as exporter:
        address = exporter.url.removeprefix("http://")
        config = f"""
global: {{scrape_interval: 1s, evaluation_interval: 3s}}
rule_files: [rules.yml]
scrape_configs:
  - job_name: shop
    static_configs: [{{targets: ["{address}"]}}]
  - job_name: slow/0
    scrape_interval: 45s
    static_configs: [{{targets: ["127.0.0.1:1"]}}]
"""
        async with real_prometheus(tmp_path / "prometheus", config, RULES) as url, reader_of(url) as reader:
            found = await eventually(lambda: reader.instant("shop_errors"), lambda vector: len(vector) == 1)
            (labels, value), *_ = found
            assert (labels["job"], labels["code"], value) == ("shop", "500", 7.0)
            assert found.inputs == "fresh"
            assert found.newest_at is not None
            assert abs((found.newest_at - datetime.now(UTC)).total_seconds()) < 10

            assert (await reader.instant("shop_nan")).only() == Unknown(reason="nan")
            assert (await reader.instant("sum(shop_errors) * 0 / 0")).only() == Unknown(reason="nan")
            assert isinstance(infinite := (await reader.instant("shop_inf")).only(), Unknown)
            assert infinite.reason == "inf"
            nothing = await reader.instant("no_such_metric")
            assert (len(nothing), nothing.inputs, nothing.only()) == (0, "absent", Unknown(reason="empty"))
            quiet = await reader.instant("shop_errors > 100")
            assert (len(quiet), quiet.inputs) == (0, "fresh")
            assert (await reader.instant("scalar(shop_errors) + 1")).only() == 8.0
            assert (await reader.instant("vector(1)")).inputs == "fresh"
            assert isinstance(several := (await reader.instant('{__name__=~"shop_errors|shop_total"}')).only(), Unknown)
            assert several.reason == "malformed"

            assert (await reader.scrape_interval(), await reader.scrape_interval("slow/0")) == (1.0, 45.0)
            assert await reader.evaluation_interval() == 3.0
            assert await reader.evaluation_interval("CheckoutErrors") == 2.0

            assert {rule.name for rule in await reader.rules()} == {"CheckoutErrors", "Templated"}
            critical = await reader.rule("CheckoutErrors", {"alertname": "CheckoutErrors", "severity": "critical", "team": "shop"})
            assert critical is not None
            assert (critical.query, critical.duration, critical.group) == ("shop_errors > 5", 60.0, "shop")
            assert await reader.rule_expression("CheckoutErrors", {"severity": "warning"}) == "shop_errors > 1"
            assert await reader.rule_expression("CheckoutErrors", {"severity": "info"}) is None
            assert await reader.rule_expression("Templated", {"severity": "500"}) == "shop_errors > 0"
            assert await reader.rule_expression("Unheard", {}) is None

            now = datetime.now(UTC)
            matrix = await eventually(
                lambda: reader.range("shop_total", datetime.now(UTC) - timedelta(seconds=20), datetime.now(UTC), 1),
                lambda matrix: len(matrix) == 1 and len(matrix.series[0].points) > 3,
            )
            assert increase(matrix.series[0].points) == 0.0
            assert all(at > now - timedelta(seconds=30) for at, _ in matrix.series[0].points)

            with pytest.raises(SourceUnavailable) as caught:
                await reader.instant("sum(")
            assert caught.value.kind == "malformed"

            await exporter.stop()
            down = await eventually(lambda: reader.instant('up{job="shop"}'), lambda vector: vector.only() == 0.0)
            assert down.inputs == "fresh"
            gone = await eventually(lambda: reader.instant("shop_errors > 100"), lambda vector: vector.inputs != "fresh")
            assert gone.inputs in ("stale", "absent")


# --- staleness


def stamp(selector: str, value: float, at: datetime, job: str = "shop") -> Series:
    return Series(labels={"sre_ladder_selector": selector, "job": job}, sample=value, at=at)


NOW = datetime(2026, 11, 29, 18, tzinfo=UTC)
FIFTEEN = Intervals(overall=15, evaluation=15, by_job={"shop": 15.0, "slow": 120.0})


def state_of(*stamps: Series, read: tuple[str, ...] = ("a",), now: datetime = NOW) -> str:
    return freshness(stamps, read, FIFTEEN, now)[0]


def test_F38_a_sample_older_than_two_intervals_is_stale() -> None:
    assert state_of(stamp("0", NOW.timestamp() - 30, NOW)) == "fresh"
    assert state_of(stamp("0", NOW.timestamp() - 31, NOW)) == "stale"
    assert state_of(stamp("0", NOW.timestamp() - 200, NOW, job="slow")) == "fresh"
    assert state_of(stamp("0", NOW.timestamp() - 200, NOW, job="renamed")) == "fresh", "an unknown job gets the longest interval"
    assert state_of(stamp("0", NOW.timestamp() - 300, NOW, job="renamed")) == "stale"


def test_F38_one_stale_selector_makes_the_expression_stale() -> None:
    good, old = stamp("0", NOW.timestamp() - 1, NOW), stamp("1", NOW.timestamp() - 99, NOW)
    assert state_of(good, old, read=("a", "b")) == "stale"
    assert state_of(good, read=("a", "b")) == "absent"
    assert state_of(good, stamp("0", NOW.timestamp() - 99, NOW, job="slow")) == "fresh"


def test_F38_a_job_whose_targets_are_all_down_is_stale_whatever_its_samples_say() -> None:
    good = stamp("0", NOW.timestamp() - 1, NOW)
    assert state_of(good, stamp("up", 0.0, NOW)) == "stale"
    assert state_of(good, stamp("up", 1.0, NOW)) == "fresh"
    assert state_of(good, stamp("up", 0.0, NOW, job="other")) == "fresh"


@pytest.mark.parametrize("own", ["up", 'up{job="shop"}', "scrape_duration_seconds", "ALERTS{}"])
def test_what_prometheus_says_of_a_target_that_is_down_is_fresh(own: str) -> None:
    good = stamp("0", NOW.timestamp() - 1, NOW)
    assert state_of(good, stamp("up", 0.0, NOW), read=(own,)) == "fresh"
    assert state_of(good, stamp("up", 0.0, NOW), read=("uptime_seconds",)) == "stale"


def test_F38_an_answer_from_a_cache_is_stale() -> None:
    old = NOW - timedelta(minutes=5)
    assert state_of(stamp("0", old.timestamp(), old)) == "stale"
    assert state_of(stamp("0", old.timestamp(), old), now=old) == "fresh"


async def test_F38_a_frozen_exporter_makes_every_sample_unknown() -> None:
    long_ago = datetime.now(UTC).timestamp() - 600

    async def handle(request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/config"):
            return web.json_response({"status": "success", "data": {"yaml": "global:\n  scrape_interval: 15s\n"}})
        if "timestamp(" in request.query["query"]:
            return web.json_response(success("vector", [sample(str(long_ago), sre_ladder_selector="0", job="ksm")]))
        return web.json_response(success("vector", [sample("3", deployment="web")]))

    async with scripted(handle) as server, reader_of(server.url) as reader:
        found = await reader.instant("kube_deployment_status_replicas_available")
    assert found.inputs == "stale"
    assert [one.reason for _, one in found if isinstance(one, Unknown)] == ["stale"]
    assert isinstance(found.only(), Unknown)


# --- servers that lie, hang, refuse


@pytest.mark.parametrize(
    "answer",
    [
        "<html>log in</html>",
        "{",
        "",
        {"status": "error", "errorType": "execution", "error": "password=hunter2"},
        {"status": "success"},
        {"status": "success", "data": None},
        {"status": "success", "data": []},
        {"status": "success", "data": {"resultType": "vector", "result": None}},
        success("vector", {"a": 1}),
        success("vector", ["x"]),
        success("vector", [{"metric": {"a": 1}, "value": [1, "1"]}]),
        success("vector", [{"metric": {}, "value": ["1", "1"]}]),
        success("vector", [{"metric": {}, "value": [1]}]),
        success("vector", [{"metric": {}}]),
        success("vector", [{"metric": {}, "value": [1e30, "1"]}]),
        success("matrix", []),
        success("string", [1, "x"]),
        [],
        "null",
        {"data": {"resultType": "vector", "result": []}},
    ],
)
async def test_a_lying_server_is_malformed(answer: Any) -> None:
    async with scripted(answering(answer)) as server:
        error = await failing(server.url)
    assert (error.source, error.kind) == ("prometheus", "malformed")
    assert "hunter2" not in str(error)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, "unauthorized"),
        (403, "forbidden"),
        (404, "malformed"),
        (422, "malformed"),
        (429, "throttled"),
        (500, "server_error"),
        (502, "server_error"),
        (503, "server_error"),
        (504, "timeout"),
        (302, "server_error"),
        (204, "server_error"),
    ],
)
async def test_a_status_has_its_kind_and_is_asked_once(status: int, kind: str) -> None:
    body = {"status": "error", "error": "Authorization: Bearer abcdefghijkl"}
    async with scripted(answering(lambda: web.json_response(body, status=status, headers={"Location": "/login"}))) as server:
        error = await failing(server.url)
        assert len(server.requests) == (2 if status == 401 else 1)
    assert error.kind == kind
    assert "Bearer" not in str(error)


async def test_a_redirect_is_not_followed_with_the_token(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("t")
    async with scripted(answering(success("vector", []))) as other:
        redirect = answering(lambda: web.Response(status=302, headers={"Location": other.url + "/api/v1/query"}))
        async with scripted(redirect) as server, reader_of(server.url, token_file=token) as reader:
            with pytest.raises(SourceUnavailable):
                await reader.instant("up", check_inputs=False)
        assert other.requests == []


async def test_a_server_that_never_answers_times_out_within_the_budget() -> None:
    async def hang(_: web.Request) -> web.StreamResponse:
        await asyncio.sleep(10)
        return web.Response()

    loop = asyncio.get_running_loop()
    async with scripted(hang) as server:
        began = loop.time()
        assert (await failing(server.url, 0.3)).kind == "timeout"
        assert loop.time() - began < 1.5


async def test_a_body_that_drips_times_out_and_gives_its_thread_back() -> None:
    ended = asyncio.Event()

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
            for _ in range(1000):
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.05)
        finally:
            ended.set()

    async with raw_server(drip) as url:
        assert (await failing(url, 0.5)).kind == "timeout"
        await asyncio.wait_for(ended.wait(), 5)


async def test_a_connection_that_is_cut_and_nobody_listening() -> None:
    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")

    async with raw_server(cut) as url:
        assert (await failing(url)).kind in ("unreachable", "malformed")
    assert (await failing(f"http://127.0.0.1:{free_port()}")).kind == "unreachable"


async def test_an_answer_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sources.wire.MAX_ANSWER_BYTES", 1000)
    async with scripted(answering("x" * 5000)) as server:
        assert (await failing(server.url)).kind == "malformed"


async def test_F73_the_token_is_read_again_after_a_401(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old")
    asked: list[str] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        asked.append(request.headers.get("Authorization", ""))
        if asked[-1] == "Bearer old":
            token.write_text("new")
            return web.json_response({}, status=401)
        return web.json_response(success("vector", []))

    async with scripted(handle) as server, reader_of(server.url, token_file=token) as reader:
        await reader.instant("up", check_inputs=False)
    assert asked == ["Bearer old", "Bearer new"]


async def test_a_token_file_that_is_missing_is_a_source_that_cannot_be_read(tmp_path: Path) -> None:
    async with reader_of("http://127.0.0.1:1", token_file=tmp_path / "nowhere") as reader:
        with pytest.raises(SourceUnavailable) as caught:
            await reader.instant("up", check_inputs=False)
    assert caught.value.kind == "unauthorized"


async def test_warnings_of_the_answer_are_kept() -> None:
    answer = success("vector", [sample("1")], warnings=["1 store did not answer"])
    async with scripted(answering(answer)) as server, reader_of(server.url) as reader:
        assert (await reader.instant("up", check_inputs=False)).warnings == ("1 store did not answer",)


async def test_only_get_is_sent_and_the_instant_is_the_one_asked_for() -> None:
    queries: list[Any] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        queries.append(dict(request.query))
        return web.json_response(success("vector", []))

    async with scripted(handle) as server, reader_of(server.url) as reader:
        await reader.instant('up{job="a b"}', at=NOW, check_inputs=False)
        assert {method for method, _, _ in server.requests} == {"GET"}
    assert queries == [{"query": 'up{job="a b"}', "time": f"{NOW.timestamp():.3f}"}]


async def test_a_configuration_that_is_not_shown_means_a_minute() -> None:
    async with scripted(answering({"status": "error"}, status=403)) as server, reader_of(server.url) as reader:
        assert (await reader.scrape_interval(), await reader.evaluation_interval()) == (60.0, 60.0)


@pytest.mark.parametrize("url", ["", "prometheus:9090", "ftp://p", "http://", "https://user:hunter2@p", "https://p/?token=hunter2"])
def test_H12_an_address_with_a_secret_or_without_a_scheme_is_refused(url: str) -> None:
    with pytest.raises(SourceMisconfigured) as caught:
        PrometheusReader(url, SystemClock())
    assert "hunter2" not in str(caught.value)


async def test_the_link_for_people_is_quoted() -> None:
    async with reader_of("https://prometheus.example/prom/") as reader:
        assert (
            reader.link('up{a="b c"} > 0')
            == "https://prometheus.example/prom/graph?g0.expr=up%7Ba%3D%22b%20c%22%7D%20%3E%200&g0.tab=1"
        )


# --- pure reading of answers

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["data", "result", "resultType", "metric", "value", "values", "groups", "rules", "yaml", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["status", "data"]), json_values))
@pytest.mark.parametrize("understand", [vector_of, matrix_of, rules_of, intervals_of])
def test_any_json_is_understood_or_malformed(understand: Any, envelope: dict[str, Any]) -> None:
    with suppress(AnswerMalformed):
        understand(envelope)


def test_intervals_as_prometheus_prints_them() -> None:
    text = """global:
  scrape_interval: 30s
  scrape_timeout: 10s
  evaluation_interval: 1m
scrape_configs:
- job_name: serviceMonitor/shop/web/0
  honor_timestamps: true
  scrape_interval: 1m30s
  relabel_configs:
  - source_labels: [job]
    scrape_interval: 1s
- job_name: "quoted"
  scrape_interval: 5s
remote_write:
- url: http://x
  scrape_interval: 2s
"""
    found = intervals_of({"data": {"yaml": text}})
    assert found == Intervals(overall=30.0, evaluation=60.0, by_job={"serviceMonitor/shop/web/0": 90.0, "quoted": 5.0})
