"""What the API server fills in when a writer leaves it out. `complete` is idempotent and edits the object in place.

`admit` is registered with the store, so that what controllers and seeds create is completed as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sandbox.kinds import (
    AUTOSCALERS,
    BUDGETS,
    CRON_JOBS,
    DAEMON_SETS,
    DEPLOYMENTS,
    EVENTS,
    JOBS,
    NAMESPACES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    SERVICES,
    STATEFUL_SETS,
    Kind,
)
from sandbox.statuses import Json


def complete(kind: Kind, obj: Json) -> None:
    """Fill the defaults of `kind` into a new or updated object that the caller owns."""
    filler = _FILLERS.get(kind.key)
    if filler is not None:
        filler(obj)


def admit(kind: Kind, obj: Json) -> None:
    """`complete` for the store's creates, with the status of a fresh object where the writer gives none."""
    complete(kind, obj)
    if "status" not in obj:
        blank_status(kind, obj)


def blank_status(kind: Kind, obj: Json) -> None:
    """Put the status a fresh object of `kind` starts with, whatever the writer sent."""
    if not kind.status or kind.custom:
        return
    match kind:
        case _ if kind.key == PODS.key:
            obj["status"] = {"phase": "Pending", "qosClass": quality(obj.get("spec") or {})}
        case _ if kind.key == NAMESPACES.key:
            obj["status"] = {"phase": "Active"}
        case _ if kind.key == AUTOSCALERS.key:
            obj["status"] = {"desiredReplicas": 0, "currentMetrics": None}
        case _ if kind.key == BUDGETS.key:
            obj["status"] = {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}
        case _ if kind.key == SERVICES.key:
            obj["status"] = {"loadBalancer": {}}
        case _ if kind.key == PERSISTENT_VOLUME_CLAIMS.key:
            obj["status"] = {"phase": "Pending"}
        case _ if kind.key == DAEMON_SETS.key:
            obj["status"] = dict.fromkeys(
                ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady"), 0
            )
        case _ if kind.key in (REPLICA_SETS.key, STATEFUL_SETS.key, REPLICATION_CONTROLLERS.key):
            obj["status"] = {"replicas": 0}
        case _ if kind.key in ((JOBS.key), CRON_JOBS.key, DEPLOYMENTS.key) or kind.group == "":
            obj["status"] = {}


def quality(spec: Json) -> str:
    """qosClass of a pod: BestEffort without any request or limit, Guaranteed when cpu and memory limits equal requests."""
    resources = [container.get("resources") or {} for container in spec.get("containers", ())]
    if not any(item.get("requests") or item.get("limits") for item in resources):
        return "BestEffort"
    for item in resources:
        limits, requests = item.get("limits") or {}, item.get("requests") or item.get("limits") or {}
        if not {"cpu", "memory"} <= limits.keys() or any(requests.get(name, limits[name]) != limits[name] for name in limits):
            return "Burstable"
    return "Guaranteed"


def _defaults(target: Json, **values: Any) -> None:
    for key, value in values.items():
        target.setdefault(key, value)


def complete_pod_spec(spec: Json) -> None:
    """Defaults of a pod template's spec."""
    for container in (*spec.get("containers", ()), *spec.get("initContainers", ())):
        _container(container)
    for volume in spec.get("volumes", ()):
        for source in ("configMap", "secret", "projected", "downwardAPI"):
            if source in volume:
                _defaults(volume[source], defaultMode=420)
        if volume.keys() == {"name"}:
            volume["emptyDir"] = {}
    _defaults(
        spec,
        restartPolicy="Always",
        terminationGracePeriodSeconds=30,
        dnsPolicy="ClusterFirst",
        securityContext={},
        schedulerName="default-scheduler",
    )
    if "serviceAccountName" in spec:
        spec.setdefault("serviceAccount", spec["serviceAccountName"])


def _container(container: Json) -> None:
    latest = ":" not in container.get("image", "").rpartition("/")[2] or container.get("image", "").endswith(":latest")
    _defaults(
        container,
        resources={},
        terminationMessagePath="/dev/termination-log",
        terminationMessagePolicy="File",
        imagePullPolicy="Always" if latest and "@" not in container.get("image", "") else "IfNotPresent",
    )
    for port in container.get("ports", ()):
        port.setdefault("protocol", "TCP")
    for name in ("readinessProbe", "livenessProbe", "startupProbe"):
        if name in container:
            _defaults(container[name], timeoutSeconds=1, periodSeconds=10, successThreshold=1, failureThreshold=3)
            if "httpGet" in container[name]:
                _defaults(container[name]["httpGet"], path="/", scheme="HTTP")
    resources = container["resources"]
    if "limits" in resources:
        requests = resources.setdefault("requests", {})
        for name, value in resources["limits"].items():
            requests.setdefault(name, value)


def _template(obj: Json) -> None:
    template = obj.setdefault("spec", {}).setdefault("template", {})
    template.setdefault("metadata", {})
    complete_pod_spec(template.setdefault("spec", {}))


