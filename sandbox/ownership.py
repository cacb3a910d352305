"""Who owns which field: managedFields for every writer, and server-side apply with its conflicts.

A set of fields is kept as FieldsV1 has it: nested dicts whose keys are `f:name`, `k:{"name":"app"}` for items of keyed lists,
`v:"x"` for members of sets, and "." for the thing itself.

* An Update owns what it changed or added; every other writer loses what it changed and everybody what it removed.
* An Apply owns exactly what its document names. What it named before and no longer names is removed unless somebody else owns
  it. A value that differs from the live one under another owner is a conflict, unless forced.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from sandbox.schemas import ANY, FieldType, load
from sandbox.shelves import copied
from sandbox.statuses import Conflict, Json

Fields = dict[str, Any]
_UNOWNED = ("kind", "apiVersion")
_UNOWNED_METADATA = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
    "managedFields",
)


@dataclass(frozen=True)
class Writer:
    """Who writes: manager name, how, in which version, through which subresource ("" for the object itself)."""

    manager: str
    operation: Literal["Apply", "Update"]
    api_version: str
    subresource: str = ""

    def wrote(self, entry: Json) -> bool:
        """Whether a managedFields entry is this writer's."""
        theirs = (entry["manager"], entry["operation"], entry["apiVersion"], entry.get("subresource", ""))
        return theirs == (self.manager, self.operation, self.api_version, self.subresource)


# -- sets of fields ------------------------------------------------------------


def union(left: Fields, right: Fields) -> Fields:
    """Fields in either."""
    result = dict(left)
    for key, value in right.items():
        result[key] = union(result.get(key, {}), value)
    return result


def without(left: Fields, right: Fields) -> Fields:
    """Fields of `left` that are not in `right`; what becomes empty goes."""
    result: Fields = {}
    for key, value in left.items():
        if key not in right:
            result[key] = value
        elif value and right[key]:
            rest = without(value, right[key])
            if rest:
                result[key] = rest
    return result


