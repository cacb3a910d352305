"""Events as their three kinds of writers leave them, with the writers' own aggregation and spam filter.

* kubelet and controllers: `count`, `firstTimestamp`, `lastTimestamp`, `source`; a repeat grows the count of the stored event.
* the scheduler, through events.k8s.io: `eventTime`, no count, null timestamps; a repeat grows `series`.
* aggregated: from the tenth similar event (same object and reason, other message) on, one event "(combined from similar events): …"
  with its own name and an empty reportingComponent.

A writer may burst 25 writes per source and object, then one per 300 model seconds; counts grow meanwhile, so a stored count jumps
and its lastTimestamp can be five minutes old while the fault is live.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from sandbox.controllers.engine import Engine, Key
from sandbox.controllers.facts import instant, micro, stamp
from sandbox.kinds import EVENTS
from sandbox.statuses import Forbidden, NotFound
from sandbox.store import Store

Json = dict[str, Any]

BURST = 25
REFILL_S = 300.0
"""Model seconds for one more write."""
SIMILAR = 10
"""Distinct messages about one object and reason before they are combined."""
KEPT_S = 3600.0
"""Real seconds an event is kept."""
_REMEMBERED = 4096
_COMBINED = "(combined from similar events): "


@dataclass
class _Seen:
    name: str
    namespace: str
    count: int
    first: str


@dataclass
class _Bucket:
    tokens: float = BURST
    at: float = 0.0


@dataclass
class _Memory:
    """What the writers remember; the oldest entries are forgotten, as the real caches do."""

    seen: OrderedDict[tuple[str, ...], _Seen] = field(default_factory=OrderedDict)
    similar: OrderedDict[tuple[str, ...], set[str]] = field(default_factory=OrderedDict)
    buckets: OrderedDict[tuple[str, ...], _Bucket] = field(default_factory=OrderedDict)

    def trim(self) -> None:
        for cache in (self.seen, self.similar, self.buckets):
            while len(cache) > _REMEMBERED:
                cache.popitem(last=False)


class Recorder:
    """Writes events into the store; as controller `events` it also removes old ones."""

    name = "events"

    def __init__(self, store: Store, engine: Engine) -> None:
        self._store = store
        self._engine = engine
        self._memory = _Memory()
        self._scheduled: OrderedDict[tuple[str, str], tuple[str, int]] = OrderedDict()

    def kubelet(self, pod: Json, node: str, type_: str, reason: str, message: str, *, path: str = "", times: int = 1) -> None:
        """An event of a kubelet about a pod; `path` such as spec.containers{app}; `times` repeats it in one go."""
        self._record(pod, {"component": "kubelet", "host": node}, type_, reason, message, path=path, times=times)

    def controller(self, obj: Json, component: str, type_: str, reason: str, message: str) -> None:
        """An event of a controller about any object; about a Node it is stored in the namespace `default`."""
        self._record(obj, {"component": component}, type_, reason, message)

    def scheduler(self, pod: Json, type_: str, reason: str, message: str, action: str) -> None:
        """An event of the scheduler about a pod."""
        metadata = pod["metadata"]
        now = micro(self._engine.clock.now())
        key = (metadata["uid"], f"{reason}\n{message}")
        known = self._scheduled.get(key)
        if known is not None and self._store.find(EVENTS, metadata["namespace"], known[0]) is not None:
            count = known[1] + 1
            self._scheduled[key] = (known[0], count)
            self._edit(metadata["namespace"], known[0], {"series": {"count": count, "lastObservedTime": now}})
            return
        name = self._event_name(metadata["namespace"], metadata["name"])
        body: Json = {
            "metadata": {"name": name, "namespace": metadata["namespace"]},
            "involvedObject": _reference(pod, ""),
            "reason": reason,
            "message": message,
            "source": {},
            "firstTimestamp": None,
            "lastTimestamp": None,
            "type": type_,
            "eventTime": now,
            "action": action,
            "reportingComponent": "default-scheduler",
            "reportingInstance": "default-scheduler-sandbox",
        }
        self._scheduled[key] = (name, 1)
        while len(self._scheduled) > _REMEMBERED:
            self._scheduled.popitem(last=False)
        self._create(body)

    def sync(self, key: Key) -> float | None:
        """Remove events that are older than an hour."""
        now = self._engine.clock.now()
        for event in self._store.list(EVENTS):
            metadata = event["metadata"]
            last = event.get("lastTimestamp") or metadata["creationTimestamp"]
            if (now - instant(last)).total_seconds() > KEPT_S:
                self._store.delete(EVENTS, metadata["namespace"], metadata["name"])
        return self._engine.model(60.0)

    def _record(self, obj: Json, source: Json, type_: str, reason: str, message: str, *, path: str = "", times: int = 1) -> None:
        about = _reference(obj, path)
        identity = (*source.values(), about["kind"], about.get("namespace", ""), about["name"], about.get("uid", ""))
        same = (*identity, path, type_, reason)
        messages = self._memory.similar.setdefault(same, set())
        messages.add(message)
        combined = len(messages) >= SIMILAR
        key = same if combined else (*same, message)
        text = _COMBINED + message if combined else message
        now = stamp(self._engine.clock.now())
        namespace = about.get("namespace") or "default"
        seen = self._memory.seen.get(key)
        if seen is None:
            seen = _Seen(self._event_name(namespace, about["name"]), namespace, 0, now)
            self._memory.seen[key] = seen
        seen.count += times
        self._memory.trim()
        if not self._may_write(identity):
            return
        if self._store.find(EVENTS, namespace, seen.name) is not None:
            self._edit(namespace, seen.name, {"count": seen.count, "lastTimestamp": now, "message": text})
            return
        self._create(
            {
                "metadata": {"name": seen.name, "namespace": namespace},
                "involvedObject": about,
                "reason": reason,
                "message": text,
                "source": source,
                "firstTimestamp": seen.first,
                "lastTimestamp": now,
                "count": seen.count,
                "type": type_,
                "eventTime": None,
                "reportingComponent": "" if combined else source["component"],
                "reportingInstance": "" if combined else source.get("host", ""),
            }
        )

    def _may_write(self, identity: tuple[str, ...]) -> bool:
        now = self._engine.monotonic()
        bucket = self._memory.buckets.get(identity)
        if bucket is None:
            bucket = self._memory.buckets[identity] = _Bucket(at=now)
        bucket.tokens = min(BURST, bucket.tokens + self._engine.model(now - bucket.at) / REFILL_S)
        bucket.at = now
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True

    def _event_name(self, namespace: str, about: str) -> str:
        nanos = int(self._engine.clock.now().timestamp() * 1e6) * 1000
        while self._store.find(EVENTS, namespace, name := f"{about}.{nanos:x}") is not None:
            nanos += 1
        return name

    def _edit(self, namespace: str, name: str, changes: Json) -> None:
        event = self._store.get(EVENTS, namespace, name)
        self._store.update(EVENTS, {**event, **changes})

    def _create(self, body: Json) -> None:
        try:
            self._store.create(EVENTS, body)
        except (NotFound, Forbidden):
            return  # the namespace is going away; nobody is left to read it


def _reference(obj: Json, path: str) -> Json:
    metadata = obj["metadata"]
    about: Json = {"kind": obj["kind"]}
    if metadata.get("namespace"):
        about["namespace"] = metadata["namespace"]
    about |= {"name": metadata["name"], "uid": metadata["uid"], "apiVersion": obj["apiVersion"]}
    about["resourceVersion"] = metadata["resourceVersion"]
    if path:
        about["fieldPath"] = path
    return about
