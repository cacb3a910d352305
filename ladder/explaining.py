"""Validation errors as sentences for the person who wrote the file: line, key, what would be right."""

from __future__ import annotations

import difflib
import json
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from ladder.errors import Problem
from ladder.marking import Path

LONG_LIST = 16
Model = TypeVar("Model", bound=BaseModel)


def nearest(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` or nothing."""
    found = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean {found[0]!r}?" if found else ""


def problems_in(
    model: type[Model], data: Mapping[str, Any], lines: Mapping[Path, int], file: str
) -> tuple[Model | None, tuple[Problem, ...]]:
    """The validated document, or every problem it has."""
    try:
        # JSON and strict: lists may become tuples and text may become an enum, but "yes" does not become true.
        return model.model_validate_json(json.dumps(data), strict=True), ()
    except ValidationError as error:
        found = (_explained(model, detail, lines, file) for detail in error.errors(include_url=False))
        return None, tuple(dict.fromkeys(found))


def _explained(model: type[BaseModel], detail: Any, lines: Mapping[Path, int], file: str) -> Problem:
    key: Path = tuple(part for part in detail["loc"] if part != "[key]")
    place = key
    while place not in lines:
        place = place[:-1]
    text = ".".join(str(part) for part in key)
    for number in (part for part in key if isinstance(part, int)):
        text = text.replace(f".{number}", f"[{number}]", 1)
    return Problem(file=file, line=lines[place], key=text, sentence=_sentence(model, detail, key))


def _sentence(model: type[BaseModel], detail: Any, key: Path) -> str:
    given = detail.get("input")
    context = detail.get("ctx", {})
    match detail["type"]:
        case "missing":
            return "is required"
        case "extra_forbidden":
            known = _known_keys(model, key[:-1])
            meant = nearest(str(key[-1]), known)
            return (
                f"unknown key{meant}"
                if meant and len(known) > LONG_LIST
                else f"unknown key{meant} (known here: {', '.join(known)})"
            )
        case "value_error":
            return str(context["error"])
        case "enum" | "literal_error":
            expected = str(context["expected"]).replace(" or ", ", ")
            options = [part.strip().strip("'") for part in expected.split(",")]
            hint = nearest(given, options) if isinstance(given, str) else ""
            return f"{given!r} is not one of {', '.join(options)}{hint}" if len(options) < 12 else f"{given!r} is not known{hint}"
        case "string_type":
            return (
                f'must be text; write it in quotes, "{given}"'
                if isinstance(given, int | float)
                else f"must be text, found {_kind(given)}"
            )
        case "int_type" | "int_from_float" | "int_parsing":
            return f"must be a whole number, found {given!r}"
        case "float_type" | "float_parsing":
            return f"must be a number, found {given!r}"
        case "bool_type" | "bool_parsing":
            return f"must be true or false, found {given!r}"
        case "tuple_type" | "list_type":
            return f"must be a list, for example [a, b]; found {_kind(given)}"
        case "dict_type" | "model_type" | "model_attributes_type":
            return f"must be a mapping of keys, found {_kind(given)}"
        case "string_pattern_mismatch":
            return f"{given!r} does not have the right form{_form(context['pattern'])}"
        case _:
            return f"{str(detail['msg'])[:1].lower()}{str(detail['msg'])[1:]}, found {given!r}"


def _form(pattern: str) -> str:
    if pattern.startswith("^(<"):
        return '; write an operator, a space and a number, for example "< 0.01"'
    if pattern.startswith("^[a-z0-9]"):
        return "; use lower case letters, digits, '-', '.' and '_'"
    if pattern.startswith("^[A-Z0-9]"):
        return "; write TEAM/USER, for example T01/U02"
    return f"; it must match {pattern}"


def _kind(value: Any) -> str:
    match value:
        case None:
            return "nothing"
        case dict():
            return "a mapping"
        case list():
            return "a list"
        case _:
            return repr(value)


def _known_keys(model: Any, key: Path) -> list[str]:
    kind: Any = model
    for part in key:
        kind = _inside(_plain(kind), part)
    kind = _plain(kind)
    if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
        return []
    return [field.alias or name for name, field in kind.model_fields.items()]


def _inside(kind: Any, part: str | int) -> Any:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        for name, field in kind.model_fields.items():
            if part in (name, field.alias):
                return field.annotation
        return None
    arguments = typing.get_args(kind)
    if not arguments:
        return None
    return arguments[0] if isinstance(part, int) else arguments[-1]


def _plain(kind: Any) -> Any:
    """Without `Annotated` and `| None`."""
    while True:
        origin = typing.get_origin(kind)
        if origin is typing.Annotated:
            kind = typing.get_args(kind)[0]
        elif origin in (typing.Union, types.UnionType):
            kind = next(one for one in typing.get_args(kind) if one is not type(None))
        else:
            return kind
