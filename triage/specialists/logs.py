"""Logs. No log store is read yet, so this specialist abstains and says so; it never guesses from other sources' text."""

from __future__ import annotations

from dataclasses import dataclass

from triage.signals import Ballot
from triage.specialists import SpecialistName
from triage.symptoms import Symptoms


@dataclass(frozen=True)
class LogsSpecialist:
    name: SpecialistName = "logs"
    weight: float = 0.30

    def vote(self, symptoms: Symptoms) -> Ballot:
        if "logs" in symptoms.faults:
            return Ballot(state="fault", note=symptoms.faults["logs"])
        return Ballot(state="abstained", note="no log source is configured for this cluster")


SPECIALIST = LogsSpecialist()
