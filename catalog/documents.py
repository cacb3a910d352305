"""What every stored or transmitted document has in common: frozen, closed, versioned, one canonical form.

A document that crosses a process or is stored must mean the same next year. So unknown keys are refused, instants carry a
zone, and `canonical` gives the one byte string that digests and signatures are made over.
"""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

CATALOGUE_VERSION = "1"


def _in_utc(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo else value


def instant_text(value: datetime) -> str:
    """RFC 3339 in UTC with exactly six fraction digits, as a Lease demands and as sorts like time."""
    return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


Instant = Annotated[
    AwareDatetime,
    BeforeValidator(_in_utc),
    PlainSerializer(instant_text, return_type=str, when_used="json"),
]
"""A point of wall time, UTC, microseconds."""

Seconds = Annotated[float, Field(ge=0)]


class Document(BaseModel):
    """Base of all catalogue models: immutable, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    def to_json(self) -> str:
        """Canonical JSON text of this document."""
        return canonical(self).decode()


class VersionVector(Document):
    """What produced a stored judgement, so that it can be re-run and compared."""

    catalogue: str = CATALOGUE_VERSION
    triage: str = ""
    verifier: str = ""
    policy: str = ""
    model: str = ""
    prompt: str = ""


class StoredDocument(Document):
    """A document that is kept: it names its schema and what produced it."""

    schema_version: int = Field(default=1, alias="schema", ge=1)
    versions: VersionVector = VersionVector()


def canonical(value: BaseModel | Any) -> bytes:
    """The one byte form: JSON, keys sorted, no spaces, UTF-8. Floats as Python's shortest repr; NaN and Inf are refused.

    Raises:
        ValueError: the document holds NaN or an infinity.
    """
    data = value.model_dump(mode="json", by_alias=True) if isinstance(value, BaseModel) else value
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def digest(value: BaseModel | Any) -> str:
    """SHA-256 of the canonical form, hexadecimal."""
    return hashlib.sha256(canonical(value)).hexdigest()
