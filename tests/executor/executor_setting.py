"""What the executor's front-door tests stand on: a bot and a Prometheus over HTTP, signed orders, a workload in the sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from aiohttp import web
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from catalog.actions import Action, RestartPod, RestartWorkload, Scale
from catalog.clocks import SystemClock
from catalog.documents import CATALOGUE_VERSION
from catalog.evidence import Oracle
from catalog.ids import new_id
from catalog.orders import (
    Approval,
    Check,
    CheckSource,
    ClaimAnswer,
    ClaimRequest,
    Deadlines,
    HaltSwitch,
    KubernetesFact,
    Order,
    PlanStep,
    Signed,
    StepKind,
)
from catalog.outcomes import Outcome
from catalog.signatures import key_id, load_private_key, load_public_keys, sign, verified_body, write_key_pair
from catalog.targets import Target, TargetKind
from executor.pulling import Executor
from executor.settings import Settings
from executor.starting import assembled
from sandbox.cluster import SandboxCluster
from sandbox.kinds import DEPLOYMENTS
from sources.answers import SELECTOR_LABEL
from sources.rollouts import template_hash

EXECUTOR_USER = "system:serviceaccount:sre-ladder:executor"
QUICK = Deadlines(settle_floor=1, scrape_interval=0.3, evaluation_interval=0.3, kubernetes_sample=0.15)
LIMITS = """\
schema: 1
namespaces: [shop]
actions: {restart_workload: auto, restart_pod: auto, scale: auto}
radius: {auto: 1.0, approved: 1.0}
orders: {target: 100/1h, namespace: 100/1h, cluster: 100/1h}
settle: 1.5
"""
OPTED_IN = {"sre-ladder.dev/autonomy": "enabled"}
NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": OPTED_IN}}


def deployment(name: str = "web", replicas: int = 3, **spec: Any) -> dict[str, Any]:
    """A Deployment of a healthy web program."""
    labels = {"app": name}
    container = {"name": "app", "image": "sandbox/web:1"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    body = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template, **spec}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "shop"}, "spec": body}


def service(name: str = "web") -> dict[str, Any]:
    spec = {"selector": {"app": name}, "ports": [{"port": 80}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "shop"}, "spec": spec}


class BotStub:
    """The bot's two endpoints: hands out what is in `orders` once, keeps verified outcomes."""

    def __init__(self, token: str, executor_keys: dict[str, Any]) -> None:
        self.orders: list[Signed] = []
        self.claims: list[ClaimRequest] = []
        self.outcomes: dict[str, Outcome] = {}
        self.posts: list[str] = []
        self.switch = HaltSwitch(halted=False)
        self.taken_over: tuple[str, ...] = ()
        self.resume: tuple[tuple[str, Any], ...] = ()
        self.away = False
        self.refuse_outcomes = 0
        self.url = ""
        self._token, self._keys = token, executor_keys
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> BotStub:
        app = web.Application(client_max_size=4 * 1024 * 1024)
        app.router.add_post("/v1/orders/claim", self._claim)
        app.router.add_post("/v1/outcomes", self._outcome)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _claim(self, request: web.Request) -> web.Response:
        self._authorized(request)
        claim = ClaimRequest.model_validate_json(await request.read())
        self.claims.append(claim)
        orders = tuple(self.orders[: claim.room])
        del self.orders[: claim.room]
        answer = ClaimAnswer(
            orders=orders, switch=self.switch, taken_over=self.taken_over, resume=self.resume, at=SystemClock().now()
        )
        return web.Response(text=answer.to_json(), content_type="application/json")

    async def _outcome(self, request: web.Request) -> web.Response:
        self._authorized(request)
        if self.refuse_outcomes:
            self.refuse_outcomes -= 1
            return web.Response(status=503)
        signed = Signed.model_validate_json(await request.read())
        outcome = Outcome.model_validate_json(verified_body(signed, self._keys))
        self.posts.append(outcome.id)
        self.outcomes[outcome.order_id] = outcome
        return web.Response(status=200, text="{}")

    def _authorized(self, request: web.Request) -> None:
        if self.away:
            raise web.HTTPServiceUnavailable
        if request.headers.get("Authorization") != f"Bearer {self._token}":
            raise web.HTTPUnauthorized


