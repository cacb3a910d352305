"""Making text from alerts, clusters and models safe to look at.

Control characters and escape sequences are dropped; bidirectional, zero-width and other format characters are shown as code
points, so that nothing can hide or reorder what a person approves. Escaping for HTML is the template's own, always on.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from urllib.parse import urlsplit

_ESCAPE_SEQUENCE = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[@-Z\\-_])")
_KEPT_CONTROLS = "\n\t"


def shown(text: object) -> str:
    """`text` with nothing invisible left in it."""
    plain = _ESCAPE_SEQUENCE.sub("", str(text))
    return "".join(_shown_character(character) for character in plain)


def _shown_character(character: str) -> str:
    if character in _KEPT_CONTROLS or character.isprintable():
        return character
    category = unicodedata.category(character)
    if category == "Cc":
        return ""
    return f"\\u{{{ord(character):x}}}" if category in ("Cf", "Co", "Cs", "Cn", "Zl", "Zp") else " "


def is_live_link(link: str, allowed: Iterable[str]) -> bool:
    """Whether `link` may be clicked: http(s), no user part, host (with port) among `allowed`."""
    try:
        parts = urlsplit(link)
        host = parts.netloc
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and "@" not in host and host in set(allowed)
