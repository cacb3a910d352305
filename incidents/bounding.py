"""Clopper-Pearson lower bounds, computed in a child process (`incidents.bounding_child`): scipy never enters the bot's own."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence

PATIENCE_S = 30.0


class BoundsUnavailable(Exception):
    """The child process did not answer. The bound is shown only, so show none and try again later."""


async def lower_bounds(pairs: Sequence[tuple[int, int]]) -> list[float]:
    """One-sided 95 % lower bounds of `right` out of `settled`, in the order given.

    Raises:
        BoundsUnavailable: the child failed or took more than 30 s.
    """
    if not pairs:
        return []
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "incidents.bounding_child", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    try:
        output, _ = await asyncio.wait_for(child.communicate(json.dumps(pairs).encode()), PATIENCE_S)
    except TimeoutError as error:
        child.kill()
        await child.wait()
        raise BoundsUnavailable(f"no answer within {PATIENCE_S:.0f} s") from error
    if child.returncode != 0:
        raise BoundsUnavailable(f"the child process ended with {child.returncode}")
    return [float(bound) for bound in json.loads(output)]
