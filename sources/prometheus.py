"""Queries to one Prometheus, answered in three states.

The client library is synchronous and has neither a time-out nor a bound of its own, so every request runs in a thread of this
reader, without retries, under one deadline for the whole answer. An answer that is not Prometheus's (HTML, other JSON, success
that says error) is `malformed`, never an empty result.

Prometheus evaluates over samples up to five minutes old without saying so. Therefore an instant query is accompanied by one for
the time stamps of the raw series behind it: newest sample older than two scrape intervals, or a job whose targets are all down,
means `stale`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import quote

from prometheus_api_client.exceptions import PrometheusApiClientException
from prometheus_api_client.prometheus_connect import PrometheusConnect
from requests.exceptions import ConnectionError as RequestsConnectionError
from requests.exceptions import RequestException, Timeout
from urllib3 import Retry
from urllib3.exceptions import HTTPError as Urllib3Error
from urllib3.exceptions import ReadTimeoutError

from catalog.clocks import Clock
from sources.answers import (
    AlertingRule,
    AnswerMalformed,
    Intervals,
    freshness,
    freshness_query,
    intervals_of,
    matrix_of,
    rules_of,
    vector_of,
)
from sources.bearer import Bearer, checked_url
from sources.errors import FailureKind, SourceUnavailable
from sources.expressions import ExpressionInvalid, selectors
from sources.samples import InputState, Matrix, Unknown, Vector
from sources.wire import AnswerTooLate, AnswerTooLong, BoundedSession

THREADS = 8
KEPT_S = 15.0
_KIND_OF_STATUS: dict[int, FailureKind] = {
    400: "malformed", 401: "unauthorized", 403: "forbidden", 404: "malformed", 408: "timeout", 422: "malformed", 429: "throttled",
    504: "timeout",
}  # fmt: skip

Ask = Callable[[], object]
_T = TypeVar("_T")


class PrometheusReader:
    """Reads of one Prometheus. Every method ends within `timeout_s` and raises `SourceUnavailable` when it has no answer."""

    def __init__(self, url: str, clock: Clock, timeout_s: float = 5.0, token_file: Path | None = None) -> None:
        self.url = checked_url(url, "Prometheus")
        self._clock = clock
        self._timeout_s = timeout_s
        self._bearer = Bearer(token_file, "prometheus")
        self._session = BoundedSession(clock, timeout_s)
        self._client = PrometheusConnect(self.url, retry=Retry(0), session=self._session)
        self._threads = ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix="prometheus")
        self._kept: dict[str, tuple[float, Any]] = {}

    async def instant(self, query: str, at: datetime | None = None, *, check_inputs: bool = True) -> Vector:
        """The query evaluated now, or at `at`; a scalar comes as one series without labels.

        Samples are `Unknown` where they are NaN, infinite or (with `check_inputs`) made from series that nobody scraped lately.

        Raises:
            SourceUnavailable: no answer, or none that can be understood.
        """
        parameters = {"time": f"{at.timestamp():.3f}"} if at is not None else {}
        ask = self._call(lambda: self._client.custom_query(query, params=dict(parameters)))
        if not check_inputs:
            return self._vector(await ask, at, "unchecked", None)
        envelope, (state, newest) = await asyncio.gather(ask, self._inputs(query, at))
        return self._vector(envelope, at, state, newest)

    async def range(self, query: str, start: datetime, end: datetime, step: float) -> Matrix:
        """The query at each step from `start` to `end`, both to whole seconds; `step` in seconds.

        Raises:
            SourceUnavailable: no answer, or none that can be understood.
        """
        envelope = await self._call(lambda: self._client.custom_query_range(query, start, end, f"{step:g}"))
        return Matrix(series=self._understood(matrix_of, envelope), warnings=_warnings(envelope))

    async def rules(self) -> tuple[AlertingRule, ...]:
        """All alerting rules. The answer is kept for a quarter of a minute.

        Raises:
            SourceUnavailable: no answer, or none that can be understood.
        """
        return await self._keep("/api/v1/rules", {"type": "alert"}, rules_of)

    async def rule_expression(self, alertname: str, labels: Mapping[str, str]) -> str | None:
        """The expression of the rule that made an alert with these labels, None when no rule or more than one could have.

        Raises:
            SourceUnavailable: the rules could not be read.
        """
        rule = await self.rule(alertname, labels)
        return rule.query if rule is not None else None

    async def rule(self, alertname: str, labels: Mapping[str, str]) -> AlertingRule | None:
        """The rule that made an alert with these labels. Of several with one name, their own labels tell which.

        Raises:
            SourceUnavailable: the rules could not be read.
        """
        fitting = [rule for rule in await self.rules() if rule.name == alertname and rule.could_make(labels)]
        return fitting[0] if len({rule.query for rule in fitting}) == 1 else None

    async def scrape_interval(self, job: str | None = None) -> float:
        """Seconds between two scrapes: of the job with this name, else the global setting.

        Where the configuration is not shown to us, Prometheus's own default of a minute, which is the careful side.
        """
        return (await self._intervals()).scrape(job)

    async def evaluation_interval(self, alertname: str | None = None) -> float:
        """Seconds between two evaluations of a rule: that of its group, else the global setting, else a minute."""
        if alertname is not None:
            try:
                found = [rule.interval for rule in await self.rules() if rule.name == alertname]
            except SourceUnavailable:
                found = []
            if found:
                return max(found)
        return (await self._intervals()).evaluation

    def link(self, query: str) -> str:
        """Address at which a person sees the query's result."""
        return f"{self.url}/graph?g0.expr={quote(query, safe='')}&g0.tab=1"

    async def close(self) -> None:
        """Close the connections and let the threads end."""
        self._session.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _vector(self, envelope: dict[str, Any], at: datetime | None, state: InputState, newest: datetime | None) -> Vector:
        series = self._understood(vector_of, envelope)
        if state == "stale":
            seen = f"newest sample of {newest:%H:%M:%S} UTC" if newest else "its targets are down"
            series = tuple(one.model_copy(update={"sample": Unknown(reason="stale", detail=seen)}) for one in series)
        return Vector(series=series, at=at or self._clock.now(), inputs=state, newest_at=newest, warnings=_warnings(envelope))

    async def _inputs(self, query: str, at: datetime | None) -> tuple[InputState, datetime | None]:
        """State of the raw series that the query reads."""
        try:
            read = selectors(query)
        except ExpressionInvalid:
            return "unchecked", None  # the server will say what is wrong with it
        if not read:
            return "fresh", None
        parameters = {"time": f"{at.timestamp():.3f}"} if at is not None else {}
        intervals = await self._intervals()
        envelope = await self._call(lambda: self._client.custom_query(freshness_query(read), params=dict(parameters)))
        stamps = self._understood(vector_of, envelope)
        return freshness(stamps, read, intervals, at or self._clock.now())

    async def _intervals(self) -> Intervals:
        try:
            return await self._keep("/api/v1/status/config", {}, intervals_of)
        except SourceUnavailable as error:
            if error.kind in ("timeout", "unreachable"):
                raise
            return Intervals()

    async def _keep(self, path: str, parameters: dict[str, str], understand: Callable[[dict[str, Any]], _T]) -> _T:
        """An answer that changes only with the configuration, asked again after `KEPT_S`."""
        kept = self._kept.get(path)
        if kept is not None and self._clock.monotonic() - kept[0] < KEPT_S:
            return cast(_T, kept[1])
        envelope = await self._call(lambda: self._get(path, parameters))
        answer = self._understood(understand, envelope)
        self._kept[path] = (self._clock.monotonic(), answer)
        return answer

    def _get(self, path: str, parameters: dict[str, str]) -> None:
        """An endpoint that the client library does not know, asked the way it asks."""
        response = self._session.get(self.url + path, params=parameters, headers=self._client.headers, timeout=self._timeout_s)
        if response.status_code != 200:
            raise PrometheusApiClientException(f"status {response.status_code}")

    def _understood(self, understand: Callable[[dict[str, Any]], _T], envelope: dict[str, Any]) -> _T:
        try:
            return understand(envelope)
        except AnswerMalformed as error:
            raise SourceUnavailable("prometheus", "malformed", str(error)) from error

    async def _call(self, ask: Ask) -> dict[str, Any]:
        """The envelope of one request, made in a thread, under the deadline."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._timeout_s):
                return await loop.run_in_executor(self._threads, self._asked, ask)
        except TimeoutError as error:
            raise self._too_late() from error

    def _asked(self, ask: Ask) -> dict[str, Any]:
        """In the thread: ask, and once more with a fresh token after a 401."""
        self._client.headers = self._bearer.headers()
        try:
            return self._answered(ask)
        except SourceUnavailable as error:
            if error.kind != "unauthorized":
                raise
        self._bearer.forget()
        self._client.headers = self._bearer.headers()
        return self._answered(ask)

    def _answered(self, ask: Ask) -> dict[str, Any]:
        try:
            ask()
        except (Timeout, AnswerTooLate, ReadTimeoutError) as error:
            raise self._too_late() from error
        except AnswerTooLong as error:
            raise SourceUnavailable("prometheus", "malformed", str(error)) from error
        except (RequestsConnectionError, Urllib3Error, OSError) as error:
            if isinstance(error, RequestException) and not isinstance(error, RequestsConnectionError):
                raise SourceUnavailable("prometheus", "malformed", "an answer that is not Prometheus's") from error
            raise SourceUnavailable("prometheus", "unreachable", f"cannot connect ({type(error).__name__})") from error
        except PrometheusApiClientException as error:
            status = self._session.last_status
            raise SourceUnavailable("prometheus", _KIND_OF_STATUS.get(status, "server_error"), f"status {status}") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:  # the library reads answers without looking
            raise SourceUnavailable("prometheus", "malformed", "an answer that is not Prometheus's") from error
        envelope = self._session.last_envelope
        if envelope.get("status") != "success":
            raise SourceUnavailable("prometheus", "malformed", "an answer that does not say success")
        return envelope

    def _too_late(self) -> SourceUnavailable:
        return SourceUnavailable("prometheus", "timeout", f"no answer in {self._timeout_s:g} s")


def _warnings(envelope: dict[str, Any]) -> tuple[str, ...]:
    found = envelope.get("warnings")
    return tuple(str(warning)[:500] for warning in found) if isinstance(found, list) else ()
