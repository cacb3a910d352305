"""The transaction core: pure, without I/O, so that it can be explored exhaustively.

`next_effect(txn)` says what to do now; `advance(txn, observation, now)` says what the answer means. The driver stores the state
after every `advance` and before every effect; a state in which a call may be under way is `intended`, and `resume` turns it into
`in_doubt` after a crash. Three rules hold everywhere:

* A forward write is intended only from an answer of the brake that is off (`AskBrake` → `Brake`), never otherwise.
* What is not known never commits and never counts as applied: it is read back, waited for, or ends as `unverified`.
* A value that is neither what the checkpoint holds nor what we wrote is somebody else's: `conflict`, never forced.
"""

from __future__ import annotations

from typing import Any

from catalog.actions import RemediationAction
from catalog.marks import closed_mark, open_mark
from catalog.orders import PlanStep, StepKind
from catalog.outcomes import CheckReading, CheckState, End, StepRecord
from executor.instants import instant_of
from executor.transactions import (
    ANNOTATION_ONLY,
    BEFORE_WRITES,
    FORWARD,
    Answered,
    AskBrake,
    AwaitResume,
    Brake,
    CheckLimits,
    Checkpointed,
    Effect,
    Finish,
    Lost,
    Observation,
    Observe,
    Passed,
    Phase,
    ReadBack,
    Refused,
    Resumed,
    RunPreflight,
    Seen,
    Send,
    TakeCheckpoint,
    Transaction,
    Window,
    Write,
    plan_kind,
)

_OPEN = PlanStep(kind=StepKind.OPEN)
_FOREIGN = "foreign_writer"
_NO_ANSWER = "The API server gave no usable answer in several attempts."
_NOT_APPLIED = ("not_applied", "A write was lost several times and was made harmless.")
_NO_IMPROVEMENT = ("no_improvement", "No check got worse, but the expression that opened the incident was not false all through.")
_AWAY = ("away", "The executor was away longer than a settle window, or twice in one, so what happened meanwhile is not known.")
_MARK_STAYS = "our annotation sre-ladder.dev/txn"
_MAY_STILL_LAND = "a write whose answer was lost may still take effect"
_RESTART_STAYS = "pods that were already replaced"

MAX_ATTEMPTS = 4
"""Times a forward or closing call is sent before it is given up; a lost forward write is then fenced."""

MAX_UNDO_ATTEMPTS = 10
"""Times an undo is sent, within its own deadline, before people are paged."""

MAX_PAUSE = 30.0
"""Longest pause between two attempts of one call, seconds."""


class ObservationUnexpected(AssertionError):
    """The driver fed an observation that the phase did not ask for: a fault of this program."""


def next_effect(txn: Transaction) -> Effect:
    """What has to be done now."""
    match txn.phase:
        case Phase.LIMITS:
            return CheckLimits()
        case Phase.PREFLIGHT:
            return RunPreflight()
        case Phase.CHECKPOINT:
            return TakeCheckpoint()
        case Phase.READY:
            return AskBrake(not_before=txn.send_after)
        case Phase.INTENDED:
            return Send(write=_pending(txn), not_before=txn.send_after)
        case Phase.IN_DOUBT:
            return ReadBack(write=_pending(txn), not_before=txn.send_after)
        case Phase.APPLYING | Phase.SETTLING | Phase.VERIFYING_UNDO:
            return Observe()
        case Phase.PARKED:
            return AwaitResume()
        case Phase.ENDED:
            return Finish()


