"""`python -m bench [NAME …]`: every benchmark, or those named. Figures go to standard output; nothing here passes or fails."""

from __future__ import annotations

import subprocess
import sys

NAMES = ("ingest", "verify", "transaction", "processes")


def main() -> int:
    """Run each benchmark in a process of its own, so that none inherits another's memory."""
    wanted = sys.argv[1:] or list(NAMES)
    unknown = [name for name in wanted if name not in NAMES]
    if unknown:
        print(f"there is no benchmark {', '.join(unknown)}; there are: {', '.join(NAMES)}", file=sys.stderr)
        return 2
    codes = []
    for name in wanted:
        print(f"\n== {name}", flush=True)
        codes.append(subprocess.run([sys.executable, "-m", f"bench.{name}"], check=False).returncode)
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
