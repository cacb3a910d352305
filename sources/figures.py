"""Figures and classes computed from readings. Pure, and the same for whoever judges by them.

Each function says what it needs and answers None, or nothing, where a part is missing: no figure is made from a missing sample.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from statistics import median

from pydantic import Field

from catalog.documents import Document, Instant
from sources.readings import ContainerReading, Measure, PodReading, WorkloadReading

RECENT = timedelta(minutes=15)
RELEASE_WINDOW = timedelta(minutes=60)
CLOCK_SKEW = timedelta(seconds=5)
HORIZON_SECONDS = 3600.0
NEAR_LIMIT = 0.90
GROWTH_OF_LIMIT = 0.03
OUTLIER_FACTOR = 3.0
SERIOUS_ERRORS = 0.05
RATIO_TOLERANCE = 1.1
SATURATED = 0.80
GROWN = 1.3
LAG_SECONDS = 120.0
MINIMUM_TREND_SAMPLES = 4

_IMAGE = frozenset({"ImagePullBackOff", "ErrImagePull", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError"})
_CONFIG = frozenset({"CreateContainerConfigError", "CreateContainerError"})
_CANNOT_START = frozenset({"StartError", "ContainerCannotRun"})
_PROBE_KILL = re.compile(r"(liveness|startup) probe", re.IGNORECASE)
_SIGNALLED = frozenset({137, 143})


class TroubleKind(StrEnum):
    """What is wrong with one pod, as Kubernetes itself says it."""

    IMAGE = "image"
    CONFIG = "config"
    VOLUME = "volume"
    CANNOT_START = "cannot_start"
    OUT_OF_MEMORY = "out_of_memory"
    PROBE_KILL = "probe_kill"
    CRASH = "crash"
    KILLED = "killed"
    UNSCHEDULABLE = "unschedulable"
    UNREADY = "unready"


class Trouble(Document):
    """One pod's trouble, the most telling one."""

    kind: TroubleKind
    pod: str
    container: str = ""
    newest: bool | None = None
    detail: str = ""
    exit_code: int | None = None
    at: Instant | None = None
    ran_seconds: float | None = None


class Forecast(Document):
    """Where one pod's memory is going. Bytes, and bytes per second."""

    pod: str
    used: float
    limit: int
    slope: float | None = None
    seconds_left: float | None = Field(default=None, description="to the limit at this slope; None: it does not grow")

    @property
    def share(self) -> float:
        return self.used / self.limit

    @property
    def exhausting(self) -> bool:
        """It grows, and reaches its limit within the horizon."""
        return self.seconds_left is not None and self.seconds_left <= HORIZON_SECONDS


def troubles(workload: WorkloadReading) -> tuple[Trouble, ...]:
    """The trouble of every unhealthy pod that was read; at most one per pod.

    A container that restarted counts only while it waits to be started again or ended within the last fifteen minutes: the
    number of restarts says nothing about now.
    """
    found = (_trouble(pod, workload) for pod in workload.pods)
    return tuple(trouble for trouble in found if trouble is not None)


def released_before(workload: WorkloadReading, instant: datetime) -> bool | None:
    """Whether a release began within the hour before `instant`. What came after it is no cause of it.

    None: the revisions could not be read.
    """
    if "replica_sets" in workload.unreadable or not workload.revisions:
        return None
    at = workload.released_at
    if at is None:
        return False
    return instant - RELEASE_WINDOW <= at <= instant + CLOCK_SKEW


def rolling_out(workload: WorkloadReading) -> bool:
    """A roll-out is under way and still within its progress deadline."""
    progressing = workload.condition("Progressing")
    failed = progressing is not None and progressing.status == "False"
    return workload.rolling and not failed and not workload.paused and workload.desired != 0


