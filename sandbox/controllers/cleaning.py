"""What goes when something else goes: dependents of a deleted owner, everything in a deleted namespace."""

from __future__ import annotations

from typing import Any

from sandbox.controllers.engine import Engine, Key
from sandbox.controllers.facts import is_terminating
from sandbox.kinds import NAMESPACES, PODS, Kind
from sandbox.shelves import Change, copied
from sandbox.statuses import NotFound
from sandbox.store import Store

Json = dict[str, Any]

_FOREGROUND = "foregroundDeletion"
_ORPHAN = "orphan"


class GarbageCollector:
    """Deletes objects whose owners are all gone, and finishes foreground and orphan deletions.

    Keys are (uid of the owner, ""): whatever is owned by it is looked at.
    """

    name = "garbage"

    def __init__(self, store: Store, engine: Engine) -> None:
        self._store = store
        self._engine = engine
        self._marked: dict[str, tuple[Kind, str, str]] = {}

    def observe(self, change: Change) -> None:
        """Look at the dependents of what was deleted or marked, and at marked owners whose dependents go."""
        metadata = change.object["metadata"]
        uid = metadata["uid"]
        if change.type == "DELETED":
            self._marked.pop(uid, None)
            self._engine.changed(self.name, (uid, ""))
            for owner in metadata.get("ownerReferences") or ():
                if owner["uid"] in self._marked:
                    self._engine.changed(self.name, (owner["uid"], ""))
        elif is_terminating(change.object) and {_FOREGROUND, _ORPHAN} & set(metadata.get("finalizers") or ()):
            self._marked[uid] = (change.kind, metadata.get("namespace", ""), metadata["name"])
            self._engine.changed(self.name, (uid, ""))

    def sync(self, key: Key) -> float | None:
        uid = key[0]
        marked = self._marked.get(uid)
        owner = self._store.find(*marked) if marked else None
        finalizers = (owner["metadata"].get("finalizers") or ()) if owner is not None else ()
        orphan, foreground = _ORPHAN in finalizers, _FOREGROUND in finalizers
        left = 0
        for kind in list(self._store.kinds()):
            for item in self._store.owned(kind, uid):
                if orphan:
                    self._release(kind, item, uid)
                elif not self._has_other_owner(item, uid):
                    self._delete(kind, item, foreground=foreground and kind.key != PODS.key)
                    left += 1
        if owner is not None and marked is not None and not left:
            self._finish(marked[0], owner)
        return None

    def _has_other_owner(self, item: Json, uid: str) -> bool:
        others = {owner["uid"] for owner in item["metadata"]["ownerReferences"] if owner["uid"] != uid}
        return any(self._exists(owner) for owner in others)

    def _exists(self, uid: str) -> bool:
        return any(entry["metadata"]["uid"] == uid for kind in list(self._store.kinds()) for entry in self._store.list(kind))

    def _delete(self, kind: Kind, item: Json, *, foreground: bool) -> None:
        if is_terminating(item):
            return
        metadata = item["metadata"]
        try:
            self._store.delete(
                kind,
                metadata.get("namespace", ""),
                metadata["name"],
                uid=metadata["uid"],
                propagation="Foreground" if foreground else None,
            )
        except NotFound:
            return

    def _release(self, kind: Kind, item: Json, uid: str) -> None:
        body = copied(item)
        body["metadata"]["ownerReferences"] = [owner for owner in item["metadata"]["ownerReferences"] if owner["uid"] != uid]
        self._store.update(kind, body)

    def _finish(self, kind: Kind, owner: Json) -> None:
        body = copied(owner)
        kept = [item for item in owner["metadata"].get("finalizers") or () if item not in (_FOREGROUND, _ORPHAN)]
        body["metadata"]["finalizers"] = kept
        self._store.update(kind, body)


class NamespaceController:
    """Empties namespaces that are being deleted, then lets them go."""

    name = "namespaces"

    def __init__(self, store: Store, engine: Engine) -> None:
        self._store = store
        self._engine = engine

    def sync(self, key: Key) -> float | None:
        namespace = self._store.find(NAMESPACES, *key)
        if namespace is None or not is_terminating(namespace):
            return None
        if (namespace.get("status") or {}).get("phase") != "Terminating":
            namespace = self._store.patch_status(
                NAMESPACES, "", key[1], {**(namespace.get("status") or {}), "phase": "Terminating"}
            )
        left = 0
        for kind in [kind for kind in self._store.kinds() if kind.namespaced]:
            for item in self._store.list(kind, key[1]):
                left += 1
                if not is_terminating(item):
                    self._store.delete(kind, key[1], item["metadata"]["name"])
        if left:
            return 0.2
        body = copied(namespace)
        body["spec"] = {field: value for field, value in (body.get("spec") or {}).items() if field != "finalizers"}
        self._store.update(NAMESPACES, body)
        return None
