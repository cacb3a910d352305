"""The status of a pod as a kubelet writes it, from the state of its containers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sandbox.controllers.containers import Container

Json = dict[str, Any]

IMAGE_ID = "sha256:b46bc04000504708d082c6c910aee85d54b9192780f27d8527ba73c0963909f3"


def pod_status(
    pod: Json,
    containers: Sequence[Container],
    *,
    phase: str,
    sandboxed: bool,
    address: str,
    host: str,
    started_at: str,
    now: str,
) -> Json:
    """A whole status. Conditions keep their lastTransitionTime while their status stays the same."""
    stored = pod.get("status") or {}
    generation = pod["metadata"].get("generation", 1)
    status: Json = {"observedGeneration": generation, "phase": phase}
    wanted = _conditions(containers, phase, sandboxed=sandboxed and phase not in ("Succeeded", "Failed"))
    status["conditions"] = _with_times(wanted, stored.get("conditions") or (), generation, now)
    if host:
        status |= {"hostIP": host, "hostIPs": [{"ip": host}]}
    if address:
        status |= {"podIP": address, "podIPs": [{"ip": address}]}
    status["startTime"] = started_at
    inits = [container_status(item) for item in containers if item.init]
    if inits:
        status["initContainerStatuses"] = inits
    status["containerStatuses"] = [container_status(item) for item in containers if not item.init]
    status["qosClass"] = stored.get("qosClass", "BestEffort")
    return status


def container_status(item: Container) -> Json:
    """One entry of containerStatuses."""
    ready = item.ready or (item.init and item.succeeded)
    body: Json = {
        "name": item.name,
        "state": item.state,
        "lastState": item.last_state,
        "ready": ready,
        "restartCount": item.restarts,
        "image": item.image,
        "imageID": IMAGE_ID if item.created else "",
    }
    if item.created:
        body["containerID"] = item.container_id
    body["started"] = item.started
    if item.created:
        resources = item.spec.get("resources") or {}
        if resources.get("requests"):
            body["allocatedResources"] = dict(resources["requests"])
        body["resources"] = {key: dict(resources[key]) for key in ("limits", "requests") if resources.get(key)}
    if item.spec.get("volumeMounts"):
        body["volumeMounts"] = list(item.spec["volumeMounts"])
    return body


def phase_of(containers: Iterable[Container], *, killed: bool, settled: bool) -> str:
    """The phase. `killed`: the pod was deleted and everything has ended; `settled`: the end has been seen for a while."""
    apps = [item for item in containers if not item.init]
    inits = [item for item in containers if item.init]
    failed_init = any(item.step == "done" and item.exit[0] != 0 for item in inits)
    ended = all(item.step == "done" for item in apps)
    if killed or ((ended or failed_init) and settled):
        good = all(item.step == "done" and item.exit[0] == 0 and item.created for item in apps)
        return "Succeeded" if good else "Failed"
    if any(not item.succeeded for item in inits):
        return "Pending"
    return "Running" if all(item.created for item in apps) else "Pending"


def _conditions(containers: Sequence[Container], phase: str, *, sandboxed: bool) -> list[tuple[str, str, str, str]]:
    apps = [item for item in containers if not item.init]
    unready = [item.name for item in apps if not item.ready]
    incomplete = [item.name for item in containers if item.init and not item.succeeded]
    ended = bool(apps) and all(item.step == "done" for item in apps)
    over = {"Succeeded": "PodCompleted", "Failed": "PodFailed"}.get(phase, "")
    if ended and not over:
        over = "PodCompleted" if all(item.exit[0] == 0 for item in apps) else "PodFailed"
    if over:
        ready = ("False", over, "")
    elif unready:
        ready = ("False", "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]")
    else:
        ready = ("True", "", "")
    initialized = ("True", "PodCompleted" if over == "PodCompleted" else "", "")
    if incomplete:
        initialized = ("False", "ContainersNotInitialized", f"containers with incomplete status: [{' '.join(incomplete)}]")
    pod_ready = ("False", ready[1] or "ContainersNotReady", ready[2]) if incomplete and not unready else ready
    return [
        ("PodReadyToStartContainers", "True" if sandboxed else "False", "", ""),
        ("Initialized", *initialized),
        ("Ready", *pod_ready),
        ("ContainersReady", *ready),
        ("PodScheduled", "True", "", ""),
    ]


def _with_times(
    wanted: Iterable[tuple[str, str, str, str]], stored: Sequence[Mapping[str, Any]], generation: int, now: str
) -> list[Json]:
    before = {item["type"]: item for item in stored}
    conditions = []
    for type_, value, reason, message in wanted:
        known = before.pop(type_, None)
        changed = known["lastTransitionTime"] if known and known["status"] == value else now
        body: Json = {"type": type_, "observedGeneration": generation, "status": value, "lastProbeTime": None}
        body["lastTransitionTime"] = changed
        if reason:
            body["reason"] = reason
        if message:
            body["message"] = message
        conditions.append(body)
    return conditions + [dict(item) for item in before.values()]