class PrometheusStub:
    """Answers queries that are one name from `signals`: a number, None for no series, or an exception's status."""

    def __init__(self) -> None:
        self.signals: dict[str, float | None] = {}
        self.past: dict[str, list[float | None]] = {}
        self.down = False
        self.asked: list[str] = []
        self.url = ""
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> PrometheusStub:
        app = web.Application()
        for path, handler in (("query", self._query), ("query_range", self._range), ("status/config", self._config)):
            app.router.add_route("*", f"/api/v1/{path}", handler)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def _value(self, query: str) -> float | None:
        if self.down:
            raise web.HTTPServiceUnavailable
        return self.signals[query]

    async def _query(self, request: web.Request) -> web.Response:
        query, now = request.query["query"], SystemClock().now().timestamp()
        if query.startswith("label_replace(max by (job) (timestamp("):
            self._value(next(iter(self.signals)))
            labels = [{SELECTOR_LABEL: str(number)} for number in range(query.count("timestamp("))]
            return _success("vector", [{"metric": one, "value": [now, str(now)]} for one in labels])
        self.asked.append(query)
        value = self._value(query)
        result = [] if value is None else [{"metric": {"namespace": "shop"}, "value": [now, str(value)]}]
        return _success("vector", result)

    async def _range(self, request: web.Request) -> web.Response:
        query = request.query["query"]
        now_value = self._value(query)
        start, end, step = (float(request.query[key].rstrip("s")) for key in ("start", "end", "step"))
        count = int((end - start) // step) + 1
        values = [*self.past.get(query, []), *([now_value] * count)]
        points = [[start + step * index, str(value)] for index, value in enumerate(values[:count]) if value is not None]
        return _success("matrix", [{"metric": {"namespace": "shop"}, "values": points}] if points else [])

    async def _config(self, request: web.Request) -> web.Response:
        text = "global:\n  scrape_interval: 1s\n  evaluation_interval: 1s\n"
        return web.json_response({"status": "success", "data": {"yaml": text}})


def _success(kind: str, result: list[Any]) -> web.Response:
    return web.json_response({"status": "success", "data": {"resultType": kind, "result": result}})


ALERT, ERRORS = "wedged_requests", "error_ratio"


@dataclass
class Setting:
    """Everything a front-door test needs, with the executor's settings to start a real one."""

    cluster: SandboxCluster
    bot: BotStub
    prometheus: PrometheusStub
    directory: Path
    settings: Settings
    bot_key: Ed25519PrivateKey
    sent: dict[str, Order] = field(default_factory=dict)

    def object(self, name: str = "web") -> dict[str, Any]:
        return self.cluster.store.get(DEPLOYMENTS, "shop", name)

    def live_pods(self, name: str = "web") -> list[dict[str, Any]]:
        return [pod for pod in self.cluster.pods("shop", name) if not pod["metadata"].get("deletionTimestamp")]

    def edit(self, change: Callable[[dict[str, Any]], None], name: str = "web") -> None:
        """Another writer changes the Deployment."""
        found = json.loads(json.dumps(self.object(name)))
        change(found)
        self.cluster.store.update(DEPLOYMENTS, found)

    def target(self, name: str = "web") -> Target:
        uid = self.object(name)["metadata"]["uid"]
        return Target(
            cluster_uid=self.cluster.uid, cluster="test", namespace="shop", kind=TargetKind.DEPLOYMENT, name=name, uid=uid
        )

    def checks(self, target: Target) -> tuple[Check, ...]:
        kubernetes = [
            Check(name=fact.value, oracle=Oracle.COMPONENT, source=CheckSource.KUBERNETES, target=target, fact=fact)
            for fact in KubernetesFact
        ]
        alert = Check(
            name="alert",
            oracle=Oracle.ALERT,
            source=CheckSource.PROMETHEUS,
            target=target,
            query=ALERT,
            empty="passing",
            opened=True,
        )
        errors = Check(
            name="errors",
            oracle=Oracle.SERVICE_LEVEL,
            source=CheckSource.PROMETHEUS,
            target=target,
            query=ERRORS,
            passing="< 0.01",
        )
        return (alert, errors, *kubernetes)

    def order(self, action: Action | None = None, name: str = "web", **changes: Any) -> Order:
        """An order as the bot would mint it now."""
        action, target, now = action or RestartWorkload(), self.target(name), SystemClock().now()
        mode = changes.get("mode", "approved")
        fields: dict[str, Any] = {
            "id": new_id(now),
            "key_id": key_id(self.bot_key.public_key()),
            "audience": self.cluster.uid,
            "incident_id": new_id(now),
            "incident_number": 7,
            "decision_id": new_id(now),
            "scope": "shop",
            "mode": mode,
            "approvals": (Approval(person="ana", via="terminal", at=now),) if mode == "approved" else (),
            "action": action,
            "target": target,
            "template_hash": template_hash(self.object(name)),
            "steps": self.plan(action, mode, name),
            "checks": self.checks(target),
            "deadlines": QUICK,
            "minted_at": now,
            "decided_at": now,
            "not_before": now,
            "expires_at": now + timedelta(seconds=60),
            "policy_hash": "p",
            "catalogue_version": CATALOGUE_VERSION,
        }
        if isinstance(action, Scale):
            fields |= {"from_replicas": action.from_replicas, "to_replicas": action.to_replicas}
        return Order.model_validate(fields | changes)

    def plan(self, action: Action, mode: str, name: str = "web") -> tuple[PlanStep, ...]:
        """The plan as the bot makes it: an automatic restart leaves the first pod to the executor."""
        opened, evict = PlanStep(kind=StepKind.OPEN), PlanStep(kind=StepKind.EVICT)
        match action:
            case Scale():
                return (PlanStep(kind=StepKind.SCALE, from_replicas=action.from_replicas, to_replicas=action.to_replicas),)
            case RestartPod():
                return (opened, PlanStep(kind=StepKind.EVICT, pod=action.pod, pod_uid=action.pod_uid))
            case _ if mode == "auto":
                return (opened, evict, PlanStep(kind=StepKind.STAMP))
            case _:
                return (PlanStep(kind=StepKind.STAMP),)

    def send(self, order: Order, key: Ed25519PrivateKey | None = None) -> Signed:
        """Sign an order and let the bot hand it out."""
        signed = sign(key or self.bot_key, order.to_json().encode())
        self.sent[order.id] = order
        self.bot.orders.append(signed)
        return signed

    async def outcome(self, order: Order, within_s: float = 30.0) -> Outcome:
        """The outcome that the executor posts."""
        await until(lambda: order.id in self.bot.outcomes, within_s, f"an outcome of {order.id}")
        return self.bot.outcomes[order.id]

    async def phase(self, order: Order, phase: str, within_s: float = 20.0) -> None:
        """Wait until the executor tells the bot that an order is in `phase`."""

        def reached() -> bool:
            assert order.id not in self.bot.outcomes, self.bot.outcomes[order.id].sentence
            last = self.bot.claims[-1].open if self.bot.claims else ()
            return any(one.order_id == order.id and one.phase == phase for one in last)

        await until(reached, within_s, f"phase {phase}")

    async def written(self, order: Order, write: str, within_s: float = 20.0) -> None:
        """Wait for a write to be answered; fail early when the order ends."""

        def found() -> bool:
            assert order.id not in self.bot.outcomes, self.bot.outcomes[order.id].sentence
            return write in self.writes()

        await until(found, within_s, write)

    async def written_after(self, order: Order, earlier: Outcome) -> None:
        """Wait until an order that was answered before has written something or got another answer."""
        await until(lambda: bool(self.writes()) or self.bot.outcomes[order.id].id != earlier.id, 20.0, "another answer")

    def writes(self) -> list[str]:
        """What the executor's account asked that changes something, dry runs and the Lease left out, with the answers."""
        return [
            f"{asked.method} {asked.path.rsplit('/', 1)[-1]} {asked.status}"
            for asked in self.cluster.server.writes(EXECUTOR_USER)
            if "dryRun" not in asked.query and "/leases" not in asked.path
        ]

    def mark(self, name: str = "web") -> str | None:
        value: str | None = (self.object(name)["metadata"].get("annotations") or {}).get("sre-ladder.dev/txn")
        return value


async def until(condition: Callable[[], bool], within_s: float, what: str) -> None:
    """Wait until something holds, or fail saying what did not."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_s
    while not condition():
        assert loop.time() < deadline, f"{what} did not come within {within_s:g} s"
        await asyncio.sleep(0.01)


def make_settings(directory: Path, cluster: SandboxCluster, bot_url: str, prometheus_url: str, **changes: Any) -> Settings:
    """Settings of an executor on this machine, with its keys and files made."""
    fields: dict[str, Any] = {
        "bot_url": bot_url,
        "bot_token_file": directory / "token",
        "bot_public_keys": str(directory / "bot.pub"),
        "private_key": directory / "executor.key",
        "journal_url": f"sqlite:///{directory}/journal.db",
        "limits_file": directory / "limits.yaml",
        "kubeconfig": directory / "executor.kubeconfig",
        "prometheus_url": prometheus_url,
        "executor_id": "exec-1",
        "claim_every": 0.1,
        "log_format": "console",
    }
    return Settings(**fields | changes)


def make_files(directory: Path) -> tuple[Ed25519PrivateKey, dict[str, Any]]:
    """Keys, token and limits; returns the bot's key and the executor's public keys."""
    write_key_pair(directory / "bot.key", directory / "bot.pub")
    write_key_pair(directory / "executor.key", directory / "executor.pub")
    (directory / "token").write_text("executor-token\n")
    (directory / "limits.yaml").write_text(LIMITS)
    return load_private_key(directory / "bot.key"), dict(load_public_keys(directory / "executor.pub"))


@asynccontextmanager
async def running(setting: Setting, **changes: Any) -> AsyncIterator[Executor]:
    """The executor of these settings, claiming; stopped at the end."""
    settings = setting.settings.model_copy(update=changes)
    async with assembled(settings, SystemClock()) as executor:
        task = asyncio.create_task(executor.run())
        claims = len(setting.bot.claims)
        try:
            await until(lambda: any(claim.room for claim in setting.bot.claims[claims:]), 20.0, "a claim with room")
            yield executor
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