def paths(fields: Fields, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every leaf, as steps."""
    for key, value in fields.items():
        if value:
            yield from paths(value, (*before, key))
        else:
            yield (*before, key)


def has(fields: Fields, path: tuple[str, ...]) -> bool:
    """Whether the leaf `path` is in the set."""
    for step in path:
        if step not in fields:
            return False
        fields = fields[step]
    return True


def spoken(path: tuple[str, ...]) -> str:
    """A leaf as messages write it: `.spec.template.spec.containers[name="app"].image`."""
    words: list[str] = []
    for step in path:
        sort, _, rest = step.partition(":")
        if sort == "f":
            words.append(f".{rest}")
        elif sort == "k":
            keys = ",".join(f"{key}={json.dumps(value)}" for key, value in json.loads(rest).items())
            words.append(f"[{keys}]")
        elif sort == "v":
            words.append(f"[={rest}]")
    return "".join(words)


# -- what a document names, and what changed ------------------------------------------------------------


def fields_of(value: Any, of: FieldType) -> Fields:
    """The fields that an applied document names."""
    if isinstance(value, dict) and _walks(of):
        return {f"f:{key}": fields_of(item, _child(of, key)) for key, item in value.items()}
    if isinstance(value, list) and of.list_type in ("map", "set"):
        return {
            key: ({".": {}} | fields_of(item, of.item or ANY) if of.list_type == "map" else {}) for key, item in _items(value, of)
        }
    return {}


def changed(new: Any, old: Any, of: FieldType, *, fresh: bool = False) -> tuple[Fields, Fields]:
    """(changed or added, removed) fields between two states of one thing; `fresh` when the thing itself was not there."""
    if isinstance(new, dict) and _walks(of):
        before = old if isinstance(old, dict) else {}
        pairs = [(f"f:{key}", new.get(key), before.get(key), _child(of, key)) for key in {**before, **new}]
    elif isinstance(new, list) and of.list_type in ("map", "set"):
        earlier, now = dict(_items(old if isinstance(old, list) else [], of)), dict(_items(new, of))
        pairs = [(key, now.get(key), earlier.get(key), of.item or ANY) for key in {**earlier, **now}]
    else:
        return {}, {}
    written: Fields = {}
    removed: Fields = {}
    for key, after, before_value, child in pairs:
        if after != before_value:
            _compare(key, after, before_value, child, (written, removed), fresh)
    return written, removed


def _compare(key: str, after: Any, before: Any, child: FieldType, result: tuple[Fields, Fields], fresh: bool) -> None:
    written, removed = result
    if after is None:
        removed[key] = union({".": {}}, fields_of(before, child)) if fields_of(before, child) else {}
        return
    appears = before is None and (fresh or not child.present)
    deeper, gone = changed(after, before, child, fresh=appears)
    if gone:
        removed[key] = gone
    if not _structured(after, child):
        written[key] = {}
    elif appears:
        written[key] = {".": {}} | deeper if deeper else {}
    elif deeper:
        written[key] = deeper


def _structured(value: Any, of: FieldType) -> bool:
    return (isinstance(value, dict) and _walks(of)) or (isinstance(value, list) and of.list_type in ("map", "set"))


def _walks(of: FieldType) -> bool:
    return of.shape in ("object", "map") and of.list_type != "atomic"


def _child(of: FieldType, key: str) -> FieldType:
    if of.shape == "map":
        return of.item or ANY
    return load().field(of, key) or ANY


_PORT_DEFAULTS = {"protocol": "TCP"}


def _items(value: list[Any], of: FieldType) -> Iterator[tuple[str, Any]]:
    for item in value:
        if of.list_type == "set":
            yield f"v:{json.dumps(item)}", item
        elif isinstance(item, dict):
            keys = {key: item.get(key, _PORT_DEFAULTS.get(key)) for key in of.list_keys}
            text = json.dumps({key: found for key, found in sorted(keys.items()) if found is not None}, separators=(",", ":"))
            yield f"k:{text}", item


def _owned_part(obj: Json) -> Json:
    part = {key: value for key, value in obj.items() if key not in _UNOWNED}
    part["metadata"] = {key: value for key, value in obj.get("metadata", {}).items() if key not in _UNOWNED_METADATA}
    return part


# -- updates ------------------------------------------------------------


def after_update(new: Json, old: Json | None, of: FieldType, writer: Writer, now: str) -> list[Json]:
    """managedFields of `new` after `writer` replaced `old` (None: created) with it."""
    entries = list((old or {}).get("metadata", {}).get("managedFields", ()))
    written, removed = changed(_owned_part(new), _owned_part(old) if old else {}, of)
    if not written and not removed:
        return entries
    result: list[Json] = []
    mine: Fields = {}
    for entry in entries:
        if writer.wrote(entry):
            mine = without(entry["fieldsV1"], removed)
            continue
        left = _losing(entry["fieldsV1"], written, removed)
        if left:
            result.append({**entry, "fieldsV1": left})
    mine = union(mine, written)
    if mine:
        result.append(_entry(writer, mine, now))
    return _sorted(result)


def _losing(fields: Fields, written: Fields, removed: Fields) -> Fields:
    """What another owner keeps: the changed leaves go, the "." of things that still exist stays."""
    leaves: Fields = {}
    for path in paths(written):
        if path[-1] != ".":
            leaves = union(leaves, _nested(path))
    return without(without(fields, leaves), removed)


def _nested(path: tuple[str, ...]) -> Fields:
    result: Fields = {}
    for step in reversed(path):
        result = {step: result}
    return result


def _entry(writer: Writer, fields: Fields, now: str) -> Json:
    entry: Json = {
        "manager": writer.manager,
        "operation": writer.operation,
        "apiVersion": writer.api_version,
        "time": now,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }
    if writer.subresource:
        entry["subresource"] = writer.subresource
    return entry


def _sorted(entries: list[Json]) -> list[Json]:
    return sorted(entries, key=lambda entry: (entry["operation"], entry.get("time", ""), entry["manager"]))


# -- server-side apply ------------------------------------------------------------


def apply(live: Json, config: Json, of: FieldType, writer: Writer, now: str, *, force: bool) -> tuple[Json, list[Json]]:
    """(the merged object, its managedFields) after `writer` applied `config` over `live` (empty when it does not exist).

    Raises:
        Conflict: another manager owns a field whose value would change, and `force` is not set.
    """
    named = fields_of(_owned_part(config), of)
    entries = list(live.get("metadata", {}).get("managedFields", ()))
    mine: Fields = next((entry["fieldsV1"] for entry in entries if writer.wrote(entry)), {})
    others = [entry for entry in entries if not writer.wrote(entry)]
    merged = _merge(live, config, of)
    written, _ = changed(_owned_part(merged), _owned_part(live) if live else {}, of)
    contested = [(entry, [path for path in paths(entry["fieldsV1"]) if path[-1] != "." and has(written, path)]) for entry in others]
    contested = [(entry, found) for entry, found in contested if found]
    if contested and not force:
        raise _conflict(contested)
    kept: list[Json] = []
    for entry in others:
        left = _losing(entry["fieldsV1"], written, {}) if any(entry is one for one, _ in contested) else entry["fieldsV1"]
        if left:
            kept.append({**entry, "fieldsV1": left})
    for path in paths(without(mine, named)):
        if not any(has(entry["fieldsV1"], path) for entry in kept):
            _remove(merged, path)
    return merged, _sorted([*kept, *([_entry(writer, named, now)] if named else [])])


def _conflict(contested: list[tuple[Json, list[tuple[str, ...]]]]) -> Conflict:
    causes: list[Json] = []
    lines: list[str] = []
    for entry, found in contested:
        whom = f'conflict with "{entry["manager"]}"'
        if entry.get("subresource"):
            whom += f' with subresource "{entry["subresource"]}"'
        if entry["operation"] == "Update":
            whom += f" using {entry['apiVersion']}"
        causes += [{"reason": "FieldManagerConflict", "message": whom, "field": spoken(path)} for path in found]
        if len(found) == 1:
            lines.append(f"{whom}: {spoken(found[0])}")
        else:
            lines.append(f"{whom.replace('conflict', 'conflicts', 1)}:\n" + "\n".join(f"- {spoken(path)}" for path in found))
    number = f"{len(causes)} conflict" + ("s" if len(causes) > 1 else "")
    return Conflict(f"Apply failed with {number}: " + "\n".join(lines), {"causes": causes})


def _merge(live: Any, config: Any, of: FieldType) -> Any:
    if isinstance(config, dict) and _walks(of):
        result = dict(live) if isinstance(live, dict) else {}
        for key, value in config.items():
            result[key] = _merge(result.get(key), value, _child(of, key))
        return result
    if isinstance(config, list) and isinstance(live, list) and of.list_type in ("map", "set"):
        merged = dict(_items(live, of))
        for key, item in _items(config, of):
            merged[key] = _merge(merged.get(key), item, of.item or ANY)
        return list(merged.values())
    return copied(config)


def _remove(obj: Any, path: tuple[str, ...]) -> None:
    """Take one leaf out of a merged object, copying nothing but what `_merge` already made."""
    step, rest = path[0], path[1:]
    sort, _, name = step.partition(":")
    if sort == "f" and isinstance(obj, dict):
        if not rest or rest == (".",):
            obj.pop(name, None)
        elif name in obj:
            obj[name] = copied(obj[name])
            _remove_inside(obj, name, rest)


def _remove_inside(obj: Json, name: str, rest: tuple[str, ...]) -> None:
    inner = obj[name]
    if not isinstance(inner, list):
        _remove(inner, rest)
        return
    sort, _, text = rest[0].partition(":")
    if sort == "v":
        obj[name] = [item for item in inner if json.dumps(item) != text]
        return
    wanted = json.loads(text)
    for item in list(inner):
        if all(item.get(key, _PORT_DEFAULTS.get(key)) == value for key, value in wanted.items()):
            if rest[1:] == (".",):
                inner.remove(item)
            else:
                _remove(item, rest[1:])
