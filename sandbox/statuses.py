"""Refusals as the API server words them: one exception per reason, each with the Status document that goes over the wire.

StatusError                        whatever the reason: answer `document` with `code`
├── BadRequest, Invalid            the caller's request is wrong: change it
├── Unauthorized, Forbidden        the caller may not: change the account or its rights
├── NotFound, AlreadyExists        the name is free, or taken
├── Conflict                       somebody else wrote first: read again, decide again
├── Expired, TooLargeVersion       the version asked for is gone, or not here yet: list again
├── TooManyRequests                later may be different: a disruption budget or the server says no for now
├── MethodNotAllowed, NotAcceptable, TooLarge, UnsupportedMediaType   the request has the wrong form
└── InternalError                  the server's own trouble
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sandbox.kinds import Kind

Json = dict[str, Any]


class StatusError(Exception):
    """An answer that is not a success. `document` is the body, `code` the HTTP status, `headers` what else belongs to it."""

    code = 500
    reason = "InternalError"

    def __init__(self, message: str, details: Json | None = None, *, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.details = details
        self.headers = headers or {}
        self.metadata: Json = {}

    @property
    def document(self) -> Json:
        """The Status object, keys in the order the server writes them."""
        body: Json = {"kind": "Status", "apiVersion": "v1", "metadata": self.metadata, "status": "Failure", "message": self.message}
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = self.details
        body["code"] = self.code
        return body


def details_of(kind: Kind, name: str = "", *, as_kind: bool = False, causes: Sequence[Json] = ()) -> Json:
    """`details` of a Status about an object; `as_kind` names the kind ("Deployment") instead of the resource ("deployments")."""
    body: Json = {}
    if name:
        body["name"] = name
    if kind.group:
        body["group"] = kind.group
    body["kind"] = kind.kind if as_kind else kind.plural
    if causes:
        body["causes"] = list(causes)
    return body


class BadRequest(StatusError):
    """The request cannot be understood: change it."""

    code = 400
    reason = "BadRequest"


class Unauthorized(StatusError):
    """The credentials are not valid here: get others."""

    code = 401
    reason = "Unauthorized"

    def __init__(self) -> None:
        super().__init__("Unauthorized")


class Forbidden(StatusError):
    """The caller may not do this: ask whoever grants rights, or stop asking."""

    code = 403
    reason = "Forbidden"

    @classmethod
    def to_write(cls, kind: Kind, name: str, why: str, causes: Sequence[Json] = ()) -> Forbidden:
        """A refusal by admission: `deployments.apps "web" is forbidden: WHY`."""
        return cls(f'{kind.resource} "{name}" is forbidden: {why}', details_of(kind, name, causes=causes))


class NotFound(StatusError):
    """There is no such object, resource or path."""

    code = 404
    reason = "NotFound"

    @classmethod
    def of(cls, kind: Kind, name: str) -> NotFound:
        return cls(f'{kind.resource} "{name}" not found', details_of(kind, name))


class AlreadyExists(StatusError):
    """The name is taken: read what is there."""

    code = 409
    reason = "AlreadyExists"

    @classmethod
    def of(cls, kind: Kind, name: str) -> AlreadyExists:
        return cls(f'{kind.resource} "{name}" already exists', details_of(kind, name))


class Conflict(StatusError):
    """The object is not what the caller thought: read it again before deciding again."""

    code = 409
    reason = "Conflict"

    @classmethod
    def stale(cls, kind: Kind, name: str) -> Conflict:
        """The resourceVersion in the request is not the stored one."""
        why = "the object has been modified; please apply your changes to the latest version and try again"
        return cls(f'Operation cannot be fulfilled on {kind.resource} "{name}": {why}', details_of(kind, name))

    @classmethod
    def precondition(cls, kind: Kind, name: str, field: str, wanted: str, stored: str) -> Conflict:
        """A DELETE precondition (`UID` or `ResourceVersion`) does not hold."""
        likely = "deleted and then recreated" if field == "UID" else "modified"
        why = (
            f"the {field} in the precondition ({wanted}) does not match the {field} in record ({stored}). "
            f"The object might have been {likely}"
        )
        return cls(f'Operation cannot be fulfilled on {kind.qualified} "{name}": {why}', details_of(kind, name, as_kind=True))


class Invalid(StatusError):
    """The object breaks a rule of its kind: change the named fields."""

    code = 422
    reason = "Invalid"


class Expired(StatusError):
    """The version asked for is no longer kept: list again."""

    code = 410
    reason = "Expired"


class TooManyRequests(StatusError):
    """Not now: try later."""

    code = 429
    reason = "TooManyRequests"


class MethodNotAllowed(StatusError):
    """This path has no such verb."""

    code = 405
    reason = "MethodNotAllowed"


class NotAcceptable(StatusError):
    """None of the media types the caller accepts is served here."""

    code = 406
    reason = "NotAcceptable"


class TooLarge(StatusError):
    """The body is larger than the server reads: send less."""

    code = 413
    reason = "RequestEntityTooLarge"


class UnsupportedMediaType(StatusError):
    """The body has a media type this path does not read."""

    code = 415
    reason = "UnsupportedMediaType"


class TooLargeVersion(StatusError):
    """The version asked for lies in the future: list without it."""

    code = 504
    reason = "Timeout"


class InternalError(StatusError):
    """The server's own trouble; trying again may help."""

    code = 500
    reason = "InternalError"
