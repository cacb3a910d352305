"""The Prometheus text format: series collected by family, each family with its type, rendered in a stable order."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Literal

SeriesKind = Literal["gauge", "counter", "histogram"]
Sample = tuple[str, str]
"""(family, line)."""
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def sample(family: str, labels: Mapping[str, str], value: float | bool, *, suffix: str = "") -> Sample:
    """One series of `family`; `suffix` such as _bucket belongs to the name of the series only."""
    inside = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
    return family, f"{family}{suffix}{{{inside}}} {_number(float(value))}"


def exposition(samples: Iterable[Sample], kinds: Mapping[str, SeriesKind]) -> str:
    """The page of an exporter. Families without an entry in `kinds` are gauges, or counters if they end in _total."""
    families: dict[str, list[str]] = {}
    for family, line in samples:
        families.setdefault(family, []).append(line)
    parts = []
    for family in sorted(families):
        kind = kinds.get(family) or ("counter" if family.endswith("_total") else "gauge")
        parts.append(f"# TYPE {family} {kind}\n")
        parts.extend(f"{line}\n" for line in families[family])
    return "".join(parts)


def label_name(prefix: str, key: str) -> str:
    """A Kubernetes label key as kube-state-metrics makes a metric label of it."""
    return f"{prefix}_" + "".join(letter if letter.isalnum() and letter.isascii() else "_" for letter in key)


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)
