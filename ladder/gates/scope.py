"""Gate 5: the namespace is opted in, a scope names it, and the rung in force carries the route."""

from __future__ import annotations

from catalog.cases import Rung
from catalog.decisions import GateResult
from catalog.marks import OPT_IN_LABEL, OPT_IN_VALUE
from ladder.questions import Question

NEEDED = {"propose": Rung.R4, "auto": Rung.R5}


def ask(question: Question) -> GateResult:
    """Opt-in by the namespace's label, scope by autonomy.yaml, rung by what was earned."""
    outside = membership(question)
    if outside is not None:
        return outside
    needed, held = NEEDED[question.route], question.in_force
    action = question.case.action.action.value
    name = question.scope.name if question.scope else ""
    figures = f"ceiling {held.ceiling}, standing {held.standing}"
    if held.rung >= needed:
        return question.passed(f"{action} is at {held.rung} in scope {name} ({figures}).")
    if held.ceiling < needed:
        unblock = f"ceiling: {{{action}: {needed}}} in scope {name}"
    else:
        unblock = f"owners: /sre promote {name} {action} {needed} WHY"
    return question.blocked(
        f"{action} is at {held.rung} in scope {name} ({figures}); {needed} is needed.", setting="ceiling:", unblock=unblock
    )


def membership(question: Question) -> GateResult | None:
    """Why the target is in no scope at all, whatever its rung; None when it is in one."""
    namespace = question.case.target.namespace
    label = f"{OPT_IN_LABEL}={OPT_IN_VALUE}"
    opting_in = f"kubectl label namespace {namespace} {label}"
    opted_in = question.case.facts.opted_in if question.case.facts else None
    if question.scope is None:
        further = "" if opted_in else f", and the namespace opted in: {opting_in}"
        return question.blocked(
            f"No scope of autonomy.yaml names {question.case.target.title}.",
            setting="scopes:",
            unblock=f"a scope that matches namespace {namespace}{further}",
        )
    if opted_in is None:
        return question.unknown(
            f"Whether namespace {namespace} is opted in could not be read.", unblock="the Kubernetes API must answer"
        )
    if not opted_in:
        return question.blocked(f"Namespace {namespace} is not opted in.", setting=f"label {label}", unblock=opting_in)
    return None
