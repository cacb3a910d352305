"""Triage: alerts grouped on one target become severity, ranked hypotheses and one recommended action.

May import `catalog` and `sources`. It reads and never writes. `gathering` does the I/O once and keeps what it saw as
`Symptoms`: redacted, compact, stored. `diagnosing` is a pure function of those symptoms: the same symptoms give the same
diagnosis next year. Specialists read one source each and vote; a source that is not configured abstains and its weight goes
to the others, and the diagnosis says so; one that is configured but cannot be read is a visible fault. What an alert's text
claims is never evidence. Whether the hypothesis holds is not decided here but by the verifier.
"""

from __future__ import annotations

TRIAGE_VERSION = "1"
