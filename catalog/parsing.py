"""From text to one typed action: `parse_action`.

Text comes from people, models, runbooks and data sets, so it is never trusted: only whole phrases of a small grammar, or the
exact JSON of one action, are understood. A phrase that names an object beside the action's own parameters ("restart deployment
checkout") is *not* understood, because the target comes from the alert and its owners, never from text. What is not understood
becomes `NoAction` and is kept for people.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from catalog.actions import Action, NoAction, RemediationAction, Scale, action_adapter

MAX_TEXT = 4_000
KEPT_TEXT = 500

R = RemediationAction

ALIASES: Mapping[str, RemediationAction] = {
    "none": R.NO_ACTION,
    "observe": R.NO_ACTION,
    "none/observe": R.NO_ACTION,
    "noop": R.NO_ACTION,
    "escalate_human": R.ESCALATE,
    "human": R.ESCALATE,
    "restart_rollout": R.RESTART_WORKLOAD,
    "rollout_restart": R.RESTART_WORKLOAD,
    "restart_deployment": R.RESTART_WORKLOAD,
    "restart_statefulset": R.RESTART_WORKLOAD,
    "graceful_restart": R.RESTART_WORKLOAD,
    "delete_pod": R.RESTART_POD,
    "evict_pod": R.RESTART_POD,
    "scale_up": R.SCALE,
    "scale_down": R.SCALE,
    "scale_deployment": R.SCALE,
    "scale_replicas": R.SCALE,
    "rollout_undo": R.ROLLBACK_RELEASE,
    "rollback": R.ROLLBACK_RELEASE,
    "rollback_deployment": R.ROLLBACK_RELEASE,
    "proactive_rollback": R.ROLLBACK_RELEASE,
    "helm_rollback": R.ROLLBACK_HELM,
    "git_revert_commit": R.GIT_REVERT,
    "patch_hpa": R.RAISE_HPA_MAX,
    "raise_memory": R.RAISE_MEMORY_LIMIT,
    "increase_memory_limits": R.RAISE_MEMORY_LIMIT,
    "raise_cpu": R.RAISE_CPU_LIMIT,
    "increase_cpu_limits": R.RAISE_CPU_LIMIT,
    "cordon_drain_node": R.DRAIN_NODE,
    "expand_persistent_volume_claim": R.EXPAND_PVC,
    "fix_stateful_set_pvc": R.FIX_STATEFULSET_PVC,
    "migrate_empty_dir_to_pvc": R.MIGRATE_EMPTYDIR_TO_PVC,
    "defrag_etcd": R.DEFRAGMENT_ETCD,
    "restore_operator_csv": R.RESTORE_OPERATOR,
}
"""Other names of the field for actions of this catalogue."""

_NAMES: Mapping[str, RemediationAction] = {**{action.value: action for action in R}, **ALIASES}
_DIRECTIONS = {"scale_up": True, "scale_down": False}
_WITH_POD = frozenset({R.RESTART_POD, R.DELETE_STUCK_POD})
_WITH_NODE = frozenset({R.CORDON_NODE, R.DRAIN_NODE, R.CLEANUP_NODE})
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_SCALE = re.compile(
    r"scale(?: (?P<direction>up|down))?(?: (?:deployment|workload|replicas))?(?: from)?"
    r" (?P<low>\d{1,5}) ?(?:to|->|→) ?(?P<high>\d{1,5})(?: (?:replicas|pods))?",
    re.ASCII,
)
_ONE_OBJECT = re.compile(r"(?P<phrase>[a-z_ /-]{3,40}?) (?P<name>[a-z0-9][-a-z0-9.]{0,252})", re.ASCII)


def parse_action(text: str) -> Action:
    """The action that `text` is: JSON of one action, or a short phrase such as `scale from 2 to 4`, `rollout restart`,
    `delete pod web-1`, `RestartDeployment`. Anything else is `NoAction` with the text in `unparsed`. Never raises.
    """
    stripped = _clean(text).strip()
    if not stripped:
        return NoAction()
    found = None
    if len(stripped) <= MAX_TEXT:
        found = _from_json(stripped) if stripped.startswith("{") else _from_phrase(stripped)
    return NoAction(unparsed=stripped[:KEPT_TEXT]) if found is None else found


def _clean(text: str) -> str:
    # A lone surrogate has no UTF-8 form, so such text could be neither stored nor signed.
    return text.encode("utf-8", "replace").decode("utf-8")


def _from_json(text: str) -> Action | None:
    try:
        data = json.loads(text, object_pairs_hook=_without_duplicates, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict) or not isinstance(data.get("action"), str):
        return None
    action = _named(data["action"])
    parsed = None if action is None else _validated({**data, "action": action.value})
    wanted = _DIRECTIONS.get(_normal(data["action"]))
    return None if isinstance(parsed, Scale) and wanted is not None and parsed.upward is not wanted else parsed


def _from_phrase(text: str) -> Action | None:
    words = " ".join(_CAMEL.sub("_", text).split()).lower() if len(text) <= KEPT_TEXT else ""
    scale = _SCALE.fullmatch(words)
    if scale is not None:
        return _scaled(scale)
    action = _named(words)
    if action is not None:
        return _validated({"action": action.value})
    one = _ONE_OBJECT.fullmatch(words)
    if one is None:
        return None
    action = _named(one["phrase"])
    if action in _WITH_POD:
        return _validated({"action": action.value, "pod": one["name"]})
    if action in _WITH_NODE:
        return _validated({"action": action.value, "node": one["name"]})
    return None


def _scaled(found: re.Match[str]) -> Action | None:
    low, high = int(found["low"]), int(found["high"])
    if (found["direction"] == "up" and high < low) or (found["direction"] == "down" and high > low):
        return None
    return _validated({"action": R.SCALE.value, "from_replicas": low, "to_replicas": high})


def _normal(text: str) -> str:
    return "_".join(_CAMEL.sub("_", text.strip()).lower().replace("-", " ").split())


def _named(text: str) -> RemediationAction | None:
    return _NAMES.get(_normal(text))


def _validated(data: dict[str, Any]) -> Action | None:
    # JSON and strict: the text "2" is not a number of replicas, and neither is true.
    try:
        return action_adapter.validate_json(json.dumps(data), strict=True)
    except (ValidationError, ValueError, RecursionError):
        return None


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) != len(pairs):
        raise ValueError("a key is given twice")
    return data


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a value")
