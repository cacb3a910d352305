"""The whole cluster over HTTP: controllers answer to real requests, others inject faults, the command serves it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from sandbox.cluster import NotReached, SandboxCluster, SpecInvalid, read_manifests
from sandbox.kinds import BUDGETS

Json = dict[str, Any]
SHOP = """
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {sre-ladder.dev/autonomy: enabled}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: checkout, namespace: shop, annotations: {sandbox.dev/offered-rps: "90"}}
spec:
  replicas: 3
  selector: {matchLabels: {app: checkout}}
  template:
    metadata: {labels: {app: checkout}}
    spec:
      containers:
        - name: app
          image: sandbox/web:1
          readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1}
          resources: {requests: {cpu: 100m, memory: 64Mi}, limits: {cpu: 500m, memory: 256Mi}}
"""
DEPLOYMENT = "/apis/apps/v1/namespaces/shop/deployments/checkout"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[SandboxCluster]:
    state = tmp_path / "state"
    state.mkdir()
    (state / "bot.token").write_text("left by an earlier run")
    (state / "bot.token").chmod(0o644)
    async with SandboxCluster(time_scale=10, seed=1, state_dir=state) as running:
        await running.apply(SHOP)
        await running.rolled_out("shop", "checkout")
        yield running


@pytest.fixture
async def admin(cluster: SandboxCluster) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"Authorization": f"Bearer {cluster.tokens.admin}"}
    async with httpx.AsyncClient(base_url=cluster.url, headers=headers, trust_env=False) as client:
        yield client


async def test_11_get_right_after_a_restart_shows_the_old_status(cluster: SandboxCluster, admin: httpx.AsyncClient) -> None:
    content = {"Content-Type": "application/merge-patch+json"}
    seen = []
    for number in range(5):
        patch = {"spec": {"template": {"metadata": {"annotations": {"sre-ladder.dev/restart": f"t{number}"}}}}}
        patched = (await admin.patch(DEPLOYMENT, json=patch, headers=content)).json()
        after = (await admin.get(DEPLOYMENT)).json()
        assert is_old(patched)
        seen.append(is_old(after))
        await cluster.rolled_out("shop", "checkout")
    assert any(seen), "a busy machine may miss it, but not five times"


def is_old(body: Json) -> bool:
    status = body["status"]
    behind = body["metadata"]["generation"] == status["observedGeneration"] + 1
    return behind and status["updatedReplicas"] == status["availableReplicas"] == 3


async def test_12b_watch_over_http_sees_the_states_in_between(cluster: SandboxCluster, admin: httpx.AsyncClient) -> None:
    version = (await admin.get("/apis/apps/v1/namespaces/shop/deployments")).json()["metadata"]["resourceVersion"]
    seen: list[tuple[int, int, int]] = []
    query = {"watch": "1", "resourceVersion": version, "timeoutSeconds": "3"}

    async def watch() -> None:
        async with admin.stream("GET", "/apis/apps/v1/namespaces/shop/deployments", params=query) as stream:
            async for line in stream.aiter_lines():
                status = json.loads(line)["object"]["status"]
                seen.append((status["observedGeneration"], status.get("updatedReplicas", 0), status["terminatingReplicas"]))
                if seen[-1][1:] == (3, 0) and len(seen) > 3:
                    return

    watching = asyncio.create_task(watch())
    patch = [{"op": "add", "path": "/spec/template/metadata/annotations", "value": {"sre-ladder.dev/restart": "t1"}}]
    await admin.patch(DEPLOYMENT, json=patch, headers={"Content-Type": "application/json-patch+json"})
    async with asyncio.timeout(10):
        await watching
    assert seen[0][1] == 3
    assert (seen[0][0] + 1, 0, 0) in seen
    assert {updated for _, updated, _ in seen} == {0, 1, 2, 3}


async def test_42_45_eviction_follows_the_budget(cluster: SandboxCluster, admin: httpx.AsyncClient) -> None:
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "checkout", "namespace": "shop"},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "checkout"}}},
    }
    await cluster.apply([budget])
    await cluster.until(lambda: cluster.store.get(BUDGETS, "shop", "checkout")["status"]["disruptionsAllowed"] == 1)
    names = [pod["metadata"]["name"] for pod in cluster.pods("shop", "checkout")]
    answers = []
    for name in names[:2]:
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "shop"}}
        answers.append((await admin.post(f"/api/v1/namespaces/shop/pods/{name}/eviction", json=eviction)).status_code)
    assert answers == [201, 429]
    await cluster.until(lambda: names[0] not in [pod["metadata"]["name"] for pod in cluster.pods("shop", "checkout")])
    await cluster.rolled_out("shop", "checkout")


async def test_36_quota_refuses_a_pod_over_http_and_over_its_deployment(cluster: SandboxCluster, admin: httpx.AsyncClient) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q", "namespace": "shop"},
        "spec": {"hard": {"pods": "3"}},
    }
    await cluster.apply([quota])
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "x"},
        "spec": {"containers": [{"name": "a", "image": "sandbox/idle:1"}]},
    }
    answer = await admin.post("/api/v1/namespaces/shop/pods", json=pod)
    assert answer.status_code == 403
    assert answer.json()["message"] == 'pods "x" is forbidden: exceeded quota: q, requested: pods=1, used: pods=3, limited: pods=3'


async def test_pod_logs_over_http(cluster: SandboxCluster, admin: httpx.AsyncClient) -> None:
    name = cluster.pods("shop", "checkout")[0]["metadata"]["name"]
    answer = await admin.get(f"/api/v1/namespaces/shop/pods/{name}/log")
    assert answer.status_code == 200
    assert answer.text.startswith("listening on :8080\n")
    assert (await admin.get(f"/api/v1/namespaces/shop/pods/{name}/log", params={"previous": "true"})).status_code == 400
    await admin.put("/sandbox/logs", json={"reachable": False})
    assert (await admin.get(f"/api/v1/namespaces/shop/pods/{name}/log")).status_code == 500


async def test_faults_over_http_hurt_and_heal(cluster: SandboxCluster, admin: httpx.AsyncClient) -> None:
    base = "/sandbox/workloads/shop/checkout"
    fault = (await admin.post(f"{base}/faults", json={"changes": {"unready_after_s": 0}})).json()["id"]
    await cluster.until(lambda: not cluster.is_complete("shop", "checkout"))
    assert [item["id"] for item in (await admin.get("/sandbox/workloads")).json()["programs"]] == [fault]
    assert (await admin.delete(f"{base}/faults/{fault}")).json() == {"cleared": 1}
    await cluster.rolled_out("shop", "checkout")
    await admin.put(f"{base}/load", json={"rps": 7})
    assert cluster.controllers.offered(("shop", "checkout")) == 7
    await admin.delete(f"{base}/load")
    assert cluster.controllers.offered(("shop", "checkout")) == 90
    await admin.put("/sandbox/nodes/node1", json={"kubelet": "dead"})
    await admin.put("/sandbox/exporters/cadvisor", json={"state": "down"})
    listed = (await admin.get("/sandbox/workloads")).json()
    assert (listed["deadNodes"], listed["exporters"]) == (["node1"], {"cadvisor": "down"})
    assert (await admin.get("/metrics/cadvisor")).status_code == 503
    assert (await admin.get("/metrics/applications")).status_code == 200


MISTAKES: list[tuple[str, str, Json | None, int]] = [
    ("POST", "/sandbox/workloads/shop/checkout/faults", {"changes": {"nonsense": 1}}, 400),
    ("POST", "/sandbox/workloads/shop/checkout/faults", {"changes": {}}, 400),
    ("POST", "/sandbox/workloads/shop/checkout/faults", {"changes": {"error_ratio": 1}, "pods": "some"}, 400),
    ("PUT", "/sandbox/workloads/shop/checkout/load", {"rps": -1}, 400),
    ("PUT", "/sandbox/nodes/nowhere", {"kubelet": "dead"}, 404),
    ("PUT", "/sandbox/exporters/other", {"state": "down"}, 404),
    ("PUT", "/sandbox/exporters/applications", {"state": "odd"}, 400),
    ("GET", "/sandbox/workloads/odd", None, 404),
    ("PATCH", "/sandbox/workloads", {}, 405),
    ("GET", "/metrics/other", None, 404),
]


async def test_mistakes_are_told(admin: httpx.AsyncClient) -> None:
    answers = [(await admin.request(method, path, json=body)).status_code for method, path, body, _ in MISTAKES]
    assert answers == [code for *_, code in MISTAKES]


@pytest.mark.parametrize("account", ["bot", "executor", ""])
async def test_only_admins_inject_faults(cluster: SandboxCluster, account: str) -> None:
    headers = {"Authorization": f"Bearer {getattr(cluster.tokens, account)}"} if account else {}
    async with httpx.AsyncClient(base_url=cluster.url, headers=headers, trust_env=False) as client:
        answer = await client.post("/sandbox/workloads/shop/checkout/faults", json={"changes": {"error_ratio": 1}})
        assert answer.status_code == 403
        assert (await client.get("/metrics/applications")).status_code == 200


async def test_state_directory_holds_accounts_for_their_owner_only(cluster: SandboxCluster, tmp_path: Path) -> None:
    state = tmp_path / "state"
    assert {path.name for path in state.iterdir()} == {
        *(f"{account}.{kind}" for account in ("admin", "bot", "executor") for kind in ("token", "kubeconfig")),
        "cluster.json",
    }
    assert {stat.S_IMODE(path.stat().st_mode) for path in state.iterdir()} == {0o600}
    facts = json.loads((state / "cluster.json").read_text())
    assert facts == {"url": cluster.url, "uid": cluster.uid, "metrics": f"{cluster.url}/metrics/"}
    config = yaml.safe_load((state / "bot.kubeconfig").read_text())
    assert config["users"][0]["user"]["token"] == (state / "bot.token").read_text() == cluster.tokens.bot


async def test_spec_mistakes_name_the_document(cluster: SandboxCluster) -> None:
    with pytest.raises(SpecInvalid, match="v1 Service nowhere"):
        await cluster.apply("{apiVersion: v1, kind: Service, metadata: {name: nowhere, namespace: absent}, spec: {}}")
    with pytest.raises(SpecInvalid, match="no such kind"):
        await cluster.apply("{apiVersion: v9, kind: Odd, metadata: {name: x}}")
    for text in ("- 1", "{kind: Pod}", "a: ["):
        with pytest.raises(SpecInvalid):
            read_manifests(text)


async def test_waiting_has_an_end(cluster: SandboxCluster) -> None:
    with pytest.raises(NotReached, match=r"shop/absent did not come true within 0.05 s"):
        await cluster.rolled_out("shop", "absent", within_s=0.05)


async def test_an_idle_cluster_rests(cluster: SandboxCluster) -> None:
    def quiet() -> bool:
        due = cluster.engine.next_due()
        return due is None or due - cluster.engine.monotonic() > 5

    await cluster.until(quiet, within_s=20, what="rest")


def sandbox(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sandbox.entry", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False, **options)


def test_command_serves_until_interrupted(tmp_path: Path) -> None:
    spec = tmp_path / "shop.yaml"
    spec.write_text(SHOP)
    state = tmp_path / "state"
    command = [sys.executable, "-m", "sandbox.entry", "cluster", "--state", str(state), "--spec", str(spec), "--time-scale", "20"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        facts = json.loads((state / "cluster.json").read_text())
        assert facts["url"] in line
        token = (state / "bot.token").read_text()
        deadline = time.monotonic() + 15
        ready = 0
        while ready != 3 and time.monotonic() < deadline:
            answer = httpx.get(facts["url"] + DEPLOYMENT, headers={"Authorization": f"Bearer {token}"}, trust_env=False)
            ready = answer.json()["status"].get("availableReplicas", 0)
            time.sleep(0.05)
        assert ready == 3
    finally:
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=15)
    assert (process.returncode, errors) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--listen", "somewhere"], "is not an address and a port"),
        (["--listen", "0.0.0.0:1"], "is not a loopback address"),
        (["--spec", "/no/such/file"], "cannot read"),
    ],
)
def test_command_tells_mistakes_in_one_sentence(tmp_path: Path, arguments: list[str], words: str) -> None:
    done = sandbox("cluster", "--state", str(tmp_path), *arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_help_answers_without_loading_the_cluster() -> None:
    done = sandbox("--help", env={**os.environ, "PYTHONPROFILEIMPORTTIME": "1"})
    assert done.returncode == 0
    assert "cluster" in done.stdout
    assert "aiohttp" not in done.stderr
