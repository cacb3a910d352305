"""Every default number of the ladder, by the key it has under `numbers:`, with its safer direction and its range.

A number may be set for the installation and again in a scope. Where several scopes apply, the safest of their values is in
force (`safest`); a scope that does not set a number has the installation's. A value on the unsafe side of its default is
allowed within the range, and `loosened` says so on every card.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, PlainSerializer, model_validator

from catalog.documents import Document
from catalog.limits import Budget

_DURATION = re.compile(r"(\d{1,6})(ms|s|m|h|d)")
_UNIT_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_SIZE = re.compile(r"(\d{1,9})(kB|KiB|MB|MiB)")
_SIZE_BYTES = {"kB": 1000, "KiB": 1024, "MB": 1_000_000, "MiB": 1024 * 1024}


def parse_duration(value: Any) -> timedelta:
    """Read `15m`. Units: ms, s, m, h, d.

    Raises:
        ValueError: not of that form.
    """
    if isinstance(value, timedelta):
        return value
    found = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"{value!r} is not a duration; write a number with a unit, for example 90s, 15m or 6h")
    return timedelta(seconds=int(found[1]) * _UNIT_SECONDS[found[2]])


def duration_text(value: timedelta) -> str:
    """The shortest text that `parse_duration` reads back."""
    milliseconds = round(value.total_seconds() * 1000)
    for unit in ("d", "h", "m", "s"):
        size = round(_UNIT_SECONDS[unit] * 1000)
        if milliseconds % size == 0 and milliseconds:
            return f"{milliseconds // size}{unit}"
    return f"{milliseconds}ms" if milliseconds else "0s"


def parse_size(value: Any) -> int:
    """Read `16MiB` or `8kB` in bytes.

    Raises:
        ValueError: not of that form.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    found = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"{value!r} is not a size; write a number with a unit, for example 8kB or 16MiB")
    return int(found[1]) * _SIZE_BYTES[found[2]]


def _parse_budget(value: Any) -> Budget:
    if isinstance(value, Budget):
        return value
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a budget; write COUNT/WINDOW, for example 3/1h")
    return Budget.parse(value)


Duration = Annotated[timedelta, BeforeValidator(parse_duration), PlainSerializer(duration_text, return_type=str, when_used="json")]
Size = Annotated[int, BeforeValidator(parse_size)]
BudgetText = Annotated[Budget, BeforeValidator(_parse_budget), PlainSerializer(str, return_type=str, when_used="json")]

Number = float | int | timedelta | Budget


@dataclass(frozen=True)
class Rule:
    """How one number behaves: where it is safe, what is accepted, and whether a scope may set it."""

    safer: Literal["more", "less", "either"]
    low: float | timedelta
    high: float | timedelta
    in_scopes: bool = True

    def accepts(self, value: Any) -> bool:
        """Whether `value` lies in the range. A budget is in range by its count."""
        measured: Any = value.count if isinstance(value, Budget) else value
        return bool(self.low <= measured <= self.high)


def _s(low: float, high: float) -> tuple[timedelta, timedelta]:
    return timedelta(seconds=low), timedelta(seconds=high)


_HOUR = 3600
_DAY = 24 * _HOUR


