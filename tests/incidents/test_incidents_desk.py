"""Clicks: who may, in what order things are looked at, who wins, and that everybody is answered."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from incidents_setting import context_on
from phases_setting import ANA, BO, CY, POLICY, WEB, Story, rows, scale_up, web_facts

from catalog.actions import RestartWorkload, Scale
from catalog.diagnoses import Family
from catalog.ids import new_id
from catalog.orders import Order
from incidents.clicks import is_smaller
from incidents.desk import Desk, open_proposal
from incidents.switches import halt
from incidents.tables import ApprovalRow, OutboxRow, ProposalRow
from ladder.policy import parse_policy
from ladder.roles import Identity


async def approvals(story: Story) -> list[ApprovalRow]:
    from sqlmodel import select

    async with story.ctx.database.reading() as session:
        return list(await session.exec(select(ApprovalRow)))


async def test_an_approval_orders_exactly_what_was_on_the_card(story: Story) -> None:
    proposal = await story.proposed()
    answer = await story.desk.approve(proposal.id, ANA, "web")
    assert (answer.ok, answer.text) == (True, "Approved: restart workload.")
    await story.settle()
    (row,) = await story.orders()
    order = Order.model_validate_json(row.body)
    assert (row.state, order.mode, [one.person for one in order.approvals]) == ("minted", "approved", ["ana"])
    assert (order.template_hash, [step.kind.value for step in order.steps]) == ("hash-1", ["stamp"])
    assert (await story.incident()).phase == "ordered"


async def test_G14_F01_two_clicks_in_the_same_moment_on_two_replicas_make_one_order(story: Story) -> None:
    proposal = await story.proposed()
    other = Desk(context_on(story.ctx.database, story.ctx.clock, POLICY, "replica-2"), story.live)
    first, second = await asyncio.gather(story.desk.approve(proposal.id, ANA, "slack"), other.approve(proposal.id, BO, "discord"))
    winner, loser = (first, second) if first.ok else (second, first)
    assert winner.ok
    assert (loser.ok, loser.rule) == (False, "already_approved")
    name = "ana" if first.ok else "bo"
    assert f"already approved by {name}" in loser.text
    await story.settle()
    assert len(await story.orders()) == 1
    assert len(await approvals(story)) == 1


async def test_F01_the_same_person_twice_counts_once(story: Story) -> None:
    proposal = await story.proposed()
    answers = await asyncio.gather(*(story.desk.approve(proposal.id, ANA, "web") for _ in range(4)))
    assert sorted(answer.ok for answer in answers) == [False, False, False, True]
    await story.settle()
    assert len(await story.orders()) == 1


@pytest.mark.parametrize("seconds", [-0.001, 0, 0.001])
async def test_G16_F04_a_click_at_the_deadline_has_exactly_one_outcome(story: Story, seconds: float) -> None:
    proposal = await story.proposed()
    story.pass_time(seconds=(proposal.expires_at - story.now).total_seconds() + seconds)
    answer, _ = await asyncio.gather(story.desk.approve(proposal.id, ANA, "web"), story.settle())
    state = (await story.stored(proposal.id)).state
    if answer.ok:
        assert seconds < 0
        assert state in ("approved", "carried_out")
    else:
        assert (answer.rule, state) == ("expired", "expired")
        assert "nobody had approved it" in answer.text


async def test_G17_a_person_who_is_not_an_approver_is_refused_told_who_may_and_audited(story: Story) -> None:
    proposal = await story.proposed()
    for click in (story.desk.approve(proposal.id, CY, "web"), story.desk.reject(proposal.id, CY, "web", "no")):
        answer = await click
        assert (answer.ok, answer.code, answer.rule) == (False, "not_allowed", "not_an_approver")
        assert "ana, bo may" in answer.text
    refused = [event for event in await story.events() if event.kind.value == "click_refused"]
    assert [event.actor for event in refused] == ["cy", "cy"]
    assert (await story.stored(proposal.id)).state == "pending"


async def test_not_a_member_is_kept_apart_from_could_not_check(story: Story) -> None:
    proposal = await story.proposed()
    story.ctx.policies.current = parse_policy(POLICY.replace("[person:ana, person:bo]", "[slack-group:S0SRE]"))
    unknown = await story.desk.approve(proposal.id, Identity(person="dee", groups=None), "slack")
    assert (unknown.code, unknown.rule) == ("unavailable", "could_not_check")
    outside = await story.desk.approve(proposal.id, Identity(person="dee", groups=frozenset()), "slack")
    assert (outside.code, outside.rule) == ("not_allowed", "not_an_approver")
    assert (await story.stored(proposal.id)).state == "pending"
    inside = await story.desk.approve(proposal.id, Identity(person="dee", groups=frozenset({"slack-group:S0SRE"})), "slack")
    assert inside.ok


async def test_an_empty_list_of_approvers_is_nobody(story: Story) -> None:
    proposal = await story.proposed()
    scopes = story.policy.scopes
    nobody = scopes[0].model_copy(update={"roles": scopes[0].roles.model_copy(update={"approver": ()})})
    story.ctx.policies.current = story.policy.model_copy(update={"scopes": (nobody,)})
    answer = await story.desk.approve(proposal.id, ANA, "web")
    assert (answer.ok, answer.rule) == (False, "not_an_approver")


async def test_F02_a_click_after_the_alert_resolved_does_nothing_and_says_why(story: Story) -> None:
    proposal = await story.proposed()
    await story.resolves()
    answer = await story.desk.approve(proposal.id, ANA, "web")
    assert (answer.ok, answer.rule) == (False, "resolved")
    story.pass_time(seconds=31)
    await story.settle()
    row = await story.incident()
    assert (row.phase, row.close_reason) == ("closed", "self_resolved")
    assert "proposal_withdrawn" in await story.kinds()
    late = await story.desk.approve(proposal.id, ANA, "web")
    assert (late.ok, late.rule) == (False, "withdrawn")
    assert await story.orders() == []


async def test_F02_a_workload_that_people_changed_is_closed_as_theirs(story: Story) -> None:
    await story.proposed()
    assert story.outside.facts is not None
    story.outside.facts = story.outside.facts.model_copy(update={"template_hash": "hash-2"})
    await story.resolves()
    story.pass_time(seconds=31)
    await story.settle()
    assert (await story.incident()).close_reason == "people"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"template_hash": "hash-2"}, "pod template"),
        ({"exists": False}, "is gone"),
    ],
)
async def test_a_click_on_a_changed_target_is_stale_and_is_proposed_anew(
    story: Story, changes: dict[str, object], told: str
) -> None:
    proposal = await story.proposed()
    story.live.now = story.live.now.model_copy(update=changes)
    answer = await story.desk.approve(proposal.id, ANA, "web")
    assert (answer.ok, answer.rule) == (False, "stale")
    assert told in answer.text
    assert (await story.stored(proposal.id)).state == "stale"
    await story.settle()
    assert await story.orders() == []
    fresh = await story.proposal()
    assert (fresh.id != proposal.id, fresh.state) == (True, "pending")


async def test_a_recreated_target_is_stale(story: Story) -> None:
    proposal = await story.proposed()
    story.live.now = story.live.now.model_copy(update={"target": story.live.now.target.model_copy(update={"uid": "uid-other"})})
    assert (await story.desk.approve(proposal.id, ANA, "web")).rule == "stale"


async def test_a_scale_is_stale_when_replicas_changed_and_not_when_the_template_did(story: Story) -> None:
    story.outside.action, story.outside.family = scale_up(), Family.CAPACITY
    story.outside.write()
    proposal = await story.proposed()
    assert proposal.fingerprint == "4"
    story.live.now = story.live.now.model_copy(update={"template_hash": "hash-2"})
    assert (await story.desk.approve(proposal.id, ANA, "web")).ok
    await story.settle()
    (order,) = await story.orders()
    assert Order.model_validate_json(order.body).to_replicas == 6


async def test_a_scale_whose_replicas_changed_is_stale(story: Story) -> None:
    story.outside.action, story.outside.family = scale_up(), Family.CAPACITY
    story.outside.write()
    proposal = await story.proposed()
    story.live.now = story.live.now.model_copy(update={"desired": 5})
    answer = await story.desk.approve(proposal.id, ANA, "web")
    assert (answer.rule, "scaled from 4 to 5" in answer.text) == ("stale", True)


async def test_F10_a_target_that_cannot_be_read_is_not_a_refusal_for_good(story: Story) -> None:
    proposal = await story.proposed()
    story.live.down = True
    answer = await story.desk.approve(proposal.id, ANA, "web")
    assert (answer.ok, answer.code, answer.rule) == (False, "unavailable", "target_unreadable")
    assert (await story.stored(proposal.id)).state == "pending"
    story.live.down = False
    assert (await story.desk.approve(proposal.id, ANA, "web")).ok


async def test_F10_a_template_that_could_not_be_read_is_not_a_change(story: Story) -> None:
    proposal = await story.proposed()
    story.live.now = story.live.now.model_copy(update={"template_hash": None})
    assert (await story.desk.approve(proposal.id, ANA, "web")).rule == "target_unreadable"
    assert (await story.stored(proposal.id)).state == "pending"


@pytest.mark.parametrize("unknown", ["01J0000000000000000000000", "nonsense", ""])
async def test_F07_an_unknown_proposal_is_answered(story: Story, unknown: str) -> None:
    answer = await story.desk.approve(unknown, ANA, "web")
    assert (answer.ok, answer.code) == (False, "not_found")
    assert "nothing was done" in answer.text
    assert (await story.desk.approve(new_id(story.now), ANA, "web")).rule == "unknown"
    assert (await story.desk.take(new_id(story.now), ANA, "web")).rule == "unknown"


async def test_F05_a_click_decides_the_proposal_it_carries_and_no_other(story: Story) -> None:
    first = await story.proposed()
    other = WEB.model_copy(update={"name": "api", "uid": "uid-api"})
    story.outside.target, story.outside.facts = other, web_facts(story.now, target=other)
    story.outside.write()
    await story.fires("PodWedged", "f2", target=other)
    await story.settle()
    second = await story.proposal(2)
    assert (await story.desk.reject(second.id, BO, "web", "not now")).ok
    assert (await story.stored(first.id)).state == "pending"
    assert (await story.desk.approve(first.id, ANA, "web")).ok
    assert (await story.stored(second.id)).state == "rejected"


async def test_a_rejected_action_is_not_proposed_again_until_a_new_start(story: Story) -> None:
    proposal = await story.proposed()
    assert (await story.desk.reject(proposal.id, ANA, "web", "we know this one")).ok
    await story.settle()
    assert (await story.incident()).phase == "notified"
    assert (await story.desk.approve(proposal.id, BO, "web")).rule == "already_rejected"
    story.pass_time(minutes=5)
    await story.fires("PodWedged", "f2")
    await story.settle()
    fresh = await story.proposal()
    assert (fresh.id != proposal.id, fresh.state) == (True, "pending")


async def test_a_rejection_still_holds_when_it_is_judged_again_after_six_hours(story: Story) -> None:
    proposal = await story.proposed()
    await story.desk.reject(proposal.id, ANA, "web", "we know this one")
    await story.settle()
    story.pass_time(hours=6, seconds=1)
    await story.settle()
    row = await story.incident()
    assert (row.phase, row.proposal_id) == ("notified", proposal.id)
    case = (await story.documents("case"))[-1]
    assert case.body is not None
    assert '"rejected_by":"ana"' in case.body


async def test_two_people_are_needed_where_the_scope_asks_for_two(story: Story) -> None:
    story.change_policy("    ceiling:", "    quorum: 2\n    ceiling:")
    proposal = await story.proposed()
    first = await story.desk.approve(proposal.id, ANA, "slack")
    assert (first.ok, "1 of 2" in first.text) == (True, True)
    assert (await story.desk.approve(proposal.id, ANA, "web")).rule == "already_counted"
    await story.settle()
    assert await story.orders() == []
    assert (await story.desk.approve(proposal.id, BO, "discord")).ok
    await story.settle()
    (row,) = await story.orders()
    assert [one.person for one in Order.model_validate_json(row.body).approvals] == ["ana", "bo"]


async def test_G29_a_click_while_halted_changes_nothing_and_says_who_halted(story: Story) -> None:
    proposal = await story.proposed()
    await halt(story.ctx, CY, "network work")
    answer = await story.desk.approve(proposal.id, ANA, "web")
    assert (answer.ok, answer.rule) == (False, "gate:switches")
    assert "Halted by cy: network work" in answer.text
    assert (await story.stored(proposal.id)).state == "pending"


async def test_G49_rules_that_changed_since_the_card_are_asked_and_said(story: Story) -> None:
    proposal = await story.proposed()
    story.change_policy("restart_workload: R5, ", "restart_workload: R3, ")
    answer = await story.desk.approve(proposal.id, ANA, "web")
    assert (answer.ok, answer.rule) == (False, "gate:scope")
    assert "The rules changed since this card was made" in answer.text


async def test_a_freeze_asks_for_a_typed_reason(story: Story) -> None:
    from incidents.switches import freeze

    proposal = await story.proposed()
    await freeze(story.ctx, ANA, "shop", timedelta(hours=1), "release day")
    assert (await story.desk.approve(proposal.id, ANA, "web")).rule == "gate:switches"
    assert (await story.desk.approve(proposal.id, ANA, "web", override="customers cannot pay")).ok
    await story.settle()
    (order,) = await story.orders()
    assert order.state == "minted"


async def test_a_reminder_comes_once_at_half_time_and_expiry_renews_at_most_twice(story: Story) -> None:
    await story.proposed()
    story.pass_time(minutes=7, seconds=31)
    await story.settle()
    story.pass_time(minutes=1)
    await story.settle()
    assert (await story.kinds()).count("reminded") == 1
    async with story.ctx.database.reading() as session:
        assert [one.kind for one in await rows(session, OutboxRow)].count("reminder") == 1
    for _ in range(3):
        story.pass_time(minutes=16)
        await story.settle()
    kinds = await story.kinds()
    row = await story.incident()
    assert (kinds.count("proposal_expired"), kinds.count("proposed"), row.phase) == (3, 3, "notified")
    assert row.strongest == "expired"


# changes -----------------------------------------------------------------------------------------------------------------------


async def scaled(story: Story) -> ProposalRow:
    story.outside.action, story.outside.family = Scale(from_replicas=4, to_replicas=8), Family.CAPACITY
    story.outside.write()
    return await story.proposed()


async def test_G19_an_edit_that_makes_it_smaller_counts_as_the_editors_approval(story: Story) -> None:
    proposal = await scaled(story)
    answer = await story.desk.edit(proposal.id, ANA, "web", scale_up())
    assert answer.ok
    await story.settle()
    (row,) = await story.orders()
    order = Order.model_validate_json(row.body)
    assert (order.to_replicas, [one.person for one in order.approvals]) == (6, ["ana"])
    edited = await story.proposal()
    assert (edited.requested_by, (await story.stored(proposal.id)).state) == ("ana", "superseded")


async def test_G19_an_edit_that_makes_it_larger_needs_somebody_else(story: Story) -> None:
    story.outside.action, story.outside.family = Scale(from_replicas=4, to_replicas=5), Family.CAPACITY
    story.outside.write()
    proposal = await story.proposed()
    answer = await story.desk.edit(proposal.id, ANA, "web", scale_up())
    assert (answer.ok, "ask bo" in answer.text) == (True, True)
    edited = await story.proposal()
    own = await story.desk.approve(edited.id, ANA, "web")
    assert (own.ok, own.rule) == (False, "self_approval")
    assert (await story.desk.approve(edited.id, BO, "web")).ok


async def test_G19_an_edit_beyond_the_bounds_is_refused_by_the_rule_that_bounds_it(story: Story) -> None:
    proposal = await scaled(story)
    answer = await story.desk.edit(proposal.id, ANA, "web", Scale(from_replicas=4, to_replicas=40))
    assert (answer.ok, answer.rule) == (False, "edit_refused")
    assert (await story.stored(proposal.id)).state == "pending"
    assert (await story.desk.edit(proposal.id, ANA, "web", RestartWorkload())).rule == "another_action"
    assert (await story.desk.edit(proposal.id, ANA, "web", Scale(from_replicas=4, to_replicas=8))).rule == "unchanged"


def test_only_a_smaller_scale_in_the_same_direction_is_smaller() -> None:
    before = Scale(from_replicas=4, to_replicas=8)
    assert is_smaller(Scale(from_replicas=4, to_replicas=6), before)
    assert not is_smaller(Scale(from_replicas=4, to_replicas=9), before)
    assert not is_smaller(Scale(from_replicas=4, to_replicas=3), before)
    assert not is_smaller(RestartWorkload(), RestartWorkload())


# taking over -------------------------------------------------------------------------------------------------------------------


async def test_taking_over_withdraws_and_closes_and_the_second_is_told_who_has_it(story: Story) -> None:
    proposal = await story.proposed()
    row = await story.incident()
    assert (await story.desk.take(row.id, BO, "web")).ok
    second = await story.desk.take(row.id, ANA, "web")
    assert (second.rule, "bo has incident" in second.text) == ("already_taken", True)
    await story.settle()
    row = await story.incident()
    assert (row.phase, row.close_reason) == ("closed", "taken_over")
    assert (await story.stored(proposal.id)).state == "withdrawn"
    assert (await story.desk.take(row.id, ANA, "web")).rule == "closed"


async def test_taking_over_a_running_order_stops_its_next_step(story: Story) -> None:
    order = await story.executing()
    row = await story.incident()
    answer = await story.desk.take(row.id, ANA, "web")
    assert "takes no further step" in answer.text
    assert (await story.claim()).taken_over == (order.id,)


async def test_an_order_taken_over_before_delivery_is_never_delivered(story: Story) -> None:
    proposal = await story.proposed()
    await story.desk.approve(proposal.id, ANA, "web")
    await story.settle()
    row = await story.incident()
    await story.desk.take(row.id, BO, "web")
    assert (await story.claim()).orders == ()
    await story.settle()
    (order,) = await story.orders()
    assert (order.state, (await story.incident()).close_reason) == ("expired", "taken_over")


async def test_a_person_without_a_role_may_not_take(story: Story) -> None:
    await story.proposed()
    row = await story.incident()
    answer = await story.desk.take(row.id, Identity(person="dee"), "web")
    assert (answer.ok, answer.rule) == (False, "no_role")


async def test_the_proposal_of_an_incident_is_found_for_a_command(story: Story) -> None:
    proposal = await story.proposed()
    async with story.ctx.database.reading() as session:
        found = await open_proposal(session, proposal.incident_id)
        assert found is not None
        assert found.id == proposal.id
        assert await open_proposal(session, new_id(story.now)) is None
