"""Every arrow of the incident's state machine, and a random walk over it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from catalog.alerts import AlertSeverity
from catalog.decisions import Route
from catalog.episodes import CloseReason, Phase
from catalog.events import EventKind
from catalog.outcomes import End
from incidents.transitions import (
    BEFORE_ORDERED,
    CLOSE_GRACE,
    CONFIRM_PATIENCE,
    MAX_UNDELIVERED,
    Again,
    AlertFact,
    Move,
    OrderFact,
    ProposalFact,
    Situation,
    Work,
    after_end,
    after_undelivered,
    after_withheld,
    ended,
    next_move,
    reason_of,
    stronger,
    watched,
)

NOW = datetime(2026, 3, 4, 10, 5, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def alert(
    name: str = "PodWedged", *, firing: bool = True, severity: str = "warning", started: datetime = NOW - 5 * MINUTE
) -> AlertFact:
    return AlertFact(
        name=name,
        severity=AlertSeverity(severity),
        firing=firing,
        starts_at=started,
        received_at=started,
        last_seen_at=max(started, NOW - MINUTE),
        resolved_at=None if firing else NOW - MINUTE,
    )


def proposal(state: str = "pending", *, expires: timedelta = 10 * MINUTE, remind: timedelta | None = None) -> ProposalFact:
    decided = NOW - MINUTE if state in ("approved", "rejected") else None
    return ProposalFact(
        state=state,  # type: ignore[arg-type]
        expires_at=NOW + expires,
        remind_at=None if remind is None else NOW + remind,
        decided_at=decided,
    )


def order(
    state: str = "minted", *, expires: timedelta = MINUTE, end: End | None = None, ended_ago: timedelta = 3 * MINUTE
) -> OrderFact:
    return OrderFact(
        state=state,  # type: ignore[arg-type]
        expires_at=NOW + expires,
        end=end,
        ended_at=NOW - ended_ago if end else None,
    )


def at(phase: Phase, **changes: object) -> Situation:
    """A firing incident in `phase` whose documents fit that phase."""
    fitting: dict[str, object] = {
        "phase": phase,
        "alerts": (alert(),),
        "now": NOW,
        "judged_names": frozenset() if phase is Phase.OPEN else frozenset({"PodWedged"}),
        "judged_severity": None if phase is Phase.OPEN else AlertSeverity.WARNING,
        "decided_at": None if phase in (Phase.OPEN, Phase.DIAGNOSED) else NOW - MINUTE,
    }
    if phase is Phase.PROPOSED:
        fitting |= {"route": Route.PROPOSE, "proposal": proposal()}
    if phase is Phase.ORDERED:
        fitting |= {"route": Route.AUTO, "order": order()}
    if phase is Phase.EXECUTING:
        fitting |= {"route": Route.AUTO, "order": order("delivered")}
    if phase is Phase.WATCHING:
        fitting |= {"route": Route.AUTO, "order": order("ended", end=End.COMMITTED), "watch_until": NOW + 20 * MINUTE}
    return Situation(**(fitting | changes))  # type: ignore[arg-type]


PENDING_PHASES = sorted(BEFORE_ORDERED)


# from any phase before ordered


@pytest.mark.parametrize("phase", PENDING_PHASES)
def test_taken_over_closes_from_any_phase_before_ordered(phase: Phase) -> None:
    move = next_move(at(phase, taken_by="ana"))
    assert (move.to, move.close_reason) == (Phase.CLOSED, CloseReason.TAKEN_OVER)
    assert (move.proposal == "withdrawn") == (phase is Phase.PROPOSED)


@pytest.mark.parametrize("phase", PENDING_PHASES)
def test_F20_resolved_alerts_wait_out_the_grace_before_anything_closes(phase: Phase) -> None:
    just_now = replace(alert(firing=False), resolved_at=NOW - timedelta(seconds=1))
    move = next_move(at(phase, alerts=(just_now,)))
    assert (move.to, move.work) == (None, None)
    assert move.next_at == NOW - timedelta(seconds=1) + CLOSE_GRACE


@pytest.mark.parametrize("phase", PENDING_PHASES)
def test_P08_resolved_alerts_are_confirmed_at_the_source_and_nothing_is_proposed(phase: Phase) -> None:
    situation = at(phase, alerts=(alert(firing=False),))
    assert next_move(situation).work is Work.CONFIRM_END
    move = ended(situation, still_firing=False, changed_outside=False)
    assert (move.to, move.close_reason) == (Phase.CLOSED, CloseReason.SELF_RESOLVED)
    assert (EventKind.PROPOSAL_WITHDRAWN in move.events) == (phase is Phase.PROPOSED)


def test_F20_an_alert_that_still_fires_at_its_source_does_not_close() -> None:
    assert ended(at(Phase.NOTIFIED, alerts=(alert(firing=False),)), still_firing=True, changed_outside=False).to is None


def test_F20_a_source_that_cannot_confirm_is_waited_for_and_then_the_message_is_believed() -> None:
    situation = at(Phase.NOTIFIED, alerts=(alert(firing=False),))
    assert ended(situation, still_firing=None, changed_outside=False).to is None
    later = replace(situation, now=NOW + CONFIRM_PATIENCE)
    assert ended(later, still_firing=None, changed_outside=False).to is Phase.CLOSED


def test_F02_a_workload_changed_outside_is_credited_to_people() -> None:
    move = ended(at(Phase.PROPOSED, alerts=(alert(firing=False),)), still_firing=False, changed_outside=True)
    assert move.close_reason is CloseReason.PEOPLE


def test_the_close_reason_is_the_strongest_thing_that_happened() -> None:
    situation = at(Phase.NOTIFIED, alerts=(alert(firing=False),), strongest=CloseReason.ROLLED_BACK)
    assert ended(situation, still_firing=False, changed_outside=True).close_reason is CloseReason.ROLLED_BACK


@pytest.mark.parametrize("phase", [phase for phase in PENDING_PHASES if phase is not Phase.OPEN])
def test_a_new_family_goes_back_to_open_and_supersedes_the_proposal(phase: Phase) -> None:
    move = next_move(at(phase, alerts=(alert(), alert("HighErrorRate"))))
    assert (move.to, move.again) == (Phase.OPEN, Again.FAMILY)
    assert (move.proposal == "superseded") == (phase is Phase.PROPOSED)


@pytest.mark.parametrize("phase", [phase for phase in PENDING_PHASES if phase is not Phase.OPEN])
def test_a_higher_severity_goes_back_to_open_and_a_lower_one_does_not(phase: Phase) -> None:
    assert next_move(at(phase, alerts=(alert(severity="critical"),))).again is Again.FAMILY
    assert next_move(at(phase, alerts=(alert(severity="info"),))).again is not Again.FAMILY


@pytest.mark.parametrize("phase", [Phase.RECORDED, Phase.NOTIFIED, Phase.PROPOSED])
def test_a_resend_changes_nothing(phase: Phase) -> None:
    resent = replace(alert(), last_seen_at=NOW, received_at=NOW)
    move = next_move(at(phase, alerts=(resent,)))
    assert (move.to, move.work) == (None, None)


@pytest.mark.parametrize("phase", PENDING_PHASES)
def test_F22_silence_for_24_hours_closes_as_unknown(phase: Phase) -> None:
    silent = replace(alert(), last_seen_at=NOW - timedelta(hours=24), starts_at=NOW - timedelta(hours=25))
    move = next_move(at(phase, alerts=(silent,)))
    assert (move.to, move.close_reason) == (Phase.CLOSED, CloseReason.UNKNOWN)
    heard = replace(silent, last_seen_at=NOW - timedelta(hours=23, minutes=59))
    assert next_move(at(phase, alerts=(heard,))).to is not Phase.CLOSED


# one by one


def test_open_is_diagnosed_and_diagnosed_is_decided() -> None:
    assert next_move(at(Phase.OPEN)).work is Work.TRIAGE
    assert next_move(at(Phase.DIAGNOSED)).work is Work.DECIDE


@pytest.mark.parametrize(
    ("route", "to", "work"),
    [
        (Route.RECORD, Phase.RECORDED, None),
        (Route.NOTIFY, Phase.NOTIFIED, None),
        (Route.PROPOSE, None, Work.PROPOSE),
        (Route.AUTO, None, Work.MINT),
    ],
)
def test_a_decision_leads_where_its_route_says(route: Route, to: Phase | None, work: Work | None) -> None:
    move = next_move(at(Phase.DECIDED, route=route))
    assert (move.to, move.work) == (to, work)


@pytest.mark.parametrize("route", [Route.PROPOSE, Route.AUTO])
def test_a_decision_older_than_its_evidence_may_be_is_not_acted_on(route: Route) -> None:
    move = next_move(at(Phase.DECIDED, route=route, decided_at=NOW - timedelta(seconds=121)))
    assert (move.to, move.work) == (Phase.DIAGNOSED, None)


def test_a_decided_incident_without_a_route_is_judged_from_the_start() -> None:
    move = next_move(at(Phase.DECIDED, route=None, again=Again.REFUSED))
    assert (move.to, move.again) == (Phase.OPEN, Again.REFUSED)


@pytest.mark.parametrize("phase", [Phase.RECORDED, Phase.NOTIFIED])
def test_people_who_have_it_are_not_asked_again_before_six_hours(phase: Phase) -> None:
    move = next_move(at(phase))
    assert (move.to, move.next_at) == (None, NOW - MINUTE + timedelta(hours=6))
    assert next_move(at(phase, decided_at=NOW - timedelta(hours=6))).again is Again.AGE


def test_a_pending_proposal_waits_reminds_and_expires() -> None:
    waiting = next_move(at(Phase.PROPOSED, proposal=proposal(remind=3 * MINUTE)))
    assert (waiting.work, waiting.next_at) == (None, NOW + 3 * MINUTE)
    assert next_move(at(Phase.PROPOSED, proposal=proposal(remind=-MINUTE))).work is Work.REMIND
    expired = next_move(at(Phase.PROPOSED, proposal=proposal(expires=timedelta(0))))
    assert (expired.to, expired.proposal, expired.again) == (Phase.DECIDED, "expired", Again.EXPIRED)


@pytest.mark.parametrize(("before", "to"), [(0, Phase.DECIDED), (1, Phase.DECIDED), (2, Phase.NOTIFIED)])
def test_F04_an_expired_proposal_is_renewed_at_most_twice(before: int, to: Phase) -> None:
    move = next_move(at(Phase.PROPOSED, proposal=proposal(expires=-MINUTE), proposals_expired=before))
    assert (move.to, move.proposal) == (to, "expired")
    assert move.counts == "proposals_expired"


def test_F11_an_approval_given_in_time_wins_over_an_expiry_in_the_same_tick() -> None:
    assert next_move(at(Phase.PROPOSED, proposal=proposal("approved", expires=timedelta(0)))).work is Work.MINT


def test_a_rejection_gives_it_to_people_until_a_new_start() -> None:
    assert next_move(at(Phase.PROPOSED, proposal=proposal("rejected"))).to is Phase.NOTIFIED
    told = at(Phase.NOTIFIED, proposal=proposal("rejected"))
    assert next_move(told).to is None
    fresh = alert(started=NOW)
    assert next_move(replace(told, alerts=(fresh,))).again is Again.NEW_START


@pytest.mark.parametrize("state", ["stale", "withheld", "superseded"])
def test_a_proposal_that_ended_otherwise_is_decided_anew(state: str) -> None:
    assert next_move(at(Phase.PROPOSED, proposal=proposal(state))).to is Phase.DECIDED


# the order


def test_an_order_waits_for_its_executor_and_expires_undelivered() -> None:
    assert next_move(at(Phase.ORDERED)).next_at == NOW + MINUTE
    assert next_move(at(Phase.ORDERED, order=order(expires=timedelta(0)))).work is Work.EXPIRE_ORDER
    assert next_move(at(Phase.ORDERED, taken_by="ana")).work is Work.EXPIRE_ORDER
    assert next_move(at(Phase.ORDERED, alerts=(alert(firing=False),))).work is Work.EXPIRE_ORDER
    assert next_move(at(Phase.ORDERED, order=order("delivered"))).to is Phase.EXECUTING


def test_a_delivered_order_never_expires() -> None:
    move = next_move(at(Phase.EXECUTING, order=order("delivered", expires=timedelta(hours=-5)), alerts=(alert(firing=False),)))
    assert (move.to, move.work, move.next_at) == (None, None, None)


def test_an_undelivered_order_is_decided_again_and_a_living_approval_counts_on() -> None:
    situation = at(Phase.ORDERED, proposal=proposal("approved"))
    move = after_undelivered(situation)
    assert (move.to, move.counts) == (Phase.DECIDED, "attempt")
    assert next_move(at(Phase.DECIDED, proposal=proposal("approved"))).work is Work.MINT
    dead = next_move(at(Phase.DECIDED, proposal=proposal("approved", expires=timedelta(0))))
    assert (dead.to, dead.proposal) == (Phase.OPEN, "expired")
    assert next_move(at(Phase.DECIDED, proposal=proposal("carried_out"))).work is not Work.MINT


def test_an_executor_that_never_comes_leaves_it_to_people() -> None:
    assert after_undelivered(at(Phase.ORDERED, attempt=MAX_UNDELIVERED)).to is Phase.NOTIFIED


@pytest.mark.parametrize("end", list(End))
def test_every_end_but_committed_and_the_first_refusal_goes_to_people(end: End) -> None:
    move = after_end(at(Phase.EXECUTING), end)
    expected = {End.COMMITTED: Phase.WATCHING, End.REFUSED: Phase.DECIDED}.get(end, Phase.NOTIFIED)
    assert move.to is expected
    assert (reason_of(end) is None) == (end is End.COMMITTED)


def test_a_second_refusal_and_a_second_withholding_go_to_people() -> None:
    assert after_end(at(Phase.EXECUTING, refusals=1), End.REFUSED).to is Phase.NOTIFIED
    assert after_withheld(at(Phase.DECIDED)).to is Phase.DECIDED
    assert after_withheld(at(Phase.DECIDED, refusals=1)).to is Phase.NOTIFIED


# the watch


def test_the_watch_lasts_and_then_holds() -> None:
    assert next_move(at(Phase.WATCHING)).next_at == NOW + 20 * MINUTE
    over = at(Phase.WATCHING, watch_until=NOW, alerts=(alert(firing=False),))
    assert next_move(over).work is Work.CONFIRM_HOLD
    assert watched(over, still_firing=False).close_reason is CloseReason.HELD


def test_a_re_fire_while_watching_is_came_back() -> None:
    move = next_move(at(Phase.WATCHING, alerts=(alert(started=NOW - MINUTE),)))
    assert (move.to, move.close_reason) == (Phase.NOTIFIED, CloseReason.CAME_BACK)


def test_the_alert_that_was_there_before_is_not_a_re_fire() -> None:
    assert next_move(at(Phase.WATCHING)).to is None


def test_came_back_counts_even_when_it_has_resolved_again() -> None:
    back = replace(alert(firing=False, started=NOW - 2 * MINUTE), resolved_at=NOW)
    assert next_move(at(Phase.WATCHING, alerts=(back,))).close_reason is CloseReason.CAME_BACK


def test_a_new_family_while_watching_is_split_off() -> None:
    assert next_move(at(Phase.WATCHING, alerts=(alert(), alert("HighErrorRate")))).work is Work.SPLIT


def test_still_firing_at_the_end_of_the_watch_is_came_back_and_unknown_is_neither() -> None:
    over = at(Phase.WATCHING, watch_until=NOW)
    assert watched(over, still_firing=True).close_reason is CloseReason.CAME_BACK
    assert watched(over, still_firing=None).to is None
    silent = replace(over, now=NOW + timedelta(hours=24))
    assert watched(silent, still_firing=None).close_reason is CloseReason.UNKNOWN


# follow-ups


def test_a_follow_up_sleeps_until_its_check_has_held_and_ends_when_nobody_acts() -> None:
    sleeping = at(Phase.OPEN, origin="follow_up", alerts=(), dormant_until=NOW + MINUTE)
    assert next_move(sleeping).next_at == NOW + MINUTE
    assert next_move(replace(sleeping, now=NOW + MINUTE)).work is Work.TRIAGE
    told = at(Phase.NOTIFIED, origin="follow_up", alerts=(), strongest=CloseReason.EXPIRED)
    assert next_move(told).close_reason is CloseReason.EXPIRED


@pytest.mark.parametrize("phase", PENDING_PHASES)
def test_an_alert_on_the_target_of_a_follow_up_is_split_off(phase: Phase) -> None:
    assert next_move(at(phase, origin="follow_up")).work is Work.SPLIT


def test_harm_is_stronger_than_anything_that_comes_later() -> None:
    assert stronger(CloseReason.REGRESSED, CloseReason.HELD) is CloseReason.REGRESSED
    assert stronger(CloseReason.EXPIRED, CloseReason.HELD) is CloseReason.HELD
    assert stronger(None, CloseReason.SELF_RESOLVED) is CloseReason.SELF_RESOLVED


def test_no_pair_of_phase_and_document_states_is_stuck() -> None:
    """Every combination has a phase to go to, work to do, or a time to look again."""
    proposals = [None, *(proposal(state) for state in ("pending", "approved", "rejected", "expired", "stale", "withheld"))]
    orders = [None, order(), order(expires=-MINUTE), order("delivered"), order("ended", end=End.COMMITTED), order("expired")]
    alerts = [(alert(),), (alert(firing=False),), (alert(), alert("Other"))]
    routes = [None, *Route]
    for phase, one_proposal, one_order, some, route in product(Phase, proposals, orders, alerts, routes):
        move = next_move(at(phase, proposal=one_proposal, order=one_order, alerts=some, route=route))
        waits_for_an_outcome = phase in (Phase.CLOSED, Phase.EXECUTING)
        assert waits_for_an_outcome or move.to or move.work or move.next_at, (phase, one_proposal, one_order, route)


class Life(RuleBasedStateMachine):
    """One incident driven by alerts, people, an executor and time; the reconciler is `next_move`."""

    @initialize()
    def begin(self) -> None:
        self.situation = at(Phase.OPEN)
        self.ordered_while_closed = False
        self.proposals = 0

    @rule(minutes=st.sampled_from([0, 1, 16, 61, 361, 1441]))
    def time_passes(self, minutes: int) -> None:
        self.situation = replace(self.situation, now=self.situation.now + minutes * MINUTE)

    @precondition(lambda self: self.situation.phase is not Phase.CLOSED)
    @rule(name=st.sampled_from(["PodWedged", "HighErrorRate"]), severity=st.sampled_from(["warning", "critical"]))
    def fires(self, name: str, severity: str) -> None:
        now = self.situation.now
        new = AlertFact(name, AlertSeverity(severity), firing=True, starts_at=now, received_at=now, last_seen_at=now)
        self.situation = replace(self.situation, alerts=(*self.situation.alerts, new))

    @rule()
    def resolves(self) -> None:
        now = self.situation.now
        alerts = tuple(replace(one, firing=False, resolved_at=one.resolved_at or now) for one in self.situation.alerts)
        self.situation = replace(self.situation, alerts=alerts)

    @precondition(lambda self: self.situation.proposal is not None and self.situation.proposal.state == "pending")
    @rule(answer=st.sampled_from(["approved", "rejected", "stale"]))
    def people_answer(self, answer: str) -> None:
        present = self.situation.proposal
        assert present is not None
        if self.situation.now < present.expires_at:
            answered = replace(present, state=answer, decided_at=self.situation.now)  # type: ignore[arg-type]
            self.situation = replace(self.situation, proposal=answered)

    @rule()
    def is_taken(self) -> None:
        self.situation = replace(self.situation, taken_by="ana")

    @precondition(lambda self: self.situation.phase is Phase.ORDERED)
    @rule()
    def is_claimed(self) -> None:
        present = self.situation.order
        if present is not None and present.state == "minted" and self.situation.now < present.expires_at:
            used = self.situation.proposal and replace(self.situation.proposal, state="carried_out")
            self.situation = replace(
                self.situation, phase=Phase.EXECUTING, order=replace(present, state="delivered"), proposal=used
            )

    @precondition(lambda self: self.situation.phase is Phase.EXECUTING)
    @rule(end=st.sampled_from(list(End)))
    def ends(self, end: End) -> None:
        present = self.situation.order
        assert present is not None
        done = replace(present, state="ended", end=end, ended_at=self.situation.now)
        self.situation = replace(self.situation, order=done, watch_until=self.situation.now + 30 * MINUTE)
        self._take(after_end(self.situation, end))

    @rule(route=st.sampled_from(list(Route)), firing=st.sampled_from([True, False, None]), withheld=st.booleans())
    def reconciles(self, route: Route, firing: bool | None, withheld: bool) -> None:
        for _ in range(30):
            move = next_move(self.situation)
            if move.to is None and move.work is None:
                return
            if not self._do(move, route, firing, withheld):
                return
        raise AssertionError(f"does not settle: {self.situation}")

    def _do(self, move: Move, route: Route, firing: bool | None, withheld: bool) -> bool:
        situation, now = self.situation, self.situation.now
        match move.work:
            case None:
                self._take(move)
            case Work.TRIAGE:
                names = frozenset(one.name for one in situation.firing)
                worst = max((one.severity for one in situation.firing), key=lambda one: one.rank)
                self.situation = replace(situation, phase=Phase.DIAGNOSED, judged_names=names, judged_severity=worst)
            case Work.DECIDE:
                self.situation = replace(situation, phase=Phase.DECIDED, route=route, decided_at=now)
            case Work.PROPOSE:
                self.proposals += 1
                asked = ProposalFact("pending", now + 15 * MINUTE, now + 7 * MINUTE)
                self.situation = replace(situation, phase=Phase.PROPOSED, proposal=asked)
            case Work.REMIND:
                assert situation.proposal is not None
                self.situation = replace(situation, proposal=replace(situation.proposal, remind_at=None))
            case Work.MINT if withheld:
                used = situation.proposal and replace(situation.proposal, state="withheld")
                self.situation = replace(situation, proposal=used)
                self._take(after_withheld(situation))
            case Work.MINT:
                self.ordered_while_closed |= situation.over or situation.taken_by is not None
                self.situation = replace(situation, phase=Phase.ORDERED, order=OrderFact("minted", now + MINUTE))
            case Work.EXPIRE_ORDER:
                assert situation.order is not None
                self.situation = replace(situation, order=replace(situation.order, state="expired"))
                self._take(after_undelivered(self.situation))
            case Work.CONFIRM_END:
                asked_end = ended(situation, still_firing=firing, changed_outside=False)
                self._take(asked_end)
                return asked_end.to is not None
            case Work.CONFIRM_HOLD:
                asked_hold = watched(situation, still_firing=firing)
                self._take(asked_hold)
                return asked_hold.to is not None
            case Work.SPLIT:
                self.situation = replace(situation, phase=Phase.CLOSED, strongest=situation.strongest)
        return True

    def _take(self, move: Move) -> None:
        if move.to is None:
            return
        changes: dict[str, object] = {"phase": move.to, "again": move.again or self.situation.again}
        if move.counts:
            changes[move.counts] = getattr(self.situation, move.counts) + 1
        if move.again in (Again.AGE, Again.FAMILY, Again.NEW_START):
            changes |= {"proposals_expired": 0, "refusals": 0, "attempt": 0}
        if move.to is Phase.DECIDED:
            changes["route"] = None
        if move.proposal and self.situation.proposal:
            changes["proposal"] = replace(self.situation.proposal, state=move.proposal)
        if move.close_reason:
            changes["strongest"] = stronger(self.situation.strongest, move.close_reason)
        self.situation = replace(self.situation, **changes)  # type: ignore[arg-type]

    @invariant()
    def nothing_is_ordered_for_an_incident_that_is_over_or_taken(self) -> None:
        assert not getattr(self, "ordered_while_closed", False)

    @invariant()
    def a_closed_incident_has_no_living_proposal(self) -> None:
        situation = getattr(self, "situation", None)
        if situation is not None and situation.phase is Phase.CLOSED and situation.proposal is not None:
            assert situation.proposal.state != "pending"


TestLife = Life.TestCase
TestLife.settings = settings(
    max_examples=150, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.filter_too_much]
)
