"""Programs and load: what helps really helps, what harms really harms, and what does nothing does nothing."""

from __future__ import annotations

from typing import Any

import pytest
from controllers_world import World

from sandbox.control import Control, FaultRequest
from sandbox.controllers.facts import is_ready
from sandbox.exporters import Exporters
from sandbox.kinds import AUTOSCALERS, CONFIG_MAPS, DEPLOYMENTS, ENDPOINT_SLICES, ENDPOINTS, PODS, SECRETS, SERVICES
from sandbox.shelves import copied
from sandbox.workloads import Program, configured, image_exists, program_of

Json = dict[str, Any]
WEB = {"image": "sandbox/web:1", "imagePullPolicy": "IfNotPresent", "resources": {"limits": {"cpu": "500m", "memory": "192Mi"}}}
Values = dict[str, float]


class Shop:
    """A world with its exporters; numbers are read from the pages that Prometheus would scrape."""

    def __init__(self, **world: Any) -> None:
        self.world = World(**world)
        self.exporters = Exporters(self.world.controllers)
        self.control = Control(self.world.controllers, self.exporters)

    def web(self, name: str, *, rps: float = 0, annotations: Json | None = None, **spec: Any) -> None:
        meta = {"name": name, "namespace": "rec", "annotations": {"sandbox.dev/offered-rps": str(rps)}}
        template = {
            "container": WEB | spec.pop("container", {}),
            "metadata": {"labels": {"app": name}, "annotations": annotations or {}},
        }
        self.world.deploy(name, metadata=meta, template=template | spec.pop("template", {}), **spec)
        self.world.run_until(lambda: self.world.is_done(name))

    def hurt(self, name: str, changes: Json, **how: Any) -> str:
        return self.control.break_program("rec", name, FaultRequest.model_validate({"changes": changes, **how})).id

    def read(self, family: str, **labels: str) -> Values:
        """Values of a family by pod ("" where there is no pod label), of all pages."""
        values: Values = {}
        for page in ("applications", "cadvisor", "kube-state-metrics"):
            for line in self.exporters.page(page).splitlines():  # type: ignore[arg-type]
                name, _, rest = line.partition("{")
                inside, _, value = rest.rpartition("} ")
                found = dict(part.split("=", 1) for part in inside.split(",")) if inside else {}
                if name == family and all(found.get(key) == f'"{text}"' for key, text in labels.items()):
                    pod = found.get("pod", '""').strip('"')
                    values[pod] = values.get(pod, 0.0) + float(value)
        return values

    def rate(self, family: str, seconds: float = 20.0, **labels: str) -> float:
        """Increase per second of a family, summed over pods that are there at both ends."""
        before = self.read(family, **labels)
        self.world.run(seconds)
        after = self.read(family, **labels)
        return sum(after[pod] - before.get(pod, 0.0) for pod in after) / seconds

    def errors(self, name: str) -> float:
        """Share of requests that callers see fail."""
        bad = self.rate("gateway_requests_total", deployment=name, code="500") + self.rate(
            "gateway_requests_total", deployment=name, code="503"
        )
        good = self.rate("gateway_requests_total", deployment=name, code="200")
        return bad / (bad + good) if bad + good else float("nan")

    def latency(self, name: str) -> float:
        """Mean seconds to answer."""
        total = self.rate("http_request_duration_seconds_sum", deployment=name)
        return total / self.rate("http_request_duration_seconds_count", deployment=name)

    def restart(self, name: str, value: str) -> None:
        self.world.restart(name, value)
        self.world.run(1)
        self.world.run_until(lambda: self.world.is_done(name))
        self.world.run(3)


@pytest.fixture
def shop() -> Shop:
    return Shop()


