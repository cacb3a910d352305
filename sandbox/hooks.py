"""Where the API server asks others: for the output of containers, and before it stores a write.

`Hooks` is given to the server; the workloads register a `LogSource`, the admission fence is an `Admission`. Admission plugins
that must also bind controllers (quota) go to `Store.admitters` instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Protocol

from sandbox.access import Account
from sandbox.kinds import Kind
from sandbox.statuses import Json

Operation = Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]


@dataclass(frozen=True)
class LogLine:
    """One write of a container: when, and the bytes as written, newline included if there was one."""

    at: datetime
    text: bytes


class LogUnavailable(Exception):
    """The kubelet cannot be asked; the text is what the API server says about it (HTTP 500)."""


class LogSource(Protocol):
    """What containers wrote. Whoever plays the kubelet registers one."""

    def lines(self, pod: Json, container: str, *, previous: bool) -> Sequence[LogLine] | None:
        """Lines of the running (or last) instance, or with `previous` of the one before it; None when there is none.

        Raises:
            LogUnavailable: the kubelet of the pod's node does not answer.
        """


class NoLogs:
    """A log source of containers that write nothing: for clusters without workloads."""

    def lines(self, pod: Json, container: str, *, previous: bool) -> Sequence[LogLine] | None:
        return None if previous else ()


@dataclass(frozen=True)
class Review:
    """One write before it is stored, as admission sees it.

    `old` is None for CREATE, `new` for DELETE and CONNECT; `name` is "" when a collection is deleted. For `/scale` both are Scale
    objects. `options` are the DeleteOptions.
    """

    account: Account
    operation: Operation
    kind: Kind
    subresource: str
    namespace: str
    name: str
    new: Json | None
    old: Json | None
    options: Json = field(default_factory=dict)
    dry_run: bool = False


Admission = Callable[[Review], None]
"""Returns to admit; raises StatusError to refuse."""


def admit_all(review: Review) -> None:
    """The admission of a cluster without policies."""


@dataclass
class Hooks:
    """What the API server asks. Mutable: the parts register themselves while the cluster is put together."""

    logs: LogSource = field(default_factory=NoLogs)
    admission: Admission = admit_all
