"""Who asks, and whether they may: bearer tokens and RBAC as a real API server evaluates it.

Authentication knows tokens only. No credentials is `system:anonymous`; an unknown token is refused. Authorization reads Role,
ClusterRole and their bindings from the store at each request, so a test that edits a binding sees it at once. The group
`system:masters` may do everything.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

from sandbox.kinds import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS
from sandbox.statuses import Forbidden, Json, Unauthorized
from sandbox.store import Store

MASTERS = "system:masters"
AUTHENTICATED = "system:authenticated"
ANONYMOUS_NAME = "system:anonymous"
AUDIENCE = "https://kubernetes.default.svc.cluster.local"


@dataclass(frozen=True)
class Account:
    """An authenticated caller. `token_id` is set for service account tokens."""

    name: str
    groups: tuple[str, ...] = (AUTHENTICATED,)
    uid: str = ""
    token_id: str = ""

    @property
    def anonymous(self) -> bool:
        return self.name == ANONYMOUS_NAME

    @property
    def info(self) -> Json:
        """`userInfo` of reviews."""
        body: Json = {"username": self.name}
        if self.uid:
            body["uid"] = self.uid
        body["groups"] = list(self.groups)
        if self.token_id:
            body["extra"] = {"authentication.kubernetes.io/credential-id": [f"JTI={self.token_id}"]}
        return body


ANONYMOUS = Account(ANONYMOUS_NAME, ("system:unauthenticated",))


def service_account_name(namespace: str, name: str) -> str:
    """The user name of a service account."""
    return f"system:serviceaccount:{namespace}:{name}"


@dataclass(frozen=True)
class Token:
    """A bearer token that is accepted: whose, for whom, until when."""

    account: Account
    audiences: tuple[str, ...] = (AUDIENCE,)
    expires_at: datetime | None = None
    service_account: tuple[str, str] | None = None


@dataclass(frozen=True)
class Attributes:
    """What is asked of RBAC. `path` is set for requests that are not about resources."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

    @property
    def full_resource(self) -> str:
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


