"""Gate 1: nothing while halted. Under a freeze, nothing by itself, and a proposal only with a typed reason."""

from __future__ import annotations

from catalog.cases import Freeze
from catalog.decisions import GateResult
from ladder.questions import Question


def ask(question: Question) -> GateResult:
    """Halt first, then freezes set by command and those of autonomy.yaml."""
    switches = question.case.switches
    if switches.halted is None:
        return question.unknown("Whether we are halted could not be read.", unblock="the halt switch must be readable again")
    if switches.halted:
        by = f" by {switches.halted_by}" if switches.halted_by else ""
        reason = f": {switches.halt_reason}" if switches.halt_reason else ""
        return question.blocked(f"Halted{by}{reason}.", setting="/sre halt", unblock="an owner: /sre resume WHY")
    frozen = _in_force(question)
    if frozen is None:
        return question.passed("Not halted, no freeze.")
    until = f" until {frozen.until:%Y-%m-%d %H:%M} UTC" if frozen.until else ""
    sentence = f"Frozen{until} ({frozen.name}{': ' + frozen.reason if frozen.reason else ''})"
    reason = (switches.override_reason or "").strip()
    if not question.auto and reason:
        return question.passed(f"{sentence}, overridden for this proposal: {reason}.")
    unblock = "wait for its end, or an owner: /sre unfreeze SCOPE"
    if not question.auto:
        unblock += "; a proposal goes on with a typed reason to override the freeze"
    return question.blocked(f"{sentence}.", setting="freezes: or /sre freeze", unblock=unblock)


def _in_force(question: Question) -> Freeze | None:
    now = question.case.now
    by_command = (freeze for freeze in question.case.switches.freezes if freeze.until is None or freeze.until > now)
    by_file = question.policy.freezes_for(question.case.target, now)
    return next((freeze for freeze in (*by_command, *by_file)), None)
