"""What Alertmanager knows now: whether an alert is firing, and whether a silence or an inhibition covers it. API version 2."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp

from catalog.documents import Document
from sources.bearer import Bearer, checked_url
from sources.errors import FailureKind, SourceUnavailable
from sources.kubernetes import connection_reason

MAX_ANSWER_BYTES = 32 * 1024 * 1024
_NARROWING = ("alertname", "namespace")  # asked of the server; the exact comparison is made here
_PLAIN = re.compile(r"[A-Za-z0-9_.:/ -]+")
_KIND_OF_STATUS: dict[int, FailureKind] = {401: "unauthorized", 403: "forbidden", 408: "timeout", 429: "throttled", 504: "timeout"}


class SourceAlert(Document):
    """One alert as Alertmanager holds it. It fires whether or not anybody is told of it."""

    labels: dict[str, str]
    fingerprint: str = ""
    starts_at: str = ""
    silenced_by: tuple[str, ...] = ()
    inhibited_by: tuple[str, ...] = ()


class AlertmanagerReader:
    """Reads of one Alertmanager. Every method ends within `timeout_s` and raises `SourceUnavailable` when it has no answer."""

    def __init__(self, url: str, timeout_s: float = 5.0, token_file: Path | None = None) -> None:
        self.url = checked_url(url, "Alertmanager")
        self._timeout_s = timeout_s
        self._bearer = Bearer(token_file, "alertmanager")
        self._session: aiohttp.ClientSession | None = None

    async def alert(self, labels: Mapping[str, str], fingerprint: str | None = None) -> SourceAlert | None:
        """The alert with this fingerprint or exactly these labels, None when Alertmanager holds none that has not ended.

        Raises:
            SourceUnavailable: no answer, or none that can be understood.
        """
        wanted = {name: value for name, value in labels.items() if value}
        query = [("filter", f'{name}="{wanted[name]}"') for name in _NARROWING if _PLAIN.fullmatch(wanted.get(name, ""))]
        query += [(state, "true") for state in ("active", "silenced", "inhibited", "unprocessed")]
        for one in _alerts(await self._get("/api/v2/alerts", query)):
            if one.labels == wanted or (fingerprint and one.fingerprint == fingerprint):
                return one
        return None

    async def firing(self, labels: Mapping[str, str], fingerprint: str | None = None) -> bool:
        """Whether the alert is firing at its source now, silenced and inhibited ones included.

        Raises:
            SourceUnavailable: no answer, or none that can be understood.
        """
        return await self.alert(labels, fingerprint) is not None

    async def silenced(self, labels: Mapping[str, str]) -> bool:
        """Whether an active silence covers an alert with these labels, be it there or not.

        Raises:
            SourceUnavailable: no answer, or none that can be understood.
        """
        answer = await self._get("/api/v2/silences", [])
        if not isinstance(answer, list):
            raise _malformed("silences that are no list")
        try:
            active = [one["matchers"] for one in answer if one["status"]["state"] == "active"]
            return any(matchers and all(_holds(matcher, labels) for matcher in matchers) for matchers in active)
        except (KeyError, TypeError, AttributeError, re.error) as error:
            raise _malformed("a silence of an unknown form") from error

    async def inhibited(self, labels: Mapping[str, str], fingerprint: str | None = None) -> bool:
        """Whether another alert keeps this one from being sent.

        Raises:
            SourceUnavailable: no answer, or none that can be understood.
        """
        found = await self.alert(labels, fingerprint)
        return found is not None and bool(found.inhibited_by)

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def _get(self, path: str, query: list[tuple[str, str]]) -> Any:
        status, body = await self._once(path, query)
        if status == 401:
            self._bearer.forget()
            status, body = await self._once(path, query)
        if status != 200:
            raise SourceUnavailable("alertmanager", _KIND_OF_STATUS.get(status, "server_error"), f"{path}: status {status}")
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as error:
            raise _malformed(f"{path}: an answer that is not JSON") from error

    async def _once(self, path: str, query: list[tuple[str, str]]) -> tuple[int, bytes]:
        if self._session is None:
            self._session = aiohttp.ClientSession(trust_env=True)
        timeout = aiohttp.ClientTimeout(total=self._timeout_s)
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                self._session.get(
                    self.url + path, params=query, headers=self._bearer.headers(), timeout=timeout, allow_redirects=False
                ) as answer,
            ):
                body = await _bounded(answer)
                return answer.status, body
        except TimeoutError as error:
            raise SourceUnavailable("alertmanager", "timeout", f"{path}: no answer in {self._timeout_s:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise SourceUnavailable("alertmanager", "unreachable", f"{path}: {connection_reason(error)}") from error


async def _bounded(answer: aiohttp.ClientResponse) -> bytes:
    parts, size = [], 0
    async for chunk in answer.content.iter_chunked(1 << 16):
        size += len(chunk)
        if size > MAX_ANSWER_BYTES:
            raise _malformed(f"more than {MAX_ANSWER_BYTES >> 20} MiB")
        parts.append(chunk)
    return b"".join(parts)


def _alerts(answer: Any) -> list[SourceAlert]:
    if not isinstance(answer, list):
        raise _malformed("alerts that are no list")
    try:
        return [
            SourceAlert(
                labels=dict(one["labels"]),
                fingerprint=str(one.get("fingerprint", "")),
                starts_at=str(one.get("startsAt", "")),
                silenced_by=tuple(one["status"].get("silencedBy") or ()),
                inhibited_by=tuple(one["status"].get("inhibitedBy") or ()),
            )
            for one in answer
        ]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise _malformed("an alert of an unknown form") from error


def _holds(matcher: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a silence's matcher fits; an absent label counts as empty, as Alertmanager counts it."""
    value, wanted = labels.get(str(matcher["name"]), ""), str(matcher["value"])
    fits = re.fullmatch(wanted, value) is not None if matcher["isRegex"] else value == wanted
    return fits if matcher.get("isEqual", True) else not fits


def _malformed(detail: str) -> SourceUnavailable:
    return SourceUnavailable("alertmanager", "malformed", detail)
