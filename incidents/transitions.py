"""Where an incident goes next: a pure function of what the database holds about it and of the time.

    open → diagnosed → decided → recorded | notified | proposed | ordered → executing → watching → closed(reason)

`next_move` is level-triggered: it looks at the whole `Situation` and never at what woke it, so that a lost wake-up or a crash
costs time, not correctness. It answers with one `Move`: either a change of phase, or work that a phase module must do before the
phase can change, or nothing until `next_at`. What is terminal (a proposal approved in time, a person's take-over) is looked at
before any timer, so that a result and a deadline in the same tick end as the result says.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Literal

from catalog.alerts import AlertSeverity
from catalog.decisions import Route
from catalog.episodes import CloseReason, Phase
from catalog.events import EventKind
from catalog.outcomes import End

CLOSE_GRACE = timedelta(seconds=30)
"""A resolved alert is believed after this long: a reload of Prometheus can resolve an alert that never ended."""

CONFIRM_PATIENCE = timedelta(minutes=5)
"""How long closing waits for a source that cannot confirm; then the resolved message alone is believed."""

SILENT_AFTER = timedelta(hours=24)
REDECIDE_AFTER = timedelta(hours=6)
EVIDENCE_FRESH = timedelta(seconds=120)
MAX_EXPIRED_PROPOSALS = 2
MAX_REFUSALS = 1
MAX_UNDELIVERED = 5

BEFORE_ORDERED = frozenset({Phase.OPEN, Phase.DIAGNOSED, Phase.DECIDED, Phase.RECORDED, Phase.NOTIFIED, Phase.PROPOSED})
JUDGED = BEFORE_ORDERED - {Phase.OPEN}


class Work(StrEnum):
    """What must be done, outside or inside the transaction, before the phase can change."""

    TRIAGE = "triage"
    DECIDE = "decide"
    PROPOSE = "propose"
    MINT = "mint"
    REMIND = "remind"
    CONFIRM_END = "confirm_end"
    CONFIRM_HOLD = "confirm_hold"
    EXPIRE_ORDER = "expire_order"
    SPLIT = "split"


class Again(StrEnum):
    """Why an incident is judged once more."""

    FAMILY = "family"
    AGE = "age"
    STALE_EVIDENCE = "stale_evidence"
    EXPIRED = "expired"
    REFUSED = "refused"
    STALE_TARGET = "stale"
    UNDELIVERED = "undelivered"
    WITHHELD = "withheld"
    NEW_START = "new_start"


@dataclass(frozen=True)
class AlertFact:
    """One alert row of the incident."""

    name: str
    severity: AlertSeverity
    firing: bool
    starts_at: datetime
    received_at: datetime
    last_seen_at: datetime
    resolved_at: datetime | None = None


@dataclass(frozen=True)
class ProposalFact:
    """The incident's current proposal."""

    state: Literal["pending", "approved", "carried_out", "rejected", "expired", "superseded", "withdrawn", "stale", "withheld"]
    expires_at: datetime
    remind_at: datetime | None = None
    decided_at: datetime | None = None


@dataclass(frozen=True)
class OrderFact:
    """The incident's current order."""

    state: Literal["minted", "delivered", "ended", "expired"]
    expires_at: datetime
    end: End | None = None
    ended_at: datetime | None = None


@dataclass(frozen=True)
class Numbers:
    """The figures of the policy in force that phases run by."""

    close_grace: timedelta = CLOSE_GRACE
    redecide_after: timedelta = REDECIDE_AFTER
    evidence_fresh: timedelta = EVIDENCE_FRESH