def advance(txn: Transaction, observation: Observation, now: float) -> Transaction:
    """The next state.

    Raises:
        ObservationUnexpected: the phase asked for something else.
    """
    match txn.phase, observation:
        case ((Phase.LIMITS | Phase.PREFLIGHT | Phase.CHECKPOINT), Refused()):
            return _ended(txn, End.CONFLICT if observation.foreign else End.REFUSED, observation.reason, observation.sentence)
        case Phase.LIMITS, Passed():
            return _with(txn, phase=Phase.PREFLIGHT)
        case Phase.PREFLIGHT, Passed():
            return _with(txn, phase=Phase.CHECKPOINT)
        case Phase.CHECKPOINT, Checkpointed():
            return _checkpointed(txn, observation)
        case Phase.READY, Brake():
            return _braked(txn, observation, now) if observation.reason else _intend_forward(txn)
        case ((Phase.APPLYING | Phase.SETTLING | Phase.VERIFYING_UNDO | Phase.INTENDED), Brake()):
            return _parked(txn) if observation.hard and not txn.unparked else txn
        case Phase.INTENDED, Answered():
            return _answered(txn, observation, now)
        case Phase.INTENDED, Lost():
            return _doubtful(txn, now, lost=True)
        case Phase.IN_DOUBT, Seen():
            return _read_back(txn, observation, now)
        case Phase.APPLYING, Seen():
            return _applying(txn, observation, now)
        case Phase.SETTLING, Seen():
            return _settling(txn, observation, now)
        case Phase.VERIFYING_UNDO, Seen():
            return _verifying_undo(txn, observation, now)
        case Phase.PARKED, Resumed():
            return _resumed_by_owner(txn, observation, now)
        case _:
            raise ObservationUnexpected(f"{txn.phase} was given {type(observation).__name__}")


def resume(txn: Transaction, now: float) -> Transaction:
    """The state to go on with after the process died. Calls that were under way are in doubt; a settle window starts once more."""
    away = now - txn.touched
    late = txn.late or (not _before_writes(txn) and away > txn.timing.settle)
    match txn.phase:
        case Phase.PREFLIGHT | Phase.CHECKPOINT:
            # What was read before the crash is old: ask everything again.
            return _with(txn, phase=Phase.LIMITS)
        case Phase.INTENDED:
            return _with(_doubtful(txn, now, lost=True), late=late)
        case Phase.IN_DOUBT:
            # The time away was not spent asking.
            return _with(txn, late=late, doubt_until=now + txn.timing.doubt)
        case Phase.SETTLING:
            if late or txn.restarted:
                return _with(txn, late=True)
            return _with(txn, restarted=True, extended=False, window=_window(txn, now))
        case _:
            return _with(txn, late=late)


def _before_writes(txn: Transaction) -> bool:
    return txn.phase in BEFORE_WRITES or (txn.phase is Phase.READY and not txn.wrote)


# Forward


def _checkpointed(txn: Transaction, seen: Checkpointed) -> Transaction:
    steps = txn.steps
    if seen.needs_open and plan_kind(steps[0]) != "open":
        steps = (_OPEN, *steps)
    return _with(txn, phase=Phase.READY, before=seen.before, timing=seen.timing, mark=seen.mark, steps=steps)


def _braked(txn: Transaction, brake: Brake, now: float) -> Transaction:
    lost = txn.pending is not None and txn.pending.lost
    if brake.hard and (txn.wrote or lost) and not txn.unparked:
        return _parked(txn)
    if lost:
        return _fence(txn, now, (brake.reason, brake.sentence))
    return _stop(_with(txn, pending=None), now, brake.reason, brake.sentence)


def _intend_forward(txn: Transaction) -> Transaction:
    """The only place where a forward write is intended: from a brake that is off."""
    if txn.pending is not None:
        return _with(txn, phase=Phase.INTENDED)
    step = txn.current_step
    if step is None:
        raise ObservationUnexpected("ready without a step to take")
    kind = plan_kind(step)
    n = txn.n + 1
    write = Write(
        n=n,
        kind=kind,
        mark_before=None if kind == "evict" else txn.mark,
        mark_after=None if kind == "evict" else open_mark(txn.id, n),
        from_replicas=step.from_replicas,
        to_replicas=step.to_replicas,
        pod=step.pod,
        pod_uid=step.pod_uid,
    )
    return _with(txn, phase=Phase.INTENDED, n=n, pending=write, send_after=0.0, doubt_until=0.0)


def _answered(txn: Transaction, answer: Answered, now: float) -> Transaction:
    write = _pending(txn)
    if answer.done:
        return _took_effect(txn, now)
    if answer.maybe_fence:
        return _doubtful(txn, now, lost=False)
    if answer.retry and write.kind != "evict":
        return _again(txn, now, answer.reason, answer.sentence)
    return _denied(txn, now, answer.reason, answer.sentence)


