"""`sre-bot`: the process that listens, and the few things an administrator does beside it.

    sre-bot init            look at the cluster, write autonomy.yaml, keys and tokens to begin with
    sre-bot serve           webhooks, console, API and phases
    sre-bot keys            make the signing keys
    sre-bot person …        people and their tokens
    sre-bot token …         tokens for Alertmanager and executors
    sre-bot check-config    read autonomy.yaml and say what is wrong with it
    sre-bot audit           prove the event chains

Imports are inside the commands so that `--help` is quick.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn, TypeVar

import typer

if TYPE_CHECKING:
    from datetime import datetime

    from sqlmodel.ext.asyncio.session import AsyncSession

    from bot.settings import BotSettings

_Result = TypeVar("_Result")

app = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help="The bot: listens, decides, asks."
)
person = typer.Typer(no_args_is_help=True, help="People who may sign in. Their roles come from autonomy.yaml.")
token = typer.Typer(no_args_is_help=True, help="Tokens for Alertmanager's webhooks and for executors.")
app.add_typer(person, name="person")
app.add_typer(token, name="token")


def main() -> None:
    """Entry point: what a user can mend is one sentence and exit code 2, never a traceback."""
    try:
        app()
    except Exception as error:
        sentence = _mendable(error)
        if sentence is None:
            raise
        _complain(sentence)


def _mendable(error: Exception) -> str | None:
    """What to tell the user; None when it is a defect."""
    from bot.settings import SettingsInvalid
    from catalog.signatures import KeyUnreadable
    from incidents.database import DatabaseUrlInvalid, StoreUnavailable
    from incidents.people import PersonExists, PersonUnknown

    if isinstance(error, StoreUnavailable):
        return f"the database does not answer: {error}. Is SRE_BOT_DATABASE right, and is there room on the disk?"
    known = (SettingsInvalid, KeyUnreadable, DatabaseUrlInvalid, PersonExists, PersonUnknown)
    return str(error) if isinstance(error, known) else None


def _complain(sentence: str) -> NoReturn:
    print(f"sre-bot: {sentence}", file=sys.stderr)
    sys.exit(2)


@app.command()
def serve() -> None:
    """Run the bot until it is told to stop."""
    from bot.serving import ServeRefused, serve_forever
    from bot.settings import load_settings

    try:
        asyncio.run(serve_forever(load_settings()))
    except ServeRefused as error:
        _complain(str(error))


@app.command()
def keys() -> None:
    """Make the order key and the chain-head key in SRE_BOT_KEYS; existing keys are kept."""
    from bot.settings import load_settings

    for name, key_id in _make_keys(load_settings().keys):
        typer.echo(f"{name}: key {key_id}" if key_id else f"{name}: is there already")


@app.command()
def init(
    cluster: Annotated[str, typer.Option(help="Name of the cluster in autonomy.yaml.")] = "default",
    kubeconfig: Annotated[Path | None, typer.Option(help="Kubeconfig; without it the in-cluster account is used.")] = None,
    context: Annotated[str | None, typer.Option(help="Context of the kubeconfig.")] = None,
    prometheus: Annotated[str | None, typer.Option(help="URL of Prometheus.")] = None,
    alertmanager: Annotated[str | None, typer.Option(help="URL of Alertmanager.")] = None,
    owner: Annotated[str, typer.Option(help="The first person: gets a token and owns the scopes.")] = "owner",
) -> None:
    """Look at the cluster, write autonomy.yaml, make keys and the first tokens. Nothing acts yet: every scope is at notify."""
    from bot.settings import load_settings
    from catalog.clusters import KubernetesAccess
    from incidents.beginning import InitRefused, begin

    settings = load_settings()
    _make_keys(settings.keys)
    access = KubernetesAccess(in_cluster=True)
    if kubeconfig is not None:
        access = KubernetesAccess(kubeconfig=kubeconfig.resolve(), context=context)
    try:
        told = asyncio.run(
            begin(
                policy=settings.policy,
                database_url=settings.database,
                name=cluster,
                access=access,
                prometheus=prometheus,
                alertmanager=alertmanager,
                owner=owner,
            )
        )
    except InitRefused as error:
        _complain(str(error))
    else:
        typer.echo(told)


@app.command("check-config")
def check_config(path: Annotated[Path | None, typer.Argument(help="autonomy.yaml; default SRE_BOT_POLICY.")] = None) -> None:
    """Read autonomy.yaml. Exit code 1 and one line per problem when it is not valid."""
    from bot.settings import load_settings
    from incidents.policies import PolicyInvalid, load_policy

    place = path or load_settings().policy
    try:
        policy = load_policy(place)
    except PolicyInvalid as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from error
    except OSError as error:
        _complain(f"{place} cannot be read: {error.strerror}")
    else:
        typer.echo(f"{place} is valid: {len(policy.clusters)} clusters, {len(policy.scopes)} scopes, hash {policy.hash[:12]}")


@app.command()
def audit() -> None:
    """Prove the event chain of every incident and the signed heads. Exit code 1 when one does not hold."""
    from incidents.chain import verify_chains

    broken = _with_session(verify_chains)
    for sentence in broken:
        typer.echo(sentence, err=True)
    if broken:
        raise typer.Exit(1)
    typer.echo("every event chain holds")


@person.command("add")
def person_add(name: str) -> None:
    """Let a person sign in and print their token once."""
    from incidents.people import add_person, issue_token

    async def work(session: AsyncSession) -> str:
        await add_person(session, name, now=_now())
        return (await issue_token(session, "person", name, now=_now()))[0]

    typer.echo(_with_session(work))


@person.command("token")
def person_token(name: str) -> None:
    """Print a further token for a person."""
    from incidents.people import issue_token

    async def work(session: AsyncSession) -> str:
        return (await issue_token(session, "person", name, now=_now()))[0]

    typer.echo(_with_session(work))


@person.command("link")
def person_link(name: str) -> None:
    """Print a log-in link for the console; it works once, for ten minutes."""
    from bot.settings import load_settings
    from incidents.people import login_link_token

    async def work(session: AsyncSession) -> str:
        return await login_link_token(session, name, now=_now())

    typer.echo(f"{load_settings().public_url}/login?token={_with_session(work)}")


@person.command("remove")
def person_remove(name: str) -> None:
    """End a person's access; their tokens and sessions stop working."""
    from incidents.people import remove_person

    async def work(session: AsyncSession) -> None:
        await remove_person(session, name, now=_now())

    _with_session(work)
    typer.echo(f"{name} can no longer sign in")


