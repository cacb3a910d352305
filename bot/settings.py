"""Where the bot's process finds its things. Everything about autonomy is in autonomy.yaml, nothing about it is here.

Each setting is an environment variable with the prefix SRE_BOT_.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict


class SettingsInvalid(Exception):
    """A setting cannot be used. The message names the variable and says what would be right."""


class BotSettings(BaseSettings):
    """Settings of `sre-bot`."""

    model_config = SettingsConfigDict(env_prefix="SRE_BOT_", frozen=True, extra="ignore")

    database: str = Field(default="sqlite:///var/bot.db", description="sqlite:///FILE or postgresql://USER@HOST/NAME")
    policy: Path = Field(default=Path("config/autonomy.yaml"), description="autonomy.yaml")
    keys: Path = Field(default=Path("var/keys"), description="directory with order.key, heads.key and executors/*.pub")
    listen: str = Field(default="127.0.0.1:8080", description="ADDRESS:PORT to listen on")
    public_url: str = Field(default="http://127.0.0.1:8080", description="how people reach the console")
    hosts: str = Field(default="", description="further host names to accept, separated by commas")
    notice: str = Field(default="", max_length=500, description="a sentence shown on the console's first page")
    log_format: str = Field(default="json", pattern="^(json|text)$")
    replica: str = Field(default="", description="name of this replica; default: host name and process id")

    @field_validator("listen")
    @classmethod
    def _listen(cls, value: str) -> str:
        address, _, port = value.rpartition(":")
        if not address or not port.isdecimal() or int(port) > 65535:
            raise ValueError("write ADDRESS:PORT, for example 127.0.0.1:8080")
        return value

    @field_validator("public_url")
    @classmethod
    def _public_url(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("write a URL such as https://sre.example.org")
        return value.rstrip("/")

    @property
    def address(self) -> tuple[str, int]:
        """Host and port to listen on."""
        address, _, port = self.listen.rpartition(":")
        return address.strip("[]"), int(port)

    @cached_property
    def allowed_hosts(self) -> tuple[str, ...]:
        """Host names that a request may name; everything else is refused (DNS rebinding)."""
        own = {urlsplit(self.public_url).hostname or "", self.address[0], "127.0.0.1", "localhost"}
        more = {host.strip() for host in self.hosts.split(",") if host.strip()}
        return tuple(sorted((own | more) - {"", "0.0.0.0", "::"}))

    @property
    def secure_cookies(self) -> bool:
        """Whether people reach the console over TLS."""
        return self.public_url.startswith("https://")


def load_settings() -> BotSettings:
    """Read the environment.

    Raises:
        SettingsInvalid: with the name of the variable.
    """
    try:
        return BotSettings()
    except ValidationError as error:
        first = error.errors()[0]
        name = "SRE_BOT_" + "_".join(str(part) for part in first["loc"]).upper()
        raise SettingsInvalid(f"{name}: {first['msg']}") from error
