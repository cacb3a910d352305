"""One active executor per cluster, elected by one Lease in our namespace.

The server never expires a Lease; each candidate decides for itself: a holder whose resourceVersion did not move for the lease's
duration, by the candidate's own monotonic clock, is gone. Every write is a PUT with the resourceVersion that was read, so of
two candidates exactly one wins. Times need exactly six fraction digits.

The Lease also names the journal. An executor with another journal does not become active, however long the holder is gone: it
would not know of open transactions. `sre-executor adopt` is a person's word that the other journal is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from catalog.documents import instant_text
from catalog.marks import EXECUTOR_LEASE, JOURNAL_ANNOTATION
from executor.transactions import Lost
from executor.writing import KubernetesWriter, Response
from sources.errors import SourceUnavailable
from sources.kubernetes import KubernetesReader, object_path

DURATION = 15.0
RENEW_EVERY = 4.0
TRUST_FOR = 10.0
"""Seconds after a renewal for which this process believes that it holds the lease. Less than DURATION: clocks may drift."""

_API = "coordination.k8s.io/v1"


@dataclass
class Lease:
    """This process's view of the Lease. Call `step` every `RENEW_EVERY` seconds."""

    reader: KubernetesReader
    writer: KubernetesWriter
    now: Callable[[], datetime]
    monotonic: Callable[[], float]
    holder: str
    journal_id: str
    home_namespace: str
    trouble: str = ""
    foreign_journal: str | None = None
    _renewed_at: float = float("-inf")
    _seen_version: str = ""
    _seen_at: float = 0.0

    @property
    def active(self) -> bool:
        """Whether writes may be made: renewed recently enough that nobody else can have taken it."""
        return self.monotonic() - self._renewed_at < TRUST_FOR

    @property
    def _path(self) -> str:
        return object_path(_API, "leases", EXECUTOR_LEASE, self.home_namespace)

    async def step(self, *, adopt: bool = False) -> bool:
        """Create, renew or take over the Lease where that is right. Returns whether this process holds it now."""
        asked_at = self.monotonic()
        try:
            lease = await self.reader.get(self._path)
        except SourceUnavailable as error:
            self.trouble = f"the Lease could not be read: {error}"
            return False
        self.foreign_journal = None
        if lease is None:
            return self._held(await self._create(), asked_at)
        if not self._ours_to_take(lease, adopt=adopt):
            return False
        return self._held(await self.writer.put_lease(self._path, self._renewed(lease)), asked_at)

    def _ours_to_take(self, lease: dict[str, Any], *, adopt: bool) -> bool:
        metadata, spec = lease.get("metadata") or {}, lease.get("spec") or {}
        journal = (metadata.get("annotations") or {}).get(JOURNAL_ANNOTATION)
        if journal not in (None, self.journal_id) and not adopt:
            self.foreign_journal = journal
            self.trouble = f"the Lease names journal {journal}, not {self.journal_id}; if that one is lost: sre-executor adopt"
            return False
        if spec.get("holderIdentity") in (None, "", self.holder):
            return True
        version = str(metadata.get("resourceVersion", ""))
        if version != self._seen_version:
            self._seen_version, self._seen_at = version, self.monotonic()
        duration = float(spec.get("leaseDurationSeconds") or DURATION)
        if self.monotonic() - self._seen_at >= duration:
            return True
        self.trouble = f"{spec.get('holderIdentity')} holds the Lease"
        return False

    async def _create(self) -> Response | Lost:
        stamp = instant_text(self.now())
        metadata = {"name": EXECUTOR_LEASE, "namespace": self.home_namespace, "annotations": {JOURNAL_ANNOTATION: self.journal_id}}
        spec = self._spec(stamp, stamp, 0)
        body = {"apiVersion": _API, "kind": "Lease", "metadata": metadata, "spec": spec}
        return await self.writer.create_lease(object_path(_API, "leases", namespace=self.home_namespace), body)

    def _renewed(self, lease: dict[str, Any]) -> dict[str, Any]:
        spec, stamp = lease.get("spec") or {}, instant_text(self.now())
        changed = spec.get("holderIdentity") != self.holder
        acquired = stamp if changed else spec.get("acquireTime") or stamp
        metadata = dict(lease["metadata"])
        metadata.pop("managedFields", None)
        metadata["annotations"] = {**(metadata.get("annotations") or {}), JOURNAL_ANNOTATION: self.journal_id}
        transitions = int(spec.get("leaseTransitions") or 0) + changed
        return {"apiVersion": _API, "kind": "Lease", "metadata": metadata, "spec": self._spec(acquired, stamp, transitions)}

    def _spec(self, acquired: str, renewed: str, transitions: int) -> dict[str, Any]:
        return {
            "holderIdentity": self.holder,
            "leaseDurationSeconds": int(DURATION),
            "acquireTime": acquired,
            "renewTime": renewed,
            "leaseTransitions": transitions,
        }

    def _held(self, answer: Response | Lost, asked_at: float) -> bool:
        """Counts from before the request was sent: the server may have stored it then."""
        if isinstance(answer, Response) and answer.status in (200, 201):
            self._renewed_at, self.trouble = asked_at, ""
            return True
        detail = answer.detail if isinstance(answer, Lost) else f"the API server answered {answer.status}"
        self.trouble = f"the Lease could not be renewed: {detail}"
        return False
