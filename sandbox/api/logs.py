"""GET pods/NAME/log: the parameters, refusals and cuts of a kubelet, over lines that a `LogSource` keeps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sandbox.api.calls import Answer, Call, Stream
from sandbox.api.plane import ControlPlane
from sandbox.decoding import DecodeError, read_time
from sandbox.hooks import LogLine, LogUnavailable
from sandbox.kinds import PODS
from sandbox.statuses import BadRequest, InternalError, Json
from sandbox.validating import Problems

FOLLOW_POLL_S = 0.2
_TEXT = "text/plain"


@dataclass(frozen=True)
class LogOptions:
    """What part of a log is wanted."""

    container: str
    previous: bool
    follow: bool
    timestamps: bool
    tail: int | None
    limit_bytes: int | None
    since_seconds: int | None
    since_time: str | None


def read_log(plane: ControlPlane, call: Call) -> Answer | Stream:
    """The log of one container; 204 while the pod is on no node.

    Raises:
        NotFound: no such pod. Invalid, BadRequest: as the kubelet words it. InternalError: the kubelet cannot be asked.
    """
    pod = plane.store.get(PODS, call.namespace, call.path.name)
    options = _options(call)
    container = _container(pod, options)
    if not pod["spec"].get("nodeName"):
        return Answer(204, b"", "")
    _refuse_waiting(pod, container, options)
    lines = _lines(plane, pod, container, options)
    if lines is None:
        name = call.path.name
        if options.previous:
            raise BadRequest(f'previous terminated container "{container}" in pod "{name}" not found')
        raise BadRequest(f'container "{container}" in pod "{name}" is waiting to start: ContainerCreating')
    if options.follow:
        return Stream(_follow(plane, call, container, options, lines), _TEXT)
    return Answer(200, selected(lines, options, plane.store.clock.now()), _TEXT)


def _options(call: Call) -> LogOptions:
    query = call.query
    options = LogOptions(
        container=query.get("container", ""),
        previous=_flag(query.get("previous")),
        follow=_flag(query.get("follow")),
        timestamps=_flag(query.get("timestamps")),
        tail=_integer(query.get("tailLines"), "tailLines"),
        limit_bytes=_integer(query.get("limitBytes"), "limitBytes"),
        since_seconds=_integer(query.get("sinceSeconds"), "sinceSeconds"),
        since_time=query.get("sinceTime"),
    )
    problems = Problems()
    if options.tail is not None and options.tail < 0:
        problems.invalid("tailLines", options.tail, "must be greater than or equal to 0")
    if options.limit_bytes is not None and options.limit_bytes < 1:
        problems.invalid("limitBytes", options.limit_bytes, "must be greater than 0")
    if options.since_seconds is not None and options.since_time is not None:
        problems.forbidden("[]", "at most one of `sinceTime` or `sinceSeconds` may be specified")
    elif options.since_seconds is not None and options.since_seconds < 1:
        problems.invalid("sinceSeconds", options.since_seconds, "must be greater than 0")
    if query.get("stream", "All") != "All":
        problems.forbidden("stream", "may not be specified")
    problems.raise_for("PodLogOptions", call.path.name, {"name": call.path.name, "kind": "PodLogOptions"})
    return options


def _flag(text: str | None) -> bool:
    return text in ("1", "true", "True")


def _integer(text: str | None, name: str) -> int | None:
    if text is None:
        return None
    if not text.lstrip("-").isdecimal():
        raise BadRequest(f'{name}: strconv.ParseInt: parsing "{text}": invalid syntax')
    return int(text)


def _container(pod: Json, options: LogOptions) -> str:
    spec, name = pod["spec"], pod["metadata"]["name"]
    names = [item["name"] for item in spec.get("containers", ())]
    every = [*names, *(item["name"] for item in spec.get("initContainers", ()))]
    if options.container:
        if options.container not in every:
            raise BadRequest(f"container {options.container} is not valid for pod {name}")
        return options.container
    preferred = pod["metadata"].get("annotations", {}).get("kubectl.kubernetes.io/default-container")
    if preferred in names:
        return str(preferred)
    if len(names) > 1:
        choices = " ".join(names)
        also = [item["name"] for item in spec.get("initContainers", ())]
        more = f" or one of the init containers: [{' '.join(also)}]" if also else ""
        raise BadRequest(f"a container name must be specified for pod {name}, choose one of: [{choices}]{more}")
    return str(names[0])


def _refuse_waiting(pod: Json, container: str, options: LogOptions) -> None:
    statuses = (*pod.get("status", {}).get("containerStatuses", ()), *pod.get("status", {}).get("initContainerStatuses", ()))
    status = next((item for item in statuses if item["name"] == container), None)
    if status is None:
        return
    ran = "terminated" in status.get("lastState", {})
    name = pod["metadata"]["name"]
    if options.previous and not ran:
        raise BadRequest(f'previous terminated container "{container}" in pod "{name}" not found')
    waiting = status.get("state", {}).get("waiting")
    if waiting is not None and not ran:
        reason = waiting.get("reason") or "ContainerCreating"
        raise BadRequest(f'container "{container}" in pod "{name}" is waiting to start: {reason}')


def _lines(plane: ControlPlane, pod: Json, container: str, options: LogOptions) -> Sequence[LogLine] | None:
    try:
        return plane.hooks.logs.lines(pod, container, previous=options.previous)
    except LogUnavailable as unavailable:
        error = InternalError(str(unavailable))
        error.reason = ""
        raise error from unavailable


def selected(lines: Sequence[LogLine], options: LogOptions, now: datetime) -> bytes:
    """The bytes of the window: since, then the last lines, then the first `limit_bytes` of those.

    A last line without its newline is not shown yet.
    """
    chosen = [line for line in lines if line.text.endswith(b"\n") and line.at >= _since(options, now)]
    if options.tail is not None:
        chosen = chosen[len(chosen) - min(options.tail, len(chosen)) :]
    text = b"".join(_written(line, options) for line in chosen)
    return text if options.limit_bytes is None else text[: options.limit_bytes]


def _since(options: LogOptions, now: datetime) -> datetime:
    if options.since_seconds is not None:
        return now - timedelta(seconds=options.since_seconds)
    if options.since_time is not None:
        try:
            return datetime.fromisoformat(read_time(options.since_time))
        except DecodeError as error:
            raise BadRequest(str(error)) from error
    return datetime.min.replace(tzinfo=now.tzinfo)


def _written(line: LogLine, options: LogOptions) -> bytes:
    if not options.timestamps:
        return line.text
    return line.at.strftime("%Y-%m-%dT%H:%M:%S.%f000Z ").encode() + line.text


async def _follow(
    plane: ControlPlane, call: Call, container: str, options: LogOptions, lines: Sequence[LogLine]
) -> AsyncGenerator[bytes, None]:
    yield selected(lines, options, plane.store.clock.now())
    seen = max((line.at for line in lines if line.text.endswith(b"\n")), default=plane.store.clock.now())
    while not options.previous:
        pod = plane.store.find(PODS, call.namespace, call.path.name)
        if pod is None:
            return
        new = [line for line in _lines(plane, pod, container, options) or () if line.at > seen and line.text.endswith(b"\n")]
        if new:
            seen = new[-1].at
            yield b"".join(_written(line, options) for line in new)
        elif _ended(pod, container):
            return
        await asyncio.sleep(FOLLOW_POLL_S)


def _ended(pod: Json, container: str) -> bool:
    status = pod.get("status", {})
    if status.get("phase") in ("Succeeded", "Failed"):
        return True
    return any(item["name"] == container and "terminated" in item.get("state", {}) for item in status.get("containerStatuses", ()))
