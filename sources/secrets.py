"""Patterns of secrets in free text: contexts that name a secret, and formats that are one.

They cover what a detector of issuers' formats misses: webhook addresses, cookies, `user:pa:ss@host`, "password is: X",
`--token=…`, `"pwd"` in JSON, base64 in the data of a Secret, query strings. Most patterns look at one line, and only where one
of their `needles` stands in it: nearly all lines of a log are dismissed by a substring search.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from typing import NamedTuple


class Finding(NamedTuple):
    """A secret at text[start:end]."""

    start: int
    end: int
    kind: str


class _Format(NamedTuple):
    """A pattern; the group `s`, or else the whole match, is the secret. `needles` are lower case."""

    kind: str
    needles: tuple[str, ...]
    pattern: re.Pattern[str]


def _format(kind: str, needles: str, *parts: str, ignore_case: bool = False) -> _Format:
    return _Format(kind, tuple(needles.split()), re.compile("".join(parts), re.IGNORECASE if ignore_case else 0))


_WORDS = (
    r"(?:pass(?:word|wd|phrase|code)?|pwd|secret|token|api[-_.]?keys?|access[-_.]?keys?|secret[-_.]?keys?|private[-_.]?keys?"
    r"|encryption[-_.]?keys?|signing[-_.]?keys?|account[-_.]?keys?|auth[-_.]?keys?|credentials?|creds?"
    r"|connection[-_.]?string|dsn|session[-_.]?id|jsessionid|phpsessid|webhook[-_.]?url)"
)
_WORD_NEEDLES = "pass pwd secret token key cred connection dsn session jsess phpsess webhook"
_QUOTE = r"\\?[\"']?"
_TAG = r"\[redacted:[a-z0-9-]{1,40}:[0-9a-f]{8}\]"
_END = r"\s\"'`,;&<>(){}\[\]|"
_VALUE = (
    r"(?:\\\"(?P<eq>(?:[^\\\n]|\\(?!\"))+)\\\"|\"(?P<dq>(?:[^\"\\\n]|\\.)+)\"?|'(?P<sq>[^'\n]+)'?"
    rf"|(?P<bare>{_TAG}[^{_END}]*|[^{_END}]+))"
)
_ASSIGNED = re.compile(rf"{_WORDS}(?:{_QUOTE}\s{{0,3}}(?P<sign>=>|:=|==?|:)|>:?)\s{{0,3}}{_VALUE}", re.IGNORECASE)
_TOLD = re.compile(rf"{_WORDS}{_QUOTE}\s{{1,3}}(?:is|was)\s{{0,3}}(?P<sign>:?)\s{{0,3}}{_VALUE}", re.IGNORECASE)
_FLAGGED = re.compile(rf"(?<![\w-])--(?:[a-z0-9_.-]{{1,40}}[-_.])?{_WORDS}(?P<sign>)\s{{1,3}}(?!-){_VALUE}", re.IGNORECASE)
_BLOCK = re.compile(rf"{_WORDS}{_QUOTE}\s{{0,3}}:\s{{0,3}}[|>][+-]?[ \t]*\n(?P<s>(?:[ \t]+\S.*(?:\n|$))+)", re.IGNORECASE)
_SENSITIVE_KEY = re.compile(rf"[a-z0-9_.-]{{0,80}}?{_WORDS}")
SENSITIVE_FLAG = re.compile(rf"--?(?:[a-z0-9_.-]{{1,40}}[-_.])?{_WORDS}", re.IGNORECASE)

_NEVER = frozenset({"", "true", "false", "null", "none", "nil", "undefined"})
_PLAIN_WORDS = frozenset({
    "not", "the", "a", "an", "no", "in", "for", "is", "was", "to", "of", "at", "on", "and", "or", "empty", "missing", "invalid",
    "expired", "required", "wrong", "incorrect", "unset", "denied", "set", "rejected", "revoked", "stale", "ok", "valid", "too",
    "authentication", "rotated", "mounted", "optional", "mandatory", "used", "being",
})  # fmt: skip

_SECRET_MANIFEST = re.compile(rf"\bkind{_QUOTE}\s{{0,3}}:\s{{0,3}}{_QUOTE}Secret\b")
_MANIFEST_VALUE = re.compile(r"(?<=[:\s\"'])(?P<value>[A-Za-z0-9+/]{4,}={0,2})(?=[\s\"',}\\]|$)")
_BASE64_TOKEN = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/]{20,}={0,2}(?![A-Za-z0-9+/=_-])")
_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY[^-\n]{0,10}-----(?:[^-]|-(?!----))*(?:-----END [A-Z0-9 ]{0,40}-----)?"
)

_FORMATS = (
    _format("webhook", "hooks.slack", r"hooks\.slack(?:-gov)?\.com/(?P<s>[^\s\"'<>]+)"),
    _format("webhook", "/webhooks/", r"discord(?:app)?\.com/api/(?:v\d{1,3}/)?webhooks/(?P<s>[^\s\"'<>]+)", ignore_case=True),
    _format("webhook", "webhook.office", r"\.webhook\.office\.com/(?P<s>[^\s\"'<>]+)"),
    _format("webhook", "api.telegram.org", r"api\.telegram\.org/(?P<s>bot[^\s\"'<>/]+)"),
    _format("userinfo", "://", r"://(?P<s>[^\s\"'<>/?]{1,1024})@"),
    _format("userinfo", "://", r"://(?P<s>[^\s\"'<>:/@]{0,128}:(?!\d{1,5}(?:[/?#]|$))[^\s\"'<>@]{1,512})@"),
    _format("query", "?", r"://[^\s\"'<>?#]{1,2048}\?(?P<s>[^\s\"'<>#]+)"),
    _format(
        "userinfo",
        "@",
        r"(?<![\w./@:-])(?!mailto:)(?P<s>[A-Za-z0-9_.+-]{1,64}:(?!//)[^\s\"'<>@/]{1,128}(?:@[^\s\"'<>@/]{1,64}){0,2})",
        r"@(?!sha\d)(?=[A-Za-z0-9[])",
    ),
    _format(
        "authorization",
        "authorization",
        rf"authorization{_QUOTE}\s{{0,3}}[:=]\s{{0,3}}{_QUOTE}",
        rf"(?P<s>{_TAG}|[^\s\"'\\,;]{{1,30}}[ \t]{{1,3}}[^\s\"'\\,;]+|[^\s\"'\\,;]+)",
        ignore_case=True,
    ),
    _format("authorization", "bearer basic", r"\b(?:bearer|basic)[ \t]{1,3}(?P<s>[A-Za-z0-9._~+/-]{8,}={0,2})", ignore_case=True),
    _format("cookie", "cookie", rf"cookie2?{_QUOTE}\s{{0,3}}[:=]\s{{0,3}}{_QUOTE}(?P<s>[^\r\n\"'\\]+)", ignore_case=True),
    _format("token", "ghp_ gho_ ghu_ ghs_ ghr_", r"gh[pousr]_[A-Za-z0-9]{16,}"),
    _format("token", "github_pat_ glpat-", r"(?:github_pat_|glpat-)[A-Za-z0-9_-]{16,}"),
    _format("token", "sk-", r"(?<![A-Za-z0-9])sk-(?=[a-z0-9-]*[A-Z_])[A-Za-z0-9_-]{8,}"),
    _format("token", "sk_ rk_", r"(?<![A-Za-z0-9])[rs]k_(?:live|test)_[A-Za-z0-9]{10,}"),
    _format("token", "xox xapp-", r"(?<![A-Za-z0-9])(?:xox[a-z]|xapp)-[A-Za-z0-9-]{8,}"),
    _format("token", "akia asia abia acca", r"(?<![A-Za-z0-9])(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Za-z0-9])"),
    _format("token", "aiza ya29.", r"(?<![A-Za-z0-9])(?:AIza[A-Za-z0-9_-]{35,}|ya29\.[A-Za-z0-9_-]{16,})"),
    _format("token", "npm_ hf_ dop_v1_", r"(?<![A-Za-z0-9])(?:npm_[A-Za-z0-9]{30,}|hf_[A-Za-z0-9]{20,}|dop_v1_[a-f0-9]{40,})"),
    _format("token", "pypi- hvs. hvb.", r"(?<![A-Za-z0-9])(?:pypi-[A-Za-z0-9_-]{40,}|hv[sb]\.[A-Za-z0-9_-]{20,})"),
    _format("token", "sg. age-secret-key", r"(?<![A-Za-z0-9])(?:SG\.[\w-]{10,}\.[\w-]{10,}|AGE-SECRET-KEY-1[A-Z0-9]{40,})"),
    _format("jwt", "eyj", r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{5,}(?:\.[A-Za-z0-9_-]*){0,2}(?:\.{3})?"),
    _format(
        "value",
        "mysql sshpass login redis-cli",
        r"(?:mysql[a-z]*|sshpass|login|redis-cli)\b[^\n]{0,200}?\s(?:-p|-a)\s?(?P<s>[^\s\"'-][^\s\"']*)",
    ),
)
_ASSIGNMENTS = tuple(_Format("value", tuple(_WORD_NEEDLES.split()), pattern) for pattern in (_ASSIGNED, _TOLD, _FLAGGED))


def is_sensitive_key(key: str) -> bool:
    """Whether the key of a document or the name of a variable says that its value is a secret.

    It has to end in one of the words: `secretName` names a Secret and is none itself.
    """
    return _SENSITIVE_KEY.fullmatch(key.lower()) is not None


def matches(text: str) -> Iterator[Finding]:
    """Secrets in `text`, in no order, overlaps possible."""
    if "-----BEGIN" in text:
        yield from (Finding(*found.span(), "private-key") for found in _PRIVATE_KEY.finditer(text))
    if "\n" in text:
        yield from (Finding(*found.span("s"), "value") for found in _BLOCK.finditer(text))
    if "Secret" in text and _SECRET_MANIFEST.search(text):
        yield from _of_manifest(text)
    start = 0
    for line in text.split("\n"):
        for finding in _of_line(line):
            yield Finding(finding.start + start, finding.end + start, finding.kind)
        start += len(line) + 1


def _of_line(line: str) -> Iterator[Finding]:
    yield from _named(line)
    for found in _BASE64_TOKEN.finditer(line):
        plain = _plain(found[0])
        if plain is not None and any(True for _ in _named(plain)):  # base64 of something that holds a secret itself
            yield Finding(*found.span(), "encoded")


def _named(line: str) -> Iterator[Finding]:
    """Secrets by format and by the word before them."""
    lowered = line.lower()
    for form in _FORMATS:
        if any(needle in lowered for needle in form.needles):
            for found in form.pattern.finditer(line):
                yield Finding(*found.span("s" if "s" in form.pattern.groupindex else 0), form.kind)
    for form in _ASSIGNMENTS:
        if any(needle in lowered for needle in form.needles):
            yield from _assigned(form.pattern, line)


def _assigned(pattern: re.Pattern[str], line: str) -> Iterator[Finding]:
    """Values after a telling word. A plain word after a spaced colon or "is" is prose ("token: invalid")."""
    for found in pattern.finditer(line):
        group = next(name for name in ("eq", "dq", "sq", "bare") if found[name] is not None)
        value = found[group].rstrip(".:!?").lower()
        prose = group == "bare" and found["sign"] in (":", "") and pattern is not _FLAGGED and value in _PLAIN_WORDS
        if value not in _NEVER and not prose:
            yield Finding(*found.span(group), "value")


def _of_manifest(text: str) -> Iterator[Finding]:
    """Base64 that decodes, in a text that holds a Secret: the encoded form, and the plain one wherever it stands."""
    plains: set[str] = set()
    for found in _MANIFEST_VALUE.finditer(text):
        plain = _plain(found["value"])
        if plain is not None:
            plains.add(plain)
            yield Finding(*found.span("value"), "secret")
    for plain in plains:
        if len(plain) >= 4:
            yield from (Finding(*echo.span(), "secret") for echo in re.finditer(re.escape(plain), text))


def _plain(value: str) -> str | None:
    try:
        plain = base64.b64decode(value, validate=True).decode()
    except (binascii.Error, ValueError):
        return None
    return plain if plain and all(char.isprintable() or char in "\r\n\t" for char in plain) else None