@dataclass
class Accounts:
    """The tokens of a cluster and the evaluation of its RBAC objects."""

    store: Store
    tokens: dict[str, Token] = field(default_factory=dict)

    # -- authentication ------------------------------------------------------------

    def accept(self, token: str, account: Account) -> None:
        """Accept `token` for `account` from now on."""
        self.tokens[token] = Token(account)

    def revoke(self, token: str) -> None:
        """Refuse `token` from now on."""
        self.tokens.pop(token, None)

    def issue(self, namespace: str, name: str, *, audiences: Iterable[str] = (), expires_at: datetime | None = None) -> str:
        """A new token of an existing service account, in the form of a JWT (not signed: only this server reads it).

        Raises:
            NotFound: there is no such service account.
        """
        found = self.store.get(SERVICE_ACCOUNTS, namespace, name)
        wanted = tuple(audiences) or (AUDIENCE,)
        token_id = self.store.new_uid()
        now = int(self.store.clock.now().timestamp())
        until = now + 365 * 86400 if expires_at is None else int(expires_at.timestamp())
        account_name = service_account_name(namespace, name)
        payload = {
            "aud": list(wanted),
            "exp": until,
            "iat": now,
            "iss": AUDIENCE,
            "jti": token_id,
            "kubernetes.io": {"namespace": namespace, "serviceaccount": {"name": name, "uid": found["metadata"]["uid"]}},
            "nbf": now,
            "sub": account_name,
        }
        token = ".".join((_part({"alg": "none"}), _part(payload), _part({"of": self.store.new_uid()})))
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED)
        account = Account(account_name, groups, found["metadata"]["uid"], token_id)
        self.tokens[token] = Token(account, wanted, expires_at, (namespace, name))
        return token

    def authenticate(self, header: str | None) -> Account:
        """The caller behind an Authorization header.

        Raises:
            Unauthorized: a header that is not a bearer token that is valid here and now.
        """
        if not header:
            return ANONYMOUS
        scheme, _, token = header.partition(" ")
        if scheme.lower() != "bearer":
            return ANONYMOUS
        return self.check_token(token.strip(), AUDIENCE).account

    def check_token(self, token: str, audience: str) -> Token:
        """What `token` stands for.

        Raises:
            Unauthorized: unknown, expired, for another audience, or its service account is gone.
        """
        known = self.tokens.get(token)
        if known is None or audience not in known.audiences:
            raise Unauthorized
        if known.expires_at is not None and known.expires_at <= self.store.clock.now():
            raise Unauthorized
        if known.service_account is not None:
            found = self.store.find(SERVICE_ACCOUNTS, *known.service_account)
            if found is None or found["metadata"]["uid"] != known.account.uid:
                raise Unauthorized
        return known

    # -- authorization ------------------------------------------------------------

    def grant(self, account: Account, asked: Attributes) -> str | None:
        """Why `account` may do what is asked (the binding and role that allow it), or None."""
        if MASTERS in account.groups:
            return ""
        for binding, role, rules in self._bound(account, asked.namespace):
            if any(_allows(rule, asked) for rule in rules):
                return _reason(binding, role, account)
        return None

    def require(self, account: Account, asked: Attributes) -> None:
        """Return if allowed.

        Raises:
            Forbidden: no rule allows it.
        """
        if self.grant(account, asked) is None:
            raise refusal(account, asked)

    def rules(self, account: Account, namespace: str) -> Iterator[Json]:
        """Every rule that applies to `account` in `namespace`, cluster-wide ones first."""
        if MASTERS in account.groups:
            yield {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
            yield {"verbs": ["*"], "nonResourceURLs": ["*"]}
        for _, _, rules in self._bound(account, namespace):
            yield from rules

    def _bound(self, account: Account, namespace: str) -> Iterator[tuple[Json, Json, list[Json]]]:
        for binding in self.store.list(CLUSTER_ROLE_BINDINGS):
            if _is_subject(binding, account):
                role = self.store.find(CLUSTER_ROLES, "", binding["roleRef"]["name"])
                if role is not None:
                    yield binding, role, role.get("rules") or []
        for binding in self.store.list(ROLE_BINDINGS, namespace) if namespace else ():
            if not _is_subject(binding, account):
                continue
            reference = binding["roleRef"]
            of_cluster = reference["kind"] == "ClusterRole"
            role = self.store.find(CLUSTER_ROLES if of_cluster else ROLES, "" if of_cluster else namespace, reference["name"])
            if role is not None:
                yield binding, role, role.get("rules") or []


def refusal(account: Account, asked: Attributes) -> Forbidden:
    """The 403 of RBAC, in the server's words."""
    if asked.path:
        return Forbidden(f'forbidden: User "{account.name}" cannot {asked.verb} path "{asked.path}"', {})
    resource = f"{asked.resource}.{asked.group}" if asked.group else asked.resource
    named = f'{resource} "{asked.name}"' if asked.name else resource
    where = f'in the namespace "{asked.namespace}"' if asked.namespace else "at the cluster scope"
    what = f'cannot {asked.verb} resource "{asked.full_resource}" in API group "{asked.group}" {where}'
    details = {"name": asked.name, "group": asked.group, "kind": asked.resource}
    return Forbidden(f'{named} is forbidden: User "{account.name}" {what}', {key: value for key, value in details.items() if value})


def _allows(rule: Json, asked: Attributes) -> bool:
    if not _covers(rule.get("verbs"), asked.verb):
        return False
    if asked.path:
        return any(_path_matches(pattern, asked.path) for pattern in rule.get("nonResourceURLs") or ())
    if not _covers(rule.get("apiGroups"), asked.group):
        return False
    resources = rule.get("resources") or ()
    wanted = {"*", asked.full_resource} | ({f"*/{asked.subresource}"} if asked.subresource else set())
    if not wanted.intersection(resources):
        return False
    names = rule.get("resourceNames")
    return not names or asked.name in names


def _covers(allowed: Iterable[str] | None, wanted: str) -> bool:
    return any(item in ("*", wanted) for item in allowed or ())


def _path_matches(pattern: str, path: str) -> bool:
    if pattern.endswith("*"):
        return path.startswith(pattern[:-1])
    return pattern == path


def _is_subject(binding: Json, account: Account) -> bool:
    for subject in binding.get("subjects") or ():
        match subject["kind"]:
            case "User" if subject["name"] == account.name:
                return True
            case "Group" if subject["name"] in account.groups:
                return True
            case "ServiceAccount":
                namespace = subject.get("namespace") or binding["metadata"].get("namespace", "")
                if service_account_name(namespace, subject["name"]) == account.name:
                    return True
    return False


def _reason(binding: Json, role: Json, account: Account) -> str:
    metadata = binding["metadata"]
    kind = binding["kind"]
    where = f"{metadata['name']}/{metadata['namespace']}" if kind == "RoleBinding" else metadata["name"]
    subject = next(item for item in binding["subjects"] if _is_subject({**binding, "subjects": [item]}, account))
    whom = f'{subject["kind"]} "{subject["name"]}'
    whom += f'/{subject.get("namespace")}"' if subject["kind"] == "ServiceAccount" else '"'
    return f'RBAC: allowed by {kind} "{where}" of {binding["roleRef"]["kind"]} "{role["metadata"]["name"]}" to {whom}'


def _part(value: Json) -> str:
    return base64.urlsafe_b64encode(json.dumps(value, separators=(",", ":")).encode()).rstrip(b"=").decode()
