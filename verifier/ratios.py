"""The reviewed likelihood ratios: `data/ratios.yaml`, validated on load."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path

import yaml
from pydantic import Field

from catalog.diagnoses import Family
from catalog.documents import Document

NONE_OF_THESE = "none of these"
_FILE = Path(__file__).parent / "data" / "ratios.yaml"


class FindingRow(Document):
    """One possible finding of a prediction: how much likelier it is under each family than under an unnamed cause."""

    reason: str = Field(min_length=20)
    ratios: dict[Family, float] = Field(min_length=1)


class Priors(Document):
    """Odds before anything is seen."""

    none_of_these: float = Field(gt=0)
    family: float = Field(gt=0)


class Ratios(Document):
    """The file, typed."""

    version: int
    prior: Priors
    decisive: float = Field(gt=0, lt=1, description="a ratio at or below refutes by itself")
    refuted_below: float = Field(gt=0, lt=1)
    predictions: dict[str, dict[str, FindingRow]]

    def log_ratio(self, prediction: str, finding: str, family: Family) -> float:
        """Natural logarithm of the ratio; 0 where the file says nothing."""
        row = self.predictions[prediction][finding]
        return math.log(row.ratios[family]) if family in row.ratios else 0.0

    def speaks_of(self, prediction: str, family: Family) -> bool:
        """Whether any finding of the prediction bears on the family."""
        return any(family in row.ratios for row in self.predictions[prediction].values())


@cache
def ratios() -> Ratios:
    """The ratios as shipped."""
    return Ratios.model_validate(yaml.safe_load(_FILE.read_text(encoding="utf-8")))
