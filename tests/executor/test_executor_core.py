"""The transaction core, by table: each end of transaction.md from the observations that lead to it."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from catalog.actions import RemediationAction
from catalog.evidence import Oracle
from catalog.orders import PlanStep, StepKind
from catalog.outcomes import CheckReading, CheckState, End
from executor.core import MAX_ATTEMPTS, ObservationUnexpected, advance, next_effect, resume
from executor.transactions import (
    Answered,
    AskBrake,
    Before,
    Brake,
    CheckLimits,
    Checkpointed,
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
    Timing,
    Transaction,
)

PASSING, FAILING, UNKNOWN = CheckState.PASSING, CheckState.FAILING, CheckState.UNKNOWN
OPEN, EVICT, STAMP = (
    PlanStep(kind=StepKind.OPEN),
    PlanStep(kind=StepKind.EVICT, pod="web-1-abcde", pod_uid="pod-uid"),
    PlanStep(kind=StepKind.STAMP),
)
SCALE_UP = PlanStep(kind=StepKind.SCALE, from_replicas=2, to_replicas=4)
SCALE_DOWN = PlanStep(kind=StepKind.SCALE, from_replicas=4, to_replicas=2)

CHECKPOINTED = Checkpointed(
    before=Before(uid="U", replicas=3, severity=1), timing=Timing(), mark=None, steps=(PlanStep(kind=StepKind.STAMP),)
)


def reading(before: CheckState = PASSING, after: CheckState | None = None, unstable: bool = False) -> CheckReading:
    return CheckReading(name="errors", oracle=Oracle.SERVICE_LEVEL, before=before, after=after, unstable=unstable)


class Drive:
    """Feeds observations and keeps the time."""

    def __init__(self, *steps: PlanStep, severity: float = 2.0, first: float | None = None) -> None:
        scale = any(step.kind is StepKind.SCALE for step in steps)
        self.now = 1000.0
        self.replicas = next((step.from_replicas for step in steps if step.from_replicas), 3)
        self.txn = Transaction(
            id="T",
            order_id="O",
            action=RemediationAction.SCALE if scale else RemediationAction.RESTART_WORKLOAD,
            adds_capacity_when_undone=any((step.from_replicas or 0) > (step.to_replicas or 0) for step in steps),
            steps=steps,
            first_severity=first,
        )
        self.severity = severity

    def feed(self, *observations: Observation, after: float = 0.0) -> Drive:
        for observation in observations:
            self.now += after
            self.txn = advance(self.txn, observation, self.now)
        return self

    def begin(self) -> Drive:
        before = Before(uid="U", replicas=self.replicas, available=self.replicas, severity=self.severity, readings=(reading(),))
        return self.feed(Passed(), Passed(), Checkpointed(before=before, timing=Timing(), mark=None, steps=self.txn.steps))

    def write(self, answer: Observation | None = None) -> Drive:
        return self.feed(Brake(), answer or Answered(done=True))

    def seen(self, **fields: object) -> Seen:
        template = "ours" if self.txn.done("stamp") and not self.txn.done("undo") else "before"
        scaled = next((step.to_replicas for step in self.txn.steps if step.to_replicas), None)
        replicas = scaled if scaled and self.txn.done("scale") and not self.txn.done("undo") else self.replicas
        known = {
            "uid": "U",
            "mark": self.txn.mark,
            "template": template,
            "replicas": replicas,
            "readings": (reading(after=PASSING),),
            "opening": PASSING,
            "severity": 0.0,
        }
        return Seen.model_validate(known | fields)

    def look(self, after: float = 2.0, **fields: object) -> Drive:
        return self.feed(self.seen(**fields), after=after)

    def complete(self) -> Drive:
        return self.look(complete=True, replaced=True)

    def settle(self, **fields: object) -> Drive:
        return self.look(**fields).look(after=60.0, **fields)

    def close(self) -> Drive:
        return self.feed(Answered(done=True))

    @property
    def kinds(self) -> list[str]:
        return [record.kind for record in self.txn.writes if record.result == "done"]


def test_each_phase_asks_for_its_effect() -> None:
    drive = Drive(STAMP)
    wanted = [CheckLimits, RunPreflight, TakeCheckpoint, AskBrake, Send, Observe, Observe, Send, Finish]
    found = [type(next_effect(drive.txn))]
    for action in (
        lambda: drive.feed(Passed()),
        lambda: drive.feed(Passed()),
        lambda: drive.feed(
            Checkpointed(before=Before(uid="U", replicas=3, severity=1), timing=Timing(), mark=None, steps=(STAMP,))
        ),
        lambda: drive.feed(Brake()),
        lambda: drive.feed(Answered(done=True)),
        drive.complete,
        drive.settle,
        drive.close,
    ):
        action()
        found.append(type(next_effect(drive.txn)))
    assert found == wanted
    with pytest.raises(ObservationUnexpected):
        drive.feed(Passed())


def test_approved_restart_commits_with_one_changing_write() -> None:
    drive = Drive(STAMP).begin().write().complete().settle().close()
    assert (drive.txn.end, drive.kinds, drive.txn.phase) == (End.COMMITTED, ["stamp", "close"], Phase.ENDED)


def test_automatic_restart_holds_the_settle_window_on_the_replacement_before_it_stamps() -> None:
    drive = Drive(OPEN, EVICT, STAMP).begin().write().write().complete()
    assert drive.txn.phase is Phase.SETTLING
    drive.look()
    assert not drive.txn.done("stamp")
    drive.look(after=60.0, opening=FAILING)
    assert drive.txn.phase is Phase.READY
    drive.write().complete().settle().close()
    assert (drive.txn.end, drive.kinds) == (End.COMMITTED, ["open", "evict", "stamp", "close"])


def test_missing_annotations_map_is_created_first() -> None:
    drive = Drive(STAMP).feed(Passed(), Passed(), CHECKPOINTED.model_copy(update={"needs_open": True})).write().write()
    assert drive.kinds == ["open", "stamp"]


@pytest.mark.parametrize("phase", [0, 1, 2])
def test_refused_before_the_first_write(phase: int) -> None:
    drive = Drive(STAMP).feed(*([Passed()] * phase), Refused(reason="paused", sentence="paused"))
    assert (drive.txn.end, drive.txn.reason, drive.txn.writes) == (End.REFUSED, "paused", ())


def test_g29_halt_before_the_first_write_is_refused() -> None:
    drive = Drive(STAMP).begin().feed(Brake(reason="halted", sentence="Halted by ana."))
    assert (drive.txn.end, drive.txn.reason, drive.txn.sentence) == (End.REFUSED, "halted", "Halted by ana.")


def test_halt_between_two_steps_settles_what_was_done_and_takes_no_further_step() -> None:
    drive = Drive(OPEN, EVICT, STAMP).begin().write().write().complete().settle(opening=FAILING)
    drive.feed(Brake(reason="halted", sentence="Halted."))
    assert (drive.txn.end, drive.txn.reason) == (End.INEFFECTIVE, "halted")
    assert "stamp" not in drive.close().kinds


def test_halt_after_open_ends_without_settling() -> None:
    drive = Drive(OPEN, EVICT, STAMP).begin().write().feed(Brake(reason="taken_over", sentence="Taken."))
    assert (drive.txn.end, drive.txn.reason, drive.close().kinds) == (End.INEFFECTIVE, "taken_over", ["open", "close"])


def test_halt_does_not_stop_an_undo() -> None:
    drive = Drive(SCALE_UP).begin().write().complete().look(readings=(reading(after=FAILING),))
    drive.feed(Brake(reason="halted", sentence="Halted."))
    assert isinstance(next_effect(drive.txn), Send)


def test_hard_halt_parks_and_only_an_owner_goes_on() -> None:
    drive = Drive(SCALE_UP).begin().write().complete().look(readings=(reading(after=FAILING),))
    drive.feed(Brake(reason="halted", sentence="Halted.", hard=True))
    assert drive.txn.phase is Phase.PARKED
    drive.feed(Resumed(to="undo"), Brake(reason="halted", sentence="", hard=True), Answered(done=True))
    drive.look(restored=True).close()
    assert drive.txn.end is End.ROLLED_BACK


def test_hard_halt_while_settling_then_settle_again() -> None:
    drive = Drive(STAMP).begin().write().complete().feed(Brake(reason="halted", hard=True))
    assert drive.txn.phase is Phase.PARKED
    drive.feed(Resumed(to="settle"), after=1000.0).settle().close()
    assert drive.txn.end is End.COMMITTED


def test_g07_scale_that_regresses_is_undone() -> None:
    drive = Drive(SCALE_UP).begin().write().complete().look(readings=(reading(after=FAILING),))
    undo = drive.txn.pending
    assert undo is not None
    assert (undo.kind, undo.from_replicas, undo.to_replicas) == ("undo", 4, 2)
    drive.feed(Answered(done=True)).look(restored=True).close()
    assert (drive.txn.end, drive.txn.reason, drive.kinds) == (End.ROLLED_BACK, "check_failed", ["scale", "undo", "close"])


def test_g07_completed_restart_that_regresses_is_never_rolled_a_second_time() -> None:
    drive = Drive(STAMP).begin().write().complete().look(readings=(reading(after=FAILING),)).close()
    assert (drive.txn.end, drive.kinds) == (End.REGRESSED, ["stamp", "close"])


def test_g08_check_that_failed_before_is_no_regression() -> None:
    drive = Drive(STAMP).begin().write().complete().settle(readings=(reading(before=FAILING, after=FAILING),)).close()
    assert drive.txn.end is End.COMMITTED


def test_unstable_check_is_shown_but_cannot_veto() -> None:
    drive = Drive(STAMP).begin().write().complete().settle(readings=(reading(after=FAILING, unstable=True),)).close()
    assert drive.txn.end is End.COMMITTED


@pytest.mark.parametrize("why", ["failed_create", "unschedulable", "restarting"])
def test_f52_f56_failed_roll_out_restores_the_template_while_an_old_pod_is_left(why: str) -> None:
    drive = Drive(STAMP).begin().write().look(failure=why, old_pods=1)
    drive.feed(Answered(done=True)).look(restored=True).close()
    assert (drive.txn.end, drive.txn.reason) == (End.ROLLED_BACK, why)


def test_failed_roll_out_without_old_pods_is_regressed() -> None:
    drive = Drive(STAMP).begin().write().look(failure="restarting", old_pods=0).close()
    assert (drive.txn.end, drive.kinds) == (End.REGRESSED, ["stamp", "close"])


def test_roll_out_not_complete_in_time_is_undone() -> None:
    drive = Drive(STAMP).begin().write().look(after=481.0, old_pods=2)
    assert drive.txn.reason == "not_in_time"
    assert drive.txn.pending is not None


def test_complete_with_an_old_pod_left_is_not_complete() -> None:
    assert Drive(STAMP).begin().write().look(complete=True, old_pods=1).txn.phase is Phase.APPLYING


def test_failed_canary_has_no_inverse() -> None:
    drive = Drive(OPEN, EVICT, STAMP).begin().write().write().look(failure="restarting").close()
    assert (drive.txn.end, drive.kinds) == (End.REGRESSED, ["open", "evict", "close"])


def test_no_improvement_of_a_restart_is_ineffective() -> None:
    drive = Drive(STAMP).begin().write().complete().settle(opening=FAILING).close()
    assert (drive.txn.end, drive.txn.reason) == (End.INEFFECTIVE, "no_improvement")


def test_opening_expression_true_once_in_the_window_is_no_improvement() -> None:
    drive = Drive(STAMP).begin().write().complete().look(opening=FAILING).look(after=60.0).close()
    assert drive.txn.end is End.INEFFECTIVE


def test_final_failed_attempt_of_a_scale_is_undone_as_well() -> None:
    drive = Drive(SCALE_UP).begin().write().complete().settle(opening=FAILING)
    drive.feed(Answered(done=True)).look(restored=True).close()
    assert (drive.txn.end, drive.kinds) == (End.INEFFECTIVE, ["scale", "undo", "close"])


def test_g05_unknown_extends_once_then_is_unverified() -> None:
    drive = Drive(STAMP).begin().write().complete().settle(readings=(reading(after=UNKNOWN),))
    assert (drive.txn.phase, drive.txn.extended) == (Phase.SETTLING, True)
    drive.look(after=60.0, readings=(reading(after=UNKNOWN),)).close()
    assert drive.txn.end is End.UNVERIFIED


def test_unknown_in_the_first_window_known_in_the_second_commits() -> None:
    drive = Drive(STAMP).begin().write().complete().settle(readings=(reading(after=UNKNOWN),)).look(after=60.0).close()
    assert drive.txn.end is End.COMMITTED


@pytest.mark.parametrize("opening", [None, UNKNOWN])
def test_opening_that_cannot_be_told_never_commits(opening: CheckState | None) -> None:
    drive = Drive(STAMP).begin().write().complete().settle(opening=opening).look(after=60.0, opening=opening).close()
    assert drive.txn.end is End.UNVERIFIED


def test_severity_that_cannot_be_told_never_commits() -> None:
    drive = Drive(STAMP).begin().write().complete().settle(severity=None).look(after=60.0, severity=None).close()
    assert drive.txn.end is End.UNVERIFIED


@pytest.mark.parametrize(("before", "first", "after"), [(1.0, None, 2.0), (3.0, 1.0, 2.0)])
def test_severity_above_checkpoint_or_first_attempt_is_a_regression(before: float, first: float | None, after: float) -> None:
    drive = Drive(STAMP, severity=before, first=first).begin().write().complete().settle(severity=after).close()
    assert (drive.txn.end, drive.txn.reason) == (End.REGRESSED, "severity")


def test_unknown_undoes_only_where_that_adds_capacity() -> None:
    down = Drive(SCALE_DOWN).begin().write().complete().settle(severity=None).look(after=60.0, severity=None)
    assert down.txn.pending is not None
    assert down.txn.pending.kind == "undo"
    up = Drive(SCALE_UP).begin().write().complete().settle(severity=None).look(after=60.0, severity=None).close()
    assert (up.txn.end, up.kinds) == (End.UNVERIFIED, ["scale", "close"])


FOREIGN: list[dict[str, object]] = [
    {"mark": "open/OTHER/1"},
    {"mark": None},
    {"mark": "closed/OTHER"},
    {"template": "other"},
    {"uid": "V"},
    {"exists": False},
]


@pytest.mark.parametrize("change", FOREIGN, ids=str)
@pytest.mark.parametrize("when", ["applying", "settling"])
def test_g34_foreign_writer_is_a_conflict_and_never_forced(change: dict[str, object], when: str) -> None:
    drive = Drive(STAMP).begin().write()
    if when == "settling":
        drive.complete()
    drive.look(**change)
    assert drive.txn.end is End.CONFLICT
    assert "undo" not in [record.kind for record in drive.txn.writes]
    # Our mark is taken off only where it is still ours and the object is still the same.
    assert (drive.txn.pending is not None) == (change == {"template": "other"})


def test_g10_replicas_set_by_a_person_before_the_undo_are_left_alone() -> None:
    drive = Drive(SCALE_UP).begin().write().complete().look(readings=(reading(after=FAILING),))
    drive.feed(Answered(done=False, maybe_fence=True)).feed(drive.seen(replicas=6))
    assert (drive.txn.end, drive.txn.done("undo")) == (End.CONFLICT, False)


def test_foreign_mark_at_begin_is_a_conflict() -> None:
    drive = Drive(STAMP).feed(Passed(), Refused(reason="foreign_writer", sentence="", foreign=True))
    assert drive.txn.end is End.CONFLICT


def test_stale_target_at_the_first_write_is_refused() -> None:
    drive = Drive(STAMP).begin().write(Answered(done=False, maybe_fence=True)).look(template="other")
    assert (drive.txn.end, drive.txn.reason) == (End.REFUSED, "stale_target")


def test_lost_answer_is_read_back_and_not_sent_again_when_it_took_effect() -> None:
    drive = Drive(STAMP).begin().write(Lost(detail="cut"))
    assert isinstance(next_effect(drive.txn), ReadBack)
    drive.feed(drive.seen(mark="open/T/1", template="ours"))
    assert (drive.txn.phase, drive.kinds) == (Phase.APPLYING, ["stamp"])


def test_lost_answer_that_took_no_effect_is_sent_again_only_after_reading_and_asking_the_brake() -> None:
    drive = Drive(STAMP).begin().write(Lost())
    drive.feed(drive.seen())
    assert isinstance(next_effect(drive.txn), AskBrake)
    pending = drive.txn.pending
    assert pending is not None
    assert (pending.n, pending.attempt) == (1, 2)


def test_lost_write_that_is_given_up_is_fenced_so_that_a_late_one_fails_its_test() -> None:
    drive = Drive(STAMP).begin()
    for _ in range(MAX_ATTEMPTS):
        drive.write(Lost()).feed(drive.seen())
    fence = drive.txn.pending
    assert fence is not None
    assert (fence.kind, fence.n, fence.mark_before) == ("fence", 2, None)
    drive.feed(Answered(done=True)).close()
    assert (drive.txn.end, drive.kinds) == (End.INEFFECTIVE, ["fence", "close"])


def test_late_write_that_comes_before_its_fence_is_what_happened() -> None:
    drive = Drive(STAMP).begin().write(Lost())
    drive.feed(drive.seen()).feed(Brake(reason="halted", sentence="Halted."))
    drive.feed(Answered(done=False, maybe_fence=True)).feed(drive.seen(mark="open/T/1", template="ours"))
    assert (drive.txn.phase, drive.kinds) == (Phase.APPLYING, ["stamp"])


def test_unreadable_after_a_lost_answer_is_unverified_and_says_what_may_still_land() -> None:
    drive = Drive(STAMP).begin().write(Lost()).look(after=200.0, readable=False)
    assert (drive.txn.end, bool(drive.txn.not_undone)) == (End.UNVERIFIED, True)


def test_eviction_is_never_sent_twice_for_one_uid() -> None:
    drive = Drive(OPEN, EVICT, STAMP).begin().write().write(Lost())
    assert drive.txn.phase is Phase.IN_DOUBT
    drive.feed(drive.seen())
    assert isinstance(next_effect(drive.txn), ReadBack)
    drive.look(after=31.0).settle(opening=FAILING).close()
    assert (drive.txn.end, drive.txn.reason) == (End.INEFFECTIVE, "in_doubt")


def test_p10_eviction_that_a_budget_refuses_is_not_tried_again() -> None:
    answer = Answered(done=False, retry=True, reason="disruption_budget", sentence="The budget.")
    drive = Drive(OPEN, EVICT).begin().write().write(answer).close()
    assert (drive.txn.end, drive.txn.reason, drive.kinds) == (End.INEFFECTIVE, "disruption_budget", ["open", "close"])


def test_g11_undo_that_keeps_failing_is_bounded_then_incomplete() -> None:
    drive = Drive(SCALE_UP).begin().write().complete().look(readings=(reading(after=FAILING),))
    sent = 0
    while drive.txn.phase is Phase.INTENDED and drive.txn.pending is not None and drive.txn.pending.kind == "undo":
        drive.feed(Answered(done=False, retry=True, reason="changed", sentence="409"), after=1.0)
        sent += 1
    assert sent == 10
    assert (drive.txn.end, drive.txn.not_undone) == (End.UNDO_INCOMPLETE, ("the number of replicas",))


def test_f49_undo_has_its_own_deadline() -> None:
    drive = Drive(SCALE_UP).begin().write().complete().look(readings=(reading(after=FAILING),))
    drive.feed(Answered(done=False, retry=True, reason="webhook_down", sentence="The webhook w."), after=400.0)
    assert drive.txn.end is End.UNDO_INCOMPLETE
    assert "webhook" in drive.txn.sentence


def test_f46_undo_whose_pods_do_not_come_back_is_incomplete() -> None:
    drive = Drive(SCALE_UP).begin().write().complete().look(readings=(reading(after=FAILING),))
    drive.feed(Answered(done=True)).look(after=500.0, detail="1 of 2 pods are ready").close()
    assert (drive.txn.end, drive.txn.not_undone) == (End.UNDO_INCOMPLETE, ("1 of 2 pods are ready",))


def test_g13_crash_while_a_call_is_under_way_is_in_doubt() -> None:
    drive = Drive(STAMP).begin().feed(Brake())
    assert resume(drive.txn, drive.now + 5).phase is Phase.IN_DOUBT


def test_crash_before_the_first_write_asks_everything_again() -> None:
    drive = Drive(STAMP).feed(Passed(), Passed())
    assert resume(drive.txn, drive.now + 5).phase is Phase.LIMITS


def crashed_while_settling(away: Iterable[float]) -> Drive:
    drive = Drive(STAMP).begin().write().complete().look(after=50.0)
    for seconds in away:
        drive.txn = drive.txn.model_copy(update={"touched": drive.now})
        drive.now += seconds
        drive.txn = resume(drive.txn, drive.now)
    return drive


def test_settle_window_starts_again_in_full_after_a_crash() -> None:
    drive = crashed_while_settling([5.0]).look(after=55.0)
    assert drive.txn.phase is Phase.SETTLING
    assert drive.look(after=10.0).close().txn.end is End.COMMITTED


@pytest.mark.parametrize("away", [[61.0], [5.0, 5.0]])
def test_settle_window_starts_again_once_and_only_within_its_own_length(away: list[float]) -> None:
    assert crashed_while_settling(away).look().close().txn.end is End.UNVERIFIED


def test_api_outage_while_applying_is_waited_out_then_unverified() -> None:
    drive = Drive(STAMP).begin().write().look(after=500.0, readable=False)
    assert drive.txn.phase is Phase.APPLYING
    assert drive.look(after=60.0, readable=False).close().txn.end is End.UNVERIFIED


def test_follow_up_without_an_opening_expression_commits_on_no_regression() -> None:
    drive = Drive(SCALE_DOWN)
    drive.txn = drive.txn.model_copy(update={"has_opening": False})
    assert drive.begin().write().complete().settle(opening=None).close().txn.end is End.COMMITTED


def test_mark_taken_off_by_others_at_the_end_turns_a_commit_into_a_conflict() -> None:
    drive = Drive(STAMP).begin().write().complete().settle().feed(Answered(done=False, maybe_fence=True))
    drive.feed(drive.seen(mark=None))
    assert (drive.txn.end, drive.txn.phase) == (End.CONFLICT, Phase.ENDED)


def test_mark_that_cannot_be_taken_off_is_said_so() -> None:
    drive = Drive(STAMP).begin().write().complete().settle().feed(Answered(done=False, reason="forbidden", sentence="403"))
    assert (drive.txn.end, drive.txn.not_undone) == (End.COMMITTED, ("our annotation sre-ladder.dev/txn",))
