"""The Deployment controller: ReplicaSets by template, rolled over within maxSurge and maxUnavailable.

Follows the controller of Kubernetes 1.36 step by step, because readers depend on its intermediate states: ReplicaSets are read
once at the start of a sync and the status is computed from that reading; a sync that already wrote the Deployment (a new
revision) leaves the rest of the status to the next one, so for a moment the old, complete-looking counts stand beside the new
generation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sandbox.controllers import rollouts
from sandbox.controllers.engine import Engine, Key
from sandbox.controllers.facts import (
    annotations_of,
    condition_of,
    controller_of,
    is_finished,
    is_terminating,
    labels_of,
    stamp,
)
from sandbox.controllers.recorder import Recorder
from sandbox.kinds import DEPLOYMENTS, PODS, REPLICA_SETS
from sandbox.shelves import copied
from sandbox.statuses import AlreadyExists
from sandbox.store import Store

Json = dict[str, Any]

COMPONENT = "deployment-controller"
_PROGRESSING = "Progressing"


@dataclass
class _Rollout:
    """One sync's view. `written` becomes true once the Deployment was written: what else there is to write waits for the next sync,
    as a second write of the real controller fails on its stale resourceVersion."""

    deployment: Json
    sets: list[Json]
    newest: Json | None = None
    written: bool = False

    @property
    def old(self) -> list[Json]:
        name = self.newest["metadata"]["name"] if self.newest else None
        return [item for item in self.sets if item["metadata"]["name"] != name]

    @property
    def all(self) -> list[Json]:
        return [*self.old, *([self.newest] if self.newest else [])]


class _Behind(Exception):
    """A ReplicaSet's status does not yet show its last scaling: whoever scales on it would go too far. Look again."""


