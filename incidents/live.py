"""Reads one target as it is now, for a click: in the main process, with a short patience of its own."""

from __future__ import annotations

import asyncio

from catalog.targets import Target, TargetFacts
from incidents.assessing import SourceShelf
from incidents.context import Context
from sources.errors import SourceUnavailable
from sources.workloads import read_facts

PATIENCE_S = 8.0


class LiveReader:
    """Live facts of targets, through the clusters of the policy in force."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._shelf = SourceShelf(context.redactor_key, context.clock)

    async def facts(self, target: Target) -> TargetFacts:
        """The live facts.

        Raises:
            SourceError: no such cluster, or it could not be read in time.
        """
        cluster = self._context.policies.current.cluster_of(target.cluster_uid)
        if cluster is None:
            raise SourceUnavailable("kubernetes", "unreachable", f"cluster {target.cluster} is no longer in autonomy.yaml")
        try:
            async with asyncio.timeout(PATIENCE_S):
                sources = await self._shelf.of(cluster)
                return await read_facts(sources.kubernetes, target, self._context.clock)
        except TimeoutError:
            raise SourceUnavailable("kubernetes", "timeout", f"no answer within {PATIENCE_S:g} s") from None

    async def close(self) -> None:
        """Give back every connection."""
        await self._shelf.close()
