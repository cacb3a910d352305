"""A scope of autonomy.yaml, and what is in force where several apply.

All scopes that match apply together: the lowest ceiling, the highest threshold, the smallest budget, the larger quorum, the
union of checks and dependants. People and channel are those of the most specific scope that names them. So adding a scope for
an action that is already named never raises what may happen by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, model_validator

from catalog.actions import RemediationAction
from catalog.cases import Rung
from catalog.documents import Document
from catalog.limits import Budget
from ladder.matching import Match, Workload
from ladder.numbers import BudgetText, Numbers, effective, loosened, safest

_ROLE = re.compile(r"(?P<kind>person|slack-group|discord-role):(?P<name>[A-Za-z0-9][A-Za-z0-9._-]{0,62})")


def _rung(value: Any) -> Rung:
    if isinstance(value, Rung):
        return value
    if not isinstance(value, str) or value not in {"R1", "R2", "R3", "R4", "R5"}:
        raise ValueError(f"{value!r} is not a ceiling; write one of R1, R2, R3, R4, R5")
    return Rung[value]


def _role(text: str) -> str:
    plain = text.replace('"', "").replace("'", "")
    if _ROLE.fullmatch(plain) is None:
        raise ValueError(f"{text!r} is nobody; write person:NAME, slack-group:ID or discord-role:ID")
    return plain


Ceiling = Annotated[Rung, BeforeValidator(_rung), PlainSerializer(str, return_type=str, when_used="json")]
RoleEntry = Annotated[str, AfterValidator(_role)]
ScopeName = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9._]{0,61}[a-z0-9])?$")]


class Channel(Document):
    """Where a card is posted, by surface."""

    slack: str | None = None
    discord: str | None = None


class OnCall(Document):
    """Who is mentioned, by surface: a user group or role."""

    slack: str | None = None
    discord: str | None = None


class Roles(Document):
    """Who holds which role, by identity. An empty list is nobody; a role that is left out is taken from the next wider scope."""

    approver: tuple[RoleEntry, ...] | None = None
    labeller: tuple[RoleEntry, ...] | None = None
    owner: tuple[RoleEntry, ...] | None = None


RoleName = Literal["approver", "labeller", "owner"]
BudgetPart = Literal["workload", "namespace", "cluster"]
ROLE_NAMES: tuple[RoleName, ...] = ("approver", "labeller", "owner")


class ScaleBounds(Document):
    """Bounds of `scale` in a scope."""

    min: Annotated[int, Field(ge=1, le=10_000)] = 1
    max: Annotated[int, Field(ge=1, le=10_000)] | None = None
    step: Annotated[int, Field(ge=1, le=100)] | None = None

    @model_validator(mode="after")
    def _ordered(self) -> ScaleBounds:
        if self.max is not None and self.max < self.min:
            raise ValueError(f"max ({self.max}) is below min ({self.min})")
        return self


class ScopeBudget(Document):
    """Automatic orders per window, `COUNT/WINDOW`."""

    workload: BudgetText | None = None
    namespace: BudgetText | None = None
    cluster: BudgetText | None = None


class ScopeCheck(Document):
    """A service-level expression: what must not get worse."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9]([-A-Za-z0-9_. ]{0,61}[A-Za-z0-9])?$")]
    query: Annotated[str, Field(min_length=1, max_length=4000)]
    passing: Annotated[str, Field(pattern=r"^(<|<=|>|>=|==|!=) -?[0-9]+(\.[0-9]+)?([eE]-?[0-9]+)?$")]
    empty: Literal["unknown", "passing", "failing"] = "unknown"
    debounce: Annotated[int, Field(ge=1, le=10)] | None = None
    weight: Annotated[float, Field(ge=0, le=100)] = 1.0


class Scope(Document):
    """One entry of `scopes:`."""

    name: ScopeName
    match: Match
    channel: Channel | None = None
    oncall: OnCall | None = None
    roles: Roles = Roles()
    quorum: Annotated[int, Field(ge=1, le=10)] = 1
    ceiling: dict[RemediationAction, Ceiling] = Field(default={})
    scale: ScaleBounds = ScaleBounds()
    budget: ScopeBudget = ScopeBudget()
    dependants: tuple[Workload, ...] = ()
    checks: tuple[ScopeCheck, ...] = ()
    numbers: Numbers = Numbers()
    propose_unverified: bool | None = None
    propose_uncalibrated: bool | None = None


class Earned(Document):
    """Where the standing of one action is kept: the most specific scope whose ceiling names it."""

    scope: str
    match_digest: str
    ceiling: Rung = Field(description="the lowest ceiling of all matching scopes that name the action")


