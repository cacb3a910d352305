"""The gate opens at declared looks, on human labels of enough people, and closes by itself."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from itertools import count
from pathlib import Path

import pytest
from learning_setting import RESTART, START, WEDGED, Setting
from sqlalchemy import event
from sqlmodel import select

from catalog.actions import RemediationAction
from catalog.diagnoses import Family
from catalog.episodes import LabelOrigin, Question
from incidents.bounding import lower_bounds
from incidents.calibrating import refresh_bounds
from incidents.database import Database
from incidents.labels import LabelRequest, keep_uncounted, record_label
from incidents.standings import standing_record
from incidents.tables import EpisodeRow, LabelRow, LookRow
from ladder.policy import parse_policy
from ladder.roles import Identity

PERSONS = ("bo", "cy")


@pytest.fixture
def setting(database: Database) -> Setting:
    return Setting(database)


@pytest.fixture
async def sqlite_setting(sqlite_url: str) -> AsyncIterator[Setting]:
    database = Database.open(sqlite_url)
    yield Setting(database)
    await database.close()


@pytest.fixture(scope="session")
def lived(_migrated_sqlite: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[str, ...]]:
    """A database in which 49 incidents were lived through and labelled right, made once, and their ids."""
    path = tmp_path_factory.mktemp("lived") / "incidents.db"
    shutil.copy(_migrated_sqlite, path)

    async def live() -> tuple[str, ...]:
        setting = Setting(Database.open(f"sqlite:///{path}"))
        ids = await setting.live(49)
        await setting.database.close()
        return tuple(ids)

    return path, asyncio.run(live())


@pytest.fixture
async def at_49(lived: tuple[Path, tuple[str, ...]], tmp_path: Path) -> AsyncIterator[Setting]:
    """The next label is the fiftieth."""
    path = tmp_path / "lived.db"
    shutil.copy(lived[0], path)
    database = Database.open(f"sqlite:///{path}")
    yield Setting(database, now=START + timedelta(hours=1), _numbers=count(50))
    await database.close()


async def test_49_human_labels_open_nothing_and_the_fiftieth_does(setting: Setting) -> None:
    await setting.live(49)
    cell = await setting.cell()
    assert (cell.open, cell.settled, cell.right, cell.last_look, cell.next_look) == (False, 49, 49, None, 50)
    await setting.live(1)
    cell = await setting.cell()
    assert (cell.open, cell.settled, cell.last_look, cell.next_look) == (True, 50, 50, 75)
    (look,) = await setting.looked()
    assert (look.n, look.right, look.opened, look.closed) == (50, 50, True, False)


async def test_at_50_48_right_does_not_open_and_49_does(sqlite_setting: Setting) -> None:
    await sqlite_setting.live(50, wrong=2)
    cell = await sqlite_setting.cell()
    assert not cell.open
    assert cell.reason == "the look at 50 allows at most 1 wrong, and 2 were wrong"
    await sqlite_setting.live(50, wrong=1, family=Family.CAPACITY.value)
    assert (await sqlite_setting.cell(Family.CAPACITY)).open


async def test_between_declared_looks_nothing_opens(sqlite_setting: Setting) -> None:
    ids = await sqlite_setting.live(50, wrong=2)
    # People correct both: 50 of 50 now, but the look at 50 has been.
    for incident, person in zip(ids[:2], PERSONS, strict=True):
        await sqlite_setting.label(incident, True, person)
    cell = await sqlite_setting.cell()
    assert (cell.open, cell.right, cell.settled, cell.next_look) == (False, 50, 50, 75)
    await sqlite_setting.live(24)
    assert not (await sqlite_setting.cell()).open
    await sqlite_setting.live(1)
    assert (await sqlite_setting.cell()).open
    assert [(look.n, look.opened) for look in await sqlite_setting.looked()] == [(50, False), (75, True)]


async def test_a_look_is_evaluated_once_even_when_its_number_is_reached_again(sqlite_setting: Setting) -> None:
    ids = await sqlite_setting.live(50, wrong=2)
    await sqlite_setting.label(ids[-1], False, "ana")  # bo or cy said right: a disagreement takes one away
    assert (await sqlite_setting.cell()).settled == 49
    await sqlite_setting.label(ids[-1], True, "ana")
    assert (await sqlite_setting.cell()).settled == 50
    assert [look.n for look in await sqlite_setting.looked()] == [50]


async def test_one_labeller_alone_opens_nothing(sqlite_setting: Setting) -> None:
    await sqlite_setting.live(50, persons=("bo",))
    cell = await sqlite_setting.cell()
    assert (cell.open, cell.right) == (False, 50)
    assert cell.reason == "the labels come from 1 person; at least 2 are needed"


async def test_nobody_gives_more_than_60_percent(sqlite_setting: Setting) -> None:
    await sqlite_setting.live(50, persons=("bo",) * 31 + ("cy",) * 19)
    assert (await sqlite_setting.cell()).reason == "bo gave 62% of the labels; nobody may give more than 60%"
    await sqlite_setting.live(50, persons=("bo",) * 30 + ("cy",) * 20, family=Family.CAPACITY.value)
    assert (await sqlite_setting.cell(Family.CAPACITY)).open


async def test_four_fifths_of_the_proposals_must_be_labelled_executed_or_not(sqlite_setting: Setting) -> None:
    for _ in range(13):
        await sqlite_setting.incident(end=None, close_reason="rejected")
    await sqlite_setting.live(50)
    assert (await sqlite_setting.cell()).reason == "50 of 63 proposals are labelled; at least 80% are needed"
    for _ in range(12):
        await sqlite_setting.incident(end=None, close_reason="rejected", family=Family.CAPACITY.value)
    await sqlite_setting.live(50, family=Family.CAPACITY.value)
    assert (await sqlite_setting.cell(Family.CAPACITY)).open


async def test_unlabelled_notifications_and_automatic_actions_do_not_lower_the_coverage(sqlite_setting: Setting) -> None:
    for _ in range(20):
        await sqlite_setting.incident(proposed=False, route="auto")
    await sqlite_setting.live(50)
    assert (await sqlite_setting.cell()).open


@pytest.mark.parametrize("origin", [LabelOrigin.MACHINE, LabelOrigin.IMPORTED, LabelOrigin.SIMULATED])
async def test_machine_imported_and_simulated_labels_never_count(sqlite_setting: Setting, origin: LabelOrigin) -> None:
    for n in range(60):
        incident = await sqlite_setting.incident()
        identity = Identity(person=PERSONS[n % 2])
        request = LabelRequest(incident_id=incident, question=Question.ACTION, right=True, identity=identity)
        async with sqlite_setting.database.transaction() as session:
            await keep_uncounted(session, request, origin, now=sqlite_setting.tick())
    cell = await sqlite_setting.cell()
    assert (cell.open, cell.settled) == (False, 0)


async def test_labels_of_the_diagnosis_and_follow_ups_never_count(sqlite_setting: Setting) -> None:
    incident = await sqlite_setting.incident()
    await sqlite_setting.label(incident, True, question=Question.DIAGNOSIS)
    follow_up = await sqlite_setting.incident(origin="follow_up")
    await sqlite_setting.label(follow_up, True)
    assert (await sqlite_setting.cell()).settled == 0


async def test_cells_are_apart_by_family_and_action(sqlite_setting: Setting) -> None:
    await sqlite_setting.live(30)
    await sqlite_setting.live(30, action="scale")
    assert (await sqlite_setting.cell()).settled == 30
    assert (await sqlite_setting.cell(WEDGED, RemediationAction.SCALE)).settled == 30
    assert await sqlite_setting.looked() == []


async def test_an_open_gate_closes_at_three_wrong_of_the_last_ten_and_reopens_at_a_later_look_only(at_49: Setting) -> None:
    await at_49.live(1)
    await at_49.live(2, wrong=2)
    assert (await at_49.cell()).open
    await at_49.live(1, wrong=1)
    cell = await at_49.cell()
    assert (cell.open, cell.wrong_of_last_ten, cell.next_look) == (False, 3, 75)
    assert cell.reason == "closed: 3 of the last 10 were wrong"
    await at_49.live(21)
    assert not (await at_49.cell()).open
    looked = await at_49.looked()
    assert [(look.n, look.opened, look.closed) for look in looked] == [(50, True, False), (53, False, True)]


async def test_an_open_gate_closes_when_labels_drop_below_its_look(at_49: Setting) -> None:
    (incident,) = await at_49.live(1)
    await at_49.label(incident, False, "ana")
    cell = await at_49.cell()
    assert (cell.open, cell.settled) == (False, 49)
    assert cell.reason == "closed: 49 labelled episodes are left of the 50 it opened with"


async def test_a_gate_that_opened_for_less_is_closed_when_more_is_wanted(at_49: Setting) -> None:
    await at_49.live(1)
    text = "schema: 1\ndefaults: {target_precision: 0.95}\n"
    at_49.policy = parse_policy(text)
    cell = await at_49.cell()
    assert not cell.open
    assert cell.reason == "it opened for a precision of 0.9, and 0.95 is wanted now"


async def test_two_labels_at_once_are_counted_one_after_the_other(setting: Setting) -> None:
    await setting.live(48)
    first, second = await setting.incident(), await setting.incident()
    await asyncio.gather(setting.label(first, True, "bo"), setting.label(second, True, "cy"))
    cell = await setting.cell()
    assert (cell.settled, cell.right, cell.open) == (50, 50, True)
    assert [look.n for look in await setting.looked()] == [50]


async def test_the_counters_agree_with_the_episodes_after_any_history(setting: Setting) -> None:
    ids = [await setting.incident(end="rolled_back" if n % 5 == 0 else "committed") for n in range(12)]
    for step in range(60):
        person = ("bo", "cy", "ana")[step % 3]
        await setting.label(ids[step * 7 % 12], step % 4 != 0, person)
    cell = await setting.cell()
    async with setting.database.reading() as session:
        rights = [row.right for row in (await session.exec(select(EpisodeRow))).all()]
    assert cell.settled == sum(right is not None for right in rights)
    assert cell.right == sum(right is True for right in rights)


# bounds ----------------------------------------------------------------------------------------------------------------------


async def test_the_one_sided_lower_bounds_of_the_design_come_from_a_child_process() -> None:
    shown = {(50, 50): 0.942, (49, 50): 0.909, (48, 50): 0.879, (25, 25): 0.887, (20, 20): 0.861}
    needed = {14: 0.80, 29: 0.90, 59: 0.95, 299: 0.99}
    enough, short = [(labels, labels) for labels in needed], [(labels - 1, labels - 1) for labels in needed]
    bounds = dict(zip([*shown, *enough, *short], await lower_bounds([*shown, *enough, *short]), strict=True))
    assert {pair: round(bounds[pair], 3) for pair in shown} == shown
    for labels, wanted in needed.items():
        assert bounds[labels, labels] >= wanted > bounds[labels - 1, labels - 1]
    assert await lower_bounds([]) == []
    assert "scipy" not in sys.modules


async def test_the_bound_is_kept_and_shown_only_while_it_is_of_the_present_figures(sqlite_setting: Setting) -> None:
    await sqlite_setting.live(3)
    assert (await sqlite_setting.cell()).lower_bound is None
    assert await refresh_bounds(sqlite_setting.database) == 1
    assert (await sqlite_setting.cell()).lower_bound == pytest.approx(0.368, abs=0.001)
    assert await refresh_bounds(sqlite_setting.database) == 0
    await sqlite_setting.live(1)
    assert (await sqlite_setting.cell()).lower_bound is None


# cost ------------------------------------------------------------------------------------------------------------------------


async def test_building_the_record_asks_the_same_however_many_incidents_are_stored(sqlite_setting: Setting) -> None:
    async def statements() -> tuple[int, list[str]]:
        asked: list[str] = []

        def note(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
            asked.append(statement)

        engine = sqlite_setting.database.engine.sync_engine
        event.listen(engine, "before_cursor_execute", note)
        try:
            await sqlite_setting.cell()
            async with sqlite_setting.database.reading() as session:
                from catalog.targets import Target, TargetKind

                target = Target(cluster_uid="uid-eu-1", cluster="eu-1", namespace="shop", kind=TargetKind.DEPLOYMENT, name="w")
                await standing_record(session, sqlite_setting.policy, target)
        finally:
            event.remove(engine, "before_cursor_execute", note)
        return len(asked), asked

    await sqlite_setting.live(3)
    few, _ = await statements()
    await sqlite_setting.live(60)
    many, asked = await statements()
    assert few == many
    async with sqlite_setting.database.engine.connect() as connection:
        for statement in (one for one in asked if one.lstrip().startswith("SELECT")):
            holes = statement.count("?")
            plan = (await connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", ("x",) * holes)).all()
            assert not [line for line in plan if "SCAN" in str(line[3]) and "calibration_cell" not in str(line[3])], (
                statement,
                plan,
            )


async def test_a_label_and_its_look_are_one_transaction(at_49: Setting) -> None:
    incident = await at_49.incident()
    request = LabelRequest(incident_id=incident, question=Question.ACTION, right=True, identity=Identity(person="bo"))

    async def interrupted() -> None:
        async with at_49.database.transaction() as session:
            await record_label(session, at_49.policy, request, now=at_49.now + timedelta(seconds=1))
            raise RuntimeError("the process ends here")

    with pytest.raises(RuntimeError, match="ends here"):
        await interrupted()
    cell = await at_49.cell()
    assert (cell.settled, cell.open) == (49, False)
    async with at_49.database.reading() as session:
        assert (await session.exec(select(LookRow))).all() == []
        assert len((await session.exec(select(LabelRow))).all()) == 49
    assert RESTART is cell.action
