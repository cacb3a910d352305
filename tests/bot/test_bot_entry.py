"""`sre-bot` as an administrator types it: what a user can mend is one sentence and an exit code, never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "config" / "autonomy.yaml"


def sre_bot(directory: Path, *words: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run it with its files in `directory`."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("SRE_")}
    environment |= {
        "SRE_BOT_DATABASE": f"sqlite:///{directory / 'bot.db'}",
        "SRE_BOT_POLICY": str(EXAMPLE),
        "SRE_BOT_KEYS": str(directory / "keys"),
    }
    return subprocess.run(
        [str(Path(sys.executable).parent / "sre-bot"), *words],
        env=environment | settings,
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


def test_the_example_of_autonomy_yaml_is_valid(tmp_path: Path) -> None:
    done = sre_bot(tmp_path, "check-config")
    assert done.returncode == 0, done.stderr
    assert "1 clusters, 1 scopes" in done.stdout


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("ceiling:", "cieling:"), "cieling"),
        (("R5", "R9"), "R9"),
        (("approver: [person:ana, person:bo, person:cy]", "approver: []"), "approver"),
        (("schema: 1", "schema: 1\nschema: 1"), "schema"),
        (("quorum: 1", "quorum: 0"), "quorum"),
    ],
)
def test_a_bad_policy_is_told_by_line_and_key(tmp_path: Path, change: tuple[str, str], told: str) -> None:
    bad = tmp_path / "autonomy.yaml"
    bad.write_text(EXAMPLE.read_text().replace(*change))
    done = sre_bot(tmp_path, "check-config", str(bad))
    assert done.returncode == 1
    assert f"{bad}:" in done.stderr
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    started = sre_bot(tmp_path, "serve", SRE_BOT_POLICY=str(bad))
    assert started.returncode == 2, "an invalid policy is nothing to begin with"
    assert "Traceback" not in started.stderr


@pytest.mark.parametrize(
    ("words", "settings", "told"),
    [
        (("serve",), {"SRE_BOT_POLICY": "nowhere.yaml"}, "sre-bot init"),
        (("serve",), {}, "sre-bot keys"),
        (("serve",), {"SRE_BOT_LISTEN": "8080"}, "ADDRESS:PORT"),
        (("serve",), {"SRE_BOT_PUBLIC_URL": "sre"}, "https://"),
        (("person", "list"), {"SRE_BOT_DATABASE": "mysql://x"}, "sqlite:///FILE or postgresql://"),
        (("person", "list"), {"SRE_BOT_DATABASE": "postgresql://nobody@127.0.0.1:9/x"}, "does not answer"),
        (("person", "token", "nobody"), {}, "sre-bot person add nobody"),
        (("token", "ingest", "x", "--cluster", "us-9"), {}, "eu-1"),
        (("init",), {"SRE_BOT_POLICY": str(EXAMPLE)}, "is there already"),
        (("init", "--kubeconfig", "nowhere"), {"SRE_BOT_POLICY": "new.yaml"}, "nothing was written"),
    ],
)
def test_mistakes_are_told(tmp_path: Path, words: tuple[str, ...], settings: dict[str, str], told: str) -> None:
    done = sre_bot(tmp_path, *words, **settings)
    assert done.returncode != 0
    assert told in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "new.yaml").exists()


def test_keys_are_made_once_and_only_their_owner_can_read_them(tmp_path: Path) -> None:
    assert sre_bot(tmp_path, "keys").returncode == 0
    private = tmp_path / "keys" / "order.key"
    assert private.stat().st_mode & 0o077 == 0
    before = private.read_bytes()
    again = sre_bot(tmp_path, "keys")
    assert "is there already" in again.stdout
    assert private.read_bytes() == before
    private.chmod(0o644)
    started = sre_bot(tmp_path, "serve")
    assert started.returncode == 2
    assert "chmod 600" in started.stderr


def test_a_person_is_added_once_and_gone_with_every_token(tmp_path: Path) -> None:
    assert sre_bot(tmp_path, "person", "add", "ana").stdout.startswith("srl_p_")
    again = sre_bot(tmp_path, "person", "add", "ana")
    assert (again.returncode, "is there already" in again.stderr) == (2, True)
    assert sre_bot(tmp_path, "person", "remove", "ana").returncode == 0
    assert sre_bot(tmp_path, "person", "list").stdout == ""


def test_audit_proves_an_empty_record(tmp_path: Path) -> None:
    done = sre_bot(tmp_path, "audit")
    assert (done.returncode, "every event chain holds" in done.stdout) == (0, True)