@person.command("list")
def person_list() -> None:
    """Everybody who may sign in."""
    from incidents.people import list_people

    for row in _with_session(list_people):
        typer.echo(row.id)


@token.command("ingest")
def token_ingest(
    name: str, cluster: Annotated[list[str], typer.Option(help="Name of a cluster the token is bound to; repeatable.")]
) -> None:
    """Print a bearer token for Alertmanager's webhook, bound to clusters."""
    typer.echo(_bound_token("ingest", name, cluster))


@token.command("executor")
def token_executor(name: str, cluster: Annotated[str, typer.Option(help="Name of the cluster the executor serves.")]) -> None:
    """Print a bearer token for an executor, bound to one cluster."""
    typer.echo(_bound_token("executor", name, [cluster]))


def _bound_token(kind: str, name: str, clusters: list[str]) -> str:
    from bot.settings import load_settings
    from incidents.people import issue_token
    from incidents.policies import PolicyInvalid, load_policy

    try:
        known = {cluster.name: cluster.uid for cluster in load_policy(load_settings().policy).clusters}
    except PolicyInvalid as error:
        _complain(str(error))
    missing = [cluster for cluster in clusters if cluster not in known]
    if missing:
        _complain(f"{', '.join(missing)} is not among the clusters of autonomy.yaml ({', '.join(known) or 'none'})")

    async def work(session: AsyncSession) -> str:
        uids = [known[cluster] for cluster in clusters]
        return (await issue_token(session, kind, name, now=_now(), clusters=uids))[0]  # type: ignore[arg-type]

    return _with_session(work)


def _make_keys(directory: Path) -> list[tuple[str, str | None]]:
    from catalog.signatures import write_key_pair

    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    (directory / "executors").mkdir(exist_ok=True)
    made: list[tuple[str, str | None]] = []
    for name in ("order", "heads"):
        private = directory / f"{name}.key"
        made.append((name, None if private.exists() else write_key_pair(private, directory / f"{name}.pub")))
    return made


def _with_session(work: Callable[[AsyncSession], Awaitable[_Result]]) -> _Result:
    from bot.settings import load_settings

    return asyncio.run(_in_session(load_settings(), work))


async def _in_session(settings: BotSettings, work: Callable[[AsyncSession], Awaitable[_Result]]) -> _Result:
    from incidents.database import Database
    from incidents.schema import migrate

    await migrate(settings.database)
    database = Database.open(settings.database)
    try:
        async with database.transaction() as session:
            return await work(session)
    finally:
        await database.close()


def _now() -> datetime:
    from catalog.clocks import SystemClock

    return SystemClock().now()
