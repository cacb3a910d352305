"""What every handler works on."""

from __future__ import annotations

from dataclasses import dataclass, field

from sandbox.access import Accounts
from sandbox.defaulting import admit
from sandbox.hooks import Hooks
from sandbox.registry import Registry
from sandbox.store import Store


@dataclass
class ControlPlane:
    """The store, its accounts, what is served, and whom the server asks."""

    store: Store
    accounts: Accounts
    registry: Registry
    hooks: Hooks = field(default_factory=Hooks)

    @classmethod
    def over(cls, store: Store, hooks: Hooks | None = None) -> ControlPlane:
        """A control plane over `store` with no account but anonymous; objects are completed as they are created."""
        if admit not in store.admitters:
            store.admitters.insert(0, admit)
        return cls(store, Accounts(store), Registry(store), hooks or Hooks())
