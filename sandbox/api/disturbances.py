"""Faults between the client and the API server: latency, errors, cut connections, a server that is away.

A `Disturbance` matches requests and has one effect; it can be bounded by a count and by time. Tests and the demo set them in
process (`Disturbances`) or, as an admin, over HTTP at `/sandbox/faults`. That path itself is never disturbed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sandbox.statuses import BadRequest, InternalError, Json, NotFound, StatusError, TooManyRequests

Effect = Literal["delay", "status", "cut_before", "cut_after", "unavailable"]


class Disturbance(BaseModel):
    """One fault.

    `path` is a regular expression searched in the path with query; `methods` and `user` restrict it further (empty: all).
    Effects: `delay` waits `delay_s` and goes on; `status` answers `status` instead of doing anything; `cut_before` drops the
    connection undone, `cut_after` does the work and drops the connection instead of answering; `unavailable` drops every
    connection until `for_s` is over. `times` counts down with each use (None: no bound); `after` lets that many pass first.
    """

    model_config = ConfigDict(extra="forbid")

    effect: Effect
    path: str = ""
    methods: tuple[str, ...] = ()
    user: str = ""
    times: int | None = Field(default=None, ge=1)
    after: int = Field(default=0, ge=0)
    for_s: float | None = Field(default=None, gt=0)
    delay_s: float = Field(default=0.0, ge=0)
    status: int = Field(default=503, ge=400, le=599)
    retry_after_s: int | None = None
    id: str = ""


@dataclass
class _Running:
    disturbance: Disturbance
    pattern: re.Pattern[str]
    until: float | None
    left: int | None
    passing: int
    used: int = 0


@dataclass
class Disturbances:
    """The faults in force. Not thread-safe: one event loop owns it."""

    _running: list[_Running] = field(default_factory=list)
    _count: int = 0

    def add(self, disturbance: Disturbance, now: float) -> str:
        """Put a fault in force; returns its id. `now` is the loop's time.

        Raises:
            BadRequest: `path` is no regular expression.
        """
        try:
            pattern = re.compile(disturbance.path)
        except re.error as error:
            raise BadRequest(f"path is no regular expression: {error}") from error
        self._count += 1
        named = disturbance.model_copy(update={"id": disturbance.id or f"fault-{self._count}"})
        until = None if disturbance.for_s is None else now + disturbance.for_s
        self._running.append(_Running(named, pattern, until, disturbance.times, disturbance.after))
        return named.id

    def read(self, text: bytes, now: float) -> str:
        """Put a fault in force that came as JSON; returns its id.

        Raises:
            BadRequest: it is not a Disturbance.
        """
        try:
            return self.add(Disturbance.model_validate_json(text), now)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise BadRequest(f"not a fault: {where}: {first['msg']}") from error

    def remove(self, fault_id: str) -> None:
        """End one fault.

        Raises:
            NotFound: no such id.
        """
        kept = [running for running in self._running if running.disturbance.id != fault_id]
        if len(kept) == len(self._running):
            raise NotFound(f'fault "{fault_id}" not found')
        self._running = kept

    def clear(self) -> None:
        """End all faults."""
        self._running.clear()

    def listed(self) -> list[Json]:
        """What is in force, and how often each was used."""
        return [{**running.disturbance.model_dump(), "used": running.used} for running in self._running]

    def due(self, method: str, target: str, user: str, now: float) -> list[Disturbance]:
        """The faults that this request meets; counts them as used."""
        if not self._running:
            return []
        self._running = [running for running in self._running if running.until is None or running.until > now]
        met: list[Disturbance] = []
        for running in self._running:
            if not _matches(running, method, target, user):
                continue
            if running.passing:
                running.passing -= 1
                continue
            running.used += 1
            if running.left is not None:
                running.left -= 1
            met.append(running.disturbance)
        self._running = [running for running in self._running if running.left is None or running.left > 0]
        return met


def _matches(running: _Running, method: str, target: str, user: str) -> bool:
    disturbance = running.disturbance
    if disturbance.methods and method not in disturbance.methods:
        return False
    if disturbance.user and disturbance.user != user:
        return False
    return running.pattern.search(target) is not None


def refusal(disturbance: Disturbance) -> StatusError:
    """The answer of a `status` fault, in the form the server gives that code."""
    headers = {} if disturbance.retry_after_s is None else {"Retry-After": str(disturbance.retry_after_s)}
    error: StatusError
    if disturbance.status == 429:
        error = TooManyRequests("too many requests, please try again later", {}, headers=headers)
    else:
        error = InternalError("the server is currently unable to handle the request", {}, headers=headers)
        error.reason = {503: "ServiceUnavailable", 504: "Timeout", 401: "Unauthorized", 403: "Forbidden"}.get(
            disturbance.status, "InternalError"
        )
    error.code = disturbance.status
    return error