def test_healthy_service_counts_what_is_offered(shop: Shop) -> None:
    shop.web("web", rps=60)
    assert shop.rate("http_requests_total", code="200") == pytest.approx(60, abs=0.5)
    assert shop.rate("gateway_requests_total", code="200") == pytest.approx(60, abs=0.5)
    assert shop.latency("web") == pytest.approx(0.02 / (1 - 0.3), rel=0.05)
    per_pod = shop.read("http_requests_total", code="200")
    assert len(per_pod) == 2
    assert max(per_pod.values()) - min(per_pod.values()) < 40


def test_p04_overload_is_cured_by_scaling_up(shop: Shop) -> None:
    shop.web("front", rps=60)
    calm = shop.latency("front")
    shop.control.set_load("rec", "front", 190)
    busy = shop.latency("front")
    assert busy > 5 * calm
    assert shop.rate("container_cpu_usage_seconds_total") / 2 == pytest.approx(0.5 * 0.95, rel=0.05)
    assert shop.errors("front") == 0
    shop.control.set_load("rec", "front", 260)
    assert shop.errors("front") == pytest.approx(60 / 260, abs=0.03)
    shop.world.scale("front", 4)
    shop.world.run(5)
    assert shop.errors("front") == 0
    assert shop.latency("front") < busy / 3


def test_k03_leak_grows_restart_lowers_it_and_it_recurs(shop: Shop) -> None:
    shop.web("data", rps=10, annotations={"sandbox.dev/leak-bytes-per-s": "200000"})
    start = max(shop.read("container_memory_working_set_bytes").values())
    shop.world.run(300)
    grown = max(shop.read("container_memory_working_set_bytes").values())
    assert grown - start == pytest.approx(200_000 * 300, rel=0.05)
    shop.restart("data", "1")
    lowered = max(shop.read("container_memory_working_set_bytes").values())
    assert lowered < start + 5_000_000
    shop.world.run(60)
    assert max(shop.read("container_memory_working_set_bytes").values()) > lowered


def test_k03_leak_that_reaches_the_limit_is_an_oom_kill(shop: Shop) -> None:
    shop.web("data", annotations={"sandbox.dev/leak-bytes-per-s": "2000000"})
    shop.world.run(80)
    status = shop.world.pods("data")[0]["status"]["containerStatuses"][0]
    assert status["restartCount"] == 1
    assert (status["lastState"]["terminated"]["reason"], status["lastState"]["terminated"]["exitCode"]) == ("OOMKilled", 137)
    assert shop.read("kube_pod_container_status_last_terminated_reason", reason="OOMKilled")


def test_p01_one_wedged_pod_stays_ready_and_a_new_one_is_fine(shop: Shop) -> None:
    shop.web("api", rps=40, replicas=4)
    victim = shop.world.pods("api")[0]["metadata"]["name"]
    shop.hurt("api", {"wedged_after_s": 0, "wedged_error_ratio": 0.3}, pods=[victim])
    assert is_ready(shop.world.pods("api")[0])
    before = shop.read("http_request_duration_seconds_sum")
    counted = shop.read("http_request_duration_seconds_count")
    shop.world.run(20)
    spent = {pod: value - before[pod] for pod, value in shop.read("http_request_duration_seconds_sum").items()}
    number = {pod: value - counted[pod] for pod, value in shop.read("http_request_duration_seconds_count").items()}
    slow = {pod: spent[pod] / number[pod] for pod in spent}
    assert slow[victim] > 10 * max(value for pod, value in slow.items() if pod != victim)
    shop.world.store.delete(PODS, "rec", victim)
    shop.world.run(5)
    assert shop.errors("api") == 0


def test_g47_wedged_workload_heals_by_restart_only(shop: Shop) -> None:
    shop.web("api", rps=40, annotations={"sandbox.dev/wedged-after-s": "60", "sandbox.dev/wedged-error-ratio": "0.5"})
    assert shop.errors("api") == 0
    shop.world.run(60)
    assert shop.errors("api") > 0.4
    shop.restart("api", "1")
    assert shop.rate("gateway_requests_total", 5, code="500") == 0


