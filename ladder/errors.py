"""What can go wrong in this room.

LadderError
├── PolicyInvalid      autonomy.yaml has problems: show them to the person who wrote it, keep the last good policy
├── NotPlannable       an action has no plan for these facts: do not order, tell people the sentence
└── NotCheckable       a state cannot be observed by every oracle: do not order, tell people the sentence
"""

from __future__ import annotations

from catalog.documents import Document


class LadderError(Exception):
    """Root of this room's errors; its text is for people."""


class Problem(Document):
    """One thing that is wrong in autonomy.yaml."""

    file: str
    line: int
    key: str
    sentence: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}"
        return f"{where}: {self.key}: {self.sentence}" if self.key else f"{where}: {self.sentence}"


class PolicyInvalid(LadderError):
    """The file cannot be used. Show `problems`, keep the last good policy, never guess."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


class NotPlannable(LadderError):
    """The action has no plan for these facts. Do not order; the text says why."""


class NotCheckable(LadderError):
    """An oracle has no check. Do not order; the text says which, and what would supply it."""
