"""autonomy.yaml: read, validated, and asked what is in force for a target.

`load_policy` either gives a whole `Policy` or raises `PolicyInvalid` with every problem found: file, line, key, and what would
be right. What no scope names may be reported, never proposed; an empty list of people is nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from catalog.cases import Freeze, Rung
from catalog.clusters import Cluster
from catalog.documents import Document, digest
from catalog.marks import HOME_NAMESPACE
from catalog.names import is_dns_label
from catalog.registry import CATALOGUE
from catalog.targets import Target
from ladder.errors import PolicyInvalid as PolicyInvalid
from ladder.errors import Problem as Problem
from ladder.explaining import nearest, problems_in
from ladder.freezes import FreezeWindow
from ladder.marking import Path as Key
from ladder.marking import Unreadable, read_marked
from ladder.numbers import ORDERED, RULES, Numbers, effective, loosened, shown
from ladder.scopes import ROLE_NAMES, Channel, Fallback, MergedScope, OnCall, Scope, merge

ALWAYS_PROTECTED = frozenset({"kube-system", "kube-node-lease", HOME_NAMESPACE})


def _namespaces(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if not is_dns_label(name):
            raise ValueError(f"{name!r} is not a namespace name")
    return names


class PersonIds(Document):
    """A person's accounts. One account belongs to one person."""

    slack: Annotated[str, Field(pattern=r"^[A-Z0-9]{2,20}/[A-Z0-9]{2,20}$", description="TEAM/USER")] | None = None
    discord: Annotated[str, Field(pattern=r"^[0-9]{1,20}$")] | None = None


class Defaults(Document):
    """What scopes inherit."""

    channel: Channel = Channel()
    oncall: OnCall = OnCall()
    propose_unverified: bool = False
    propose_uncalibrated: bool = False
    target_precision: Annotated[float, Field(ge=0.5, le=0.99)] = 0.90


