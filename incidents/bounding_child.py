"""The child process of `incidents.bounding`: the one place where scipy is imported. Nothing imports this module.

`python -m incidents.bounding_child` reads pairs `[[right, settled], …]` from its standard input and writes the bounds as a list.
"""

from __future__ import annotations

import json
import sys

from scipy.stats import binomtest  # type: ignore[import-untyped]  # scipy ships no types

CONFIDENCE = 0.95


def main() -> None:
    """One-sided exact lower bounds, in the order given."""
    pairs = json.load(sys.stdin)
    tests = (binomtest(right, settled, alternative="greater") for right, settled in pairs)
    json.dump([float(test.proportion_ci(CONFIDENCE, "exact").low) for test in tests], sys.stdout)


if __name__ == "__main__":
    main()
