"""Labels: by role, latest per person, all kept, disagreement settled by an owner; approvers do not judge their own action."""

from __future__ import annotations

import pytest
from learning_setting import Setting
from sqlmodel import select

from catalog.episodes import LabelOrigin, Question
from catalog.events import EventKind, verify_chain
from incidents.database import Database
from incidents.labels import LabelRefused, LabelRequest, keep_uncounted
from incidents.recording import read_events
from incidents.tables import LabelRow
from ladder.roles import Identity


@pytest.fixture
def setting(database: Database) -> Setting:
    return Setting(database)


async def test_a_label_settles_the_episode_and_is_an_event_of_the_incident(setting: Setting) -> None:
    incident = await setting.incident()
    recorded = await setting.label(incident, True, "bo", note="healthy since", via="terminal")
    assert (recorded.settled, recorded.counts, recorded.disagreement) == (True, True, False)
    assert (await setting.episode(incident)).right is True
    async with setting.database.reading() as session:
        events = await read_events(session, incident)
    assert verify_chain(events) is None
    assert (events[-1].kind, events[-1].actor) == (EventKind.LABELLED, "bo")
    assert events[-1].payload == {"question": "action", "right": True, "settles": False, "note": "healthy since", "via": "terminal"}


async def test_g37_the_latest_label_of_a_person_holds_and_all_are_kept(setting: Setting) -> None:
    incident = await setting.incident()
    for right in (True, False, True, False):
        await setting.label(incident, right, "bo")
    assert (await setting.episode(incident)).right is False
    assert (await setting.cell()).settled == 1
    async with setting.database.reading() as session:
        assert len((await session.exec(select(LabelRow))).all()) == 4


async def test_g37_a_disagreement_counts_for_nothing_until_an_owner_settles_it(setting: Setting) -> None:
    incident = await setting.incident()
    await setting.label(incident, True, "bo")
    second = await setting.label(incident, False, "cy")
    assert second.disagreement
    assert "an owner's label settles it" in second.sentence
    assert (await setting.episode(incident)).right is None
    assert (await setting.cell()).settled == 0
    settled = await setting.label(incident, False, "ana")
    assert (settled.settled, settled.disagreement) == (False, False)
    assert (await setting.cell()).settled == 1
    await setting.label(incident, True, "cy")
    assert (await setting.episode(incident)).right is False


async def test_an_owner_without_the_labellers_role_may_settle_but_not_label(setting: Setting) -> None:
    setting.policy = type(setting.policy).model_validate_json(
        setting.policy.to_json().replace('"owner":["person:ana","person:bo"]', '"owner":["person:dora"]')
    )
    incident = await setting.incident()
    with pytest.raises(LabelRefused, match="dora is not a labeller"):
        await setting.label(incident, True, "dora")
    await setting.label(incident, True, "bo")
    await setting.label(incident, False, "cy")
    assert (await setting.label(incident, True, "dora")).settled is True


async def test_who_approved_the_action_does_not_count_for_it_but_may_say(setting: Setting) -> None:
    incident = await setting.incident(approvers=("cy",))
    recorded = await setting.label(incident, True, "cy")
    assert not recorded.counts
    assert "shown and not counted" in recorded.sentence
    assert (await setting.episode(incident)).right is None
    diagnosis = await setting.label(incident, True, "cy", question=Question.DIAGNOSIS)
    assert (diagnosis.counts, diagnosis.settled) == (True, True)
    await setting.label(incident, False, "bo")
    assert (await setting.episode(incident)).right is False


@pytest.mark.parametrize("end", ["rolled_back", "ineffective", "regressed", "unverified", "undo_incomplete"])
async def test_a_wrong_end_is_wrong_whatever_the_label(setting: Setting, end: str) -> None:
    incident = await setting.incident(end=end, close_reason=end)
    recorded = await setting.label(incident, True, "bo")
    assert recorded.settled is False
    assert "its end says so" in recorded.sentence


async def test_what_came_back_is_wrong_and_needs_no_agreement(setting: Setting) -> None:
    incident = await setting.incident(close_reason="came_back")
    assert (await setting.episode(incident)).right is None
    await setting.label(incident, True, "bo")
    await setting.label(incident, False, "cy")
    assert (await setting.episode(incident)).right is False


async def test_g17_only_labellers_label_and_could_not_check_is_its_own_refusal(setting: Setting) -> None:
    incident = await setting.incident()
    with pytest.raises(LabelRefused, match=r"dora is not a labeller of scope shop; ana, bo, cy, slack-group:S0LABEL may\."):
        await setting.label(incident, True, "dora")
    with pytest.raises(LabelRefused, match="could not be checked"):
        await setting.label(incident, True, "dora", groups=None)
    await setting.label(incident, True, "dora", groups=frozenset({"slack-group:S0LABEL"}))
    async with setting.database.reading() as session:
        assert [row.person for row in (await session.exec(select(LabelRow))).all()] == ["dora"]


async def test_what_no_scope_names_cannot_be_labelled(setting: Setting) -> None:
    incident = await setting.incident(namespace="billing")
    with pytest.raises(LabelRefused, match="nobody has a role there"):
        await setting.label(incident, True, "ana")


async def test_an_unknown_incident_a_long_note_and_an_action_that_is_not_over_are_refused(setting: Setting) -> None:
    with pytest.raises(LabelRefused, match="no incident nothing"):
        await setting.label("nothing", True)
    incident = await setting.incident()
    with pytest.raises(LabelRefused, match="at most 2000"):
        await setting.label(incident, True, note="x" * 2001)
    for phase in ("open", "diagnosed", "decided", "proposed", "ordered", "executing", "watching"):
        early = await setting.incident(closed=False, end=None, phase=phase)
        with pytest.raises(LabelRefused, match="not over yet"):
            await setting.label(early, True)
    watching = await setting.incident(closed=False, end=None, phase="watching")
    assert (await setting.label(watching, True, question=Question.DIAGNOSIS)).settled is True


async def test_a_label_given_before_the_incident_closes_counts_when_it_does(setting: Setting) -> None:
    from incidents.episodes import close_episode
    from incidents.tables import IncidentRow

    incident = await setting.incident(closed=False)
    assert (await setting.label(incident, True)).settled is True
    assert (await setting.cell()).settled == 0
    async with setting.database.transaction() as session:
        row = await session.get(IncidentRow, incident)
        assert row is not None
        row.phase, row.closed_at, row.close_reason = "closed", setting.tick(), "people"
        await close_episode(session, setting.policy, row, setting.now)
    assert (await setting.cell()).settled == 1


@pytest.mark.parametrize("origin", [LabelOrigin.MACHINE, LabelOrigin.IMPORTED, LabelOrigin.SIMULATED])
async def test_other_labels_are_kept_and_never_counted(setting: Setting, origin: LabelOrigin) -> None:
    incident = await setting.incident()
    request = LabelRequest(incident_id=incident, question=Question.ACTION, right=False, identity=Identity(person="robot"))
    async with setting.database.transaction() as session:
        await keep_uncounted(session, request, origin, now=setting.tick())
    await setting.label(incident, True, "bo")
    assert (await setting.episode(incident)).right is True


async def test_a_persons_label_has_no_other_way_in(setting: Setting) -> None:
    incident = await setting.incident()
    request = LabelRequest(incident_id=incident, question=Question.ACTION, right=True, identity=Identity(person="bo"))
    with pytest.raises(LabelRefused):
        async with setting.database.transaction() as session:
            await keep_uncounted(session, request, LabelOrigin.HUMAN, now=setting.tick())
