"""Settings of the process, from the environment (`SRE_EXECUTOR_…`). Nothing secret is a value: keys and tokens are files."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from catalog.clusters import KubernetesAccess
from catalog.marks import HOME_NAMESPACE
from executor.errors import ConfigurationInvalid

PREFIX = "SRE_EXECUTOR_"


class Settings(BaseSettings):
    """All settings. Each is an environment variable with the prefix `SRE_EXECUTOR_`."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="ignore")

    bot_url: str = Field(description="address of the bot, https except on this machine")
    bot_token_file: Path = Field(description="the bearer token that `sre-bot keys` printed for this executor")
    bot_public_keys: str = Field(description="public key files of the bot, separated by commas; two during a rotation")
    private_key: Path = Field(description="this executor's own key, mode 0600")
    journal_url: str = Field(default="sqlite:///executor.db", description="sqlite:///FILE or postgresql://USER@HOST/NAME")
    limits_file: Path = Field(description="what this executor will do at most")
    cluster_uid: str | None = Field(default=None, description="UID of kube-system; when given, another cluster is refused")
    in_cluster: bool = False
    kubeconfig: Path | None = None
    context: str | None = None
    api_server: str | None = None
    api_token_file: Path | None = None
    api_ca_file: Path | None = None
    prometheus_url: str | None = None
    prometheus_token_file: Path | None = None
    home_namespace: str = HOME_NAMESPACE
    halt_file: Path | None = Field(default=None, description="its existence halts this executor")
    executor_id: str = Field(default_factory=lambda: f"{socket.gethostname()}-{os.getpid()}")
    claim_every: float = Field(default=2.0, gt=0, le=10, description="seconds between two claims; each is the heartbeat")
    log_format: str = Field(default="json", pattern="^(json|console)$")
    log_level: str = Field(default="info", pattern="^(debug|info|warning|error)$")

    @property
    def access(self) -> KubernetesAccess:
        """How to reach the API server."""
        return KubernetesAccess(
            in_cluster=self.in_cluster,
            kubeconfig=self.kubeconfig,
            context=self.context,
            server=self.api_server,
            token_file=self.api_token_file,
            ca_file=self.api_ca_file,
        )

    @property
    def public_key_paths(self) -> tuple[Path, ...]:
        return tuple(Path(part.strip()) for part in self.bot_public_keys.split(",") if part.strip())


def load_settings() -> Settings:
    """The settings of the environment.

    Raises:
        ConfigurationInvalid: one line for each variable that is missing or wrong.
    """
    try:
        return Settings()
    except ValidationError as error:
        lines = []
        for problem in error.errors(include_url=False, include_input=False, include_context=False):
            name = PREFIX + "_".join(str(part) for part in problem["loc"]).upper()
            lines.append(f"{name}: {'is not set' if problem['type'] == 'missing' else problem['msg']}")
        raise ConfigurationInvalid("\n".join(lines)) from error
