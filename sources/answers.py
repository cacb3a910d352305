"""Prometheus's answers as typed values: pure functions from the JSON envelope, strict about its form."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pydantic import Field

from catalog.documents import Document
from sources.expressions import ExpressionInvalid, duration_seconds
from sources.samples import InputState, RangeSeries, Series, sample_of

DEFAULT_INTERVAL_S = 60.0  # Prometheus's own default for both intervals
STALE_INTERVALS = 2
STALE_FLOOR_S = 5.0  # intervals of a second would call every hiccup stale
CLOCK_TOLERANCE_S = 30.0
MAX_SELECTORS = 8
SELECTOR_LABEL = "sre_ladder_selector"
_UP = "up"
_OWN = re.compile(r"(?:up|scrape_[a-z_]+|ALERTS(?:_FOR_STATE)?)(?![\w:])")

_LINE = re.compile(r"(?P<indent>- |\s*)(?P<key>[a-z_]+):(?:\s+(?P<value>.*))?")


class AnswerMalformed(ValueError):
    """JSON that is not what Prometheus's API documents. Treat what was asked as unknown."""


class AlertingRule(Document):
    """One alerting rule as the server evaluates it. Durations in seconds."""

    name: str
    query: str
    duration: float = 0.0
    labels: dict[str, str] = Field(default={})
    annotations: dict[str, str] = Field(default={})
    group: str = ""
    interval: float = DEFAULT_INTERVAL_S
    health: str = ""

    def could_make(self, labels: Mapping[str, str]) -> bool:
        """Whether an alert with these labels can be of this rule: every label that the rule sets itself is there as set."""
        return all("{{" in value or labels.get(name, "") == value for name, value in self.labels.items())


@dataclass(frozen=True)
class Intervals:
    """Seconds between scrapes, overall and by job, and between evaluations."""

    overall: float = DEFAULT_INTERVAL_S
    evaluation: float = DEFAULT_INTERVAL_S
    by_job: Mapping[str, float] = field(default_factory=dict)

    def scrape(self, job: str | None) -> float:
        """Of one job; of a job that the configuration does not name, the global one."""
        return self.by_job.get(job or "", self.overall)

    def longest(self, job: str) -> float:
        """Of one job; of a series whose job label was rewritten, the longest there is, so that nothing is called stale in error."""
        return self.by_job.get(job) or max(self.overall, *self.by_job.values(), 0.0)


def vector_of(envelope: Mapping[str, Any]) -> tuple[Series, ...]:
    """The series of an instant query; a scalar is one series without labels.

    Raises:
        AnswerMalformed: not the answer to an instant query.
    """
    kind, result = _result(envelope)
    if kind == "scalar":
        return (_series({}, result),)
    if kind != "vector" or not isinstance(result, list):
        raise AnswerMalformed(f"a result of type {_word(kind)} where a vector was expected")
    return tuple(_series(_labels(one), one.get("value", one.get("histogram"))) for one in _objects(result))


def matrix_of(envelope: Mapping[str, Any]) -> tuple[RangeSeries, ...]:
    """The series of a range query.

    Raises:
        AnswerMalformed: not the answer to a range query.
    """
    kind, result = _result(envelope)
    if kind != "matrix" or not isinstance(result, list):
        raise AnswerMalformed(f"a result of type {_word(kind)} where a matrix was expected")
    found = []
    for one in _objects(result):
        points = one.get("values", [])
        if not isinstance(points, list):
            raise AnswerMalformed("a series without its values")
        found.append(RangeSeries(labels=_labels(one), points=tuple((_instant(point), sample_of(point[1])) for point in points)))
    return tuple(found)


def rules_of(envelope: Mapping[str, Any]) -> tuple[AlertingRule, ...]:
    """The alerting rules of all groups.

    Raises:
        AnswerMalformed: not a list of rule groups.
    """
    data = envelope.get("data")
    groups = data.get("groups") if isinstance(data, dict) else None
    if not isinstance(groups, list):
        raise AnswerMalformed("no rule groups")
    try:
        return tuple(_rule(rule, group) for group in groups for rule in group["rules"] if rule["type"] == "alerting")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise AnswerMalformed("a rule group of an unknown form") from error


def intervals_of(envelope: Mapping[str, Any]) -> Intervals:
    """Intervals from the configuration as the server prints it (`/api/v1/status/config`). Read line by line: a YAML parser
    would take seconds over the configuration of a large installation.

    Raises:
        AnswerMalformed: no configuration.
    """
    data = envelope.get("data")
    text = data.get("yaml") if isinstance(data, dict) else None
    if not isinstance(text, str):
        raise AnswerMalformed("no configuration")
    section, job = "", ""
    overall = evaluation = DEFAULT_INTERVAL_S
    by_job: dict[str, float] = {}
    for line in text.splitlines():
        found = _LINE.fullmatch(line)
        if found is None:
            continue
        indent, key, value = found["indent"], found["key"], (found["value"] or "").strip().strip("\"'")
        if indent == "":
            section = key
        elif section == "global" and indent == "  " and key == "scrape_interval":
            overall = _seconds(value)
        elif section == "global" and indent == "  " and key == "evaluation_interval":
            evaluation = _seconds(value)
        elif section == "scrape_configs" and indent == "- ":
            job = value if key == "job_name" else ""
        elif section == "scrape_configs" and indent == "  " and key == "scrape_interval" and job:
            by_job[job] = _seconds(value)
    return Intervals(overall=overall, evaluation=evaluation, by_job=by_job)


