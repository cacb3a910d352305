"""Part of the core: what is seen while a step is applied, while its settle window runs, and while an undo is verified. Pure.

In a settle window no check that was stably passing at the checkpoint may be failing or unknown, µ may not be above that of the
checkpoint or of the incident's first attempt, and in the last window the opening expression must be false all through.
"""

from __future__ import annotations

from catalog.outcomes import CheckReading, CheckState, End
from executor.ending import (
    AWAY,
    ObservationUnexpected,
    changed,
    conclude,
    conflict,
    declare,
    failed,
    foreign_change,
    named,
    undo_incomplete,
    unverified,
    window_from,
)
from executor.transactions import Phase, Seen, Transaction, Window, plan_kind


def applying(txn: Transaction, seen: Seen, now: float) -> Transaction:
    """A look while the cluster carries out a step."""
    if not seen.readable:
        # An API outage is no verdict: wait one settle window beyond the deadline before saying that nothing can be told.
        if now < txn.apply_until + txn.timing.settle:
            return txn
        return unverified(txn, now, "unreadable", "The cluster could not be read until well after the roll-out's deadline.")
    theirs = foreign_change(txn, seen)
    if theirs:
        return conflict(txn, seen, theirs)
    txn = changed(txn, readings=seen.readings, severity_after=seen.severity)
    if seen.failure:
        return failed(txn, seen, now, seen.failure, seen.detail)
    step = txn.current_step
    evicting = step is not None and plan_kind(step) == "evict"
    if seen.replaced if evicting else seen.complete and seen.old_pods == 0:
        return settle(txn, now)
    if now >= txn.apply_until:
        sentence = f"The roll-out was not complete in {txn.timing.apply:.0f} s. {seen.detail}".strip()
        return failed(txn, seen, now, "not_in_time", sentence)
    return txn


def settle(txn: Transaction, now: float) -> Transaction:
    """Begin the settle window of a completed step."""
    txn = changed(txn, phase=Phase.SETTLING, extended=False, window=window_from(txn, now))
    return unverified(txn, now, *AWAY) if txn.late else txn


def settling(txn: Transaction, seen: Seen, now: float) -> Transaction:
    """A look inside the settle window."""
    if txn.late:
        return unverified(txn, now, *AWAY)
    window = txn.window or window_from(txn, now)
    if seen.readable:
        theirs = foreign_change(txn, seen)
        if theirs:
            return conflict(txn, seen, theirs)
    txn = changed(txn, readings=seen.readings, severity_after=seen.severity)
    regressed = [reading for reading in seen.readings if vetoes(reading) and reading.after is CheckState.FAILING]
    if regressed:
        return failed(txn, seen, now, "check_failed", named("Passing before, failing now", regressed))
    window = _marked(window, seen)
    txn = changed(txn, window=window)
    return txn if now < window.until else _window_over(txn, seen, window, now)


def _marked(window: Window, seen: Seen) -> Window:
    unknown = [reading for reading in seen.readings if vetoes(reading) and reading.after is not CheckState.PASSING]
    if unknown and not window.unknown:
        window = window.model_copy(update={"unknown": named("Could not be told", unknown)})
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
            return changed(txn, extended=True, window=window_from(txn, now))
        return unverified(txn, now, "unknown", f"Still not known after the settle window was extended. {unknown}")
    limit = before.severity if txn.first_severity is None else min(before.severity, txn.first_severity)
    if seen.severity is None or seen.severity > limit:
        return failed(txn, seen, now, "severity", f"Severity rose from {limit:g} to {seen.severity:g}.")
    false_throughout = seen.opening is CheckState.PASSING and not window.opening_true and not window.opening_unknown
    txn = changed(txn, improved=false_throughout or not txn.has_opening)
    return conclude(txn, now) if last else changed(txn, phase=Phase.READY, step=txn.step + 1)


def verifying_undo(txn: Transaction, seen: Seen, now: float) -> Transaction:
    """A look after the undo was written: are the fields read back, and the pods?"""
    if seen.readable:
        theirs = foreign_change(txn, seen)
        if theirs:
            return conflict(txn, seen, theirs)
        txn = changed(txn, readings=seen.readings, severity_after=seen.severity)
        if seen.restored:
            return declare(txn, txn.after_undo or End.ROLLED_BACK, txn.reason, f"{txn.sentence} The previous state is back.")
    if now < txn.undo_until:
        return txn
    what = seen.detail or "the pods of the previous state are not all back"
    return undo_incomplete(txn, "undo_not_in_time", f"{txn.sentence} The undo was written, but {what}.", (what,))


def vetoes(reading: CheckReading) -> bool:
    """Whether this check's getting worse forbids a commit: it was stably passing at the checkpoint."""
    return reading.before is CheckState.PASSING and not reading.unstable
