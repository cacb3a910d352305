"""The marks this system reads and leaves in a cluster, and the names it goes by there."""

from __future__ import annotations

OPT_IN_LABEL = "sre-ladder.dev/autonomy"
OPT_IN_VALUE = "enabled"
TXN_ANNOTATION = "sre-ladder.dev/txn"
RESTART_ANNOTATION = "sre-ladder.dev/restart"
JOURNAL_ANNOTATION = "sre-ladder.dev/journal"
HALT_CONFIG_MAP = "sre-ladder-halt"
EXECUTOR_LEASE = "sre-ladder-executor"
HOME_NAMESPACE = "sre-ladder"
PAGE_PREFIX = "SreLadder"


def open_mark(transaction_id: str, n: int) -> str:
    """Value of the txn annotation while a transaction is open; `n` grows with each write."""
    return f"open/{transaction_id}/{n}"


def closed_mark(transaction_id: str) -> str:
    """Value at a terminal state."""
    return f"closed/{transaction_id}"


def open_transaction(mark: str | None) -> str | None:
    """Id of the transaction that `mark` says is open. None for an absent or closed mark.

    Raises:
        ValueError: the mark has neither form: somebody else wrote it.
    """
    if mark is None:
        return None
    parts = mark.split("/")
    if parts[0] == "closed" and len(parts) == 2 and parts[1]:
        return None
    if parts[0] == "open" and len(parts) == 3 and parts[1] and parts[2].isdecimal():
        return parts[1]
    raise ValueError(f"{TXN_ANNOTATION} has the value {mark!r}, which is not ours")
