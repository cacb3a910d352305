"""`sre-bot init` against a cluster: a kubeconfig is enough, nothing acts afterwards, and nothing is overwritten."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from test_bot_entry import sre_bot

from ladder.policy import load_policy
from sandbox.cluster import SandboxCluster


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "cluster").mkdir()
    return tmp_path


async def test_a_kubeconfig_is_enough_and_everything_is_notify(place: Path) -> None:
    settings = {"SRE_BOT_POLICY": "autonomy.yaml"}
    async with SandboxCluster(nodes=1, state_dir=place / "cluster") as cluster:
        words = ("init", "--kubeconfig", "cluster/bot.kubeconfig", "--owner", "ana")
        done = await asyncio.to_thread(lambda: sre_bot(place, *words, **settings))
        again = await asyncio.to_thread(lambda: sre_bot(place, *words, **settings))
        uid = cluster.uid
    assert done.returncode == 0, done.stderr
    assert {"srl_p_", "srl_i_", "srl_e_"} <= {word[:6] for word in done.stdout.split()}
    policy = load_policy(place / "autonomy.yaml")
    assert [known.uid for known in policy.clusters] == [uid]
    assert policy.scopes == ()
    assert policy.clusters[0].api.kubeconfig == place / "cluster" / "bot.kubeconfig"
    assert (again.returncode, "is there already" in again.stderr) == (2, True)
