"""YAML text to plain data with the line of every key, and nothing else that YAML can do.

Anchors, aliases, tags, several documents, duplicate keys, keys that are not text, deep nesting and large files are refused with
their line. Scalars are read as YAML 1.2 reads them, so `no`, `on` and `12:30` are text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

MAX_BYTES = 256 * 1024
MAX_DEPTH = 24

Path = tuple[str | int, ...]

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")
_FLOAT = re.compile(r"[-+]?[0-9]{1,18}(\.[0-9]{0,18})?([eE][-+]?[0-9]{1,2})?")
_WORDS: dict[str, bool | None] = {"": None, "~": None, "null": None, "true": True, "false": False}


class Unreadable(Exception):
    """The text is not acceptable YAML. Show `sentence` with `line` to whoever wrote it."""

    def __init__(self, line: int, sentence: str) -> None:
        super().__init__(sentence)
        self.line = line
        self.sentence = sentence


def read_marked(text: str) -> tuple[Any, dict[Path, int]]:
    """Data and the line (from 1) of every key and item by its path.

    Raises:
        Unreadable: not YAML, or one of the refused things.
    """
    if len(text.encode("utf-8", "replace")) > MAX_BYTES:
        raise Unreadable(1, f"the file is larger than {MAX_BYTES // 1024} KiB")
    lines: dict[Path, int] = {(): 1}
    try:
        events = iter(yaml.parse(text, Loader=yaml.SafeLoader))
        return _document(events, lines), lines
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise Unreadable(mark.line + 1 if mark else 1, f"not YAML: {error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise Unreadable(1, f"not YAML: {str(error).splitlines()[0]}") from error


def _document(events: Iterator[yaml.Event], lines: dict[Path, int]) -> Any:
    data: Any = None
    seen = False
    for event in events:
        match event:
            case yaml.StreamStartEvent() | yaml.DocumentStartEvent() | yaml.DocumentEndEvent() | yaml.StreamEndEvent():
                continue
            case _ if seen:
                raise Unreadable(_line(event), "a second document begins here; write one document only")
            case _:
                data, seen = _node(event, events, (), lines), True
    return data


def _node(event: yaml.Event, events: Iterator[yaml.Event], path: Path, lines: dict[Path, int]) -> Any:
    if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
        raise Unreadable(_line(event), "anchors and aliases are not used here; write the value out")
    if getattr(event, "tag", None):
        raise Unreadable(_line(event), "tags are not used here; write the plain value")
    if len(path) > MAX_DEPTH:
        raise Unreadable(_line(event), f"nested deeper than {MAX_DEPTH} levels")
    match event:
        case yaml.ScalarEvent():
            return event.value if event.style in ("'", '"', "|", ">") else _scalar(event.value)
        case yaml.SequenceStartEvent():
            return _sequence(events, path, lines)
        case yaml.MappingStartEvent():
            return _mapping(events, path, lines)
        case _:
            raise Unreadable(_line(event), "not a value")


def _sequence(events: Iterator[yaml.Event], path: Path, lines: dict[Path, int]) -> list[Any]:
    items: list[Any] = []
    for event in events:
        if isinstance(event, yaml.SequenceEndEvent):
            break
        here = (*path, len(items))
        lines[here] = _line(event)
        items.append(_node(event, events, here, lines))
    return items


def _mapping(events: Iterator[yaml.Event], path: Path, lines: dict[Path, int]) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for event in events:
        if isinstance(event, yaml.MappingEndEvent):
            break
        if not isinstance(event, yaml.ScalarEvent):
            raise Unreadable(_line(event), "a key must be plain text")
        key = event.value
        if key == "<<" or event.anchor or event.tag:
            raise Unreadable(_line(event), "merge keys, anchors and tags are not used here; write the value out")
        if key in data:
            raise Unreadable(_line(event), f"{key!r} is given twice (first in line {lines[(*path, key)]})")
        here = (*path, key)
        lines[here] = _line(event)
        data[key] = _node(next(events), events, here, lines)
    return data


def _scalar(text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1
