"""The distribution's real Prometheus and Alertmanager as child processes, with given rules and receivers.

The programs are looked for on PATH, then in a cache directory; else their packages are fetched and unpacked there without root
(`apt-get download`, `dpkg -x`). Everything listens on loopback, on ports that are free when asked for.

    pair = await AlertingPair.start(directory, targets="127.0.0.1:8001", rules=RULES, webhook="http://127.0.0.1:9000/hook")
    ...
    await pair.stop()
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from sandbox.exporters import EXPORTERS

READY_WITHIN_S = 30.0
STOP_WITHIN_S = 5.0
_PACKAGES = ("prometheus", "prometheus-alertmanager")


class AlertingError(Exception):
    """Prometheus or Alertmanager cannot be had or does not run; the text says what to do."""


@dataclass(frozen=True)
class Programs:
    """Paths of the two programs."""

    prometheus: Path
    alertmanager: Path


async def find_programs(cache: Path | None = None) -> Programs:
    """The two programs: on PATH, or unpacked in `cache` (default: the user's cache directory), fetched there if need be.

    Raises:
        AlertingError: they are not there and cannot be fetched.
    """
    place = cache or Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "sre-sandbox"
    paths = [await _find(package, place) for package in _PACKAGES]
    return Programs(paths[0], paths[1])


async def _find(package: str, place: Path) -> Path:
    found = shutil.which(package)
    if found:
        return Path(found)
    unpacked = place / package / "usr" / "bin" / package
    if not await asyncio.to_thread(unpacked.exists):
        await _fetch(package, place)
    return unpacked


async def _fetch(package: str, place: Path) -> None:
    apt, dpkg = shutil.which("apt-get"), shutil.which("dpkg")
    if apt is None or dpkg is None:
        raise AlertingError(f"{package} is not installed, and without apt-get it cannot be fetched: install it or put it on PATH")
    await asyncio.to_thread(place.mkdir, parents=True, exist_ok=True)
    await _run(apt, "download", package, cwd=place)
    archive = await asyncio.to_thread(_newest, place, package)
    await _run(dpkg, "-x", str(archive), str(place / package), cwd=place)


def _newest(place: Path, package: str) -> Path:
    archives = sorted(place.glob(f"{package}_*.deb"))
    if not archives:
        raise AlertingError(f"apt-get download {package} left no package in {place}")
    return archives[-1]


async def _run(*command: str, cwd: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *command, cwd=cwd, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    if process.returncode:
        raise AlertingError(f"{' '.join(command)} failed: {output.decode(errors='replace').strip()[-500:]}")


def prometheus_config(
    *,
    exporters: str,
    alertmanager: str,
    rules: Path,
    scrape_s: float = 1.0,
    evaluation_s: float = 1.0,
    external_labels: Mapping[str, str] | None = None,
) -> str:
    """prometheus.yml: one job per exporter at `exporters` (host:port), alerts to `alertmanager` (host:port)."""
    scrapes = [
        {
            "job_name": name,
            "metrics_path": f"/metrics/{name}",
            "honor_labels": True,
            "static_configs": [{"targets": [exporters]}],
        }
        for name in EXPORTERS
    ]
    document: dict[str, Any] = {
        "global": {
            "scrape_interval": _duration(scrape_s),
            "scrape_timeout": _duration(min(scrape_s, 10.0)),
            "evaluation_interval": _duration(evaluation_s),
            "external_labels": dict(external_labels or {}),
        },
        "rule_files": [str(rules)],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]},
        "scrape_configs": scrapes,
    }
    return yaml.safe_dump(document, sort_keys=False)


def alertmanager_config(
    *,
    webhook: str,
    token: str | None = None,
    group_by: Sequence[str] = ("alertname", "namespace"),
    group_wait_s: float = 0.5,
    group_interval_s: float = 2.0,
    repeat_interval_s: float = 60.0,
) -> str:
    """alertmanager.yml: everything goes to one webhook, with a bearer token if given, resolved alerts too."""
    receiver: dict[str, Any] = {"url": webhook, "send_resolved": True}
    if token is not None:
        receiver["http_config"] = {"authorization": {"type": "Bearer", "credentials": token}}
    document = {
        "route": {
            "receiver": "bot",
            "group_by": list(group_by),
            "group_wait": _duration(group_wait_s),
            "group_interval": _duration(group_interval_s),
            "repeat_interval": _duration(repeat_interval_s),
        },
        "receivers": [{"name": "bot", "webhook_configs": [receiver]}],
    }
    return yaml.safe_dump(document, sort_keys=False)


def rules_document(rules: Sequence[Mapping[str, Any]], *, group: str = "sandbox", interval_s: float | None = None) -> str:
    """A rule file with one group of alerting rules (each with alert, expr, and for, labels, annotations as wanted)."""
    body: dict[str, Any] = {"name": group, "rules": [dict(rule) for rule in rules]}
    if interval_s is not None:
        body["interval"] = _duration(interval_s)
    return yaml.safe_dump({"groups": [body]}, sort_keys=False)


def free_port() -> int:
    """A loopback port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _duration(seconds: float) -> str:
    return f"{int(seconds)}s" if seconds == int(seconds) else f"{round(seconds * 1000)}ms"


@dataclass
class AlertingPair:
    """A running Prometheus and its Alertmanager. `directory` holds their configuration, data and logs."""

    directory: Path
    prometheus_url: str
    alertmanager_url: str
    _prometheus: asyncio.subprocess.Process
    _alertmanager: asyncio.subprocess.Process

    @classmethod
    async def start(
        cls,
        directory: Path,
        *,
        exporters: str,
        rules: str,
        webhook: str,
        token: str | None = None,
        scrape_s: float = 1.0,
        evaluation_s: float = 1.0,
        external_labels: Mapping[str, str] | None = None,
        repeat_interval_s: float = 60.0,
        programs: Programs | None = None,
        ports: tuple[int, int] | None = None,
    ) -> AlertingPair:
        """Start both and wait until they are ready. `exporters` is host:port, `rules` the text of a rule file.

        Raises:
            AlertingError: a program is missing, refuses its configuration, or is not ready in time.
        """
        found = programs or await find_programs()
        prometheus_port, alertmanager_port = ports or (free_port(), free_port())
        alertmanager_at = f"127.0.0.1:{alertmanager_port}"
        files = {
            "rules.yml": rules,
            "alertmanager.yml": alertmanager_config(webhook=webhook, token=token, repeat_interval_s=repeat_interval_s),
            "prometheus.yml": prometheus_config(
                exporters=exporters,
                alertmanager=alertmanager_at,
                rules=directory / "rules.yml",
                scrape_s=scrape_s,
                evaluation_s=evaluation_s,
                external_labels=external_labels,
            ),
        }
        await asyncio.to_thread(_write_all, directory, files)
        alertmanager = await _start_alertmanager(found, directory, alertmanager_at)
        try:
            prometheus = await _start_prometheus(found, directory, f"127.0.0.1:{prometheus_port}")
        except AlertingError:
            await _end(alertmanager)
            raise
        return cls(directory, f"http://127.0.0.1:{prometheus_port}", f"http://{alertmanager_at}", prometheus, alertmanager)

    async def stop_prometheus(self) -> None:
        """End Prometheus alone: the sources of evidence are gone, the alerts of before stay where they are."""
        await _end(self._prometheus)

    async def stop(self) -> None:
        """End both."""
        await _end(self._prometheus)
        await _end(self._alertmanager)


def _write_all(directory: Path, files: Mapping[str, str]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        path = directory / name
        path.touch(mode=0o600)
        path.write_text(text)


def _tail(log: Path) -> str:
    return log.read_text(errors="replace").strip()[-500:]


async def _start_prometheus(programs: Programs, directory: Path, address: str) -> asyncio.subprocess.Process:
    return await _start(
        directory,
        "prometheus",
        [
            str(programs.prometheus),
            f"--config.file={directory / 'prometheus.yml'}",
            f"--storage.tsdb.path={directory / 'prometheus-data'}",
            "--storage.tsdb.retention.time=6h",
            f"--web.listen-address={address}",
            "--web.enable-lifecycle",
            "--log.level=warn",
        ],
        f"http://{address}/-/ready",
    )


async def _start_alertmanager(programs: Programs, directory: Path, address: str) -> asyncio.subprocess.Process:
    return await _start(
        directory,
        "alertmanager",
        [
            str(programs.alertmanager),
            f"--config.file={directory / 'alertmanager.yml'}",
            f"--storage.path={directory / 'alertmanager-data'}",
            f"--web.listen-address={address}",
            "--cluster.listen-address=",
            "--log.level=warn",
        ],
        f"http://{address}/-/ready",
    )


async def _start(directory: Path, name: str, command: list[str], ready: str) -> asyncio.subprocess.Process:
    log = directory / f"{name}.log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(*command, cwd=directory, stdout=output, stderr=output)
    try:
        await _wait_ready(process, ready, name, log)
    except BaseException:
        await _end(process)
        raise
    return process


async def _wait_ready(process: asyncio.subprocess.Process, url: str, name: str, log: Path) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + READY_WITHIN_S
    async with httpx.AsyncClient(timeout=1.0, trust_env=False) as client:
        while loop.time() < deadline:
            if process.returncode is not None:
                said = await asyncio.to_thread(_tail, log)
                raise AlertingError(f"{name} ended with code {process.returncode}: {said}")
            try:
                if (await client.get(url)).status_code == httpx.codes.OK and not await _ends(process):
                    return
            except httpx.HTTPError:
                await asyncio.sleep(0.1)
                continue
            await asyncio.sleep(0.1)
    said = await asyncio.to_thread(_tail, log)
    raise AlertingError(f"{name} was not ready within {READY_WITHIN_S:.0f} s: {said}")


async def _ends(process: asyncio.subprocess.Process) -> bool:
    """Whether our own process is gone after all: on a port that was taken, somebody else gave the good answer."""
    try:
        async with asyncio.timeout(0.3):
            await process.wait()
    except TimeoutError:
        return False
    return True


async def _end(process: asyncio.subprocess.Process) -> None:
    """Ask a child to end, then make it."""
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(STOP_WITHIN_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
