"""Which resources are served under which group and version: the built-in kinds, second views of some, and custom resources.

Custom resources come from CustomResourceDefinitions in the store, or are registered in code (`Registry.add`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sandbox.kinds import CUSTOM_RESOURCE_DEFINITIONS, EVENTS, SERVED, Kind
from sandbox.shelves import Change
from sandbox.statuses import Json
from sandbox.store import Store

Conversion = Callable[[Json], Json]


@dataclass(frozen=True)
class Served:
    """A resource as one group and version show it. `outward` turns a stored object into that view, `inward` back."""

    kind: Kind
    api_version: str
    outward: Conversion | None = None
    inward: Conversion | None = None

    @property
    def group(self) -> str:
        return self.api_version.rpartition("/")[0]

    @property
    def version(self) -> str:
        return self.api_version.rpartition("/")[2]


_EVENT_NAMES = (
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
)


def event_outward(event: Json) -> Json:
    """A core event as events.k8s.io/v1 shows it."""
    names = dict(_EVENT_NAMES)
    return {names.get(key, key): value for key, value in event.items()} | {"apiVersion": "events.k8s.io/v1"}


def event_inward(event: Json) -> Json:
    """An events.k8s.io/v1 event as it is stored."""
    names = {new: old for old, new in _EVENT_NAMES}
    return {names.get(key, key): value for key, value in event.items()} | {"apiVersion": "v1"}


class Registry:
    """Looks resources up by group, version and plural. Follows the CustomResourceDefinitions of `store`."""

    def __init__(self, store: Store) -> None:
        self._served: dict[tuple[str, str, str], Served] = {}
        for kind in SERVED:
            self._put(Served(kind, kind.api_version))
        self._served["events.k8s.io", "v1", "events"] = Served(EVENTS, "events.k8s.io/v1", event_outward, event_inward)
        store.subscribe(self._definition_changed, CUSTOM_RESOURCE_DEFINITIONS)
        for definition in store.list(CUSTOM_RESOURCE_DEFINITIONS):
            self._define(definition)

    def add(self, kind: Kind) -> None:
        """Serve a custom kind without a CustomResourceDefinition."""
        self._put(Served(kind, kind.api_version))

    def find(self, group: str, version: str, plural: str) -> Served | None:
        """What is served there, or None."""
        return self._served.get((group, version, plural))

    def knows(self, group: str, version: str) -> bool:
        """Whether anything is served under that group and version."""
        return any((served_group, served_version) == (group, version) for served_group, served_version, _ in self._served)

    def all(self) -> list[Served]:
        """Everything that is served, in order of registration."""
        return list(self._served.values())

    def _put(self, served: Served) -> None:
        self._served[served.group, served.version, served.kind.plural] = served

    def _definition_changed(self, change: Change) -> None:
        if change.previous is not None:
            for kind in custom_kinds(change.previous.body):
                self._served.pop((kind.group, kind.version, kind.plural), None)
        if change.type != "DELETED":
            self._define(change.object)

    def _define(self, definition: Json) -> None:
        for kind in custom_kinds(definition):
            self._put(Served(kind, kind.api_version))


def custom_kinds(definition: Json) -> list[Kind]:
    """The kinds, one per served version, that a CustomResourceDefinition describes."""
    spec = definition["spec"]
    names = spec["names"]
    return [
        Kind(
            spec["group"],
            version["name"],
            names["plural"],
            names["kind"],
            namespaced=spec.get("scope", "Namespaced") == "Namespaced",
            status="status" in version.get("subresources", {}),
            generation=True,
            unconditional=False,
            custom=True,
            short_names=tuple(names.get("shortNames", ())),
            categories=tuple(names.get("categories", ())),
            singular=names.get("singular", names["kind"].lower()),
        )
        for version in spec["versions"]
        if version.get("served", True)
    ]
