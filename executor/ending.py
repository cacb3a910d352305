"""Part of the core: how a transaction ends, what is undone first, and whose value it is that was found. Pure."""

from __future__ import annotations

from typing import Any

from catalog.actions import RemediationAction
from catalog.marks import closed_mark, open_mark
from catalog.outcomes import CheckReading, End, StepRecord
from executor.instants import instant_of
from executor.transactions import Phase, Seen, Transaction, Window, Write, plan_kind

FOREIGN = "foreign_writer"
AWAY = ("away", "The executor was away longer than a settle window, or twice in one, so what happened meanwhile is not known.")
MARK_STAYS = "our annotation sre-ladder.dev/txn"
RESTART_STAYS = "pods that were already replaced"
_NO_IMPROVEMENT = ("no_improvement", "No check got worse, but the expression that opened the incident was not false all through.")


class ObservationUnexpected(AssertionError):
    """The driver fed an observation that the phase did not ask for: a fault of this program."""


def conclude(txn: Transaction, now: float) -> Transaction:
    """Nothing got worse in a settle window that was known throughout: did it help?"""
    if txn.improved:
        cut = f" Not every step was taken: {txn.stop[1]}" if txn.stop else ""
        return declare(txn, End.COMMITTED, "improved", f"No check got worse and what opened the incident is gone.{cut}")
    reason, sentence = txn.stop or _NO_IMPROVEMENT
    if txn.done("scale"):
        return undo(txn, now, End.INEFFECTIVE, reason, sentence)
    return declare(txn, End.INEFFECTIVE, reason, sentence)


def failed(txn: Transaction, seen: Seen, now: float, reason: str, sentence: str) -> Transaction:
    """Something got worse. A scale is undone; a restart only while a pod of the old template is left."""
    if txn.done("scale"):
        return undo(txn, now, End.ROLLED_BACK, reason, sentence)
    if txn.done("stamp") and txn.phase is Phase.APPLYING and seen.old_pods > 0:
        return undo(txn, now, End.ROLLED_BACK, reason, sentence)
    return declare(changed(txn, not_undone=(*txn.not_undone, RESTART_STAYS)), End.REGRESSED, reason, sentence)


def unverified(txn: Transaction, now: float, reason: str, sentence: str) -> Transaction:
    """What happened cannot be told. Undone only where that adds capacity."""
    if txn.adds_capacity_when_undone and txn.done("scale") and not txn.done("undo"):
        return undo(txn, now, End.ROLLED_BACK, reason, f"{sentence} The replicas were put back, which adds capacity.")
    return declare(txn, End.UNVERIFIED, reason, sentence)


def undo(txn: Transaction, now: float, after: End, reason: str, sentence: str) -> Transaction:
    """Intend the exact inverse of the step that took effect, to end as `after` once it is verified."""
    n = txn.n + 1
    step = next((step for step in reversed(txn.steps[: txn.step + 1]) if plan_kind(step) in ("scale", "stamp")), None)
    write = Write(
        n=n,
        kind="undo",
        mark_before=txn.mark,
        mark_after=open_mark(txn.id, n),
        from_replicas=step.to_replicas if step else None,
        to_replicas=txn.before.replicas if step and step.to_replicas is not None and txn.before else None,
    )
    return changed(
        txn,
        phase=Phase.INTENDED,
        n=n,
        pending=write,
        after_undo=after,
        reason=reason,
        sentence=sentence,
        undo_until=now + txn.timing.undo,
        doubt_until=now + txn.timing.undo,
        send_after=0.0,
    )


def undo_incomplete(txn: Transaction, reason: str, sentence: str, what: tuple[str, ...]) -> Transaction:
    """The end of an undo that could not be written or whose result did not come back."""
    return declare(changed(txn, not_undone=(*txn.not_undone, *what)), End.UNDO_INCOMPLETE, reason, sentence)


def what_stays(txn: Transaction) -> tuple[str, ...]:
    """What remains changed when the undo cannot be written."""
    if txn.done("scale"):
        return ("the number of replicas",)
    return (RESTART_STAYS,)


def conflict(txn: Transaction, seen: Seen, sentence: str) -> Transaction:
    """Somebody else writes here. Our mark is taken off only where it is still ours, on the same object."""
    txn = changed(txn, pending=None)
    told = f"Somebody else writes to this target; nothing of theirs was touched. {sentence}"
    if seen.exists and txn.before is not None and seen.uid == txn.before.uid and seen.mark == txn.mark and txn.mark_is_ours:
        return declare(txn, End.CONFLICT, FOREIGN, told)
    return ended(txn, End.CONFLICT, FOREIGN, told)


def declare(txn: Transaction, end: End, reason: str, sentence: str) -> Transaction:
    """The end is settled; take our mark off before saying so."""
    txn = ended(txn, end, reason, sentence)
    if not txn.mark_is_ours:
        return txn
    n = txn.n + 1
    write = Write(n=n, kind="close", mark_before=txn.mark, mark_after=closed_mark(txn.id))
    return changed(txn, phase=Phase.INTENDED, n=n, pending=write, send_after=0.0, doubt_until=0.0)


def ended(txn: Transaction, end: End, reason: str, sentence: str) -> Transaction:
    """The end, with nothing more to write."""
    return changed(txn, phase=Phase.ENDED, end=end, reason=reason, sentence=sentence)


def foreign_change(txn: Transaction, seen: Seen) -> str:
    """What on the object is neither as the checkpoint has it nor as we wrote it; empty when nothing is."""
    if not seen.exists:
        return "The target was deleted."
    if txn.before is None or seen.uid != txn.before.uid:
        return "The target was deleted and made anew."
    if seen.mark != txn.mark:
        return f"The annotation is {seen.mark!r} where this transaction left {txn.mark!r}."
    return changed_field(txn, seen)


def changed_field(txn: Transaction, seen: Seen) -> str:
    """Which field is neither as the checkpoint has it nor as we wrote it."""
    stamped = txn.done("stamp") and not txn.done("undo")
    if seen.template != ("ours" if stamped else "before"):
        return "The pod template was changed."
    if txn.action is not RemediationAction.SCALE or txn.before is None:
        return ""
    scaled = next((record for record in txn.steps if record.to_replicas is not None), None)
    expected = scaled.to_replicas if scaled and txn.done("scale") and not txn.done("undo") else txn.before.replicas
    return "" if seen.replicas == expected else f"The replicas are {seen.replicas} where this transaction left {expected}."


def pending_write(txn: Transaction) -> Write:
    """The write that the phase is about."""
    if txn.pending is None:
        raise ObservationUnexpected(f"{txn.phase} without a pending write")
    return txn.pending


def window_from(txn: Transaction, now: float) -> Window:
    """A settle window that begins now."""
    return Window(began=now, until=now + txn.timing.settle)


def recorded(txn: Transaction, write: Write, result: Any, now: float, detail: str = "") -> Transaction:
    """The transaction with one more line of what happened to its writes."""
    record = StepRecord(n=write.n, kind=write.kind, at=instant_of(now), result=result, detail=detail[:500])
    return changed(txn, writes=(*txn.writes, record))


def named(what: str, readings: list[CheckReading]) -> str:
    """Checks by name, with what they showed."""
    return f"{what}: {'; '.join(f'{r.name} ({r.detail})' if r.detail else r.name for r in readings)}."


def changed(txn: Transaction, **changes: Any) -> Transaction:
    """The transaction with some fields replaced."""
    return txn.model_copy(update=changes)
