"""The policy in force survives an invalid edit and takes a valid one."""

from __future__ import annotations

from pathlib import Path

import pytest
from incidents_setting import POLICY, counted

from incidents.policies import Policies, PolicyInvalid


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "autonomy.yaml"
    path.write_text(POLICY)
    return path


def test_a_valid_edit_is_taken(file: Path) -> None:
    policies = Policies.load(file)
    before = policies.current
    assert not policies.reload(), "nothing changed"
    file.write_text(POLICY.replace("C0000", "C9999"))
    assert policies.reload()
    assert policies.current.defaults.channel.slack == "C9999"
    assert policies.current.hash != before.hash
    assert policies.problem is None


def test_an_edit_of_comments_alone_is_not_another_policy(file: Path) -> None:
    policies = Policies.load(file)
    file.write_text(POLICY + "# a remark\n")
    assert not policies.reload()


def test_an_invalid_edit_keeps_the_last_good_policy_and_says_what_is_wrong(file: Path) -> None:
    policies = Policies.load(file)
    good = policies.current
    file.write_text(POLICY + "unheard_of: 1\n")
    assert policies.reload()
    assert policies.current is good
    assert policies.problem is not None
    assert "unheard_of" in policies.problem
    assert "stays in force" in policies.problem
    assert counted("sre_ladder_policy_invalid") == 1
    assert not policies.reload(), "the same problem is told once"
    file.write_text(POLICY)
    assert policies.reload()
    assert policies.problem is None
    assert counted("sre_ladder_policy_invalid") == 0


def test_a_file_that_vanishes_keeps_the_last_good_policy(file: Path) -> None:
    policies = Policies.load(file)
    good = policies.current
    file.unlink()
    assert policies.reload()
    assert policies.current is good
    assert policies.problem is not None
    file.write_text(POLICY)
    assert policies.reload()
    assert policies.problem is None


def test_there_is_no_beginning_with_an_invalid_policy(file: Path) -> None:
    file.write_text("schema: 2\n")
    with pytest.raises(PolicyInvalid):
        Policies.load(file)
