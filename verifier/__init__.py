"""The verifier: tests the hypothesis, not the symptoms, and never touches anything.

May import `catalog` and `sources`; it knows nothing of how triage came to its diagnosis. `observing` reads, side by side and
within ten seconds, what the predictions need and keeps it as `Observations`. `weighing` is a pure function of those: each
prediction answers supports, refutes or inconclusive, the strongest of each evidence group counts, and the hypothesis is
normalised together with its rivals and with "none of these". What could not be read is inconclusive, by name; no number of
missing samples adds up to support. The likelihood ratios are data, with their reasons, in `data/ratios.yaml`.
"""

from __future__ import annotations

VERIFIER_VERSION = "1"
