"""The limits file: what this executor will do at most, whatever anybody orders. The bot cannot write it.

    schema: 1
    namespaces: [shop, checkout]          # exact names; an empty list allows nothing
    kinds: [Deployment]
    actions: {restart_workload: auto, restart_pod: auto, scale: auto}      # auto, approved or never
    replicas: {min: 1, max: 20, step: 4}
    radius: {auto: 0.30, approved: 0.50}  # share of the namespace's ready pods that may be unready at once
    orders: {target: 1/1h, namespace: 3/1h, cluster: 10/1h}
    automatic_needs_service_level: true
    open: 16                              # transactions at the same time
    settle: 60                            # seconds: no order may settle for less

It is applied with the same pure arithmetic as the bot's (`catalog.limits`), and counts from this executor's own journal.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from catalog.actions import Scale
from catalog.limits import Breach, Budget, scale_breach
from catalog.names import is_dns_label
from catalog.orders import Order
from executor.errors import ConfigurationInvalid
from executor.journal import History
from executor.transactions import Refused


def _budget(value: Any) -> Any:
    return Budget.parse(value) if isinstance(value, str) else value


def _namespace(value: Any) -> Any:
    if not isinstance(value, str) or not is_dns_label(value):
        raise ValueError(f"{value!r} is not the name of a namespace; patterns are not read here")
    return value


Limit = Annotated[Budget, BeforeValidator(_budget)]
Permission = Literal["auto", "approved", "never"]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ActionBounds(_Part):
    """How far each action may go. An action that is not named is never done."""

    restart_workload: Permission = "never"
    restart_pod: Permission = "never"
    scale: Permission = "never"


class ReplicaBounds(_Part):
    """Bounds of a scale, in replicas."""

    min: int = Field(default=1, ge=1, le=1000)
    max: int = Field(default=20, ge=1, le=1000)
    step: int = Field(default=4, ge=1, le=100)


class RadiusBounds(_Part):
    """Share of the namespace's ready pods that may be unready at the same time."""

    auto: float = Field(default=0.30, gt=0, le=1)
    approved: float = Field(default=0.50, gt=0, le=1)


class OrderBounds(_Part):
    """Orders begun in a sliding window."""

    target: Limit = Budget(count=1, per=timedelta(hours=1))
    namespace: Limit = Budget(count=3, per=timedelta(hours=1))
    cluster: Limit = Budget(count=10, per=timedelta(hours=1))


class Bounds(_Part):
    """The limits file, validated."""

    schema_version: Literal[1] = Field(alias="schema")
    namespaces: tuple[Annotated[str, BeforeValidator(_namespace)], ...]
    kinds: tuple[Literal["Deployment"], ...] = ("Deployment",)
    actions: ActionBounds
    replicas: ReplicaBounds = ReplicaBounds()
    radius: RadiusBounds = RadiusBounds()
    orders: OrderBounds = OrderBounds()
    automatic_needs_service_level: bool = True
    open: int = Field(default=16, ge=1, le=64)
    settle: float = Field(default=60.0, ge=1, le=600)

    @property
    def widest(self) -> timedelta:
        """The longest window that any budget looks back."""
        return max(self.orders.target.per, self.orders.namespace.per, self.orders.cluster.per)


