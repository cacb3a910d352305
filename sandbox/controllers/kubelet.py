"""All kubelets in one: pods on nodes come up, run, fail, are restarted and go away, and say so in status, events and logs.

For each pod there is a `_PodRun`, the truth about its containers; the stored status is written from it. A node whose kubelet is
dead is simply not served: what was written last stays, and is stale.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sandbox.controllers.containers import CREATE_S, SEEN_S, Container
from sandbox.controllers.engine import Engine, Key
from sandbox.controllers.environments import Environments, missing_volume
from sandbox.controllers.facts import controller_of, is_finished, is_terminating, stamp
from sandbox.controllers.podstatus import phase_of, pod_status
from sandbox.controllers.quantities import quantity
from sandbox.controllers.recorder import Recorder
from sandbox.faults import Faults
from sandbox.hooks import LogLine, LogUnavailable
from sandbox.kinds import NODES, PODS, REPLICA_SETS
from sandbox.statuses import NotFound
from sandbox.store import Store
from sandbox.traffic import Instance, Traffic, Workload
from sandbox.workloads import Program

Json = dict[str, Any]

ADMIT_S = 0.02
SANDBOX_S = 0.1
QUIET_S = 0.2
"""What it takes to take down a pod in which nothing runs."""
REMOVE_S = 0.5
"""From the end of a deleted pod's containers, as told in its status, to its removal."""
_FIRST_MOUNT_RETRY_S = 0.5
_LAST_MOUNT_RETRY_S = 122.0


@dataclass(frozen=True)
class KubeletParts:
    """What kubelets work with. `randomness` gives container ids and the small differences in how long things take."""

    store: Store
    engine: Engine
    recorder: Recorder
    traffic: Traffic
    faults: Faults
    environments: Environments
    randomness: random.Random


@dataclass
class _PodRun:
    """One pod on its node."""

    uid: str
    workload: Workload
    node: str
    at: float
    """When the next step of coming up is due (model seconds)."""
    stage: str = "new"
    address: str = ""
    started_at: str = ""
    containers: list[Container] = field(default_factory=list)
    mount_retry: float = _FIRST_MOUNT_RETRY_S
    kill_at: float | None = None
    ended_at: float | None = None
    told_end: bool = False
    stale: bool = False
    """The stored status may not be what this kubelet wrote last."""
    pace: float = 1.0
    """No two pods take exactly the same time."""
    settled_at: float | None = None

    @property
    def killed(self) -> bool:
        return self.ended_at is not None


