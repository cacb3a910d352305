"""The policy in force: the last good reading of autonomy.yaml.

An invalid edit changes nothing but `problem`, which says which file, line and key, and what would be right. Starting with an
invalid file is refused.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from incidents import metrics
from ladder.errors import PolicyInvalid
from ladder.policy import Policy, load_policy

__all__ = ["Policies", "PolicyInvalid", "load_policy"]


class Policies:
    """Holds the policy in force. `current` is replaced as a whole: take it once per piece of work."""

    def __init__(self, current: Policy, path: Path | None = None) -> None:
        self.current = current
        self.problem: str | None = None
        self._path = path
        self._seen = _fingerprint(path)
        metrics.POLICY_INVALID.set(0)

    @classmethod
    def load(cls, path: Path) -> Policies:
        """Read the policy for the first time.

        Raises:
            PolicyInvalid: there is no good policy to begin with; give up and show its problems.
        """
        return cls(load_policy(path), path)

    def reload(self) -> bool:
        """Read the file again if it changed. True when another policy or another problem is now in force.

        A file that cannot be read or is invalid leaves `current` as it is and is told in `problem`.
        """
        if self._path is None:
            return False
        seen = _fingerprint(self._path)
        if seen == self._seen:
            return False
        self._seen = seen
        before = (self.current.hash, self.problem)
        try:
            self.current, self.problem = load_policy(self._path), None
        except PolicyInvalid as error:
            self.problem = f"{error}; the policy read before stays in force"
        except OSError as error:
            self.problem = f"{self._path} cannot be read ({error.strerror}); the policy read before stays in force"
        metrics.POLICY_INVALID.set(1 if self.problem else 0)
        metrics.POLICY_RELOADS.labels("refused" if self.problem else "taken").inc()
        return (self.current.hash, self.problem) != before


def _fingerprint(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        return f"unreadable: {error.errno}"
