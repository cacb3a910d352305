"""The two calls to the bot: claim (pull and heartbeat) and outcome. The bot being away is normal and never an error of ours."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
from pydantic import ValidationError

from catalog.orders import ClaimAnswer, ClaimRequest, Signed
from executor.errors import ConfigurationInvalid, ExecutorError

CLAIM_PATH = "/v1/orders/claim"
OUTCOME_PATH = "/v1/outcomes"
MAX_ANSWER_BYTES = 4 * 1024 * 1024
_FINAL = frozenset({400, 409, 410, 413, 422})


class BotAway(ExecutorError):
    """The bot did not answer, or not with what was asked. Try again; begin nothing new meanwhile."""


class OutcomeNotTaken(ExecutorError):
    """The bot refuses this outcome for good. Keep it in the journal, tell a person; sending it again cannot help."""


class BotClient:
    """HTTP to one bot. Close it with `await client.close()`."""

    def __init__(self, url: str, token_file: Path, *, timeout_s: float = 10.0) -> None:
        self._token_file = token_file
        # Proxies of the environment are not for this path: the token goes to the bot and to nobody else.
        self._http = httpx.AsyncClient(base_url=bot_url(url), timeout=timeout_s, trust_env=False, follow_redirects=False)

    async def claim(self, request: ClaimRequest) -> ClaimAnswer:
        """Ask for orders; the request is the heartbeat too.

        Raises:
            BotAway: no usable answer.
        """
        response = await self._post(CLAIM_PATH, request.to_json())
        if response.status_code != 200:
            raise BotAway(f"the bot answered the claim with {response.status_code}{_sentence(response)}")
        try:
            return ClaimAnswer.model_validate_json(response.content)
        except ValidationError as error:
            raise BotAway(f"the bot's answer to the claim is not one of this version ({error.error_count()} problems)") from error

    async def outcome(self, signed: Signed) -> None:
        """Hand over an outcome; the bot takes each id once.

        Raises:
            BotAway: not taken yet.
            OutcomeNotTaken: refused for good, with the bot's sentence.
        """
        response = await self._post(OUTCOME_PATH, signed.to_json())
        if 200 <= response.status_code < 300:
            return
        told = f"the bot answered the outcome with {response.status_code}{_sentence(response)}"
        # Only the bot itself says with a sentence that it knows no such order; a bare 404 is some other server.
        unknown = response.status_code == httpx.codes.NOT_FOUND and bool(_sentence(response))
        raise OutcomeNotTaken(told) if unknown or response.status_code in _FINAL else BotAway(told)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def _post(self, path: str, body: str) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self._token()}", "Content-Type": "application/json"}
        try:
            response = await self._http.post(path, content=body, headers=headers)
        except httpx.HTTPError as error:
            raise BotAway(f"the bot cannot be reached ({type(error).__name__})") from error
        if len(response.content) > MAX_ANSWER_BYTES:
            raise BotAway("the bot's answer is too long to be one")
        return response

    def _token(self) -> str:
        try:
            return self._token_file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise BotAway(f"the token file {self._token_file} cannot be read") from error


def bot_url(url: str) -> str:
    """The bot's address without a trailing slash.

    Raises:
        ConfigurationInvalid: not http(s), with a user or query in it, or unencrypted to another machine.
    """
    parts = urlsplit(url.strip())
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationInvalid(f"SRE_EXECUTOR_BOT_URL: {url!r} is not an http or https URL")
    if parts.username is not None or parts.query or parts.fragment:
        raise ConfigurationInvalid("SRE_EXECUTOR_BOT_URL: no user, query or fragment; the token comes from a file")
    if parts.scheme == "http" and not _stays_here(parts.hostname):
        raise ConfigurationInvalid(f"SRE_EXECUTOR_BOT_URL: the token would travel unencrypted to {parts.hostname}; use https")
    return url.strip().rstrip("/")


def _stays_here(host: str) -> bool:
    """This machine, or a Service inside the cluster, whose network is the operator's to encrypt."""
    if host == "localhost" or host.endswith((".svc", ".svc.cluster.local")):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _sentence(response: httpx.Response) -> str:
    """What the bot says about it, if it says so in JSON."""
    try:
        body = response.json()
    except ValueError:
        return ""
    detail = (body.get("detail") or body.get("error")) if isinstance(body, dict) else None
    return f": {str(detail)[:200]}" if detail else ""
