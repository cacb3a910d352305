"""What the program in a container does: how it starts, answers probes, serves, leaks, fails and ends, as a function of its uptime.

A `Program` is plain numbers. It comes, later sources over earlier ones, from the image (`sandbox/web`, `sandbox/worker`,
`sandbox/database`, …), from a shell script in the container's command (`echo`, `sleep`, `exit`, `tail /dev/zero` are understood),
from the pod's annotations (`sandbox.dev/leak-bytes-per-s: "200000"`, or `sandbox.dev/<container>.<field>` for another container
than the first), from its environment (`SANDBOX_ERROR_RATIO`) and from ConfigMaps it mounts (key `error-ratio`), the last three
resolved when the container starts: who rotates a Secret sees nothing change until a restart.

    healthy web service      image sandbox/web:1
    crash on start           exit-after-s: "0.2", exit-code: "1", last-words: "fatal: bad config"      (K01, K23)
    ready, but 5xx           error-ratio: "0.4", best in a mounted ConfigMap                            (K05)
    memory leak              leak-bytes-per-s: "200000" with a memory limit                             (K03)
    wedged after a while     wedged-after-s: "600" (slow, still Ready)                                  (P01)
    not ready, not live      unready-after-s: "0", dead-after-s: "30"
    shared pool              pool: "orders-db", connections: "6"; the database has max-connections: "20" (K21)
    stale credential         credential: "db-password" fails once that Secret changed after the start    (P02)
    queue consumer           image sandbox/worker:1, arrivals-rps on the Deployment                      (P05)

All durations are model seconds. Faults injected while running (`sandbox.faults`) replace fields of running programs.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

PREFIX = "sandbox.dev/"
ENV_PREFIX = "SANDBOX_"
MIB = 1 << 20
OOM_EXIT = 137


@dataclass(frozen=True)
class Program:
    """How one container behaves. Times are model seconds of uptime; None means never."""

    startup_s: float = 0.0
    """Until then no probe passes and nothing is served."""
    exit_after_s: float | None = None
    exit_code: int = 1
    last_words: str = ""
    """Printed when it exits, one log line per line."""
    first_words: str = ""
    """Printed when it starts."""
    start_error: str = ""
    """The runtime cannot even start it, and says this."""
    ignores_term: bool = False
    """Runs on until it is killed at the end of its grace period."""
    unready_after_s: float | None = None
    unready_message: str = ""
    dead_after_s: float | None = None
    """From then on the liveness probe fails."""
    dead_message: str = ""
    never_started: bool = False
    """The startup probe never passes."""
    memory_bytes: float = 24 * MIB
    leak_bytes_per_s: float = 0.0
    leak_from_s: float = 0.0
    cpu_idle: float = 0.002
    cpu_busy: float = 0.0
    """Cores at full load; 0 means its CPU limit, or half a core."""
    serves: bool = False
    consumes: bool = False
    """Takes messages from a queue instead of answering requests."""
    capacity_rps: float = 100.0
    latency_s: float = 0.02
    """Mean time to answer when idle."""
    error_ratio: float = 0.0
    wedged_after_s: float | None = None
    wedged_latency_s: float = 2.5
    wedged_error_ratio: float = 0.0
    wedged_capacity: float = 0.2
    """Share of its capacity that is left when wedged."""
    pool: str = ""
    """Deployment whose connection pool it uses, in the same namespace."""
    connections: float = 0.0
    connections_leak_per_s: float = 0.0
    max_connections: float = 0.0
    """Being a database: how many connections it accepts."""
    credential: str = ""
    """Secret it read when it started; once that changed, it cannot log in."""

    def starts(self, uptime: float) -> bool:
        """Whether the startup probe passes."""
        return not self.never_started and uptime >= self.startup_s

    def ready(self, uptime: float) -> bool:
        """Whether the readiness probe passes."""
        return self.starts(uptime) and (self.unready_after_s is None or uptime < self.unready_after_s)

    def alive(self, uptime: float) -> bool:
        """Whether the liveness probe passes."""
        return self.dead_after_s is None or uptime < self.dead_after_s

    def wedged(self, uptime: float) -> bool:
        """Whether it is Ready but stuck."""
        return self.wedged_after_s is not None and uptime >= self.wedged_after_s

    def memory(self, uptime: float) -> float:
        """Bytes in use."""
        return self.memory_bytes + self.leak_bytes_per_s * max(0.0, uptime - self.leak_from_s)

    def connections_held(self, uptime: float) -> float:
        """Connections to its pool."""
        return self.connections + self.connections_leak_per_s * uptime

    def out_of_memory_after(self, limit: float | None) -> float | None:
        """Uptime at which memory reaches `limit` bytes, or None."""
        if limit is None:
            return None
        if self.memory_bytes >= limit:
            return 0.3
        if self.leak_bytes_per_s <= 0:
            return None
        return self.leak_from_s + (limit - self.memory_bytes) / self.leak_bytes_per_s

    def changes_after(self, uptime: float) -> float | None:
        """The next uptime at which a probe's answer can change by itself, or None."""
        ahead = [at for at in (self.startup_s, self.unready_after_s, self.dead_after_s) if at is not None and at > uptime]
        return min(ahead, default=None)


_FIELDS = {field.name: field.type for field in fields(Program)}

