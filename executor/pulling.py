"""The loops of the process: hold the lease, claim orders, carry out transactions, hand over outcomes.

Each loop is level-triggered and may fail at any time without the others noticing. The bot away: open transactions go on, new
ones do not begin. The lease lost: transactions are dropped where they stand, and whoever holds it finishes them.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping

import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from catalog.ids import is_id, new_id
from catalog.orders import ClaimRequest, OpenTransaction, Order, Signed
from catalog.outcomes import End, Outcome
from catalog.signatures import sign
from catalog.targets import Target, TargetKind
from executor.accepting import NotAnOrder, accepted_order
from executor.core import resume
from executor.errors import JournalSuperseded, JournalUnavailable, NotActive
from executor.instants import instant_of
from executor.journal import Kept
from executor.lease import RENEW_EVERY
from executor.reporting import BotAway, BotClient, OutcomeNotTaken
from executor.running import TransactionRun, new_transaction
from executor.surroundings import Surroundings
from executor.transactions import Brake, Phase

OUTCOME_EVERY = 1.0
MAX_BACK_OFF = 30.0

log = structlog.get_logger()


class Executor:
    """The process for one cluster. `run` returns only when it is cancelled."""

    def __init__(
        self,
        around: Surroundings,
        bot: BotClient,
        bot_keys: Mapping[str, Ed25519PublicKey],
        *,
        limits_digest: str = "",
        claim_every: float = 2.0,
    ) -> None:
        self.around = around
        self._bot = bot
        self._keys = dict(bot_keys)
        self._limits_digest = limits_digest
        self._claim_every = claim_every
        self._runs: dict[str, TransactionRun] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._recovered = False
        self._trouble = ""

    async def run(self) -> None:
        """Every loop, until cancelled. Open transactions stay open in the journal."""
        try:
            async with asyncio.TaskGroup() as group:
                for loop in (self._hold_lease, self._claim, self._report):
                    group.create_task(loop())
        finally:
            await self._drop_transactions()

    # Lease

    async def _hold_lease(self) -> None:
        held = False
        while True:
            now_held = await self.around.lease.step() or self.around.lease.active
            if now_held != held:
                log.info("lease", active=now_held, trouble=self.around.lease.trouble or None)
            if held and not now_held:
                await self._drop_transactions()
            if now_held and not self._recovered:
                await self._recover()
            held = now_held
            if self.around.lease.trouble != self._trouble:
                self._trouble = self.around.lease.trouble
                if self._trouble:
                    log.warning("not active", why=self._trouble)
            await self.around.sleep(RENEW_EVERY)

    async def _drop_transactions(self) -> None:
        """Stop working on them. The journal has all that is needed to go on."""
        tasks, self._recovered = list(self._tasks.values()), False
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks.clear()
        self._runs.clear()

    async def _recover(self) -> None:
        """Find every open transaction and every order that nothing was done with, and go on."""
        try:
            kept = await self.around.journal.open_transactions()
            waiting = await self.around.journal.orders_without_transaction()
        except JournalUnavailable as error:
            log.warning("journal unavailable", detail=str(error))
            return
        self._recovered = True
        for one in kept:
            if one.order.id not in self._tasks:
                state = resume(one.transaction, self.around.timeline.now())
                log.info("recovering", order=one.order.id, phase=one.transaction.phase.value)
                self._start(Kept(one.order, state, one.version, one.template, one.baseline, one.snapshot))
        for order in waiting:
            if order.id not in self._tasks:
                await self._begin(order)

    # Orders

    async def _claim(self) -> None:
        away = ""
        while True:
            try:
                await self._claim_once()
                away = ""
            except (BotAway, JournalUnavailable) as error:
                if str(error) != away:
                    away = str(error)
                    log.warning("claim", detail=away)
            await self.around.sleep(self._claim_every)

    async def _claim_once(self) -> None:
        brake = await self.around.brakes.state()
        answer = await self._bot.claim(self._claim_request(brake))
        self.around.brakes.heard(answer)
        for signed in answer.orders:
            await self._deliver(signed)

    def _claim_request(self, brake: Brake) -> ClaimRequest:
        lease = self.around.lease
        # Not having heard from the bot is no halt to report to it: this very claim ends the silence.
        halted = bool(brake.reason) and not self.around.brakes.bot_silent
        room = self.around.bounds.open - len(self._tasks)
        ready = lease.active and self._recovered and not brake.reason
        return ClaimRequest(
            executor_id=self.around.executor_id,
            cluster_uid=self.around.cluster_uid,
            journal_id=self.around.journal.id,
            active=lease.active,
            halted=halted,
            halt_reason=brake.sentence if brake.reason else lease.trouble,
            draining=halted and bool(self._runs),
            parked=tuple(sorted(run.txn.id for run in self._runs.values() if run.txn.phase is Phase.PARKED)),
            open=tuple(
                OpenTransaction(
                    order_id=run.order.id, transaction_id=run.txn.id, phase=run.txn.phase.value, since=instant_of(run.txn.began)
                )
                for run in self._runs.values()
            ),
            limits_digest=self._limits_digest,
            room=max(0, room) if ready else 0,
        )

    async def _deliver(self, signed: Signed) -> None:
        """Journal an order before anything else; answer a second delivery with what is stored."""
        try:
            order = accepted_order(signed, self._keys)
        except NotAnOrder as error:
            log.warning("not an order", detail=str(error))
            await self._answer_no_order(signed, str(error))
            return
        receipt = await self.around.journal.receive(order, signed, self.around.clock.now())
        if receipt.new:
            await self._begin(order)
        elif receipt.outcome_id is not None:
            log.info("delivered again", order=order.id)
            await self.around.journal.repeat(receipt.outcome_id)

    async def _begin(self, order: Order) -> None:
        now = self.around.timeline.now()
        transaction = new_transaction(order, now, new_id(self.around.clock.now()))
        if await self.around.journal.begin(order, transaction):
            self._start(Kept(order, transaction, 1, {}, {}, {}))
        else:
            sentence = f"Another transaction is open on {order.target.title}."
            outcome = self._refusal(order.id, order.target, "target_busy", sentence)
            await self.around.journal.end(outcome, self._signed(outcome), None, 0)

    async def _answer_no_order(self, signed: Signed, why: str) -> None:
        """Tell the bot, which counts a delivered order as open until it hears of it. The id it claims is not believed."""
        order_id, target = _claimed(signed, self.around.cluster_uid)
        if order_id is None:
            return
        outcome = self._refusal(order_id, target, "signature", f"The executor does not accept it: {why}.")
        digest = hashlib.sha256(f"{signed.key_id}\n{signed.signature}\n{signed.body}".encode()).hexdigest()
        await self.around.journal.refuse_unaccepted(outcome, self._signed(outcome), digest)

    def _refusal(self, order_id: str, target: Target, reason: str, sentence: str) -> Outcome:
        now = self.around.clock.now()
        return Outcome(
            id=new_id(now),
            order_id=order_id,
            executor_id=self.around.executor_id,
            cluster_uid=self.around.cluster_uid,
            target=target,
            end=End.REFUSED,
            reason=reason,
            sentence=sentence,
            ended_at=now,
        )

    def _signed(self, outcome: Outcome) -> Signed:
        return sign(self.around.outcome_key, outcome.to_json().encode())

    def _start(self, kept: Kept) -> None:
        run = TransactionRun(self.around, kept)
        self._runs[kept.order.id] = run
        task = asyncio.create_task(self._finish(run), name=f"transaction {run.txn.id}")
        task.add_done_callback(self._noticed)
        self._tasks[kept.order.id] = task

    def _noticed(self, task: asyncio.Task[None]) -> None:
        """A fault of this program must not lose a transaction: say so, and find it again as after a crash."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("transaction failed", task=task.get_name(), exc_info=error)
            self._recovered = False

    async def _finish(self, run: TransactionRun) -> None:
        try:
            await run.run()
        except NotActive as error:
            run.log.warning("left open", why=str(error))
            self._recovered = False
        except JournalSuperseded as error:
            run.log.warning("superseded", why=str(error))
        finally:
            self._runs.pop(run.order.id, None)
            self._tasks.pop(run.order.id, None)

    # Outcomes

    async def _report(self) -> None:
        pause = OUTCOME_EVERY
        while True:
            try:
                await self._report_once()
                pause = OUTCOME_EVERY
            except (BotAway, JournalUnavailable):
                pause = min(MAX_BACK_OFF, pause * 2)
            await self.around.sleep(pause)

    async def _report_once(self) -> None:
        for outcome_id, signed in await self.around.journal.undelivered():
            refused = ""
            try:
                await self._bot.outcome(signed)
            except OutcomeNotTaken as error:
                refused = str(error)
                log.warning("outcome not taken", outcome=outcome_id, detail=refused)
            await self.around.journal.delivered(outcome_id, self.around.clock.now(), refused)


def _claimed(signed: Signed, cluster_uid: str) -> tuple[str | None, Target]:
    """The order id and target that unaccepted bytes claim, as far as they have the form of one."""
    nothing = Target(cluster_uid=cluster_uid, cluster="", kind=TargetKind.CLUSTER, name="")
    try:
        body = json.loads(signed.body)
        order_id = body["id"]
        target = Target.model_validate(body["target"])
    except (ValueError, KeyError, TypeError):
        return None, nothing
    return (order_id if isinstance(order_id, str) and is_id(order_id) else None), target
