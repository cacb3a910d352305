"""The hold watch: it holds, it comes back, something else breaks, and what a scale-up leaves to be taken back."""

from __future__ import annotations

import pytest
from phases_setting import ANA, WEB, Story, rows, scale_up, web_facts

from catalog.actions import Scale
from catalog.diagnoses import Family
from catalog.orders import Order
from catalog.outcomes import End
from incidents.phases.deciding import follow_up_diagnosis
from incidents.tables import AlertRow, IncidentRow, OutboxRow


async def watched(story: Story, *, scale: bool = False) -> Order:
    if scale:
        story.outside.action, story.outside.family = scale_up(), Family.CAPACITY
        story.outside.write()
    order = await story.executing()
    await story.ends(order, End.COMMITTED)
    return order


@pytest.mark.parametrize(("scale", "minutes"), [(False, 30), (True, 60)])
async def test_the_watch_lasts_as_long_as_the_policy_says_for_the_action(story: Story, scale: bool, minutes: int) -> None:
    await watched(story, scale=scale)
    row = await story.incident()
    assert row.watch_until is not None
    assert (row.watch_until - story.now).total_seconds() == minutes * 60


async def test_the_watch_is_a_number_of_the_policy(story: Story) -> None:
    story.change_policy("    scale: {min", "    numbers: {watch_restart: 45m}\n    scale: {min")
    await watched(story)
    row = await story.incident()
    assert row.watch_until is not None
    assert (row.watch_until - story.now).total_seconds() == 45 * 60


async def test_a_re_fire_while_watching_came_back_and_counts_as_that_when_it_closes(story: Story) -> None:
    await watched(story)
    story.pass_time(minutes=5)
    await story.resolves()
    story.pass_time(minutes=5)
    await story.fires()
    await story.settle()
    row = await story.incident()
    assert (row.phase, row.strongest) == ("notified", "came_back")
    assert "came_back" in await story.kinds()
    assert len(await story.orders()) == 1
    await story.resolves()
    story.pass_time(minutes=1)
    await story.settle()
    assert (await story.incident()).close_reason == "came_back"


async def test_F23_the_alert_that_was_firing_all_along_is_not_a_re_fire(story: Story) -> None:
    await watched(story)
    story.pass_time(minutes=10)
    await story.settle()
    assert (await story.incident()).phase == "watching"


@pytest.mark.parametrize(("still", "phase"), [(True, "notified"), (False, "closed"), (None, "watching")])
async def test_G04_an_alert_without_a_resolve_is_asked_about_at_the_end(story: Story, still: bool | None, phase: str) -> None:
    await watched(story)
    story.outside.still_firing = still
    story.pass_time(minutes=30)
    await story.settle()
    row = await story.incident()
    assert row.phase == phase
    expected = {True: "came_back", False: "held", None: None}[still]
    assert (row.close_reason or row.strongest) == expected


async def test_a_source_that_cannot_say_ends_as_unknown_after_a_day(story: Story) -> None:
    await watched(story)
    story.outside.still_firing = None
    for _ in range(2):
        story.pass_time(hours=12, minutes=1)
        await story.settle()
    row = await story.incident()
    assert (row.phase, row.close_reason) == ("closed", "unknown")


async def test_a_new_family_while_watching_is_an_incident_of_its_own_linked_to_the_first(story: Story) -> None:
    await watched(story)
    story.pass_time(minutes=5)
    await story.fires("HighErrorRate", "f9", severity="critical")
    await story.settle()
    first, second = await story.incidents()
    assert (first.phase, first.close_reason) == ("closed", "unknown")
    assert (second.linked_to, second.origin, second.alert_names, second.severity) == (
        first.id,
        "alert",
        '["HighErrorRate"]',
        "critical",
    )
    async with story.ctx.database.reading() as session:
        alerts = {alert.name: alert.incident_id for alert in await rows(session, AlertRow)}
    assert alerts == {"PodWedged": first.id, "HighErrorRate": second.id}
    assert ("linked" in await story.kinds(1), "linked" in await story.kinds(2)) == (True, True)


# follow-ups ----------------------------------------------------------------------------------------------------------------------