_WEB = Program(startup_s=0.7, serves=True, memory_bytes=64 * MIB, first_words="listening on :8080")
IMAGES: Mapping[str, Program] = {
    "sandbox/web": _WEB,
    "sandbox/app": _WEB,
    "sandbox/worker": Program(startup_s=0.5, consumes=True, capacity_rps=20.0, memory_bytes=48 * MIB, first_words="consuming"),
    "sandbox/database": Program(
        startup_s=1.0, memory_bytes=128 * MIB, max_connections=20.0, first_words="ready to accept connections"
    ),
    "sandbox/idle": Program(),
    "docker.io/local/app": Program(ignores_term=True, first_words="app v1 ready"),
}
"""Programs by repository. Any other image runs an idle program."""
_CRASHING_TAGS = frozenset({"crash", "broken"})
_ABSENT = re.compile(r"(^127\.0\.0\.1:1/|/none(:|$)|:(missing|absent|no-such-tag)[^/]*$)")


def image_exists(image: str) -> bool:
    """Whether a registry has this image. Missing: anything at 127.0.0.1:1, a repository `none`, tags `missing…`, `absent…`."""
    return _ABSENT.search(image) is None


def pull_error(image: str) -> str:
    """What the runtime says when it cannot pull `image`."""
    repository, tag = _split(image)
    host, _, path = repository.partition("/")
    reason = f'failed to resolve reference "{image}"'
    if host == "127.0.0.1:1":
        url = f"http://{host}/v2/{path}/manifests/{tag}"
        reason += f': failed to do request: Head "{url}": dial tcp {host}: connect: connection refused'
    else:
        reason += f": {image}: not found"
    return f'failed to pull and unpack image "{image}": {reason}'


def program_of(image: str, container: Mapping[str, Any], settings: Iterable[Mapping[str, str]] = ()) -> Program:
    """The program that `container` runs; each of `settings` overrides the one before (keys in any of the three spellings).

    Raises:
        ValueError: a setting names no field of a program or has a value of the wrong form.
    """
    repository, tag = _split(image)
    program = IMAGES.get(repository, Program())
    if tag in _CRASHING_TAGS or (repository == "docker.io/local/app" and tag == "2"):
        program = replace(program, exit_after_s=0.0, last_words="start $\nfatal: db refused", first_words="")
    program = _scripted(program, [*(container.get("command") or ()), *(container.get("args") or ())])
    for layer in settings:
        program = configured(program, layer)
    return program


def configured(program: Program, settings: Mapping[str, Any]) -> Program:
    """`program` with fields replaced. Keys are written `error_ratio`, `error-ratio` or `ERROR_RATIO`.

    Raises:
        ValueError: unknown field or malformed value.
    """
    changes = {}
    for key, value in settings.items():
        name = key.lower().replace("-", "_")
        if name not in _FIELDS:
            raise ValueError(f"no program has a setting {key!r}; known are: {', '.join(sorted(_FIELDS))}")
        changes[name] = _parsed(name, value)
    return replace(program, **changes)


def settings_in(mapping: Mapping[str, str], *, prefix: str = "") -> dict[str, str]:
    """Those entries of `mapping` that are program settings, e.g. of a ConfigMap's data; others are left alone."""
    found = {}
    for key, value in mapping.items():
        if key.startswith(prefix):
            name = key.removeprefix(prefix)
            if name.lower().replace("-", "_") in _FIELDS:
                found[name] = value
    return found


def annotated_settings(annotations: Mapping[str, str], container: str, *, main: bool) -> dict[str, str]:
    """Settings of one container from pod annotations: `sandbox.dev/FIELD` for the main one, `sandbox.dev/NAME.FIELD` for any."""
    found = settings_in(annotations, prefix=PREFIX) if main else {}
    return found | settings_in(annotations, prefix=f"{PREFIX}{container}.")


def _parsed(name: str, value: Any) -> Any:
    form = str(_FIELDS[name])
    text = str(value)
    try:
        if value is None or (text == "" and "None" in form):
            return None
        if form == "bool":
            return {"true": True, "false": False}[text.lower()]
        if form == "str":
            return text
        return int(text) if form == "int" else float(text)
    except (KeyError, ValueError):
        raise ValueError(f"setting {name!r}: {text!r} is not of type {form}") from None


def _split(image: str) -> tuple[str, str]:
    name = image.partition("@")[0]
    repository, colon, tag = name.rpartition(":")
    return (repository, tag) if colon and "/" not in tag else (name, "latest")


def _scripted(program: Program, command: list[str]) -> Program:
    if not command:
        return program
    if command[0].startswith("/") and not command[0].startswith(("/bin/", "/usr/", "/app")):
        why = f'exec: "{command[0]}": stat {command[0]}: no such file or directory: unknown'
        runtime = "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed"
        return replace(program, start_error=f"{runtime}: unable to start container process: {why}")
    if command[0] not in ("/bin/sh", "sh") or len(command) < 3 or command[1] != "-c":
        return program
    return _read_script(replace(program, ignores_term=True, first_words=""), command[2])


def _read_script(program: Program, script: str) -> Program:
    """The few shell statements the recordings use; what follows one that is not understood is taken to run for ever."""
    said: list[str] = []
    clock = 0.0
    for statement in script.split(";"):
        words = shlex.split(statement)
        if not words:
            continue
        match words[0]:
            case "echo":
                said.append(" ".join(word for word in words[1:] if word != ">&2").replace("$$", "$"))
            case "sleep":
                clock += float(words[1])
            case "exit":
                code = int(words[1]) if len(words) > 1 else 0
                return replace(program, exit_after_s=clock, exit_code=code, last_words="\n".join(said))
            case "tail" if words[-1] == "/dev/zero":
                return replace(program, first_words="\n".join(said), leak_from_s=clock, leak_bytes_per_s=1e12)
            case "touch" if words[-1] == "/tmp/dead":
                program = replace(program, dead_after_s=clock)
            case _:
                break
    return replace(program, first_words="\n".join(said))
