"""The HTTP session under the Prometheus client: one deadline for the whole answer, a bound on its size, no redirects.

`requests` bounds only the wait for the next bytes, so a server that drips would hold a thread for ever, and it would follow a
redirect to a log-in page and call that an answer. What the client library drops (warnings, result type) is kept per thread.
"""

from __future__ import annotations

import io
import threading
from typing import Any

from requests import PreparedRequest, Response, Session
from requests.exceptions import RequestException

from catalog.clocks import Clock

MAX_ANSWER_BYTES = 32 * 1024 * 1024
_CHUNK = 1 << 16


class AnswerTooLong(RequestException):
    """More bytes than any sensible answer has. Narrow the query."""


class AnswerTooLate(RequestException):
    """The deadline passed while the answer was still coming."""


class BoundedSession(Session):
    """A session whose every answer is read whole within `timeout_s`, or not at all."""

    def __init__(self, clock: Clock, timeout_s: float) -> None:
        super().__init__()
        self.auth = _as_given
        self._clock = clock
        self._timeout_s = timeout_s
        self._last = threading.local()

    @property
    def last_status(self) -> int:
        """HTTP status of this thread's latest answer; 0 when there was none."""
        return int(getattr(self._last, "status", 0))

    @property
    def last_envelope(self) -> dict[str, Any]:
        """JSON object of this thread's latest answer; empty when it was none."""
        return dict(getattr(self._last, "envelope", {}))

    def send(self, request: PreparedRequest, **kwargs: Any) -> Response:
        self._last.status, self._last.envelope = 0, {}
        deadline = self._clock.monotonic() + self._timeout_s
        response = super().send(request, **{**kwargs, "stream": True, "allow_redirects": False, "timeout": self._timeout_s})
        try:
            body = self._read(response, deadline)
        except BaseException:
            response.close()
            raise
        response.raw = io.BytesIO(body)
        self._last.status = response.status_code
        self._last.envelope = _envelope(response)
        return response

    def _read(self, response: Response, deadline: float) -> bytes:
        parts, size = [], 0
        while chunk := response.raw.read1(_CHUNK, decode_content=True):
            size += len(chunk)
            if size > MAX_ANSWER_BYTES:
                raise AnswerTooLong(f"more than {MAX_ANSWER_BYTES >> 20} MiB")
            if self._clock.monotonic() > deadline:
                raise AnswerTooLate("the deadline passed while the answer was coming")
            parts.append(chunk)
        return b"".join(parts)


def _as_given(request: PreparedRequest) -> PreparedRequest:
    """No other credentials than the headers have: keeps `requests` from looking into a .netrc."""
    return request


def _envelope(response: Response) -> dict[str, Any]:
    try:
        answer = response.json()
    except (ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}
