"""Leases as the real API server treats them (05-lease), replayed: create, renew, race, stale writes, MicroTime, preconditions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sandbox_replay import Reply, World, open_world, recordings, replayed, same_view

FOLDER = "05-lease"
RECORDED = recordings(FOLDER)
NOT_SERVED: dict[str, str] = {}
LEASES = "/apis/coordination.k8s.io/v1/namespaces/rec-lease/leases"
RACE = RECORDED["04-takeover-race"]["results"]


async def _race(world: World) -> None:
    """The recorded race, then what the fifty rounds left: the lease moved on since."""
    replies = await asyncio.gather(*(world.send(_put(sent["request"])) for sent in RACE.values()))
    assert sorted(reply.status for reply in replies) == [200, 409]
    winner = next(reply for reply in replies if reply.status == 200)
    world.names["4445"] = winner.body["metadata"]["resourceVersion"]


def _put(body: Any) -> dict[str, Any]:
    return {"method": "PUT", "path": f"{LEASES}/exec", "contentType": "application/json", "body": body}


SCENES: dict[str, Any] = {"start": lambda world: world.namespace("rec-lease"), "06-stale-put": _race}


@pytest.fixture(scope="module")
def answers() -> dict[str, Reply]:
    return replayed(FOLDER, SCENES, skip=set(NOT_SERVED))


SENT = [name for name, recording in RECORDED.items() if "request" in recording and name not in NOT_SERVED]


@pytest.mark.parametrize("name", SENT)
def test_recorded_lease(name: str, answers: dict[str, Reply]) -> None:
    recorded, ours = RECORDED[name]["response"], answers[name]
    assert ours.status == recorded["status"]
    wanted, found = same_view(recorded["body"], ours.body)
    if name in ("08-merge-patch-no-rv", "13-get-expired"):
        # renewTime is that of whoever won the recorded rounds; both are masked, the rest is compared.
        assert found["spec"]["holderIdentity"] == "exec-c"
    assert found == wanted


async def test_05_race_has_one_winner_in_each_of_50_rounds() -> None:
    rounds = {"[200, 200]": 0, "[200, 409]": 0, "[409, 409]": 0}
    async with open_world() as world:
        world.namespace("rec-lease")
        created = await world.send({**RECORDED["01-create"]["request"]})
        lease = created.body
        for _ in range(50):
            both = [{**lease, "spec": {**lease["spec"], "holderIdentity": holder}} for holder in ("exec-a2", "exec-b2")]
            both[0]["spec"]["leaseTransitions"] = both[1]["spec"]["leaseTransitions"] = lease["spec"]["leaseTransitions"] + 1
            replies = await asyncio.gather(*(world.send(_put(body)) for body in both))
            rounds[str(sorted(reply.status for reply in replies))] += 1
            lease = next(reply for reply in replies if reply.status == 200).body
    assert rounds == RECORDED["05-race-50-rounds"]["rounds"]


@pytest.mark.parametrize("case", RECORDED["14-microtime-formats"]["results"], ids=lambda case: str(case["renewTime sent"]))
async def test_14_microtime_takes_exactly_six_fraction_digits(case: dict[str, Any]) -> None:
    body = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "m"},
        "spec": {"holderIdentity": "x", "renewTime": case["renewTime sent"]},
    }
    async with open_world() as world:
        world.namespace("rec-lease")
        reply = await world.send(
            {"method": "POST", "path": LEASES, "query": {"dryRun": "All"}, "contentType": "application/json", "body": body}
        )
    assert reply.status == case["status"]
    assert (reply.body["spec"]["renewTime"] if reply.status == 201 else reply.body["message"]) == case["answer"]
