"""The transaction core: pure, without I/O, so that it can be explored exhaustively.

`next_effect(txn)` says what to do now; `advance(txn, observation, now)` says what the answer means. The driver stores the state
after every `advance` and before every effect; a state in which a call may be under way is `intended`, and `resume` turns it into
`in_doubt` after a crash. Three rules hold everywhere:

* A forward write is intended only from an answer of the brake that is off (`AskBrake` → `Brake`), never otherwise.
* What is not known never commits and never counts as applied: it is read back, waited for, or ends as `unverified`.
* A value that is neither what the checkpoint holds nor what we wrote is somebody else's: `conflict`, never forced.
"""

from __future__ import annotations

from catalog.marks import open_mark
from catalog.orders import PlanStep, StepKind
from catalog.outcomes import End
from executor.ending import (
    FOREIGN,
    MARK_STAYS,
    ObservationUnexpected,
    changed,
    changed_field,
    conclude,
    conflict,
    declare,
    ended,
    pending_write,
    recorded,
    undo,
    undo_incomplete,
    unverified,
    what_stays,
    window_from,
)
from executor.settling import applying, settle, settling, verifying_undo
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
    Write,
    plan_kind,
)

_OPEN = PlanStep(kind=StepKind.OPEN)
_NO_ANSWER = "The API server gave no usable answer in several attempts."
_NOT_APPLIED = ("not_applied", "A write was lost several times and was made harmless.")
_MAY_STILL_LAND = "a write whose answer was lost may still take effect"

MAX_ATTEMPTS = 4
"""Times a forward or closing call is sent before it is given up; a lost forward write is then fenced."""

MAX_UNDO_ATTEMPTS = 10
"""Times an undo is sent, within its own deadline, before people are paged."""

MAX_PAUSE = 30.0
"""Longest pause between two attempts of one call, seconds."""

__all__ = ["MAX_ATTEMPTS", "MAX_UNDO_ATTEMPTS", "ObservationUnexpected", "advance", "next_effect", "resume"]


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
            return Send(write=pending_write(txn), not_before=txn.send_after)
        case Phase.IN_DOUBT:
            return ReadBack(write=pending_write(txn), not_before=txn.send_after)
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
            return ended(txn, End.CONFLICT if observation.foreign else End.REFUSED, observation.reason, observation.sentence)
        case Phase.LIMITS, Passed():
            return changed(txn, phase=Phase.PREFLIGHT)
        case Phase.PREFLIGHT, Passed():
            return changed(txn, phase=Phase.CHECKPOINT)
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
            return applying(txn, observation, now)
        case Phase.SETTLING, Seen():
            return settling(txn, observation, now)
        case Phase.VERIFYING_UNDO, Seen():
            return verifying_undo(txn, observation, now)
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
            return changed(txn, phase=Phase.LIMITS)
        case Phase.INTENDED:
            return changed(_doubtful(txn, now, lost=True), late=late)
        case Phase.IN_DOUBT:
            # The time away was not spent asking.
            return changed(txn, late=late, doubt_until=now + txn.timing.doubt)
        case Phase.SETTLING:
            if late or txn.restarted:
                return changed(txn, late=True)
            return changed(txn, restarted=True, extended=False, window=window_from(txn, now))
        case _:
            return changed(txn, late=late)


def _before_writes(txn: Transaction) -> bool:
    return txn.phase in BEFORE_WRITES or (txn.phase is Phase.READY and not txn.wrote)


def _checkpointed(txn: Transaction, seen: Checkpointed) -> Transaction:
    steps = seen.steps
    if seen.needs_open and plan_kind(steps[0]) != "open":
        steps = (_OPEN, *steps)
    return changed(txn, phase=Phase.READY, before=seen.before, timing=seen.timing, mark=seen.mark, steps=steps)


def _braked(txn: Transaction, brake: Brake, now: float) -> Transaction:
    lost = txn.pending is not None and txn.pending.lost
    if brake.hard and (txn.wrote or lost) and not txn.unparked:
        return _parked(txn)
    if lost:
        return _fence(txn, now, (brake.reason, brake.sentence))
    return _stop(changed(txn, pending=None), now, brake.reason, brake.sentence)


def _intend_forward(txn: Transaction) -> Transaction:
    """The only place where a forward write is intended: from a brake that is off."""
    if txn.pending is not None:
        return changed(txn, phase=Phase.INTENDED)
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
    return changed(txn, phase=Phase.INTENDED, n=n, pending=write, send_after=0.0, doubt_until=0.0)


def _answered(txn: Transaction, answer: Answered, now: float) -> Transaction:
    write = pending_write(txn)
    if answer.done:
        return _took_effect(txn, now)
    if answer.maybe_fence:
        return _doubtful(txn, now, lost=False)
    if answer.retry and write.kind != "evict":
        return _again(txn, now, answer.reason, answer.sentence)
    return _denied(txn, now, answer.reason, answer.sentence)


