"""The command grammar, once: a line of text becomes a typed command on every surface.

Each command is a row of `COMMANDS`: its word, its usage, one sentence of help and the function that reads what follows. A line
that does not parse answers with the usage of the nearest word. Nothing here looks at a database or at who is asking.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from catalog.actions import RemediationAction
from catalog.cases import Rung
from catalog.documents import Document
from catalog.episodes import Question
from catalog.ids import is_id
from catalog.targets import TargetKind

MAX_LINE = 2000


class NotUnderstood(Exception):
    """The line is not a command. The message says what would be; show it to the person who typed it."""


class IncidentId(Document):
    """An incident named by its short number or its ULID."""

    number: int | None = None
    ulid: str | None = None

    def __str__(self) -> str:
        return f"#{self.number}" if self.number is not None else str(self.ulid)


class TargetName(Document):
    """A target as people type it: `shop/checkout` or `Deployment/shop/checkout`."""

    kind: TargetKind = TargetKind.DEPLOYMENT
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind.value}/{self.namespace}/{self.name}"


class Status(Document):
    command: Literal["status"] = "status"


class ShowIncident(Document):
    command: Literal["incident"] = "incident"
    incident: IncidentId


class Why(Document):
    command: Literal["why"] = "why"
    incident: IncidentId


class Approve(Document):
    """Approve what is pending. A button names its proposal; a typed line means the incident's present one."""

    command: Literal["approve"] = "approve"
    incident: IncidentId
    proposal_id: str | None = None


class Reject(Document):
    command: Literal["reject"] = "reject"
    incident: IncidentId
    proposal_id: str | None = None
    why: str


class Take(Document):
    command: Literal["take"] = "take"
    incident: IncidentId


class Level(Document):
    command: Literal["level"] = "level"
    scope: str | None = None


class Promote(Document):
    command: Literal["promote"] = "promote"
    scope: str
    action: RemediationAction
    rung: Rung
    why: str


class Demote(Document):
    command: Literal["demote"] = "demote"
    scope: str
    action: RemediationAction | None = None
    rung: Rung | None = None
    why: str


class Halt(Document):
    command: Literal["halt"] = "halt"
    hard: bool = False
    why: str


class Resume(Document):
    command: Literal["resume"] = "resume"
    why: str


class Release(Document):
    command: Literal["release"] = "release"
    why: str


class Unblock(Document):
    command: Literal["unblock"] = "unblock"
    target: TargetName
    why: str


class LabelIncident(Document):
    command: Literal["label"] = "label"
    incident: IncidentId
    right: bool
    question: Question | None = Field(default=None, description="None: both questions")
    note: str = ""


class Help(Document):
    command: Literal["help"] = "help"
    topic: str | None = None


Command = Annotated[
    Status
    | ShowIncident
    | Why
    | Approve
    | Reject
    | Take
    | Level
    | Promote
    | Demote
    | Halt
    | Resume
    | Release
    | Unblock
    | LabelIncident
    | Help,
    Field(discriminator="command"),
]


@dataclass(frozen=True)
class _Row:
    usage: str
    help: str
    read: Callable[[list[str]], Command]


def parse_command(line: str) -> Command:
    """Read one line, with or without the leading `/sre`.

    Raises:
        NotUnderstood: with the usage of the nearest command.
    """
    if len(line) > MAX_LINE:
        raise NotUnderstood(f"that line has {len(line)} characters; a command has at most {MAX_LINE}")
    words = line.split()
    if words and words[0].lower() in ("/sre", "sre"):
        words = words[1:]
    if not words:
        return Help()
    word = words[0].lower()
    row = COMMANDS.get(word)
    if row is None:
        nearest = difflib.get_close_matches(word, COMMANDS, n=1, cutoff=0.5)
        hint = f"did you mean `{COMMANDS[nearest[0]].usage}`?" if nearest else f"the commands are: {', '.join(COMMANDS)}"
        raise NotUnderstood(f"`{words[0][:40]}` is not a command; {hint}")
    try:
        return row.read(words[1:])
    except _Misused as error:
        raise NotUnderstood(f"{error}; usage: `{row.usage}`") from error


def parse_incident_id(text: str) -> IncidentId:
    """`42`, `#42` or a ULID.

    Raises:
        NotUnderstood: neither.
    """
    try:
        return _incident(text)
    except _Misused as error:
        raise NotUnderstood(str(error)) from error


def help_text(topic: str | None = None) -> str:
    """Usage of one command, or of all."""
    rows = [COMMANDS[topic]] if topic in COMMANDS else list(COMMANDS.values())
    width = max(len(row.usage) for row in rows)
    return "\n".join(f"{row.usage:<{width}}  {row.help}" for row in rows)


class _Misused(Exception):
    pass


def _words(rest: list[str], least: int, what: str) -> list[str]:
    if len(rest) < least:
        raise _Misused(f"{what} is missing")
    return rest


def _nothing(rest: list[str]) -> None:
    if rest:
        raise _Misused(f"`{' '.join(rest)[:60]}` is too much")


def _incident(text: str) -> IncidentId:
    bare = text.removeprefix("#")
    if re.fullmatch(r"[0-9]{1,18}", bare):
        return IncidentId(number=int(bare))
    if is_id(bare.upper()):
        return IncidentId(ulid=bare.upper())
    raise _Misused(f"`{text[:40]}` is not an incident id such as 42")


