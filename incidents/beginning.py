"""The first look at a cluster: writes an autonomy.yaml that notifies and acts nowhere, and the tokens to begin with."""

from __future__ import annotations

import asyncio
from pathlib import Path

import yaml

from catalog.clocks import SystemClock
from catalog.clusters import Cluster, KubernetesAccess
from catalog.marks import HOME_NAMESPACE, OPT_IN_LABEL, OPT_IN_VALUE
from incidents.database import Database
from incidents.people import add_person, issue_token
from incidents.schema import migrate
from ladder.policy import parse_policy
from sources.endpoints import SourceSet, open_sources
from sources.errors import SourceError


class InitRefused(Exception):
    """Nothing was written. The message says what is in the way."""


async def begin(
    *,
    policy: Path,
    database_url: str,
    name: str,
    access: KubernetesAccess,
    prometheus: str | None,
    alertmanager: str | None,
    owner: str,
) -> str:
    """Write `policy` for one cluster and make the first person's and the webhook's tokens. Returns what to tell the person.

    Raises:
        InitRefused: the file is there already, or the cluster, Prometheus or Alertmanager cannot be read.
    """
    if await asyncio.to_thread(policy.exists):
        raise InitRefused(f"{policy} is there already; remove it first, or edit it and run: sre-bot check-config")
    uid, seen = await _look(name, access, prometheus, alertmanager)
    cluster = Cluster(name=name, uid=uid, api=access, prometheus=prometheus, alertmanager=alertmanager)
    text = first_policy(cluster, owner)
    parse_policy(text, str(policy))
    await asyncio.to_thread(_write, policy, text)
    await migrate(database_url)
    database = Database.open(database_url)
    now = SystemClock().now()
    try:
        async with database.transaction() as session:
            await add_person(session, owner, now=now)
            person, _ = await issue_token(session, "person", owner, now=now)
            ingest, _ = await issue_token(session, "ingest", "alertmanager", now=now, clusters=[uid])
            executor, _ = await issue_token(session, "executor", f"executor-{name}", now=now, clusters=[uid])
    finally:
        await database.close()
    return "\n".join(
        (
            *seen,
            f"wrote {policy}: every scope is at notify, nothing acts",
            f"your token ({owner}): {person}",
            f"webhook token for Alertmanager (authorization.credentials): {ingest}",
            f"executor's token: {executor}",
            f"opt a namespace in with: kubectl label namespace NAME {OPT_IN_LABEL}={OPT_IN_VALUE}",
        )
    )


def _write(policy: Path, text: str) -> None:
    policy.parent.mkdir(parents=True, exist_ok=True)
    policy.write_text(text)


def first_policy(cluster: Cluster, owner: str) -> str:
    """An autonomy.yaml that maps one cluster and names no scope."""
    entry: dict[str, object] = {"name": cluster.name, "uid": cluster.uid, "match": {}}
    api = cluster.api.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    entry["api"] = api or {"in_cluster": True}
    for key, value in (("prometheus", cluster.prometheus), ("alertmanager", cluster.alertmanager)):
        if value:
            entry[key] = value
    document = {
        "schema": 1,
        "clusters": [entry],
        "people": {owner: {}},
        "protected": ["kube-system", "kube-node-lease", "monitoring", HOME_NAMESPACE],
        "scopes": [],
    }
    return (
        "# What no scope names is notify at most. config/autonomy.yaml of the checkout is a commented example of scopes.\n"
        + yaml.safe_dump(document, sort_keys=False, width=120)
    )


async def _look(name: str, access: KubernetesAccess, prometheus: str | None, alertmanager: str | None) -> tuple[str, list[str]]:
    candidate = Cluster(name=name, uid="unknown", api=access, prometheus=prometheus, alertmanager=alertmanager)
    try:
        sources = await open_sources(candidate, SystemClock(), b"first look")
        try:
            return await _seen(name, sources)
        finally:
            await sources.close()
    except SourceError as error:
        raise InitRefused(f"{error}; nothing was written") from error


async def _seen(name: str, sources: SourceSet) -> tuple[str, list[str]]:
    """The cluster's UID and what answered, in sentences."""
    uid = await sources.kubernetes.cluster_uid()
    seen = [f"cluster {name}: kube-system has UID {uid}"]
    if sources.prometheus is not None:
        seen.append(f"Prometheus answers: {len(await sources.prometheus.rules())} alerting rules")
    if sources.alertmanager is not None:
        await sources.alertmanager.firing({"alertname": "SreLadderFirstLook"})
        seen.append("Alertmanager answers")
    return uid, seen