@dataclass(frozen=True)
class Situation:
    """All that `next_move` looks at."""

    phase: Phase
    alerts: tuple[AlertFact, ...]
    now: datetime
    origin: Literal["alert", "follow_up"] = "alert"
    judged_names: frozenset[str] = frozenset()
    judged_severity: AlertSeverity | None = None
    route: Route | None = None
    decided_at: datetime | None = None
    taken_by: str | None = None
    proposal: ProposalFact | None = None
    order: OrderFact | None = None
    watch_until: datetime | None = None
    strongest: CloseReason | None = None
    again: Again | None = None
    attempt: int = 0
    proposals_expired: int = 0
    refusals: int = 0
    dormant_until: datetime | None = None
    numbers: Numbers = field(default_factory=Numbers)

    @property
    def firing(self) -> tuple[AlertFact, ...]:
        return tuple(alert for alert in self.alerts if alert.firing)

    @property
    def over(self) -> bool:
        """Every alert of it is resolved. A follow-up has no alerts and is never over in this sense."""
        return bool(self.alerts) and not self.firing

    @property
    def resolved_at(self) -> datetime | None:
        """When the last alert resolved, once all have."""
        return max((alert.resolved_at or alert.last_seen_at for alert in self.alerts), default=None) if self.over else None

    @property
    def last_seen_at(self) -> datetime | None:
        return max((alert.last_seen_at for alert in self.alerts), default=None)

    @property
    def new_families(self) -> frozenset[str]:
        """Families that fire and that the last diagnosis did not see."""
        return frozenset(alert.name for alert in self.firing) - self.judged_names

    @property
    def worse(self) -> bool:
        """Something fires at a severity above the one that was judged."""
        judged = self.judged_severity
        return judged is not None and any(alert.severity.rank > judged.rank for alert in self.firing)


@dataclass(frozen=True)
class Move:
    """What to do now. With `to` the phase changes; with `work` a phase module acts; with neither the row waits until `next_at`."""

    why: str
    to: Phase | None = None
    work: Work | None = None
    next_at: datetime | None = None
    close_reason: CloseReason | None = None
    proposal: Literal["expired", "superseded", "withdrawn"] | None = None
    again: Again | None = None
    events: tuple[EventKind, ...] = ()
    counts: Literal["proposals_expired", "refusals", "attempt"] | None = None


_STRENGTH = (
    CloseReason.UNKNOWN,
    CloseReason.SELF_RESOLVED,
    CloseReason.PEOPLE,
    CloseReason.EXPIRED,
    CloseReason.REJECTED,
    CloseReason.REFUSED,
    CloseReason.HELD,
    CloseReason.TAKEN_OVER,
    CloseReason.CAME_BACK,
    CloseReason.INEFFECTIVE,
    CloseReason.ROLLED_BACK,
    CloseReason.CONFLICT,
    CloseReason.UNVERIFIED,
    CloseReason.REGRESSED,
    CloseReason.UNDO_INCOMPLETE,
)


def stronger(present: CloseReason | None, new: CloseReason) -> CloseReason:
    """The one of two reasons that says more about what happened to the incident."""
    if present is None:
        return new
    return max(present, new, key=_STRENGTH.index)


_REASON_OF_END = {
    End.REFUSED: CloseReason.REFUSED,
    End.INEFFECTIVE: CloseReason.INEFFECTIVE,
    End.ROLLED_BACK: CloseReason.ROLLED_BACK,
    End.CONFLICT: CloseReason.CONFLICT,
    End.REGRESSED: CloseReason.REGRESSED,
    End.UNVERIFIED: CloseReason.UNVERIFIED,
    End.UNDO_INCOMPLETE: CloseReason.UNDO_INCOMPLETE,
}


def reason_of(end: End) -> CloseReason | None:
    """The close reason an end calls for. None for `committed`: only the hold watch can say."""
    return _REASON_OF_END.get(end)


def next_move(situation: Situation) -> Move:
    """The one thing to do now."""
    match situation.phase:
        case Phase.CLOSED:
            return Move(why="closed")
        case Phase.ORDERED:
            return _ordered(situation)
        case Phase.EXECUTING:
            return _executing(situation)
        case Phase.WATCHING:
            return _watching(situation)
        case _:
            return _before_ordered(situation)


def after_end(situation: Situation, end: End) -> Move:
    """Where an outcome leads: `committed` to the hold watch, `refused` once more to a decision, everything else to people."""
    if end is End.COMMITTED:
        return Move(why="nothing got worse; watching whether it holds", to=Phase.WATCHING, events=(EventKind.WATCHING,))
    if end is End.REFUSED and situation.refusals < MAX_REFUSALS and situation.taken_by is None:
        return Move(
            why="refused before the first write; judged once more",
            to=Phase.DECIDED,
            again=Again.REFUSED,
            counts="refusals",
            next_at=situation.now,
        )
    return Move(
        why=f"ended as {end.value}; people own it now", to=Phase.NOTIFIED, events=(EventKind.NOTIFIED,), next_at=situation.now
    )


