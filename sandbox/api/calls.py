"""A request, read: who asks, for which resource, with which verb and options; and the answers that can be given."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from sandbox.access import Account, Attributes
from sandbox.api.tables import partial_object, table
from sandbox.registry import Served
from sandbox.selecting import exact_name
from sandbox.shelves import encode
from sandbox.statuses import Invalid, Json, NotAcceptable
from sandbox.validating import Problems, option_refusal

JSON_TYPE = "application/json"
_AVAILABLE = "application/json, application/yaml, application/vnd.kubernetes.protobuf"


@dataclass(frozen=True)
class Answer:
    """A complete response."""

    status: int
    body: bytes
    content_type: str = JSON_TYPE
    headers: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, status: int, document: Any, *, headers: tuple[tuple[str, str], ...] = ()) -> Answer:
        """A JSON response."""
        return cls(status, encode(document), headers=headers)

    @classmethod
    def text(cls, status: int, text: str) -> Answer:
        """A plain text response."""
        return cls(status, text.encode(), "text/plain; charset=utf-8")


def _nothing() -> None:
    """Nothing is held."""


@dataclass(frozen=True)
class Stream:
    """A response whose body comes in pieces. `release` gives back what it holds, also when nothing was ever read from it."""

    chunks: AsyncGenerator[bytes, None]
    content_type: str = JSON_TYPE
    release: Callable[[], None] = _nothing


@dataclass(frozen=True)
class Path:
    """A resource path taken apart. Parts that a path does not have are ""."""

    group: str
    version: str
    namespace: str
    resource: str
    name: str
    subresource: str


def parse_path(path: str) -> Path | None:
    """The parts of `/api/v1/…` and `/apis/GROUP/VERSION/…`; None for paths that name no resource."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) >= 3:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) >= 4:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    if rest[0] == "namespaces" and len(rest) >= 2 and not (len(rest) == 3 and rest[2] in ("status", "finalize")):
        namespace, rest = rest[1], rest[2:] or ["namespaces", rest[1]]
    else:
        namespace = rest[1] if rest[0] == "namespaces" and len(rest) > 1 else ""
    padded = [*rest, "", "", ""]
    return Path(group, version, namespace, padded[0], padded[1], "/".join(rest[2:]))


@dataclass
class Call:
    """One request about a resource. `served` is None for reviews, which are computed and not stored."""

    method: str
    path: Path
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    account: Account
    served: Served | None = None
    warnings: list[str] = field(default_factory=list)

    @property
    def resource(self) -> Served:
        """What is asked for; only for calls about stored resources."""
        assert self.served is not None
        return self.served

    @property
    def namespace(self) -> str:
        """The namespace objects of this call live in: "" for cluster-scoped kinds."""
        return self.path.namespace if self.resource.kind.namespaced else ""

    @property
    def content_type(self) -> str:
        return self.headers.get("Content-Type", "").partition(";")[0].strip().lower()

    @property
    def watching(self) -> bool:
        return self.query.get("watch", "") in ("1", "true") and not self.path.name

    @property
    def verb(self) -> str:
        """The verb RBAC is asked about."""
        match self.method:
            case "GET":
                return "get" if self.path.name else "watch" if self.watching else "list"
            case "POST":
                return "create"
            case "PUT":
                return "update"
            case "PATCH":
                return "patch"
            case "DELETE":
                return "delete" if self.path.name else "deletecollection"
            case _:
                return self.method.lower()

    @property
    def attributes(self) -> Attributes:
        """What RBAC is asked. Namespaces are cluster-scoped, yet their own name counts as the namespace."""
        name = self.path.name
        if not name and self.verb in ("list", "watch", "deletecollection"):
            name = exact_name(self.query.get("fieldSelector", ""))
        path = self.path
        return Attributes(self.verb, path.group, path.resource, path.subresource, path.namespace, name)

    # -- options ------------------------------------------------------------

    @property
    def dry_run(self) -> bool:
        """Whether nothing is to be stored.

        Raises:
            Invalid: `dryRun` has another value than All.
        """
        value = self.query.get("dryRun")
        if value is None:
            return False
        if value != "All":
            raise self._option_refusal(lambda problems: problems.unsupported("dryRun", [value], '"All"'))
        return True

    @property
    def manager(self) -> str:
        """The field manager: as asked, else the first part of the user agent."""
        return self.query.get("fieldManager") or self.headers.get("User-Agent", "unknown").partition("/")[0]

    @property
    def field_validation(self) -> str:
        """Strict, Warn or Ignore.

        Raises:
            Invalid: another word.
        """
        value = self.query.get("fieldValidation") or "Warn"
        if value not in ("Strict", "Warn", "Ignore"):
            raise self._option_refusal(
                lambda problems: problems.unsupported("fieldValidation", value, '"Ignore", "Strict", "Warn"')
            )
        return value

    def _option_refusal(self, fill: Callable[[Problems], None]) -> Invalid:
        options = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions", "DELETE": "DeleteOptions"}
        return option_refusal(options.get(self.method, "ListOptions"), fill)


@dataclass(frozen=True)
class Wanted:
    """The form of the answer that Accept asks for."""

    form: str = ""
    yaml: bool = False


def negotiate(accept: str | None) -> Wanted:
    """The first acceptable form: plain JSON, YAML, Table, PartialObjectMetadata(List) or APIGroupDiscoveryList.

    Raises:
        NotAcceptable: nothing that is served.
    """
    if not accept:
        return Wanted()
    for media_range in accept.split(","):
        media, *parameters = (part.strip() for part in media_range.split(";"))
        options = dict(part.partition("=")[::2] for part in parameters)
        if media in (JSON_TYPE, "*/*", "application/*"):
            return Wanted(options.get("as", ""))
        if media == "application/yaml":
            return Wanted(yaml=True)
    raise NotAcceptable(f"406: Not Acceptable\n\nAvailable representations: {_AVAILABLE}", {})


def object_answer(call: Call, status: int, obj: Json) -> Answer:
    """One object as the caller wants to see it, with the warnings of the call."""
    wanted = negotiate(call.headers.get("Accept"))
    headers = tuple(("Warning", f'299 - "{escaped(text)}"') for text in call.warnings)
    served = call.served
    if served is not None and served.outward is not None and obj.get("kind") == served.kind.kind:
        obj = served.outward(obj)
    if wanted.form == "PartialObjectMetadata":
        obj = partial_object(obj)
    elif wanted.form == "Table" and served is not None:
        obj = table(served.kind, [obj], {"resourceVersion": obj["metadata"].get("resourceVersion", "")})
    if wanted.yaml:
        return Answer(status, yaml.safe_dump(obj).encode(), "application/yaml", headers)
    return Answer.of(status, _in_order(obj), headers=headers)


def _in_order(obj: Json) -> Json:
    head = {key: obj[key] for key in ("kind", "apiVersion", "metadata") if key in obj}
    return head | obj


def escaped(text: str) -> str:
    """Text inside the quotes of a Warning header: control characters would end it."""
    text = "".join(character if character.isprintable() else "?" for character in text)
    return text.replace("\\", "\\\\").replace('"', '\\"')
