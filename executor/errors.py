"""Everything that can go wrong in this room, and what the caller should do.

ExecutorError
├── ConfigurationInvalid      a person must correct a file or a setting; say the sentence and exit
├── JournalUnavailable        retry later; nothing was kept, so nothing may be written to the cluster
├── JournalSuperseded         another executor moved this transaction; leave it alone
├── NotActive                 this process does not hold the cluster; make no write
└── Interrupted               the process is stopping; the journal has all that is needed to go on
"""

from __future__ import annotations


class ExecutorError(Exception):
    """Root of the tree."""


class ConfigurationInvalid(ExecutorError):
    """A setting or file cannot be used. The message names it and says what would be right."""


class JournalUnavailable(ExecutorError):
    """The journal cannot take or give data now. Without a journaled intent no call to the cluster is made."""


class JournalSuperseded(ExecutorError):
    """The row has another version than the one read: another executor works on it. Abandon it here."""


class NotActive(ExecutorError):
    """The lease is not held (any more). Whoever holds it finishes what is open."""


class Interrupted(ExecutorError):
    """The process was asked to stop. Open transactions stay open in the journal."""
