"""An alert as received, in one form whatever dialect brought it."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field

from catalog.documents import Document, Instant


class AlertState(StrEnum):
    """`stored → attached(incident) | unresolved(reason) | dropped(reason)`."""

    STORED = "stored"
    ATTACHED = "attached"
    UNRESOLVED = "unresolved"
    DROPPED = "dropped"


class AlertSeverity(StrEnum):
    """Severity as alerting rules use it; anything unknown counts as warning."""

    NONE = "none"
    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        """0 (none) … 3 (critical)."""
        return list(AlertSeverity).index(self)


class Alert(Document):
    """One alert of one webhook. Its key is (cluster, fingerprint, starts_at): a re-fire has a new `starts_at`."""

    fingerprint: str = Field(min_length=1, max_length=128)
    status: Literal["firing", "resolved"]
    starts_at: Instant
    ends_at: Instant | None = Field(default=None, description="None while firing; year 1 is read as absent")
    labels: dict[str, str]
    annotations: dict[str, str] = Field(default={})
    generator_url: str = ""
    dialect: Literal["alertmanager", "grafana"] = "alertmanager"

    @property
    def name(self) -> str:
        return self.labels.get("alertname", "")

    @property
    def severity(self) -> AlertSeverity:
        return _SEVERITIES.get(self.labels.get("severity", "").lower(), AlertSeverity.WARNING)


_SEVERITIES = {severity.value: severity for severity in AlertSeverity}