def freshness_query(read: Sequence[str]) -> str:
    """One query for the newest time stamp behind each selector, by job, and for the jobs that are up."""
    parts = [
        f'label_replace(max by (job) (timestamp({selector})), "{SELECTOR_LABEL}", "{number}", "", "")'
        for number, selector in enumerate(read[:MAX_SELECTORS])
    ]
    return " or ".join([*parts, f'label_replace(max by (job) (up), "{SELECTOR_LABEL}", "{_UP}", "", "")'])


def freshness(
    stamps: Sequence[Series], read: Sequence[str], intervals: Intervals, now: datetime
) -> tuple[InputState, datetime | None]:
    """What the answer to `freshness_query(read)` says of the raw series, and the oldest of the selectors' newest samples.

    A selector is fresh when one of its jobs was scraped within two intervals and has a target that is up (what Prometheus writes
    itself about a target that is down, as `up`, is fresh all the same). An answer that was evaluated long before `now` (a cache,
    a wrong clock) is stale as a whole.
    """
    down = {one.labels.get("job", "") for one in stamps if one.labels.get(SELECTOR_LABEL) == _UP and one.sample == 0.0}
    newest: dict[int, float] = {}
    fresh: set[int] = set()
    for one in stamps:
        number = one.labels.get(SELECTOR_LABEL, "")
        if not number.isdecimal() or int(number) >= len(read) or not isinstance(one.sample, float):
            continue
        selector, job = int(number), one.labels.get("job", "")
        failed = job != "" and job in down and not _OWN.match(read[selector])
        newest[selector] = max(newest.get(selector, 0.0), one.sample)
        allowed = max(STALE_INTERVALS * intervals.longest(job), STALE_FLOOR_S)
        current = abs((now - one.at).total_seconds()) <= max(allowed, CLOCK_TOLERANCE_S)
        if current and one.at.timestamp() - one.sample <= allowed and not failed:
            fresh.add(selector)
    if not newest:
        return "absent", None
    oldest = datetime.fromtimestamp(min(newest.values()), UTC)
    if set(newest) - fresh:
        return "stale", oldest
    return ("fresh" if len(newest) == min(len(read), MAX_SELECTORS) else "absent"), oldest


def _result(envelope: Mapping[str, Any]) -> tuple[object, object]:
    data = envelope.get("data")
    if not isinstance(data, dict):
        raise AnswerMalformed("an answer without data")
    return data.get("resultType"), data.get("result")


def _objects(result: list[Any]) -> list[dict[str, Any]]:
    if not all(isinstance(one, dict) for one in result):
        raise AnswerMalformed("a series that is no object")
    return result


def _labels(one: Mapping[str, Any]) -> dict[str, str]:
    labels = one.get("metric")
    if not isinstance(labels, dict) or not all(isinstance(value, str) for value in labels.values()):
        raise AnswerMalformed("a series without its labels")
    return labels


def _series(labels: dict[str, str], value: object) -> Series:
    at = _instant(value)
    return Series(labels=labels, sample=sample_of(value[1] if isinstance(value, list) else None), at=at)


def _instant(point: object) -> datetime:
    if not isinstance(point, list) or len(point) != 2 or isinstance(point[0], bool) or not isinstance(point[0], int | float):
        raise AnswerMalformed("a sample that is not [time, value]")
    try:
        return datetime.fromtimestamp(point[0], UTC)
    except (OverflowError, ValueError, OSError) as error:
        raise AnswerMalformed("a sample at an impossible time") from error


def _rule(rule: Mapping[str, Any], group: Mapping[str, Any]) -> AlertingRule:
    return AlertingRule(
        name=rule["name"],
        query=rule["query"],
        duration=float(rule.get("duration") or 0.0),
        labels=dict(rule.get("labels") or {}),
        annotations=dict(rule.get("annotations") or {}),
        group=str(group.get("name", "")),
        interval=float(group.get("interval") or DEFAULT_INTERVAL_S),
        health=str(rule.get("health") or ""),
    )


def _seconds(text: str) -> float:
    try:
        return duration_seconds(text) or DEFAULT_INTERVAL_S
    except ExpressionInvalid:
        return DEFAULT_INTERVAL_S


def _word(kind: object) -> str:
    return kind if isinstance(kind, str) and kind.isalpha() and len(kind) < 20 else "unknown"
