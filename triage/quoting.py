"""Text that reads like an order to a machine. It is marked for people and followed by nobody: the mark is all it changes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_ORDERS = re.compile(
    r"""(?ix)
    \b(ignore|disregard|forget)\b.{0,40}\b(previous|above|prior|earlier|instructions?|rules?)\b
    | \b(new|next)\s+(task|instructions?)\b
    | \b(assistant|agent|bot|ai)\s*[:,]
    | \bapproved\s+by\b
    | \b(decode|run|execute)\b.{0,40}\b(payload|command|above|following)\b
    | \b(delete|drop|rollout\s+undo|scale|restart|drain|cordon)\b\s+(the\s+)?(all\s+)?
      (deployments?|pods?|namespaces?|nodes?|pvcs?|statefulsets?)\b
    | \bfix\s*:\s*\S+\s+\S+
    """
)


def places_with_orders(texts: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Of (place, text) pairs, the places whose text reads like an order, each once, sorted."""
    return tuple(sorted({place for place, text in texts if _ORDERS.search(text)}))


def annotation_texts(name: str, annotations: Mapping[str, str]) -> list[tuple[str, str]]:
    """The texts of one alert with the place to name."""
    return [(f"annotation {key} of alert {name}", value) for key, value in sorted(annotations.items())]
