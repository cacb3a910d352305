"""A client of one API server from what the configuration says, with credentials that are read again as they rotate.

A bound service account token is replaced on disk about once an hour, and the old one stops to work. So the token file is
looked at before every request and read again when it changed; after a 401 the reader calls `forget_credentials` and asks once
more. A kubeconfig is loaded again under the same two conditions, which also renews what an exec plugin gave.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config import ConfigException, load_kube_config
from yaml import YAMLError

from catalog.clusters import KubernetesAccess
from sources.errors import SourceMisconfigured

ACCOUNT_DIRECTORY = Path("/var/run/secrets/kubernetes.io/serviceaccount")
CONNECTIONS = 32
CREDENTIALS_S = 20


class Credentials(Protocol):
    """What the client asks for an up-to-date token before each request."""

    async def __call__(self, configuration: Configuration) -> None:
        """Put the credentials of now into `configuration`."""

    def forget(self) -> None:
        """The server refused them: read them again before the next request, whatever the file's age says."""


class TokenFile:
    """A bearer token in a file that somebody else replaces."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._token = ""

    async def __call__(self, configuration: Configuration) -> None:
        configuration.api_key["BearerToken"] = f"Bearer {self.read()}"

    def forget(self) -> None:
        self._seen = None

    def read(self) -> str:
        """The token of now. While the file cannot be read (it is being replaced) the last one stays.

        Raises:
            SourceMisconfigured: there is no readable token and never was.
        """
        try:
            status = os.stat(self._path)
            mark = (status.st_mtime_ns, status.st_ino, status.st_size)
            if mark != self._seen:
                token = self._path.read_text(encoding="ascii").strip()
                if token:
                    self._token, self._seen = token, mark
        except (OSError, UnicodeDecodeError) as error:
            if not self._token:
                raise SourceMisconfigured(f"the token file {self._path} cannot be read: {_reason(error)}") from error
        if not self._token:
            raise SourceMisconfigured(f"the token file {self._path} is empty")
        return self._token


class Kubeconfig:
    """Credentials of one context of a kubeconfig, loaded again when the file changes or the server refuses them."""

    def __init__(self, path: Path, context: str | None) -> None:
        self._path = path
        self._context = context
        self._seen: int | None = None

    async def __call__(self, configuration: Configuration) -> None:
        try:
            changed = os.stat(self._path).st_mtime_ns
        except OSError as error:
            if self._seen is None:
                raise SourceMisconfigured(f"the kubeconfig {self._path} cannot be read: {_reason(error)}") from error
            return
        if changed == self._seen:
            return
        await self._load(configuration)
        self._seen = changed

    def forget(self) -> None:
        self._seen = -1 if self._seen is not None else None

    async def _load(self, configuration: Configuration) -> None:
        try:
            await load_kube_config(str(self._path), self._context, configuration, persist_config=False)  # type: ignore[no-untyped-call]
        except (ConfigException, OSError, YAMLError, KeyError, TypeError, AttributeError, ValueError) as error:
            where = f"the context {self._context!r} of " if self._context else ""
            raise SourceMisconfigured(f"{where}the kubeconfig {self._path} cannot be used: {_reason(error)}") from error


async def api_client(access: KubernetesAccess, *, user_agent: str) -> ApiClient:
    """A client for one API server. It never retries by itself; close it with `await client.close()`.

    Raises:
        SourceMisconfigured: not exactly one way is given, or a file, a context or a token that it needs cannot be used.
    """
    ways = [access.in_cluster, access.kubeconfig is not None, access.server is not None]
    if sum(ways) != 1:
        raise SourceMisconfigured("give exactly one way to the API server: in_cluster, kubeconfig, or server with token_file")
    configuration = Configuration()
    configuration.connection_pool_maxsize = CONNECTIONS
    credentials: Credentials
    if access.kubeconfig is not None:
        credentials = Kubeconfig(access.kubeconfig.expanduser(), access.context)
    elif access.server is not None:
        credentials = _of_server(configuration, access)
    else:
        credentials = _of_the_pod(configuration)
    try:
        async with asyncio.timeout(CREDENTIALS_S):
            await credentials(configuration)
    except TimeoutError as error:
        raise SourceMisconfigured(f"the credentials plugin of {access.kubeconfig} gave no token in {CREDENTIALS_S} s") from error
    _refuse_clear_text(configuration.host)
    configuration.refresh_api_key_hook = credentials  # type: ignore[assignment]
    try:
        client = ApiClient(configuration)
    except (OSError, ValueError) as error:
        raise SourceMisconfigured(f"the certificates for {configuration.host} cannot be used: {_reason(error)}") from error
    client.user_agent = user_agent
    return client


def forget_credentials(client: ApiClient) -> None:
    """Read the credentials again before the next request."""
    credentials: Any = client.configuration.refresh_api_key_hook
    if credentials is not None and hasattr(credentials, "forget"):
        credentials.forget()


def _of_server(configuration: Configuration, access: KubernetesAccess) -> TokenFile:
    if access.token_file is None:
        raise SourceMisconfigured("an API server given by `server` needs `token_file`")
    configuration.host = str(access.server).rstrip("/")
    if access.ca_file is not None:
        if not access.ca_file.is_file():
            raise SourceMisconfigured(f"the CA file {access.ca_file} does not exist")
        configuration.ssl_ca_cert = str(access.ca_file)
    return TokenFile(access.token_file)


def _of_the_pod(configuration: Configuration) -> TokenFile:
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise SourceMisconfigured("in_cluster is set, but this process does not run in a pod (KUBERNETES_SERVICE_HOST is missing)")
    configuration.host = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    configuration.ssl_ca_cert = str(ACCOUNT_DIRECTORY / "ca.crt")
    return TokenFile(ACCOUNT_DIRECTORY / "token")


def _refuse_clear_text(host: str) -> None:
    """A token must not travel unencrypted, except inside this machine."""
    parts = urlsplit(host)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SourceMisconfigured(f"the API server address {host!r} is not an http or https URL")
    if parts.scheme == "https" or parts.hostname == "localhost":
        return
    try:
        local = ipaddress.ip_address(parts.hostname).is_loopback
    except ValueError:
        local = False
    if not local:
        raise SourceMisconfigured(f"the API server {host} would receive the token unencrypted; use https")


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    if isinstance(error, ConfigException):
        return str(error)
    return type(error).__name__
