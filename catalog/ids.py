"""Identifiers: ULIDs, which sort by time and need no coordination."""

from __future__ import annotations

from datetime import datetime

from ulid import ULID


def new_id(now: datetime) -> str:
    """A fresh ULID (26 characters, Crockford base 32) stamped with `now`."""
    return str(ULID.from_datetime(now))


def is_id(text: str) -> bool:
    """Whether `text` has the form of a ULID."""
    try:
        ULID.from_str(text)
    except ValueError:
        return False
    return True
