"""One container as the kubelet sees it: created, running, ended, waiting to be restarted; and the back-off between restarts.

`advance` does at most what is due at one moment and leaves the Kubernetes state in `state` and `last_state`. It knows nothing
of the API; the kubelet gives it a `Surroundings` for everything outside.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol

from sandbox.controllers.probes import PROBE_KINDS, Probe, failure_text
from sandbox.traffic import Instance, LogBook
from sandbox.workloads import OOM_EXIT, Program, image_exists, pull_error

Json = dict[str, Any]
Step = Literal["create", "pulling", "running", "stopping", "ended", "seen", "backing_off", "done"]

CREATE_S = 0.1
PULL_S = 0.9
SEEN_S = 0.9
"""From the end of a process to the status that says so."""
RESTART_S = 0.1
LOOP_SEEN_S = 1.0
"""From the status `terminated` to the status `CrashLoopBackOff`."""
SLACK_S = 1.5
"""From the end of a back-off to the restart."""
RESYNC_S = 12.5
"""How often the kubelet looks again at a container that it cannot create."""
STOP_S = 0.3
"""What a program that handles SIGTERM takes to stop."""
FIRST_BACKOFF_S = 10.0
LAST_BACKOFF_S = 300.0
_EPOCH = "1970-01-01T00:00:00Z"


class Surroundings(Protocol):
    """What a container asks of the kubelet around it. Times are model seconds of one running clock."""

    def now(self) -> float: ...
    def wall(self) -> datetime: ...
    def stamp_at(self, when: float) -> str: ...
    def event(self, container: Container, type_: str, reason: str, message: str, times: int = 1) -> None: ...
    def missing_configuration(self, container: Container) -> str: ...
    def program(self, container: Container) -> Program: ...
    def started(self, container: Container, program: Program) -> Instance: ...
    def ended(self, instance: Instance) -> None: ...
    def new_id(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def address(self) -> str: ...
    @property
    def grace(self) -> float: ...
    @property
    def restart_policy(self) -> str: ...


@dataclass
class BackOff:
    """Delays between restarts: the first restart is immediate, then 10 s, 20 s … 300 s; forgotten after ten quiet minutes."""

    delay: float = 0.0
    since: float = 0.0

    def wait(self, ended: float, now: float) -> float:
        """Model seconds to wait at `now` before restarting what ended at `ended`. 0 counts as a restart."""
        if not self.delay or ended - self.since > 2 * LAST_BACKOFF_S:
            self.delay, self.since = FIRST_BACKOFF_S, now
            return 0.0
        left = self.delay - (now - ended)
        if left > 0:
            return left
        self.grow(now)
        return 0.0

    def grow(self, now: float) -> None:
        """A restart happened after waiting."""
        self.delay, self.since = min(LAST_BACKOFF_S, 2 * self.delay), now

    @property
    def text(self) -> str:
        """The delay as Go writes durations: 10s, 1m20s, 5m0s."""
        minutes, seconds = divmod(int(self.delay), 60)
        return f"{minutes}m{seconds}s" if minutes else f"{seconds}s"


@dataclass
class Container:
    """State of one container of one pod."""

    spec: Mapping[str, Any]
    init: bool
    main: bool
    at: float
    """When there is something to do next (model seconds)."""
    step: Step = "create"
    state: Json = field(default_factory=dict)
    last_state: Json = field(default_factory=dict)
    ready: bool = False
    started: bool = False
    created: bool = False
    restarts: int = 0
    container_id: str = ""
    instance: Instance | None = None
    began: float = 0.0
    ended_at: float | None = None
    before_ended: float | None = None
    exit: tuple[int, str] = (0, "")
    backoff: BackOff = field(default_factory=BackOff)
    pulls: BackOff = field(default_factory=BackOff)
    probes: list[Probe] = field(default_factory=list)
    log: LogBook = field(default_factory=LogBook)
    by_probe: bool = False
    base: Program = field(default_factory=Program)
    """What it runs without faults, as read when it started."""
    restart_at: float = 0.0
    waited: bool = False

    @property
    def name(self) -> str:
        return str(self.spec["name"])

    @property
    def image(self) -> str:
        return str(self.spec["image"])

    @property
    def succeeded(self) -> bool:
        """Whether it ended for good with exit code 0."""
        return self.step == "done" and self.exit[0] == 0

    def advance(self, around: Surroundings) -> bool:
        """Do what is due. Returns whether anything the status shows may have changed."""
        if self.at > around.now():
            return False
        match self.step:
            case "create":
                self._create(around)
            case "pulling":
                self._back_off_pull(around)
            case "running":
                return self._run(around)
            case "stopping":
                self._end(around, OOM_EXIT, "Error")
                self.at = self.ended_at or around.now()
                return False
            case "ended":
                self._show_end(around)
            case "seen":
                self._show_loop(around)
            case "backing_off":
                self._restart_or_tell(around)
            case _:
                self.at = float("inf")
                return False
        return True

    def stop(self, around: Surroundings) -> float:
        """The pod is being deleted. Returns when the container will have ended."""
        now = around.now()
        if self.instance is None:
            return now
        patient = self.instance.program.ignores_term
        return now + (around.grace if patient else min(STOP_S, around.grace))

    def kill(self, around: Surroundings) -> None:
        """The pod's end: whatever runs ends now, with 137 if it did not handle SIGTERM."""
        if self.instance is not None:
            clean = not self.instance.program.ignores_term
            self._end(around, 0 if clean else OOM_EXIT, "Completed" if clean else "Error")
            self.state = self._terminated(around)
        elif "waiting" in self.state and self.last_state:
            self.state = self.last_state
        elif "running" in self.state:
            self.state = self._terminated(around)
        self.step, self.at, self.ready, self.started = "done", float("inf"), False, False

    def disturb(self, around: Surroundings) -> None:
        """Faults changed: behave accordingly from now on."""
        if self.instance is None or self.step != "running":
            return
        self.instance.program = around.program(self)
        uptime = around.now() - self.began
        for probe in self.probes:
            probe.disturb(uptime)
        self.at = around.now()

    # -- creating ----------------------------------------------------------------------------------------------------------

    def _create(self, around: Surroundings) -> None:
        now = around.now()
        policy = self.spec.get("imagePullPolicy", "IfNotPresent")
        if not image_exists(self.image):
            self._refuse_image(around, never=policy == "Never")
            return
        if policy == "Always" and not self.created:
            around.event(self, "Normal", "Pulling", f'Pulling image "{self.image}"')
            size = "412ms (412ms including waiting). Image size: 31457280 bytes."
            around.event(self, "Normal", "Pulled", f'Successfully pulled image "{self.image}" in {size}')
        else:
            present = "already present on machine and can be accessed by the pod"
            around.event(self, "Normal", "Pulled", f'Container image "{self.image}" {present}')
        missing = around.missing_configuration(self)
        if missing:
            around.event(self, "Warning", "Failed", f"Error: {missing}")
            self._wait("CreateContainerConfigError", missing)
            self.at = now + RESYNC_S
            return
        around.event(self, "Normal", "Created", "Container created")
        if self.created:
            self.restarts += 1
            self.log.turn()
        self.created = True
        self.container_id = around.new_id()
        self._start(around)

    def _refuse_image(self, around: Surroundings, *, never: bool) -> None:
        now = around.now()
        if never:
            why = f'Container image "{self.image}" is not present with pull policy of Never'
            around.event(self, "Warning", "ErrImageNeverPull", why)
            around.event(self, "Warning", "Failed", "Error: ErrImageNeverPull")
            self._wait("ErrImageNeverPull", why)
            self.at = now + RESYNC_S
            return
        why = pull_error(self.image)
        around.event(self, "Normal", "Pulling", f'Pulling image "{self.image}"')
        around.event(self, "Warning", "Failed", f'Failed to pull image "{self.image}": {why}')
        around.event(self, "Warning", "Failed", "Error: ErrImagePull")
        self._wait("ErrImagePull", why)
        if self.pulls.delay:
            self.pulls.grow(now)
        else:
            self.pulls.delay, self.pulls.since = FIRST_BACKOFF_S, now
        self.step, self.at = "pulling", now + RESYNC_S

    def _back_off_pull(self, around: Surroundings) -> None:
        around.event(self, "Normal", "BackOff", f'Back-off pulling image "{self.image}"')
        around.event(self, "Warning", "Failed", "Error: ImagePullBackOff")
        self._wait("ImagePullBackOff", f'Back-off pulling image "{self.image}": ErrImagePull: {pull_error(self.image)}')
        self.step = "create"
        self.at = around.now() + max(RESYNC_S, self.pulls.since + self.pulls.delay + SLACK_S - around.now())

    def _start(self, around: Surroundings) -> None:
        now = around.now()
        program = around.program(self)
        if program.start_error:
            around.event(self, "Warning", "Failed", f"Error: {program.start_error}")
            self.exit = (128, "StartError")
            self.before_ended, self.ended_at = self.ended_at, now
            self.last_state = self._terminated(around, program.start_error)
            self._wait("RunContainerError", program.start_error)
            self._plan_restart(around, LOOP_SEEN_S)
            return
        around.event(self, "Normal", "Started", "Container started")
        self.instance = around.started(self, program)
        self.began = now
        self.state = {"running": {"startedAt": around.stamp_at(now)}}
        self.probes = [Probe.of(kind, self.spec[f"{kind}Probe"]) for kind in PROBE_KINDS if f"{kind}Probe" in self.spec]
        self.by_probe = False
        self.started = not any(probe.kind == "startup" for probe in self.probes)
        self._settle_ready()
        self.step = "running"
        self._plan(around)

    # -- running -----------------------------------------------------------------------------------------------------------

    def _run(self, around: Surroundings) -> bool:
        """Ask the probes that are due and end what is due to end. Returns whether the status changes."""
        instance = self.instance
        if instance is None:
            return False
        now = around.now()
        uptime = now - self.began
        end = _end_of(instance.program, instance.memory_limit)
        if end is not None and end[0] <= uptime + 1e-9:
            instance.log.write(around.wall(), instance.program.last_words)
            self._end(around, end[1], end[2])
            self.step, self.at = "ended", now + SEEN_S
            return False
        before = (self.ready, self.started)
        for probe in self.probes:
            if probe.at is not None and probe.at <= uptime + 1e-9 and (self.started or probe.kind == "startup"):
                self._ask(around, probe, uptime)
                if self.step != "running":
                    return (self.ready, self.started) != before
        self._settle_ready()
        self._plan(around)
        return (self.ready, self.started) != before

    def _ask(self, around: Surroundings, probe: Probe, uptime: float) -> None:
        instance = self.instance
        if instance is None:
            return
        changed, failures = probe.ask(instance.program, uptime)
        if failures and (uptime >= instance.program.startup_s or probe.kind != "readiness"):
            text = failure_text(probe.kind, probe.spec, instance.program, around.address)
            around.event(self, "Warning", "Unhealthy", text, failures)
        gives_up = probe.kind == "startup" and not probe.verdict and probe.streak == 0 and self._startup_failed(probe)
        if changed and probe.kind == "startup" and probe.verdict:
            self.started = True
            for other in self.probes:
                other.disturb(uptime)
        if gives_up or (changed and probe.kind == "liveness"):
            around.event(self, "Normal", "Killing", f"Container {self.name} failed {probe.kind} probe, will be restarted")
            self.by_probe = True
            self.step, self.at = "stopping", around.now() + around.grace

    def _startup_failed(self, probe: Probe) -> bool:
        return probe.told > 0 and probe.told % int(probe.spec.get("failureThreshold", 3)) == 0

    def _settle_ready(self) -> None:
        readiness = [probe for probe in self.probes if probe.kind == "readiness"]
        self.ready = self.started and all(probe.verdict for probe in readiness)
        if self.init:
            self.ready = False

    def _plan(self, around: Surroundings) -> None:
        """When to look at the running container again."""
        instance = self.instance
        if instance is None:
            return
        times = [probe.at for probe in self.probes if probe.at is not None and (self.started or probe.kind == "startup")]
        end = _end_of(instance.program, instance.memory_limit)
        if end is not None:
            times.append(end[0])
        self.at = self.began + min(times, default=float("inf"))

    # -- ending ------------------------------------------------------------------------------------------------------------

    def _end(self, around: Surroundings, code: int, reason: str) -> None:
        self.exit = (code, reason)
        self.before_ended, self.ended_at = self.ended_at, around.now()
        if self.instance is not None:
            around.ended(self.instance)
            self.instance = None
        self.step = "ended"

    def _show_end(self, around: Surroundings) -> None:
        """The end is noticed: the status says terminated, or for a failed probe goes straight to what comes next."""
        self.ready = self.started = False
        again = around.restart_policy == "Always" or (around.restart_policy == "OnFailure" and self.exit[0] != 0)
        if self.init:
            again = self.exit[0] != 0 and around.restart_policy != "Never"
        ended = self._terminated(around)
        if not again:
            self.state, self.step, self.at = ended, "done", float("inf")
            return
        if self.by_probe:
            self._restart_after_probe(around, ended)
            return
        self.state = ended
        self._plan_restart(around, LOOP_SEEN_S)

    def _restart_after_probe(self, around: Surroundings, ended: Json) -> None:
        """The kubelet kills and restarts in one go, so it judges the back-off by the end before this one."""
        self.last_state = ended
        now = around.now()
        wait = 0.0 if self.before_ended is None else self.backoff.wait(self.before_ended, now)
        if wait > 0:
            self._show_loop(around)
            return
        self._create(around)

    def _plan_restart(self, around: Surroundings, seen_after: float) -> None:
        now = around.now()
        if self.backoff.wait(self.ended_at if self.ended_at is not None else now, now) > 0:
            self.step, self.at = "seen", now + seen_after
        else:
            self.step, self.waited = "backing_off", False
            self.restart_at = self.at = now + RESTART_S

    def _show_loop(self, around: Surroundings) -> None:
        if "terminated" in self.state:
            self.last_state = self.state
        self._wait("CrashLoopBackOff", f"back-off {self.backoff.text} restarting failed container={self.name} pod={around.title}")
        self._tell(around)
        self.step, self.waited = "backing_off", True
        self.restart_at = (self.ended_at or 0.0) + self.backoff.delay + SLACK_S
        self.at = min(around.now() + RESYNC_S, self.restart_at)

    def _restart_or_tell(self, around: Surroundings) -> None:
        now = around.now()
        if now < self.restart_at - 1e-9:
            self._tell(around)
            self.at = min(now + RESYNC_S, self.restart_at)
            return
        if self.waited:
            self.backoff.grow(now)
        if "terminated" in self.state:
            self.last_state = self.state
        self._create(around)

    def _tell(self, around: Surroundings) -> None:
        around.event(self, "Warning", "BackOff", f"Back-off restarting failed container {self.name} in pod {around.title}")

    def _terminated(self, around: Surroundings, message: str = "") -> Json:
        code, reason = self.exit
        body: Json = {"exitCode": code, "reason": reason}
        if message:
            body["message"] = message
        body["startedAt"] = _EPOCH if reason == "StartError" else around.stamp_at(self.began)
        body["finishedAt"] = around.stamp_at(self.ended_at if self.ended_at is not None else around.now())
        body["containerID"] = self.container_id
        return {"terminated": body}

    def _wait(self, reason: str, message: str = "") -> None:
        self.state = {"waiting": {"reason": reason} | ({"message": message} if message else {})}
        self.ready = self.started = False


def _end_of(program: Program, memory_limit: float | None) -> tuple[float, int, str] | None:
    """(uptime, exit code, reason) of the program's own end, or None."""
    full = program.out_of_memory_after(memory_limit)
    ends = [] if full is None else [(full, OOM_EXIT, "OOMKilled")]
    if program.exit_after_s is not None:
        ends.append((program.exit_after_s, program.exit_code, "Completed" if program.exit_code == 0 else "Error"))
    return min(ends, default=None)