def test_p02_rotated_secret_needs_a_restart(shop: Shop) -> None:
    shop.world.create(SECRETS, {"metadata": {"name": "db", "namespace": "rec"}, "data": {"password": "b2xk"}})
    shop.web("worker", rps=20, annotations={"sandbox.dev/credential": "db"})
    assert shop.errors("worker") == 0
    shop.world.store.change(SECRETS, "rec", "db", lambda body: body["data"].update(password="bmV3"))
    assert shop.errors("worker") == 1
    pod = shop.world.pods("worker")[0]
    said = b"".join(line.text for line in shop.world.controllers.kubelet.lines(pod, "app", previous=False) or ())
    assert b"password authentication failed" in said
    shop.restart("worker", "1")
    assert shop.errors("worker") == 0


def test_k05_bad_config_map_is_ready_and_answers_5xx_until_rolled_back(shop: Shop) -> None:
    for name, ratio in (("good", "0"), ("bad", "0.4")):
        shop.world.create(
            CONFIG_MAPS, {"metadata": {"name": name, "namespace": "rec"}, "data": {"error-ratio": ratio, "other": "x"}}
        )
    mounted = {"volumes": [{"name": "config", "configMap": {"name": "good"}}]}
    shop.web("gateway", rps=50, container={"volumeMounts": [{"name": "config", "mountPath": "/etc/app"}]}, template=mounted)
    assert shop.errors("gateway") == 0
    shop.world.edit("gateway", lambda body: body["spec"]["template"]["spec"]["volumes"][0]["configMap"].update(name="bad"))
    shop.world.run(8)
    assert shop.world.is_done("gateway")
    assert shop.errors("gateway") == pytest.approx(0.4, abs=0.03)
    shop.restart("gateway", "1")
    assert shop.errors("gateway") == pytest.approx(0.4, abs=0.03)
    shop.world.edit("gateway", lambda body: body["spec"]["template"]["spec"]["volumes"][0]["configMap"].update(name="good"))
    shop.world.run(8)
    assert shop.errors("gateway") == 0


def test_k23_every_pod_crashes_after_a_configuration_change(shop: Shop) -> None:
    shop.world.create(CONFIG_MAPS, {"metadata": {"name": "conf", "namespace": "rec"}, "data": {"SANDBOX_ERROR_RATIO": "0"}})
    shop.web("api-gateway", replicas=5, container={"envFrom": [{"configMapRef": {"name": "conf"}}]})
    crash = {"SANDBOX_EXIT_AFTER_S": "0.2", "SANDBOX_LAST_WORDS": "fatal: unknown key upstreams"}
    shop.world.store.change(CONFIG_MAPS, "rec", "conf", lambda body: body["data"].update(crash))
    shop.world.run(30)
    assert shop.world.is_done("api-gateway")
    for pod in shop.world.pods("api-gateway"):
        shop.world.store.delete(PODS, "rec", pod["metadata"]["name"])
    shop.world.run(40)
    waiting = shop.read("kube_pod_container_status_waiting_reason", reason="CrashLoopBackOff")
    assert len(waiting) == 5
    assert "readyReplicas" not in shop.world.deployment("api-gateway")["status"]


def connection_pool(shop: Shop) -> None:
    database = {"image": "sandbox/database:1", "resources": {}}
    shop.web("orders-db", replicas=1, container=database, annotations={"sandbox.dev/max-connections": "20"})
    shop.web("checkout", rps=180, annotations={"sandbox.dev/pool": "orders-db", "sandbox.dev/connections": "8"})


def test_shared_pool_makes_scaling_up_worse_and_down_better(shop: Shop) -> None:
    connection_pool(shop)
    assert shop.errors("checkout") == 0
    assert shop.read("db_connections_in_use", deployment="orders-db") == {"": 16}
    shop.world.scale("checkout", 4)
    shop.world.run(5)
    assert shop.errors("checkout") == pytest.approx(1 - 20 / 32, abs=0.03)
    shop.world.scale("checkout", 2)
    shop.world.run(5)
    assert shop.errors("checkout") == 0