def _took_effect(txn: Transaction, now: float) -> Transaction:
    write = _pending(txn)
    txn = _recorded(txn, write, "done", now)
    txn = _with(txn, mark=write.mark_after if write.kind != "evict" else txn.mark, pending=None, doubt_until=0.0, send_after=0.0)
    match write.kind:
        case "open":
            return _after_step(txn, now)
        case "evict" | "stamp" | "scale":
            return _with(txn, phase=Phase.APPLYING, disrupted=True, apply_until=now + txn.timing.apply)
        case "undo":
            return _with(txn, phase=Phase.VERIFYING_UNDO, undo_until=now + txn.timing.apply)
        case "fence":
            reason, sentence = txn.stop or _NOT_APPLIED
            txn = _with(txn, fenced=None)
            return _declare(txn, End.CONFLICT, *txn.stop) if txn.stop and reason == _FOREIGN else _stop(txn, now, reason, sentence)
        case "close":
            return _with(txn, phase=Phase.ENDED)


def _after_step(txn: Transaction, now: float) -> Transaction:
    txn = _with(txn, step=txn.step + 1, phase=Phase.READY)
    if txn.current_step is not None:
        return txn
    # A plan never ends with an annotation-only step, unless a stop cut it; then there is nothing to settle.
    return _stop(txn, now, "nothing_to_do", "The plan held no step that changes anything.")


def _again(txn: Transaction, now: float, reason: str, sentence: str) -> Transaction:
    """Send the same call once more, later: the cluster was read, or the answer says that it was not applied."""
    write = _pending(txn)
    undoing = write.kind == "undo"
    if write.attempt >= (MAX_UNDO_ATTEMPTS if undoing else MAX_ATTEMPTS) or (undoing and now >= txn.undo_until):
        return _denied(txn, now, reason or "no_answer", sentence or _NO_ANSWER)
    pending = write.model_copy(update={"attempt": write.attempt + 1})
    phase = Phase.READY if write.kind in FORWARD else Phase.INTENDED
    pause = min(MAX_PAUSE, txn.timing.retry * 2 ** (write.attempt - 1))
    return _with(txn, phase=phase, pending=pending, send_after=now + pause)


def _denied(txn: Transaction, now: float, reason: str, sentence: str) -> Transaction:
    """This call was certainly not applied and will not be made again. An earlier attempt that was lost may still be."""
    write = _pending(txn)
    if write.kind in FORWARD and write.lost:
        return _fence(txn, now, (reason, sentence))
    txn = _with(_recorded(txn, write, "refused", now, sentence), pending=None, doubt_until=0.0, send_after=0.0)
    match write.kind:
        case "undo":
            return _undo_incomplete(txn, reason, f"The undo was refused: {sentence}", _what_stays(txn))
        case "close":
            return _with(txn, phase=Phase.ENDED, not_undone=(*txn.not_undone, _MARK_STAYS))
        case "fence":
            txn = _with(txn, not_undone=(*txn.not_undone, _MAY_STILL_LAND))
            return _unverified(txn, now, reason, f"A lost write could not be made harmless: {sentence}")
        case _:
            return _stop(txn, now, reason, sentence)


def _stop(txn: Transaction, now: float, reason: str, sentence: str) -> Transaction:
    """No further forward step: refused before the first write, else end by what was already settled."""
    txn = _with(txn, stop=(reason, sentence))
    if not txn.wrote:
        return _ended(txn, End.REFUSED, reason, sentence)
    if not txn.disrupted:
        return _declare(txn, End.INEFFECTIVE, reason, f"Nothing but our annotation was written. {sentence}")
    if txn.window is None:
        return _settle(txn, now)
    return _conclude(txn, now)


# In doubt


def _doubtful(txn: Transaction, now: float, *, lost: bool) -> Transaction:
    write = _pending(txn)
    patience = txn.timing.eviction_doubt if write.kind == "evict" else txn.timing.doubt
    until = txn.doubt_until or now + patience
    pending = write.model_copy(update={"lost": write.lost or lost})
    return _with(txn, phase=Phase.IN_DOUBT, pending=pending, doubt_until=until, send_after=now if lost else 0.0)


