"""The only client that writes: PATCH of one Deployment, POST of one eviction, and the Lease. Each call is made once.

An answer is one of three: it took effect, it certainly did not, or nobody knows (`Lost`). The message of a 422 quotes the whole
object, environment values included, so no message of the server is logged or shown but those that are known to be short.
"""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass
from typing import Any

import aiohttp
from kubernetes.aio.client import ApiClient

from executor.effects import PATCH_QUERY, JsonObject, Patch, eviction_of
from executor.transactions import Answered, Lost
from sources.connecting import forget_credentials
from sources.kubernetes import connection_reason, object_path

MAX_ANSWER_BYTES = 16 * 1024 * 1024
_JSON_PATCH = "application/json-patch+json"
_JSON = "application/json"
_POLICY = re.compile(r"ValidatingAdmissionPolicy '([a-z0-9.-]{1,253})'")
_WEBHOOK = re.compile(r"(?:admission|calling) webhook \"([A-Za-z0-9._/-]{1,253})\"")
_DRY_RUN_WEBHOOK = re.compile(r"(?:admission )?webhook \"?([A-Za-z0-9._/-]{1,253})\"? does not support dry.?run", re.IGNORECASE)


@dataclass(frozen=True)
class Response:
    """A complete answer of the API server."""

    status: int
    body: JsonObject

    @property
    def message(self) -> str:
        """The server's message. May quote a whole object: match on it, never show it."""
        return str(self.body.get("message", ""))

    @property
    def causes(self) -> tuple[tuple[str, str], ...]:
        details = self.body.get("details")
        causes = details.get("causes") if isinstance(details, dict) else None
        found = [cause for cause in causes or [] if isinstance(cause, dict)]
        return tuple((str(cause.get("reason", "")), str(cause.get("message", ""))) for cause in found)


class KubernetesWriter:
    """Writes of one cluster's API under the executor's own account."""

    def __init__(self, api: ApiClient, timeout_s: float = 10.0) -> None:
        self._api = api
        self._timeout_s = timeout_s

    async def patch(self, path: str, patch: Patch, *, dry_run: bool = False) -> Response | Lost:
        """One JSON Patch."""
        query = {**PATCH_QUERY, "dryRun": "All"} if dry_run else PATCH_QUERY
        return await self._call("PATCH", path, query, patch, _JSON_PATCH)

    async def evict(self, namespace: str, pod: str, uid: str, *, dry_run: bool = False) -> Response | Lost:
        """One eviction, honouring disruption budgets."""
        path = object_path("v1", "pods", pod, namespace) + "/eviction"
        body = eviction_of(namespace, pod, uid, dry_run=dry_run)
        return await self._call("POST", path, {"dryRun": "All"} if dry_run else {}, body, _JSON)

    async def create_lease(self, path: str, body: JsonObject) -> Response | Lost:
        """POST of the Lease."""
        return await self._call("POST", path, {"fieldManager": PATCH_QUERY["fieldManager"]}, body, _JSON)

    async def put_lease(self, path: str, body: JsonObject) -> Response | Lost:
        """PUT of the Lease with the resourceVersion it was read with."""
        return await self._call("PUT", path, {"fieldManager": PATCH_QUERY["fieldManager"]}, body, _JSON)

    async def _call(self, method: str, path: str, query: dict[str, str], body: Any, content_type: str) -> Response | Lost:
        try:
            async with asyncio.timeout(self._timeout_s):
                request = await self._api.param_serialize(
                    method,
                    path,
                    query_params=list(query.items()),
                    header_params={"Accept": _JSON, "Content-Type": content_type},
                    body=body,
                    auth_settings=["BearerToken"],
                )
                answer = await self._api.call_api(*request, _request_timeout=aiohttp.ClientTimeout(total=self._timeout_s))
                async with answer.response as stream:
                    raw = await stream.content.read(MAX_ANSWER_BYTES)
                    status = stream.status
        except TimeoutError:
            return Lost(detail=f"no answer in {self._timeout_s:g} s")
        except aiohttp.ClientConnectorError as error:
            # No connection was made, so nothing was sent. It is still treated as in doubt: a proxy may lie about it.
            return Lost(detail=connection_reason(error))
        except (aiohttp.ClientError, OSError) as error:
            return Lost(detail=connection_reason(error))
        if status == 401:
            forget_credentials(self._api)
        return Response(status, _parsed(raw))


