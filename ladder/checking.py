"""The checks of an order: the named state of the target and its dependants that a transaction must not leave worse. Pure.

Three oracles must each have at least one: the alert (rule expressions evaluated for the target), the service level (the scope's
expressions) and the component (Kubernetes itself). An order without one of them could not tell a regression from silence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal

from catalog.documents import Document
from catalog.evidence import Oracle
from catalog.names import is_dns_subdomain
from catalog.orders import Check, CheckSource, KubernetesFact, SeriesMatcher
from catalog.targets import Target, TargetFacts, TargetKind
from ladder.errors import NotCheckable
from ladder.numbers import parse_duration
from ladder.scopes import MergedScope

_STRING = re.compile(r""""(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`[^`]*`""")
_RANGE = re.compile(r"\[\s*(?P<range>(?:\d+(?:ms|[smhdwy]))+)\s*(?P<sub>:)?[^\]]*\]")
_PART = re.compile(r"(\d+)(ms|[smhdwy])")
_LONG_UNITS = {"w": 7 * 86400.0, "y": 365 * 86400.0}


class AlertExpression(Document):
    """The expression of an alerting rule, and which of its series speak of `target`."""

    alertname: str
    expression: str
    target: Target
    series: tuple[SeriesMatcher, ...]
    opened: bool = False


def checks_for(
    facts: TargetFacts,
    scope: MergedScope,
    alerts: Sequence[AlertExpression],
    *,
    mode: Literal["auto", "approved"],
    origin: Literal["alert", "follow_up"] = "alert",
) -> tuple[Check, ...]:
    """Every check of an order on the target of `facts`.

    An order that a person approved may go without a service-level check (it is R5 that needs one), and a follow-up, which has
    no alert, without an alert check.

    Raises:
        NotCheckable: a needed oracle has none; the text says what would supply it.
    """
    target = facts.target
    found = [*_alert_checks(alerts, scope), *_service_levels(target, scope), *_components(target, facts)]
    for dependant in dependant_targets(target, scope):
        found.append(_kubernetes(dependant, KubernetesFact.AVAILABILITY))
    covered = {check.oracle for check in found}
    if Oracle.SERVICE_LEVEL not in covered and mode == "auto":
        raise NotCheckable(f"scope {scope.name} has no service-level check; add one under checks:")
    if not any(check.opened for check in found) and origin == "alert":
        raise NotCheckable("the rule expression that opened the incident could not be read, so an improvement could not be seen")
    return tuple(_distinct(found))


def dependant_targets(target: Target, scope: MergedScope) -> tuple[Target, ...]:
    """`dependants:` of the scope as objects beside the target, without the target itself."""
    found = []
    for entry in scope.dependants:
        kind, _, name = entry.partition("/")
        beside = Target(
            cluster_uid=target.cluster_uid, cluster=target.cluster, namespace=target.namespace, kind=TargetKind(kind), name=name
        )
        if is_dns_subdomain(name) and beside.key != target.key:
            found.append(beside)
    return tuple(found)


def longest_range(query: str) -> float:
    """Seconds of the longest look back in a PromQL expression. Subqueries add to what they enclose."""
    bare = _STRING.sub('""', query)
    plain, stacked = 0.0, 0.0
    for found in _RANGE.finditer(bare):
        seconds = sum(_seconds(amount, unit) for amount, unit in _PART.findall(found["range"]))
        if found["sub"]:
            stacked += seconds
        else:
            plain = max(plain, seconds)
    return plain + stacked


def _seconds(amount: str, unit: str) -> float:
    return int(amount) * _LONG_UNITS[unit] if unit in _LONG_UNITS else parse_duration(f"{amount}{unit}").total_seconds()


def _alert_checks(alerts: Iterable[AlertExpression], scope: MergedScope) -> list[Check]:
    return [
        Check(
            name=f"alert {alert.alertname}" if alert.opened else f"alert {alert.alertname} of {alert.target.title}",
            oracle=Oracle.ALERT,
            source=CheckSource.PROMETHEUS,
            target=alert.target,
            query=alert.expression,
            series=alert.series,
            empty="passing",
            debounce=scope.numbers.debounce,
            longest_range=longest_range(alert.expression),
            opened=alert.opened,
        )
        for alert in alerts
    ]


def _service_levels(target: Target, scope: MergedScope) -> list[Check]:
    return [
        Check(
            name=f"service level {check.name}",
            oracle=Oracle.SERVICE_LEVEL,
            source=CheckSource.PROMETHEUS,
            target=target,
            query=check.query,
            passing=check.passing,
            empty=check.empty,
            weight=check.weight,
            debounce=max(scope.numbers.debounce, check.debounce or 0),
            longest_range=longest_range(check.query),
        )
        for check in scope.checks
    ]


def _components(target: Target, facts: TargetFacts) -> list[Check]:
    wanted = [KubernetesFact.AVAILABILITY, KubernetesFact.RESTARTS, KubernetesFact.NODES_READY]
    if facts.services:
        wanted.append(KubernetesFact.ENDPOINTS)
    return [_kubernetes(target, fact) for fact in wanted]


def _kubernetes(target: Target, fact: KubernetesFact) -> Check:
    return Check(
        name=f"{fact.value.replace('_', ' ')} of {target.title}",
        oracle=Oracle.COMPONENT,
        source=CheckSource.KUBERNETES,
        target=target,
        fact=fact,
    )


def _distinct(checks: Iterable[Check]) -> list[Check]:
    """One check per name: a second one of the same name gets a number."""
    kept: dict[str, Check] = {}
    for check in checks:
        name, n = check.name, 1
        while name in kept:
            if kept[name].model_copy(update={"name": check.name}) == check:
                break
            n += 1
            name = f"{check.name} ({n})"
        kept[name] = check.model_copy(update={"name": name})
    return list(kept.values())
