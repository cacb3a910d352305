"""An episode is a projection of a closed incident's record."""

from __future__ import annotations

import pytest
from learning_setting import RESTART, WEDGED, Setting
from sqlmodel import select

from catalog.episodes import CloseReason
from catalog.outcomes import End
from incidents.database import Database
from incidents.episodes import NotClosed, close_episode, episode_of
from incidents.tables import CellRow, EpisodeRow, IncidentRow


@pytest.fixture
def setting(database: Database) -> Setting:
    return Setting(database)


async def test_an_episode_tells_what_happened_and_who_approved(setting: Setting) -> None:
    incident = await setting.incident(approvers=("cy", "ana"))
    await setting.label(incident, True, "bo", note="good")
    async with setting.database.reading() as session:
        episode = await episode_of(session, incident)
    assert episode is not None
    assert (episode.family, episode.action, episode.executed, episode.end) == (WEDGED, RESTART, True, End.COMMITTED)
    assert (episode.scope, episode.match_digest) == ("shop", setting.match_digest)
    assert episode.approvers == ("ana", "cy")
    assert episode.close_reason is CloseReason.HELD
    assert [(label.person, label.note) for label in episode.labels] == [("bo", "good")]


async def test_closing_twice_makes_one_episode_and_counts_once(setting: Setting) -> None:
    incident = await setting.incident()
    async with setting.database.transaction() as session:
        row = await session.get(IncidentRow, incident)
        assert row is not None
        await close_episode(session, setting.policy, row, setting.tick())
    async with setting.database.reading() as session:
        assert len((await session.exec(select(EpisodeRow))).all()) == 1
        cell = (await session.exec(select(CellRow))).one()
    assert (cell.proposals, cell.settled) == (1, 0)


async def test_an_incident_that_is_not_closed_has_no_episode(setting: Setting) -> None:
    incident = await setting.incident(closed=False)
    async with setting.database.reading() as session:
        assert await episode_of(session, incident) is None
    async with setting.database.reading() as session:
        row = await session.get(IncidentRow, incident)
        assert row is not None
        with pytest.raises(NotClosed):
            await close_episode(session, setting.policy, row, setting.tick())


async def test_a_refused_order_executed_nothing(setting: Setting) -> None:
    episode = await setting.episode(await setting.incident(end="refused", close_reason="refused"))
    assert (episode.executed, episode.end) == (False, None)


async def test_an_incident_that_was_never_decided_has_no_action(setting: Setting) -> None:
    episode = await setting.episode(
        await setting.incident(end=None, proposed=False, family=None, action=None, route=None, scope=None)
    )
    assert (episode.family, episode.action, episode.route, episode.proposed) == ("unknown", "no_action", "record", False)


async def test_no_label_is_no_verdict(setting: Setting) -> None:
    episode = await setting.episode(await setting.incident(end="regressed", close_reason="regressed"))
    assert (episode.right, episode.settled_at) == (None, None)
