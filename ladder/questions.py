"""The question a gate is asked, and the three ways to answer it.

A gate is a pure function `ask(question) -> GateResult`. `passed`, `blocked` and `unknown` are the only ways to make an answer;
`unknown` means the gate could not tell, and it never counts as passed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from catalog.actions import Scale
from catalog.cases import Case, FollowUp
from catalog.decisions import GateName, GateResult, GateState
from catalog.registry import ActionSpec, Catalogue
from ladder.numbers import DEFAULTS, Numbers, shown
from ladder.policy import Policy
from ladder.scopes import MergedScope
from ladder.standing import RungInForce

GatedRoute = Literal["propose", "auto"]


@dataclass(frozen=True)
class Question:
    """One gate asked about one case for one route."""

    gate: GateName
    route: GatedRoute
    case: Case
    policy: Policy
    scope: MergedScope | None
    in_force: RungInForce
    catalogue: Catalogue

    @property
    def auto(self) -> bool:
        return self.route == "auto"

    @property
    def spec(self) -> ActionSpec:
        """The catalogue's row of the proposed action."""
        return self.catalogue[self.case.action.action]

    @property
    def numbers(self) -> Numbers:
        """Numbers in force here; the installation's where no scope applies."""
        return self.scope.numbers if self.scope else self.policy.numbers

    @property
    def follow_up(self) -> FollowUp | None:
        """The justification of a follow-up, if this case is one and only takes back a scale-up."""
        downward = isinstance(self.case.action, Scale) and not self.case.action.upward
        return self.case.follow_up if self.case.origin == "follow_up" and downward else None

    def number(self, name: str) -> str:
        """Whose setting a number is, for `setting`."""
        value = getattr(self.numbers, name)
        origin = "default" if value == DEFAULTS[name] else "autonomy.yaml"
        where = f", scopes {', '.join(self.scope.scopes)}" if self.scope and origin != "default" else ""
        return f"numbers.{name}: {shown(value)} ({origin}{where})"

    def passed(self, sentence: str, *, setting: str = "") -> GateResult:
        """The gate lets this route through."""
        return self._answer(GateState.PASSED, sentence, setting, "")

    def blocked(self, sentence: str, *, setting: str = "", unblock: str = "") -> GateResult:
        """The gate keeps this route shut."""
        return self._answer(GateState.BLOCKED, sentence, setting, unblock)

    def unknown(self, sentence: str, *, setting: str = "", unblock: str = "") -> GateResult:
        """The gate could not tell, so the route stays shut."""
        return self._answer(GateState.UNKNOWN, sentence, setting, unblock)

    def _answer(self, state: GateState, sentence: str, setting: str, unblock: str) -> GateResult:
        return GateResult(gate=self.gate, route=self.route, state=state, sentence=sentence, setting=setting, unblock=unblock)


def capitalised(text: str) -> str:
    """With a capital first letter and the rest as it is."""
    return text[:1].upper() + text[1:]


Gate = Callable[[Question], GateResult]
Objection = Callable[[Question], GateResult | None]


def first_objection(question: Question, objections: tuple[Objection, ...]) -> GateResult | None:
    """The first answer that is not None: each objection looks at one thing."""
    for objection in objections:
        found = objection(question)
        if found is not None:
            return found
    return None
