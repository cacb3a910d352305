"""From a stored alert to a closed incident, driven by the reconciler alone, on both databases."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from phases_setting import ANA, WEB, Story, rows
from sqlmodel import select

from catalog.cases import Rung
from catalog.events import verify_chain
from catalog.outcomes import End
from incidents.leading import Candidate, LeadershipLost, Term
from incidents.tables import AlertRow, EpisodeRow, IncidentRow, LeaseRow, OutboxRow


async def test_an_alert_becomes_a_proposal_with_every_input_stored(story: Story) -> None:
    proposal = await story.proposed()
    row = await story.incident()
    assert (row.phase, row.route, proposal.state) == ("proposed", "propose", "pending")
    assert await story.kinds() == ["opened", "alert_attached", "diagnosed", "verified", "decided", "proposed"]
    assert verify_chain(await story.events()) is None
    for kind in ("symptoms", "diagnosis", "readings", "evidence", "case", "decision"):
        (document,) = await story.documents(kind)
        assert document.body is not None
        assert len(document.body.encode()) <= 64 * 1024
    assert proposal.expires_at == story.now + timedelta(minutes=15)
    assert (proposal.target_uid, proposal.fingerprint) == ("uid-web", "hash-1")


async def test_an_automatic_order_is_delivered_committed_watched_and_held(story: Story) -> None:
    order = await story.executing()
    assert (order.mode, [step.kind.value for step in order.steps]) == ("auto", ["open", "evict", "stamp"])
    assert (await story.incident()).phase == "executing"
    await story.ends(order, End.COMMITTED)
    assert (await story.incident()).phase == "watching"
    story.pass_time(minutes=5)
    await story.resolves()
    await story.settle()
    assert (await story.incident()).phase == "watching"
    story.pass_time(minutes=26)
    await story.settle()
    row = await story.incident()
    assert (row.phase, row.close_reason) == ("closed", "held")
    assert verify_chain(await story.events()) is None


async def test_nothing_is_decided_twice_and_a_resend_changes_nothing(story: Story) -> None:
    await story.earned(Rung.R3)
    await story.fires()
    await story.settle()
    assert (await story.incident()).phase == "notified"
    asked = story.outside.asked()
    assert asked == ["triage", "verify"]
    story.pass_time(minutes=10)
    await story.settle()
    assert story.outside.asked() == asked


# the outside fails ---------------------------------------------------------------------------------------------------------------


async def test_triage_that_fails_is_tried_again_with_its_trouble_shown_and_then_gone_on_without(story: Story) -> None:
    story.outside.write(triage={"raise": "a defect"})
    await story.fires()
    await story.settle()
    row = await story.incident()
    assert (row.phase, row.failures, "a defect" in row.trouble) == ("open", 1, True)
    assert row.next_at == story.now + timedelta(seconds=1)
    for _ in range(3):
        story.pass_time(seconds=30)
        await story.settle()
    row = await story.incident()
    assert (row.phase, row.family, row.failures, row.trouble) == ("notified", "unknown", 0, "")
    (diagnosis,) = await story.documents("diagnosis")
    assert diagnosis.body is not None
    assert "triage gave no answer" in diagnosis.body
    assert (await story.kinds()).count("degraded") == 1


async def test_G22_a_verifier_without_an_answer_is_no_evidence_and_never_automatic(story: Story) -> None:
    await story.earned()
    story.outside.write(verify={"raise": "too slow"})
    await story.fires()
    await story.settle()
    row = await story.incident()
    assert (row.phase, row.route, row.evidence_id) == ("notified", "notify", None)
    (decision,) = await story.documents("decision")
    assert decision.body is not None
    assert '"route":"notify"' in decision.body
    decided = next(event for event in await story.events() if event.kind.value == "decided")
    assert decided.payload is not None
    assert any("too slow" in line for line in decided.payload["degraded"])


@pytest.mark.parametrize(
    ("changes", "route"),
    [
        ({"firing": None}, "propose"),
        ({"firing": False}, "propose"),
        ({"silenced": True}, "propose"),
        ({"silenced": None}, "propose"),
        ({"weight": 0.7}, "propose"),
        ({"weight": 0.4}, "notify"),
        ({"weight": None}, "notify"),
        ({"facts": None}, "notify"),
        ({}, "auto"),
    ],
)
async def test_G26_a_decision_falls_with_what_its_sources_cannot_say(story: Story, changes: dict[str, Any], route: str) -> None:
    await story.earned()
    for name, value in changes.items():
        setattr(story.outside, name, value)
    story.outside.write()
    await story.fires()
    await story.settle()
    assert (await story.incident()).route == route


async def test_G38_a_namespace_without_a_scope_is_told_to_people_with_the_hint(story: Story) -> None:
    story.outside.target = WEB.model_copy(update={"namespace": "other"})
    await story.fires(target=story.outside.target)
    story.outside.facts = None
    story.outside.write()
    await story.settle()
    row = await story.incident()
    assert (row.phase, row.route, row.scope) == ("notified", "notify", None)


async def test_G43_F64_a_target_that_triage_invented_is_never_acted_on(story: Story) -> None:
    await story.earned()
    await story.fires(target=WEB.model_copy(update={"name": "api"}))
    await story.settle()
    assert (await story.incident()).route == "notify"
    case = (await story.documents("case"))[0]
    assert case.body is not None
    assert "was named as the alert's own target" in case.body


async def test_a_cluster_that_left_the_policy_is_said_and_nothing_is_stuck(story: Story) -> None:
    await story.fires()
    story.ctx.policies.current = story.policy.model_copy(update={"clusters": ()})
    await story.settle()
    row = await story.incident()
    assert (row.phase, row.family) == ("notified", "unknown")
    assert story.outside.asked() == []


async def test_a_defect_in_one_incident_waits_ever_longer_and_stops_no_other(story: Story) -> None:
    await story.earned(Rung.R4)
    await story.fires()
    await story.fires(fingerprint="f2", target=WEB.model_copy(update={"name": "api", "uid": "uid-api"}))
    async with story.ctx.database.transaction() as session:
        row = (await session.exec(select(IncidentRow).where(IncidentRow.number == 1))).one()
        row.again = "nonsense"
        session.add(row)
    await story.settle()
    first, second = await story.incidents()
    assert (first.phase, second.phase) == ("open", "notified")
    assert "nonsense" in first.trouble
    pauses = []
    for _ in range(10):
        row = await story.incident()
        assert row.next_at is not None
        pauses.append((row.next_at - story.now).total_seconds())
        story.pass_time(seconds=pauses[-1])
        await story.settle()
    assert pauses == [1, 2, 4, 8, 16, 32, 64, 120, 120, 120]
    assert (await story.kinds()).count("degraded") == 1


async def test_a_look_that_finds_the_incident_elsewhere_is_thrown_away(story: Story) -> None:
    await story.earned(Rung.R4)
    await story.fires()
    await story.settle()
    story.pass_time(minutes=1)
    await story.fires("HighErrorRate", "f2")
    term = story.term
    assert term is not None
    (incident_id,) = await story.reconciler._claim(term, limit=1)
    while (step := await story.reconciler._step(term, incident_id)).look is None:
        assert not step.done
    await story.desk.take(incident_id, ANA, "web")
    await story.reconciler._look(term, step.look)
    row = await story.incident()
    assert (row.phase, len(await story.documents("diagnosis"))) == ("open", 1)
    story.pass_time(seconds=31)
    await story.settle()
    assert (await story.incident()).close_reason == "taken_over"


async def test_a_look_of_an_earlier_version_of_the_row_is_thrown_away(story: Story) -> None:
    await story.fires()
    term = await _term(story)
    (incident_id,) = await story.reconciler._claim(term, limit=1)
    step = await story.reconciler._step(term, incident_id)
    assert step.look is not None
    async with story.ctx.database.transaction() as session:
        row = await session.get(IncidentRow, incident_id)
        assert row is not None
        row.version += 1
        session.add(row)
    await story.reconciler._look(term, step.look)
    assert (await story.incident()).phase == "open"


async def test_a_family_that_comes_during_triage_is_new_and_triaged_again(story: Story) -> None:
    await story.earned(Rung.R4)
    await story.fires()
    term = await _term(story)
    (incident_id,) = await story.reconciler._claim(term, limit=1)
    step = await story.reconciler._step(term, incident_id)
    assert step.look is not None
    await story.fires("HighErrorRate", "f2")
    await story.reconciler._look(term, step.look)
    assert (await story.incident()).phase == "diagnosed"
    await story.reconciler._trouble(term, incident_id, "gives the claim back")
    story.pass_time(seconds=2)
    await story.settle()
    assert story.outside.asked().count("triage") == 2
    assert (await story.incident()).judged_names == '["HighErrorRate", "PodWedged"]'


async def test_more_alerts_than_triage_is_shown_do_not_make_it_look_for_ever(story: Story) -> None:
    for n in range(60):
        await story.fires(f"Family{n}", f"f{n}")
    await story.settle()
    assert (await story.incident()).phase == "notified"
    assert story.outside.asked().count("triage") == 1


# alerts come and go


async def test_a_new_family_supersedes_the_proposal_and_asks_anew(story: Story) -> None:
    first = await story.proposed()
    story.pass_time(minutes=1)
    await story.fires("HighErrorRate", "f2")
    await story.settle()
    second = await story.proposal()
    assert ((await story.stored(first.id)).state, second.state, second.id != first.id) == ("superseded", "pending", True)
    assert "reopened" in await story.kinds()


async def test_F16_an_unchanged_verdict_after_six_hours_is_recorded_and_says_nothing(story: Story) -> None:
    story.outside.weight = 0.4
    story.outside.write()
    await story.earned(Rung.R4)
    await story.fires()
    await story.settle()
    assert (await story.incident()).phase == "notified"
    story.pass_time(hours=6, seconds=1)
    await story.settle()
    row = await story.incident()
    assert (row.phase, row.route) == ("recorded", "record")
    assert story.outside.asked().count("triage") == 2


async def test_F20_a_resolve_that_was_none_is_taken_back_when_the_source_says_so(story: Story) -> None:
    await story.proposed()
    story.outside.still_firing = True
    await story.resolves()
    story.pass_time(seconds=31)
    await story.settle()
    row = await story.incident()
    assert row.phase == "proposed"
    async with story.ctx.database.reading() as session:
        (alert,) = await rows(session, AlertRow)
    assert (alert.status, alert.resolved_at) == ("firing", None)
    assert story.outside.asked().count("confirm") == 1


async def test_F20_a_source_that_cannot_confirm_is_waited_for_five_minutes(story: Story) -> None:
    await story.proposed()
    story.outside.still_firing = None
    await story.resolves()
    story.pass_time(minutes=1)
    await story.settle()
    assert (await story.incident()).phase == "proposed"
    story.pass_time(minutes=5)
    await story.settle()
    row = await story.incident()
    assert (row.phase, row.close_reason) == ("closed", "self_resolved")


async def test_P08_an_alert_that_resolves_before_anybody_looked_is_closed_without_a_card(story: Story) -> None:
    await story.earned()
    await story.fires()
    await story.resolves()
    await story.settle()
    story.pass_time(minutes=1)
    await story.settle()
    row = await story.incident()
    assert (row.phase, row.close_reason) == ("closed", "self_resolved")
    assert story.outside.asked() == ["confirm"]
    assert await story.orders() == []
    async with story.ctx.database.reading() as session:
        assert await rows(session, OutboxRow) == []


async def test_F22_what_nobody_hears_of_for_a_day_ends_as_unknown(story: Story) -> None:
    await story.fires()
    await story.settle()
    story.pass_time(hours=24)
    await story.settle()
    row = await story.incident()
    assert (row.phase, row.close_reason) == ("closed", "unknown")


async def test_an_episode_is_made_when_an_incident_closes(story: Story) -> None:
    await story.proposed()
    await story.resolves()
    story.pass_time(minutes=1)
    await story.settle()
    async with story.ctx.database.reading() as session:
        (episode,) = await rows(session, EpisodeRow)
    assert (episode.close_reason, episode.proposed, episode.executed) == ("self_resolved", True, False)


# leadership, crashes, the loop


async def test_a_new_leader_takes_over_what_the_old_one_had_claimed_at_once(story: Story) -> None:
    await story.earned(Rung.R4)
    await story.fires()
    old = await _term(story)
    assert len(await story.reconciler._claim(old, limit=8)) == 1
    assert await story.reconciler._claim(old, limit=8) == []
    successor = Candidate(story.ctx.database, story.ctx.clock, "replica-2")
    assert await successor.acquire() is None
    story.ctx.clock.advance(16)  # type: ignore[attr-defined]
    new = await successor.acquire()
    assert new is not None
    assert len(await story.reconciler._claim(new, limit=8)) == 1
    with pytest.raises(LeadershipLost):
        await story.reconciler._step(old, (await story.incident()).id)


async def test_a_leader_that_lost_its_term_while_it_asked_keeps_nothing(story: Story) -> None:
    await story.fires()
    old = await _term(story)
    (incident_id,) = await story.reconciler._claim(old, limit=1)
    step = await story.reconciler._step(old, incident_id)
    assert step.look is not None
    async with story.ctx.database.transaction() as session:
        lease = await session.get(LeaseRow, "leader")
        assert lease is not None
        lease.term += 1
        session.add(lease)
    with pytest.raises(LeadershipLost):
        await story.reconciler._look(old, step.look)
    assert (await story.incident()).phase == "open"


async def test_the_loop_looks_at_once_when_woken_and_works_side_by_side(story_of_two_processes: Story) -> None:
    story = story_of_two_processes
    await story.earned(Rung.R4)
    term = await _term(story)
    leading = asyncio.create_task(story.reconciler.lead(term))
    try:
        for n in range(20):
            await story.fires(fingerprint=f"f{n}", target=WEB.model_copy(update={"name": f"w{n}", "uid": f"uid-{n}"}))
        story.reconciler.wake()
        async with asyncio.timeout(40):
            while {row.phase for row in await story.incidents()} != {"notified"}:  # noqa: ASYNC110 - rows, not an event
                await asyncio.sleep(0.02)
    finally:
        leading.cancel()
        await asyncio.gather(leading, return_exceptions=True)
    assert story.outside.asked().count("triage") == 20


async def test_a_worker_that_dies_in_the_middle_costs_a_retry_and_nothing_else(story_of_two_processes: Story) -> None:
    story = story_of_two_processes
    story.outside.write(triage=[{"die": True}])
    await story.earned(Rung.R4)
    await story.fires()
    await story.settle()
    row = await story.incident()
    assert (row.phase, row.failures) == ("open", 1)
    story.outside.changes.clear()
    story.pass_time(seconds=2)
    await story.settle()
    assert (await story.incident()).phase == "proposed"


async def _term(story: Story) -> Term:
    story.term = story.term or await Candidate(story.ctx.database, story.ctx.clock, story.ctx.replica).acquire()
    assert story.term is not None
    return story.term
