"""What each command does: one function per command, the same for chat, console and terminal. Answers are typed and in sentences.

A command carries an idempotency key where a surface may deliver it twice: the second delivery gets the first one's answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from sqlalchemy.exc import IntegrityError
from sqlmodel.ext.asyncio.session import AsyncSession

from catalog.cases import Rung
from catalog.decisions import Decision
from catalog.episodes import Phase, Question
from incidents import grammar as say
from incidents import metrics, switches
from incidents.answers import Answer, done, refused
from incidents.blocks import blocked_targets, unblock
from incidents.cards import stored
from incidents.context import Context
from incidents.database import StoreUnavailable
from incidents.desk import Desk, open_proposal
from incidents.health import Health, health_of
from incidents.labels import LabelRefused, LabelRequest, record_label
from incidents.levels import levels
from incidents.reading import IncidentLine, card_from_row, incident_row, list_incidents
from incidents.standings import StandingRefused, StandingRequest, demote, promote
from incidents.tables import CommandRow, IncidentRow
from ladder.roles import Identity

LISTED = 20


class Commands:
    """Runs commands for people who were proven to speak. `desk` answers what concerns proposals."""

    def __init__(self, context: Context, desk: Desk, *, wake: Callable[[], None] = lambda: None) -> None:
        self._context = context
        self._desk = desk
        self._wake = wake

    async def execute(self, command: say.Command, *, person: str, via: str, line: str = "", key: str | None = None) -> Answer:
        """Do it and say what was done, or which rule refused it.

        With a `key`, the same person's same key again gets the stored answer and does nothing.
        """
        identity = Identity(person=person)
        try:
            if key is None:
                return await self._run(command, identity, via)
            known = await self._known(key, person)
            if known is not None:
                return known
            answer = await self._run(command, identity, via)
            return await self._keep(key, person, line, answer)
        except StoreUnavailable as error:
            text = f"The database does not answer, nothing was done: {error}"
            return Answer(ok=False, code="unavailable", text=text, rule="store")

    async def _known(self, key: str, person: str) -> Answer | None:
        async with self._context.database.reading() as session:
            row = await session.get(CommandRow, key)
        if row is None:
            return None
        if row.person != person:
            return refused("This key was used by somebody else.", rule="idempotency_key", unblock="a fresh key")
        return Answer.model_validate_json(row.answer)

    async def _keep(self, key: str, person: str, line: str, answer: Answer) -> Answer:
        if answer.code == "unavailable":
            return answer
        row = CommandRow(key=key, person=person, line=line, answer=answer.to_json(), at=self._context.clock.now())
        try:
            async with self._context.database.transaction() as session:
                session.add(row)
        except IntegrityError:
            return await self._known(key, person) or answer
        return answer

    async def _run(self, command: say.Command, identity: Identity, via: str) -> Answer:
        match command:
            case say.Help():
                return done(say.help_text(command.topic))
            case say.Status():
                return done(await self._status())
            case say.Level():
                return await self._level(command)
            case say.ShowIncident():
                return await self._show(command.incident, "story")
            case say.Why():
                return await self._show(command.incident, "why")
            case say.Approve():
                return await self._approve(command, identity, via)
            case say.Reject():
                return await self._reject(command, identity, via)
            case say.Take():
                return await self._take(command, identity, via)
            case say.LabelIncident():
                return await self._label(command, identity, via)
            case say.Promote():
                return await self._promote(command, identity)
            case say.Demote():
                return await self._demote(command, identity)
            case say.Halt():
                return await switches.halt(self._context, identity, command.why, hard=command.hard)
            case say.Resume():
                return self._woken(await switches.resume(self._context, identity, command.why))
            case say.Release():
                return self._woken(await switches.release(self._context, identity, command.why))
            case say.Unblock():
                return await self._unblock(command, identity)
            case _:
                assert_never(command)

    def _woken(self, answer: Answer) -> Answer:
        if answer.ok:
            self._wake()
        return answer

    # what is shown -----------------------------------------------------------------------------------------------------------

    async def _status(self) -> str:
        health = await health_of(self._context)
        lines = await list_incidents(self._context, closed=False, limit=LISTED)
        rungs = [f"  {line.scope:<20} {line.action.value:<18} {line.in_force}" for line in await levels(self._context, None)]
        parts = [_health_text(health), _incidents_text(lines, health.open)]
        if rungs:
            parts.append("Rungs in force\n" + "\n".join(rungs))
        return "\n\n".join(parts)

    async def _level(self, command: say.Level) -> Answer:
        lines = await levels(self._context, command.scope)
        if not lines:
            names = ", ".join(scope.name for scope in self._context.policies.current.scopes) or "none"
            if command.scope is not None and command.scope not in names.split(", "):
                return Answer(ok=False, code="not_found", text=f"No scope is named {command.scope}. Scopes: {names}.", rule="scope")
            return done("No scope names an action: everything is notify at most. Add a ceiling in autonomy.yaml.")
        told = [
            f"{line.scope} {line.action.value}: {line.in_force} in force (ceiling {line.ceiling}, earned {line.standing}"
            + (f": {line.why}" if line.why else "")
            + f"); would have acted {line.would_auto} times\n  missing {line.missing}"
            for line in lines
        ]
        return done("\n".join(told))

    async def _show(self, name: say.IncidentId, view: str) -> Answer:
        async with self._context.database.reading() as session:
            row = await incident_row(session, name)
            if row is None:
                return _no_incident(name)
            card = await card_from_row(self._context, session, row)
        return Answer(
            ok=True, code="done", text=card.headline, incident_id=row.id, card=card, view="story" if view == "story" else "why"
        )

    # proposals ---------------------------------------------------------------------------------------------------------------

    async def _approve(self, command: say.Approve, identity: Identity, via: str) -> Answer:
        found = await self._proposal(command.incident, command.proposal_id)
        return found if isinstance(found, Answer) else await self._desk.approve(found, identity, via)

    async def _reject(self, command: say.Reject, identity: Identity, via: str) -> Answer:
        found = await self._proposal(command.incident, command.proposal_id)
        return found if isinstance(found, Answer) else await self._desk.reject(found, identity, via, command.why)

    async def _proposal(self, name: say.IncidentId, proposal_id: str | None) -> str | Answer:
        """The proposal that is meant: the button's own, else the incident's present or latest one."""
        if proposal_id is not None:
            return proposal_id
        async with self._context.database.reading() as session:
            row = await incident_row(session, name)
            if row is None:
                return _no_incident(name)
            proposal = await open_proposal(session, row.id)
            if proposal is not None:
                return proposal.id
            if row.proposal_id is not None:
                return row.proposal_id
        text = f"Incident {name} has no proposal: it is {row.phase}."
        return refused(text, rule="no_proposal", unblock=f"`why {name}` says which gate decided", incident_id=row.id)

    async def _take(self, command: say.Take, identity: Identity, via: str) -> Answer:
        async with self._context.database.reading() as session:
            row = await incident_row(session, command.incident)
        return _no_incident(command.incident) if row is None else await self._desk.take(row.id, identity, via)

    # labels and standing -----------------------------------------------------------------------------------------------------

    async def _label(self, command: say.LabelIncident, identity: Identity, via: str) -> Answer:
        policy, now = self._context.policies.current, self._context.clock.now()
        told: list[str] = []
        try:
            async with self._context.database.transaction() as session:
                row = await incident_row(session, command.incident)
                if row is None:
                    return _no_incident(command.incident)
                for question in await _asked(session, row, command.question):
                    request = LabelRequest(
                        incident_id=row.id,
                        question=question,
                        right=command.right,
                        identity=identity,
                        note=self._context.redactor.text(command.note),
                        via=via,
                    )
                    recorded = await record_label(session, policy, request, now=now)
                    metrics.LABELS.labels(question.value, "human").inc()
                    told.append(recorded.sentence)
        except LabelRefused as error:
            return refused(str(error), rule=error.rule, unblock=error.unblock)
        return done(" ".join(told), incident_id=row.id)

    async def _promote(self, command: say.Promote, identity: Identity) -> Answer:
        request = StandingRequest(scope=command.scope, action=command.action, rung=command.rung, why=command.why, identity=identity)
        return await self._standing(request, raising=True)

    async def _demote(self, command: say.Demote, identity: Identity) -> Answer:
        request = StandingRequest(scope=command.scope, action=command.action, rung=command.rung, why=command.why, identity=identity)
        return await self._standing(request, raising=False)

    async def _standing(self, request: StandingRequest, *, raising: bool) -> Answer:
        policy, now = self._context.policies.current, self._context.clock.now()
        if request.rung is not None and not Rung.R3 <= request.rung <= Rung.R5:
            return refused(f"{request.rung} is not a standing.", rule="rung", unblock="R3, R4 or R5")
        try:
            async with self._context.database.transaction() as session:
                change = promote if raising else demote
                changed = await change(session, policy, request, now=now)
        except StandingRefused as error:
            return refused(str(error), rule=error.rule, unblock=error.unblock)
        return done(changed.sentence)

    # blocks ------------------------------------------------------------------------------------------------------------------

    async def _unblock(self, command: say.Unblock, identity: Identity) -> Answer:
        policy, now, named = self._context.policies.current, self._context.clock.now(), command.target
        async with self._context.database.reading() as session:
            targets = await blocked_targets(session, policy, named.namespace, named.kind.value, named.name, now)
        if not targets:
            return refused(f"{named} is not blocked.", rule="not_blocked")
        answers = [await unblock(self._context, identity, target, command.why) for target in targets]
        first_refusal = next((answer for answer in answers if not answer.ok), None)
        return self._woken(first_refusal or answers[0])


async def _asked(session: AsyncSession, row: IncidentRow, question: Question | None) -> list[Question]:
    """The questions a label without one answers: the diagnosis, and the action when one was recommended and is over."""
    if question is not None:
        return [question]
    decision = await stored(session, row.decision_id, Decision)
    over = row.phase in (Phase.CLOSED.value, Phase.NOTIFIED.value, Phase.RECORDED.value)
    if decision is None or decision.action.action.value == "no_action" or not over:
        return [Question.DIAGNOSIS]
    return [Question.DIAGNOSIS, Question.ACTION]


def _no_incident(name: say.IncidentId) -> Answer:
    return Answer(ok=False, code="not_found", text=f"There is no incident {name}.", rule="incident")


def _health_text(health: Health) -> str:
    lines = [health.halt_text]
    lines.extend(executor.text for executor in health.executors)
    if not health.executors:
        lines.append("no executor has ever reported: nothing can be carried out")
    if health.storm:
        lines.append(f"storm latched: {health.storm}")
    lines.append(f"backlog {health.backlog} alerts, {health.unresolved} unresolved, {health.messages_due} messages to send")
    lines.extend(health.troubles)
    return "\n".join(lines)


def _incidents_text(lines: list[IncidentLine], total: int) -> str:
    if not lines:
        return "Nothing is open."
    shown = "\n".join(f"  #{line.number} {line.headline}" for line in lines)
    more = f"\n  … {total - len(lines)} more" if total > len(lines) else ""
    return f"Open incidents ({total})\n{shown}{more}"
