"""The catalogue is complete, and no row is more dangerous than it says."""

from __future__ import annotations

import typing

import pytest

from catalog.actions import Action, RemediationAction, action_adapter
from catalog.registry import CATALOGUE, executable_actions, spec_of
from catalog.targets import TargetKind

EXECUTABLE = {RemediationAction.RESTART_POD, RemediationAction.SCALE, RemediationAction.RESTART_WORKLOAD}


def test_every_action_has_a_row_and_a_parameter_model() -> None:
    union, _ = typing.get_args(Action)
    models = {model.model_fields["action"].default for model in typing.get_args(union)}
    assert set(RemediationAction) == set(CATALOGUE) == models


def test_exactly_three_actions_are_executable_least_dangerous_first() -> None:
    assert set(executable_actions()) == EXECUTABLE
    assert [spec_of(one).danger for one in executable_actions()] == sorted(spec_of(one).danger for one in executable_actions())


def test_nothing_executable_is_irreversible_and_nothing_irreversible_is_automatic() -> None:
    for spec in CATALOGUE.values():
        assert not (spec.executable and spec.irreversible), spec.action
        assert not (spec.irreversible and spec.auto_eligible), spec.action
        assert spec.executable or not spec.auto_eligible, spec.action
        assert spec.executable == bool(spec.verbs), spec.action


@pytest.mark.parametrize(
    "action",
    [
        RemediationAction.DRAIN_NODE,
        RemediationAction.CLEANUP_PVC,
        RemediationAction.FIX_STATEFULSET_PVC,
        RemediationAction.ROLLBACK_RELEASE,
        RemediationAction.EXPAND_PVC,
    ],
)
def test_excluded_for_ever_is_irreversible_and_described_only(action: RemediationAction) -> None:
    spec = spec_of(action)
    assert spec.irreversible
    assert not spec.executable
    assert spec.no_undo


def test_every_row_says_when_when_not_and_where() -> None:
    for spec in CATALOGUE.values():
        assert spec.title
        assert spec.when.endswith(".")
        assert spec.when_not.endswith(".")
        assert spec.target_kinds, spec.action
        assert spec.undo.endswith("."), spec.action


def test_the_restarts_say_that_there_is_no_undo_and_scale_names_its_inverse() -> None:
    assert spec_of(RemediationAction.RESTART_WORKLOAD).undo.startswith("No undo")
    assert spec_of(RemediationAction.RESTART_POD).undo.startswith("No undo")
    assert spec_of(RemediationAction.SCALE).undo == "Undone by the previous number of replicas."


def test_scale_is_for_deployments_and_daemon_sets_are_never_restarted() -> None:
    assert spec_of(RemediationAction.SCALE).target_kinds == (TargetKind.DEPLOYMENT,)
    for action in EXECUTABLE:
        assert TargetKind.DAEMONSET not in spec_of(action).target_kinds
        assert TargetKind.POD not in spec_of(action).target_kinds


def test_an_unknown_action_is_not_a_document() -> None:
    with pytest.raises(ValueError):
        action_adapter.validate_python({"action": "delete_namespace"})
