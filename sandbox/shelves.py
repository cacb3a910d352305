"""Where the objects of one kind stand: current versions, indexes, and the bounded ring of changes that watches read."""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections import deque
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from sandbox.kinds import Kind
from sandbox.statuses import Json

ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]


def copied(value: Any) -> Any:
    """A deep copy of JSON data, to be edited freely."""
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [copied(item) for item in value]
    return value


def encode(value: Any) -> bytes:
    """JSON as the server writes it: compact, UTF-8."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def object_key(namespace: str, name: str) -> str:
    """Key inside one kind; sorts as etcd sorts."""
    return f"{namespace}/{name}" if namespace else name


class Entry:
    """One stored version of one object. Encoded at most once, however many lists and watches send it."""

    __slots__ = ("_item", "body", "key", "revision")

    def __init__(self, key: str, body: Json, revision: int) -> None:
        self.key = key
        self.body = body
        self.revision = revision
        self._item: bytes | None = None

    @property
    def item(self) -> bytes:
        """JSON without kind and apiVersion, as in lists of built-in kinds."""
        if self._item is None:
            self._item = encode({key: value for key, value in self.body.items() if key not in ("kind", "apiVersion")})
        return self._item

    def document(self, kind: str, api_version: str) -> bytes:
        """JSON with kind and apiVersion first."""
        head = f'{{"kind":"{kind}","apiVersion":"{api_version}"'.encode()
        return head + (b"," + self.item[1:] if len(self.item) > 2 else b"}")


@dataclass(frozen=True)
class Change:
    """One write. `previous` is what was stored before it; for DELETED `entry` is the last state under a new revision."""

    type: ChangeType
    kind: Kind
    entry: Entry
    previous: Entry | None

    @property
    def revision(self) -> int:
        return self.entry.revision

    @property
    def object(self) -> Json:
        return self.entry.body


class Shelf:
    """All objects of one kind, indexed by namespace and owner, and the ring of their changes."""

    def __init__(self, kind: Kind, limit: int, floor: int) -> None:
        self.kind = kind
        self.entries: dict[str, Entry] = {}
        self.by_namespace: dict[str, dict[str, Entry]] = {}
        self.by_owner: dict[str, dict[str, Entry]] = {}
        self.by_mark: dict[tuple[str, str], dict[str, Entry]] = {}
        self.changes: deque[Change] = deque()
        self.floor = floor
        self._limit = limit
        self._sorted: dict[str | None, list[Entry]] = {}

    def record(self, change: Change) -> None:
        if change.previous is not None:
            self._unlink(change.previous)
        if change.type != "DELETED":
            self._link(change.entry)
        for namespace in (None, change.object["metadata"].get("namespace", "")):
            if namespace in self._sorted:
                _keep_sorted(self._sorted[namespace], change)
        self.changes.append(change)
        if len(self.changes) > self._limit:
            self.floor = self.changes.popleft().revision

    def compact(self, revision: int) -> None:
        while self.changes and self.changes[0].revision <= revision:
            self.changes.popleft()
        self.floor = max(self.floor, revision)

    def sorted(self, namespace: str | None) -> list[Entry]:
        found = self._sorted.get(namespace)
        if found is None:
            entries = self.entries if namespace is None else self.by_namespace.get(namespace, {})
            found = self._sorted[namespace] = [entries[key] for key in sorted(entries)]
        return found

    def marked(self, mark: tuple[str, str], namespace: str | None) -> list[Entry]:
        """Entries with a label, or events about an object, in key order:
        so a selective list costs the same however many others there are."""
        found = self.by_mark.get(mark, {}).values()
        kept = [entry for entry in found if namespace is None or entry.body["metadata"].get("namespace", "") == namespace]
        return sorted(kept, key=lambda entry: entry.key)

    def since(self, revision: int) -> list[Change]:
        first = bisect_right(self.changes, revision, key=lambda change: change.revision)
        return list(islice(self.changes, first, None))

    def at(self, revision: int, namespace: str | None) -> list[Entry]:
        state = {entry.key: entry for entry in self.sorted(namespace)}
        for change in reversed(self.since(revision)):
            if namespace is not None and change.object["metadata"].get("namespace", "") != namespace:
                continue
            if change.previous is None:
                state.pop(change.entry.key, None)
            else:
                state[change.entry.key] = change.previous
        return [state[key] for key in sorted(state)]

    def _link(self, entry: Entry) -> None:
        self.entries[entry.key] = entry
        metadata = entry.body["metadata"]
        self.by_namespace.setdefault(metadata.get("namespace", ""), {})[entry.key] = entry
        for owner in metadata.get("ownerReferences", ()):
            self.by_owner.setdefault(owner["uid"], {})[entry.key] = entry
        for mark in _marks(entry.body):
            self.by_mark.setdefault(mark, {})[entry.key] = entry

    def _unlink(self, entry: Entry) -> None:
        self.entries.pop(entry.key, None)
        metadata = entry.body["metadata"]
        self.by_namespace.get(metadata.get("namespace", ""), {}).pop(entry.key, None)
        for owner in metadata.get("ownerReferences", ()):
            owned = self.by_owner.get(owner["uid"], {})
            owned.pop(entry.key, None)
            if not owned:
                self.by_owner.pop(owner["uid"], None)
        for mark in _marks(entry.body):
            marked = self.by_mark.get(mark, {})
            marked.pop(entry.key, None)
            if not marked:
                self.by_mark.pop(mark, None)


def _marks(body: Json) -> list[tuple[str, str]]:
    """What selective lists ask for: each label, and of an event the object it is about."""
    marks = list((body["metadata"].get("labels") or {}).items())
    about = body.get("involvedObject")
    if isinstance(about, dict) and about.get("uid"):
        marks.append(("involvedObject.uid", about["uid"]))
    return marks


def _keep_sorted(entries: list[Entry], change: Change) -> None:
    """Follow a change in a sorted list: much cheaper than sorting again where thousands of pods come up."""
    index = bisect_left(entries, change.entry.key, key=lambda entry: entry.key)
    if change.type == "DELETED":
        del entries[index]
    elif change.previous is None:
        entries.insert(index, change.entry)
    else:
        entries[index] = change.entry
