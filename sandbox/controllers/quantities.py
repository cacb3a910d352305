"""Kubernetes quantities: "250m" of a CPU, "64Mi" of memory, and how pods add them up."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

_SUFFIXES = {
    "": Decimal(1),
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "k": Decimal(10) ** 3,
    "M": Decimal(10) ** 6,
    "G": Decimal(10) ** 9,
    "T": Decimal(10) ** 12,
    "P": Decimal(10) ** 15,
    "E": Decimal(10) ** 18,
    "Ki": Decimal(2) ** 10,
    "Mi": Decimal(2) ** 20,
    "Gi": Decimal(2) ** 30,
    "Ti": Decimal(2) ** 40,
    "Pi": Decimal(2) ** 50,
    "Ei": Decimal(2) ** 60,
}
_FORM = re.compile(r"([+-]?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)([numkMGTPE]?i?)")


def quantity(text: str | float) -> Decimal:
    """The number a quantity stands for: cores, bytes or a count.

    Raises:
        ValueError: `text` is not a quantity.
    """
    match = _FORM.fullmatch(str(text).strip())
    if match is None or match[2] not in _SUFFIXES:
        raise ValueError(f"{text!r} is not a quantity")
    return Decimal(match[1]) * _SUFFIXES[match[2]]


def shown(value: Decimal, resource: str) -> str:
    """A quantity as quota messages and statuses write it: counts plain, CPU in millicores, memory in binary units."""
    if resource.endswith("cpu"):
        return f"{int(value)}" if value == value.to_integral_value() else f"{int(value * 1000)}m"
    if resource.endswith("memory") or resource.endswith("storage"):
        for unit in ("Gi", "Mi", "Ki"):
            if value and value % _SUFFIXES[unit] == 0:
                return f"{int(value / _SUFFIXES[unit])}{unit}"
    return f"{int(value)}"


def container_total(containers: Iterable[Mapping[str, Any]], which: str, resource: str) -> Decimal:
    """Sum of one resource over containers; `which` is "requests" or "limits". A missing request counts as the limit."""
    total = Decimal(0)
    for container in containers:
        resources = container.get("resources") or {}
        value = (resources.get(which) or {}).get(resource)
        if value is None and which == "requests":
            value = (resources.get("limits") or {}).get(resource)
        if value is not None:
            total += quantity(value)
    return total


def pod_total(spec: Mapping[str, Any], which: str, resource: str) -> Decimal:
    """What a pod asks for: the sum over its containers, or its largest init container if that is more."""
    running = container_total(spec.get("containers", ()), which, resource)
    starting = [container_total([container], which, resource) for container in spec.get("initContainers", ())]
    return max([running, *starting])


def names_every(spec: Mapping[str, Any], which: str, resource: str) -> bool:
    """Whether every container of a pod states this resource (a request may come from the limit)."""
    for container in (*spec.get("containers", ()), *spec.get("initContainers", ())):
        resources = container.get("resources") or {}
        stated = resource in (resources.get(which) or {}) or (which == "requests" and resource in (resources.get("limits") or {}))
        if not stated:
            return False
    return True