class Kubelet:
    """The controller `kubelet`; also the source of logs for the API server."""

    name = "kubelet"

    def __init__(self, parts: KubeletParts) -> None:
        self._parts = parts
        self._store = parts.store
        self._engine = parts.engine
        self._traffic = parts.traffic
        self._faults = parts.faults
        self._runs: dict[Key, _PodRun] = {}
        self._addresses = 0

    def sync(self, key: Key) -> float | None:
        pod = self._store.find(PODS, *key)
        run = self._runs.get(key)
        if run is not None and (pod is None or pod["metadata"]["uid"] != run.uid):
            self._drop(key, run)
            run = None
        if pod is None or not pod["spec"].get("nodeName"):
            return None
        if run is None:
            if is_finished(pod):
                return None
            run = self._runs[key] = self._begin(pod)
        if run.node in self._faults.dead_nodes:
            return None
        around = _Around(self._parts, self, pod, run)
        if is_terminating(pod):
            return self._take_down(pod, run, around)
        changed = self._bring_up(pod, run, around)
        self._serve(run, pod)
        if changed or run.stale:
            run.stale = False
            self._write(pod, run, around)
        return self._pause(run)

    def lines(self, pod: Json, container: str, *, previous: bool) -> Sequence[LogLine] | None:
        """What a container wrote (see `hooks.LogSource`).

        Raises:
            LogUnavailable: the pod's node does not answer.
        """
        node = pod["spec"].get("nodeName", "")
        if self._faults.unreachable_logs or node in self._faults.dead_nodes:
            raise LogUnavailable(f'Get "https://{node}:10250/containerLogs": dial tcp {node}:10250: connect: connection refused')
        run = self._runs.get((pod["metadata"]["namespace"], pod["metadata"]["name"]))
        found = next((item for item in run.containers if item.name == container), None) if run else None
        if run is None or found is None:
            return None if previous else ()
        self._traffic.settle(run.workload)
        written = found.log.previous if previous else found.log.current
        if written is None:
            return None
        return [LogLine(at, text.encode() + b"\n") for at, text in written]

    def disturb(self, workload: Workload) -> None:
        """Faults of a workload changed: its pods behave accordingly at once."""
        for key, run in self._runs.items():
            if run.workload != workload:
                continue
            pod = self._store.find(PODS, *key)
            if pod is None:
                continue
            self._traffic.settle(workload)
            around = _Around(self._parts, self, pod, run)
            for container in run.containers:
                container.disturb(around)
            self._engine.changed(self.name, key)

    def node_changed(self, node: str) -> None:
        """A node died or came back: its containers are cut off or not, and its kubelet looks at its pods again."""
        dead = node in self._faults.dead_nodes
        for instance in self._traffic:
            if instance.node == node:
                self._traffic.settle(instance.workload)
                instance.reachable = not dead
        for key, run in self._runs.items():
            if run.node == node:
                run.stale = run.stage == "up"
                self._engine.changed(self.name, key)

    def configuration_changed(self, namespace: str) -> None:
        """A ConfigMap or Secret changed: containers that wait for one look again at their next turn, mounts at once."""
        for key, run in self._runs.items():
            if key[0] == namespace and (run.stage == "admitted" or any(_waits_for_configuration(item) for item in run.containers)):
                run.at = min(run.at, self.now())
                for item in run.containers:
                    if _waits_for_configuration(item):
                        item.at = self.now()
                self._engine.changed(self.name, key)

    def pods_of(self, workload: Workload) -> tuple[str, ...]:
        """uids of the pods of a workload that are on nodes."""
        return tuple(run.uid for run in self._runs.values() if run.workload == workload)

    def now(self) -> float:
        """Model seconds on a clock that only grows."""
        return self._engine.model(self._engine.monotonic())

    # -- coming up -------------------------------------------------------------------------------------------------------

    def _begin(self, pod: Json) -> _PodRun:
        run = _PodRun(pod["metadata"]["uid"], self._workload_of(pod), pod["spec"]["nodeName"], self.now() + ADMIT_S)
        run.pace = self._parts.randomness.uniform(1.0, 1.6)
        never = float("inf")
        inits = [Container(spec, init=True, main=False, at=never) for spec in pod["spec"].get("initContainers") or ()]
        apps = [
            Container(spec, init=False, main=index == 0, at=never) for index, spec in enumerate(pod["spec"].get("containers") or ())
        ]
        run.containers = [*inits, *apps]
        for item in run.containers:
            item.state = {"waiting": {"reason": "PodInitializing" if inits else "ContainerCreating"}}
        return run

    def _bring_up(self, pod: Json, run: _PodRun, around: _Around) -> bool:
        """Do what is due. Returns whether the status may have changed."""
        now = self.now()
        if run.stage != "up" and run.at > now:
            return False
        match run.stage:
            case "new":
                run.stage, run.at = "admitted", now + SANDBOX_S * self._parts.randomness.uniform(1.0, 1.6)
                run.started_at = stamp(self._engine.clock.now())
                return True
            case "admitted":
                return self._mount(pod, run)
        self._next_containers(run)
        changes = [item.advance(around) for item in run.containers]
        self._next_containers(run)
        return any(changes) or self._settle_end(run)

    def _mount(self, pod: Json, run: _PodRun) -> bool:
        now = self.now()
        missing = missing_volume(self._store, pod)
        if missing:
            volume, why = missing
            text = f'MountVolume.SetUp failed for volume "{volume}" : {why}'
            self._parts.recorder.kubelet(pod, run.node, "Warning", "FailedMount", text)
            run.at = now + run.mount_retry
            run.mount_retry = min(_LAST_MOUNT_RETRY_S, 2 * run.mount_retry)
            return False
        self._addresses += 1
        run.address = f"10.88.{self._addresses // 250 % 250}.{self._addresses % 250 + 2}"
        run.stage, run.at = "up", float("inf")
        self._next_containers(run)
        return True

    def _next_containers(self, run: _PodRun) -> None:
        """Let the next init container, or all others, be created."""
        start = self.now() + CREATE_S * run.pace
        for item in run.containers:
            if item.init and not item.succeeded:
                if item.step == "create" and not item.created and item.at == float("inf"):
                    item.at = start
                return
        for item in run.containers:
            if not item.init and item.step == "create" and not item.created and item.at == float("inf"):
                item.at = start

    def _settle_end(self, run: _PodRun) -> bool:
        """A pod whose containers ended for good becomes Succeeded or Failed a moment later."""
        if not run.containers or any(item.step != "done" for item in run.containers if not item.init):
            return False
        if run.settled_at is None:
            run.settled_at = self.now() + SEEN_S
            return False
        return self.now() >= run.settled_at

    def _pause(self, run: _PodRun) -> float | None:
        """Model seconds until something is due, or None."""
        times = [run.at if run.stage != "up" else float("inf"), *(item.at for item in run.containers)]
        if run.settled_at is not None and run.settled_at > self.now():
            times.append(run.settled_at)
        soonest = min(times)
        return None if soonest == float("inf") else max(0.0, soonest - self.now())

    # -- going away ------------------------------------------------------------------------------------------------------

    def _take_down(self, pod: Json, run: _PodRun, around: _Around) -> float | None:
        now = self.now()
        metadata = pod["metadata"]
        if run.kill_at is None:
            run.kill_at = max((item.stop(around) for item in run.containers), default=now)
            for item in run.containers:
                if item.instance is not None:
                    around.event(item, "Normal", "Killing", f"Stopping container {item.name}")
            self._serve(run, pod)
            self._write(pod, run, around)
        if run.ended_at is None:
            if now < run.kill_at - 1e-9:
                return run.kill_at - now
            quiet = all(item.instance is None for item in run.containers)
            for item in run.containers:
                item.kill(around)
            run.ended_at = now + (QUIET_S if quiet else SEEN_S * run.pace)
        if now < run.ended_at - 1e-9:
            return run.ended_at - now
        if not run.told_end:
            run.told_end = True
            self._write(pod, run, around)
            return REMOVE_S
        if now < run.ended_at + REMOVE_S - 1e-9:
            return run.ended_at + REMOVE_S - now
        try:
            self._store.delete(PODS, metadata["namespace"], metadata["name"], uid=run.uid, grace=0)
        except NotFound:
            return None
        return None

    def _drop(self, key: Key, run: _PodRun) -> None:
        for item in run.containers:
            if item.instance is not None:
                self._traffic.remove(item.instance)
        del self._runs[key]

    # -- telling ---------------------------------------------------------------------------------------------------------

    def _write(self, pod: Json, run: _PodRun, around: _Around) -> None:
        node = self._store.find(NODES, "", run.node)
        addresses = ((node or {}).get("status") or {}).get("addresses") or ()
        host = next((item["address"] for item in addresses if item["type"] == "InternalIP"), "")
        settled = run.settled_at is not None and self.now() >= run.settled_at
        status = pod_status(
            pod,
            run.containers,
            phase=phase_of(run.containers, killed=run.told_end, settled=settled),
            sandboxed=run.stage == "up",
            address=run.address,
            host=host,
            started_at=run.started_at or stamp(self._engine.clock.now()),
            now=stamp(self._engine.clock.now()),
        )
        self._store.patch_status(PODS, pod["metadata"]["namespace"], pod["metadata"]["name"], status)

    def _serve(self, run: _PodRun, pod: Json) -> None:
        """Put containers in or out of service."""
        for item in run.containers:
            instance = item.instance
            wanted = item.ready and not is_terminating(pod)
            if instance is not None and instance.in_service != wanted:
                self._traffic.settle(run.workload)
                instance.in_service = wanted

    def _workload_of(self, pod: Json) -> Workload:
        namespace = pod["metadata"]["namespace"]
        owner = controller_of(pod)
        if owner is None:
            return (namespace, pod["metadata"]["name"])
        if owner["kind"] == "ReplicaSet":
            parent = self._store.find(REPLICA_SETS, namespace, owner["name"])
            above = controller_of(parent) if parent else None
            if above is not None:
                return (namespace, above["name"])
        return (namespace, owner["name"])


