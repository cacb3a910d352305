"""Promotion by owners with numbers, demotion by outcomes before the next decision."""

from __future__ import annotations

from typing import Any

import pytest
from learning_setting import RESTART, Setting

from catalog.actions import RemediationAction
from catalog.cases import Rung, StandingRecord
from catalog.targets import Target, TargetKind
from incidents.database import Database
from incidents.standings import KEPT, StandingChanged, StandingRefused, StandingRequest, demote, promote, standing_record
from ladder.policy import parse_policy
from ladder.roles import Identity
from ladder.standing import rung_in_force

TARGET = Target(cluster_uid="uid-eu-1", cluster="eu-1", namespace="shop", kind=TargetKind.DEPLOYMENT, name="checkout")


@pytest.fixture
def setting(database: Database) -> Setting:
    return Setting(database)


async def say(setting: Setting, person: str, rung: Rung | None, *, raising: bool = True, **changes: Any) -> StandingChanged:
    known: dict[str, Any] = {
        "scope": "shop",
        "action": RESTART,
        "rung": rung,
        "why": "it went well",
        "identity": Identity(person=person),
    }
    request = StandingRequest(**{**known, **changes})
    async with setting.database.transaction() as session:
        return await (promote if raising else demote)(session, setting.policy, request, now=setting.tick())


async def record(setting: Setting) -> StandingRecord:
    async with setting.database.reading() as session:
        return await standing_record(session, setting.policy, TARGET)


async def rung(setting: Setting, action: RemediationAction = RESTART) -> Rung:
    scope = setting.policy.scope_for(TARGET)
    assert scope is not None
    return rung_in_force(await record(setting), scope, action, setting.now).rung


async def test_a_fresh_scope_is_r3_and_stays_there_without_evidence(setting: Setting) -> None:
    assert await rung(setting) is Rung.R3
    with pytest.raises(StandingRefused, match="nothing of this action is labelled yet"):
        await say(setting, "ana", Rung.R4)
    await setting.live(2)
    with pytest.raises(StandingRefused, match="2 of 2 labelled episodes of wedged were right, next look at 50"):
        await say(setting, "ana", Rung.R4)
    assert await rung(setting) is Rung.R3


async def test_r4_takes_one_owner_and_r5_two_different_ones(setting: Setting) -> None:
    await setting.open_gate()
    assert (await say(setting, "ana", Rung.R4)).state == "in_force"
    assert await rung(setting) is Rung.R4
    first = await say(setting, "ana", Rung.R5)
    assert (first.state, first.by) == ("pending", ("ana",))
    assert (await say(setting, "ana", Rung.R5)).state == "pending"
    assert await rung(setting) is Rung.R4
    second = await say(setting, "bo", Rung.R5)
    assert (second.state, second.by) == ("in_force", ("ana", "bo"))
    assert await rung(setting) is Rung.R5


async def test_two_words_a_day_apart_are_not_two_owners(setting: Setting) -> None:
    await setting.open_gate()
    await say(setting, "ana", Rung.R5)
    setting.tick(25 * 3600)
    assert (await say(setting, "bo", Rung.R5)).state == "pending"
    assert await rung(setting) is Rung.R3


@pytest.mark.parametrize(
    ("person", "changes", "said"),
    [
        ("cy", {}, "cy is not an owner of scope shop; ana, bo may."),
        ("ana", {"scope": "shpo"}, "There is no scope shpo; there are: shop."),
        ("ana", {"why": "  "}, "Say why."),
        ("ana", {"action": RemediationAction.DRAIN_NODE}, "No ceiling of scope shop names drain_node"),
        ("ana", {"action": RemediationAction.SCALE, "rung": Rung.R5}, "the ceiling of scale is R4"),
        ("ana", {"rung": Rung.R3}, "restart_workload is at R3 in scope shop already."),
    ],
)
async def test_refusals_say_which_rule(setting: Setting, person: str, changes: dict[str, Any], said: str) -> None:
    known = {"rung": Rung.R4, **changes}
    with pytest.raises(StandingRefused) as caught:
        await say(setting, person, **known)
    assert said in str(caught.value)
    assert caught.value.rule


async def test_g35_one_regression_demotes_before_the_next_decision(setting: Setting) -> None:
    await setting.open_gate()
    await say(setting, "ana", Rung.R5)
    await say(setting, "bo", Rung.R5)
    assert await rung(setting) is Rung.R5
    await setting.incident(end="regressed", closed=False)
    assert await rung(setting) is Rung.R4
    await setting.incident(end="unverified", closed=False)
    assert await rung(setting) is Rung.R3


async def test_what_came_back_counts_before_anybody_labels_it(setting: Setting) -> None:
    await setting.open_gate()
    await say(setting, "ana", Rung.R4)
    await setting.incident(closed=False, strongest="came_back")
    assert await rung(setting) is Rung.R4
    await setting.incident(closed=False, strongest="came_back")
    assert await rung(setting) is Rung.R3


async def test_refused_orders_leave_the_standing_alone(setting: Setting) -> None:
    await setting.open_gate()
    await say(setting, "ana", Rung.R4)
    for _ in range(5):
        await setting.incident(end="refused")
    assert await rung(setting) is Rung.R4
    assert all(outcome.end.value != "refused" for outcome in (await record(setting)).outcomes)


async def test_a_changed_match_starts_again(setting: Setting) -> None:
    await setting.open_gate()
    await say(setting, "ana", Rung.R4)
    assert await rung(setting) is Rung.R4
    text = (await _text()).replace("match: {cluster: eu-1, namespace: shop}", "match: {namespace: shop}")
    setting.policy = parse_policy(text)
    assert await rung(setting) is Rung.R3


async def _text() -> str:
    from learning_setting import POLICY

    return POLICY


async def test_demotion_takes_one_owner_and_one_rung_or_the_one_named(setting: Setting) -> None:
    await setting.open_gate()
    await say(setting, "ana", Rung.R5)
    await say(setting, "bo", Rung.R5)
    changed = await say(setting, "ana", None, raising=False)
    assert changed.changes == ((RESTART, Rung.R4),)
    assert await rung(setting) is Rung.R4
    with pytest.raises(StandingRefused, match="cy is not an owner"):
        await say(setting, "cy", None, raising=False)
    await say(setting, "bo", Rung.R3, raising=False, action=None)
    assert await rung(setting) is Rung.R3
    with pytest.raises(StandingRefused, match="Nothing in scope shop stands higher"):
        await say(setting, "bo", None, raising=False)


async def test_r5_after_harm_takes_ten_right_in_a_row(setting: Setting) -> None:
    await setting.open_gate()
    await say(setting, "ana", Rung.R5)
    await say(setting, "bo", Rung.R5)
    harmed = await setting.incident(end="regressed", close_reason="regressed")
    await setting.label(harmed, False, "bo")
    await setting.live(9)
    with pytest.raises(StandingRefused, match="10 right episodes in a row at R4, and there are 9"):
        await say(setting, "ana", Rung.R5)
    await setting.live(1)
    assert (await say(setting, "ana", Rung.R5)).state == "pending"


async def test_the_record_keeps_the_last_fifty_of_each(sqlite_url: str) -> None:
    setting = Setting(Database.open(sqlite_url))
    await setting.live(KEPT + 5)
    found = await record(setting)
    assert len(found.outcomes) == KEPT
    assert [one.at for one in found.outcomes] == sorted(one.at for one in found.outcomes)
    assert all(one.labelled and one.right for one in found.outcomes)
    await setting.database.close()