def _took_effect(txn: Transaction, now: float) -> Transaction:
    write = pending_write(txn)
    txn = recorded(txn, write, "done", now)
    txn = changed(txn, mark=write.mark_after if write.kind != "evict" else txn.mark, pending=None, doubt_until=0.0, send_after=0.0)
    match write.kind:
        case "open":
            return _after_step(txn, now)
        case "evict" | "stamp" | "scale":
            return changed(txn, phase=Phase.APPLYING, disrupted=True, apply_until=now + txn.timing.apply)
        case "undo":
            return changed(txn, phase=Phase.VERIFYING_UNDO, undo_until=now + txn.timing.apply)
        case "fence":
            reason, sentence = txn.stop or _NOT_APPLIED
            txn = changed(txn, fenced=None)
            return declare(txn, End.CONFLICT, *txn.stop) if txn.stop and reason == FOREIGN else _stop(txn, now, reason, sentence)
        case "close":
            return changed(txn, phase=Phase.ENDED)


def _after_step(txn: Transaction, now: float) -> Transaction:
    txn = changed(txn, step=txn.step + 1, phase=Phase.READY)
    if txn.current_step is not None:
        return txn
    # A plan never ends with an annotation-only step, unless a stop cut it; then there is nothing to settle.
    return _stop(txn, now, "nothing_to_do", "The plan held no step that changes anything.")


def _again(txn: Transaction, now: float, reason: str, sentence: str) -> Transaction:
    """Send the same call once more, later: the cluster was read, or the answer says that it was not applied."""
    write = pending_write(txn)
    undoing = write.kind == "undo"
    if write.attempt >= (MAX_UNDO_ATTEMPTS if undoing else MAX_ATTEMPTS) or (undoing and now >= txn.undo_until):
        return _denied(txn, now, reason or "no_answer", sentence or _NO_ANSWER)
    pending = write.model_copy(update={"attempt": write.attempt + 1})
    phase = Phase.READY if write.kind in FORWARD else Phase.INTENDED
    pause = min(MAX_PAUSE, txn.timing.retry * 2 ** (write.attempt - 1))
    return changed(txn, phase=phase, pending=pending, send_after=now + pause)


def _denied(txn: Transaction, now: float, reason: str, sentence: str) -> Transaction:
    """This call was certainly not applied and will not be made again. An earlier attempt that was lost may still be."""
    write = pending_write(txn)
    if write.kind in FORWARD and write.lost:
        return _fence(txn, now, (reason, sentence))
    txn = changed(recorded(txn, write, "refused", now, sentence), pending=None, doubt_until=0.0, send_after=0.0)
    match write.kind:
        case "undo":
            return undo_incomplete(txn, reason, f"The undo was refused: {sentence}", what_stays(txn))
        case "close":
            return changed(txn, phase=Phase.ENDED, not_undone=(*txn.not_undone, MARK_STAYS))
        case "fence":
            txn = changed(txn, not_undone=(*txn.not_undone, _MAY_STILL_LAND))
            return unverified(txn, now, reason, f"A lost write could not be made harmless: {sentence}")
        case _:
            return _stop(txn, now, reason, sentence)


def _stop(txn: Transaction, now: float, reason: str, sentence: str) -> Transaction:
    """No further forward step: refused before the first write, else end by what was already settled."""
    txn = changed(txn, stop=(reason, sentence))
    if not txn.wrote:
        return ended(txn, End.REFUSED, reason, sentence)
    if not txn.disrupted:
        return declare(txn, End.INEFFECTIVE, reason, f"Nothing but our annotation was written. {sentence}")
    if txn.window is None:
        return settle(txn, now)
    return conclude(txn, now)


def _doubtful(txn: Transaction, now: float, *, lost: bool) -> Transaction:
    write = pending_write(txn)
    patience = txn.timing.eviction_doubt if write.kind == "evict" else txn.timing.doubt
    until = txn.doubt_until or now + patience
    pending = write.model_copy(update={"lost": write.lost or lost})
    return changed(txn, phase=Phase.IN_DOUBT, pending=pending, doubt_until=until, send_after=now if lost else 0.0)