def _read_back(txn: Transaction, seen: Seen, now: float) -> Transaction:
    write = _pending(txn)
    if not seen.readable:
        return _with(txn, send_after=now + txn.timing.retry) if now < txn.doubt_until else _give_up_reading(txn, now)
    if write.kind == "evict":
        return _read_back_eviction(txn, seen, now)
    if not seen.exists or (txn.before is not None and seen.uid != txn.before.uid):
        return _foreign_answer(txn, seen, now, "The target was deleted or made anew.")
    if seen.mark == write.mark_after:
        return _took_effect(txn, now)
    if txn.fenced is not None and seen.mark == txn.fenced.mark_after:
        # The lost write came in before its fence: it is what happened.
        return _took_effect(_with(txn, pending=txn.fenced, fenced=None, stop=txn.stop), now)
    if seen.mark != write.mark_before:
        return _foreign_answer(txn, seen, now, f"The annotation is {seen.mark!r}, which this transaction did not write.")
    changed = "" if write.kind in ANNOTATION_ONLY else _changed_field(txn, seen)
    if changed:
        return _foreign_answer(txn, seen, now, changed)
    if write.lost:
        return _again(txn, now, "not_applied", "")
    if write.kind == "undo":
        return _again(txn, now, "invalid", "The API server finds the patch invalid although nothing it tests has changed.")
    return _denied(txn, now, "invalid", "The API server finds the patch invalid although nothing it tests has changed.")


def _read_back_eviction(txn: Transaction, seen: Seen, now: float) -> Transaction:
    """An eviction is never sent twice for one UID: it took effect, or it is waited for, or it stays in doubt."""
    if seen.pod_gone:
        return _took_effect(txn, now)
    if now < txn.doubt_until:
        return _with(txn, send_after=now + txn.timing.retry)
    sentence = "The answer to the eviction was lost and the pod is still there; it is not evicted twice."
    txn = _with(_recorded(txn, _pending(txn), "in_doubt", now, sentence), pending=None, disrupted=True, stop=("in_doubt", sentence))
    return _settle(txn, now)


def _give_up_reading(txn: Transaction, now: float) -> Transaction:
    write = _pending(txn)
    sentence = "The answer to a write was lost and the cluster could not be read since."
    txn = _with(_recorded(txn, write, "in_doubt", now, sentence), pending=None)
    match write.kind:
        case "undo":
            return _undo_incomplete(txn, "unreadable", sentence, _what_stays(txn))
        case "close":
            return _with(txn, phase=Phase.ENDED, not_undone=(*txn.not_undone, _MARK_STAYS))
        case _:
            return _ended(_with(txn, not_undone=(*txn.not_undone, _MAY_STILL_LAND)), End.UNVERIFIED, "unreadable", sentence)


def _foreign_answer(txn: Transaction, seen: Seen, now: float, sentence: str) -> Transaction:
    """A test of our patch found another value. Before our first write that is a stale order; later it is a conflict."""
    write = _pending(txn)
    same_object = seen.exists and txn.before is not None and seen.uid == txn.before.uid
    if write.kind in FORWARD and write.lost and same_object and seen.mark == write.mark_before:
        return _fence(txn, now, (_FOREIGN, sentence))
    txn = _with(_recorded(txn, write, "refused", now, sentence), pending=None, fenced=None)
    if write.kind == "close":
        return _closed_by_others(txn, sentence)
    foreign_transaction = seen.mark is not None and seen.mark.startswith("open/") and seen.mark != txn.mark
    if not txn.wrote and not write.lost and not foreign_transaction:
        return _ended(txn, End.REFUSED, "stale_target", f"The target changed between the last look and the write. {sentence}")
    return _conflict(txn, seen, sentence)


def _closed_by_others(txn: Transaction, sentence: str) -> Transaction:
    if txn.end is End.COMMITTED:
        return _ended(txn, End.CONFLICT, _FOREIGN, f"All checks held, but somebody else wrote at the end. {sentence}")
    return _with(txn, phase=Phase.ENDED)


