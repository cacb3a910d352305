"""Label selectors: as text for a request, and as a predicate over labels.

Source: "Labels and Selectors" of the Kubernetes documentation; `matchLabels` and `matchExpressions` all have to hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class SelectorInvalid(ValueError):
    """A selector with an operator that Kubernetes does not define. Treat what it selects as unknown."""


def selector_text(selector: Mapping[str, Any]) -> str:
    """The `labelSelector` parameter that selects what `selector` (matchLabels, matchExpressions) selects.

    Raises:
        SelectorInvalid: an unknown operator.
    """
    parts = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for expression in selector.get("matchExpressions") or ():
        key, values = expression.get("key", ""), ",".join(expression.get("values") or ())
        match expression.get("operator"):
            case "In":
                parts.append(f"{key} in ({values})")
            case "NotIn":
                parts.append(f"{key} notin ({values})")
            case "Exists":
                parts.append(str(key))
            case "DoesNotExist":
                parts.append(f"!{key}")
            case operator:
                raise SelectorInvalid(f"operator {operator!r} in a label selector")
    return ",".join(parts)


def selects(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """Whether a selector of a workload or a budget selects these labels. None selects nothing, an empty one everything.

    Raises:
        SelectorInvalid: an unknown operator.
    """
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_holds(expression, labels) for expression in selector.get("matchExpressions") or ())


def service_selects(selector: Mapping[str, str] | None, labels: Mapping[str, str]) -> bool:
    """Whether a Service's plain selector selects these labels. A Service without selector selects nothing."""
    return bool(selector) and all(labels.get(key) == value for key, value in (selector or {}).items())


def _holds(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, values = expression.get("key", ""), expression.get("values") or ()
    match expression.get("operator"):
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
        case operator:
            raise SelectorInvalid(f"operator {operator!r} in a label selector")
