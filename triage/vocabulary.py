"""What an alert's name suggests before anything was read: `data/vocabulary.yaml`, loaded once."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Literal

import yaml
from pydantic import Field

from catalog.diagnoses import Family
from catalog.documents import Document

SymptomKind = Literal[
    "crash", "waiting", "unready", "rollout", "memory", "cpu", "errors", "latency", "outlier", "load", "node", "storage", "data",
    "control_plane", "quota", "scheduling", "autoscaler", "certificate", "policy", "connections", "job", "budget", "information",
    "unknown",
]  # fmt: skip

_FILE = Path(__file__).parent / "data" / "vocabulary.yaml"
_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")


class AlertMeaning(Document):
    """What one alert name says: the sort of symptom, prior scores of families, labels that identify what is broken."""

    kind: SymptomKind = "unknown"
    priors: dict[Family, float] = Field(default={})
    targets: tuple[str, ...] = ()
    known: bool = True


class _WordRow(Document):
    words: tuple[str, ...] = Field(min_length=1)
    kind: SymptomKind
    priors: dict[Family, float]


class Vocabulary(Document):
    """The file, typed."""

    alerts: dict[str, AlertMeaning]
    ceiling: float = Field(ge=0, le=1)
    words: tuple[_WordRow, ...]

    def meaning(self, name: str) -> AlertMeaning:
        """What `name` says. An unlisted name is read by its words, cut at the ceiling; one without a known word says nothing."""
        if name in self.alerts:
            return self.alerts[name]
        words = {word.lower() for word in _WORD.findall(name)}
        for row in self.words:
            if words.issuperset(row.words):
                priors = {family: min(score, self.ceiling) for family, score in row.priors.items()}
                return AlertMeaning(kind=row.kind, priors=priors, known=False)
        return AlertMeaning(known=False)


@cache
def vocabulary() -> Vocabulary:
    """The vocabulary as shipped."""
    return Vocabulary.model_validate(yaml.safe_load(_FILE.read_text(encoding="utf-8")))


def meanings(names: Iterable[str]) -> dict[str, AlertMeaning]:
    """Meaning by alert name."""
    return {name: vocabulary().meaning(name) for name in sorted(set(names))}


def kinds(names: Iterable[str]) -> frozenset[SymptomKind]:
    """Sorts of symptom that these names speak of."""
    return frozenset(meaning.kind for meaning in meanings(names).values())


def priors(names: Iterable[str]) -> dict[Family, float]:
    """The highest prior of each family over these names."""
    highest: dict[Family, float] = {}
    for meaning in meanings(names).values():
        for family, score in meaning.priors.items():
            highest[family] = max(score, highest.get(family, 0.0))
    return highest