class MergedScope(Document):
    """What is in force for one target."""

    name: str = Field(description="the most specific scope's")
    match_digest: str
    scopes: tuple[str, ...] = Field(description="all that match, most specific first")
    earned: dict[RemediationAction, Earned] = Field(default={})
    numbers: Numbers
    budgets: dict[BudgetPart, tuple[Budget, ...]]
    scale_min: int
    scale_max: int
    scale_step: int
    quorum: int
    approver: tuple[str, ...] = ()
    labeller: tuple[str, ...] = ()
    owner: tuple[str, ...] = ()
    channel: Channel = Channel()
    oncall: OnCall = OnCall()
    propose_unverified: bool = False
    propose_uncalibrated: bool = False
    dependants: tuple[str, ...] = ()
    checks: tuple[ScopeCheck, ...] = ()
    warnings: tuple[str, ...] = ()

    def ceiling(self, action: RemediationAction) -> Rung:
        """Lowest ceiling for the action; R3 when no ceiling names it."""
        named = self.earned.get(action)
        return named.ceiling if named else Rung.R3

    def members(self, role: RoleName) -> tuple[str, ...]:
        """Entries of a role in force. Empty: nobody."""
        match role:
            case "approver":
                return self.approver
            case "labeller":
                return self.labeller
            case "owner":
                return self.owner


class Fallback(Document):
    """What a scope inherits when it says nothing."""

    numbers: Numbers
    channel: Channel
    oncall: OnCall
    propose_unverified: bool
    propose_uncalibrated: bool


def merge(scopes: Iterable[Scope], fallback: Fallback) -> MergedScope | None:
    """What is in force where all of `scopes` match. None for none of them."""
    ranked = sorted(scopes, key=lambda scope: scope.match.specificity, reverse=True)
    if not ranked:
        return None
    each = [effective(fallback.numbers, scope.numbers) for scope in ranked]
    numbers = safest(each)
    return MergedScope(
        name=ranked[0].name,
        match_digest=ranked[0].match.digest,
        scopes=tuple(scope.name for scope in ranked),
        earned=_earned(ranked),
        numbers=numbers,
        budgets=_budgets(ranked, each),
        scale_min=max(scope.scale.min for scope in ranked),
        scale_max=min(numbers.scale_cap, *(scope.scale.max or numbers.scale_cap for scope in ranked)),
        scale_step=min(scope.scale.step or one.scale_step for scope, one in zip(ranked, each, strict=True)),
        quorum=max(scope.quorum for scope in ranked),
        approver=_people(ranked, "approver"),
        labeller=_people(ranked, "labeller"),
        owner=_people(ranked, "owner"),
        channel=next((scope.channel for scope in ranked if scope.channel), fallback.channel),
        oncall=next((scope.oncall for scope in ranked if scope.oncall), fallback.oncall),
        propose_unverified=_all_say(fallback.propose_unverified, [scope.propose_unverified for scope in ranked]),
        propose_uncalibrated=_all_say(fallback.propose_uncalibrated, [scope.propose_uncalibrated for scope in ranked]),
        dependants=tuple(dict.fromkeys(name for scope in ranked for name in scope.dependants)),
        checks=_checks(ranked),
        warnings=_warnings(ranked),
    )


def _earned(ranked: Sequence[Scope]) -> dict[RemediationAction, Earned]:
    earned: dict[RemediationAction, Earned] = {}
    for scope in ranked:
        for action, ceiling in scope.ceiling.items():
            known = earned.get(action)
            if known is None:
                earned[action] = Earned(scope=scope.name, match_digest=scope.match.digest, ceiling=ceiling)
            elif ceiling < known.ceiling:
                earned[action] = known.model_copy(update={"ceiling": ceiling})
    return earned


def _budgets(ranked: Sequence[Scope], each: Sequence[Numbers]) -> dict[BudgetPart, tuple[Budget, ...]]:
    # Budgets over different windows have no order between them, so all of them must hold.
    pairs = list(zip(ranked, each, strict=True))
    return {
        "workload": tuple(dict.fromkeys(scope.budget.workload or numbers.auto_per_workload for scope, numbers in pairs)),
        "namespace": tuple(dict.fromkeys(scope.budget.namespace or numbers.auto_per_namespace for scope, numbers in pairs)),
        "cluster": tuple(dict.fromkeys(scope.budget.cluster or numbers.auto_per_cluster for scope, numbers in pairs)),
    }


def _people(ranked: Sequence[Scope], role: RoleName) -> tuple[str, ...]:
    for scope in ranked:
        entries: tuple[str, ...] | None = getattr(scope.roles, role)
        if entries is not None:
            return entries
    return ()


def _all_say(inherited: bool, said: Sequence[bool | None]) -> bool:
    return all(inherited if one is None else one for one in said)


def _checks(ranked: Sequence[Scope]) -> tuple[ScopeCheck, ...]:
    kept: dict[str, ScopeCheck] = {}
    for scope in ranked:
        for check in scope.checks:
            known = kept.get(check.name)
            if known is not None and known != check:
                name = f"{scope.name} {check.name}"
                kept[name] = check.model_copy(update={"name": name})
            else:
                kept[check.name] = check
    return tuple(kept.values())


def _warnings(ranked: Sequence[Scope]) -> tuple[str, ...]:
    """What the scopes themselves loosen; the installation's own numbers are told once, by the policy."""
    found: list[str] = []
    for scope in ranked:
        said = {name: getattr(scope.numbers, name) for name in scope.numbers.model_fields_set}
        for part in ("workload", "namespace", "cluster"):
            if getattr(scope.budget, part) is not None:
                said[f"auto_per_{part}"] = getattr(scope.budget, part)
        if scope.scale.step is not None:
            said["scale_step"] = scope.scale.step
        found.extend(loosened(Numbers().model_copy(update=said), f"scope {scope.name}"))
    return tuple(dict.fromkeys(found))
