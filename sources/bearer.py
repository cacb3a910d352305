"""A bearer token kept in a file, for Prometheus and Alertmanager behind an authenticating proxy."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from catalog.evidence import SourceName
from sources.connecting import TokenFile
from sources.errors import SourceMisconfigured, SourceUnavailable


class Bearer:
    """Headers with the token of now; none when no file is given."""

    def __init__(self, token_file: Path | None, source: SourceName) -> None:
        self._file = TokenFile(token_file) if token_file is not None else None
        self._source: SourceName = source

    def headers(self) -> dict[str, str]:
        """The Authorization header.

        Raises:
            SourceUnavailable: the file cannot be read and never could.
        """
        try:
            return {"Authorization": f"Bearer {self._file.read()}"} if self._file is not None else {}
        except SourceMisconfigured as error:
            raise SourceUnavailable(self._source, "unauthorized", str(error)) from error

    def forget(self) -> None:
        """Read the file again before the next request."""
        if self._file is not None:
            self._file.forget()


def checked_url(url: str, what: str) -> str:
    """A server's address without a trailing slash.

    Raises:
        SourceMisconfigured: not an http(s) URL, or one with a password, query or fragment in it.
    """
    parts = urlsplit(url.strip())
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SourceMisconfigured(f"the {what} address is not an http or https URL")
    if parts.username is not None or parts.query or parts.fragment:
        raise SourceMisconfigured(f"the {what} address at {parts.hostname} must have no user, query or fragment; use a token file")
    return urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/"), "", ""))