def _read_back(txn: Transaction, seen: Seen, now: float) -> Transaction:
    write = pending_write(txn)
    if not seen.readable:
        return changed(txn, send_after=now + txn.timing.retry) if now < txn.doubt_until else _give_up_reading(txn, now)
    if write.kind == "evict":
        return _read_back_eviction(txn, seen, now)
    if not seen.exists or (txn.before is not None and seen.uid != txn.before.uid):
        return _foreign_answer(txn, seen, now, "The target was deleted or made anew.")
    if seen.mark == write.mark_after:
        return _took_effect(txn, now)
    if txn.fenced is not None and seen.mark == txn.fenced.mark_after:
        # The lost write came in before its fence: it is what happened.
        return _took_effect(changed(txn, pending=txn.fenced, fenced=None, stop=txn.stop), now)
    if seen.mark != write.mark_before:
        return _foreign_answer(txn, seen, now, f"The annotation is {seen.mark!r}, which this transaction did not write.")
    theirs = "" if write.kind in ANNOTATION_ONLY else changed_field(txn, seen)
    if theirs:
        return _foreign_answer(txn, seen, now, theirs)
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
        return changed(txn, send_after=now + txn.timing.retry)
    sentence = "The answer to the eviction was lost and the pod is still there; it is not evicted twice."
    txn = recorded(txn, pending_write(txn), "in_doubt", now, sentence)
    txn = changed(txn, pending=None, disrupted=True, stop=("in_doubt", sentence))
    return settle(txn, now)


def _give_up_reading(txn: Transaction, now: float) -> Transaction:
    write = pending_write(txn)
    sentence = "The answer to a write was lost and the cluster could not be read since."
    txn = changed(recorded(txn, write, "in_doubt", now, sentence), pending=None)
    match write.kind:
        case "undo":
            return undo_incomplete(txn, "unreadable", sentence, what_stays(txn))
        case "close":
            return changed(txn, phase=Phase.ENDED, not_undone=(*txn.not_undone, MARK_STAYS))
        case _:
            return ended(changed(txn, not_undone=(*txn.not_undone, _MAY_STILL_LAND)), End.UNVERIFIED, "unreadable", sentence)


def _foreign_answer(txn: Transaction, seen: Seen, now: float, sentence: str) -> Transaction:
    """A test of our patch found another value. Before our first write that is a stale order; later it is a conflict."""
    write = pending_write(txn)
    same_object = seen.exists and txn.before is not None and seen.uid == txn.before.uid
    if write.kind in FORWARD and write.lost and same_object and seen.mark == write.mark_before:
        return _fence(txn, now, (FOREIGN, sentence))
    txn = changed(recorded(txn, write, "refused", now, sentence), pending=None, fenced=None)
    if write.kind == "close":
        return _closed_by_others(txn, sentence)
    foreign_transaction = seen.mark is not None and seen.mark.startswith("open/") and seen.mark != txn.mark
    if not txn.wrote and not write.lost and not foreign_transaction:
        return ended(txn, End.REFUSED, "stale_target", f"The target changed between the last look and the write. {sentence}")
    return conflict(txn, seen, sentence)


def _closed_by_others(txn: Transaction, sentence: str) -> Transaction:
    if txn.end is End.COMMITTED:
        return ended(txn, End.CONFLICT, FOREIGN, f"All checks held, but somebody else wrote at the end. {sentence}")
    return changed(txn, phase=Phase.ENDED)


def _fence(txn: Transaction, now: float, stop: tuple[str, str]) -> Transaction:
    """Give up a lost forward write: an annotation-only patch changes the mark, so that a late arrival fails its test."""
    lost = pending_write(txn)
    n = txn.n + 1
    write = Write(n=n, kind="fence", mark_before=lost.mark_before, mark_after=open_mark(txn.id, n))
    until = now + txn.timing.doubt
    return changed(txn, phase=Phase.INTENDED, n=n, pending=write, fenced=lost, stop=stop, send_after=0.0, doubt_until=until)


def _parked(txn: Transaction) -> Transaction:
    pending = txn.pending
    if txn.phase is Phase.INTENDED and (pending is None or pending.kind != "undo"):
        return txn
    return changed(txn, phase=Phase.PARKED, parked_from=txn.phase)


def _resumed_by_owner(txn: Transaction, word: Resumed, now: float) -> Transaction:
    stop = txn.stop or ("halted", "A hard halt stopped it; an owner resumed it.")
    origin = txn.parked_from or Phase.SETTLING
    txn = changed(txn, unparked=True, parked_from=None, stop=stop, late=False)
    if origin is Phase.VERIFYING_UNDO:
        return changed(txn, phase=origin, undo_until=now + txn.timing.apply)
    if txn.pending is not None and txn.pending.kind == "undo":
        if word.to == "undo" or txn.pending.lost:
            back = Phase.IN_DOUBT if txn.pending.lost else Phase.INTENDED
            until = now + txn.timing.undo
            return changed(txn, phase=back, undo_until=until, doubt_until=until, send_after=0.0)
        txn = changed(txn, pending=None)
    if txn.pending is not None and txn.pending.lost:
        return _fence(txn, now, stop)
    txn = changed(txn, pending=None)
    if not txn.disrupted:
        return _stop(txn, now, *stop)
    if word.to == "undo" and txn.done("scale"):
        return undo(txn, now, End.ROLLED_BACK, "halted", "An owner asked for the undo.")
    if word.to == "undo" and txn.done("stamp") and origin is Phase.APPLYING:
        return undo(txn, now, End.ROLLED_BACK, "halted", "An owner asked for the undo.")
    return settle(txn, now)