def _fence(txn: Transaction, now: float, stop: tuple[str, str]) -> Transaction:
    """Give up a lost forward write: an annotation-only patch changes the mark, so that a late arrival fails its test."""
    lost = _pending(txn)
    n = txn.n + 1
    write = Write(n=n, kind="fence", mark_before=lost.mark_before, mark_after=open_mark(txn.id, n))
    until = now + txn.timing.doubt
    return _with(txn, phase=Phase.INTENDED, n=n, pending=write, fenced=lost, stop=stop, send_after=0.0, doubt_until=until)


# Apply and settle


def _applying(txn: Transaction, seen: Seen, now: float) -> Transaction:
    if not seen.readable:
        # An API outage is no verdict: wait one settle window beyond the deadline before saying that nothing can be told.
        if now < txn.apply_until + txn.timing.settle:
            return txn
        return _unverified(txn, now, "unreadable", "The cluster could not be read until well after the roll-out's deadline.")
    foreign = _foreign(txn, seen)
    if foreign:
        return _conflict(txn, seen, foreign)
    txn = _with(txn, readings=seen.readings, severity_after=seen.severity)
    if seen.failure:
        return _failed(txn, seen, now, seen.failure, seen.detail)
    step = txn.current_step
    evicting = step is not None and plan_kind(step) == "evict"
    if seen.replaced if evicting else seen.complete and seen.old_pods == 0:
        return _settle(txn, now)
    if now >= txn.apply_until:
        sentence = f"The roll-out was not complete in {txn.timing.apply:.0f} s. {seen.detail}".strip()
        return _failed(txn, seen, now, "not_in_time", sentence)
    return txn


def _settle(txn: Transaction, now: float) -> Transaction:
    txn = _with(txn, phase=Phase.SETTLING, extended=False, window=_window(txn, now))
    return _unverified(txn, now, *_AWAY) if txn.late else txn


def _settling(txn: Transaction, seen: Seen, now: float) -> Transaction:
    if txn.late:
        return _unverified(txn, now, *_AWAY)
    window = txn.window or _window(txn, now)
    if seen.readable:
        foreign = _foreign(txn, seen)
        if foreign:
            return _conflict(txn, seen, foreign)
    txn = _with(txn, readings=seen.readings, severity_after=seen.severity)
    regressed = [reading for reading in seen.readings if vetoes(reading) and reading.after is CheckState.FAILING]
    if regressed:
        return _failed(txn, seen, now, "check_failed", _named("Passing before, failing now", regressed))
    window = _marked(window, seen)
    txn = _with(txn, window=window)
    return txn if now < window.until else _window_over(txn, seen, window, now)


def _marked(window: Window, seen: Seen) -> Window:
    unknown = [reading for reading in seen.readings if vetoes(reading) and reading.after is not CheckState.PASSING]
    if unknown and not window.unknown:
        window = window.model_copy(update={"unknown": _named("Could not be told", unknown)})
    if seen.opening is CheckState.FAILING:
        window = window.model_copy(update={"opening_true": True})
    if seen.opening is CheckState.UNKNOWN:
        window = window.model_copy(update={"opening_unknown": True})
    return window


def _window_over(txn: Transaction, seen: Seen, window: Window, now: float) -> Transaction:
    before = txn.before
    if before is None:
        raise ObservationUnexpected("settling without a checkpoint")
    last = txn.step + 1 >= len(txn.steps) or txn.stop is not None
    unknown = window.unknown
    if not unknown and not seen.readable:
        unknown = "The cluster could not be read at the end of the settle window."
    if not unknown and seen.severity is None:
        unknown = "The severity could not be computed at the end of the settle window."
    opening_unknown = txn.has_opening and (window.opening_unknown or seen.opening in (None, CheckState.UNKNOWN))
    if not unknown and last and opening_unknown and not window.opening_true:
        unknown = "Whether the expression that opened the incident is false could not be told."
    if unknown:
        if not txn.extended:
            return _with(txn, extended=True, window=_window(txn, now))
        return _unverified(txn, now, "unknown", f"Still not known after the settle window was extended. {unknown}")
    limit = before.severity if txn.first_severity is None else min(before.severity, txn.first_severity)
    if seen.severity is None or seen.severity > limit:
        return _failed(txn, seen, now, "severity", f"Severity rose from {limit:g} to {seen.severity:g}.")
    false_throughout = seen.opening is CheckState.PASSING and not window.opening_true and not window.opening_unknown
    txn = _with(txn, improved=false_throughout or not txn.has_opening)
    return _conclude(txn, now) if last else _with(txn, phase=Phase.READY, step=txn.step + 1)


