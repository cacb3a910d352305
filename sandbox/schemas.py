"""The field types of the built-in kinds, condensed from the OpenAPI documents of a real API server.

`data/schemas.json.gz` holds, per type, its fields with what decoding, strategic merge and field ownership need to know. A kind
whose group is not in it (RBAC, networking, custom resources) is decoded with typed metadata and free content.
`condense` makes that file; a test holds it to the recorded documents.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal

from sandbox.statuses import Json

Shape = Literal[
    "object", "list", "map", "string", "integer", "number", "boolean", "intOrString", "quantity", "time", "microTime", "any"
]
META = "meta.v1.ObjectMeta"


@dataclass(frozen=True)
class FieldType:
    """What a field, a list item or a map value holds.

    `type_name` names the fields of an object; `item` is the type of list items and map values. `list_type` is atomic (objects
    too), set or map (then `list_keys`); `merge_key` and `strategy` are those of strategic merge. A `present` object or list is
    there even when it is empty (no pointer in the server's type), so that nobody comes to own it as such.
    """

    shape: Shape
    type_name: str = ""
    item: FieldType | None = None
    list_type: str = ""
    list_keys: tuple[str, ...] = ()
    merge_key: str = ""
    strategy: tuple[str, ...] = ()
    present: bool = False


ANY = FieldType("any")
STRING = FieldType("string")
METADATA = FieldType("object", META)


@dataclass(frozen=True)
class Schemas:
    """Every known type and which of them each kind has."""

    types: dict[str, dict[str, FieldType]]
    kinds: dict[str, str]

    def fields(self, type_name: str) -> dict[str, FieldType]:
        """The fields of an object type; empty when unknown."""
        return self.types.get(type_name, {})

    def of(self, api_version: str, kind: str) -> FieldType:
        """The type of a whole object. Unknown kinds have typed metadata and nothing else known."""
        name = self.kinds.get(f"{api_version}/{kind}")
        return FieldType("object", name) if name else UNTYPED

    def field(self, of: FieldType, name: str) -> FieldType | None:
        """The type of one field of an object type; None for a name it does not have."""
        if of is UNTYPED:
            return METADATA if name == "metadata" else ANY
        return self.types.get(of.type_name, {}).get(name)


UNTYPED = FieldType("object", "untyped")


@cache
def load() -> Schemas:
    """The shipped types."""
    raw = gzip.decompress(resources.files("sandbox").joinpath("data/schemas.json.gz").read_bytes())
    document = json.loads(raw)
    types = {name: {field: _field(value) for field, value in fields.items()} for name, fields in document["types"].items()}
    return Schemas(types, document["kinds"])


def _field(raw: Json) -> FieldType:
    return FieldType(
        shape=raw["shape"],
        type_name=raw.get("type", ""),
        item=_field(raw["item"]) if "item" in raw else None,
        list_type=raw.get("list", ""),
        list_keys=tuple(raw.get("keys", ())),
        merge_key=raw.get("mergeKey", ""),
        strategy=tuple(raw.get("strategy", ())),
        present=raw.get("present", False),
    )


def condense(documents: Iterable[Json]) -> Json:
    """The content of `data/schemas.json.gz` from OpenAPI v3 documents."""
    definitions: Json = {}
    for document in documents:
        for name, definition in document["components"]["schemas"].items():
            definitions.setdefault(name, definition)
    types, kinds = {}, {}
    for name, definition in sorted(definitions.items()):
        if "properties" not in definition:
            continue
        fields = {field: _condensed(value, definitions) for field, value in sorted(definition["properties"].items())}
        for field in definition.get("required", ()):
            if fields[field]["shape"] == "list":
                fields[field]["present"] = True
        types[_short(name)] = fields
        for gvk in definition.get("x-kubernetes-group-version-kind", ()):
            api_version = f"{gvk['group']}/{gvk['version']}" if gvk["group"] else gvk["version"]
            kinds[f"{api_version}/{gvk['kind']}"] = _short(name)
    return {"types": types, "kinds": dict(sorted(kinds.items()))}


_SCALARS = {
    "resource.Quantity": "quantity",
    "intstr.IntOrString": "intOrString",
    "v1.Time": "time",
    "v1.MicroTime": "microTime",
}


def _short(name: str) -> str:
    return ".".join(name.split(".")[-3:])


def _condensed(value: Json, definitions: Json) -> Json:
    reference = value.get("$ref") or next((part["$ref"] for part in value.get("allOf", ()) if "$ref" in part), None)
    if reference:
        return _referenced(reference.rsplit("/", 1)[1], definitions) | _merging(value)
    match value.get("type"):
        case "array":
            return {"shape": "list", "item": _condensed(value["items"], definitions)} | _merging(value)
        case "object" if "additionalProperties" in value:
            return {"shape": "map", "item": _condensed(value["additionalProperties"], definitions)} | _merging(value)
        case "string" | "integer" | "number" | "boolean" as shape:
            return {"shape": shape}
        case _:
            return {"shape": "any"}


def _referenced(name: str, definitions: Json) -> Json:
    for suffix, shape in _SCALARS.items():
        if name.endswith("." + suffix):
            return {"shape": shape}
    if "properties" not in definitions.get(name, {}):
        return {"shape": "any"}
    atomic = {"list": "atomic"} if definitions[name].get("x-kubernetes-map-type") == "atomic" else {}
    return {"shape": "object", "type": _short(name)} | atomic


def _merging(value: Json) -> Json:
    found: dict[str, Any] = {
        "list": value.get("x-kubernetes-list-type"),
        "keys": value.get("x-kubernetes-list-map-keys"),
        "mergeKey": value.get("x-kubernetes-patch-merge-key"),
        "present": value.get("default") == {},
        "strategy": (value.get("x-kubernetes-patch-strategy") or "").split(",")
        if value.get("x-kubernetes-patch-strategy")
        else None,
    }
    return {key: item for key, item in found.items() if item}
