"""The demo's people, who speak through the bot's API with their own tokens, and its operator, who breaks and mends the cluster."""

from __future__ import annotations

import secrets
from typing import Any

import httpx

from sandbox.demo.installation import Installation

Json = dict[str, Any]


class Refusal(Exception):
    """The bot did not do what a person asked; the text is its answer."""


class Person:
    """One person's way through the front door."""

    def __init__(self, installation: Installation, name: str) -> None:
        self.name = name
        self._client = httpx.AsyncClient(
            base_url=installation.bot_url,
            headers={"Authorization": f"Bearer {installation.tokens[name]}"},
            timeout=30.0,
            trust_env=False,
        )

    async def close(self) -> None:
        await self._client.aclose()

    async def say(self, line: str) -> str:
        """One line of the command grammar; the answer's text.

        Raises:
            Refusal: it was not done.
        """
        answer = await self._client.post("/v1/commands", json={"line": line, "key": secrets.token_hex(16)})
        body = answer.json()
        if not body.get("ok"):
            raise Refusal(body.get("text") or body.get("detail", answer.text))
        return str(body["text"])

    async def card(self, number: int) -> Json:
        """The card of one incident, as data."""
        return dict((await self._client.get(f"/v1/incidents/{number}")).raise_for_status().json())

    async def incidents(self, *, closed: bool = False, limit: int = 500) -> list[Json]:
        """Open or closed incidents."""
        query = {"state": "closed" if closed else "open", "limit": limit}
        return list((await self._client.get("/v1/incidents", params=query)).raise_for_status().json())


class Operator:
    """Who runs the cluster: an admin's token, and the sandbox's own pages for faults and load."""

    def __init__(self, installation: Installation) -> None:
        token = (installation.directory / "cluster" / "admin.token").read_text().strip()
        self._client = httpx.AsyncClient(
            base_url=installation.cluster_url, headers={"Authorization": f"Bearer {token}"}, timeout=10.0, trust_env=False
        )

    async def close(self) -> None:
        await self._client.aclose()

    async def pods(self, namespace: str, name: str) -> list[Json]:
        """Pods of a Deployment that are not being deleted."""
        answer = await self._client.get(f"/api/v1/namespaces/{namespace}/pods", params={"labelSelector": f"app={name}"})
        items = answer.raise_for_status().json()["items"]
        return [item for item in items if "deletionTimestamp" not in item["metadata"]]

    async def deployment(self, namespace: str, name: str) -> Json:
        """A Deployment as stored."""
        return dict((await self._client.get(_deployment(namespace, name))).raise_for_status().json())

    async def scale(self, namespace: str, name: str, replicas: int) -> None:
        """Set replicas by hand."""
        await self._patch(namespace, name, {"spec": {"replicas": replicas}})

    async def release(self, namespace: str, name: str, annotations: dict[str, str | None]) -> None:
        """Roll out a changed pod template."""
        changed = {f"sandbox.dev/{key}": value for key, value in annotations.items()}
        await self._patch(namespace, name, {"spec": {"template": {"metadata": {"annotations": changed}}}})

    async def load(self, namespace: str, name: str, rps: float) -> None:
        """Offer another load to a workload."""
        await self._send("PUT", f"/sandbox/workloads/{namespace}/{name}/load", {"rps": rps})

    async def break_program(self, namespace: str, name: str, changes: Json, pods: str | list[str] = "existing") -> None:
        """Change how running programs behave; pods that start later are not hit unless `pods` says so."""
        await self._send("POST", f"/sandbox/workloads/{namespace}/{name}/faults", {"changes": changes, "pods": pods})

    async def mend(self, namespace: str, name: str) -> None:
        """Take every fault of a workload away."""
        (await self._client.delete(f"/sandbox/workloads/{namespace}/{name}/faults")).raise_for_status()

    async def _patch(self, namespace: str, name: str, body: Json) -> None:
        headers = {"Content-Type": "application/merge-patch+json"}
        (await self._client.patch(_deployment(namespace, name), json=body, headers=headers)).raise_for_status()

    async def _send(self, method: str, path: str, body: Json) -> None:
        (await self._client.request(method, path, json=body)).raise_for_status()


def _deployment(namespace: str, name: str) -> str:
    return f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}"
