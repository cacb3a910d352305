"""Reading a body as the typed kind it claims to be: unknown fields, wrong types, times, and what Go does not write back.

`decode` returns the object as the server would store it (before defaults): unknown fields dropped and named, null fields and
empty maps and lists absent, times in the one spelling the server writes. What has the wrong type is a `DecodeError`, worded
as the server words it; the callers put it into the 400 or 422 that belongs to their verb.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import yaml

from sandbox.schemas import ANY, FieldType, load
from sandbox.statuses import BadRequest, Json


class DecodeError(Exception):
    """A value has a type its field does not take; the text is the server's.

    `converted` is what it says where the value comes from a strategic merge patch.
    """

    def __init__(self, text: str, converted: str = "") -> None:
        super().__init__(text)
        self.converted = converted or text


@dataclass
class Decoded:
    """A decoded object and the problems that strict validation would refuse."""

    object: Json
    problems: list[str] = field(default_factory=list)


class _Duplicated(dict[str, Any]):
    """A JSON object some of whose keys came twice; the last value counts."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        seen: set[str] = set()
        self.duplicates = [key for key, _ in pairs if key in seen or seen.add(key)]  # type: ignore[func-returns-value]


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    plain = dict(pairs)
    return plain if len(plain) == len(pairs) else _Duplicated(pairs)


def parse_json(text: bytes) -> Any:
    """JSON of a request body; objects with repeated keys remember which.

    Raises:
        DecodeError: not JSON, in the words of Go's decoder where they are known.
    """
    try:
        return json.loads(text, object_pairs_hook=_pairs)
    except (ValueError, RecursionError) as error:
        raise DecodeError(_json_problem(text, error)) from error


def parse_body(text: bytes, content_type: str) -> Any:
    """A body in JSON, or in YAML when the type says so.

    Raises:
        BadRequest: it is neither.
    """
    try:
        return parse_json(text)
    except DecodeError as error:
        if "yaml" not in content_type:
            message = f"couldn't get version/kind; json parse error: {error}" if text else "EOF"
            raise BadRequest(message) from error
    try:
        return yaml.load(text, Loader=_PlainTimes)
    except yaml.YAMLError as error:
        raise BadRequest(f"error converting YAML to JSON: yaml: {error}") from error


class _PlainTimes(yaml.SafeLoader):
    """YAML as JSON sees it: times stay strings."""