class Numbers(Document):
    """The numbers. Defaults are the safety minimum of each."""

    proposal_lifetime: Annotated[Duration, Rule("less", *_s(30, _DAY))] = timedelta(minutes=15)
    proposal_reminder: Annotated[float, Rule("either", 0.1, 0.9)] = 0.5
    order_lifetime: Annotated[Duration, Rule("less", *_s(5, 600))] = timedelta(seconds=60)
    clock_skew: Annotated[Duration, Rule("less", *_s(0, 60))] = timedelta(seconds=5)
    evidence_freshness: Annotated[Duration, Rule("less", *_s(5, 3600))] = timedelta(seconds=120)
    weight_propose: Annotated[float, Rule("more", 0.0, 1.0)] = 0.60
    weight_auto: Annotated[float, Rule("more", 0.5, 1.0)] = 0.85
    auto_per_workload: Annotated[BudgetText, Rule("less", 0, 100)] = Budget(count=1, per=timedelta(hours=1))
    auto_per_namespace: Annotated[BudgetText, Rule("less", 0, 1000)] = Budget(count=3, per=timedelta(hours=1))
    auto_per_cluster: Annotated[BudgetText, Rule("less", 0, 1000)] = Budget(count=10, per=timedelta(hours=1))
    cool_down: Annotated[Duration, Rule("more", *_s(0, _DAY))] = timedelta(minutes=15)
    repeat_window: Annotated[Duration, Rule("more", *_s(0, _DAY))] = timedelta(hours=6)
    repeat_people: Annotated[Duration, Rule("more", *_s(0, _DAY))] = timedelta(hours=24)
    third_window: Annotated[Duration, Rule("more", *_s(0, _DAY))] = timedelta(hours=24)
    open_per_cluster: Annotated[int, Rule("less", 1, 64)] = 16
    radius_propose: Annotated[float, Rule("less", 0.0, 1.0)] = 0.50
    radius_auto: Annotated[float, Rule("less", 0.0, 1.0)] = 0.30
    min_replicas_restart: Annotated[int, Rule("more", 1, 1000)] = 3
    min_replicas_scale: Annotated[int, Rule("more", 1, 1000)] = 2
    scale_step: Annotated[int, Rule("less", 1, 100)] = 4
    scale_cap: Annotated[int, Rule("less", 1, 1000)] = 20
    watch_restart: Annotated[Duration, Rule("more", *_s(1, 7 * _DAY))] = timedelta(minutes=30)
    watch_scale: Annotated[Duration, Rule("more", *_s(1, 7 * _DAY))] = timedelta(minutes=60)
    follow_up_hold: Annotated[Duration, Rule("more", *_s(1, 7 * _DAY))] = timedelta(minutes=60)
    settle_floor: Annotated[Duration, Rule("more", *_s(1, 600))] = timedelta(seconds=60)
    settle_cap: Annotated[Duration, Rule("either", *_s(1, 1800))] = timedelta(minutes=10)
    apply_cap: Annotated[Duration, Rule("less", *_s(10, _HOUR))] = timedelta(minutes=8)
    kubernetes_sample: Annotated[Duration, Rule("either", *_s(0.1, 30))] = timedelta(seconds=2)
    debounce: Annotated[int, Rule("more", 1, 10)] = 3

    storm_workloads: Annotated[int, Rule("less", 2, 10_000, in_scopes=False)] = 5
    storm_share: Annotated[float, Rule("less", 0.0, 1.0, in_scopes=False)] = 0.20
    storm_window: Annotated[Duration, Rule("more", *_s(10, _HOUR), in_scopes=False)] = timedelta(minutes=5)
    storm_nodes: Annotated[int, Rule("less", 1, 1000, in_scopes=False)] = 2
    storm_orders: Annotated[int, Rule("less", 1, 1000, in_scopes=False)] = 5
    storm_orders_window: Annotated[Duration, Rule("more", *_s(10, _HOUR), in_scopes=False)] = timedelta(minutes=10)
    claim: Annotated[Duration, Rule("either", *_s(5, 600), in_scopes=False)] = timedelta(seconds=30)
    claim_renewal: Annotated[Duration, Rule("either", *_s(1, 300), in_scopes=False)] = timedelta(seconds=10)
    lease: Annotated[Duration, Rule("either", *_s(3, 300), in_scopes=False)] = timedelta(seconds=15)
    lease_renewal: Annotated[Duration, Rule("either", *_s(2, 300), in_scopes=False)] = timedelta(seconds=10)
    lease_retry: Annotated[Duration, Rule("either", *_s(0.1, 60), in_scopes=False)] = timedelta(seconds=2)
    verifier_time: Annotated[Duration, Rule("either", *_s(1, 60), in_scopes=False)] = timedelta(seconds=10)
    triage_time: Annotated[Duration, Rule("either", *_s(1, 300), in_scopes=False)] = timedelta(seconds=30)
    silence_pages: Annotated[Duration, Rule("less", *_s(5, _HOUR), in_scopes=False)] = timedelta(seconds=60)
    page_every: Annotated[Duration, Rule("less", *_s(5, _HOUR), in_scopes=False)] = timedelta(minutes=5)
    body_limit: Annotated[Size, Rule("either", 1024, 256 * 1024 * 1024, in_scopes=False)] = 16 * 1024 * 1024
    annotation_limit: Annotated[Size, Rule("either", 256, 1024 * 1024, in_scopes=False)] = 8_000
    context_limit: Annotated[Size, Rule("either", 1024, 65_536, in_scopes=False)] = 64_000

    @model_validator(mode="after")
    def _within_range(self) -> Numbers:
        for name in sorted(self.model_fields_set):
            rule, value = RULES[name], getattr(self, name)
            if not rule.accepts(value):
                raise ValueError(
                    f"{name}: {shown(value)} is out of range; give between {shown(rule.low)} and {shown(rule.high)}"
                    f" (default {shown(DEFAULTS[name])})"
                )
        return self


RULES: dict[str, Rule] = {
    name: next(item for item in field.metadata if isinstance(item, Rule)) for name, field in Numbers.model_fields.items()
}
DEFAULTS: dict[str, Any] = {name: field.default for name, field in Numbers.model_fields.items()}
ORDERED = (
    ("weight_propose", "weight_auto"),
    ("radius_auto", "radius_propose"),
    ("settle_floor", "settle_cap"),
    ("lease_retry", "lease_renewal"),
    ("lease_renewal", "lease"),
    ("claim_renewal", "claim"),
)
BUDGETS = ("auto_per_workload", "auto_per_namespace", "auto_per_cluster")


def shown(value: Any) -> str:
    """A number as people write it in autonomy.yaml."""
    return duration_text(value) if isinstance(value, timedelta) else str(value)


def effective(installation: Numbers, scope: Numbers) -> Numbers:
    """A scope's numbers: its own where it sets them, else the installation's."""
    return installation.model_copy(update={name: getattr(scope, name) for name in scope.model_fields_set})


def safest(every: Iterable[Numbers]) -> Numbers:
    """The safest value of each number. Budgets are not ordered: take them all, with `ladder.scopes`."""
    first, *rest = every
    pick: dict[str, Callable[..., Any]] = {"more": max, "less": min}
    merged = {
        name: pick[rule.safer](getattr(numbers, name) for numbers in (first, *rest))
        for name, rule in RULES.items()
        if rule.safer in pick and name not in BUDGETS
    }
    return first.model_copy(update=merged)


def loosened(numbers: Numbers, where: str) -> Iterator[str]:
    """One sentence for each number that is less safe than its default."""
    for name, rule in RULES.items():
        value, default = getattr(numbers, name), DEFAULTS[name]
        if _less_safe(rule, value, default):
            yield f"{name} is {shown(value)} in {where}; the safety minimum is {shown(default)}"


def _less_safe(rule: Rule, value: Any, default: Any) -> bool:
    if isinstance(value, Budget):
        return bool(value.count > default.count or _rate(value) > _rate(default))
    return bool((rule.safer == "more" and value < default) or (rule.safer == "less" and value > default))


def _rate(budget: Budget) -> float:
    return budget.count / budget.per.total_seconds()
