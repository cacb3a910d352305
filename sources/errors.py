"""What can go wrong when a source is read.

SourceError
├── SourceUnavailable     the source did not answer, or not in its own language: treat what was asked as unknown
└── SourceMisconfigured   the way to it is described wrongly: tell the person who configured it, do not retry
"""

from __future__ import annotations

from typing import Literal

from catalog.evidence import SourceName

FailureKind = Literal["unreachable", "timeout", "unauthorized", "forbidden", "throttled", "server_error", "malformed"]

_PHRASES: dict[FailureKind, str] = {
    "unreachable": "cannot be reached",
    "timeout": "did not answer in time",
    "unauthorized": "does not accept our credentials",
    "forbidden": "does not allow this read",
    "throttled": "asked us to slow down",
    "server_error": "answered with an error",
    "malformed": "gave an answer that is not one",
}


class SourceError(Exception):
    """Root of the errors of this package."""


class SourceUnavailable(SourceError):
    """A source could not be read. What was asked is unknown now; ask again later, invent nothing.

    `detail` is safe to show: it never quotes an answer's body, which may hold whole objects and so the values of secrets.
    """

    def __init__(self, source: SourceName, kind: FailureKind, detail: str) -> None:
        super().__init__(source, kind, detail)
        self.source: SourceName = source
        self.kind: FailureKind = kind
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.source} {_PHRASES[self.kind]}: {self.detail}"


class SourceMisconfigured(SourceError):
    """How to reach a source is described wrongly (no such file, no such context, …). The message is for who configured it."""