def load_bounds(path: Path) -> tuple[Bounds, str]:
    """The limits in `path`, and the SHA-256 of the file.

    Raises:
        ConfigurationInvalid: unreadable, not YAML, or not as above; each line `FILE:LINE: KEY: what is wrong`.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ConfigurationInvalid(f"the limits file {path} cannot be read: {error.strerror}") from error
    return parse_bounds(raw.decode("utf-8", "replace"), str(path)), hashlib.sha256(raw).hexdigest()


def parse_bounds(text: str, name: str) -> Bounds:
    """The limits in `text`; `name` is what problems call the file.

    Raises:
        ConfigurationInvalid: as `load_bounds`.
    """
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else 1
        raise ConfigurationInvalid(f"{name}:{line}: not YAML: {getattr(error, 'problem', error)}") from error
    if not isinstance(data, dict):
        raise ConfigurationInvalid(f"{name}:1: a mapping is needed, beginning with `schema: 1`")
    doubled = _doubled(node, name)
    if doubled:
        raise ConfigurationInvalid("\n".join(doubled))
    try:
        return Bounds.model_validate(data)
    except ValidationError as error:
        raise ConfigurationInvalid("\n".join(_problems(error, node, name))) from error


def breach_of(order: Order, bounds: Bounds, history: History, now: datetime) -> Refused | None:
    """The first of this executor's own limits that does not hold for an order."""
    action = order.action.action.value
    permission: Permission = getattr(bounds.actions, action, "never")
    if order.target.namespace not in bounds.namespaces:
        return _refused("namespaces", f"namespace {order.target.namespace!r} is not in the executor's limits")
    if order.target.kind.value not in bounds.kinds:
        return _refused("kinds", f"kind {order.target.kind.value} is not in the executor's limits")
    if permission == "never" or (permission == "approved" and order.mode == "auto"):
        return _refused("actions", f"{action} is allowed {permission!r} here, the order is {order.mode!r}")
    if order.mode == "auto" and history.last_harm is not None and order.decided_at <= history.last_harm:
        harm = f"{history.last_harm:%H:%M:%S} UTC"
        return Refused(
            reason="harmful_outcome", sentence=f"This scope had a harmful outcome at {harm}, after the order was decided."
        )
    if history.open > bounds.open:
        return _refused("open", f"{history.open} transactions are open with this one, {bounds.open} are allowed")
    breach = _scale(order, bounds) or _counts(bounds, history, now)
    return _refused(breach.limit, breach.sentence) if breach else None


def _scale(order: Order, bounds: Bounds) -> Breach | None:
    if not isinstance(order.action, Scale):
        return None
    return scale_breach(
        order.action.from_replicas,
        order.action.to_replicas,
        minimum=bounds.replicas.min,
        maximum=bounds.replicas.max,
        step=bounds.replicas.step,
        cap=bounds.replicas.max,
    )


def _counts(bounds: Bounds, history: History, now: datetime) -> Breach | None:
    return (
        bounds.orders.target.breach("orders.target", history.target, now)
        or bounds.orders.namespace.breach("orders.namespace", history.namespace, now)
        or bounds.orders.cluster.breach("orders.cluster", history.cluster, now)
    )


def _refused(limit: str, sentence: str) -> Refused:
    return Refused(reason=f"limit:{limit}", sentence=f"The executor's limits file refuses it: {sentence}.")


def _problems(error: ValidationError, node: yaml.Node | None, name: str) -> Iterator[str]:
    for problem in error.errors(include_url=False, include_context=False):
        keys = [str(key) for key in problem["loc"]]
        sentence = (
            "this key is not known here" if problem["type"] == "extra_forbidden" else problem["msg"].removeprefix("Value error, ")
        )
        yield f"{name}:{_line(node, keys)}: {'.'.join(keys)}: {sentence}"


def _line(node: yaml.Node | None, keys: list[str]) -> int:
    """Line of the deepest key of the path that exists."""
    line = node.start_mark.line + 1 if node else 1
    for key in keys:
        if isinstance(node, yaml.MappingNode):
            pair = next(((k, v) for k, v in node.value if k.value == key), None)
            if pair is None:
                return line
            line, node = pair[0].start_mark.line + 1, pair[1]
        elif isinstance(node, yaml.SequenceNode) and key.isdecimal() and int(key) < len(node.value):
            node = node.value[int(key)]
            line = node.start_mark.line + 1
        else:
            return line
    return line


def _doubled(node: yaml.Node | None, name: str) -> list[str]:
    """Keys that a mapping holds twice: YAML would silently keep the last."""
    found: list[str] = []
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if str(key.value) in seen:
                found.append(f"{name}:{key.start_mark.line + 1}: {key.value}: this key is here twice")
            seen.add(str(key.value))
            found += _doubled(value, name)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            found += _doubled(item, name)
    return found
