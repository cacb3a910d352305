"""Pod logs as a real API server and kubelet serve them (10-logs), replayed over a source of lines that a kubelet would keep."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import pytest
from sandbox_replay import DATA, Reply, World, add_pod, open_world, recordings, replayed, same_view

from sandbox.hooks import LogLine, LogUnavailable
from sandbox.kinds import PODS
from sandbox.statuses import Json

FOLDER = "10-logs"
RECORDED = recordings(FOLDER)
NOT_SERVED: dict[str, str] = {}
NOW = datetime(2026, 11, 29, 17, 8, 6, 0, tzinfo=UTC)


class Noon:
    """A clock that stands where the recording was made."""

    def now(self) -> datetime:
        return NOW

    def monotonic(self) -> float:
        return 0.0


def _at(second: float, text: bytes) -> LogLine:
    return LogLine(NOW.replace(second=0) + timedelta(seconds=second), text)


class Lines:
    """What the recorded containers wrote."""

    def __init__(self) -> None:
        # The recorded nanoseconds end in digits that microseconds do not have; the test cuts both.
        head = [_at(-30 + index, f"line {index}\n".encode()) for index in range(20)]
        ticks = [3.530441, 4.510099, 5.548024]
        self.current: dict[tuple[str, str], list[LogLine]] = {
            ("logger", "app"): head + [_at(second, b"tick\n") for second in (0.5, 1.5, 2.5, *ticks)],
            ("multi", "b"): [_at(1, b"app v1 ready\n")],
            ("crasher", "app"): [_at(2, b"fatal: db refused\n"), _at(2, b"start $\n")],
            ("initing", "init"): [_at(1, b"init start\n")],
            ("done", "app"): [_at(1, b"bye\n")],
            ("bytes", "app"): [
                _at(1, b"esc \x1b[31mred\x1b[0m\n"),
                _at(2, b"bad utf8 \xff\xfe end\n"),
                _at(3, b"no newline"),
            ],
        }
        self.previous = {("crasher", "app"): [_at(1, b"fatal: db refused\n"), _at(1, b"start $\n")]}
        self.down = ""

    def lines(self, pod: Json, container: str, *, previous: bool) -> Sequence[LogLine] | None:
        if self.down:
            raise LogUnavailable(self.down)
        found = self.previous if previous else self.current
        return found.get((pod["metadata"]["name"], container))


SOURCES: list[Lines] = []


def _containers(world: World, name: str, *containers: str, statuses: list[Json] | None = None, **options: Any) -> None:
    stored = add_pod(world, "rec-logs", name, **options)
    spec = {**stored["spec"], "containers": [{**stored["spec"]["containers"][0], "name": each} for each in containers]}
    status = {**stored["status"]} | ({} if statuses is None else {"containerStatuses": statuses})
    world.store.update(PODS, {**stored, "spec": spec, "status": status})


def _start(world: World) -> None:
    source = Lines()
    SOURCES.append(source)
    world.plane.hooks.logs = source
    ended = {"terminated": {"exitCode": 1, "reason": "Error"}}
    waiting = {"waiting": {"reason": "ErrImageNeverPull"}}
    _containers(world, "logger", "app")
    _containers(world, "multi", "a", "b")
    _containers(world, "crasher", "app", statuses=[{"name": "app", "state": ended, "lastState": ended}])
    _containers(world, "waiting", "app", statuses=[{"name": "app", "state": waiting, "lastState": {}}])
    initializing = [{"name": "app", "state": {"waiting": {"reason": "PodInitializing"}}, "lastState": {}}]
    _containers(world, "initing", "app", statuses=initializing)
    stored = world.store.get(PODS, "rec-logs", "initing")
    init = [{**stored["spec"]["containers"][0], "name": "init"}]
    world.store.update(PODS, {**stored, "spec": {**stored["spec"], "initContainers": init}})
    _containers(world, "bytes", "app")
    _containers(world, "done", "app", statuses=[{"name": "app", "state": {"terminated": {"exitCode": 0}}, "lastState": {}}])
    _containers(world, "nonode", "app", node=None, statuses=[])
    add_pod(world, "rec-shop", "agent-xwzr7")
    world.grant("rec-shop", "reader", "pods-only", [_PODS_ONLY], account_namespace="sre-ladder")
    world.tokens["system:serviceaccount:sre-ladder:executor"] = world.account("sre-ladder", "reader")


_PODS_ONLY = {"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["pods"]}


def _down(why: str) -> Any:
    def scene(world: World) -> None:
        SOURCES[-1].down = why

    return scene


SCENES: dict[str, Any] = {
    "start": _start,
    "30-no-node-address": _down("no preferred addresses found; known addresses: []"),
    "31-403-log": _down(""),
    "32-kubelet-down": _down(
        'Get "https://127.0.0.1:1/containerLogs/rec-logs/logger/app?tailLines=1": dial tcp 127.0.0.1:1: connect: connection refused'
    ),
}
SENT = [name for name, recording in RECORDED.items() if "request" in recording and name not in NOT_SERVED]


@pytest.fixture(scope="module")
def answers() -> dict[str, Reply]:
    return replayed(FOLDER, SCENES, skip=set(NOT_SERVED), clock=Noon())


@pytest.mark.parametrize("name", SENT)
def test_recorded_log(name: str, answers: dict[str, Reply]) -> None:
    recorded, ours = RECORDED[name]["response"], answers[name]
    assert ours.status == recorded["status"]
    if name == "21-bytes":
        assert ours.raw == base64.b64decode(recorded["body"]["base64"])
        return
    wanted, found = same_view(recorded["body"], ours.body)
    if name == "31-403-log":
        found = {**found, "message": found["message"].replace("sre-ladder:reader", "sre-ladder:executor")}
    assert found == wanted
    assert ours.headers.get("Content-Type") == recorded["headers"].get("Content-Type")


async def test_27_28_follow_sends_lines_as_they_come_and_ends_with_the_container() -> None:
    async with open_world(Noon()) as world:
        _start(world)
        lines = SOURCES[-1].current["logger", "app"]
        headers = {"Authorization": f"Bearer {world.admin}"}
        url = f"{world.server.url}/api/v1/namespaces/rec-logs/pods/logger/log"
        async with world.session.get(url, params={"follow": "true", "tailLines": "1"}, headers=headers) as response:
            assert await response.content.readline() == b"tick\n"
            lines.append(_at(7, b"tock\n"))
            assert await asyncio.wait_for(response.content.readline(), 5) == b"tock\n"
        ended = RECORDED["28-follow-done"]
        async with world.session.get(url.replace("logger", "done"), params={"follow": "true"}, headers=headers) as response:
            timeout = aiohttp.ClientTimeout(total=5)
            assert timeout.total
            assert (await asyncio.wait_for(response.read(), 5)).decode() == ended["body"]
            assert response.status == ended["status"]


def test_every_recording_of_the_folder_is_replayed_or_named() -> None:
    apart = {"27-follow", "28-follow-done"}
    assert {path.stem for path in (DATA / FOLDER).glob("*.json")} == set(SENT) | set(NOT_SERVED) | apart