_NOT_READY = [
    {"key": f"node.kubernetes.io/{name}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for name in ("not-ready", "unreachable")
]


def _pod(obj: Json) -> None:
    spec = obj.setdefault("spec", {})
    complete_pod_spec(spec)
    account = spec.get("serviceAccountName") or spec.get("serviceAccount") or "default"
    spec["serviceAccountName"] = spec["serviceAccount"] = account
    tolerated = {(item.get("key"), item.get("effect")) for item in spec.get("tolerations", ())}
    missing = [
        dict(item) for item in _NOT_READY if (item["key"], "NoExecute") not in tolerated and (item["key"], None) not in tolerated
    ]
    if missing and not any("key" not in item for item in spec.get("tolerations", ())):
        spec["tolerations"] = [*spec.get("tolerations", ()), *missing]
    _defaults(spec, priority=0, enableServiceLinks=True, preemptionPolicy="PreemptLowerPriority")


def _deployment(obj: Json) -> None:
    _template(obj)
    spec = obj["spec"]
    _defaults(spec, replicas=1, revisionHistoryLimit=10, progressDeadlineSeconds=600)
    strategy = spec.setdefault("strategy", {})
    strategy.setdefault("type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        _defaults(strategy.setdefault("rollingUpdate", {}), maxUnavailable="25%", maxSurge="25%")


def _replica_set(obj: Json) -> None:
    _template(obj)
    obj["spec"].setdefault("replicas", 1)


def _stateful_set(obj: Json) -> None:
    _template(obj)
    spec = obj["spec"]
    _defaults(spec, replicas=1, podManagementPolicy="OrderedReady", revisionHistoryLimit=10)
    _update_strategy(spec, {"partition": 0})
    _defaults(spec.setdefault("persistentVolumeClaimRetentionPolicy", {}), whenDeleted="Retain", whenScaled="Retain")


def _daemon_set(obj: Json) -> None:
    _template(obj)
    obj["spec"].setdefault("revisionHistoryLimit", 10)
    _update_strategy(obj["spec"], {"maxUnavailable": 1, "maxSurge": 0})
    generation = obj["metadata"].get("annotations", {}).get("deprecated.daemonset.template.generation")
    if generation is None:
        obj["metadata"] = {
            **obj["metadata"],
            "annotations": {**obj["metadata"].get("annotations", {}), "deprecated.daemonset.template.generation": "1"},
        }


def _update_strategy(spec: Json, rolling: Json) -> None:
    strategy = spec.setdefault("updateStrategy", {})
    strategy.setdefault("type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        _defaults(strategy.setdefault("rollingUpdate", {}), **rolling)


def _job(obj: Json) -> None:
    _template(obj)
    spec = obj["spec"]
    if "parallelism" not in spec and "completions" not in spec:
        spec["completions"] = 1
    _defaults(
        spec,
        parallelism=1,
        backoffLimit=6,
        completionMode="NonIndexed",
        suspend=False,
        manualSelector=False,
        podReplacementPolicy="TerminatingOrFailed",
    )


def _cron_job(obj: Json) -> None:
    spec = obj.setdefault("spec", {})
    _defaults(spec, concurrencyPolicy="Allow", suspend=False, successfulJobsHistoryLimit=3, failedJobsHistoryLimit=1)
    template = spec.setdefault("jobTemplate", {})
    template.setdefault("metadata", {})
    _template(template)


def _service(obj: Json) -> None:
    spec = obj.setdefault("spec", {})
    for port in spec.get("ports", ()):
        _defaults(port, protocol="TCP", targetPort=port.get("port"))
    _defaults(spec, type="ClusterIP", sessionAffinity="None", internalTrafficPolicy="Cluster")


def _autoscaler(obj: Json) -> None:
    obj.setdefault("spec", {}).setdefault("minReplicas", 1)


def _event(obj: Json) -> None:
    _defaults(obj, source={}, firstTimestamp=None, lastTimestamp=None, eventTime=None, reportingComponent="", reportingInstance="")


def _claim(obj: Json) -> None:
    obj.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")


def _namespace(obj: Json) -> None:
    obj.setdefault("spec", {}).setdefault("finalizers", ["kubernetes"])
    name = obj["metadata"].get("name")
    if name:
        labels = {**obj["metadata"].get("labels", {}), "kubernetes.io/metadata.name": name}
        obj["metadata"] = {**obj["metadata"], "labels": labels}


_FILLERS: dict[tuple[str, str], Callable[[Json], None]] = {
    PODS.key: _pod,
    DEPLOYMENTS.key: _deployment,
    REPLICA_SETS.key: _replica_set,
    REPLICATION_CONTROLLERS.key: _replica_set,
    STATEFUL_SETS.key: _stateful_set,
    DAEMON_SETS.key: _daemon_set,
    JOBS.key: _job,
    CRON_JOBS.key: _cron_job,
    SERVICES.key: _service,
    AUTOSCALERS.key: _autoscaler,
    EVENTS.key: _event,
    PERSISTENT_VOLUME_CLAIMS.key: _claim,
    NAMESPACES.key: _namespace,
}