def test_k21_leaked_connections_are_freed_by_restarting_the_client(shop: Shop) -> None:
    database = {"image": "sandbox/database:1", "resources": {}}
    shop.web("postgres", replicas=1, container=database, annotations={"sandbox.dev/max-connections": "15"})
    leaking = {"sandbox.dev/pool": "postgres", "sandbox.dev/connections": "1", "sandbox.dev/connections-leak-per-s": "0.1"}
    shop.web("client-pool", replicas=1, annotations=leaking)
    shop.web("orders", rps=20, annotations={"sandbox.dev/pool": "postgres", "sandbox.dev/connections": "2"})
    assert shop.errors("orders") == 0
    shop.world.run(120)
    assert shop.errors("orders") > 0.2
    uid = shop.world.pods("postgres")[0]["metadata"]["uid"]
    shop.restart("client-pool", "1")
    assert shop.rate("gateway_requests_total", 5, deployment="orders", code="500") == 0
    assert shop.world.pods("postgres")[0]["metadata"]["uid"] == uid


def test_p05_queue_grows_until_there_are_enough_consumers(shop: Shop) -> None:
    worker = {"image": "sandbox/worker:1"}
    shop.web("consumer", rps=60, container=worker)
    assert shop.rate("queue_depth") == pytest.approx(20, rel=0.1)
    shop.world.scale("consumer", 4)
    shop.world.run(3)
    assert shop.rate("queue_depth") == pytest.approx(-20, rel=0.1)


@pytest.mark.parametrize(("pods", "after"), [("all", 0.5), ("existing", 0.0), ("new", 0.5)])
def test_twins_restart_does_nothing_heals_or_harms(shop: Shop, pods: str, after: float) -> None:
    shop.web("api", rps=40)
    shop.hurt("api", {"error_ratio": 0.5}, pods=pods)
    assert shop.errors("api") == pytest.approx(0.0 if pods == "new" else 0.5, abs=0.03)
    shop.restart("api", "1")
    assert shop.errors("api") == pytest.approx(after, abs=0.03)


def test_fault_that_heals_by_itself(shop: Shop) -> None:
    shop.web("api", rps=40)
    shop.hurt("api", {"error_ratio": 0.5}, lasts_s=90)
    assert shop.errors("api") == pytest.approx(0.5, abs=0.03)
    shop.world.run(60)
    assert shop.errors("api") == 0
    assert shop.control.listed()["programs"] == []


def test_regression_restarted_pods_never_become_ready(shop: Shop) -> None:
    shop.web("api", rps=40)
    shop.hurt("api", {"unready_after_s": 0}, pods="new")
    shop.world.restart("api", "1")
    shop.world.run(60)
    status = shop.world.deployment("api")["status"]
    assert (status["updatedReplicas"], status["availableReplicas"], status["unavailableReplicas"]) == (1, 2, 1)


def test_leak_injected_while_running_counts_from_then(shop: Shop) -> None:
    shop.web("api")
    shop.world.run(100)
    before = max(shop.read("process_resident_memory_bytes").values())
    shop.hurt("api", {"leak-bytes-per-s": 100_000}, pods="existing")
    shop.world.run(10)
    assert max(shop.read("process_resident_memory_bytes").values()) - before == pytest.approx(1_000_000, rel=0.05)


def test_no_pod_in_service_is_all_errors_at_the_gateway(shop: Shop) -> None:
    shop.web("api", rps=40)
    shop.hurt("api", {"unready_after_s": 0})
    shop.world.run(8)
    assert shop.errors("api") == 1


def test_dead_node_takes_its_share_of_requests_down_and_its_series_with_it() -> None:
    shop = Shop(nodes=2)
    shop.web("api", rps=40, replicas=2)
    shop.control.set_node("node2", alive=False)
    assert shop.errors("api") == pytest.approx(0.5, abs=0.03)
    assert len(shop.read("container_memory_working_set_bytes")) == 1
    shop.control.set_node("node2", alive=True)
    shop.world.run(2)
    assert shop.errors("api") == 0