class DeploymentController:
    """Keeps ReplicaSets as Deployments ask for."""

    name = "deployment"

    def __init__(self, store: Store, engine: Engine, recorder: Recorder) -> None:
        self._store = store
        self._engine = engine
        self._recorder = recorder
        self._progressed: dict[Key, float] = {}
        """clock.monotonic of the last Progressing update: lastUpdateTime has whole seconds only."""

    def sync(self, key: Key) -> float | None:
        deployment = self._store.find(DEPLOYMENTS, *key)
        if deployment is None:
            self._progressed.pop(key, None)
            return None
        uid = deployment["metadata"]["uid"]
        view = _Rollout(deployment, [item for item in self._store.owned(REPLICA_SETS, uid) if _controls(uid, item)])
        if is_terminating(deployment):
            self._find_newest(view, create=False)
            self._write_status(view, rollouts.status_of(view.deployment, view.all, view.newest), available=True)
            return None
        try:
            return self._advance(view)
        except _Behind:
            self._engine.changed(self.name, key)
            return None

    def _advance(self, view: _Rollout) -> float | None:
        self._note_pause(view)
        if view.deployment["spec"].get("paused") or self._is_resized(view):
            return self._resize(view)
        if rollouts.is_rolling(view.deployment):
            return self._roll(view)
        return self._recreate(view)

    # -- the two strategies ----------------------------------------------------------------------------------------------

    def _roll(self, view: _Rollout) -> float | None:
        self._find_newest(view, create=True)
        newest = view.newest
        if newest is None:
            return None
        size = rollouts.new_set_size(view.deployment, view.all, newest)
        total = rollouts.replicas_of(view.deployment)
        if rollouts.replicas_of(newest) > total:
            size = total
        if self._scale(view, newest, size) or self._shrink_old(view, newest):
            return self._report(view)
        self._clean_up(view)
        return self._report(view)

    def _recreate(self, view: _Rollout) -> float | None:
        self._find_newest(view, create=False)
        scaled = [self._scale(view, item, 0) for item in view.old if rollouts.replicas_of(item)]
        if any(scaled) or self._old_pods_run(view):
            return self._report(view)
        if view.newest is None:
            self._find_newest(view, create=True)
        if view.newest is not None:
            self._scale(view, view.newest, rollouts.replicas_of(view.deployment))
        self._clean_up(view)
        return self._report(view)

    def _shrink_old(self, view: _Rollout, newest: Json) -> bool:
        deployment = view.deployment
        old = sorted((item for item in view.old if rollouts.replicas_of(item)), key=rollouts.age_key)
        if not old:
            return False
        least = rollouts.replicas_of(deployment) - rollouts.bounds(deployment)[1]
        unavailable = rollouts.replicas_of(newest) - rollouts.counted([newest], "availableReplicas")
        room = rollouts.wanted_by(view.all) - least - unavailable
        if room <= 0:
            return False
        if any(rollouts.counted([item], "availableReplicas") > rollouts.replicas_of(item) for item in old):
            raise _Behind
        sizes = {item["metadata"]["name"]: rollouts.replicas_of(item) for item in old}
        _unhealthy_first(old, sizes, room)
        _then_available(old, sizes, rollouts.counted(view.all, "availableReplicas") - least)
        scaled = [self._scale(view, item, sizes[item["metadata"]["name"]]) for item in old]
        return any(scaled)

    def _old_pods_run(self, view: _Rollout) -> bool:
        if rollouts.counted(view.old, "replicas"):
            return True
        return any(not is_finished(pod) for item in view.old for pod in self._store.owned(PODS, item["metadata"]["uid"]))

    # -- scaling and pausing ---------------------------------------------------------------------------------------------

    def _is_resized(self, view: _Rollout) -> bool:
        wanted = str(rollouts.replicas_of(view.deployment))
        active = [item for item in view.sets if rollouts.replicas_of(item)]
        return any(annotations_of(item).get(rollouts.DESIRED, wanted) != wanted for item in active)

    def _resize(self, view: _Rollout) -> float | None:
        self._find_newest(view, create=False)
        total = rollouts.replicas_of(view.deployment)
        active = [item for item in view.all if rollouts.replicas_of(item)]
        single = self._single(view, active)
        if single is not None:
            self._scale(view, single, total, remember=True)
        elif view.newest is not None and self._is_saturated(view):
            for item in view.old:
                self._scale(view, item, 0)
        elif rollouts.is_rolling(view.deployment):
            sizes = rollouts.proportions(view.deployment, active)
            for item in active:
                self._scale(view, item, sizes[item["metadata"]["name"]], remember=True)
        if view.deployment["spec"].get("paused"):
            self._clean_up(view)
        self._write_status(view, rollouts.status_of(view.deployment, view.all, view.newest), available=True)
        return None

    def _single(self, view: _Rollout, active: Sequence[Json]) -> Json | None:
        """The only ReplicaSet with replicas, or, if none has any, the newest there is."""
        if len(active) == 1:
            return active[0]
        if active:
            return None
        if view.newest is not None:
            return view.newest
        return max(view.old, key=rollouts.age_key, default=None)

    def _is_saturated(self, view: _Rollout) -> bool:
        total = rollouts.replicas_of(view.deployment)
        newest = view.newest
        if newest is None:
            return False
        sized = annotations_of(newest).get(rollouts.DESIRED) == str(total)
        return sized and rollouts.replicas_of(newest) == total == rollouts.counted([newest], "availableReplicas")

    def _note_pause(self, view: _Rollout) -> None:
        deployment = view.deployment
        if "progressDeadlineSeconds" not in deployment["spec"]:
            return
        current = condition_of(deployment, _PROGRESSING)
        if current and current["reason"] == "ProgressDeadlineExceeded":
            return
        noted = bool(current and current["reason"] == "DeploymentPaused")
        paused = bool(deployment["spec"].get("paused"))
        if paused == noted:
            return
        reason, message = ("DeploymentPaused", "is paused") if paused else ("DeploymentResumed", "is resumed")
        status = copied(deployment.get("status") or {})
        status.setdefault("conditions", [])
        rollouts.set_condition(status, _PROGRESSING, "Unknown", reason, f"Deployment {message}", self._progress_stamp(deployment))
        self._store.patch_status(DEPLOYMENTS, *_key(deployment), status)
        view.written = True

    # -- ReplicaSets -----------------------------------------------------------------------------------------------------

    def _find_newest(self, view: _Rollout, *, create: bool) -> None:
        """Find (or make) the ReplicaSet of the present template, and bring revisions and copied annotations up to date."""
        deployment = view.deployment
        view.newest = rollouts.newest_set(deployment, view.sets)
        revision = max((rollouts.revision_of(item) for item in view.old), default=0) + 1
        if view.newest is not None:
            self._reuse(view, view.newest, revision)
        elif create:
            self._make(view, revision)

    def _reuse(self, view: _Rollout, newest: Json, revision: int) -> None:
        deployment = view.deployment
        wanted = rollouts.set_annotations(deployment, annotations_of(newest), revision, exists=True)
        ready_after = deployment["spec"].get("minReadySeconds", 0)
        if wanted != annotations_of(newest) or newest["spec"].get("minReadySeconds", 0) != ready_after:
            body = copied(newest)
            body["metadata"]["annotations"] = wanted
            if ready_after:
                body["spec"]["minReadySeconds"] = ready_after
            else:
                body["spec"].pop("minReadySeconds", None)
            view.newest = newest = self._replace(view, self._store.update(REPLICA_SETS, body))
        status = copied(deployment.get("status") or {})
        status.setdefault("conditions", [])
        found = f'Found new replica set "{newest["metadata"]["name"]}"'
        if "progressDeadlineSeconds" in deployment["spec"] and condition_of(deployment, _PROGRESSING) is None:
            rollouts.set_condition(status, _PROGRESSING, "True", "FoundNewReplicaSet", found, self._progress_stamp(deployment))
        self._write_revision(view, annotations_of(newest).get(rollouts.REVISION, ""), status)

    def _make(self, view: _Rollout, revision: int) -> None:
        deployment = view.deployment
        status = copied(deployment.get("status") or {})
        status.setdefault("conditions", [])
        body = _replica_set(deployment, int(status.get("collisionCount", 0)))
        body["spec"]["replicas"] = rollouts.new_set_size(deployment, view.sets, None)
        body["metadata"]["annotations"] = rollouts.set_annotations(deployment, {}, revision, exists=False)
        try:
            view.newest = self._store.create(REPLICA_SETS, body)
        except AlreadyExists:
            status["collisionCount"] = int(status.get("collisionCount", 0)) + 1
            self._store.patch_status(DEPLOYMENTS, *_key(deployment), status)
            raise
        view.sets.append(view.newest)
        name, size = view.newest["metadata"]["name"], rollouts.replicas_of(view.newest)
        if size:
            self._event(deployment, f"Scaled up replica set {name} from 0 to {size}")
        if "progressDeadlineSeconds" in deployment["spec"]:
            made = f'Created new replica set "{name}"'
            rollouts.set_condition(status, _PROGRESSING, "True", "NewReplicaSetCreated", made, self._progress_stamp(deployment))
        self._write_revision(view, str(revision), status)

    def _write_revision(self, view: _Rollout, revision: str, status: Json) -> None:
        stored = view.deployment
        annotations = {**annotations_of(stored), rollouts.REVISION: revision}
        if not status.get("conditions"):
            status.pop("conditions", None)
        if view.written or (annotations == annotations_of(stored) and status == (stored.get("status") or {})):
            return
        body = {**stored, "metadata": {**stored["metadata"], "annotations": annotations}, "status": status}
        view.deployment = self._store.update(DEPLOYMENTS, body, part="status")
        view.written = True

    def _scale(self, view: _Rollout, item: Json, size: int, *, remember: bool = False) -> bool:
        """Set a ReplicaSet's size and the annotations that remember it. Returns whether the size changed.

        `remember` writes the annotations even where the size is right already.
        """
        before = rollouts.replicas_of(item)
        wanted = {**annotations_of(item), **rollouts.scale_annotations(view.deployment)}
        if before == size and not (remember and wanted != annotations_of(item)):
            return False
        body = copied(item)
        body["spec"]["replicas"] = size
        body["metadata"]["annotations"] = wanted
        self._store.update(REPLICA_SETS, body)
        if before == size:
            return False
        way = "up" if size > before else "down"
        self._event(view.deployment, f"Scaled {way} replica set {item['metadata']['name']} from {before} to {size}")
        return True

    def _replace(self, view: _Rollout, item: Json) -> Json:
        name = item["metadata"]["name"]
        view.sets = [item if other["metadata"]["name"] == name else other for other in view.sets]
        return item

    def _clean_up(self, view: _Rollout) -> None:
        complete = rollouts.is_complete(view.deployment, view.deployment.get("status") or {})
        if not complete and not view.deployment["spec"].get("paused"):
            return
        for item in rollouts.leftovers(view.deployment, view.old):
            self._store.delete(REPLICA_SETS, *_key(item), uid=item["metadata"]["uid"])

    # -- status ----------------------------------------------------------------------------------------------------------

    def _report(self, view: _Rollout) -> float | None:
        """Write counts and conditions. Returns model seconds to the progress deadline while one is running."""
        if view.written:
            self._engine.changed(self.name, _key(view.deployment))
            return None
        deployment = view.deployment
        before = deployment.get("status") or {}
        status = rollouts.status_of(deployment, view.all, view.newest)
        self._set_available(deployment, status)
        if "progressDeadlineSeconds" in deployment["spec"]:
            self._note_progress(view, before, status)
        else:
            rollouts.drop_condition(status, _PROGRESSING)
        failure = rollouts.failure_of(view.all, view.newest)
        if failure:
            why = failure["message"]
            rollouts.set_condition(
                status, "ReplicaFailure", failure["status"], failure["reason"], why, stamp(self._engine.clock.now())
            )
        else:
            rollouts.drop_condition(status, "ReplicaFailure")
        self._write_status(view, status, available=False)
        return self._until_deadline(view, status)

    def _note_progress(self, view: _Rollout, before: Json, status: Json) -> None:
        deployment = view.deployment
        current = condition_of(deployment, _PROGRESSING)
        settled = status.get("replicas", 0) == status.get("updatedReplicas", 0)
        if settled and current and current["reason"] == "NewReplicaSetAvailable":
            return
        what = (
            f'ReplicaSet "{view.newest["metadata"]["name"]}"' if view.newest else f'Deployment "{deployment["metadata"]["name"]}"'
        )
        if rollouts.is_complete(deployment, status):
            outcome = ("True", "NewReplicaSetAvailable", f"{what} has successfully progressed.")
            rollouts.set_condition(status, _PROGRESSING, *outcome, self._progress_stamp(deployment))
        elif rollouts.has_progressed(before, status):
            outcome = ("True", "ReplicaSetUpdated", f"{what} is progressing.")
            rollouts.set_condition(status, _PROGRESSING, *outcome, self._progress_stamp(deployment), refresh=True)
        elif self._is_late(deployment, current):
            outcome = ("False", "ProgressDeadlineExceeded", f"{what} has timed out progressing.")
            rollouts.set_condition(status, _PROGRESSING, *outcome, stamp(self._engine.clock.now()))

    def _is_late(self, deployment: Json, current: Json | None) -> bool:
        if current is None or current["reason"] == "NewReplicaSetAvailable":
            return False
        return current["reason"] == "ProgressDeadlineExceeded" or self._time_left(deployment) <= 0

    def _time_left(self, deployment: Json) -> float:
        """Model seconds to the progress deadline."""
        since = self._progressed.setdefault(_key(deployment), self._engine.monotonic())
        passed = self._engine.model(self._engine.monotonic() - since)
        return float(deployment["spec"]["progressDeadlineSeconds"]) - passed

    def _until_deadline(self, view: _Rollout, status: Json) -> float | None:
        current = next((item for item in status["conditions"] if item["type"] == _PROGRESSING), None)
        if current is None or current["reason"] in ("NewReplicaSetAvailable", "ProgressDeadlineExceeded"):
            return None
        if rollouts.is_complete(view.deployment, status):
            return None
        return max(0.0, self._time_left(view.deployment)) + 0.001

    def _set_available(self, deployment: Json, status: Json) -> None:
        now = stamp(self._engine.clock.now())
        rollouts.set_condition(status, "Available", *rollouts.availability(deployment, status), now)

    def _write_status(self, view: _Rollout, status: Json, *, available: bool) -> None:
        if view.written:
            self._engine.changed(self.name, _key(view.deployment))
            return
        if available:
            self._set_available(view.deployment, status)
        stored = view.deployment.get("status") or {}
        if "collisionCount" in stored:
            status["collisionCount"] = stored["collisionCount"]
        self._store.patch_status(DEPLOYMENTS, *_key(view.deployment), status)

    def _progress_stamp(self, deployment: Json) -> str:
        """The present time as text, remembered as the time of the last progress."""
        self._progressed[_key(deployment)] = self._engine.monotonic()
        return stamp(self._engine.clock.now())

    def _event(self, deployment: Json, message: str) -> None:
        self._recorder.controller(deployment, COMPONENT, "Normal", "ScalingReplicaSet", message)


