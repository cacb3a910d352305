"""Every object of the emulated cluster, with versions and history: what etcd and the generic registry do for a real one.

The rules that all writers meet, whether they come over HTTP or are controllers in the same event loop:

* An object is a plain dict in Kubernetes JSON form, always with `kind` and `apiVersion`. **What the store hands out is the
  stored object itself and must never be changed**; use `change` (or `copied`) to edit. A write replaces the whole object, so
  history, lists and watches share objects without copying.
* One counter for all kinds: each stored write takes the next revision and becomes the object's resourceVersion. Writing what
  is already there takes none and tells nobody.
* uid, creationTimestamp, generation and deletionTimestamp belong to the store. generation counts changes of anything but
  metadata and status (for Deployments also of annotations, as the real server does).
* Deleting a pod on a node marks it (deletionTimestamp, grace) and whoever plays the kubelet deletes it again with `grace=0`;
  an object with finalizers stays until an update removes the last one.
* Each kind keeps a bounded ring of its changes. A watch or an exact list from before the ring is `Expired`: too old is real.
  `compact` forgets on purpose.

Listeners (`subscribe`) are called right after a write, in revision order, also when a listener writes itself.
"""

from __future__ import annotations

import random
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta

from catalog.clocks import Clock
from sandbox.kinds import NAMESPACES, Kind
from sandbox.metadata import (
    SERVER_FIELDS,
    Part,
    finalizers_after,
    finished,
    generation_moves,
    grace_seconds,
    held,
    merged,
    ordered,
    same,
    storage_conflict,
)
from sandbox.shelves import Change, ChangeType, Entry, Shelf, copied, encode, object_key
from sandbox.statuses import AlreadyExists, BadRequest, Conflict, Expired, Forbidden, Json, NotFound

__all__ = [
    "HISTORY",
    "Change",
    "ChangeType",
    "Deleted",
    "Entry",
    "Listener",
    "Store",
    "copied",
    "encode",
    "merged",
    "object_key",
    "storage_conflict",
]

NAME_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
HISTORY = 4096
"""Changes kept per kind, by default."""
Objects = list[Json]
Listeners = list["Listener"]
Entries = list[Entry]
Changes = list[Change]
Finalizers = list[str]


Listener = Callable[[Change], None]
Admitter = Callable[[Kind, Json], None]


@dataclass(frozen=True)
class Deleted:
    """What a delete did: the object's last state, and whether it is gone or only marked."""

    object: Json
    removed: bool


