"""`sre-executor`: run, check-config, adopt, keys. Libraries are imported where they are used, so that `--help` is quick."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any

import typer

from executor.errors import ConfigurationInvalid, JournalUnavailable

app = typer.Typer(
    name="sre-executor",
    help="Carries out signed orders on one cluster, each as a transaction that leaves nothing worse than it was.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

USER_MISTAKE = 2
UNAVAILABLE = 3


@app.command()
def run() -> None:
    """Serve: pull orders from the bot, finish what is open, report outcomes. Settings come from SRE_EXECUTOR_… variables."""
    _told(_serve)


@app.command("check-config")
def check_config() -> None:
    """Check every setting, key and file, and say what this executor would do at most. Connects to nothing."""
    from executor.settings import load_settings

    try:
        settings = load_settings()
        _check(settings)
    except ConfigurationInvalid as error:
        _fail(str(error), USER_MISTAKE)


@app.command()
def adopt() -> None:
    """Take the cluster over from a lost journal: list targets that carry its open marks, then put our journal on the Lease."""
    _told(_adopt)


@app.command()
def keys(
    private: Annotated[Path, typer.Argument(help="where to write the private key (mode 0600, never overwritten)")],
    public: Annotated[Path, typer.Argument(help="where to write the public key, for the bot")],
) -> None:
    """Make this executor's key pair."""
    from catalog.signatures import write_key_pair

    try:
        key_id = write_key_pair(private, public)
    except OSError as error:
        _fail(f"{error.filename or private}: {error.strerror}", USER_MISTAKE)
    typer.echo(f"key {key_id}: give {public} to the bot, keep {private} here")


def main() -> None:
    """Entry point of the console script."""
    app()


def _told(action: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run it; say what a person can correct in one sentence and with an exit code."""
    import asyncio

    try:
        asyncio.run(action())
    except ConfigurationInvalid as error:
        _fail(str(error), USER_MISTAKE)
    except JournalUnavailable as error:
        _fail(f"the journal cannot be used: {error}", UNAVAILABLE)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


async def _serve() -> None:
    from catalog.clocks import SystemClock
    from executor.logs import configure
    from executor.serving import serve
    from executor.settings import load_settings

    settings = load_settings()
    configure(settings.log_format, settings.log_level)
    await serve(settings, SystemClock())


async def _adopt() -> None:
    from catalog.clocks import SystemClock
    from executor.adopting import adopt_cluster
    from executor.logs import configure
    from executor.settings import load_settings

    settings = load_settings()
    configure(settings.log_format, "warning")
    for line in await adopt_cluster(settings, SystemClock()):
        typer.echo(line)


def _check(settings: Any) -> None:
    from catalog.signatures import KeyUnreadable, load_private_key, load_public_keys
    from executor.bounds import load_bounds
    from executor.database import journal_url
    from executor.reporting import bot_url

    bounds, digest = load_bounds(settings.limits_file)
    bot_url(settings.bot_url)
    journal_url(settings.journal_url)
    try:
        load_private_key(settings.private_key)
        accepted = load_public_keys(*settings.public_key_paths)
    except KeyUnreadable as error:
        raise ConfigurationInvalid(str(error)) from error
    if not settings.bot_token_file.is_file():
        raise ConfigurationInvalid(f"the token file {settings.bot_token_file} does not exist")
    ways = sum([settings.in_cluster, settings.kubeconfig is not None, settings.api_server is not None])
    if ways != 1:
        raise ConfigurationInvalid("give one of SRE_EXECUTOR_IN_CLUSTER=true, SRE_EXECUTOR_KUBECONFIG, SRE_EXECUTOR_API_SERVER")
    typer.echo(f"orders of keys {', '.join(sorted(accepted))}")
    typer.echo(f"limits {digest[:12]}: namespaces {', '.join(bounds.namespaces) or 'none'}; kinds {', '.join(bounds.kinds)}")
    typer.echo(f"actions {', '.join(f'{name} {value}' for name, value in bounds.actions)}")
    orders = bounds.orders
    typer.echo(f"orders {orders.target} per target, {orders.namespace} per namespace, {orders.cluster} in all; {bounds.open} open")


def _fail(sentence: str, code: int) -> None:
    typer.echo(sentence, err=True)
    raise typer.Exit(code)