def _conclude(txn: Transaction, now: float) -> Transaction:
    """Nothing got worse in a settle window that was known throughout: did it help?"""
    if txn.improved:
        cut = f" Not every step was taken: {txn.stop[1]}" if txn.stop else ""
        return _declare(txn, End.COMMITTED, "improved", f"No check got worse and what opened the incident is gone.{cut}")
    reason, sentence = txn.stop or _NO_IMPROVEMENT
    if txn.done("scale"):
        return _undo(txn, now, End.INEFFECTIVE, reason, sentence)
    return _declare(txn, End.INEFFECTIVE, reason, sentence)


def _failed(txn: Transaction, seen: Seen, now: float, reason: str, sentence: str) -> Transaction:
    """Something got worse. A scale is undone; a restart only while a pod of the old template is left."""
    if txn.done("scale"):
        return _undo(txn, now, End.ROLLED_BACK, reason, sentence)
    if txn.done("stamp") and txn.phase is Phase.APPLYING and seen.old_pods > 0:
        return _undo(txn, now, End.ROLLED_BACK, reason, sentence)
    return _declare(_with(txn, not_undone=(*txn.not_undone, _RESTART_STAYS)), End.REGRESSED, reason, sentence)


def _unverified(txn: Transaction, now: float, reason: str, sentence: str) -> Transaction:
    if txn.adds_capacity_when_undone and txn.done("scale") and not txn.done("undo"):
        return _undo(txn, now, End.ROLLED_BACK, reason, f"{sentence} The replicas were put back, which adds capacity.")
    return _declare(txn, End.UNVERIFIED, reason, sentence)


# Undo


