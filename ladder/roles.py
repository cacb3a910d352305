"""Who may do what. A role is held by identity, never by name or e-mail, and an empty list is nobody."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from catalog.documents import Document
from ladder.scopes import MergedScope, RoleName


class Holding(StrEnum):
    """`unknown`: groups could not be asked; it is its own refusal, and never consent."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class Identity(Document):
    """Who is asking: the person, and the groups they are in as the platform just said.

    `groups` holds entries as autonomy.yaml writes them, `slack-group:ID` and `discord-role:ID`. None: could not be asked.
    """

    person: str
    groups: frozenset[str] | None = frozenset()


def holds(entries: Iterable[str], identity: Identity) -> Holding:
    """Whether one of `entries` is this person or one of their groups."""
    groups = set()
    for entry in entries:
        kind, _, name = entry.partition(":")
        if kind == "person":
            if name == identity.person:
                return Holding.YES
        else:
            groups.add(entry)
    if not groups:
        return Holding.NO
    if identity.groups is None:
        return Holding.UNKNOWN
    return Holding.YES if groups & identity.groups else Holding.NO


def refusal(scope: MergedScope | None, role: RoleName, identity: Identity) -> str | None:
    """None when the person holds the role where `scope` is in force, else the sentence that says who may."""
    if scope is None:
        return "No scope of autonomy.yaml names this target, so nobody has a role there."
    entries = scope.members(role)
    match holds(entries, identity):
        case Holding.YES:
            return None
        case Holding.UNKNOWN:
            asked = f"Whether {identity.person} is {_a(role)} of scope {scope.name} could not be checked"
            return f"{asked}; try again, or ask {who(entries)}."
        case Holding.NO:
            return f"{identity.person} is not {_a(role)} of scope {scope.name}; {who(entries)} may."


def who(entries: Iterable[str]) -> str:
    """The entries for people: names, then groups. `nobody` when there are none."""
    names = [entry.removeprefix("person:") for entry in entries]
    return ", ".join(names) if names else "nobody"


def _a(role: RoleName) -> str:
    return f"an {role}" if role[0] in "ao" else f"a {role}"
