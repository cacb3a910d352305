"""The command: quick, small, and one clear sentence for every mistake of a person."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from executor_setting import LIMITS, Setting, make_files
from test_executor_crash import process, ready

MEMORY_MB = 130


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-c", "from executor.entry import main; main()", *arguments]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SRE_EXECUTOR_")}
    return subprocess.run(program, capture_output=True, text=True, env=clean | environment, timeout=50, check=False)


def environment_of(directory: Path, **changes: str) -> dict[str, str]:
    fields = {
        "BOT_URL": "http://127.0.0.1:9",
        "BOT_TOKEN_FILE": f"{directory}/token",
        "BOT_PUBLIC_KEYS": f"{directory}/bot.pub",
        "PRIVATE_KEY": f"{directory}/executor.key",
        "LIMITS_FILE": f"{directory}/limits.yaml",
        "JOURNAL_URL": f"sqlite:///{directory}/journal.db",
        "API_SERVER": "http://127.0.0.1:9",
        "API_TOKEN_FILE": f"{directory}/token",
    }
    return {f"SRE_EXECUTOR_{name}": value for name, value in (fields | changes).items()}


def test_help_is_quick() -> None:
    run("--help")
    taken = []
    for _ in range(3):
        began = os.times()
        assert run("--help").returncode == 0
        ended = os.times()
        taken.append(ended.children_user + ended.children_system - began.children_user - began.children_system)
    assert min(taken) < 0.6  # processor time: what else this machine does is not ours


def test_missing_settings_are_named_one_by_one() -> None:
    found = run("run")
    assert found.returncode == 2
    assert "SRE_EXECUTOR_BOT_URL: is not set" in found.stderr
    assert "SRE_EXECUTOR_LIMITS_FILE: is not set" in found.stderr
    assert "Traceback" not in found.stderr


def test_check_config_says_what_it_would_do_at_most(tmp_path: Path) -> None:
    make_files(tmp_path)
    found = run("check-config", **environment_of(tmp_path))
    assert found.returncode == 0, found.stderr
    assert "namespaces shop" in found.stdout
    assert "restart_workload auto" in found.stdout


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("BOT_URL", "ftp://bot", "not an http or https URL"),
        ("BOT_URL", "http://bot.example.org", "unencrypted"),
        ("JOURNAL_URL", "mysql://x", "sqlite:///FILE"),
        ("LIMITS_FILE", "/nowhere/limits.yaml", "cannot be read"),
        ("BOT_PUBLIC_KEYS", "/nowhere/bot.pub", "not a readable public key"),
        ("BOT_TOKEN_FILE", "/nowhere/token", "does not exist"),
        ("LOG_LEVEL", "loud", "SRE_EXECUTOR_LOG_LEVEL"),
    ],
)
def test_wrong_setting_is_one_sentence(tmp_path: Path, name: str, value: str, told: str) -> None:
    make_files(tmp_path)
    found = run("check-config", **environment_of(tmp_path, **{name: value}))
    assert (found.returncode, told in found.stderr, "Traceback" in found.stderr) == (2, True, False), found.stderr


def test_limits_file_is_checked_with_line_and_key(tmp_path: Path) -> None:
    make_files(tmp_path)
    (tmp_path / "limits.yaml").write_text(LIMITS + "opne: 3\n")
    found = run("run", **environment_of(tmp_path))
    assert (found.returncode, "limits.yaml:7: opne: this key is not known here" in found.stderr) == (2, True), found.stderr


def test_private_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    make_files(tmp_path)
    (tmp_path / "executor.key").chmod(0o644)
    found = run("check-config", **environment_of(tmp_path))
    assert (found.returncode, "chmod 600" in found.stderr) == (2, True), found.stderr


def test_journal_that_cannot_be_opened_is_one_sentence(tmp_path: Path) -> None:
    make_files(tmp_path)
    (tmp_path / "file").write_text("")
    found = run("run", **environment_of(tmp_path, JOURNAL_URL=f"sqlite:///{tmp_path}/file/journal.db"))
    assert (found.returncode, "the journal cannot be used" in found.stderr, "Traceback" in found.stderr) == (3, True, False)


def test_keys_are_made_once(tmp_path: Path) -> None:
    made = run("keys", f"{tmp_path}/own.key", f"{tmp_path}/own.pub")
    assert made.returncode == 0
    assert (tmp_path / "own.key").stat().st_mode & 0o077 == 0
    again = run("keys", f"{tmp_path}/own.key", f"{tmp_path}/own.pub")
    assert (again.returncode, "File exists" in again.stderr, "Traceback" in again.stderr) == (2, True, False)


def test_no_library_of_chat_model_web_or_plotting_is_loaded() -> None:
    program = "import sys, executor.starting, executor.serving, executor.adopting; print(' '.join(sys.modules))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=50)
    loaded = set(found.stdout.split())
    assert not loaded & {"fastapi", "starlette", "uvicorn", "jinja2", "instructor", "openai", "slack_bolt", "discord"}
    assert not loaded & {"scipy", "sklearn", "matplotlib", "numpy", "pandas"}


async def test_serving_process_stays_small_and_listens_on_no_port(setting: Setting) -> None:
    order = setting.order()
    async with process(setting) as running:
        await ready(setting)
        setting.send(order)
        await setting.outcome(order)
        resident, sockets = resident_mb(running.pid), listening(running.pid)
    assert resident < MEMORY_MB
    assert sockets == []


def resident_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024


def listening(pid: int) -> list[str]:
    """Inodes of listening TCP sockets of a process."""
    inodes = {
        line.split()[9]
        for name in ("tcp", "tcp6")
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]
        if line.split()[3] == "0A"
    }
    owned = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        link = os.readlink(descriptor)
        if link.startswith("socket:["):
            owned.add(link[8:-1])
    return sorted(inodes & owned)
