"""The command `sre-sandbox`: an emulated cluster to try things on, and what is built on it.

Each subcommand imports what it needs when it runs, so that `--help` answers at once. Further subcommands are functions with
`@app.command()`.
"""

from __future__ import annotations

import asyncio
import ipaddress
import signal
import tempfile
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="sre-sandbox", help="An emulated Kubernetes cluster on loopback.", no_args_is_help=True, add_completion=False
)


@app.callback()
def root() -> None:
    """An emulated Kubernetes cluster on loopback."""


@app.command()
def cluster(
    listen: Annotated[str, typer.Option(help="Loopback address and port; port 0 takes a free one.")] = "127.0.0.1:0",
    state: Annotated[Path, typer.Option(help="Directory for tokens, kubeconfigs and cluster.json.")] = Path("sandbox-state"),
    spec: Annotated[Path | None, typer.Option(help="YAML file with objects to create at the start.")] = None,
    nodes: Annotated[int, typer.Option(min=0, help="Number of nodes.")] = 3,
    time_scale: Annotated[
        float, typer.Option(min=0.01, help="How many times as fast container start, probes and back-offs pass.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(help="The same seed gives the same names and delays.")] = 0,
) -> None:
    """Serve a cluster until interrupted."""
    host, port = _address(listen)
    text = _text(spec) if spec is not None else ""
    asyncio.run(_serve_cluster(host, port, state, text, nodes, time_scale, seed))


@app.command()
def demo(
    once: Annotated[
        bool, typer.Option("--once", help="End when the story has ended; exit code 0 only if it went as told.")
    ] = False,
    state: Annotated[Path | None, typer.Option(help="New directory for every file of the demo; default: a temporary one.")] = None,
) -> None:
    """Play a story of six incidents with the real bot, executor, Prometheus and Alertmanager on an emulated cluster."""
    from sandbox.alerting import AlertingError
    from sandbox.demo.installation import InstallationError
    from sandbox.demo.show import show

    directory = _fresh(state, "sre-ladder-demo-")
    try:
        passed = asyncio.run(show(directory, once=once, say=typer.echo))
    except (InstallationError, AlertingError) as problem:
        raise _mistake(str(problem)) from problem
    if not passed:
        raise typer.Exit(1)


@app.command()
def history(
    backup: Annotated[Path, typer.Option(help="File to keep the database in.")] = Path("sandbox/demo/backup/bot.db.gz"),
    wanted: Annotated[int, typer.Option(min=1, help="Incidents of each kind.")] = 52,
    state: Annotated[Path | None, typer.Option(help="New directory for every file; default: a temporary one.")] = None,
) -> None:
    """Live through the incidents whose labels the demo starts from, and keep the bot's database (takes some minutes)."""
    from sandbox.alerting import AlertingError
    from sandbox.demo.history import HistoryError, live_through
    from sandbox.demo.installation import InstallationError

    directory = _fresh(state, "sre-ladder-history-")
    try:
        asyncio.run(live_through(directory, backup, wanted=wanted, say=typer.echo))
    except (HistoryError, InstallationError, AlertingError) as problem:
        raise _mistake(str(problem)) from problem


def main() -> None:
    """Entry point of `sre-sandbox`."""
    app()


async def _serve_cluster(host: str, port: int, state: Path, spec: str, nodes: int, time_scale: float, seed: int) -> None:
    from sandbox.cluster import SandboxCluster, SpecInvalid

    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    try:
        running = SandboxCluster(host=host, port=port, nodes=nodes, time_scale=time_scale, seed=seed, state_dir=state)
        async with running:
            await running.apply(spec)
            typer.echo(f"cluster {running.uid} at {running.url}, accounts in {state}")
            waiting = asyncio.create_task(stopped.wait())
            broken = asyncio.create_task(running.failed())
            await asyncio.wait({waiting, broken}, return_when=asyncio.FIRST_COMPLETED)
            if broken.done():
                broken.result()
            for task in (waiting, broken):
                task.cancel()
    except SpecInvalid as problem:
        raise _mistake(f"--spec: {problem}") from problem
    except OSError as problem:
        raise _mistake(f"cannot serve on {host}:{port} with state in {state}: {problem}") from problem


def _address(listen: str) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise _mistake(f"--listen: {listen!r} is not an address and a port, such as 127.0.0.1:8001")
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = host == "localhost"
    if not loopback:
        raise _mistake(f"--listen: {host} is not a loopback address; the cluster has no TLS and hands out admin rights")
    return host, int(port)


def _fresh(directory: Path | None, prefix: str) -> Path:
    """A directory of its own, so that nothing of an earlier run is taken for this one's."""
    if directory is None:
        return Path(tempfile.mkdtemp(prefix=prefix))
    if directory.exists() and any(directory.iterdir()):
        raise _mistake(f"--state: {directory} is not empty")
    return directory.resolve()


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as problem:
        raise _mistake(f"--spec: cannot read {path}: {problem}") from problem


def _mistake(sentence: str) -> typer.Exit:
    """Say what is wrong and end with exit code 2."""
    typer.echo(f"sre-sandbox: {sentence}", err=True)
    return typer.Exit(2)


if __name__ == "__main__":
    main()
