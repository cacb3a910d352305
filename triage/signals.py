"""What a specialist sees: one sign of one family, how strongly it speaks, and the sentence for people.

Signs of a family add up as independent doubts do: two signs of 0.6 leave 0.4 × 0.4 of doubt. A specialist that looked for a
family and saw nothing says 0; one that cannot see a family says nothing of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from catalog.diagnoses import Family
from catalog.documents import Document

CERTAIN = 0.97
MAX_SENTENCE = 300


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_SENTENCE else text[: MAX_SENTENCE - 1] + "…"


class Signal(Document):
    """One sign. `score` in [0, 1]."""

    family: Family
    score: float = Field(ge=0, le=1)
    sentence: Annotated[str, BeforeValidator(_shortened), Field(max_length=MAX_SENTENCE)]


class Ballot(Document):
    """What one specialist says. `fault` and `abstained` carry their reason in `note` and no scores."""

    state: Literal["voted", "abstained", "fault"]
    scores: dict[Family, float] = Field(default={})
    signals: tuple[Signal, ...] = Field(default=(), description="strongest first")
    note: str = ""

    @classmethod
    def of(cls, signals: Iterable[Signal], looked_for: Iterable[Family], note: str = "") -> Ballot:
        """A vote from signs; families in `looked_for` without a sign get 0."""
        listed = sorted(signals, key=lambda signal: (-signal.score, signal.family.value, signal.sentence))
        scores = dict.fromkeys(looked_for, 0.0)
        for family in {signal.family for signal in listed}:
            doubt = math.prod(1 - signal.score for signal in listed if signal.family is family)
            scores[family] = round(min(CERTAIN, 1 - doubt), 4)
        ordered = {family: scores[family] for family in Family if family in scores}
        return cls(state="voted", scores=ordered, signals=tuple(listed), note=note)

    @property
    def findings(self) -> tuple[str, ...]:
        """Its signs as sentences, each once."""
        return tuple(dict.fromkeys(signal.sentence for signal in self.signals))
