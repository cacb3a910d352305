"""Resources that are computed and never stored: access reviews, who am I, tokens."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from sandbox.access import AUDIENCE, Account, Attributes
from sandbox.api.calls import Answer, Call
from sandbox.api.plane import ControlPlane
from sandbox.decoding import DecodeError, decode, parse_body
from sandbox.kinds import SERVICE_ACCOUNTS
from sandbox.ownership import Writer, after_update
from sandbox.schemas import load
from sandbox.statuses import BadRequest, Invalid, Json, Unauthorized
from sandbox.validating import Problems

MIN_TOKEN_S = 600
DEFAULT_TOKEN_S = 3600
_AUTHORIZATION = "authorization.k8s.io"
_AUTHENTICATION = "authentication.k8s.io"


def _self_access(plane: ControlPlane, call: Call, body: Json) -> Answer:
    return _access_answer(plane, call, body, call.account)


def _subject_access(plane: ControlPlane, call: Call, body: Json) -> Answer:
    spec = body.get("spec") or {}
    account = Account(spec.get("user", ""), tuple(spec.get("groups") or ()))
    return _access_answer(plane, call, body, account)


def _access_answer(plane: ControlPlane, call: Call, body: Json, account: Account) -> Answer:
    spec = body.get("spec") or {}
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if bool(resource) == bool(path):
        problems = Problems()
        why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        problems.invalid("spec.resourceAttributes", resource, why)
        cause = problems.causes[0]
        message = f'.{_AUTHORIZATION} "" is invalid: {cause["field"]}: {cause["message"]}'
        raise Invalid(message, {"group": _AUTHORIZATION, "causes": problems.causes})
    reason = plane.accounts.grant(account, _asked(resource, path))
    status: Json = {"allowed": reason is not None} | ({"reason": reason} if reason else {})
    kind = body["kind"]
    spec = {
        name: {key: item for key, item in value.items() if item != ""} if isinstance(value, dict) else value
        for name, value in spec.items()
    }
    review: Json = {"kind": kind, "apiVersion": f"{_AUTHORIZATION}/v1", "metadata": {}, "spec": spec}
    if resource:
        writer = Writer(call.manager, "Update", f"{_AUTHORIZATION}/v1")
        of = load().of(f"{_AUTHORIZATION}/v1", kind)
        review["metadata"]["managedFields"] = after_update(review, None, of, writer, plane.store.now_text())
    return Answer.of(201, review | {"status": status})


def _asked(resource: Json | None, path: Json | None) -> Attributes:
    if path:
        return Attributes(path.get("verb", ""), path=path.get("path", "") or "/")
    names = ("verb", "group", "resource", "subresource", "namespace", "name")
    return Attributes(**{name: (resource or {}).get(name, "") for name in names})


def _self_rules(plane: ControlPlane, call: Call, body: Json) -> Answer:
    namespace = (body.get("spec") or {}).get("namespace", "")
    if not namespace:
        raise BadRequest("no namespace on request")
    resources: list[Json] = []
    paths: list[Json] = []
    for rule in plane.accounts.rules(call.account, namespace):
        if rule.get("nonResourceURLs"):
            paths.append({"verbs": rule["verbs"], "nonResourceURLs": rule["nonResourceURLs"]})
        else:
            fields = ("verbs", "apiGroups", "resources", "resourceNames")
            resources.append({field: rule[field] for field in fields if rule.get(field)})
    status = {"resourceRules": resources, "nonResourceRules": paths, "incomplete": False}
    api_version = f"{_AUTHORIZATION}/v1"
    return Answer.of(
        201, {"kind": "SelfSubjectRulesReview", "apiVersion": api_version, "metadata": {}, "spec": {}, "status": status}
    )


def _who_am_i(plane: ControlPlane, call: Call, body: Json) -> Answer:
    return Answer.of(
        201,
        {
            "kind": "SelfSubjectReview",
            "apiVersion": f"{_AUTHENTICATION}/v1",
            "metadata": {"creationTimestamp": plane.store.now_text()},
            "status": {"userInfo": call.account.info},
        },
    )


def _token_review(plane: ControlPlane, call: Call, body: Json) -> Answer:
    spec = body.get("spec") or {}
    audiences = spec.get("audiences") or [AUDIENCE]
    status: Json = {"user": {}, "error": "invalid bearer token"}
    for audience in audiences:
        try:
            token = plane.accounts.check_token(spec.get("token", ""), audience)
        except Unauthorized:
            continue
        status = {"authenticated": True, "user": token.account.info, "audiences": [audience]}
        break
    api_version = f"{_AUTHENTICATION}/v1"
    return Answer.of(201, {"kind": "TokenReview", "apiVersion": api_version, "metadata": {}, "spec": spec, "status": status})


def request_token(plane: ControlPlane, call: Call) -> Answer:
    """POST serviceaccounts/NAME/token.

    Raises:
        NotFound: no such account. Invalid: shorter than ten minutes.
    """
    body = _body(call, f"{_AUTHENTICATION}/v1", "TokenRequest")
    account = plane.store.get(SERVICE_ACCOUNTS, call.namespace, call.path.name)
    spec = body.get("spec") or {}
    seconds = spec.get("expirationSeconds", DEFAULT_TOKEN_S)
    if seconds < MIN_TOKEN_S:
        problems = Problems()
        problems.invalid("spec.expirationSeconds", seconds, "may not specify a duration less than 10 minutes")
        problems.raise_for(f"TokenRequest.{_AUTHENTICATION}", "", {"group": _AUTHENTICATION, "kind": "TokenRequest"})
    audiences = spec.get("audiences") or [AUDIENCE]
    expires_at = plane.store.clock.now().replace(microsecond=0) + timedelta(seconds=seconds)
    token = plane.accounts.issue(call.namespace, call.path.name, audiences=audiences, expires_at=expires_at)
    metadata = {"name": call.path.name, "namespace": call.namespace, "uid": account["metadata"]["uid"]}
    return Answer.of(
        201,
        {
            "kind": "TokenRequest",
            "apiVersion": f"{_AUTHENTICATION}/v1",
            "metadata": metadata | {"creationTimestamp": plane.store.now_text()},
            "spec": {"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": None},
            "status": {"token": token, "expirationTimestamp": expires_at.strftime("%Y-%m-%dT%H:%M:%SZ")},
        },
    )


_Handler = Callable[[ControlPlane, Call, Json], Answer]

REVIEWS: dict[tuple[str, str], tuple[str, _Handler]] = {
    (_AUTHORIZATION, "selfsubjectaccessreviews"): ("SelfSubjectAccessReview", _self_access),
    (_AUTHORIZATION, "subjectaccessreviews"): ("SubjectAccessReview", _subject_access),
    (_AUTHORIZATION, "selfsubjectrulesreviews"): ("SelfSubjectRulesReview", _self_rules),
    (_AUTHENTICATION, "selfsubjectreviews"): ("SelfSubjectReview", _who_am_i),
    (_AUTHENTICATION, "tokenreviews"): ("TokenReview", _token_review),
}
"""By (group, plural): the kind and who answers. All are cluster-scoped, version v1, create only."""


def review(plane: ControlPlane, call: Call) -> Answer:
    """POST of a review.

    Raises:
        BadRequest, Invalid: as the body says.
    """
    kind, answer = REVIEWS[call.path.group, call.path.resource]
    return answer(plane, call, _body(call, f"{call.path.group}/v1", kind))


def _body(call: Call, api_version: str, kind: str) -> Json:
    body = parse_body(call.body, call.content_type)
    if not isinstance(body, dict) or body.setdefault("kind", kind) != kind:
        raise BadRequest(f"the object provided is unrecognized (must be of type {kind})")
    try:
        return decode(body, load().of(api_version, kind)).object
    except DecodeError as error:
        raise BadRequest(f'{kind} in version "v1" cannot be handled as a {kind}: {error}') from error
