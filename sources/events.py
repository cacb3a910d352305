"""When an event was last seen and how often, whichever of its three writers made it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

JsonObject = dict[str, Any]


def event_time(event: JsonObject) -> datetime | None:
    """When an event was last seen, whichever of the three writers made it.

    Writers limit their own rate to one update in five minutes: an old time does not mean that the fault stopped.
    """
    series = event.get("series") or {}
    metadata = event.get("metadata") or {}
    for text in (
        series.get("lastObservedTime"),
        event.get("lastTimestamp") or event.get("deprecatedLastTimestamp"),
        event.get("eventTime"),
        metadata.get("creationTimestamp"),
    ):
        if isinstance(text, str) and text:
            try:
                at = datetime.fromisoformat(text)
            except ValueError:
                continue
            return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
    return None


def event_count(event: JsonObject) -> int:
    """How often an event happened: of its series, else its count, else once."""
    series = event.get("series") or {}
    return int(series.get("count") or event.get("count") or event.get("deprecatedCount") or 1)
