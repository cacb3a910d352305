"""Gate 8: the same thing again is refused and handed to people. So is what another writer or a person stands against."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from catalog.cases import LedgerEntry
from catalog.decisions import GateResult
from catalog.outcomes import End
from ladder.numbers import shown
from ladder.questions import Question, first_objection

THIRD = 3


def ask(question: Question) -> GateResult:
    """Blocks on the target, a contested field, a rejection, no effect last time, the same again too soon, a third time.

    A follow-up takes back an earlier scale, so it is no repetition of it; all else holds for it too.
    """
    ledger = question.case.ledger
    if ledger is None or not ledger.complete:
        return question.unknown("Earlier orders could not be read in full.", unblock="the database must answer")
    found = first_objection(question, (_block, _contested, _rejected, _without_effect, _again, _third))
    return found or question.passed("Not a repetition.")


def _block(question: Question) -> GateResult | None:
    block = question.case.ledger.block if question.case.ledger else None
    if block is None or (block.until is not None and block.until <= question.case.now):
        return None
    if block.forbids == "auto" and not question.auto:
        return None
    until = f"until {block.until:%Y-%m-%d %H:%M} UTC" if block.until else "until a person lifts it"
    unblock = "wait" if block.until else f"an owner: /sre unblock {question.case.target.title} WHY"
    return question.blocked(f"The target is blocked {until}: {block.reason}.", unblock=unblock)


def _contested(question: Question) -> GateResult | None:
    who = question.case.ledger.contested if question.case.ledger else None
    return None if who is None else question.blocked(f"{who} keeps changing the same field.", unblock="settle who owns it")


def _rejected(question: Question) -> GateResult | None:
    who = question.case.rejected_by
    return (
        None
        if who is None
        else question.blocked(f"{who} rejected this action for these alerts.", unblock="a new alert family, or people act")
    )


def _without_effect(question: Question) -> GateResult | None:
    useless = [entry for entry in _same_action(question) if entry.end is End.INEFFECTIVE]
    if not useless:
        return None
    return question.blocked(f"The same action had no effect at {_time(useless[-1].at)}.", unblock="people look for another cause")


def _again(question: Question) -> GateResult | None:
    numbers = question.numbers
    same = _same_action(question)
    if not same or question.follow_up is not None:
        return None
    latest = same[-1].at
    if latest > question.case.now - numbers.repeat_window:
        return question.blocked(
            f"The same action was ordered here at {_time(latest)}; once in {shown(numbers.repeat_window)}, then people.",
            setting=question.number("repeat_window"),
            unblock=f"people, or wait until {_time(latest + numbers.repeat_window)}",
        )
    if question.auto and latest > question.case.now - numbers.repeat_people:
        return question.blocked(
            f"The same action was ordered here at {_time(latest)}; for {shown(numbers.repeat_people)} only people repeat it.",
            setting=question.number("repeat_people"),
            unblock="a person approves it",
        )
    return None


def _third(question: Question) -> GateResult | None:
    window = question.numbers.third_window
    recent = [entry for entry in _on_target(question) if entry.at > question.case.now - window]
    if len(recent) < THIRD - 1:
        return None
    return question.blocked(
        f"It would be order number {len(recent) + 1} on this target in {shown(window)}.",
        setting=question.number("third_window"),
        unblock=f"people, or wait until {_time(_frees(recent, window))}",
    )


def _frees(recent: list[LedgerEntry], window: timedelta) -> datetime:
    return recent[-(THIRD - 1)].at + window


def _on_target(question: Question) -> list[LedgerEntry]:
    entries: Iterable[LedgerEntry] = question.case.ledger.entries if question.case.ledger else ()
    key = question.case.target.key
    # A refused order changed nothing: its budget was returned and no attempt counts.
    return sorted((one for one in entries if one.target.key == key and one.end is not End.REFUSED), key=lambda one: one.at)


def _same_action(question: Question) -> list[LedgerEntry]:
    return [entry for entry in _on_target(question) if entry.action is question.case.action.action]


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"
