"""What a scope or a freeze applies to: a cluster, a namespace, a workload. Exact names only."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, model_validator

from catalog.documents import Document, digest
from catalog.names import is_dns_label, is_dns_subdomain
from catalog.targets import Target, TargetKind

_KINDS = (TargetKind.DEPLOYMENT.value, TargetKind.STATEFULSET.value, TargetKind.DAEMONSET.value)
_WORKLOAD = re.compile(r"(?P<kind>[A-Za-z]+)/(?P<name>.+)")


def _namespace(text: str) -> str:
    if not is_dns_label(text):
        raise ValueError(f"{text!r} is not a namespace name; write one exact name (patterns are not used here)")
    return text


def _workload(text: str) -> str:
    found = _WORKLOAD.fullmatch(text)
    if found is None or found["kind"] not in _KINDS or not is_dns_subdomain(found["name"]):
        raise ValueError(
            f"{text!r} is not a workload; write KIND/NAME with one of {', '.join(_KINDS)}, for example Deployment/checkout"
        )
    return text


Workload = Annotated[str, AfterValidator(_workload)]
"""`Deployment/checkout`."""


class Match(Document):
    """Every name given must be the target's. Empty matches everything (only a freeze may be empty)."""

    cluster: str | None = None
    namespace: Annotated[str, AfterValidator(_namespace)] | None = None
    workload: Workload | None = None

    @model_validator(mode="after")
    def _placed(self) -> Match:
        if self.workload is not None and self.namespace is None:
            raise ValueError("a workload needs its namespace beside it")
        return self

    def covers(self, target: Target) -> bool:
        """Whether `target` is meant."""
        return (
            self.cluster in (None, target.cluster)
            and self.namespace in (None, target.namespace)
            and self.workload in (None, f"{target.kind.value}/{target.name}")
        )

    @property
    def specificity(self) -> int:
        """Greater is more specific: workload before namespace before cluster."""
        return 4 * (self.workload is not None) + 2 * (self.namespace is not None) + (self.cluster is not None)

    @property
    def digest(self) -> str:
        """What standing is keyed by: a changed match starts again."""
        return digest(self.model_dump(mode="json", exclude_none=True))