@pytest.mark.parametrize(("state", "shown"), [("frozen", True), ("down", False)])
def test_f38_series_of_one_workload_freeze_or_go(shop: Shop, state: str, shown: bool) -> None:
    shop.web("api", rps=40)
    shop.control.set_exporter("applications", state, "rec/api")  # type: ignore[arg-type]
    before = shop.read("http_requests_total")
    shop.world.run(10)
    assert (shop.read("http_requests_total") == before) is shown or not shown
    assert bool(shop.read("http_requests_total")) is shown
    shop.control.set_exporter("applications", "up", "rec/api")
    assert max(shop.read("http_requests_total").values()) > 0


def test_f38_frozen_kube_state_metrics_show_what_was(shop: Shop) -> None:
    shop.web("api")
    shop.control.set_exporter("kube-state-metrics", "frozen")
    shop.world.scale("api", 5)
    shop.world.run(5)
    assert shop.read("kube_deployment_spec_replicas", deployment="api") == {"": 2}
    shop.control.set_exporter("kube-state-metrics", "up")
    assert shop.read("kube_deployment_spec_replicas", deployment="api") == {"": 5}


def test_kube_series_follow_the_objects(shop: Shop) -> None:
    shop.web("api")
    expected = {
        "kube_deployment_metadata_generation": 1,
        "kube_deployment_status_observed_generation": 1,
        "kube_deployment_status_replicas_available": 2,
        "kube_deployment_status_replicas_updated": 2,
        "kube_deployment_spec_strategy_rollingupdate_max_surge": 1,
    }
    for family, value in expected.items():
        assert shop.read(family, deployment="api") == {"": value}, family
    names = {pod["metadata"]["name"] for pod in shop.world.pods("api")}
    for family in ("kube_pod_info", "kube_pod_owner", "kube_pod_status_ready", "kube_pod_container_status_restarts_total"):
        assert set(shop.read(family)) == names, family
    assert set(shop.read("kube_pod_container_resource_limits", resource="memory").values()) == {192 * 2**20}
    assert shop.read("kube_pod_owner", owner_kind="ReplicaSet", owner_name=shop.world.sets("api")[0]["metadata"]["name"])
    assert shop.read("kube_node_status_condition", condition="Ready", status="true") == {"": 1}


def test_service_has_endpoints_of_ready_pods_only(shop: Shop) -> None:
    spec = {"selector": {"app": "api"}, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]}
    shop.world.create(SERVICES, {"metadata": {"name": "api", "namespace": "rec"}, "spec": spec})
    shop.web("api")
    shop.world.run(1)
    subset = shop.world.store.get(ENDPOINTS, "rec", "api")["subsets"][0]
    assert len(subset["addresses"]) == 2
    assert subset["ports"] == [{"name": "http", "port": 8080, "protocol": "TCP"}]
    shop.hurt("api", {"unready_after_s": 0}, pods=[shop.world.pods("api")[0]["metadata"]["name"]])
    shop.world.run(6)
    subset = shop.world.store.get(ENDPOINTS, "rec", "api")["subsets"][0]
    assert (len(subset["addresses"]), len(subset["notReadyAddresses"])) == (1, 1)
    slices = shop.world.store.list(ENDPOINT_SLICES, "rec")
    assert sorted(item["conditions"]["ready"] for item in slices[0]["endpoints"]) == [False, True]
    shop.world.store.delete(SERVICES, "rec", "api")
    shop.world.run(1)
    assert shop.world.store.find(ENDPOINTS, "rec", "api") is None
    assert shop.world.store.list(ENDPOINT_SLICES, "rec") == []


