"""A whole installation on this machine: cluster, Prometheus, Alertmanager, bot and executor, each a process of its own.

Everything is made with the shipped commands and given to the processes as an operator would: environment, files, tokens. The bot
gets the kubeconfig of an account that may only read, the executor the one that may patch; neither sees the other's.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Any

import httpx
import yaml

from sandbox.alerting import AlertingPair, free_port
from sandbox.demo.world import world

PUBLISHED = Path(__file__).parent / "published"
CLUSTER = "demo"
PEOPLE = ("ana", "bo", "cy")
STARTED_WITHIN_S = 60.0
STOP_WITHIN_S = 8.0


class InstallationError(Exception):
    """A part did not start or ended by itself. The text says which, and what it said last."""


@dataclass
class Ports:
    """Loopback ports, chosen before anything starts because configuration names them."""

    cluster: int = field(default_factory=free_port)
    prometheus: int = field(default_factory=free_port)
    alertmanager: int = field(default_factory=free_port)
    bot: int = field(default_factory=free_port)


class Installation:
    """Start with `start`, end with `stop`. `directory` holds every file, database and log of it."""

    def __init__(
        self,
        directory: Path,
        *,
        objects: Sequence[dict[str, Any]] | None = None,
        policy: str | None = None,
        rules: str | None = None,
        limits: str | None = None,
        database: str | None = None,
        journal: str | None = None,
        ports: Ports | None = None,
        notice: str = "",
    ) -> None:
        self.directory = directory
        self.ports = ports or Ports()
        self.database = database or f"sqlite:///{directory / 'bot.db'}"
        self.journal = journal or f"sqlite:///{directory / 'executor.db'}"
        self.tokens: dict[str, str] = {}
        self._notice = notice
        self.uid = ""
        self._objects = list(objects) if objects is not None else world()
        self._policy = policy if policy is not None else (PUBLISHED / "autonomy.yaml").read_text()
        self._rules = rules if rules is not None else (PUBLISHED / "rules.yml").read_text()
        self._limits = limits if limits is not None else (PUBLISHED / "limits.yaml").read_text()
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._pair: AlertingPair | None = None

    @property
    def bot_url(self) -> str:
        return f"http://127.0.0.1:{self.ports.bot}"

    @property
    def cluster_url(self) -> str:
        return f"http://127.0.0.1:{self.ports.cluster}"

    @property
    def prometheus_url(self) -> str:
        return f"http://127.0.0.1:{self.ports.prometheus}"

    @property
    def alertmanager_url(self) -> str:
        return f"http://127.0.0.1:{self.ports.alertmanager}"

    @property
    def policy_path(self) -> Path:
        return self.directory / "autonomy.yaml"

    # -- starting ------------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start everything and wait until each part answers.

        Raises:
            InstallationError: a part did not start. AlertingError: Prometheus or Alertmanager cannot be had.
        """
        await self.start_cluster()
        await self.configure()
        await self.start_bot()
        await self.start_alerting()
        await self.start_executor()

    async def start_cluster(self) -> None:
        """Start the emulated cluster with its objects."""
        self.directory.mkdir(parents=True, exist_ok=True)
        spec = self.directory / "world.yaml"
        spec.write_text(yaml.safe_dump_all(self._objects))
        command = ["sre-sandbox", "cluster", "--listen", f"127.0.0.1:{self.ports.cluster}"]
        command += ["--state", str(self.directory / "cluster"), "--spec", str(spec)]
        await self._spawn("cluster", command, {})
        await self._until_applied()
        self.uid = str(json.loads((self.directory / "cluster" / "cluster.json").read_text())["uid"])

    async def configure(self) -> None:
        """Write configuration, make keys, people and tokens with the shipped commands."""
        keys = self.directory / "keys"
        self.policy_path.write_text(
            Template(self._policy).substitute(
                uid=self.uid,
                kubeconfig=self.directory / "cluster" / "bot.kubeconfig",
                prometheus=self.prometheus_url,
                alertmanager=self.alertmanager_url,
            )
        )
        (self.directory / "limits.yaml").write_text(self._limits)
        await self.run("sre-bot", "keys")
        if not (self.directory / "executor.key").exists():
            await self.run("sre-executor", "keys", str(self.directory / "executor.key"), str(keys / "executors" / "executor.pub"))
        known = (await self.run("sre-bot", "person", "list")).split()
        wanted: dict[str, tuple[str, ...]] = {
            person: ("person", "token" if person in known else "add", person) for person in PEOPLE
        }
        wanted["ingest"] = ("token", "ingest", "alertmanager", "--cluster", CLUSTER)
        wanted["executor"] = ("token", "executor", "executor-1", "--cluster", CLUSTER)
        made = await asyncio.gather(*(self.run("sre-bot", *command) for command in wanted.values()))
        self.tokens = {name: token.strip() for name, token in zip(wanted, made, strict=True)}
        token_file = self.directory / "executor.token"
        token_file.touch(mode=0o600)
        token_file.write_text(self.tokens["executor"])

    async def start_bot(self) -> None:
        """Start the bot and wait until it serves."""
        await self._spawn("bot", ["sre-bot", "serve"], self._bot_environment())
        await self._until_answers("bot", f"{self.bot_url}/readyz")

    async def start_alerting(self) -> None:
        """Start Prometheus and Alertmanager; alerts go to the bot's webhook."""
        self._pair = await AlertingPair.start(
            self.directory / "alerting",
            exporters=f"127.0.0.1:{self.ports.cluster}",
            rules=self._rules,
            webhook=f"{self.bot_url}/v1/alerts/alertmanager",
            token=self.tokens["ingest"],
            repeat_interval_s=30.0,
            ports=(self.ports.prometheus, self.ports.alertmanager),
        )

    async def start_executor(self) -> None:
        """Start the executor and wait until the bot has heard it."""
        await self._spawn("executor", ["sre-executor", "run"], self._executor_environment())
        await self._until_executor()

    async def stop(self) -> None:
        """End every process."""
        if self._pair is not None:
            await self._pair.stop()
            self._pair = None
        for name in reversed(list(self._processes)):
            await self.end(name)

    # -- parts ---------------------------------------------------------------------------------------------------------------

    @property
    def alerting(self) -> AlertingPair:
        """The running Prometheus and Alertmanager."""
        assert self._pair is not None, "not started"
        return self._pair

    def pid(self, name: str) -> int:
        """Process id of a part."""
        return self._processes[name].pid

    def running(self, name: str) -> bool:
        """Whether the part's process lives."""
        process = self._processes.get(name)
        return process is not None and process.returncode is None

    async def kill(self, name: str) -> None:
        """kill -9."""
        process = self._processes.pop(name)
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()

    async def end(self, name: str) -> None:
        """Ask a part to end, then make it."""
        process = self._processes.pop(name)
        if process.returncode is not None:
            return
        process.terminate()
        try:
            async with asyncio.timeout(STOP_WITHIN_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    async def run(self, *command: str) -> str:
        """Run one of the shipped commands to its end; what it printed.

        Raises:
            InstallationError: it ended with another code than 0.
        """
        process = await asyncio.create_subprocess_exec(
            *_program(command),
            env=self._environment(self._bot_environment()),
            cwd=self.directory,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        output, trouble = await process.communicate()
        if process.returncode:
            raise InstallationError(f"{' '.join(command[:3])} ended with {process.returncode}: {trouble.decode().strip()[-500:]}")
        return output.decode()

    def log(self, name: str) -> str:
        """What a part has written so far."""
        path = self.directory / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def _bot_environment(self) -> dict[str, str]:
        return {
            "SRE_BOT_DATABASE": self.database,
            "SRE_BOT_POLICY": str(self.policy_path),
            "SRE_BOT_KEYS": str(self.directory / "keys"),
            "SRE_BOT_LISTEN": f"127.0.0.1:{self.ports.bot}",
            "SRE_BOT_PUBLIC_URL": self.bot_url,
            "SRE_BOT_NOTICE": self._notice,
        }

    def _executor_environment(self) -> dict[str, str]:
        return {
            "SRE_EXECUTOR_BOT_URL": self.bot_url,
            "SRE_EXECUTOR_BOT_TOKEN_FILE": str(self.directory / "executor.token"),
            "SRE_EXECUTOR_BOT_PUBLIC_KEYS": str(self.directory / "keys" / "order.pub"),
            "SRE_EXECUTOR_PRIVATE_KEY": str(self.directory / "executor.key"),
            "SRE_EXECUTOR_JOURNAL_URL": self.journal,
            "SRE_EXECUTOR_LIMITS_FILE": str(self.directory / "limits.yaml"),
            "SRE_EXECUTOR_CLUSTER_UID": self.uid,
            "SRE_EXECUTOR_KUBECONFIG": str(self.directory / "cluster" / "executor.kubeconfig"),
            "SRE_EXECUTOR_PROMETHEUS_URL": self.prometheus_url,
            "SRE_EXECUTOR_EXECUTOR_ID": "executor-1",
        }

    def _environment(self, more: dict[str, str]) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("SRE_BOT_", "SRE_EXECUTOR_"))}
        return kept | more

    async def _spawn(self, name: str, command: Sequence[str], environment: dict[str, str]) -> None:
        if self.running(name):
            raise InstallationError(f"{name} runs already")
        with (self.directory / f"{name}.log").open("ab") as output:
            self._processes[name] = await asyncio.create_subprocess_exec(
                *_program(command), env=self._environment(environment), cwd=self.directory, stdout=output, stderr=output
            )

    async def _until_applied(self) -> None:
        async for _ in self._patience("cluster", "did not create its objects"):
            if " accounts in " in self.log("cluster"):
                return

    async def _until_answers(self, name: str, url: str) -> None:
        async with httpx.AsyncClient(timeout=1.0, trust_env=False) as client:
            async for _ in self._patience(name, "did not answer"):
                with contextlib.suppress(httpx.HTTPError):
                    if (await client.get(url)).status_code == httpx.codes.OK:
                        return

    async def _until_executor(self) -> None:
        headers = {"Authorization": f"Bearer {self.tokens['ana']}"}
        async with httpx.AsyncClient(timeout=2.0, trust_env=False, headers=headers) as client:
            async for _ in self._patience("executor", "was not heard by the bot as active"):
                with contextlib.suppress(httpx.HTTPError, ValueError):
                    health = (await client.get(f"{self.bot_url}/v1/health")).json()
                    if any(one["alive"] and one["active"] for one in health.get("executors", [])):
                        return

    async def _patience(self, name: str, trouble: str) -> Any:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + STARTED_WITHIN_S
        while loop.time() < deadline:
            if not self.running(name):
                raise InstallationError(f"{name} ended by itself: {self.log(name).strip()[-800:]}")
            yield None
            await asyncio.sleep(0.1)
        raise InstallationError(f"{name} {trouble} within {STARTED_WITHIN_S:.0f} s: {self.log(name).strip()[-800:]}")


def _program(command: Sequence[str]) -> list[str]:
    """The console script beside this Python."""
    return [str(Path(sys.executable).parent / command[0]), *command[1:]]