def _unhealthy_first(old: Sequence[Json], sizes: dict[str, int], room: int) -> None:
    """Take away replicas that are not available, oldest set first, at most `room`."""
    for item in old:
        name = item["metadata"]["name"]
        sick = sizes[name] - rollouts.counted([item], "availableReplicas")
        take = min(room, max(0, sick))
        sizes[name] -= take
        room -= take


def _then_available(old: Sequence[Json], sizes: dict[str, int], spare: int) -> None:
    """Take away at most `spare` more, oldest set first."""
    for item in old:
        name = item["metadata"]["name"]
        take = min(max(0, spare), sizes[name])
        sizes[name] -= take
        spare -= take


def _replica_set(deployment: Json, collisions: int) -> Json:
    spec = deployment["spec"]
    metadata = deployment["metadata"]
    hashed = rollouts.template_hash(spec["template"], collisions)
    template = copied(spec["template"])
    template["metadata"] = {**(template.get("metadata") or {})}
    template["metadata"]["labels"] = {**(template["metadata"].get("labels") or {}), rollouts.HASH_LABEL: hashed}
    selector = copied(spec["selector"])
    selector["matchLabels"] = {**(selector.get("matchLabels") or {}), rollouts.HASH_LABEL: hashed}
    owner = {
        "apiVersion": deployment["apiVersion"],
        "kind": deployment["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    body: Json = {
        "metadata": {
            "name": f"{metadata['name']}-{hashed}",
            "namespace": metadata["namespace"],
            "labels": labels_of({"metadata": template["metadata"]}),
            "ownerReferences": [owner],
        },
        "spec": {"replicas": 0},
    }
    if spec.get("minReadySeconds"):
        body["spec"]["minReadySeconds"] = spec["minReadySeconds"]
    body["spec"] |= {"selector": selector, "template": template}
    body["status"] = {"replicas": 0}
    return body


def _controls(uid: str, item: Json) -> bool:
    owner = controller_of(item)
    return owner is not None and owner["uid"] == uid


def _key(obj: Json) -> Key:
    return (obj["metadata"]["namespace"], obj["metadata"]["name"])
