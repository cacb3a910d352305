"""List, paging and watch of a real API server (04-watch): the lists replayed, each watch with the writes that it saw."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sandbox_replay import DATA, Json, Reply, World, open_world, recordings, replayed, same_view

from sandbox.kinds import CONFIG_MAPS, EVENTS, NAMESPACES, PODS

FOLDER = "04-watch"
RECORDED = recordings(FOLDER)
NS = "rec-watch"
NOT_SERVED = {
    "33-table": "the recorded pods come from another folder; the columns are compared below",
}
WATCHES = {name for name, recording in RECORDED.items() if "lines" in recording.get("response", {})}
LISTS = [name for name in RECORDED if name not in WATCHES and name not in NOT_SERVED]


def _config_map(name: str, value: str = "v", **labels: str) -> Json:
    return {"metadata": {"name": name, "namespace": NS, "labels": labels or {"a": "1"}}, "data": {"k": value}}


def _set(world: World, name: str, value: str) -> None:
    world.store.change(CONFIG_MAPS, NS, name, lambda obj: obj["data"].update(k=value))


def _relabel(world: World, name: str, **labels: str) -> None:
    world.store.change(CONFIG_MAPS, NS, name, lambda obj: obj["metadata"].update(labels=labels))


def _fill(world: World) -> None:
    """The eight ConfigMaps that the recorded lists show, with the values of their last versions."""
    world.namespace(NS)
    for name in ("c1", "c2", "c3", "c3a", "c4", "c5"):
        world.make(CONFIG_MAPS, _config_map(name))
    for name in ("kube-root-ca.crt", "openshift-service-ca.crt"):
        world.make(CONFIG_MAPS, {"metadata": {"name": name, "namespace": NS}})


def _between_pages(world: World) -> None:
    """Something new after the first page: later pages must not show it."""
    world.make(CONFIG_MAPS, _config_map("c3b"))
    world.store.delete(CONFIG_MAPS, NS, "c3b")


def _old(world: World) -> None:
    """The recorded value 4347 becomes a version from which the store still knows everything."""
    for name, value in (("c1", "x4"), ("c3", "x6")):
        _set(world, name, value)
    world.names["4347"] = str(world.store.revision)
    _set(world, "c1", "x9")


SCENES: dict[str, Any] = {
    "start": _fill,
    "22-list-continue": _between_pages,
    "24-list-continue-expired": lambda world: world.store.compact(),
    "27-list-exact-recent": _old,
}


@pytest.fixture(scope="module")
def answers() -> dict[str, Reply]:
    return replayed(FOLDER, SCENES, skip=set(NOT_SERVED) | WATCHES)


def _trimmed(name: str, body: Any) -> Any:
    """Our answer in the form to which the recorder reduced its own."""
    match name:
        case "20-list":
            keys = list(body["items"][0])
            return {
                **{key: body[key] for key in ("kind", "apiVersion", "metadata")},
                "items[0] keys": keys,
                "n": len(body["items"]),
            }
        case "21-list-limit" | "22-list-continue" | "23-list-limit-selector":
            return {"metadata": body["metadata"], "names": [item["metadata"]["name"] for item in body["items"]]}
        case "28-list-notolder" | "31-list-rv0":
            return {"metadata": body["metadata"], "n": len(body["items"])}
        case "27-list-exact-recent":
            items = [[i["metadata"]["name"], i.get("data", {}).get("k"), i["metadata"]["resourceVersion"]] for i in body["items"]]
            return {"metadata": body["metadata"], "items": items}
        case _:
            return body


@pytest.mark.parametrize("name", LISTS)
def test_recorded_list(name: str, answers: dict[str, Reply]) -> None:
    recorded, ours = RECORDED[name]["response"], answers[name]
    assert ours.status == recorded["status"]
    wanted, found = same_view(recorded["body"], _trimmed(name, ours.body))
    if name == "27-list-exact-recent":
        wanted["items"], found["items"] = ([item[:2] for item in each["items"]] for each in (wanted, found))
    if name == "34-partial":
        assert ours.body["items"][0]["metadata"].pop("uid")
    if name == "29-list-future":
        assert ours.headers["Retry-After"] == recorded["headers"]["Retry-After"]
    assert found == wanted


async def test_33_table_has_the_recorded_columns_and_rows() -> None:
    recorded = RECORDED["33-table"]
    async with open_world() as world:
        world.namespace("rec-fault")
        crashed = {"waiting": {"reason": "CrashLoopBackOff"}}
        last = {"terminated": {"exitCode": 1, "finishedAt": world.store.now_text()}}
        status = {"name": "app", "ready": False, "restartCount": 6, "state": crashed, "lastState": last}
        metadata = {"name": "bad-cmd", "namespace": "rec-fault"}
        spec = {"nodeName": "node1", "containers": [{"name": "app", "image": "x:1"}]}
        body = {"phase": "Running", "podIP": "10.88.0.96", "containerStatuses": [status]}
        world.make(PODS, {"metadata": metadata, "spec": spec, "status": body})
        reply = await world.send(recorded["request"])
    wanted = recorded["response"]["body"]
    assert (reply.body["kind"], reply.body["apiVersion"]) == (wanted["kind"], wanted["apiVersion"])
    assert [column["name"] for column in reply.body["columnDefinitions"]] == wanted["columns"]
    cells, recorded_cells = reply.body["rows"][0]["cells"], wanted["rows"][0]
    assert [*cells[:3], *cells[5:]] == [*recorded_cells[:3], *recorded_cells[5:]]
    assert cells[3].startswith("6 (")
    assert cells[3].endswith(" ago)")


# -- watches ------------------------------------------------------------


class Heard:
    """An open watch."""

    def __init__(self, world: World, response: Any) -> None:
        self.world = world
        self.response = response

    async def line(self) -> Json:
        """The next line."""
        text = await asyncio.wait_for(self.response.content.readline(), 10)
        assert text.endswith(b"\n"), text
        line: Json = json.loads(text)
        return line

    async def ended(self) -> bool:
        """Whether the stream ends here, cleanly."""
        return await asyncio.wait_for(self.response.content.read(), 10) == b""


@asynccontextmanager
async def watching(world: World, name: str, **query: str) -> AsyncIterator[Heard]:
    """The recorded watch request, opened; `query` replaces recorded parameters."""
    request = RECORDED[name]["request"]
    parameters = {**request["query"], **query}
    headers = {"Authorization": f"Bearer {world.admin}"}
    async with world.session.get(world.server.url + request["path"], params=parameters, headers=headers) as response:
        assert response.status == RECORDED[name]["response"]["status"]
        assert response.headers["Content-Type"] == "application/json"
        yield Heard(world, response)


def _lines(name: str) -> list[Json]:
    return [item["line"] for item in RECORDED[name]["response"]["lines"] if "line" in item]


async def _expect(heard: Heard, name: str, lines: list[Json] | None = None) -> None:
    for recorded in _lines(name) if lines is None else lines:
        wanted, found = same_view(recorded, await heard.line())
        assert found == wanted


def _now(world: World) -> str:
    return str(world.store.revision)


async def test_01_added_modified_deleted() -> None:
    async with open_world() as world:
        world.namespace(NS)
        async with watching(world, "01-watch-basic", resourceVersion=_now(world)) as heard:
            request = {"path": f"/api/v1/namespaces/{NS}/configmaps", "contentType": "application/json"}
            created = {"metadata": {"name": "w1", "labels": {"a": "1"}}, "data": {"k": "v"}}
            await world.send({**request, "method": "POST", "body": created})
            patch = {"method": "PATCH", "contentType": "application/merge-patch+json", "body": {"data": {"k": "v2"}}}
            await world.send({**request, **patch, "path": f"{request['path']}/w1"})
            await world.send({"method": "DELETE", "path": f"{request['path']}/w1"})
            await _expect(heard, "01-watch-basic")


@pytest.mark.parametrize("name", ["02-watch-no-rv", "03-watch-rv0"])
async def test_02_03_what_exists_comes_first_as_added(name: str) -> None:
    async with open_world() as world:
        _fill(world)
        for recorded in _lines(name):
            obj = recorded["object"]
            if recorded["type"] == "ADDED" and obj.get("data", {}).get("k") and obj["metadata"]["name"].startswith("c"):
                _set(world, obj["metadata"]["name"], obj["data"]["k"])
        async with watching(world, name) as heard:
            found = [await heard.line() for _ in range(8)]
            assert {line["type"] for line in found} == {"ADDED"}
            wanted = [line["object"]["metadata"]["name"] for line in _lines(name) if line["type"] == "ADDED"][:8]
            assert [line["object"]["metadata"]["name"] for line in found] == wanted
            _set(world, "c1", "later")
            assert (await heard.line())["type"] == "MODIFIED"


async def test_04_leaving_the_selector_is_deleted_and_entering_is_added() -> None:
    async with open_world() as world:
        _fill(world)
        async with watching(world, "04-watch-selector-leave", resourceVersion=_now(world)) as heard:
            before = world.store.revision
            _relabel(world, "c2", a="2")
            _relabel(world, "c2", a="1")
            lines = [await heard.line(), await heard.line()]
    for recorded, line in zip(_lines("04-watch-selector-leave"), lines, strict=True):
        wanted, found = same_view(recorded, line)
        assert found == wanted
    assert [line["object"]["metadata"]["resourceVersion"] for line in lines] == [str(before + 1), str(before + 2)]


async def test_05_timeout_ends_cleanly() -> None:
    async with open_world() as world:
        _fill(world)
        async with watching(world, "05-watch-timeout", resourceVersion=_now(world), timeoutSeconds="1") as heard:
            assert await heard.ended()


async def test_06_bookmark_before_the_timeout() -> None:
    async with open_world() as world:
        _fill(world)
        async with watching(world, "06-watch-bookmark", resourceVersion=_now(world), timeoutSeconds="3") as heard:
            _set(world, "c1", "x2")
            await _expect(heard, "06-watch-bookmark")
            assert await heard.ended()


async def test_07_too_old_is_200_with_one_error_line() -> None:
    async with open_world(history=3) as world:
        world.namespace(NS)
        for number in range(6):
            world.make(
                PODS, {"metadata": {"name": f"p{number}", "namespace": NS}, "spec": {"containers": [{"name": "a", "image": "b:1"}]}}
            )
        async with watching(world, "07-watch-too-old") as heard:
            await _expect(heard, "07-watch-too-old")
            assert await heard.ended()


async def test_07b_too_old_of_events_has_another_text() -> None:
    async with open_world() as world:
        world.store.compact()
        async with watching(world, "07b-watch-too-old-events") as heard:
            await _expect(heard, "07b-watch-too-old-events")
            assert await heard.ended()


async def test_07c_a_quiet_kind_replays_everything_deleted_objects_too() -> None:
    async with open_world() as world:
        _fill(world)
        world.make(CONFIG_MAPS, _config_map("w1"))
        world.store.delete(CONFIG_MAPS, NS, "w1")
        async with watching(world, "07c-watch-rv1-replay") as heard:
            found = [await heard.line() for _ in range(8)]
    assert [(line["type"], line["object"]["metadata"]["name"]) for line in found[-2:]] == [("ADDED", "w1"), ("DELETED", "w1")]
    wanted, ours = same_view(_lines("07c-watch-rv1-replay")[:3], found[:3])
    assert ours == wanted


async def test_08_a_future_version_is_silence() -> None:
    async with open_world() as world:
        _fill(world)
        async with watching(world, "08-watch-future", timeoutSeconds="1") as heard:
            _set(world, "c1", "unseen")
            assert await heard.ended()


async def test_09_streaming_list_of_a_cached_kind_is_refused_in_the_stream() -> None:
    async with open_world() as world:
        _fill(world)
        async with watching(world, "09-watch-list-initial-events") as heard:
            await _expect(heard, "09-watch-list-initial-events")
            assert await heard.ended()


async def test_09b_streaming_list_of_events_ends_with_an_annotated_bookmark() -> None:
    recorded = _lines("09b-watch-list-events")
    mark = next(line for line in recorded if line["type"] == "BOOKMARK")
    async with open_world() as world:
        world.namespace("rec-quota")
        for line in recorded[:2]:
            event = {key: value for key, value in line["object"].items() if key not in ("kind", "apiVersion")}
            metadata = {key: event["metadata"][key] for key in ("name", "namespace")}
            world.make(EVENTS, {**event, "metadata": metadata})
        async with watching(world, "09b-watch-list-events") as heard:
            await _expect(heard, "09b-watch-list-events", recorded[:2])
            found = await heard.line()
    assert found["type"] == "BOOKMARK"
    assert found["object"]["metadata"]["annotations"] == mark["object"]["metadata"]["annotations"]


@pytest.mark.parametrize("name", ["10-watch-list-no-match", "11-watch-bad-rv"])
async def test_10_11_bad_watch_requests_are_plain_refusals(name: str) -> None:
    async with open_world() as world:
        _fill(world)
        reply = await world.send(RECORDED[name]["request"])
    wanted, found = same_view(_lines(name)[0], reply.body)
    assert (reply.status, found) == (RECORDED[name]["response"]["status"], wanted)


async def test_12_one_object_by_field_selector() -> None:
    async with open_world() as world:
        _fill(world)
        _set(world, "c3", "x6")
        async with watching(world, "12-watch-single") as heard:
            await _expect(heard, "12-watch-single", _lines("12-watch-single")[:1])
            _set(world, "c1", "of no concern")
            _set(world, "c3", "x5")
            await _expect(heard, "12-watch-single", _lines("12-watch-single")[1:])


async def test_13_watch_on_an_object_path_is_a_get() -> None:
    async with open_world() as world:
        _fill(world)
        _set(world, "c3", "x5")
        reply = await world.send(RECORDED["13-watch-path-name"]["request"])
    wanted, found = same_view(_lines("13-watch-path-name")[0], reply.body)
    assert found == wanted


async def test_14_objects_of_a_deleted_namespace_are_deleted() -> None:
    async with open_world() as world:
        async with watching(world, "14-watch-all-namespaces-delete-ns", resourceVersion=_now(world)) as heard:
            world.namespace("rec-watch2")
            world.make(
                CONFIG_MAPS, {**_config_map("z"), "metadata": {"name": "z", "namespace": "rec-watch2", "labels": {"a": "1"}}}
            )
            reply = await world.send({"method": "DELETE", "path": "/api/v1/namespaces/rec-watch2"})
            assert (reply.status, reply.body["status"]["phase"]) == (200, "Terminating")
            # Emptying the namespace is the work of a controller.
            world.store.delete(CONFIG_MAPS, "rec-watch2", "z")
            world.store.change(NAMESPACES, "", "rec-watch2", lambda obj: obj["spec"].update(finalizers=[]))
            await _expect(heard, "14-watch-all-namespaces-delete-ns")
        assert world.store.find(NAMESPACES, "", "rec-watch2") is None


async def test_resume_from_a_bookmark_or_event_loses_nothing() -> None:
    async with open_world() as world:
        _fill(world)
        async with watching(world, "01-watch-basic", resourceVersion=_now(world)) as heard:
            _set(world, "c1", "one")
            last = (await heard.line())["object"]["metadata"]["resourceVersion"]
        _set(world, "c2", "two")
        _set(world, "c1", "three")
        async with watching(world, "01-watch-basic", resourceVersion=last) as heard:
            found = [await heard.line(), await heard.line()]
    assert [line["object"]["data"]["k"] for line in found] == ["two", "three"]


async def test_a_restarting_server_ends_open_watches() -> None:
    async with open_world() as world:
        _fill(world)
        async with watching(world, "01-watch-basic", resourceVersion=_now(world)) as heard:
            _set(world, "c1", "now it certainly runs")
            await heard.line()
            assert world.server.cut_watches() == 1
            assert await heard.ended()


async def test_a_client_that_leaves_is_forgotten() -> None:
    async with open_world() as world:
        _fill(world)
        async with watching(world, "01-watch-basic", resourceVersion=_now(world)) as heard:
            _set(world, "c1", "heard")
            await heard.line()
            assert len(world.store.listeners(CONFIG_MAPS)) == 1
            heard.response.close()
        for _ in range(1000):
            if not world.store.listeners(CONFIG_MAPS):
                break
            await asyncio.sleep(0.01)
        assert not world.store.listeners(CONFIG_MAPS)
        assert world.server.cut_watches() == 0


def test_every_recording_of_the_folder_is_replayed_or_named() -> None:
    assert {path.stem for path in (DATA / FOLDER).glob("*.json")} == set(LISTS) | WATCHES | set(NOT_SERVED)