def after_withheld(situation: Situation) -> Move:
    """Where an order that could not be minted leads: once more to a decision, then to people."""
    if situation.refusals < MAX_REFUSALS:
        return Move(why="judged once more", to=Phase.DECIDED, again=Again.WITHHELD, counts="refusals", next_at=situation.now)
    return Move(why="withheld again; people own it now", to=Phase.NOTIFIED, events=(EventKind.NOTIFIED,), next_at=situation.now)


# before the order ------------------------------------------------------------------------------------------------------------


def _before_ordered(situation: Situation) -> Move:
    if situation.taken_by is not None:
        return _closing(situation, CloseReason.TAKEN_OVER, f"taken over by {situation.taken_by}")
    if situation.origin == "follow_up" and situation.alerts:
        return Move(why="an alert fires on the target of a follow-up", work=Work.SPLIT)
    if situation.over:
        return _ending(situation)
    silent = _silent(situation)
    if silent is not None:
        return silent
    if situation.phase in JUDGED and (situation.new_families or situation.worse):
        return _reopened(situation, Again.FAMILY, _what_is_new(situation))
    match situation.phase:
        case Phase.OPEN:
            return _opened(situation)
        case Phase.DIAGNOSED:
            return Move(why="to be verified and decided", work=Work.DECIDE)
        case Phase.DECIDED:
            return _decided(situation)
        case Phase.PROPOSED:
            return _proposed(situation)
        case _:
            return _told(situation)


def _opened(situation: Situation) -> Move:
    if situation.dormant_until is not None and situation.dormant_until > situation.now:
        return Move(why="follow-up waits until the check has held", next_at=situation.dormant_until)
    return Move(why="to be diagnosed", work=Work.TRIAGE)


def _decided(situation: Situation) -> Move:
    if _approved_and_alive(situation):
        return Move(why="approved and not yet carried out", work=Work.MINT)
    if situation.proposal is not None and situation.proposal.state == "approved":
        return Move(
            why="the approval outlived its proposal",
            to=Phase.OPEN,
            proposal="expired",
            again=Again.EXPIRED,
            events=(EventKind.PROPOSAL_EXPIRED,),
            next_at=situation.now,
        )
    route = situation.route
    if route is None:
        return Move(why="to be judged once more", to=Phase.OPEN, again=situation.again, next_at=situation.now)
    if route is Route.RECORD:
        return Move(why="recorded", to=Phase.RECORDED, events=(EventKind.RECORDED,), next_at=situation.now)
    if route is Route.NOTIFY:
        return Move(why="people are told", to=Phase.NOTIFIED, events=(EventKind.NOTIFIED,), next_at=situation.now)
    if _too_old_to_act_on(situation):
        return Move(why="decision too old to act on", to=Phase.DIAGNOSED, again=Again.STALE_EVIDENCE, next_at=situation.now)
    if route is Route.PROPOSE:
        return Move(why="people are asked", work=Work.PROPOSE)
    return Move(why="ordered without a click", work=Work.MINT)


def _too_old_to_act_on(situation: Situation) -> bool:
    decided = situation.decided_at
    return decided is None or situation.now - decided > situation.numbers.evidence_fresh


def _approved_and_alive(situation: Situation) -> bool:
    proposal = situation.proposal
    return proposal is not None and proposal.state == "approved" and situation.now < proposal.expires_at


def _proposed(situation: Situation) -> Move:
    proposal = situation.proposal
    if proposal is None:
        return Move(why="proposal lost", to=Phase.OPEN, again=Again.STALE_TARGET, next_at=situation.now)
    match proposal.state:
        case "approved":
            # Approval is terminal: it wins over an expiry that falls into the same tick.
            return Move(why="approved", work=Work.MINT)
        case "rejected":
            return Move(why="rejected; people own it", to=Phase.NOTIFIED, events=(EventKind.NOTIFIED,), next_at=situation.now)
        case "pending":
            return _pending(situation, proposal)
        case _:
            again = Again.EXPIRED if proposal.state == "expired" else Again.STALE_TARGET
            return Move(why=f"proposal is {proposal.state}", to=Phase.DECIDED, again=again, next_at=situation.now)