def _only_incident(rest: list[str]) -> IncidentId:
    words = _words(rest, 1, "the incident's id")
    _nothing(words[1:])
    return _incident(words[0])


def _why(words: list[str]) -> str:
    text = " ".join(words).strip()
    if not text:
        raise _Misused("the reason is missing")
    return text


def _action(text: str) -> RemediationAction:
    try:
        return RemediationAction(text.lower())
    except ValueError:
        nearest = difflib.get_close_matches(text.lower(), [action.value for action in RemediationAction], n=1)
        raise _Misused(f"`{text[:40]}` is not an action" + (f", did you mean {nearest[0]}" if nearest else "")) from None


def _rung(text: str) -> Rung:
    try:
        return Rung[text.upper()]
    except KeyError:
        raise _Misused(f"`{text[:40]}` is not a rung; rungs are R3, R4, R5") from None


def _target(text: str) -> TargetName:
    parts = text.split("/")
    kinds = {kind.value.lower(): kind for kind in TargetKind}
    if len(parts) == 2 and all(parts):
        return TargetName(namespace=parts[0], name=parts[1])
    if len(parts) == 3 and all(parts) and parts[0].lower() in kinds:
        return TargetName(kind=kinds[parts[0].lower()], namespace=parts[1], name=parts[2])
    raise _Misused(f"`{text[:80]}` is not a target such as shop/checkout or Deployment/shop/checkout")


def _read_status(rest: list[str]) -> Status:
    _nothing(rest)
    return Status()


def _read_reject(rest: list[str]) -> Reject:
    words = _words(rest, 1, "the incident's id")
    return Reject(incident=_incident(words[0]), why=_why(words[1:]))


def _read_level(rest: list[str]) -> Level:
    _nothing(rest[1:])
    return Level(scope=rest[0] if rest else None)


def _read_promote(rest: list[str]) -> Promote:
    words = _words(rest, 3, "scope, action or rung")
    return Promote(scope=words[0], action=_action(words[1]), rung=_rung(words[2]), why=_why(words[3:]))


def _read_demote(rest: list[str]) -> Demote:
    words = _words(rest, 1, "the scope")
    scope, words = words[0], words[1:]
    action = rung = None
    if words and words[0].lower() in {item.value for item in RemediationAction}:
        action, words = _action(words[0]), words[1:]
    if words and words[0].upper() in Rung.__members__:
        rung, words = _rung(words[0]), words[1:]
    return Demote(scope=scope, action=action, rung=rung, why=_why(words))


def _read_halt(rest: list[str]) -> Halt:
    hard = bool(rest) and rest[0].lower() == "hard"
    return Halt(hard=hard, why=_why(rest[1:] if hard else rest))


def _read_unblock(rest: list[str]) -> Unblock:
    words = _words(rest, 1, "the target")
    return Unblock(target=_target(words[0]), why=_why(words[1:]))


def _read_label(rest: list[str]) -> LabelIncident:
    words = _words(rest, 2, "the incident's id, or right or wrong")
    verdict = words[1].lower()
    if verdict not in ("right", "wrong"):
        raise _Misused(f"`{words[1][:40]}` is neither right nor wrong")
    rest = words[2:]
    question = None
    if rest and rest[0].lower() in {item.value for item in Question}:
        question, rest = Question(rest[0].lower()), rest[1:]
    return LabelIncident(incident=_incident(words[0]), right=verdict == "right", question=question, note=" ".join(rest))


def _read_help(rest: list[str]) -> Help:
    return Help(topic=rest[0].lower() if rest else None)


COMMANDS: dict[str, _Row] = {
    "status": _Row("status", "open incidents, halt state, rungs, executors", _read_status),
    "incident": _Row("incident ID", "the whole story of one incident", lambda rest: ShowIncident(incident=_only_incident(rest))),
    "why": _Row("why ID", "why it did or did not act, gate by gate", lambda rest: Why(incident=_only_incident(rest))),
    "approve": _Row("approve ID", "approve the pending proposal", lambda rest: Approve(incident=_only_incident(rest))),
    "reject": _Row("reject ID WHY", "reject the pending proposal; people own the incident", _read_reject),
    "take": _Row("take ID", "take over: the bot keeps its hands off", lambda rest: Take(incident=_only_incident(rest))),
    "level": _Row("level [SCOPE]", "ceiling, standing, and what is missing for the next rung", _read_level),
    "promote": _Row("promote SCOPE ACTION RUNG WHY", "raise standing; refused with numbers when not earned", _read_promote),
    "demote": _Row("demote SCOPE [ACTION] [RUNG] WHY", "lower standing at once", _read_demote),
    "halt": _Row("halt [hard] WHY", "stop new work now; `hard` stops undo too", _read_halt),
    "resume": _Row("resume WHY", "lift the halt", lambda rest: Resume(why=_why(rest))),
    "release": _Row("release WHY", "release the storm latch", lambda rest: Release(why=_why(rest))),
    "unblock": _Row("unblock TARGET WHY", "free a target that a bad end has blocked", _read_unblock),
    "label": _Row("label ID right|wrong [action|diagnosis] [NOTE]", "was it right?", _read_label),
    "help": _Row("help [COMMAND]", "this text", _read_help),
}
