"""The rules a kind's objects must keep, worded as the server words them. Only the rules that writers here meet are known.

`check_create` and `check_update` return nothing for a valid object. Problems are collected, so that one answer names them all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sandbox.kinds import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CUSTOM_RESOURCE_DEFINITIONS,
    DAEMON_SETS,
    DEPLOYMENTS,
    EVENTS,
    LEASES,
    PODS,
    REPLICA_SETS,
    ROLE_BINDINGS,
    ROLES,
    STATEFUL_SETS,
    Kind,
)
from sandbox.selecting import object_selector
from sandbox.statuses import Invalid, Json, details_of

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN_WORDS = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL_WORDS = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an "
    "alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_IMMUTABLE = "field is immutable"


@dataclass
class Problems:
    """Causes of one refusal, in the order the server finds them."""

    causes: list[Json] = field(default_factory=list)

    def invalid(self, path: str, value: Any, why: str) -> None:
        self._add("FieldValueInvalid", f"Invalid value: {shown(value)}: {why}", path)

    def required(self, path: str, why: str = "") -> None:
        self._add("FieldValueRequired", "Required value" + (f": {why}" if why else ""), path)

    def forbidden(self, path: str, why: str) -> None:
        self._add("FieldValueForbidden", f"Forbidden: {why}", path)

    def unsupported(self, path: str, value: Any, supported: str) -> None:
        self._add("FieldValueNotSupported", f"Unsupported value: {shown(value)}: supported values: {supported}", path)

    def _add(self, reason: str, message: str, path: str) -> None:
        self.causes.append({"reason": reason, "message": message, "field": path})

    def raise_for(self, qualified: str, name: str, details: Json) -> None:
        """Refuse if there is any cause.

        Raises:
            Invalid: naming every cause.
        """
        if self.causes:
            raise self.refusal(qualified, name, details)

    def refusal(self, qualified: str, name: str, details: Json) -> Invalid:
        """The 422 that names every cause."""
        sentences = list(dict.fromkeys(f"{cause['field']}: {cause['message']}" for cause in self.causes))
        told = sentences[0] if len(sentences) == 1 else f"[{', '.join(sentences)}]"
        return Invalid(f'{qualified} "{name}" is invalid: {told}', {**details, "causes": self.causes})

    def raise_for_kind(self, kind: Kind, name: str) -> None:
        """Refuse an object of `kind`.

        Raises:
            Invalid: naming every cause.
        """
        self.raise_for(kind.qualified, name, details_of(kind, name, as_kind=True))


def shown(value: Any) -> str:
    """A value as validation messages print it: JSON, compact."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def option_refusal(options: str, fill: Callable[[Problems], None]) -> Invalid:
    """A 422 about `PatchOptions` and the like; `fill` says what is wrong."""
    problems = Problems()
    fill(problems)
    return problems.refusal(f"{options}.meta.k8s.io", "", {"group": "meta.k8s.io", "kind": options})


def check_create(kind: Kind, obj: Json) -> None:
    """Refuse an invalid new object.

    Raises:
        Invalid: naming every rule it breaks.
    """
    problems = Problems()
    _name(kind, obj["metadata"], problems)
    _owners(obj["metadata"], problems)
    _content(kind, obj, problems)
    problems.raise_for_kind(kind, obj["metadata"].get("name", ""))


def check_update(kind: Kind, obj: Json, stored: Json) -> None:
    """Refuse an invalid change.

    Raises:
        Invalid: naming every rule it breaks.
    """
    problems = Problems()
    given, kept = obj["metadata"], stored["metadata"]
    for name in ("name", "uid"):
        if given.get(name) and given[name] != kept[name]:
            problems.invalid(f"metadata.{name}", given[name], _IMMUTABLE)
            if name == "uid":
                problems.invalid(f"metadata.{name}", given[name], _IMMUTABLE)
    _owners(given, problems)
    _content(kind, obj, problems)
    _immutable(kind, obj, stored, problems)
    problems.raise_for_kind(kind, kept["name"])