def _pending(situation: Situation, proposal: ProposalFact) -> Move:
    if proposal.expires_at <= situation.now:
        ended = Move(
            why="nobody answered",
            to=Phase.DECIDED,
            proposal="expired",
            again=Again.EXPIRED,
            counts="proposals_expired",
            events=(EventKind.PROPOSAL_EXPIRED,),
            next_at=situation.now,
        )
        if situation.proposals_expired < MAX_EXPIRED_PROPOSALS:
            return ended
        return replace(
            ended, to=Phase.NOTIFIED, again=None, why="nobody answered again", events=(*ended.events, EventKind.NOTIFIED)
        )
    if proposal.remind_at is not None and proposal.remind_at <= situation.now:
        return Move(why="half of its time is over", work=Work.REMIND)
    wake = min(proposal.expires_at, proposal.remind_at or proposal.expires_at)
    return Move(why="waiting for people", next_at=_earliest(wake, _silent_at(situation)))


def _told(situation: Situation) -> Move:
    if situation.origin == "follow_up":
        return _closing(situation, situation.strongest or CloseReason.UNKNOWN, "nothing more to follow up")
    rejected = situation.proposal if situation.proposal is not None and situation.proposal.state == "rejected" else None
    if rejected is not None and rejected.decided_at is not None:
        decided_at = rejected.decided_at
        if any(alert.starts_at > decided_at and alert.received_at > decided_at for alert in situation.firing):
            return _reopened(situation, Again.NEW_START, "fired anew since the rejection")
    due = (situation.decided_at or situation.now) + situation.numbers.redecide_after
    if due <= situation.now:
        return _reopened(situation, Again.AGE, "still firing; judged again")
    return Move(why="people have it", next_at=_earliest(due, _silent_at(situation)))


def _reopened(situation: Situation, again: Again, why: str) -> Move:
    open_proposal = situation.proposal is not None and situation.proposal.state in ("pending", "approved")
    events = (EventKind.PROPOSAL_SUPERSEDED, EventKind.REOPENED) if open_proposal else (EventKind.REOPENED,)
    return Move(
        why=why,
        to=Phase.OPEN,
        again=again,
        proposal="superseded" if open_proposal else None,
        events=events,
        next_at=situation.now,
    )


def _what_is_new(situation: Situation) -> str:
    if situation.new_families:
        return f"new alert family: {', '.join(sorted(situation.new_families))}"
    return "an alert became more severe"


# ends ------------------------------------------------------------------------------------------------------------------------


def _ending(situation: Situation) -> Move:
    """All alerts are resolved: wait for the grace to pass, then have it confirmed at the source."""
    resolved = situation.resolved_at or situation.now
    believed = resolved + situation.numbers.close_grace
    if believed > situation.now:
        return Move(why="resolved; waiting whether it stays so", next_at=believed)
    return Move(why="resolved", work=Work.CONFIRM_END)


def ended(situation: Situation, *, still_firing: bool | None, changed_outside: bool) -> Move:
    """After the source was asked about a resolved incident. `still_firing` None: it could not be asked."""
    resolved = situation.resolved_at or situation.now
    if still_firing:
        return Move(why="the source says it still fires", next_at=situation.now + situation.numbers.close_grace)
    if still_firing is None and situation.now < resolved + CONFIRM_PATIENCE:
        return Move(why="the source could not confirm the end", next_at=situation.now + situation.numbers.close_grace)
    plain = CloseReason.PEOPLE if changed_outside else CloseReason.SELF_RESOLVED
    return _closing(situation, plain, "all alerts resolved")


def _silent_at(situation: Situation) -> datetime | None:
    return None if situation.last_seen_at is None else situation.last_seen_at + SILENT_AFTER


def _silent(situation: Situation) -> Move | None:
    silent_at = _silent_at(situation)
    if silent_at is None or silent_at > situation.now:
        return None
    return _closing(situation, CloseReason.UNKNOWN, "nothing was heard of it for 24 hours")


def _closing(situation: Situation, reason: CloseReason, why: str) -> Move:
    open_proposal = situation.proposal is not None and situation.proposal.state in ("pending", "approved")
    events = (EventKind.PROPOSAL_WITHDRAWN, EventKind.CLOSED) if open_proposal else (EventKind.CLOSED,)
    return Move(
        why=why,
        to=Phase.CLOSED,
        close_reason=stronger(situation.strongest, reason),
        proposal="withdrawn" if open_proposal else None,
        events=events,
    )