def _undo(txn: Transaction, now: float, after: End, reason: str, sentence: str) -> Transaction:
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
    return _with(
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


def _verifying_undo(txn: Transaction, seen: Seen, now: float) -> Transaction:
    if seen.readable:
        foreign = _foreign(txn, seen)
        if foreign:
            return _conflict(txn, seen, foreign)
        txn = _with(txn, readings=seen.readings, severity_after=seen.severity)
        if seen.restored:
            return _declare(txn, txn.after_undo or End.ROLLED_BACK, txn.reason, f"{txn.sentence} The previous state is back.")
    if now < txn.undo_until:
        return txn
    what = seen.detail or "the pods of the previous state are not all back"
    return _undo_incomplete(txn, "undo_not_in_time", f"{txn.sentence} The undo was written, but {what}.", (what,))


def _undo_incomplete(txn: Transaction, reason: str, sentence: str, what: tuple[str, ...]) -> Transaction:
    return _declare(_with(txn, not_undone=(*txn.not_undone, *what)), End.UNDO_INCOMPLETE, reason, sentence)


def _what_stays(txn: Transaction) -> tuple[str, ...]:
    if txn.done("scale"):
        return ("the number of replicas",)
    return (_RESTART_STAYS,)


# Parking


def _parked(txn: Transaction) -> Transaction:
    pending = txn.pending
    if txn.phase is Phase.INTENDED and (pending is None or pending.kind != "undo"):
        return txn
    return _with(txn, phase=Phase.PARKED, parked_from=txn.phase)


def _resumed_by_owner(txn: Transaction, word: Resumed, now: float) -> Transaction:
    stop = txn.stop or ("halted", "A hard halt stopped it; an owner resumed it.")
    origin = txn.parked_from or Phase.SETTLING
    txn = _with(txn, unparked=True, parked_from=None, stop=stop, late=False)
    if origin is Phase.VERIFYING_UNDO:
        return _with(txn, phase=origin, undo_until=now + txn.timing.apply)
    if txn.pending is not None and txn.pending.kind == "undo":
        if word.to == "undo" or txn.pending.lost:
            back = Phase.IN_DOUBT if txn.pending.lost else Phase.INTENDED
            until = now + txn.timing.undo
            return _with(txn, phase=back, undo_until=until, doubt_until=until, send_after=0.0)
        txn = _with(txn, pending=None)
    if txn.pending is not None and txn.pending.lost:
        return _fence(txn, now, stop)
    txn = _with(txn, pending=None)
    if not txn.disrupted:
        return _stop(txn, now, *stop)
    if word.to == "undo" and txn.done("scale"):
        return _undo(txn, now, End.ROLLED_BACK, "halted", "An owner asked for the undo.")
    if word.to == "undo" and txn.done("stamp") and origin is Phase.APPLYING:
        return _undo(txn, now, End.ROLLED_BACK, "halted", "An owner asked for the undo.")
    return _settle(txn, now)


# Ends


def _conflict(txn: Transaction, seen: Seen, sentence: str) -> Transaction:
    txn = _with(txn, pending=None)
    told = f"Somebody else writes to this target; nothing of theirs was touched. {sentence}"
    if seen.exists and txn.before is not None and seen.uid == txn.before.uid and seen.mark == txn.mark and txn.mark_is_ours:
        return _declare(txn, End.CONFLICT, _FOREIGN, told)
    return _ended(txn, End.CONFLICT, _FOREIGN, told)


def _declare(txn: Transaction, end: End, reason: str, sentence: str) -> Transaction:
    """The end is settled; take our mark off before saying so."""
    txn = _ended(txn, end, reason, sentence)
    if not txn.mark_is_ours:
        return txn
    n = txn.n + 1
    write = Write(n=n, kind="close", mark_before=txn.mark, mark_after=closed_mark(txn.id))
    return _with(txn, phase=Phase.INTENDED, n=n, pending=write, send_after=0.0, doubt_until=0.0)


def _ended(txn: Transaction, end: End, reason: str, sentence: str) -> Transaction:
    return _with(txn, phase=Phase.ENDED, end=end, reason=reason, sentence=sentence)


# What is foreign, and small things


def vetoes(reading: CheckReading) -> bool:
    """Whether this check's getting worse forbids a commit: it was stably passing at the checkpoint."""
    return reading.before is CheckState.PASSING and not reading.unstable


def _foreign(txn: Transaction, seen: Seen) -> str:
    if not seen.exists:
        return "The target was deleted."
    if txn.before is None or seen.uid != txn.before.uid:
        return "The target was deleted and made anew."
    if seen.mark != txn.mark:
        return f"The annotation is {seen.mark!r} where this transaction left {txn.mark!r}."
    return _changed_field(txn, seen)


def _changed_field(txn: Transaction, seen: Seen) -> str:
    """Which field is neither as the checkpoint has it nor as we wrote it."""
    stamped = txn.done("stamp") and not txn.done("undo")
    if seen.template != ("ours" if stamped else "before"):
        return "The pod template was changed."
    if txn.action is not RemediationAction.SCALE or txn.before is None:
        return ""
    scaled = next((record for record in txn.steps if record.to_replicas is not None), None)
    expected = scaled.to_replicas if scaled and txn.done("scale") and not txn.done("undo") else txn.before.replicas
    return "" if seen.replicas == expected else f"The replicas are {seen.replicas} where this transaction left {expected}."


def _pending(txn: Transaction) -> Write:
    if txn.pending is None:
        raise ObservationUnexpected(f"{txn.phase} without a pending write")
    return txn.pending


def _window(txn: Transaction, now: float) -> Window:
    return Window(began=now, until=now + txn.timing.settle)


def _recorded(txn: Transaction, write: Write, result: Any, now: float, detail: str = "") -> Transaction:
    record = StepRecord(n=write.n, kind=write.kind, at=instant_of(now), result=result, detail=detail[:500])
    return _with(txn, writes=(*txn.writes, record))


def _named(what: str, readings: list[CheckReading]) -> str:
    return f"{what}: {'; '.join(f'{r.name} ({r.detail})' if r.detail else r.name for r in readings)}."


def _with(txn: Transaction, **changes: Any) -> Transaction:
    return txn.model_copy(update=changes)
