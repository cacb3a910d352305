"""What can be told of a PromQL expression without evaluating it: how far back it looks, and which series it reads.

A tokenizer, not a parser: strings, comments and matchers are skipped as PromQL skips them, and what remains is scanned for
ranges. The comparison itself is always evaluated by the server.
Source: "Querying basics" of the Prometheus documentation (durations, range selectors, subqueries, offset and @ modifiers).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0, "y": 31536000.0}
_DURATION_PART = re.compile(r"(\d+)(ms|[smhdwy])")
_DURATION = re.compile(r"(?:\d+(?:ms|[smhdwy]))+")
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_TOKEN = re.compile(
    r"""(?P<space>\s+|\#[^\n]*)
      |(?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`)
      |(?P<duration>(?:\d+(?:ms|[smhdwy]))+(?![A-Za-z0-9_]))
      |(?P<number>0[xX][0-9a-fA-F]+|(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)
      |(?P<name>[A-Za-z_:][A-Za-z0-9_:]*)
      |(?P<mark>=~|!~|!=|==|<=|>=|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_KEYWORDS = frozenset(
    [
        "by",
        "without",
        "on",
        "ignoring",
        "group_left",
        "group_right",
        "bool",
        "offset",
        "and",
        "or",
        "unless",
        "atan2",
        "start",
        "end",
        "inf",
        "nan",
        "fill",
        "fill_left",
        "fill_right",
    ]
)
_AGGREGATIONS = frozenset(
    [
        "sum",
        "min",
        "max",
        "avg",
        "group",
        "stddev",
        "stdvar",
        "count",
        "count_values",
        "bottomk",
        "topk",
        "quantile",
        "limitk",
        "limit_ratio",
    ]
)
_LABEL_LISTS = frozenset({"by", "without", "on", "ignoring", "group_left", "group_right"})


class ExpressionInvalid(ValueError):
    """Not PromQL as far as can be told from its tokens. The message says where."""


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str


def longest_range(query: str) -> float:
    """Seconds that the expression looks back at most: its longest range or subquery, nested ones added, offsets included.

    0 for an expression of instant selectors. `$__rate_interval` and other dashboard variables are refused.

    Raises:
        ExpressionInvalid: brackets, strings or durations that do not make sense.
    """
    return _Ranges(list(_tokens(query))).longest()


def duration_seconds(text: str) -> float:
    """A Prometheus duration (`1h30m`, `500ms`) or a plain number, in seconds.

    Raises:
        ExpressionInvalid: neither.
    """
    if _DURATION.fullmatch(text):
        return sum(int(number) * _UNITS[unit] for number, unit in _DURATION_PART.findall(text))
    if _NUMBER.fullmatch(text):
        return float(text)
    raise ExpressionInvalid(f"{text!r} is not a duration")


def selectors(query: str) -> tuple[str, ...]:
    """The instant vector selectors that the expression reads, without range, offset or @, each once, in order.

    Raises:
        ExpressionInvalid: as `longest_range`.
    """
    tokens = list(_tokens(query))
    found: dict[str, None] = {}
    at = 0
    while at < len(tokens):
        token, following = tokens[at], tokens[at + 1] if at + 1 < len(tokens) else _Token("end", "")
        if token.text in _LABEL_LISTS and following.text == "(":
            at = _closing(tokens, at + 1) + 1
        elif token.text == "[":
            at = _closing(tokens, at) + 1
        elif token.text == "{":
            end = _closing(tokens, at)
            found[_joined(tokens[at : end + 1])] = None
            at = end + 1
        elif token.kind == "name" and following.text == "{":
            end = _closing(tokens, at + 1)
            found[_joined(tokens[at : end + 1])] = None
            at = end + 1
        elif token.kind == "name" and following.text != "(" and not _is_word(token.text, following):
            found[token.text] = None
            at += 1
        else:
            at += 1
    return tuple(found)


def _is_word(text: str, following: _Token) -> bool:
    """Keywords, and aggregations that are followed by their label list."""
    word = text.lower()
    return word in _KEYWORDS or (word in _AGGREGATIONS and following.text.lower() in ("by", "without"))


def _tokens(query: str) -> Iterator[_Token]:
    for found in _TOKEN.finditer(query):
        kind = str(found.lastgroup)
        if kind == "space":
            continue
        if kind == "mark" and found[0] in "\"'`":
            raise ExpressionInvalid(f"a string that does not end, at position {found.start()}")
        if kind == "mark" and found[0] == "$":
            raise ExpressionInvalid("a dashboard variable ($…) in the expression; write a duration")
        yield _Token(kind, found[0])


_PAIRS = {"(": ")", "[": "]", "{": "}"}


def _closing(tokens: list[_Token], start: int) -> int:
    """Index of the bracket that closes the one at `start`."""
    depth = 0
    for at in range(start, len(tokens)):
        if tokens[at].text in _PAIRS and tokens[at].kind == "mark":
            depth += 1
        elif tokens[at].text in _PAIRS.values() and tokens[at].kind == "mark":
            depth -= 1
            if depth == 0:
                return at
    raise ExpressionInvalid("a bracket that is not closed")


def _joined(tokens: list[_Token]) -> str:
    return "".join(token.text for token in tokens)


class _Ranges:
    """One walk over the tokens. A range belongs to the operand before it, so the look-back of each group is kept until then."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._at = 0

    def longest(self) -> float:
        found = self._group(None)
        if self._at < len(self._tokens):
            raise ExpressionInvalid(f"a {self._tokens[self._at].text!r} without its opening bracket")
        return found

    def _group(self, closing: str | None) -> float:
        """Longest look-back up to `closing`. `last` is that of the latest operand, to which a range or offset applies."""
        longest = last = 0.0
        while self._at < len(self._tokens):
            token = self._tokens[self._at]
            if token.kind == "mark" and token.text == closing:
                return max(longest, last)
            if token.kind == "mark" and token.text in ")]}":
                if closing is None:
                    return max(longest, last)
                raise ExpressionInvalid(f"{token.text!r} where {closing!r} was expected")
            self._at += 1
            if token.kind != "mark" and token.text.lower() != "offset":
                if token.text.lower() in _LABEL_LISTS and self._at < len(self._tokens) and self._tokens[self._at].text == "(":
                    self._at = _closing(self._tokens, self._at) + 1
                elif token.kind == "name":
                    longest, last = max(longest, last), 0.0
            elif token.text == "(":
                inner = self._group(")")
                self._step(")")
                longest, last = max(longest, last), inner
            elif token.text == "{":
                self._at = _closing(self._tokens, self._at - 1) + 1
            elif token.text == "[":
                last += self._range()
            elif token.text.lower() == "offset":
                last += self._offset()
        if closing is not None:
            raise ExpressionInvalid("a bracket that is not closed")
        return max(longest, last)

    def _step(self, text: str) -> None:
        if self._at >= len(self._tokens) or self._tokens[self._at].text != text:
            raise ExpressionInvalid(f"{text!r} is missing")
        self._at += 1

    def _range(self) -> float:
        """`[5m]`, `[1h:30s]` or `[1h:]`: how far it looks back."""
        end = _closing(self._tokens, self._at - 1)
        inside = _joined(self._tokens[self._at : end])
        self._at = end + 1
        return duration_seconds(inside.split(":")[0])

    def _offset(self) -> float:
        """`offset 5m`; one into the future (`offset -5m`) looks back by nothing."""
        negative = self._at < len(self._tokens) and self._tokens[self._at].text == "-"
        self._at += negative
        if self._at >= len(self._tokens):
            raise ExpressionInvalid("an offset without a duration")
        seconds = duration_seconds(self._tokens[self._at].text)
        self._at += 1
        return 0.0 if negative else seconds
