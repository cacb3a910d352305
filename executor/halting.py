"""The brake: three ways to stop, any of which is enough, and each unreadable one counts as pulled.

* the bot's switch, as the last claim answered it; an answer older than 15 s is unreadable;
* the ConfigMap `sre-ladder-halt` in our namespace: its existence, whatever it holds. Only a 404 means that it is not there. It
  works when chat, web and bot are down: `kubectl create configmap sre-ladder-halt -n sre-ladder`;
* a file on this machine.

It is asked before every *forward* write. Undo, verification and closing go on; a hard halt parks them as well.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from catalog.marks import HALT_CONFIG_MAP
from catalog.orders import ClaimAnswer, HaltSwitch
from executor.transactions import Brake
from sources.errors import SourceUnavailable
from sources.kubernetes import KubernetesReader, object_path

SWITCH_GOOD_FOR = 15.0
"""Seconds for which the bot's last word on its switch counts."""


class Brakes:
    """What stops forward writes, as known right now."""

    def __init__(
        self, reader: KubernetesReader, monotonic: Callable[[], float], home_namespace: str, halt_file: Path | None = None
    ) -> None:
        self._reader = reader
        self._monotonic = monotonic
        self._path = object_path("v1", "configmaps", HALT_CONFIG_MAP, home_namespace)
        self._file = halt_file
        self._switch: HaltSwitch | None = None
        self._heard_at = float("-inf")
        self._taken: frozenset[str] = frozenset()
        self._resumed: dict[str, Literal["undo", "settle"]] = {}

    def heard(self, answer: ClaimAnswer) -> None:
        """Remember what the bot said in answer to a claim."""
        self._switch = answer.switch
        self._heard_at = self._monotonic()
        self._taken = frozenset(answer.taken_over)
        self._resumed |= dict(answer.resume)

    async def state(self) -> Brake:
        """The brake for everything: off only if all three say so."""
        hard = self._switch is not None and self._switch.hard
        if self._file is not None and self._file.exists():
            return Brake(reason="halted", sentence=f"Halted on the executor's machine ({self._file}).", hard=hard)
        if self._switch is None or self.bot_silent:
            return Brake(reason="halt_unreadable", sentence="The bot's halt switch could not be read in time.", hard=hard)
        if self._switch.halted or hard:
            who = f" by {self._switch.by}" if self._switch.by else ""
            why = f": {self._switch.reason}" if self._switch.reason else ""
            return Brake(reason="halted", sentence=f"Halted{who}{why}.", hard=hard)
        try:
            found = await self._reader.get(self._path)
        except SourceUnavailable as error:
            return Brake(reason="halt_unreadable", sentence=f"Whether the halt ConfigMap exists could not be told: {error}.")
        if found is not None:
            return Brake(reason="halted", sentence=f"Halted in the cluster: the ConfigMap {HALT_CONFIG_MAP} exists.")
        return Brake()

    async def state_for(self, order_id: str) -> Brake:
        """The brake for one order: a person who took its incident over stops it alone."""
        if order_id in self._taken:
            return Brake(reason="taken_over", sentence="A person took the incident over.")
        return await self.state()

    @property
    def bot_silent(self) -> bool:
        """Whether the bot's last word on its switch is too old to count."""
        return self._monotonic() - self._heard_at > SWITCH_GOOD_FOR

    @property
    def hard(self) -> bool:
        """Whether the bot's last word was a hard halt. Not hearing from the bot does not lift it."""
        return self._switch is not None and self._switch.hard

    def word_for(self, *ids: str) -> Literal["undo", "settle"] | None:
        """An owner's word on a parked transaction, by its own id or its order's."""
        return next((self._resumed[one] for one in ids if one in self._resumed), None)
