"""Which series of a result speak of the target: label matchers made from the alert, that survive replaced pods.

An alert names a pod; the action replaces it, and the series of the new pod must count as the same target. So a pod name
becomes a regular expression over the names that the workload's controller gives to its pods.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from catalog.orders import SeriesMatcher
from catalog.targets import Target, TargetKind

WORKLOAD_LABELS: dict[TargetKind, tuple[str, ...]] = {
    TargetKind.DEPLOYMENT: ("deployment",),
    TargetKind.STATEFULSET: ("statefulset",),
    TargetKind.DAEMONSET: ("daemonset",),
    TargetKind.REPLICASET: ("replicaset",),
    TargetKind.JOB: ("job_name",),
    TargetKind.CRONJOB: ("cronjob",),
    TargetKind.POD: (),
    TargetKind.NODE: ("node", "instance"),
    TargetKind.SERVICE: ("service",),
    TargetKind.PERSISTENT_VOLUME_CLAIM: ("persistentvolumeclaim",),
    TargetKind.PERSISTENT_VOLUME: ("persistentvolume",),
    TargetKind.HORIZONTAL_POD_AUTOSCALER: ("horizontalpodautoscaler", "hpa"),
    TargetKind.POD_DISRUPTION_BUDGET: ("poddisruptionbudget",),
    TargetKind.RESOURCE_QUOTA: ("resourcequota",),
}
POD_LABELS = ("pod", "pod_name")
NAMESPACE_LABELS = ("namespace", "kubernetes_namespace")
EXPORTED = "exported_"
_GENERATED_BASE = 58  # Kubernetes cuts a generateName here and adds five random characters
_HASH = "[a-z0-9]+"
_RANDOM = "[a-z0-9]{5}"


def pod_name_pattern(target: Target) -> str | None:
    """Regular expression over the names of the target's pods, now and after any roll-out; None for kinds without pods."""
    name = re.escape(target.name).replace(r"\-", "-")
    match target.kind:
        case TargetKind.DEPLOYMENT if len(target.name) >= _GENERATED_BASE:
            return f"^{_cut(target.name)}{_RANDOM}$"
        case TargetKind.DEPLOYMENT if len(target.name) + 12 > _GENERATED_BASE:  # the hash itself may be cut, and its dash with it
            return f"^{name}-[a-z0-9]*-?{_RANDOM}$"
        case TargetKind.DEPLOYMENT:
            return f"^{name}-{_HASH}-{_RANDOM}$"
        case TargetKind.STATEFULSET:
            return f"^{name}-[0-9]+$"
        case TargetKind.DAEMONSET | TargetKind.REPLICASET:
            return f"^{_cut(target.name)}{_RANDOM}$" if len(target.name) >= _GENERATED_BASE else f"^{name}-{_RANDOM}$"
        case TargetKind.JOB:
            return f"^{name}-([0-9]+-)?{_RANDOM}$"
        case TargetKind.CRONJOB:
            return f"^{name}-[0-9]+-([0-9]+-)?{_RANDOM}$"
        case TargetKind.POD:
            return f"^{name}$"
        case _:
            return None


def _cut(name: str) -> str:
    return re.escape(name[:_GENERATED_BASE]).replace(r"\-", "-")


def series_matchers(target: Target, alert_labels: Mapping[str, str]) -> tuple[SeriesMatcher, ...]:
    """Matchers for the labels of the alert that identify the target, and for the labels that its metrics carry anyway.

    A label of the alert whose value names something else (the exporter that was scraped) makes no matcher. Since a matcher
    whose label a series does not have is ignored, naming more labels than the alert has only makes the choice stricter.
    """
    found: dict[str, SeriesMatcher] = {}

    def add(label: str, value: str, *, regex: bool = False) -> None:
        found.setdefault(label, SeriesMatcher(label=label, value=value, regex=regex))

    pattern = pod_name_pattern(target)
    for label, value in alert_labels.items():
        bare = label.removeprefix(EXPORTED)
        if (bare in NAMESPACE_LABELS and target.namespace and value == target.namespace) or (
            bare in WORKLOAD_LABELS.get(target.kind, ()) and (value == target.name or target.kind is TargetKind.NODE)
        ):
            add(label, value)
        elif bare in POD_LABELS and pattern is not None and re.fullmatch(pattern, value):
            add(label, pattern, regex=True)
        elif label == "cluster":
            add(label, value)
    if target.namespace:
        add("namespace", target.namespace)
    for label in WORKLOAD_LABELS.get(target.kind, ())[:1]:
        add(label, target.name)
    if pattern is not None:
        add("pod", pattern, regex=True)
    return tuple(found.values())


def keep(labels: Mapping[str, str], matchers: Iterable[SeriesMatcher]) -> bool:
    """Whether a series with these labels speaks of the target.

    A matcher whose label the series does not have is ignored. Where the series has `exported_<label>`, that one is meant:
    the plain label is the exporter's own.
    """
    for matcher in matchers:
        value = labels.get(EXPORTED + matcher.label, labels.get(matcher.label))
        if value is None:
            continue
        if not (re.fullmatch(matcher.value, value) if matcher.regex else value == matcher.value):
            return False
    return True
