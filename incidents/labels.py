"""Recording a label: one function for REST and terminal, so that no surface can count what another would refuse.

Every label is kept; the latest of a person holds. A person needs the role labeller of the incident's scope at the moment of
saying. Where people differ, an owner's next label settles it. Whoever approved an action may say so, but is not counted for
"action right?".
"""

from __future__ import annotations

from datetime import datetime

from sqlmodel.ext.asyncio.session import AsyncSession

from catalog.documents import Document
from catalog.episodes import LabelOrigin, Phase, Question
from catalog.events import EventKind
from catalog.ids import new_id
from catalog.targets import Target, TargetKind
from incidents.episodes import approvers_of, resettle
from incidents.recording import append_event
from incidents.settling import answer, counting, disagreement, labels_by_incident
from incidents.tables import EpisodeRow, IncidentRow, LabelRow
from ladder.policy import Policy
from ladder.roles import Holding, Identity, holds, refusal
from ladder.scopes import MergedScope

MAX_NOTE = 2000
_UNDIAGNOSED = frozenset({Phase.OPEN})
_UNFINISHED = frozenset(
    {Phase.OPEN, Phase.DIAGNOSED, Phase.DECIDED, Phase.PROPOSED, Phase.ORDERED, Phase.EXECUTING, Phase.WATCHING}
)


class LabelRefused(Exception):
    """The label was not recorded. The text says which rule refused it, `unblock` what would change that."""

    def __init__(self, sentence: str, *, rule: str, unblock: str = "") -> None:
        super().__init__(sentence)
        self.rule = rule
        self.unblock = unblock


class LabelRequest(Document):
    """One person's answer to one question."""

    incident_id: str
    question: Question
    right: bool
    identity: Identity
    note: str = ""
    via: str = ""


class LabelRecorded(Document):
    """What was kept, and what it came to."""

    label_id: str
    settled: bool | None
    counts: bool
    disagreement: bool
    sentence: str


async def record_label(session: AsyncSession, policy: Policy, request: LabelRequest, *, now: datetime) -> LabelRecorded:
    """Keep the label, append its event, settle the episode anew and evaluate the looks that makes due.

    Raises:
        LabelRefused: unknown incident, not over yet, no role, role could not be checked, note too long.
    """
    incident = await session.get(IncidentRow, request.incident_id, with_for_update=True, populate_existing=True)
    if incident is None:
        raise LabelRefused(f"There is no incident {request.incident_id}.", rule="incident", unblock="/sre status lists them")
    _require_time(incident, request)
    approvers = await approvers_of(session, incident.id)
    before = (await labels_by_incident(session, [incident.id])).get(incident.id, [])
    differed = disagreement(counting(before, approvers, request.question))
    settles = _authorised(policy.scope_for(_target(incident)), request, differed=differed)
    label = _row(request, settles=settles, now=now)
    session.add(label)
    payload = {"question": label.question, "right": label.right, "settles": settles, "note": label.note, "via": label.via}
    append_event(session, incident, EventKind.LABELLED, at=now, now=now, actor=label.person, payload=payload)
    await session.flush()
    episode = await session.get(EpisodeRow, incident.id, populate_existing=True)
    if episode is not None and request.question is Question.ACTION:
        await resettle(session, policy, episode, now)
    return _recorded(label, counting([*before, label], approvers, request.question), episode)


async def keep_uncounted(session: AsyncSession, request: LabelRequest, origin: LabelOrigin, *, now: datetime) -> LabelRow:
    """Keep a machine's, imported or simulated label. It is shown and never counted, so it needs no role and settles nothing.

    Raises:
        LabelRefused: `origin` is human (those go through `record_label`), or there is no such incident.
    """
    if origin is LabelOrigin.HUMAN:
        raise LabelRefused("A person's label needs the person's role.", rule="origin")
    if await session.get(IncidentRow, request.incident_id) is None:
        raise LabelRefused(f"There is no incident {request.incident_id}.", rule="incident")
    label = _row(request, settles=False, now=now)
    label.origin = origin.value
    session.add(label)
    return label


def _require_time(incident: IncidentRow, request: LabelRequest) -> None:
    if len(request.note) > MAX_NOTE:
        raise LabelRefused(
            f"The note has {len(request.note)} characters; at most {MAX_NOTE}.", rule="note", unblock="a shorter note"
        )
    early = _UNFINISHED if request.question is Question.ACTION else _UNDIAGNOSED
    if Phase(incident.phase) in early:
        waiting = "its action is not over yet" if request.question is Question.ACTION else "it is not diagnosed yet"
        raise LabelRefused(
            f"Incident #{incident.number} is {incident.phase}: {waiting}.", rule="phase", unblock="label it when its card asks"
        )


def _authorised(scope: MergedScope | None, request: LabelRequest, *, differed: bool) -> bool:
    """Whether the label settles a disagreement. Raises when the person may not label at all."""
    owner = scope is not None and holds(scope.members("owner"), request.identity) is Holding.YES
    if differed and owner:
        return True
    refused = refusal(scope, "labeller", request.identity)
    if refused is not None:
        raise LabelRefused(refused, rule="roles.labeller", unblock="the role labeller in autonomy.yaml")
    return False


def _target(incident: IncidentRow) -> Target:
    return Target(
        cluster_uid=incident.cluster_uid,
        cluster=incident.cluster,
        namespace=incident.namespace,
        kind=TargetKind(incident.kind),
        name=incident.name,
        uid=incident.uid,
    )


def _row(request: LabelRequest, *, settles: bool, now: datetime) -> LabelRow:
    return LabelRow(
        id=new_id(now),
        incident_id=request.incident_id,
        question=request.question.value,
        right=request.right,
        person=request.identity.person,
        at=now,
        note=request.note,
        origin=LabelOrigin.HUMAN.value,
        settles=settles,
        via=request.via,
    )


def _recorded(label: LabelRow, counted: list[LabelRow], episode: EpisodeRow | None) -> LabelRecorded:
    counts = any(one.id == label.id for one in counted)
    differ = disagreement(counted)
    settled = episode.right if episode is not None and label.question == Question.ACTION.value else answer(counted)
    said = f"Recorded: {label.question} {'right' if label.right else 'wrong'}."
    if not counts:
        said += " You approved this action, so your label is shown and not counted."
    elif differ:
        said += " People differ; an owner's label settles it."
    elif settled is not None and settled is not label.right:
        said += " It counts as wrong: its end says so."
    return LabelRecorded(label_id=label.id, settled=settled, counts=counts, disagreement=differ, sentence=said)
