"""Label and field selectors, as text in a query and as LabelSelector objects in specs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from sandbox.kinds import Kind
from sandbox.statuses import BadRequest, Json

Matches = Callable[[Json], bool]
Labels = Mapping[str, str]

_REQUIREMENT = re.compile(
    r"""\s*(?:
        (?P<set_key>[^\s!=,()<>]+)\s+(?P<set_op>in|notin)\s*\((?P<set_values>[^()]*)\)
      | !\s*(?P<absent>[^\s!=,()<>]+)
      | (?P<key>[^\s!=,()<>]+)\s*(?:(?P<op>==|=|!=|>|<)\s*(?P<value>[^\s!=,()<>]*))?
    )\s*(?:,|$)""",
    re.VERBOSE,
)


def label_selector(text: str) -> Callable[[Labels], bool]:
    """`a=b,c!=d,e in (f,g),h,!i` as a test of labels. The empty text matches everything.

    Raises:
        BadRequest: it cannot be read, in the server's words where they are known.
    """
    tests: list[Callable[[Labels], bool]] = []
    position = 0
    while position < len(text):
        found = _REQUIREMENT.match(text, position)
        if found is None:
            raise BadRequest(_label_problem(text, position))
        tests.append(_requirement(found))
        position = found.end()
    return lambda labels: all(test(labels) for test in tests)


def one_equality(text: str) -> tuple[str, str] | None:
    """The first `key=value` of a label or field selector, for an index; None where it has none. The whole must still be tested."""
    for part in text.split(","):
        key, sign, value = part.partition("=")
        if sign and key and not key.endswith("!") and "(" not in part and ")" not in part and value.strip("="):
            return key.strip(), value.removeprefix("=").strip()
    return None


def _requirement(found: re.Match[str]) -> Callable[[Labels], bool]:
    if found["set_key"]:
        key, values = found["set_key"], frozenset(value.strip() for value in found["set_values"].split(","))
        if found["set_op"] == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if found["absent"]:
        absent = found["absent"]
        return lambda labels: absent not in labels
    key, operator, value = found["key"], found["op"], found["value"]
    match operator:
        case None:
            return lambda labels: key in labels
        case "!=":
            return lambda labels: labels.get(key) != value
        case "<" | ">":
            return lambda labels: _compare(labels.get(key), operator, value)
        case _:
            return lambda labels: labels.get(key) == value


def _compare(label: str | None, operator: str, value: str) -> bool:
    if label is None or not label.lstrip("-").isdecimal() or not value.lstrip("-").isdecimal():
        return False
    return int(label) > int(value) if operator == ">" else int(label) < int(value)


def _label_problem(text: str, position: int) -> str:
    rest = text[position:]
    doubled = re.match(r"\s*[^\s!=,()<>]+\s*(==|=|!=)\s*([!=<>()]+)", rest)
    if doubled:
        return f"unable to parse requirement: found '{doubled[2][0]}', expected: identifier"
    return f"unable to parse requirement: found '{rest.strip()[:1]}', expected: !, identifier, or 'end of string'"


def object_selector(selector: Json | None) -> Callable[[Labels], bool]:
    """A LabelSelector of a spec as a test of labels. None matches nothing, the empty one everything."""
    if selector is None:
        return lambda labels: False
    wanted = dict(selector.get("matchLabels") or {})
    tests = [_expression(item) for item in selector.get("matchExpressions") or ()]
    return lambda labels: all(labels.get(key) == value for key, value in wanted.items()) and all(test(labels) for test in tests)


def _expression(item: Json) -> Callable[[Labels], bool]:
    key, values = item["key"], frozenset(item.get("values") or ())
    match item["operator"]:
        case "In":
            return lambda labels: labels.get(key) in values
        case "NotIn":
            return lambda labels: labels.get(key) not in values
        case "Exists":
            return lambda labels: key in labels
        case _:
            return lambda labels: key not in labels


_METADATA_FIELDS = ("metadata.name", "metadata.namespace")
_EVENT_FIELDS = (
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
)
_SELECTABLE: dict[tuple[str, str], tuple[str, ...]] = {
    ("", "pods"): (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    ("", "events"): _EVENT_FIELDS,
    ("", "nodes"): ("spec.unschedulable",),
    ("", "namespaces"): ("status.phase",),
    ("", "secrets"): ("type",),
    ("", "replicationcontrollers"): ("status.replicas",),
    ("apps", "replicasets"): ("status.replicas",),
    ("batch", "jobs"): ("status.successful",),
}
# Kinds with their own conversion answer "field label not supported"; the others use the shared text.
_OWN_WORDS = {("", "pods"), ("", "events"), ("", "nodes"), ("", "namespaces"), ("", "secrets")}


def field_selector(kind: Kind, text: str, *, regarding: bool = False) -> Matches:
    """`metadata.name=x,status.phase!=Running` as a test of objects of `kind`; `regarding` for events.k8s.io names.

    Raises:
        BadRequest: it cannot be read, or names a field that is not selectable.
    """
    tests: list[Matches] = []
    for term in (part for part in text.split(",") if part):
        found = re.fullmatch(r"([^=!]+)(==|=|!=)([^=!]*)", term)
        if found is None:
            raise BadRequest(f"invalid selector: '{text}'; can't understand '{term}'")
        name, operator, value = found[1].strip(), found[2], found[3].strip()
        tests.append(_field_test(_selectable(kind, name, regarding), value, negated=operator == "!="))
    return lambda obj: all(test(obj) for test in tests)


def exact_name(text: str) -> str:
    """The name in a `metadata.name=x` selector, "" when there is none: RBAC with resourceNames asks for it."""
    for term in text.split(","):
        name, _, value = term.replace("==", "=").partition("=")
        if name.strip() == "metadata.name" and not name.endswith("!"):
            return value.strip()
    return ""


def _selectable(kind: Kind, name: str, regarding: bool) -> str:
    if regarding and name.startswith("regarding."):
        name = "involvedObject." + name.removeprefix("regarding.")
    elif regarding and name == "reportingController":
        name = "reportingComponent"
    if name in _METADATA_FIELDS or name in _SELECTABLE.get(kind.key, ()):
        return name
    if kind.key in _OWN_WORDS:
        raise BadRequest(f"field label not supported: {name}")
    raise BadRequest(f'"{name}" is not a known field selector: only "metadata.name", "metadata.namespace"')


def _field_test(path: str, value: str, *, negated: bool) -> Matches:
    steps = path.split(".")
    if path == "source":
        steps = ["source", "component"]

    def test(obj: Json) -> bool:
        found: object = obj
        for step in steps:
            found = found.get(step) if isinstance(found, dict) else None
        return (_text(found) == value) != negated

    return test


def _text(value: object) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