# from the order on -----------------------------------------------------------------------------------------------------------


def _ordered(situation: Situation) -> Move:
    order = situation.order
    if order is None:
        return Move(why="order lost", to=Phase.DECIDED, again=Again.UNDELIVERED, next_at=situation.now)
    if order.state == "delivered":
        return Move(why="delivered", to=Phase.EXECUTING, next_at=situation.now)
    if situation.taken_by is not None:
        return Move(why=f"taken over by {situation.taken_by} before delivery", work=Work.EXPIRE_ORDER)
    if situation.over:
        return Move(why="resolved before an executor fetched it", work=Work.EXPIRE_ORDER)
    if order.expires_at <= situation.now or order.state != "minted":
        return Move(why="no executor fetched it in time", work=Work.EXPIRE_ORDER)
    return Move(why="waiting for an executor", next_at=order.expires_at)


def after_undelivered(situation: Situation) -> Move:
    """Where an order that nobody fetched leads. An approval counts on while its proposal is alive."""
    if situation.taken_by is not None:
        return _closing(situation, CloseReason.TAKEN_OVER, f"taken over by {situation.taken_by}")
    if situation.attempt >= MAX_UNDELIVERED and not _approved_and_alive(situation):
        return Move(
            why="no executor fetched the order, several times in a row",
            to=Phase.NOTIFIED,
            events=(EventKind.NOTIFIED,),
            counts="attempt",
            next_at=situation.now,
        )
    return Move(
        why="no executor fetched the order",
        to=Phase.DECIDED,
        again=Again.UNDELIVERED,
        counts="attempt",
        next_at=situation.now,
    )


def _executing(situation: Situation) -> Move:
    """Only an outcome ends a delivered order, so there is no time at which to look again; `incidents.paging` minds the silence."""
    return Move(why="carried out by the executor")


def came_back(situation: Situation, committed_at: datetime) -> bool:
    """Whether an alert family of the incident fired anew after the action was committed."""
    return any(alert.name in situation.judged_names and alert.starts_at > committed_at for alert in situation.alerts)


def _watching(situation: Situation) -> Move:
    """Watching writes nothing, so that a take-over does not end it: whether the action held is learnt either way."""
    order = situation.order
    committed_at = order.ended_at if order is not None and order.ended_at is not None else situation.now
    if came_back(situation, committed_at):
        return Move(
            why="fired again while being watched",
            to=Phase.NOTIFIED,
            close_reason=CloseReason.CAME_BACK,
            events=(EventKind.CAME_BACK, EventKind.NOTIFIED),
            next_at=situation.now,
        )
    if situation.new_families:
        return Move(why=_what_is_new(situation), work=Work.SPLIT)
    until = situation.watch_until or situation.now
    if until > situation.now:
        return Move(why="watching whether it holds", next_at=until)
    resolved = situation.resolved_at
    if resolved is not None and resolved + situation.numbers.close_grace > situation.now:
        return Move(why="watched; waiting whether it stays resolved", next_at=resolved + situation.numbers.close_grace)
    return Move(why="watched to the end", work=Work.CONFIRM_HOLD)


def watched(situation: Situation, *, still_firing: bool | None) -> Move:
    """After the source was asked at the end of the hold watch. `still_firing` None: it could not be asked."""
    if still_firing:
        return Move(
            why="still firing at the end of the watch",
            to=Phase.NOTIFIED,
            close_reason=CloseReason.CAME_BACK,
            events=(EventKind.CAME_BACK, EventKind.NOTIFIED),
            next_at=situation.now,
        )
    if still_firing is None:
        if situation.over or not situation.alerts:
            resolved = situation.resolved_at or situation.watch_until or situation.now
            if situation.now >= resolved + CONFIRM_PATIENCE:
                return _closing(situation, CloseReason.HELD, "held")
        silent = _silent(situation)
        if silent is not None:
            return silent
        return Move(why="the source could not confirm the end", next_at=situation.now + situation.numbers.close_grace)
    return _closing(situation, CloseReason.HELD, "held")


def _earliest(*instants: datetime | None) -> datetime:
    return min(instant for instant in instants if instant is not None)
