"""ResourceQuota: what a namespace uses, and the refusal of pods that would go over it.

`admit` runs for every create, by whomever (`Store.admitters`): it refuses with the server's words and charges what it lets through
at once, so that two pods of one batch cannot both take the last place. The controller recounts when pods come, end and go.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from sandbox.controllers.engine import Engine, Key
from sandbox.controllers.facts import is_finished
from sandbox.controllers.quantities import names_every, pod_total, quantity, shown
from sandbox.kinds import PODS, RESOURCE_QUOTAS, Kind
from sandbox.statuses import Forbidden
from sandbox.store import Store

Json = dict[str, Any]

_COUNTED = ("pods", "count/pods")


def asked_by(pod: Mapping[str, Any], resource: str) -> Decimal | None:
    """How much of a quota's resource one pod takes; None for a resource that pods do not take."""
    if resource in _COUNTED:
        return Decimal(1)
    which, _, name = resource.partition(".") if "." in resource else ("requests", "", resource)
    if which not in ("requests", "limits") or name not in ("cpu", "memory", "ephemeral-storage"):
        return None
    return pod_total(pod["spec"], which, name)


class QuotaController:
    """Counts usage into status.used, and refuses pods over spec.hard."""

    name = "quotas"

    def __init__(self, store: Store, engine: Engine) -> None:
        self._store = store
        self._engine = engine

    def admit(self, kind: Kind, obj: Json) -> None:
        """Refuse a pod for which a quota of its namespace has no room.

        Raises:
            Forbidden: over quota, or the pod does not state a resource that a quota bounds.
        """
        if kind.key == RESOURCE_QUOTAS.key:
            self._engine.changed(self.name, (obj["metadata"]["namespace"], obj["metadata"]["name"]))
        if kind.key != PODS.key:
            return
        namespace = obj["metadata"]["namespace"]
        for quota in self._store.list(RESOURCE_QUOTAS, namespace):
            self._check(quota, obj)

    def sync(self, key: Key) -> float | None:
        quota = self._store.find(RESOURCE_QUOTAS, *key)
        if quota is None:
            return None
        hard = dict(quota["spec"].get("hard") or {})
        used = {resource: shown(self._used(key[0], resource), resource) for resource in hard if self._knows(resource)}
        self._store.patch_status(RESOURCE_QUOTAS, *key, {"hard": hard, "used": used})
        return None

    def _check(self, quota: Json, pod: Json) -> None:
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        over: dict[str, tuple[Decimal, Decimal, Decimal]] = {}
        missing = []
        for resource, limit in sorted((quota["spec"].get("hard") or {}).items()):
            asked = asked_by(pod, resource)
            if asked is None:
                continue
            if resource not in _COUNTED and not names_every(pod["spec"], *_parts(resource)):
                missing.append(resource)
            used = self._used(namespace, resource)
            if used + asked > quantity(limit):
                over[resource] = (asked, used, quantity(limit))
        title = quota["metadata"]["name"]
        if missing:
            raise Forbidden.to_write(PODS, name, f"failed quota: {title}: must specify {','.join(missing)}")
        if over:
            words = ", ".join(
                f"{word}: " + ",".join(f"{resource}={shown(numbers[index], resource)}" for resource, numbers in over.items())
                for index, word in enumerate(("requested", "used", "limited"))
            )
            raise Forbidden.to_write(PODS, name, f"exceeded quota: {title}, {words}")

    def _used(self, namespace: str, resource: str) -> Decimal:
        total = Decimal(0)
        for pod in self._store.list(PODS, namespace):
            if not is_finished(pod):
                total += asked_by(pod, resource) or Decimal(0)
        return total

    def _knows(self, resource: str) -> bool:
        return asked_by({"spec": {}}, resource) is not None


def _parts(resource: str) -> tuple[str, str]:
    which, _, name = resource.partition(".") if "." in resource else ("requests", "", resource)
    return which, name
