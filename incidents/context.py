"""What every part of this room is given: the store, the time, the policy in force and who we are."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from catalog.clocks import Clock
from incidents.database import Database
from incidents.ingest import Intake
from incidents.policies import Policies
from sources.redaction import Redactor


@dataclass(frozen=True, eq=False)
class Context:
    """One replica of the bot. `redactor_key` makes the tags of redacted secrets; `replica` names this process uniquely."""

    database: Database
    clock: Clock
    policies: Policies
    redactor_key: bytes
    replica: str

    @cached_property
    def redactor(self) -> Redactor:
        """The one redactor of this process."""
        return Redactor(self.redactor_key)

    @cached_property
    def intake(self) -> Intake:
        """Where webhooks are stored; one per process, so that those that come together are committed together."""
        return Intake(self.database, self.clock, self.policies, self.redactor)