class Store:
    """The objects of one cluster. Not thread-safe: one event loop owns it.

    `history` bounds the ring of changes of each kind. `randomness` makes uids and generated names, so a seeded one
    repeats a run. `revision` is where the counter begins.
    """

    def __init__(self, clock: Clock, *, randomness: random.Random | None = None, history: int = HISTORY, revision: int = 1) -> None:
        self.clock = clock
        self.admitters: list[Admitter] = []
        """Called for every create, by whomever: may complete the object in place (defaults), or raise StatusError (quota)."""
        self._random = randomness or random.Random()
        self._history = history
        self._shelves: dict[tuple[str, str], Shelf] = {}
        self._listeners: list[tuple[Listener, frozenset[tuple[str, str]]]] = []
        self._undelivered: deque[Change] = deque()
        self._delivering = False
        self._revision = revision
        self._compacted = 0

    # -- reading ------------------------------------------------------------

    @property
    def revision(self) -> int:
        """The newest revision; a list taken now carries it."""
        return self._revision

    def now_text(self) -> str:
        """The time as metadata timestamps have it: RFC 3339, whole seconds."""
        return self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")

    def find(self, kind: Kind, namespace: str, name: str) -> Json | None:
        """The stored object (do not change it), or None. `namespace` is "" for cluster-scoped kinds."""
        entry = self.entry(kind, namespace, name)
        return None if entry is None else entry.body

    def get(self, kind: Kind, namespace: str, name: str) -> Json:
        """The stored object (do not change it).

        Raises:
            NotFound: there is none.
        """
        body = self.find(kind, namespace, name)
        if body is None:
            raise NotFound.of(kind, name)
        return body

    def list(self, kind: Kind, namespace: str | None = None) -> Objects:
        """Stored objects in key order (do not change them); all namespaces when `namespace` is None."""
        return [entry.body for entry in self._shelf(kind).sorted(namespace)]

    def owned(self, kind: Kind, uid: str) -> Objects:
        """Objects of `kind` with an ownerReference to `uid`, in key order."""
        owned = self._shelf(kind).by_owner.get(uid, {})
        return [owned[key].body for key in sorted(owned)]

    def count(self, kind: Kind, namespace: str | None = None) -> int:
        """How many objects of `kind` there are."""
        shelf = self._shelf(kind)
        return len(shelf.entries if namespace is None else shelf.by_namespace.get(namespace, {}))

    def kinds(self) -> Iterator[Kind]:
        """Every kind that was ever written or read."""
        return iter([shelf.kind for shelf in self._shelves.values()])

    def entry(self, kind: Kind, namespace: str, name: str) -> Entry | None:
        """The stored version with its encoded form, or None."""
        return self._shelf(kind).entries.get(object_key(namespace, name))

    def entries(self, kind: Kind, namespace: str | None = None, *, revision: int | None = None) -> Entries:
        """Stored versions in key order, now or as of `revision`.

        Raises:
            Expired: `revision` is older than what is kept.
        """
        shelf = self._shelf(kind)
        if revision is None or revision >= self._revision:
            return shelf.sorted(namespace)
        if revision < self.floor(kind):
            raise Expired("The provided resource version is too old.")
        return shelf.at(revision, namespace)

    def marked(self, kind: Kind, mark: tuple[str, str], namespace: str | None = None) -> Entries:
        """Present versions with a label `(key, value)`, or events about `("involvedObject.uid", UID)`, in key order."""
        return self._shelf(kind).marked(mark, namespace)

    def floor(self, kind: Kind) -> int:
        """The oldest revision from which the changes of `kind` are complete."""
        return max(self._shelf(kind).floor, self._compacted)

    def changes(self, kind: Kind, after: int) -> Changes:
        """Changes of `kind` with a revision above `after`, oldest first.

        Raises:
            Expired: some of them are no longer kept.
        """
        floor = self.floor(kind)
        if after < floor:
            raise Expired(f"too old resource version: {after} ({floor})")
        return self._shelf(kind).since(after)

    # -- writing ------------------------------------------------------------

    def create(self, kind: Kind, obj: Json, *, dry_run: bool = False) -> Json:
        """Store a new object; `metadata.generateName` makes a name. `obj` is taken over: do not change it afterwards.

        A dry run does everything but storing; its answer has a uid and no resourceVersion.

        Raises:
            NotFound: the namespace does not exist. AlreadyExists: the name is taken. Forbidden: the namespace is terminating,
            or an admitter refuses. BadRequest: a resourceVersion is set.
        """
        metadata: Json = dict(obj.get("metadata") or {})
        if metadata.get("resourceVersion"):
            raise BadRequest("resourceVersion should not be set on objects to be created")
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = metadata["generateName"] + "".join(self._random.choices(NAME_ALPHABET, k=5))
        namespace = metadata.get("namespace", "") if kind.namespaced else ""
        name = metadata["name"]
        self.require_namespace(kind, namespace, name)
        for field in SERVER_FIELDS:
            metadata.pop(field, None)
        metadata |= {"uid": self.new_uid(), "creationTimestamp": self.now_text()}
        if kind.generation:
            metadata["generation"] = 1
        body: Json = {"kind": kind.kind, "apiVersion": kind.api_version} | obj | {"metadata": ordered(metadata)}
        for admit in self.admitters:
            admit(kind, body)
        if object_key(namespace, name) in self._shelf(kind).entries:
            raise AlreadyExists.of(kind, name)
        return body if dry_run else self._write("ADDED", kind, body, None)

    def update(self, kind: Kind, obj: Json, *, part: Part = "whole", dry_run: bool = False) -> Json:
        """Replace a stored object. `obj` is taken over: do not change it afterwards.

        `part`: "main" leaves status as stored, "status" leaves everything but status, annotations and finalizers as stored,
        "whole" (controllers) writes all. uid and resourceVersion in `obj`, where present, are preconditions. The same value
        again returns the stored object without a new revision. Removing the last finalizer of a deleted object removes it.

        Raises:
            NotFound: no such object. Conflict: uid or resourceVersion is not the stored one.
        """
        metadata: Json = obj["metadata"]
        name, namespace = metadata["name"], metadata.get("namespace", "") if kind.namespaced else ""
        stored = self.entry(kind, namespace, name)
        if stored is None:
            raise NotFound.of(kind, name)
        self._check_versions(kind, metadata, stored.body["metadata"])
        body = merged(kind, obj, stored.body, part)
        if same(body, stored.body):
            return stored.body
        if kind.generation and part != "status" and generation_moves(kind, body, stored.body):
            body["metadata"]["generation"] = stored.body["metadata"].get("generation", 0) + 1
        if dry_run:
            return body
        if finished(body):
            return self._write("DELETED", kind, body, stored)
        return self._write("MODIFIED", kind, body, stored)

    def change(self, kind: Kind, namespace: str, name: str, edit: Callable[[Json], None]) -> Json:
        """Edit a copy of the stored object in place and store it.

        Raises:
            NotFound: no such object.
        """
        body = copied(self.get(kind, namespace, name))
        edit(body)
        return self.update(kind, body)

    def patch_status(self, kind: Kind, namespace: str, name: str, status: Json) -> Json:
        """Replace the whole status. `status` is taken over.

        Raises:
            NotFound: no such object.
        """
        stored = self.get(kind, namespace, name)
        return self.update(kind, {**stored, "status": status}, part="status")

    def delete(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        grace: int | None = None,
        propagation: str | None = None,
        dry_run: bool = False,
    ) -> Deleted:
        """Delete, or mark as being deleted: pods for their grace period, others while finalizers are left.

        `grace=0` removes a pod at once. `propagation` Foreground or Orphan adds the finalizer the garbage collector removes.

        Raises:
            NotFound: no such object. Conflict: a precondition (`uid`, `resource_version`) does not hold.
        """
        stored = self.entry(kind, namespace, name)
        if stored is None:
            raise NotFound.of(kind, name)
        metadata = stored.body["metadata"]
        if uid is not None and uid != metadata["uid"]:
            raise Conflict.precondition(kind, name, "UID", uid, metadata["uid"])
        if resource_version is not None and resource_version != metadata["resourceVersion"]:
            raise Conflict.precondition(kind, name, "ResourceVersion", resource_version, metadata["resourceVersion"])
        seconds = grace_seconds(kind, stored.body, grace)
        finalizers = finalizers_after(metadata, propagation)
        if seconds == 0 and not finalizers and not held(kind, stored.body):
            body = {**stored.body, "metadata": {**metadata}}
            return Deleted(body if dry_run else self._write("DELETED", kind, body, stored), removed=True)
        body = self._marked(kind, stored.body, seconds, finalizers)
        if dry_run or same(body, stored.body):
            return Deleted(body, removed=False)
        return Deleted(self._write("MODIFIED", kind, body, stored), removed=False)

    def subscribe(self, listener: Listener, *kinds: Kind) -> Callable[[], None]:
        """Call `listener` after each write of `kinds` (all, if none is named). Returns what ends it."""
        registered = (listener, frozenset(kind.key for kind in kinds))
        self._listeners.append(registered)

        def unsubscribe() -> None:
            if registered in self._listeners:
                self._listeners.remove(registered)

        return unsubscribe

    def listeners(self, kind: Kind) -> Listeners:
        """Who asked for `kind` by name."""
        return [listener for listener, kinds in self._listeners if kind.key in kinds]

    def compact(self, revision: int | None = None) -> None:
        """Forget all changes up to `revision` (default: everything so far), as etcd does every five minutes."""
        self._compacted = self._revision if revision is None else revision
        for shelf in self._shelves.values():
            shelf.compact(self._compacted)

    def require_namespace(self, kind: Kind, namespace: str, name: str) -> None:
        """Refuse a new object where it cannot be.

        Raises:
            NotFound: the namespace does not exist. Forbidden: it is terminating.
        """
        if not kind.namespaced:
            return
        found = self.find(NAMESPACES, "", namespace)
        if found is None:
            raise NotFound.of(NAMESPACES, namespace)
        if "deletionTimestamp" in found["metadata"]:
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            message = f"namespace {namespace} is being terminated"
            cause = {"reason": "NamespaceTerminating", "message": message, "field": "metadata.namespace"}
            raise Forbidden.to_write(kind, name, why, [cause])

    def new_uid(self) -> str:
        """A fresh UUID."""
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    # -- inside ------------------------------------------------------------

    def _shelf(self, kind: Kind) -> Shelf:
        shelf = self._shelves.get(kind.key)
        if shelf is None:
            shelf = self._shelves[kind.key] = Shelf(kind, self._history, self._compacted)
        return shelf

    def _check_versions(self, kind: Kind, given: Json, stored: Json) -> None:
        uid = given.get("uid")
        if uid and uid != stored["uid"]:
            raise storage_conflict(kind, given, stored["uid"])
        version = given.get("resourceVersion")
        if version and version != stored["resourceVersion"]:
            raise Conflict.stale(kind, given["name"])

    def _marked(self, kind: Kind, stored: Json, seconds: int, finalizers: Finalizers) -> Json:
        metadata = dict(stored["metadata"])
        before = metadata.get("deletionGracePeriodSeconds")
        if "deletionTimestamp" not in metadata or (before is not None and seconds < before):
            until = self.clock.now() + timedelta(seconds=seconds)
            metadata["deletionTimestamp"] = until.strftime("%Y-%m-%dT%H:%M:%SZ")
            metadata["deletionGracePeriodSeconds"] = seconds
            if "generation" in metadata and before is None:
                metadata["generation"] += 1
        if finalizers:
            metadata["finalizers"] = finalizers
        body = {**stored, "metadata": ordered(metadata)}
        if kind.key == NAMESPACES.key:
            body["status"] = {**stored.get("status", {}), "phase": "Terminating"}
        return body

    def _write(self, type_: ChangeType, kind: Kind, body: Json, previous: Entry | None) -> Json:
        self._revision += 1
        metadata = body["metadata"]
        metadata["resourceVersion"] = str(self._revision)
        body["metadata"] = ordered(metadata)
        key = object_key(metadata.get("namespace", "") if kind.namespaced else "", metadata["name"])
        change = Change(type_, kind, Entry(key, body, self._revision), previous)
        self._shelf(kind).record(change)
        self._deliver(change)
        return body

    def _deliver(self, change: Change) -> None:
        self._undelivered.append(change)
        if self._delivering:
            return
        self._delivering = True
        try:
            while self._undelivered:
                due = self._undelivered.popleft()
                for listener, kinds in tuple(self._listeners):
                    if not kinds or due.kind.key in kinds:
                        listener(due)
        finally:
            self._delivering = False
