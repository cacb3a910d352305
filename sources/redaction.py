"""Secrets leave a text here, once, where it enters: before the model, chat, database and our own logs.

A secret becomes `[redacted:<kind>:<8 hexadecimal digits>]`, an HMAC of the value under the key of the installation, so that the
same secret is the same tag everywhere and cannot be guessed back. Names that Kubernetes gives (DNS-1123, UIDs, digests) stay:
identity is needed whole. Redacting twice changes nothing.

Two detectors look at every text: `redact_secret` (formats of known issuers) and the patterns of `sources.secrets`. Whatever one
of them finds is taken. A text that cannot be scanned is redacted as a whole.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import redact_secret

from catalog.names import is_dns_subdomain
from sources.secrets import SENSITIVE_FLAG, Finding, is_sensitive_key, matches

TAG = re.compile(r"\[redacted:[a-z0-9-]{1,40}:[0-9a-f]{8}\]")
MAX_TEXT = 8 * 1024 * 1024
MAX_ROUNDS = 8
WINDOW = 16 * 1024
OVERLAP = 1024

_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_DIGEST = re.compile(r"(?:sha(?:256|512):)?(?:[0-9a-f]{64}|[0-9a-f]{128})")
_KEPT_KEYS = frozenset(
    {
        "name",
        "namespace",
        "uid",
        "kind",
        "apiVersion",
        "resourceVersion",
        "image",
        "imageID",
        "containerID",
        "nodeName",
        "secretName",
    }
)
_DROPPED_ANNOTATIONS = frozenset({"kubectl.kubernetes.io/last-applied-configuration"})
_MIN_ECHO = 6  # a shorter value would blank ordinary words


class Redactor:
    """Replaces secrets by tags under one key. Without state: the same text gives the same result."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def text(self, text: str) -> str:
        """The text without its secrets."""
        return self._scrub(text, set())

    def lines(self, lines: Sequence[str]) -> tuple[str, ...]:
        """Lines that belong together, as of one log: a key that spans lines is found, and becomes one line."""
        return tuple(self.text("\n".join(lines)).split("\n")) if lines else ()

    def mapping(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """A JSON document without its secrets: data of Secret objects, values under telling keys, every text.

        A value that was found in one place is replaced wherever else in the document it occurs.
        """
        found: set[str] = set()
        once: dict[str, Any] = self._value(document, "", found)
        names = set(_identities(document))
        echoes = sorted((value for value in found if len(value) >= _MIN_ECHO and value not in names), key=len, reverse=True)
        return self._echoed(once, echoes) if echoes else once

    def tag(self, kind: str, value: str) -> str:
        """The tag that stands for `value`."""
        digest = hmac.new(self._key, value.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()
        return f"[redacted:{kind}:{digest[:8]}]"

    def _scrub(self, text: str, found: set[str]) -> str:
        """Replace until nothing more is found, so that a second time changes nothing. A text that is made to need many rounds
        is not worth them."""
        whole = text
        if len(text) > MAX_TEXT:
            return self.tag("oversized", text)
        for _ in range(MAX_ROUNDS):
            findings = _merged(text, [*matches(text), *_known_formats(text)])
            if not findings:
                return text
            parts, at = [], 0
            for finding in findings:
                value = text[finding.start : finding.end]
                found.add(value)
                parts += [text[at : finding.start], self.tag(finding.kind, value)]
                at = finding.end
            text = "".join([*parts, text[at:]])
        return self.tag("unscannable", whole)

    def _value(self, value: Any, key: str, found: set[str]) -> Any:
        if isinstance(value, Mapping):
            return self._object(value, found)
        if isinstance(value, list | tuple):
            return self._sequence(value, key, found)
        if not isinstance(value, str) or key in _KEPT_KEYS:
            return value
        if is_sensitive_key(key) and value and not TAG.fullmatch(value):
            found.add(value)
            return self.tag("value", value)
        return self._scrub(value, found)

    def _object(self, document: Mapping[str, Any], found: set[str]) -> dict[str, Any]:
        secret = document.get("kind") == "Secret"
        variable = is_sensitive_key(str(document.get("name", ""))) and isinstance(document.get("value"), str)
        result: dict[str, Any] = {}
        for key, value in document.items():
            if key in _DROPPED_ANNOTATIONS:
                continue
            if secret and key in ("data", "stringData") and isinstance(value, Mapping):
                result[key] = {name: self._secret(item, key == "data", found) for name, item in value.items()}
            elif variable and key == "value":
                result[key] = self._value(value, "password", found)
            else:
                result[key] = self._value(value, str(key), found)
        return result

    def _sequence(self, values: Sequence[Any], key: str, found: set[str]) -> list[Any]:
        """A list; in a list of arguments the value may follow its flag as an element of its own."""
        result: list[Any] = []
        for at, value in enumerate(values):
            flag = values[at - 1] if at else ""
            follows = (
                isinstance(flag, str) and SENSITIVE_FLAG.fullmatch(flag) and isinstance(value, str) and not value.startswith("-")
            )
            result.append(self._value(value, "password" if follows else key, found))
        return result

    def _secret(self, value: Any, encoded: bool, found: set[str]) -> str:
        """One value of a Secret, remembered in both its forms."""
        text = value if isinstance(value, str) else str(value)
        if TAG.fullmatch(text):
            return text
        found.add(text)
        if encoded and (plain := _decoded(text)) is not None:
            found.add(plain)
        return self.tag("secret", text)

    def _echoed(self, value: Any, echoes: Sequence[str]) -> Any:
        if isinstance(value, Mapping):
            return {key: item if key in _KEPT_KEYS else self._echoed(item, echoes) for key, item in value.items()}
        if isinstance(value, list):
            return [self._echoed(item, echoes) for item in value]
        return _without(value, echoes, self) if isinstance(value, str) else value


def _without(text: str, echoes: Sequence[str], redactor: Redactor) -> str:
    for value in echoes:
        if value in text:
            bounded = re.compile(rf"(?<![A-Za-z0-9]){re.escape(value)}(?![A-Za-z0-9])")
            text = bounded.sub(redactor.tag("echo", value), text)
    return text


def _known_formats(text: str) -> Iterator[Finding]:
    """What the library finds, asked in windows: on one very long line it takes time by the square of the length."""
    for offset, window in _windows(text):
        try:
            found = redact_secret.scan(window)
        except redact_secret.SecretScanError:
            yield Finding(offset, offset + len(window), "unscannable")
            continue
        for one in found:
            if not _is_identity(window[one.start : one.end]):
                yield Finding(offset + one.start, offset + one.end, one.type.replace("_", "-").lower()[:40])


def _windows(text: str) -> Iterator[tuple[int, str]]:
    """Pieces of at most `WINDOW` characters that begin and end with lines; a longer line is cut into overlapping ones."""
    start = 0
    while len(text) - start > WINDOW:
        newline = text.rfind("\n", start, start + WINDOW)
        end = newline + 1 if newline > start else start + WINDOW
        yield start, text[start:end]
        start = end if newline > start else end - OVERLAP
    yield start, text[start:]


def _is_identity(value: str) -> bool:
    """Names that a detector of random strings might take for a secret."""
    return bool(_UID.fullmatch(value) or _DIGEST.fullmatch(value))


def _merged(text: str, findings: Iterable[Finding]) -> list[Finding]:
    """Findings without overlap, the first kind kept, grown over tags that they cut; those that are tags alone are dropped."""
    tags = [found.span() for found in TAG.finditer(text)]
    ends = [end for _, end in tags]
    merged: list[Finding] = []
    for finding in sorted(findings, key=lambda one: (one.start, -one.end)):
        start, end = finding.start, finding.end
        at = bisect_right(ends, start)
        while at < len(tags) and tags[at][0] < end:
            start, end = min(start, tags[at][0]), max(end, tags[at][1])
            at += 1
        if start >= end or TAG.fullmatch(text, start, end):
            continue
        if merged and start < merged[-1].end:
            merged[-1] = merged[-1]._replace(end=max(end, merged[-1].end))
        else:
            merged.append(Finding(start, end, finding.kind))
    return merged


def _decoded(text: str) -> str | None:
    try:
        return base64.b64decode(text, validate=True).decode()
    except (binascii.Error, ValueError):
        return None


def _identities(document: Any) -> Iterable[str]:
    """Names in the document, which no secret may blank."""
    if isinstance(document, Mapping):
        for key, value in document.items():
            if key in _KEPT_KEYS and isinstance(value, str) and (is_dns_subdomain(value) or _UID.fullmatch(value)):
                yield value
            else:
                yield from _identities(value)
    elif isinstance(document, list | tuple):
        for value in document:
            yield from _identities(value)
