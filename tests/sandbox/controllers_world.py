"""A cluster without a server on a hand-moved clock: what happened is read from the store's changes, folded like the recordings."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sandbox.controllers.engine import Engine
from sandbox.controllers.nodes import node_object
from sandbox.controllers.routing import Controllers
from sandbox.defaulting import admit
from sandbox.kinds import DEPLOYMENTS, EVENTS, NAMESPACES, NODES, PODS, REPLICA_SETS, Kind
from sandbox.shelves import Change, copied
from sandbox.store import Store

Json = dict[str, Any]
RECORDINGS = Path(__file__).parent.parent / "data" / "kubernetes"


def recording(name: str) -> Json:
    """One recording of a real API server, e.g. `01-deployment/12b-watch-restart`."""
    loaded: Json = json.loads((RECORDINGS / f"{name}.json").read_text())
    return loaded


class HandClock:
    """A clock that moves when told."""

    def __init__(self) -> None:
        self._passed = 0.0
        self._start = datetime(2026, 11, 29, 16, 27, 1, tzinfo=UTC)

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._passed)

    def monotonic(self) -> float:
        return self._passed

    def move_to(self, when: float) -> None:
        self._passed = max(self._passed, when)


class World:
    """Store, engine and controllers; `events` collects every change of Deployments, ReplicaSets and Pods since `mark()`."""

    def __init__(self, *, nodes: int = 1, scale: float = 1.0, seed: int = 7) -> None:
        self.clock = HandClock()
        self.store = Store(self.clock, randomness=random.Random(seed))
        self.store.admitters.append(admit)
        self.engine = Engine(self.clock, scale=scale)
        self.controllers = Controllers(self.store, self.engine)
        self.create(NAMESPACES, {"metadata": {"name": "default"}})
        self.create(NAMESPACES, {"metadata": {"name": "rec"}})
        for index in range(1, nodes + 1):
            self.create(NODES, node_object(f"node{index}", index=index))
        self.events: list[Json] = []
        self._marked = 0.0
        self.store.subscribe(self._note, DEPLOYMENTS, REPLICA_SETS, PODS)
        self.run(0.2)

    def create(self, kind: Kind, body: Json) -> Json:
        """Store an object as the API server would."""
        return self.store.create(kind, copied(body))

    def mark(self) -> None:
        """Collect from here on."""
        self.events.clear()
        self._marked = self.clock.monotonic()

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end = self.clock.monotonic() + seconds
        while (due := self.engine.next_due()) is not None and due <= end:
            self.clock.move_to(due)
            self.engine.run_due()
        self.clock.move_to(end)

    def run_until(self, condition: Callable[[], bool], within: float = 60.0) -> float:
        """Let time pass until something holds; returns the seconds it took."""
        start = self.clock.monotonic()
        while not condition():
            due = self.engine.next_due()
            assert due is not None, "nothing left to happen"
            assert due <= start + within, "it did not happen in time"
            self.clock.move_to(due)
            self.engine.run_due(1)
        return self.clock.monotonic() - start

    def deploy(self, name: str = "web", **spec: Any) -> Json:
        """The Deployment of the recordings (two replicas, readiness each second, grace 1 s), with changes."""
        template = spec.pop("template", {})
        container = {
            "name": "app",
            "image": "docker.io/local/app:1",
            "imagePullPolicy": "Never",
            "readinessProbe": {"exec": {"command": ["/bin/sh", "-c", "test ! -e /tmp/broken"]}, "periodSeconds": 1},
        } | template.pop("container", {})
        container = {key: value for key, value in container.items() if value is not None}
        metadata = {"labels": {"app": name}} | template.pop("metadata", {})
        body = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "namespace": "rec"} | spec.pop("metadata", {}),
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": metadata,
                    "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]} | template,
                },
            }
            | spec,
        }
        return self.create(DEPLOYMENTS, body)

    def pod(self, name: str = "p", annotations: Json | None = None, container: Json | None = None, **spec: Any) -> Json:
        """A bare pod."""
        app = {"name": "app", "image": "docker.io/local/app:1", "imagePullPolicy": "Never"} | (container or {})
        metadata: Json = {"name": name, "namespace": "rec"}
        if annotations:
            metadata["annotations"] = annotations
        body = {"metadata": metadata, "spec": {"terminationGracePeriodSeconds": 1, "containers": [app]} | spec}
        return self.create(PODS, body)

    def edit(self, name: str, change: Callable[[Json], None]) -> Json:
        """A user's change of a Deployment's spec or metadata."""
        body = copied(self.deployment(name))
        change(body)
        return self.store.update(DEPLOYMENTS, body, part="main")

    def restart(self, name: str, value: str = "1") -> None:
        """`kubectl rollout restart`."""

        def stamp(body: Json) -> None:
            body["spec"]["template"]["metadata"].setdefault("annotations", {})["kubectl.kubernetes.io/restartedAt"] = value

        self.edit(name, stamp)

    def scale(self, name: str, replicas: int) -> None:
        """PATCH /scale."""
        self.edit(name, lambda body: body["spec"].update(replicas=replicas))

    def deployment(self, name: str = "web") -> Json:
        return self.store.get(DEPLOYMENTS, "rec", name)

    def sets(self, name: str = "web") -> list[Json]:
        return self.store.owned(REPLICA_SETS, self.deployment(name)["metadata"]["uid"])

    def pods(self, name: str = "web") -> list[Json]:
        return [pod for item in self.sets(name) for pod in self.store.owned(PODS, item["metadata"]["uid"])]

    def one(self, name: str = "p") -> Json:
        return self.store.get(PODS, "rec", name)

    def told(self, name: str = "") -> list[Json]:
        """Stored events, of one object if named."""
        return [event for event in self.store.list(EVENTS) if not name or event["involvedObject"]["name"] == name]

    def is_done(self, name: str = "web") -> bool:
        """Rolled out, as index.md defines it."""
        body = self.deployment(name)
        status, total = body.get("status") or {}, body["spec"]["replicas"]
        counts = [status.get(key, 0) for key in ("updatedReplicas", "replicas", "availableReplicas")]
        return status.get("observedGeneration", 0) >= body["metadata"]["generation"] and counts == [total] * 3

    def _note(self, change: Change) -> None:
        self.events.append(folded(change, self.clock.monotonic() - self._marked))


def folded(change: Change, at: float) -> Json:
    """A change in the form of the recorded watch files."""
    body = change.object
    entry: Json = {"t": round(at, 3), "type": change.type, "kind": body["kind"], "name": body["metadata"]["name"]}
    if body["kind"] == "Pod":
        status = body.get("status") or {}
        entry["phase"] = status.get("phase")
        if "deletionTimestamp" in body["metadata"]:
            entry["deletionGracePeriodSeconds"] = body["metadata"]["deletionGracePeriodSeconds"]
        entry["conditions"] = {
            item["type"]: " ".join(filter(None, [item["status"], item.get("reason", "")])) for item in status.get("conditions", ())
        }
        entry["containers"] = [folded_container(item) for item in status.get("containerStatuses", ())]
        if "initContainerStatuses" in status:
            entry["init"] = [folded_container(item) for item in status["initContainerStatuses"]]
        return entry
    annotations = body["metadata"].get("annotations", {})
    entry["generation"] = body["metadata"]["generation"]
    entry["spec.replicas"] = body["spec"]["replicas"]
    if body["kind"] == "Deployment":
        entry["revision"] = annotations.get("deployment.kubernetes.io/revision")
    else:
        entry["annotations"] = {key.removeprefix("deployment.kubernetes.io/"): value for key, value in annotations.items()}
    status = dict(body.get("status") or {})
    if "conditions" in status:
        status["conditions"] = [
            {key: item[key] for key in ("type", "status", "reason", "message") if key in item} for item in status["conditions"]
        ]
    entry["status"] = status
    return entry


def folded_container(item: Json) -> Json:
    """A container status in the form of the recorded watch files: no ids, no times."""
    entry = {key: item[key] for key in ("name", "ready", "started", "restartCount", "state")}
    if item["lastState"]:
        entry["lastState"] = item["lastState"]
    return entry


def timeless(entry: Any) -> Any:
    """Without what differs from run to run: times, ids, resourceVersions."""
    if isinstance(entry, dict):
        dropped = ("t", "rv", "startedAt", "finishedAt", "deletionTimestamp", "containerID")
        return {key: timeless(value) for key, value in entry.items() if key not in dropped}
    if isinstance(entry, list):
        return [timeless(item) for item in entry]
    return entry