class _Around:
    """What one container sees of its pod and node (`containers.Surroundings`)."""

    def __init__(self, parts: KubeletParts, kubelet: Kubelet, pod: Json, run: _PodRun) -> None:
        self._parts = parts
        self._kubelet = kubelet
        self._pod = pod
        self._run = run

    def now(self) -> float:
        return self._kubelet.now()

    def wall(self) -> datetime:
        return self._parts.engine.clock.now()

    def stamp_at(self, when: float) -> str:
        ago = self._parts.engine.real(self.now() - when)
        return stamp(self.wall() - timedelta(seconds=ago))

    def event(self, container: Container, type_: str, reason: str, message: str, times: int = 1) -> None:
        path = f"spec.{'initContainers' if container.init else 'containers'}{{{container.name}}}"
        self._parts.recorder.kubelet(self._pod, self._run.node, type_, reason, message, path=path, times=times)

    def missing_configuration(self, container: Container) -> str:
        return self._parts.environments.missing(self._pod, container)

    def program(self, container: Container) -> Program:
        """The program of a container with the faults of now. What it read at its start stays as read."""
        engine = self._parts.engine
        started = container.instance.started if container.instance else engine.monotonic()
        if container.instance is None:
            container.base = self._parts.environments.program(self._pod, container)
        return self._parts.faults.applied(
            container.base,
            namespace=self._run.workload[0],
            workload=self._run.workload[1],
            pod=self._pod["metadata"]["name"],
            uid=self._run.uid,
            started=started,
            scale=engine.scale,
        )

    def started(self, container: Container, program: Program) -> Instance:
        limits = (container.spec.get("resources") or {}).get("limits") or {}
        instance = Instance(
            workload=self._run.workload,
            pod=self._pod["metadata"]["name"],
            uid=self._run.uid,
            node=self._run.node,
            container=container.name,
            program=program,
            started=self._parts.engine.monotonic(),
            log=container.log,
            cpu_limit=float(quantity(limits["cpu"])) if "cpu" in limits else None,
            memory_limit=float(quantity(limits["memory"])) if "memory" in limits else None,
            secret=self._parts.environments.secret_version(self._run.workload[0], program.credential),
        )
        instance.log.write(self.wall(), program.first_words)
        self._parts.traffic.add(instance)
        return instance

    def ended(self, instance: Instance) -> None:
        self._parts.traffic.remove(instance)

    def new_id(self) -> str:
        return f"containerd://{self._parts.randomness.getrandbits(256):064x}"

    @property
    def title(self) -> str:
        metadata = self._pod["metadata"]
        return f"{metadata['name']}_{metadata['namespace']}({metadata['uid']})"

    @property
    def address(self) -> str:
        return self._run.address

    @property
    def grace(self) -> float:
        metadata = self._pod["metadata"]
        return float(metadata.get("deletionGracePeriodSeconds", self._pod["spec"].get("terminationGracePeriodSeconds", 30)))

    @property
    def restart_policy(self) -> str:
        return str(self._pod["spec"].get("restartPolicy", "Always"))


def _waits_for_configuration(item: Container) -> bool:
    return bool(item.state.get("waiting", {}).get("reason") == "CreateContainerConfigError")
