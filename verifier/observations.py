"""`Observations`: what the verifier read, stored, so that the evidence can be weighed again under other ratios."""

from __future__ import annotations

from pydantic import Field

from catalog.diagnoses import Family
from catalog.documents import Document, Instant, StoredDocument, canonical
from catalog.evidence import SourceName
from catalog.targets import Target
from sources.readings import LevelReading, Measure, RuleReading, WorkloadReading

MAX_BYTES = 64_000
Marks = tuple[str | None, int | None, str | None]


class FiringReading(Document):
    """Whether an alert fires at its source now. `firing` None: could not be told."""

    alert: str
    firing: bool | None = None
    unknown: str = ""
    at: Instant


class Observations(StoredDocument):
    """Input of one weighing."""

    incident_id: str
    began_at: Instant
    at: Instant
    target: Target
    family: Family = Field(description="the hypothesis under test")
    rivals: tuple[Family, ...] = Field(default=(), description="what else triage considered")
    alerts_since: Instant = Field(description="start of the incident's first alert")
    workload: WorkloadReading | None = None
    measures: dict[str, Measure] = Field(default={})
    rules: tuple[RuleReading, ...] = ()
    firing: tuple[FiringReading, ...] = ()
    levels: tuple[LevelReading, ...] = ()
    marks_before: Marks | None = Field(default=None, description="None: could not be read")
    marks_after: Marks | None = None
    tainted: str | None = None
    faults: dict[SourceName, str] = Field(default={}, description="sources that could not be read, one sentence each")
    late: tuple[str, ...] = Field(default=(), description="reads that had not answered when the time was over")
    cut: dict[str, int] = Field(default={}, description="what was left out to stay compact, counted")
    took_ms: int = Field(default=0, ge=0)

    def measure(self, name: str) -> Measure | None:
        """The measure of that name, None when it was not read in time."""
        return self.measures.get(name)


def fitted(observations: Observations, limit: int = MAX_BYTES) -> Observations:
    """The same within `limit` bytes: old events and revisions first, then healthy pods beyond the tenth; each cut counted."""
    for keep_events, keep_revisions, keep_pods in ((8, 3, 20), (4, 2, 10), (0, 2, 5)):
        if len(canonical(observations)) <= limit or observations.workload is None:
            break
        workload = observations.workload
        kept = workload.model_copy(
            update={
                "events": workload.events[:keep_events],
                "revisions": workload.revisions[:keep_revisions],
                "pods": workload.pods[:keep_pods],
            }
        )
        cut = {
            "events": len(workload.events) - len(kept.events),
            "revisions": len(workload.revisions) - len(kept.revisions),
            "pods": len(workload.pods) - len(kept.pods),
        }
        counted = {name: observations.cut.get(name, 0) + count for name, count in cut.items() if count > 0}
        observations = observations.model_copy(update={"workload": kept, "cut": observations.cut | counted})
    return observations
