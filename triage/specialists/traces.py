"""Traces. No trace store is read yet, so this specialist abstains and says so."""

from __future__ import annotations

from dataclasses import dataclass

from triage.signals import Ballot
from triage.specialists import SpecialistName
from triage.symptoms import Symptoms


@dataclass(frozen=True)
class TracesSpecialist:
    name: SpecialistName = "traces"
    weight: float = 0.10

    def vote(self, symptoms: Symptoms) -> Ballot:
        if "traces" in symptoms.faults:
            return Ballot(state="fault", note=symptoms.faults["traces"])
        return Ballot(state="abstained", note="no trace source is configured for this cluster")


SPECIALIST = TracesSpecialist()