def answer_of(response: Response | Lost, *, eviction: bool = False) -> Answered | Lost:
    """What an answer means for the transaction."""
    if isinstance(response, Lost):
        return response
    status = response.status
    if status in (200, 201):
        return Answered(done=True)
    if status == 401:
        return Answered(
            done=False, retry=True, reason="unauthorized", sentence="The API server does not accept the executor's token."
        )
    if status == 403:
        return _forbidden(response)
    if status == 404:
        return Answered(done=False, reason="gone", sentence="The object is not there (404).")
    if status == 409:
        sentence = "The pod is no longer the one that was named (409)." if eviction else "The API server reports a conflict (409)."
        return Answered(done=False, retry=not eviction, reason="changed", sentence=sentence)
    if status == 422:
        return Answered(
            done=False, maybe_fence=not eviction, reason="invalid", sentence="The API server refuses the request (422)."
        )
    if status == 429:
        return _too_many(response, eviction)
    webhook = _WEBHOOK.search(response.message)
    if webhook:
        sentence = f"The admission webhook {webhook[1]} could not be called ({status})."
        return Answered(done=False, retry=True, reason="webhook_down", sentence=sentence)
    if status in (500, 502, 503, 504) or status >= 500:
        # A gateway or a timed-out server may have stored the write before it said this.
        return Lost(detail=f"the API server answered {status}")
    return Answered(done=False, reason="refused_by_server", sentence=f"The API server answered {status}.")


def dry_run_refusal(response: Response | Lost) -> tuple[str, str] | None:
    """(reason, sentence) when a dry run says that the write would be refused; None when it would be accepted."""
    if isinstance(response, Lost):
        return "dry_run_unanswered", f"The server-side dry run got no answer: {response.detail}."
    if response.status in (200, 201):
        return None
    webhook = _DRY_RUN_WEBHOOK.search(response.message)
    if webhook:
        return "webhook_without_dry_run", f"A webhook here does not support dry runs: {webhook[1]}."
    answer = answer_of(response)
    if isinstance(answer, Lost):
        return "dry_run_unanswered", f"The server-side dry run could not be judged: {answer.detail}."
    return answer.reason, f"The server-side dry run was refused. {answer.sentence}"


def is_our_denial(response: Response | Lost) -> bool:
    """Whether an answer is the denial of this product's own admission policy."""
    if isinstance(response, Lost) or response.status != 403:
        return False
    policy = _POLICY.search(response.message)
    return policy is not None and policy[1].startswith("sre-ladder")


def _forbidden(response: Response) -> Answered:
    policy = _POLICY.search(response.message)
    if policy:
        return Answered(done=False, reason="denied_by_policy", sentence=f"The admission policy {policy[1]} denies it.")
    webhook = _WEBHOOK.search(response.message)
    if webhook:
        return Answered(done=False, reason="denied_by_webhook", sentence=f"The admission webhook {webhook[1]} denies it.")
    return Answered(done=False, reason="forbidden", sentence="The executor's account is not allowed to do this (403).")


def _too_many(response: Response, eviction: bool) -> Answered:
    budgets = [message for reason, message in response.causes if reason == "DisruptionBudget"]
    if budgets:
        return Answered(done=False, reason="disruption_budget", sentence=f"A disruption budget forbids it now: {budgets[0][:200]}.")
    return Answered(done=False, retry=not eviction, reason="throttled", sentence="The API server asks to slow down (429).")


def _parsed(raw: bytes) -> JsonObject:
    try:
        body = json.loads(raw)
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}