def stood_still(workload: WorkloadReading, seconds: float) -> bool:
    """Nothing about the workload changed in the last `seconds`: a scraped figure should agree with it by now."""
    times = [condition.at for condition in workload.conditions] + [pod.unready_since or pod.created_at for pod in workload.pods]
    times.append(workload.replicas_set_at)
    since = workload.read_at - timedelta(seconds=seconds)
    return not workload.rolling and all(at is None or at <= since for at in times)


def exporter_contradiction(workload: WorkloadReading, measures: Mapping[str, Measure]) -> str:
    """In words, how kube-state-metrics differs from the API though nothing changed for two minutes; '' when it does not."""
    if not stood_still(workload, LAG_SECONDS):
        return ""
    for name, words, here in (
        ("exported_replicas", "replicas wanted", workload.desired),
        ("exported_available", "replicas available", workload.available),
    ):
        measure = measures.get(name)
        if measure is None or measure.total is None or here is None or int(measure.total) == here:
            continue
        return f"kube-state-metrics says {measure.total:.0f} {words}, the API says {here}: its data are frozen"
    return ""


def quota_refusal(workload: WorkloadReading) -> str:
    """The API's words when it refuses pods of the workload for a quota; '' when it does not."""
    failure = workload.condition("ReplicaFailure")
    if failure is not None and failure.status == "True" and "exceeded quota" in failure.message:
        return failure.message
    if (workload.available or 0) >= (workload.desired or 0):
        return ""
    events = (event.message for event in workload.events if event.reason == "FailedCreate")
    return next((message for message in events if "exceeded quota" in message), "")


def forecasts(workload: WorkloadReading, measures: Mapping[str, Measure]) -> tuple[Forecast, ...]:
    """Memory of each pod that has a limit and a good sample. A slope from too few samples, or within noise, is none."""
    used, slope, samples = (measures.get(name) for name in ("memory", "memory_slope", "memory_samples"))
    if used is None:
        return ()
    found = []
    for pod in workload.pods:
        limit = pod.memory_limit
        value = used.by_pod.get(pod.name)
        if limit is None or value is None or limit <= 0:
            continue
        rate = None
        if slope is not None and samples is not None and samples.by_pod.get(pod.name, 0) >= MINIMUM_TREND_SAMPLES:
            rate = slope.by_pod.get(pod.name)
        grows = rate is not None and slope is not None and rate * slope.window_seconds >= GROWTH_OF_LIMIT * limit
        left = max(0.0, limit - value) / rate if grows and rate else None
        found.append(Forecast(pod=pod.name, used=value, limit=limit, slope=rate, seconds_left=left))
    return tuple(found)


def memory_steady(found: tuple[Forecast, ...]) -> bool | None:
    """Every pod is well below its limit and does not grow. None: nothing to tell it by."""
    if not found or any(forecast.slope is None for forecast in found):
        return None
    return all(forecast.seconds_left is None and forecast.share < NEAR_LIMIT for forecast in found)


def cpu_shares(workload: WorkloadReading, measures: Mapping[str, Measure]) -> dict[str, float]:
    """CPU used by each pod as a share of what it may use (limit, else request)."""
    cpu = measures.get("cpu")
    if cpu is None:
        return {}
    bounds = {pod.name: pod.cpu_bound for pod in workload.pods}
    return {name: value / bound for name, value in cpu.by_pod.items() if (bound := bounds.get(name))}


def utilisation(workload: WorkloadReading, measures: Mapping[str, Measure]) -> float | None:
    """Median share of CPU over the pods, None without a good sample."""
    shares = cpu_shares(workload, measures)
    return median(shares.values()) if shares else None


def error_ratio(requests: Measure | None, errors: Measure | None) -> float | None:
    """Share of requests that failed. No series of errors beside good requests means no error; no requests means nothing.

    More errors than requests (beyond what two rates of one counter may differ) is no ratio either.
    """
    if requests is None or errors is None or errors.unknown not in ("", "empty"):
        return None
    return _share(errors.total or 0.0, requests.total)


