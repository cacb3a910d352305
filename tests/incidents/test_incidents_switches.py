"""Halt, freeze, release: anybody may stop, an owner lets go, and both are kept."""

from __future__ import annotations

from datetime import timedelta

from phases_setting import ANA, BO, CY, POLICY, UID, Story, rows

from catalog.ids import new_id
from incidents.switches import STORM, freeze, halt, halt_state, halt_switch, release, resume, switches_for, unfreeze
from incidents.tables import SwitchRow
from ladder.policy import parse_policy
from ladder.roles import Identity


async def test_anybody_who_is_named_may_halt_and_only_an_owner_resumes(story: Story) -> None:
    assert (await halt(story.ctx, Identity(person="stranger"), "why not")).rule == "role"
    stopped = await halt(story.ctx, CY, "network work")
    assert (stopped.ok, "Nothing is open" in stopped.text) == (True, True)
    refused = await resume(story.ctx, BO, "enough")
    assert (refused.ok, refused.code, "ask ana" in refused.text) == (False, "not_allowed", True)
    async with story.ctx.database.reading() as session:
        switch = await halt_switch(session, story.now)
    assert (switch.halted, switch.by, switch.reason, switch.hard) == (True, "cy", "network work", False)
    assert (await resume(story.ctx, ANA, "done")).ok
    assert (await resume(story.ctx, ANA, "done")).rule == "not_halted"
    async with story.ctx.database.reading() as session:
        (row,) = await rows(session, SwitchRow)
        assert not (await halt_switch(session, story.now)).halted
    assert (row.set_by, row.lifted_by, row.lifted_why) == ("cy", "ana", "done")


async def test_a_second_halt_says_who_was_first_and_a_hard_one_hardens(story: Story) -> None:
    await halt(story.ctx, CY, "first")
    assert "Already halted by cy" in (await halt(story.ctx, BO, "second")).text
    await halt(story.ctx, BO, "everything", hard=True)
    async with story.ctx.database.reading() as session:
        switch, state = await halt_switch(session, story.now), await halt_state(session, story.now)
    assert (switch.hard, state.hard, state.word) == (True, True, "halted")
    await resume(story.ctx, ANA, "done")
    async with story.ctx.database.reading() as session:
        assert (await halt_state(session, story.now)).word == "running"


async def test_a_role_that_could_not_be_checked_is_a_refusal_of_its_own(story: Story) -> None:
    story.ctx.policies.current = parse_policy(POLICY.replace("owner: [person:ana]", "owner: [slack-group:S0OWN]"))
    await halt(story.ctx, CY, "stop")
    answer = await resume(story.ctx, Identity(person="dee", groups=None), "done")
    assert (answer.code, answer.rule) == ("unavailable", "could_not_check")
    async with story.ctx.database.reading() as session:
        assert (await halt_switch(session, story.now)).halted


async def test_a_freeze_covers_its_scope_and_ends_by_itself(story: Story) -> None:
    assert (await freeze(story.ctx, ANA, "nowhere", timedelta(hours=1), "release")).code == "not_found"
    assert (await freeze(story.ctx, CY, "shop", timedelta(hours=1), "release")).rule == "role"
    assert (await freeze(story.ctx, BO, "shop", timedelta(hours=1), "release")).ok
    async with story.ctx.database.reading() as session:
        inside = await switches_for(session, ("shop",), story.now)
        outside = await switches_for(session, ("other",), story.now)
        later = await switches_for(session, ("shop",), story.now + timedelta(hours=1))
    assert ([one.reason for one in inside.freezes], outside.freezes, later.freezes) == (["release"], (), ())


async def test_an_owner_unfreezes(story: Story) -> None:
    await freeze(story.ctx, BO, "shop", timedelta(hours=1), "release")
    assert (await unfreeze(story.ctx, BO, "shop", "done")).rule == "role"
    assert (await unfreeze(story.ctx, ANA, "shop", "done")).ok
    assert (await unfreeze(story.ctx, ANA, "shop", "done")).rule == "no_freeze"


async def test_a_storm_is_released_by_an_owner_only(story: Story) -> None:
    async with story.ctx.database.transaction() as session:
        session.add(SwitchRow(id=new_id(story.now), kind=STORM, cluster_uid=UID, reason="many", set_by="bot", set_at=story.now))
    assert (await release(story.ctx, BO, "calm again")).rule == "role"
    assert (await release(story.ctx, ANA, "calm again", cluster_uid="uid-us")).rule == "no_storm"
    assert (await release(story.ctx, ANA, "calm again")).ok