def check_scale(scale: Json) -> None:
    """Refuse an invalid Scale.

    Raises:
        Invalid: negative replicas.
    """
    problems = Problems()
    _not_negative(scale.get("spec", {}).get("replicas", 0), "spec.replicas", problems)
    name = scale["metadata"]["name"]
    problems.raise_for("Scale.autoscaling", name, {"name": name, "group": "autoscaling", "kind": "Scale"})


def _name(kind: Kind, metadata: Json, problems: Problems) -> None:
    name = metadata.get("name", "")
    if not name and not metadata.get("generateName"):
        problems.required("metadata.name", "name or generateName is required")
    elif name and kind.group == "rbac.authorization.k8s.io":
        if "/" in name or "%" in name or name in (".", ".."):
            problems.invalid("metadata.name", name, "may not contain '/' or '%'")
    elif name and kind.key in (("", "namespaces"), ("", "services")):
        if not _LABEL.fullmatch(name) or len(name) > 63:
            problems.invalid("metadata.name", name, _LABEL_WORDS)
    elif name and (not _SUBDOMAIN.fullmatch(name) or len(name) > 253):
        problems.invalid("metadata.name", name, _SUBDOMAIN_WORDS)


def _owners(metadata: Json, problems: Problems) -> None:
    for index, owner in enumerate(metadata.get("ownerReferences", ())):
        for name in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(name):
                problems.invalid(f"metadata.ownerReferences[{index}].{name}", "", "must not be empty")


def _content(kind: Kind, obj: Json, problems: Problems) -> None:
    if kind.key in (DEPLOYMENTS.key, REPLICA_SETS.key, STATEFUL_SETS.key, DAEMON_SETS.key):
        _workload(obj.get("spec", {}), problems)
    elif kind.key == PODS.key:
        _pod_spec(obj.get("spec", {}), "spec", problems)
    elif kind.key == LEASES.key:
        _lease(obj.get("spec", {}), problems)
    elif kind.key in (ROLE_BINDINGS.key, CLUSTER_ROLE_BINDINGS.key):
        _binding(obj, problems)
    elif kind.key in (ROLES.key, CLUSTER_ROLES.key):
        _rules(obj, problems)
    elif kind.key == CUSTOM_RESOURCE_DEFINITIONS.key:
        _definition(obj, problems)
    elif kind.key == EVENTS.key:
        involved = obj.get("involvedObject", {})
        if involved.get("namespace", "") not in ("", obj["metadata"].get("namespace", "")):
            problems.invalid("involvedObject.namespace", involved["namespace"], "does not match event.namespace")


def _workload(spec: Json, problems: Problems) -> None:
    _not_negative(spec.get("replicas", 0), "spec.replicas", problems)
    _not_negative(spec.get("minReadySeconds", 0), "spec.minReadySeconds", problems)
    _not_negative(spec.get("revisionHistoryLimit", 0), "spec.revisionHistoryLimit", problems)
    selector = spec.get("selector")
    template = spec.get("template", {})
    labels = template.get("metadata", {}).get("labels", {})
    if not selector:
        problems.required("spec.selector")
    elif not object_selector(selector)(labels):
        problems.invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")
    _pod_spec(template.get("spec", {}), "spec.template.spec", problems)
    deadline = spec.get("progressDeadlineSeconds")
    if deadline is not None and deadline <= spec.get("minReadySeconds", 0):
        problems.invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds")


def _pod_spec(spec: Json, path: str, problems: Problems) -> None:
    if not spec.get("containers"):
        problems.required(f"{path}.containers")
    for sort in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(sort, ())):
            where = f"{path}.{sort}[{index}]"
            if not container.get("name"):
                problems.required(f"{where}.name")
            if not container.get("image"):
                problems.required(f"{where}.image")
    _not_negative(spec.get("terminationGracePeriodSeconds", 0), f"{path}.terminationGracePeriodSeconds", problems)