async def held_scale_up(story: Story) -> None:
    await watched(story, scale=True)
    await story.resolves()
    story.outside.facts = web_facts(story.now, desired=6, ready=6)
    story.live.now = story.outside.facts
    story.pass_time(minutes=60)
    await story.settle()


async def test_a_scale_up_that_held_is_proposed_to_be_taken_back_and_never_by_itself(story: Story) -> None:
    await held_scale_up(story)
    first, second = await story.incidents()
    assert (first.close_reason, second.origin, second.linked_to, second.phase) == ("held", "follow_up", first.id, "proposed")
    assert second.route == "propose"
    proposal = await story.proposal(2)
    assert proposal.action == '{"action":"scale","from_replicas":6,"to_replicas":4}'
    assert (await story.desk.approve(proposal.id, ANA, "web")).ok
    await story.settle()
    order = Order.model_validate_json((await story.orders())[-1].body)
    assert (order.mode, order.from_replicas, order.to_replicas) == ("approved", 6, 4)


async def test_a_follow_up_sleeps_until_the_check_has_held_an_hour_however_short_the_watch(story: Story) -> None:
    story.change_policy("    scale: {min", "    numbers: {watch_scale: 30s}\n    scale: {min")
    await watched(story, scale=True)
    await story.resolves()
    story.outside.facts = web_facts(story.now, desired=6, ready=6)
    story.pass_time(minutes=2)
    await story.settle()
    first, second = await story.incidents()
    assert (first.close_reason, second.phase) == ("held", "open")
    story.pass_time(minutes=57)
    await story.settle()
    assert (await story.incident(2)).phase == "open"
    story.pass_time(minutes=2)
    await story.settle()
    assert (await story.incident(2)).phase == "proposed"


async def test_a_follow_up_that_nobody_answers_ends_as_expired(story: Story) -> None:
    await held_scale_up(story)
    for _ in range(4):
        story.pass_time(minutes=16)
        await story.settle()
    second = await story.incident(2)
    assert (second.phase, second.close_reason) == ("closed", "expired")


async def test_a_follow_up_with_nothing_left_to_take_back_is_closed_as_peoples(story: Story) -> None:
    await watched(story, scale=True)
    await story.resolves()
    story.pass_time(minutes=60)
    await story.settle()
    second = await story.incident(2)
    assert (second.phase, second.close_reason) == ("closed", "people")


async def test_an_alert_on_the_target_of_a_follow_up_takes_its_place(story: Story) -> None:
    await held_scale_up(story)
    story.pass_time(minutes=1)
    await story.fires("CPUSaturation", "f7")
    await story.settle()
    _, second, third = await story.incidents()
    assert (second.phase, third.origin, third.linked_to) == ("closed", "alert", second.id)
    assert (await story.proposal(2)).state == "withdrawn"


async def test_one_automatic_action_in_five_asks_for_a_label(story: Story) -> None:
    await watched(story)
    async with story.ctx.database.transaction() as session:
        (row,) = await rows(session, IncidentRow)
        row.number = 5
        session.add(row)
    await story.resolves()
    story.pass_time(minutes=31)
    await story.settle()
    assert "label_requested" in await story.kinds(5)
    async with story.ctx.database.reading() as session:
        assert [one.kind for one in await rows(session, OutboxRow)].count("label_request") == 1


async def test_no_follow_up_after_a_restart(story: Story) -> None:
    await watched(story)
    await story.resolves()
    story.pass_time(minutes=31)
    await story.settle()
    assert len(await story.incidents()) == 1


@pytest.mark.parametrize(("current", "expected"), [(6, 4), (8, 4), (20, 10), (4, None), (3, None)])
def test_at_most_half_is_taken_back_in_one_step_and_never_below_where_it_began(
    story: Story, current: int, expected: int | None
) -> None:
    found = follow_up_diagnosis("i", WEB, Scale(from_replicas=4, to_replicas=6), current, Family.CAPACITY, story.now)
    if expected is None:
        assert found is None
    else:
        assert found is not None
        assert found.best.action == Scale(from_replicas=current, to_replicas=expected)