class Policy(Document):
    """The whole of autonomy.yaml."""

    schema_version: Literal[1] = Field(alias="schema")
    clusters: tuple[Cluster, ...] = ()
    people: dict[Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9._]{0,61}[a-z0-9])?$")], PersonIds] = Field(default={})
    defaults: Defaults = Defaults()
    protected: Annotated[tuple[str, ...], AfterValidator(_namespaces)] = (
        "kube-system",
        "kube-node-lease",
        "monitoring",
        HOME_NAMESPACE,
    )
    scopes: tuple[Scope, ...] = ()
    freezes: tuple[FreezeWindow, ...] = ()
    numbers: Numbers = Numbers()

    @property
    def hash(self) -> str:
        """Digest of the canonical form: what is set, keys sorted, without comments and layout."""
        return digest(self.model_dump(mode="json", by_alias=True, exclude_unset=True))

    @property
    def fallback(self) -> Fallback:
        """What scopes inherit, in one value."""
        return Fallback(
            numbers=self.numbers,
            channel=self.defaults.channel,
            oncall=self.defaults.oncall,
            propose_unverified=self.defaults.propose_unverified,
            propose_uncalibrated=self.defaults.propose_uncalibrated,
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """Numbers of the installation that are less safe than their defaults."""
        return tuple(loosened(self.numbers, "numbers"))

    def scope_for(self, target: Target) -> MergedScope | None:
        """What is in force for `target`; None when no scope names it."""
        return merge((scope for scope in self.scopes if scope.match.covers(target)), self.fallback)

    def scope_named(self, name: str) -> Scope | None:
        """The scope of that name."""
        return next((scope for scope in self.scopes if scope.name == name), None)

    def merged_as(self, name: str) -> MergedScope | None:
        """What is in force for a target that scope `name` and every wider scope matches, and no narrower one."""
        scope = self.scope_named(name)
        if scope is None:
            return None
        return merge((one for one in self.scopes if one is scope or _wider(one, scope)), self.fallback)

    def is_protected(self, namespace: str) -> bool:
        """Whether nothing in the namespace may be touched. Ours and Kubernetes' own always are."""
        return namespace in ALWAYS_PROTECTED or namespace in self.protected

    def freezes_for(self, target: Target, now: datetime) -> tuple[Freeze, ...]:
        """Freezes of the file that are in force for `target`."""
        found = (window.in_force(now) for window in self.freezes if window.match.covers(target))
        return tuple(freeze for freeze in found if freeze is not None)

    def cluster_of(self, uid: str) -> Cluster | None:
        """The cluster with that UID."""
        return next((cluster for cluster in self.clusters if cluster.uid == uid), None)

    def person_with(self, platform: Literal["slack", "discord"], account: str) -> str | None:
        """The person an account belongs to; None for anybody else."""
        return next((name for name, ids in self.people.items() if getattr(ids, platform) == account), None)


def _wider(one: Scope, scope: Scope) -> bool:
    wide, narrow = one.match, scope.match
    return wide.specificity < narrow.specificity and all(
        getattr(wide, key) in (None, getattr(narrow, key)) for key in ("cluster", "namespace", "workload")
    )


def load_policy(path: Path) -> Policy:
    """Read and validate a file.

    Raises:
        PolicyInvalid: unreadable, or with problems; all of them are named.
    """
    try:
        text = path.read_bytes().decode("utf-8")
    except OSError as error:
        raise PolicyInvalid((Problem(file=str(path), line=1, key="", sentence=f"cannot be read: {error.strerror}"),)) from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise PolicyInvalid((Problem(file=str(path), line=line, key="", sentence="is not UTF-8 text"),)) from error
    return parse_policy(text, str(path))


def parse_policy(text: str, name: str = "autonomy.yaml") -> Policy:
    """Validate text.

    Raises:
        PolicyInvalid: with every problem found.
    """
    try:
        data, lines = read_marked(text)
    except Unreadable as error:
        raise PolicyInvalid((Problem(file=name, line=error.line, key="", sentence=error.sentence),)) from error
    if not isinstance(data, dict):
        sentence = "is empty; begin with: schema: 1" if data is None else "must be a mapping that begins with: schema: 1"
        raise PolicyInvalid((Problem(file=name, line=1, key="", sentence=sentence),))
    policy, problems = problems_in(Policy, data, lines, name)
    if policy is not None:
        problems = tuple(_problem(name, lines, key, sentence) for key, sentence in _inconsistencies(policy))
    if policy is None or problems:
        raise PolicyInvalid(problems)
    return policy


def _problem(name: str, lines: Mapping[Key, int], key: Key, sentence: str) -> Problem:
    place = key
    while place not in lines:
        place = place[:-1]
    return Problem(file=name, line=lines[place], key=key_text(key), sentence=sentence)


def key_text(key: Key) -> str:
    """`scopes[0].budget.workload`."""
    text = ""
    for part in key:
        text += f"[{part}]" if isinstance(part, int) else (f".{part}" if text else part)
    return text


def _inconsistencies(policy: Policy) -> Iterator[tuple[Key, str]]:
    yield from _twice("clusters", "name", (cluster.name for cluster in policy.clusters))
    yield from _twice("clusters", "uid", (cluster.uid for cluster in policy.clusters))
    yield from _twice("scopes", "name", (scope.name for scope in policy.scopes))
    yield from _shared_accounts(policy)
    yield from _disordered(("numbers",), policy.numbers)
    for at, scope in enumerate(policy.scopes):
        yield from _scope_problems(policy, ("scopes", at), scope)
    digests = [scope.match.digest for scope in policy.scopes]
    for at, scope in enumerate(policy.scopes):
        first = digests.index(digests[at])
        if first < at:
            yield (
                ("scopes", at, "match"),
                f"scope {policy.scopes[first].name} matches exactly the same; make one scope of {scope.name} and it",
            )


def _scope_problems(policy: Policy, key: Key, scope: Scope) -> Iterator[tuple[Key, str]]:
    names = [cluster.name for cluster in policy.clusters]
    if scope.match.specificity == 0:
        yield (*key, "match"), "an empty match would apply to everything; name a cluster, a namespace or a workload"
    if scope.match.cluster is not None and scope.match.cluster not in names:
        yield (*key, "match", "cluster"), f"no cluster is named {scope.match.cluster!r}{nearest(scope.match.cluster, names)}"
    if scope.match.namespace is not None and policy.is_protected(scope.match.namespace):
        yield (
            (*key, "match", "namespace"),
            f"{scope.match.namespace} is protected; nothing in it is ever touched, so it can have no scope",
        )
    for action, ceiling in scope.ceiling.items():
        if not CATALOGUE[action].executable and ceiling > Rung.R3:
            yield (*key, "ceiling", action.value), f"{action.value} is described and never executed; its ceiling can be at most R3"
    if any(ceiling >= Rung.R4 for ceiling in scope.ceiling.values()) and not scope.roles.approver:
        yield (
            (*key, "roles", "approver"),
            f"scope {scope.name} allows {_highest(scope)}, so it needs at least one approver, for example [person:NAME]",
        )
    for role in ROLE_NAMES:
        for at, entry in enumerate(getattr(scope.roles, role) or ()):
            kind, _, person = entry.partition(":")
            if kind == "person" and person not in policy.people:
                yield (*key, "roles", role, at), f"nobody under people: is named {person!r}{nearest(person, policy.people)}"
    yield from ((((*key, *part)), sentence) for part, sentence in _repeated_checks(scope))
    yield from _disordered((*key, "numbers"), effective(policy.numbers, scope.numbers))
    for name in sorted(scope.numbers.model_fields_set):
        if not RULES[name].in_scopes:
            yield (*key, "numbers", name), f"{name} is of the whole installation; move it under the numbers: at the top"


def _disordered(key: Key, numbers: Numbers) -> Iterator[tuple[Key, str]]:
    """Pairs of numbers that only make sense in one order."""
    for smaller, larger in ORDERED:
        low, high = getattr(numbers, smaller), getattr(numbers, larger)
        if low > high:
            yield (*key, smaller), f"{smaller} ({shown(low)}) must not be above {larger} ({shown(high)})"


def _highest(scope: Scope) -> str:
    return str(max(scope.ceiling.values()))


def _repeated_checks(scope: Scope) -> Iterator[tuple[Key, str]]:
    names = [check.name for check in scope.checks]
    for at, name in enumerate(names):
        if names.index(name) < at:
            yield ("checks", at, "name"), f"{name!r} is given twice in scope {scope.name}"


def _twice(listed: str, key: str, values: Iterable[str]) -> Iterator[tuple[Key, str]]:
    seen: dict[str, int] = {}
    for at, value in enumerate(values):
        if value in seen:
            yield (listed, at, key), f"{value!r} is given twice (first in {listed}[{seen[value]}]); each needs its own"
        seen.setdefault(value, at)


def _shared_accounts(policy: Policy) -> Iterator[tuple[Key, str]]:
    owners: dict[tuple[str, str], str] = {}
    for name, ids in policy.people.items():
        for platform in ("slack", "discord"):
            account = getattr(ids, platform)
            if account is None:
                continue
            other = owners.setdefault((platform, account), name)
            if other != name:
                yield ("people", name, platform), f"{account!r} is {other}'s account already; one account is one person"