_PlainTimes.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def duplicates(value: Any, path: str = "") -> list[str]:
    """Paths of the keys that came twice in a parsed body."""
    found: list[str] = []
    if isinstance(value, dict):
        if isinstance(value, _Duplicated):
            found += [_join(path, key) for key in value.duplicates]
        for key, item in value.items():
            found += duplicates(item, _join(path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            found += duplicates(item, f"{path}[{index}]")
    return found


def decode(body: Json, of: FieldType) -> Decoded:
    """Read `body` as type `of`.

    Raises:
        DecodeError: a value has the wrong type.
    """
    problems: list[str] = []
    known = _object(body, of, "", problems)
    problems.sort()
    problems += [f'duplicate field "{path}"' for path in duplicates(body)]
    return Decoded(known, problems)


def _object(value: Json, of: FieldType, path: str, problems: list[str]) -> Json:
    result: Json = {}
    schemas = load()
    for key, item in value.items():
        of_field = schemas.field(of, key)
        if of_field is None:
            problems.append(f'unknown field "{_join(path, key)}"')
            continue
        if item is None:
            continue
        read = _value(item, of_field, _join(path, key), problems)
        if not _omitted(read, of_field, of, key):
            result[key] = read
    return result


def _value(value: Any, of: FieldType, path: str, problems: list[str]) -> Any:
    match of.shape:
        case "any":
            return value
        case "object":
            if not isinstance(value, dict):
                raise _wrong(value, of.type_name.rpartition(".")[2], path)
            return _object(value, of, path, problems)
        case "map":
            if not isinstance(value, dict):
                raise _wrong(value, f"map[string]{_go_name(of.item or ANY)}", path)
            return {
                key: _value(item, of.item or ANY, _join(path, key), problems) for key, item in value.items() if item is not None
            }
        case "list":
            if not isinstance(value, list):
                raise _wrong(value, f"[]{_go_name(of.item or ANY)}", path)
            return [_value(item, of.item or ANY, f"{path}[{index}]", problems) for index, item in enumerate(value)]
        case _:
            return _scalar(value, of, path)


def _scalar(value: Any, of: FieldType, path: str) -> Any:
    match of.shape:
        case "string" if isinstance(value, str):
            return value
        case "boolean" if isinstance(value, bool):
            return value
        case "integer" if isinstance(value, int) and not isinstance(value, bool):
            return value
        case "integer" if isinstance(value, float) and value.is_integer():
            return int(value)
        case "number" if isinstance(value, int | float) and not isinstance(value, bool):
            return value
        case "intOrString" if isinstance(value, int | str) and not isinstance(value, bool):
            return value
        case "quantity" if isinstance(value, int | float | str) and not isinstance(value, bool):
            return value if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else str(value)
        case "time" if isinstance(value, str):
            return read_time(value)
        case "microTime" if isinstance(value, str):
            return read_micro_time(value)
    raise _wrong(value, _go_name(of), path)


_TIME = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d)")
_SECONDS_LAYOUT = "2006-01-02T15:04:05Z07:00"
_MICRO_LAYOUT = "2006-01-02T15:04:05.000000Z07:00"


def read_time(text: str) -> str:
    """An RFC 3339 time as metadata times are stored: UTC, whole seconds.

    Raises:
        DecodeError: it is not a time.
    """
    found = _TIME.fullmatch(text)
    if found is None:
        raise DecodeError(f'parsing time "{text}" as "{_SECONDS_LAYOUT}": cannot parse "{text}" as "2006"')
    return _instant(text).strftime("%Y-%m-%dT%H:%M:%SZ")


def read_micro_time(text: str) -> str:
    """A MicroTime, as Leases have it: exactly six fraction digits, stored in UTC.

    Raises:
        DecodeError: it is not a time, or has another number of fraction digits.
    """
    found = _TIME.fullmatch(text)
    head = f'parsing time "{text}" as "{_MICRO_LAYOUT}": cannot parse'
    if found is None:
        raise DecodeError(f'{head} "{text}" as "2006"')
    fraction, zone = found[3] or "", found[4]
    if len(fraction) < 7:
        raise DecodeError(f'{head} "{fraction}{zone}" as ".000000"')
    if len(fraction) > 7:
        raise DecodeError(f'{head} "{fraction[7:]}{zone}" as "Z07:00"')
    return _instant(text).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _instant(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text[:26].rstrip("Z") + "+00:00" if "." in text and text.endswith("Z") else text).astimezone(
            UTC
        )
    except ValueError as error:
        raise DecodeError(f'parsing time "{text}": {error}') from error


# Fields without a pointer in the server's types: their zero value is not written.
_ZERO_IS_ABSENT = {
    "apps.v1.DeploymentSpec": ("paused", "minReadySeconds"),
    "apps.v1.ReplicaSetSpec": ("minReadySeconds",),
    "apps.v1.StatefulSetSpec": ("minReadySeconds",),
    "apps.v1.DaemonSetSpec": ("minReadySeconds",),
    "core.v1.Container": ("stdin", "stdinOnce", "tty"),
    "core.v1.PodSpec": ("hostNetwork", "hostPID", "hostIPC"),
    "core.v1.NodeSpec": ("unschedulable",),
}


def _omitted(value: Any, of: FieldType, parent: FieldType, name: str) -> bool:
    if of.shape in ("map", "list") and not value:
        return True
    return not value and not isinstance(value, dict) and name in _ZERO_IS_ABSENT.get(parent.type_name, ())


def _wrong(value: Any, wanted: str, path: str) -> DecodeError:
    told = f"json: cannot unmarshal {_json_name(value)} into Go struct field .{path} of type {wanted}"
    number = "float64" if isinstance(value, float) else "int64"
    return DecodeError(told, f"cannot convert {number if _json_name(value) == 'number' else _json_name(value)} to {wanted}")


def _json_name(value: Any) -> str:
    names: dict[type, str] = {bool: "bool", int: "number", float: "number", str: "string", list: "array", dict: "object"}
    return names.get(type(value), "object")


def _go_name(of: FieldType) -> str:
    names = {"integer": "int32", "boolean": "bool", "number": "float64", "object": of.type_name.rpartition(".")[2]}
    return names.get(of.shape, "string")


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _json_problem(text: bytes, error: Exception) -> str:
    if not text.strip():
        return "unexpected end of JSON input"
    if isinstance(error, json.JSONDecodeError) and error.pos < len(error.doc):
        character = error.doc[error.pos]
        where = "object key string" if error.msg.startswith("Expecting property name") else "value"
        return f"invalid character {character!r} looking for beginning of {where}"
    return "unexpected end of JSON input"
