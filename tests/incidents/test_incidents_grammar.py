"""The grammar reads what people type, and says what would be right when it cannot."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.actions import RemediationAction
from catalog.cases import Rung
from catalog.documents import Document
from catalog.episodes import Question
from catalog.targets import TargetKind
from incidents.grammar import (
    COMMANDS,
    MAX_LINE,
    Approve,
    Demote,
    Halt,
    Help,
    IncidentId,
    LabelIncident,
    Level,
    NotUnderstood,
    Promote,
    Reject,
    Release,
    Resume,
    ShowIncident,
    Status,
    Take,
    TargetName,
    Unblock,
    Why,
    help_text,
    parse_command,
)

ULID = "01J9ZX8Q6R3M5N7P9T0V2W4Y6A"


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("", Help()),
        ("help promote", Help(topic="promote")),
        ("/sre status", Status()),
        ("STATUS", Status()),
        ("incident 42", ShowIncident(incident=IncidentId(number=42))),
        (f"incident {ULID.lower()}", ShowIncident(incident=IncidentId(ulid=ULID))),
        ("why #7", Why(incident=IncidentId(number=7))),
        ("approve 42", Approve(incident=IncidentId(number=42))),
        ("reject 42 we are deploying", Reject(incident=IncidentId(number=42), why="we are deploying")),
        ("take 42", Take(incident=IncidentId(number=42))),
        ("level", Level()),
        ("level shop", Level(scope="shop")),
        (
            "promote shop restart_workload r5 50 of 50 right",
            Promote(scope="shop", action=RemediationAction.RESTART_WORKLOAD, rung=Rung.R5, why="50 of 50 right"),
        ),
        ("demote shop because", Demote(scope="shop", why="because")),
        ("demote shop scale R3 because", Demote(scope="shop", action=RemediationAction.SCALE, rung=Rung.R3, why="because")),
        ("halt fire drill", Halt(why="fire drill")),
        ("halt hard fire", Halt(hard=True, why="fire")),
        ("resume drill over", Resume(why="drill over")),
        ("release node is back", Release(why="node is back")),
        ("unblock shop/checkout looked at it", Unblock(target=TargetName(namespace="shop", name="checkout"), why="looked at it")),
        (
            "unblock statefulset/shop/db ok",
            Unblock(target=TargetName(kind=TargetKind.STATEFULSET, namespace="shop", name="db"), why="ok"),
        ),
        ("label 42 right", LabelIncident(incident=IncidentId(number=42), right=True)),
        (
            "label 42 wrong action it was the database",
            LabelIncident(incident=IncidentId(number=42), right=False, question=Question.ACTION, note="it was the database"),
        ),
    ],
)
def test_reads(line: str, command: Document) -> None:
    assert parse_command(line) == command


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("aprove 42", "`approve ID`"),
        ("approve", "the incident's id is missing"),
        ("approve forty-two", "is not an incident id"),
        ("approve 42 43", "is too much"),
        ("reject 42", "the reason is missing"),
        ("promote shop restart_worklod R5 x", "did you mean restart_workload"),
        ("promote shop scale R9 x", "rungs are R3, R4, R5"),
        ("label 42 maybe", "neither right nor wrong"),
        ("unblock checkout x", "is not a target"),
        ("halt", "the reason is missing"),
        ("halt hard", "the reason is missing"),
        ("xyzzy", "the commands are"),
        ("status " + "x" * MAX_LINE, "at most"),
    ],
)
def test_says_what_would_be_right(line: str, hint: str) -> None:
    with pytest.raises(NotUnderstood, match=hint.replace("(", r"\(")):
        parse_command(line)


def said(line: str) -> Document | str:
    """The command, or what would be right."""
    try:
        return parse_command(line)
    except NotUnderstood as error:
        return str(error)


@given(st.text(max_size=200))
def test_any_text_is_a_command_or_is_not_understood(line: str) -> None:
    answer = said(line)
    assert answer if isinstance(answer, str) else answer.command in COMMANDS  # type: ignore[attr-defined]


@given(st.sampled_from(sorted(COMMANDS)), st.text(max_size=100))
def test_every_word_with_any_rest_answers(word: str, rest: str) -> None:
    answer = said(f"{word} {rest}")
    assert COMMANDS[word].usage in answer if isinstance(answer, str) else answer.command == word  # type: ignore[attr-defined]


def test_help_lists_every_command_and_one() -> None:
    assert len(help_text().splitlines()) == len(COMMANDS)
    assert help_text("approve").startswith("approve ID")