def error_ratios(requests: Measure | None, errors: Measure | None) -> dict[str, float]:
    """Error ratio of each pod that has traffic."""
    if requests is None or errors is None or errors.unknown not in ("", "empty"):
        return {}
    shares = {pod: _share(errors.by_pod.get(pod, 0.0), total) for pod, total in requests.by_pod.items()}
    return {pod: share for pod, share in shares.items() if share is not None}


def _share(part: float, whole: float | None) -> float | None:
    if not whole or whole < 0 or not 0 <= part / whole <= RATIO_TOLERANCE:
        return None
    return min(1.0, part / whole)


def traffic_growth(measures: Mapping[str, Measure]) -> float | None:
    """How many times the usual traffic now comes in. None without both samples, or when the usual is nothing."""
    now, usual = measures.get("requests"), measures.get("requests_usual")
    if now is None or usual is None or now.total is None or not usual.total:
        return None
    return now.total / usual.total


def high_outlier(by_pod: Mapping[str, float], *, floor: float) -> tuple[str, float] | None:
    """The one pod that stands out upward: at least `floor`, three times the median of at least two siblings, none other near."""
    if len(by_pod) < 3:
        return None
    worst = max(by_pod, key=lambda pod: (by_pod[pod], pod))
    others = [value for pod, value in by_pod.items() if pod != worst]
    usual = median(others)
    bound = max(floor, OUTLIER_FACTOR * usual)
    if by_pod[worst] < bound or max(others) >= bound:
        return None
    return worst, by_pod[worst] / usual if usual > 0 else math.inf


def low_outlier(by_pod: Mapping[str, float]) -> str | None:
    """The one pod that does almost nothing while at least two siblings share the work evenly."""
    if len(by_pod) < 3:
        return None
    least = min(by_pod, key=lambda pod: (by_pod[pod], pod))
    others = [value for pod, value in by_pod.items() if pod != least]
    usual = median(others)
    return least if usual > 0 and by_pod[least] <= 0.1 * usual and min(others) >= 0.5 * usual else None


def single_outlier(workload: WorkloadReading, measures: Mapping[str, Measure]) -> tuple[str, str] | None:
    """(pod, what is odd about it) when exactly one pod differs from its healthy siblings; None otherwise.

    Looked for in the metrics first, then in readiness; only pods of this reading count.
    """
    found = metric_outlier(workload, measures)
    if found is not None:
        return found
    unready = idle_pod(workload)
    return (unready, "it runs without restarts and is not ready, its siblings are") if unready else None


def idle_pod(workload: WorkloadReading) -> str | None:
    """The one pod that runs without being ready while every other is ready, at least two of them of its own revision."""
    unready = [pod for pod in workload.pods if not pod.ready]
    if len(unready) != 1 or not _running(unready[0]) or not _comparable(unready[0].name, workload):
        return None
    return unready[0].name


def metric_outlier(workload: WorkloadReading, measures: Mapping[str, Measure]) -> tuple[str, str] | None:
    """(pod, what is odd about it) when one live pod stands out in latency, errors or work done, in this order.

    A pod of another revision than its siblings is no outlier: it runs other code.
    """
    found = _metric_outlier(workload, measures)
    return found if found is not None and _comparable(found[0], workload) else None


def _metric_outlier(workload: WorkloadReading, measures: Mapping[str, Measure]) -> tuple[str, str] | None:
    live = set(workload.pod_names)
    latency = measures.get("latency")
    if latency is not None:
        found = high_outlier({pod: value for pod, value in latency.by_pod.items() if pod in live}, floor=0.05)
        if found:
            times = f"{found[1]:.0f} times" if math.isfinite(found[1]) else "far above"
            return found[0], f"p99 latency {latency.by_pod[found[0]]:.2f} s, {times} its siblings'"
    ratios = {pod: value for pod, value in error_ratios(measures.get("requests"), measures.get("errors")).items() if pod in live}
    found = high_outlier(ratios, floor=0.2)
    if found:
        return found[0], f"{ratios[found[0]]:.0%} of its requests fail, its siblings' do not"
    requests = measures.get("requests")
    idle = low_outlier({pod: value for pod, value in requests.by_pod.items() if pod in live}) if requests else None
    if idle:
        return idle, "it serves almost nothing while its siblings share the traffic"
    return None


