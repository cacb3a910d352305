"""kill -9 of bot or executor in the middle of a transaction, through the shipped processes: it goes on, and nothing runs twice."""

from __future__ import annotations

import asyncio

import pytest
from front_door_site import Site, field

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

LEAK = {"leak_bytes_per_s": 900_000}


async def revisions(site: Site, namespace: str, name: str) -> str:
    """Revision of a Deployment: one more for each roll-out of another template."""
    found = await site.operator.deployment(namespace, name)
    return str(found["metadata"]["annotations"]["deployment.kubernetes.io/revision"])


async def stamp(site: Site, namespace: str, name: str) -> str | None:
    """The restart stamp on the pod template."""
    found = await site.operator.deployment(namespace, name)
    return (found["spec"]["template"]["metadata"].get("annotations") or {}).get("sre-ladder.dev/restart")


async def test_g13_killed_mid_transaction_the_executor_finishes_it_and_restarts_once(site: Site) -> None:
    await site.operator.break_program("shop", "outlet", LEAK)
    await site.reaches("shop", "outlet", "executing")
    await asyncio.sleep(8)  # somewhere between intent and settle; every boundary is tried in the executor's own tests
    await site.installation.kill("executor")
    await site.installation.start_executor()
    card = await site.reaches("shop", "outlet", "closed", within_s=180)
    assert field(card, "Outcome").split(":")[0] in ("committed", "unverified"), field(card, "Outcome")
    if field(card, "Outcome").startswith("committed"):
        assert await revisions(site, "shop", "outlet") == "2"
        assert await stamp(site, "shop", "outlet") is not None
    assert len(await site.incidents_of("shop", "outlet")) == 1


async def test_killed_while_executing_the_bot_goes_on_where_it_was(site: Site) -> None:
    await site.operator.break_program("shop", "preview", LEAK)
    await site.reaches("shop", "preview", "executing")
    await site.installation.kill("bot")
    await site.installation.start_bot()
    card = await site.reaches("shop", "preview", "closed", within_s=180)
    assert card["close_reason"] == "held", card["headline"]
    assert await revisions(site, "shop", "preview") == "2"
    assert len(await site.incidents_of("shop", "preview")) == 1
