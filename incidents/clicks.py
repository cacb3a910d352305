"""What is said to a click, and why: the pure half of the approval desk. Each answers None where nothing stands against it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from catalog.actions import Action, Scale, describe
from catalog.cases import Case
from catalog.episodes import Phase
from catalog.ids import is_id
from catalog.targets import Target, TargetFacts
from incidents.answers import Answer, refused
from incidents.phases.proposing import fingerprint_of
from incidents.phases.situations import merged_scope
from incidents.tables import IncidentRow, ProposalRow
from ladder.policy import Policy
from ladder.roles import Holding, Identity, holds, who


@dataclass(frozen=True)
class Asked:
    """What was found of a proposal before anything was decided."""

    proposal: ProposalRow
    incident: IncidentRow
    action: Action
    target: Target


def is_smaller(action: Action, before: Action) -> bool:
    """Whether an edit makes a scale smaller in the same direction: only then does the editor consent to less than was asked."""
    if not isinstance(action, Scale) or not isinstance(before, Scale) or action.upward != before.upward:
        return False
    return abs(action.to_replicas - action.from_replicas) < abs(before.to_replicas - before.from_replicas)


def edited_case(case: Case, facts: TargetFacts, action: Action, identity: Identity, override: str | None) -> Case:
    """The stored case with another action, proposed by a person, on the target as it is now."""
    switches = case.switches.model_copy(update={"override_reason": override})
    return case.model_copy(update={"facts": facts, "action": action, "requested_by": identity.person, "switches": switches})


def not_an_edit(asked: Asked, action: Action) -> Answer | None:
    """Why the wanted action is no change of this proposal."""
    if action.action is not asked.action.action:
        told = f"A change stays within the action: this proposal is to {describe(asked.action)}."
        return refused(told, rule="another_action", incident_id=asked.incident.id)
    if action == asked.action:
        return refused("Nothing was changed.", rule="unchanged", unblock="approve it as it is", incident_id=asked.incident.id)
    return None


def self_approval(asked: Asked, identity: Identity) -> Answer | None:
    """Whoever proposes does not approve. Needs no look-up, so it is said before anything is looked up."""
    if asked.proposal.requested_by != identity.person:
        return None
    return refused(
        "You proposed this yourself, and whoever proposes does not approve. Nothing was done.",
        rule="self_approval",
        unblock="another approver",
        incident_id=asked.incident.id,
    )


def settled(asked: Asked, now: datetime) -> Answer | None:
    """Why it is too late for this proposal; None while it waits."""
    proposal, incident = asked.proposal, asked.incident
    if proposal.state == "pending" and now < proposal.expires_at:
        if incident.phase == Phase.PROPOSED.value and incident.proposal_id == proposal.id and incident.taken_by is None:
            return None
        told = f"taken over by {incident.taken_by}" if incident.taken_by else f"in phase {incident.phase} now"
        return refused(f"Nothing was done: the incident is {told}.", rule="incident_moved_on", incident_id=incident.id)
    state = "expired" if proposal.state == "pending" else proposal.state
    return refused(f"Nothing was done: {_fate(proposal, state)}.", rule=_RULES.get(state, state), incident_id=incident.id)


_RULES = {"approved": "already_approved", "carried_out": "already_approved", "rejected": "already_rejected"}


def _fate(proposal: ProposalRow, state: str) -> str:
    at = f" at {proposal.decided_at:%H:%M:%S} UTC" if proposal.decided_at else ""
    why = f" ({proposal.state_reason})" if proposal.state_reason else ""
    match state:
        case "approved" | "carried_out":
            return f"already approved by {proposal.decided_by}{at}"
        case "rejected":
            return f"already rejected by {proposal.decided_by}{at}{why}"
        case "expired":
            return f"the proposal expired at {proposal.expires_at:%H:%M:%S} UTC; nobody had approved it by then"
        case "withdrawn":
            return f"the proposal was withdrawn{at}{why}"
        case "superseded":
            return f"the proposal was replaced by a newer one{at}{why}"
        case "withheld":
            return f"it was approved by {proposal.decided_by} and then withheld{why}"
        case _:
            return f"the proposal is {state}{at}{why}"


def over(row: IncidentRow, resolved_at: datetime | None) -> Answer | None:
    """Why nothing is to be done for an incident whose alerts have all resolved."""
    if resolved_at is None:
        return None
    told = f"Nothing was done: every alert of the incident resolved by {resolved_at:%H:%M:%S} UTC."
    return refused(told, rule="resolved", incident_id=row.id)


def what_changed(asked: Asked, facts: TargetFacts) -> str | None:
    """How the live target differs from the one on the card; None when it is the same."""
    title = facts.target.title
    if not facts.exists:
        return f"{title} is gone"
    if facts.target.uid != asked.proposal.target_uid:
        return f"{title} was deleted and made anew"
    found = fingerprint_of(asked.action, facts)
    if found == asked.proposal.fingerprint:
        return None
    if isinstance(asked.action, Scale):
        return f"{title} was scaled from {asked.proposal.fingerprint} to {found}"
    return f"the pod template of {title} was changed"


def may_not_take(policy: Policy, row: IncidentRow, identity: Identity) -> Answer | None:
    """Why the person may not take the incident over: anybody with a role there may, and where no scope names it, anybody known."""
    if row.phase == Phase.CLOSED.value:
        return refused(f"Incident #{row.number} is closed already ({row.close_reason}).", rule="closed", incident_id=row.id)
    if row.taken_by is not None:
        return refused(f"{row.taken_by} has incident #{row.number} already.", rule="already_taken", incident_id=row.id)
    scope = merged_scope(policy, row)
    if scope is None:
        named = identity.person in policy.people
        held, entries = (Holding.YES if named else Holding.NO), tuple(f"person:{name}" for name in policy.people)
    else:
        entries = tuple(dict.fromkeys((*scope.approver, *scope.labeller, *scope.owner)))
        held = holds(entries, identity)
    if held is Holding.YES:
        return None
    code, rule = ("unavailable", "could_not_check") if held is Holding.UNKNOWN else ("not_allowed", "no_role")
    told = "could not be checked" if held is Holding.UNKNOWN else "does not hold"
    text = f"A role of {identity.person} here {told}, so nothing was done; ask {who(entries)}."
    return Answer(ok=False, code=code, text=text, rule=rule, incident_id=row.id)


def unknown_id(found: str) -> Answer:
    """The answer to a click on something that is not here: never silence."""
    shown = found if is_id(found) else "that"
    return Answer(
        ok=False,
        code="not_found",
        text=f"{shown} is expired or unknown here; nothing was done.",
        rule="unknown",
        unblock="/sre status",
    )