def _comparable(name: str, workload: WorkloadReading) -> bool:
    """At least two other pods come from the same revision (of pods beyond those read, nothing speaks against it)."""
    owners = {pod.name: pod.owner_uid for pod in workload.pods}
    if name not in owners:
        return workload.pods_total > len(workload.pods)
    return sum(1 for owner in owners.values() if owner == owners[name]) >= 3


def _running(pod: PodReading) -> bool:
    own = [container for container in pod.containers if not container.init]
    return bool(own) and all(container.state == "running" for container in own)


def _trouble(pod: PodReading, workload: WorkloadReading) -> Trouble | None:
    if pod.unschedulable:
        return Trouble(kind=TroubleKind.UNSCHEDULABLE, pod=pod.name, newest=pod.newest, detail=pod.unschedulable)
    for container in pod.containers:
        kind = _container_trouble(container, pod, workload)
        if kind is not None:
            ended = container.ended
            return Trouble(
                kind=kind,
                pod=pod.name,
                container=container.name,
                newest=pod.newest,
                detail=_detail(kind, container),
                exit_code=ended.exit_code if ended else None,
                at=ended.at if ended else None,
                ran_seconds=ended.ran_seconds if ended else None,
            )
    mount = next((event for event in workload.events if event.name == pod.name and event.reason == "FailedMount"), None)
    if mount is not None and not pod.ready:
        return Trouble(kind=TroubleKind.VOLUME, pod=pod.name, newest=pod.newest, detail=mount.message, at=mount.at)
    if not pod.ready and _running(pod):
        return Trouble(kind=TroubleKind.UNREADY, pod=pod.name, newest=pod.newest, detail="runs, is not ready", at=pod.unready_since)
    return None


def _container_trouble(container: ContainerReading, pod: PodReading, workload: WorkloadReading) -> TroubleKind | None:
    if container.waiting in _IMAGE:
        return TroubleKind.IMAGE
    if container.waiting in _CONFIG:
        return TroubleKind.CONFIG
    ended = container.ended
    if ended is None or (container.init and container.ready):
        return None
    looping = container.waiting in ("CrashLoopBackOff", "RunContainerError") or container.state == "terminated"
    fresh = ended.at is not None and workload.read_at - ended.at <= RECENT and container.restarts > 0
    if not (looping or fresh):
        return None
    if ended.reason == "OOMKilled":
        return TroubleKind.OUT_OF_MEMORY
    if ended.reason in _CANNOT_START or ended.exit_code in (126, 127, 128):
        return TroubleKind.CANNOT_START
    if ended.exit_code in _SIGNALLED:
        return TroubleKind.PROBE_KILL if _probe_killed(pod, workload) else TroubleKind.KILLED
    if ended.exit_code == 0 and not looping:
        return None
    return TroubleKind.CRASH


def _probe_killed(pod: PodReading, workload: WorkloadReading) -> bool:
    return any(
        event.name == pod.name and event.reason in ("Unhealthy", "Killing") and _PROBE_KILL.search(event.message)
        for event in workload.events
    )


def _detail(kind: TroubleKind, container: ContainerReading) -> str:
    if kind in (TroubleKind.IMAGE, TroubleKind.CONFIG):
        return f"{container.waiting}: {container.message}" if container.message else container.waiting
    ended = container.ended
    if ended is None:
        return container.waiting
    ran = f" after {ended.ran_seconds:.0f} s" if ended.ran_seconds is not None else ""
    code = f", exit code {ended.exit_code}" if ended.exit_code is not None else ""
    return f"{ended.reason or 'ended'}{code}{ran}"