def autoscaler(shop: Shop, name: str, low: int, high: int) -> None:
    target = {"kind": "Deployment", "name": name, "apiVersion": "apps/v1"}
    metric = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}
    spec = {"scaleTargetRef": target, "minReplicas": low, "maxReplicas": high, "metrics": [metric]}
    shop.world.create(AUTOSCALERS, {"metadata": {"name": name, "namespace": "rec"}, "spec": spec})


def test_54_autoscaler_undoes_a_scale_beyond_its_bounds(shop: Shop) -> None:
    shop.web("hp", container={"resources": {}})
    autoscaler(shop, "hp", 2, 4)
    shop.world.run(20)
    status = shop.world.store.get(AUTOSCALERS, "rec", "hp")["status"]
    assert {item["type"]: item["status"] for item in status["conditions"]} == {"AbleToScale": "True", "ScalingActive": "False"}
    shop.world.scale("hp", 6)
    took = shop.world.run_until(lambda: shop.world.deployment("hp")["spec"]["replicas"] == 4)
    assert took <= 15.1


def test_k07_autoscaler_at_its_maximum_says_so(shop: Shop) -> None:
    limits = {"limits": {"cpu": "500m"}, "requests": {"cpu": "500m"}}
    shop.web("front", rps=195, container={"resources": limits})
    autoscaler(shop, "front", 2, 3)
    shop.world.run(40)
    assert shop.world.deployment("front")["spec"]["replicas"] == 3
    status = shop.world.store.get(AUTOSCALERS, "rec", "front")["status"]
    limited = next(item for item in status["conditions"] if item["type"] == "ScalingLimited")
    assert (limited["status"], limited["reason"]) == ("True", "TooManyReplicas")


def test_load_annotation_is_followed_without_a_roll_out(shop: Shop) -> None:
    shop.web("api", rps=10)
    body = copied(shop.world.deployment("api"))
    body["metadata"]["annotations"]["sandbox.dev/offered-rps"] = "50"
    shop.world.store.update(DEPLOYMENTS, body)
    shop.world.run(1)
    assert shop.rate("http_requests_total", code="200") == pytest.approx(50, abs=0.5)
    assert len(shop.world.sets("api")) == 1


def test_malformed_settings_make_a_program_that_says_so_and_exits(shop: Shop) -> None:
    shop.world.deploy("odd", template={"metadata": {"labels": {"app": "odd"}, "annotations": {"sandbox.dev/error-ratio": "many"}}})
    shop.world.run(3)
    pod = shop.world.pods("odd")[0]
    said = shop.world.controllers.kubelet.lines(pod, "app", previous=True) or ()
    assert b"cannot read configuration: setting 'error_ratio': 'many' is not of type float" in b"".join(line.text for line in said)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"nonsense": 1}, "no program has a setting 'nonsense'"),
        ({"error_ratio": "much"}, "is not of type float"),
        ({"serves": "maybe"}, "is not of type bool"),
    ],
)
def test_settings_are_checked(changes: Json, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        configured(Program(), changes)


@pytest.mark.parametrize(
    ("image", "there"),
    [
        ("sandbox/web:1", True),
        ("registry.example/x:v2", True),
        ("sandbox/web:missing", False),
        ("127.0.0.1:1/none/app:9", False),
        ("docker.io/local/none:1", False),
    ],
)
def test_images(image: str, there: bool) -> None:
    assert image_exists(image) is there


def test_programs_are_read_from_images_scripts_and_settings() -> None:
    crash = program_of("x", {"command": ["/bin/sh", "-c", "echo boom >&2; sleep 2; exit 7"]})
    assert (crash.exit_after_s, crash.exit_code, crash.last_words) == (2.0, 7, "boom")
    assert program_of("x", {"command": ["/no/such/bin"]}).start_error
    assert program_of("sandbox/web:broken", {}).exit_after_s == 0
    assert program_of("sandbox/web:1", {}, [{"error-ratio": "0.1"}, {"ERROR_RATIO": "0.2"}]).error_ratio == 0.2
