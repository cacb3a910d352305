"""Would a fresh pod be admitted and find its volume? Where it would not, running pods are all there is: keep them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal

from executor.preflight.scene import CannotTell, Scene, known, reason
from sources.condensing import quantity
from sources.kubernetes import JsonObject


@reason("volume_surge")
def volume_surge(scene: Scene) -> str | None:
    """A ReadWriteOnce volume and a surge pod that may land on another node: neither old nor new pod could go on."""
    if not (scene.restart and known(scene.facts.max_surge, "maxSurge") > 0):
        return None
    if known(scene.facts.read_write_once, "the access modes of its volumes"):
        return f"{scene.title} has a ReadWriteOnce volume and a surge pod; the new pod could wait for the volume for ever."
    return None


@reason("quota")
def quota(scene: Scene) -> str | None:
    """A resource quota without room for the pods this adds for a moment (surge) or for good (scale)."""
    extra = _extra_pods(scene)
    if not extra:
        return None
    quotas = known(scene.view.quotas, "the quotas")
    if not quotas:
        return None
    needs = _needs(scene)
    for one in quotas:
        status = one.get("status") or {}
        hard, used = status.get("hard") or {}, status.get("used") or {}
        for resource, limit in hard.items():
            need = _of_quota(resource, needs)
            if need is None:
                continue
            free = _number(limit) - _number(used.get(resource, "0"))
            if need * extra > free:
                name = one["metadata"]["name"]
                return f"Quota {name} has {_plain(free)} {resource} left; {extra} more pod(s) would need {_plain(need * extra)}."
    return None


@reason("limit_range")
def limit_range(scene: Scene) -> str | None:
    """A limit range that would reject a fresh pod although the running ones were admitted before it."""
    template = _containers(scene.workload)
    for one in known(scene.view.limit_ranges, "the limit ranges"):
        for rule in (one.get("spec") or {}).get("limits") or ():
            broken = _broken_rule(rule, template)
            if broken:
                return f"Limit range {one['metadata']['name']} would reject a fresh pod: {broken}."
    return None


def _extra_pods(scene: Scene) -> int:
    if scene.scale is not None:
        return max(0, scene.scale.to_replicas - scene.scale.from_replicas)
    # With pods that may be unavailable the roll-out makes its own room.
    if scene.restart and known(scene.facts.max_surge, "maxSurge") and not known(scene.facts.max_unavailable, "maxUnavailable"):
        return 1
    return 0


def _needs(scene: Scene) -> dict[str, Decimal]:
    """What one pod asks for, with the defaults of the namespace's limit ranges; a resource nobody states is missing."""
    defaults = _defaults(known(scene.view.limit_ranges, "the limit ranges"))
    needs: dict[str, Decimal] = {}
    for side in ("requests", "limits"):
        for resource in ("cpu", "memory", "ephemeral-storage"):
            amounts = [_amount(container, side, resource, defaults) for container in _containers(scene.workload)]
            stated = [amount for amount in amounts if amount is not None]
            if amounts and len(stated) == len(amounts):
                needs[f"{side}.{resource}"] = sum(stated, Decimal(0))
    return needs


def _amount(container: JsonObject, side: str, resource: str, defaults: Mapping[str, Mapping[str, str]]) -> Decimal | None:
    resources = container.get("resources") or {}
    # A container with a limit and no request asks for its limit.
    for text in (
        (resources.get(side) or {}).get(resource),
        (resources.get("limits") or {}).get(resource) if side == "requests" else None,
        defaults.get(side, {}).get(resource),
    ):
        if text is not None:
            return _number(text)
    return None


def _defaults(limit_ranges: Iterable[JsonObject]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {"requests": {}, "limits": {}}
    for one in limit_ranges:
        for rule in (one.get("spec") or {}).get("limits") or ():
            if rule.get("type") == "Container":
                found["limits"] |= rule.get("default") or {}
                found["requests"] |= rule.get("defaultRequest") or rule.get("default") or {}
    return found


def _of_quota(resource: str, needs: Mapping[str, Decimal]) -> Decimal | None:
    """What one pod takes of a quota's resource; None where it takes nothing. A quota on what no container states rejects it."""
    if resource in ("pods", "count/pods"):
        return Decimal(1)
    name = f"requests.{resource}" if resource in ("cpu", "memory", "ephemeral-storage") else resource
    if name.split(".")[0] not in ("requests", "limits") or name.count(".") != 1 or name == "requests.storage":
        return None
    if name not in needs:
        raise CannotTell(f"a quota counts {resource}, which the pods do not state")
    return needs[name]


def _broken_rule(rule: JsonObject, containers: list[JsonObject]) -> str | None:
    if rule.get("type") not in ("Container", "Pod"):
        return None
    for bound, limits in (("max", rule.get("max") or {}), ("min", rule.get("min") or {})):
        for resource, text in limits.items():
            side = "limits" if bound == "max" else "requests"
            stated = [((one.get("resources") or {}).get(side) or {}).get(resource) for one in containers]
            amounts = [_number(one) for one in stated if one is not None]
            if rule["type"] == "Pod":
                amounts = [sum(amounts, Decimal(0))] if len(amounts) == len(containers) and amounts else []
            wrong = [one for one in amounts if (one > _number(text) if bound == "max" else one < _number(text))]
            if wrong:
                return f"{side} {resource} {_plain(wrong[0])} against {bound} {text}"
    return None


def _containers(workload: JsonObject) -> list[JsonObject]:
    spec = (((workload.get("spec") or {}).get("template") or {}).get("spec")) or {}
    return list(spec.get("containers") or ())


def _number(text: object) -> Decimal:
    value = quantity(text)
    if value is None:
        raise CannotTell(f"{text!r} is not a quantity")
    return value


def _plain(value: Decimal) -> str:
    return f"{value.normalize():f}"
