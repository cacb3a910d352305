"""The twelve gates, in the order they are asked; one file each.

Adding a gate touches its file, its name in `catalog.decisions.GateName`, this list and its test.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from catalog.decisions import GateName
from ladder.gates import (
    action,
    blast_radius,
    budget,
    calibration,
    evidence,
    repetition,
    reversibility,
    scope,
    source,
    storm,
    switches,
    target,
)
from ladder.questions import Gate

GATES: Mapping[GateName, Gate] = MappingProxyType(
    {
        GateName.SWITCHES: switches.ask,
        GateName.TARGET: target.ask,
        GateName.ACTION: action.ask,
        GateName.REVERSIBILITY: reversibility.ask,
        GateName.SCOPE: scope.ask,
        GateName.EVIDENCE: evidence.ask,
        GateName.CALIBRATION: calibration.ask,
        GateName.REPETITION: repetition.ask,
        GateName.BUDGET: budget.ask,
        GateName.BLAST_RADIUS: blast_radius.ask,
        GateName.STORM: storm.ask,
        GateName.SOURCE: source.ask,
    }
)
