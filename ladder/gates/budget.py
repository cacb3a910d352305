"""Gate 9: how much may happen by itself. Shown on a proposal, hard for auto; one open transaction per target for both."""

from __future__ import annotations

from collections.abc import Iterable

from catalog.cases import LedgerEntry
from catalog.decisions import GateResult
from catalog.limits import Breach, Budget
from catalog.outcomes import End
from ladder.numbers import shown
from ladder.questions import Question, capitalised
from ladder.scopes import BudgetPart


def ask(question: Question) -> GateResult:
    """Open transactions, automatic orders per workload, namespace and cluster, and the cool-down of the target."""
    ledger = question.case.ledger
    if ledger is None or not ledger.complete:
        return question.unknown("The ledger of orders could not be read in full.", unblock="the database must answer")
    mine = [entry for entry in ledger.entries if entry.target.cluster_uid == question.case.target.cluster_uid]
    open_here = next((entry for entry in mine if entry.end is None and entry.target.key == question.case.target.key), None)
    if open_here is not None:
        return question.blocked("A transaction is open on this target.", unblock=f"order {open_here.order_id} ends")
    found = _breached(question, mine) or _crowded(question, mine) or _cooling(question, mine)
    if found is None:
        return question.passed("Within budget.", setting=_setting(question))
    sentence, setting, unblock = found
    if question.auto:
        return question.blocked(sentence, setting=setting, unblock=unblock)
    return question.passed(
        f"Automatic orders are used up here ({sentence[:1].lower()}{sentence[1:].rstrip('.')}); a person may still approve.",
        setting=setting,
    )


Found = tuple[str, str, str]


def _breached(question: Question, entries: Iterable[LedgerEntry]) -> Found | None:
    for part, budgets in _budgets(question).items():
        times = [
            entry.at
            for entry in entries
            if entry.mode == "auto" and entry.end is not End.REFUSED and _within(question, part, entry)
        ]
        for budget in budgets:
            breach: Breach | None = budget.breach(f"budget of automatic orders per {part}", times, question.case.now)
            if breach is not None:
                unblock = f"wait until {breach.free_at:%Y-%m-%d %H:%M:%S} UTC" if breach.free_at else "a budget above 0"
                return f"{capitalised(breach.sentence)}.", f"budget.{part}: {budget}", unblock
    return None


def _budgets(question: Question) -> dict[BudgetPart, tuple[Budget, ...]]:
    if question.scope is not None:
        return question.scope.budgets
    numbers = question.numbers
    return {
        "workload": (numbers.auto_per_workload,),
        "namespace": (numbers.auto_per_namespace,),
        "cluster": (numbers.auto_per_cluster,),
    }


def _within(question: Question, part: BudgetPart, entry: LedgerEntry) -> bool:
    target = question.case.target
    match part:
        case "workload":
            return entry.target.key == target.key
        case "namespace":
            return entry.target.namespace == target.namespace
        case "cluster":
            return True


def _crowded(question: Question, entries: Iterable[LedgerEntry]) -> Found | None:
    running, limit = sum(entry.end is None for entry in entries), question.numbers.open_per_cluster
    if running < limit:
        return None
    return (
        f"{running} transactions are open in the cluster; at most {limit}.",
        question.number("open_per_cluster"),
        "one of them ends",
    )


def _cooling(question: Question, entries: Iterable[LedgerEntry]) -> Found | None:
    cool_down, key = question.numbers.cool_down, question.case.target.key
    times = [entry.at for entry in entries if entry.target.key == key and entry.end is not End.REFUSED]
    if not times or max(times) <= question.case.now - cool_down:
        return None
    free_at = max(times) + cool_down
    return (
        f"The target cools down for {shown(cool_down)} after an order.",
        question.number("cool_down"),
        f"wait until {free_at:%H:%M:%S} UTC",
    )


def _setting(question: Question) -> str:
    return ", ".join(f"{part} {' and '.join(str(one) for one in budgets)}" for part, budgets in _budgets(question).items())