def _lease(spec: Json, problems: Problems) -> None:
    seconds = spec.get("leaseDurationSeconds")
    if seconds is not None and seconds <= 0:
        problems.invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0")
    transitions = spec.get("leaseTransitions")
    if transitions is not None:
        _not_negative(transitions, "spec.leaseTransitions", problems)


def _named(value: Any, *names: str) -> bool:
    return isinstance(value, dict) and all(isinstance(value.get(name), str) and value[name] for name in names)


def _binding(obj: Json, problems: Problems) -> None:
    if not _named(obj.get("roleRef"), "kind", "name"):
        problems.required("roleRef")
    subjects = obj.get("subjects") or []
    if not isinstance(subjects, list) or not all(_named(subject, "kind", "name") for subject in subjects):
        problems.required("subjects.name")


def _rules(obj: Json, problems: Problems) -> None:
    rules = obj.get("rules") or []
    lists = ("verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs")
    fit = isinstance(rules, list) and all(
        isinstance(rule, dict) and rule.get("verbs") and all(isinstance(rule.get(name) or [], list) for name in lists)
        for rule in rules
    )
    if not fit:
        problems.required("rules.verbs", "verbs must contain at least one value")


def _definition(obj: Json, problems: Problems) -> None:
    spec: Any = obj.get("spec")
    if not _named(spec, "group") or not _named(spec.get("names"), "plural", "kind"):
        problems.required("spec.names")
        return
    versions = spec.get("versions")
    if not isinstance(versions, list) or not versions or not all(_named(version, "name") for version in versions):
        problems.required("spec.versions")
    expected = f"{spec['names']['plural']}.{spec['group']}"
    if obj["metadata"].get("name") != expected:
        problems.invalid("metadata.name", obj["metadata"].get("name"), 'must be spec.names.plural+"."+spec.group')


def _not_negative(value: int, path: str, problems: Problems) -> None:
    if value < 0:
        problems.invalid(path, value, "must be greater than or equal to 0")


def _immutable(kind: Kind, obj: Json, stored: Json, problems: Problems) -> None:
    if kind.key in (DEPLOYMENTS.key, REPLICA_SETS.key, DAEMON_SETS.key):
        selector = obj.get("spec", {}).get("selector")
        if selector != stored["spec"].get("selector"):
            problems.invalid("spec.selector", selector, _IMMUTABLE)
    elif kind.key == STATEFUL_SETS.key:
        _stateful(obj["spec"], stored["spec"], problems)
    elif kind.key == PODS.key:
        _pod_update(obj["spec"], stored["spec"], problems)
    if kind.group == "rbac.authorization.k8s.io" and obj.get("roleRef") != stored.get("roleRef"):
        problems.invalid("roleRef", obj.get("roleRef"), "cannot change roleRef")


_STATEFUL_MUTABLE = (
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
)


def _stateful(spec: Json, stored: Json, problems: Problems) -> None:
    fixed, kept = ({key: value for key, value in one.items() if key not in _STATEFUL_MUTABLE} for one in (spec, stored))
    if fixed != kept:
        allowed = (
            "'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', "
            "'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds'"
        )
        problems.forbidden("spec", f"updates to statefulset spec for fields other than {allowed} are forbidden")


def _pod_update(spec: Json, stored: Json, problems: Problems) -> None:
    if _without_images(spec) != _without_images(stored):
        fields = (
            "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` "
            "(only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was "
            "previously negative)"
        )
        problems.forbidden("spec", f"pod updates may not change fields other than {fields}")


def _without_images(spec: Json) -> Json:
    plain = {key: value for key, value in spec.items() if key not in ("tolerations", "activeDeadlineSeconds", "nodeName")}
    for sort in ("containers", "initContainers"):
        if sort in plain:
            plain[sort] = [{key: value for key, value in item.items() if key != "image"} for item in plain[sort]]
    return plain
