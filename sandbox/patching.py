"""The three patch formats of the API server, each a pure function from the stored object to the wanted one.

JSON Patch follows RFC 6902 as the server's library reads it: `test` of null passes on an absent key whose parent exists.
Merge patch is RFC 7386. Strategic merge uses the merge keys of the kind's schema and the `$patch`, `$retainKeys`,
`$deleteFromPrimitiveList` and `$setElementOrder` directives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jsonpatch
import jsonpointer

from sandbox.schemas import ANY, FieldType, load
from sandbox.shelves import copied
from sandbox.statuses import BadRequest, Invalid, Json

MAX_OPERATIONS = 10_000
_REJECTED = "the server rejected our request due to an error in our request"


def json_patch(stored: Json, operations: Any) -> Json:
    """Apply a JSON Patch to a copy of `stored`.

    Raises:
        BadRequest: the body is no list of operations. Invalid: an operation fails, `test` included; the text never says which.
    """
    if not isinstance(operations, list):
        named = "object" if isinstance(operations, dict) else "string" if isinstance(operations, str) else "value"
        raise BadRequest(f"error decoding patch: json: cannot unmarshal {named} into Go value of type []handlers.jsonPatchOp")
    if len(operations) > MAX_OPERATIONS:
        raise BadRequest(f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(operations)}")
    result: Any = copied(stored)
    try:
        for operation in operations:
            result = _apply(result, operation)
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException, TypeError, KeyError, AttributeError) as error:
        raise Invalid(_REJECTED, {}) from error
    if not isinstance(result, dict):
        raise Invalid(_REJECTED, {})
    return result


def _apply(document: Any, operation: Json) -> Any:
    if operation["op"] == "test":
        _test(document, operation["path"], operation.get("value"))
        return document
    return jsonpatch.JsonPatch([operation]).apply(document, in_place=True)


def _test(document: Any, path: str, wanted: Any) -> None:
    pointer = jsonpointer.JsonPointer(path)
    parent, step = (document, None) if not pointer.parts else pointer.to_last(document)
    if isinstance(parent, dict) and step is not None and step not in parent:
        if wanted is None:
            return
        raise jsonpatch.JsonPatchTestFailed(path)
    found = parent if step is None else pointer.walk(parent, step)
    if not _equal(found, wanted):
        raise jsonpatch.JsonPatchTestFailed(path)


def _equal(left: Any, right: Any) -> bool:
    """JSON equality: unlike Python's, true is not 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_equal(item, right[key]) for key, item in left.items())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(_equal(one, other) for one, other in zip(left, right, strict=True))
    return bool(left == right)


def merge_patch(stored: Any, patch: Any) -> Any:
    """Apply an RFC 7386 merge patch: null deletes, objects merge, everything else replaces."""
    if not isinstance(patch, dict):
        return copied(patch)
    result = dict(stored) if isinstance(stored, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


def strategic_merge(stored: Json, patch: Json, of: FieldType) -> Json:
    """Apply a strategic merge patch to an object of type `of`.

    Raises:
        BadRequest: a directive is unknown or a list item has no merge key.
    """
    directive = patch.get("$patch")
    if directive == "replace":
        return {key: copied(value) for key, value in patch.items() if key != "$patch"}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise BadRequest(f"unknown patch type: {directive}")
    result = dict(stored)
    retained = patch.get("$retainKeys")
    if retained is not None:
        result = {key: value for key, value in result.items() if key in retained}
    for key, value in patch.items():
        if not key.startswith("$"):
            _merge_field(result, key, value, of, patch)
        elif key.startswith("$deleteFromPrimitiveList/"):
            name = key.partition("/")[2]
            result[name] = [item for item in result.get(name, ()) if item not in value]
    return result


def _merge_field(result: Json, key: str, value: Any, of: FieldType, patch: Json) -> None:
    if value is None:
        result.pop(key, None)
        return
    field = _field(of, key)
    if isinstance(value, dict):
        stored = result.get(key)
        result[key] = strategic_merge(stored if isinstance(stored, dict) else {}, value, field)
    elif isinstance(value, list) and "merge" in field.strategy:
        stored = result.get(key)
        order = patch.get(f"$setElementOrder/{key}")
        result[key] = _merge_list(stored if isinstance(stored, list) else [], value, field, order)
    else:
        result[key] = copied(value)


def _field(of: FieldType, key: str) -> FieldType:
    if of.shape == "map":
        return of.item or ANY
    return load().field(of, key) or ANY


def _merge_list(stored: list[Any], patch: list[Any], field: FieldType, order: Sequence[Any] | None) -> list[Any]:
    if not field.merge_key:
        return _in_order([*stored, *(item for item in patch if item not in stored)], order)
    if any(isinstance(item, dict) and item.get("$patch") == "replace" for item in patch):
        return [copied(item) for item in patch if item.get("$patch") != "replace"]
    key = field.merge_key
    merged = {_key_of(item, key): item for item in stored}
    touched: list[Any] = []
    for item in patch:
        name = _key_of(item, key)
        if item.get("$patch") == "delete":
            merged.pop(name, None)
            continue
        merged[name] = strategic_merge(merged.get(name, {}), item, field.item or ANY)
        touched.append(name)
    if order is not None:
        return _in_order(list(merged.values()), [_key_of(item, key) for item in order], key)
    return [merged[name] for name in _interleaved([_key_of(item, key) for item in stored], touched, merged)]


def _interleaved(stored: list[Any], touched: list[Any], merged: dict[Any, Any]) -> list[Any]:
    """Names in the server's order: patched ones keep the patch's order, new ones come before what follows them in no list."""
    position = {name: index for index, name in enumerate(stored)}
    waiting = [name for name in stored if name in merged and name not in touched]
    result: list[Any] = []
    for name in touched:
        while waiting and name in position and position[waiting[0]] < position[name]:
            result.append(waiting.pop(0))
        result.append(name)
    return result + waiting


def _in_order(items: list[Any], order: Sequence[Any] | None, key: str = "") -> list[Any]:
    if order is None:
        return items
    rank = {name: index for index, name in enumerate(order)}
    return sorted(items, key=lambda item: rank.get(_key_of(item, key) if key else item, len(rank)))


def _key_of(item: Any, key: str) -> Any:
    if not isinstance(item, dict) or key not in item:
        raise BadRequest(f"map: {item} does not contain declared merge key: {key}")
    return item[key]
