"""Every path of the transaction core through a small world: lost and late answers, refusals, a crash, a foreign writer, halts.

The world holds one Deployment as JSON and applies the very patches that `effects` builds, whole or not at all. Each path may
have at most two mishaps; after it ends, every write that is still under way lands. Then the promises of the design must hold.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from catalog.actions import RemediationAction
from catalog.evidence import Oracle
from catalog.marks import RESTART_ANNOTATION, TXN_ANNOTATION
from catalog.orders import PlanStep, StepKind
from catalog.outcomes import CheckReading, CheckState, End
from executor.core import advance, next_effect, resume
from executor.effects import patch_for, stamped_template
from executor.transactions import (
    FORWARD,
    Answered,
    AskBrake,
    AwaitResume,
    Before,
    Brake,
    CheckLimits,
    Checkpointed,
    Finish,
    Lost,
    Observation,
    Observe,
    Passed,
    ReadBack,
    Resumed,
    RunPreflight,
    Seen,
    Send,
    TakeCheckpoint,
    Timing,
    Transaction,
    Write,
)

TEMPLATE = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "app", "image": "app:1"}]}}
MISHAPS = 2
LONGEST = 120


class TestFailed(Exception):
    """A `test` of a patch found another value."""

    __test__ = False


def applied(document: dict[str, Any], patch: list[dict[str, Any]]) -> dict[str, Any]:
    """The document after a JSON Patch; a test of null passes on an absent key whose parent exists, as on the real server."""
    for operation in patch:
        keys = [part.replace("~1", "/") for part in operation["path"].split("/")[1:]]
        document = _with(document, keys, operation)
    return document


def _with(node: dict[str, Any], keys: list[str], operation: dict[str, Any]) -> dict[str, Any]:
    """The node after one operation below it; what is not touched is shared."""
    first, *rest = keys
    if rest:
        if first not in node:
            raise TestFailed(operation["path"])
        return {**node, first: _with(node[first], rest, operation)}
    if operation["op"] == "test":
        if node.get(first) != operation["value"]:
            raise TestFailed(operation["path"])
        return node
    if operation["op"] == "replace" and first not in node:
        raise TestFailed(operation["path"])
    return {**node, first: operation["value"]}


@dataclass(frozen=True)
class World:
    """The cluster, the executor's state and what is still under way."""

    txn: Transaction
    object: dict[str, Any]
    now: float = 1000.0
    evicted: int = 0
    late: tuple[Write, ...] = ()
    mishaps: int = 0
    halted: bool = False
    hard: bool = False
    touched_by_others: bool = False
    changes: tuple[str, ...] = ()
    trace: tuple[str, ...] = ()
    cleared: bool = False
    unasked: bool = False
    unfenced: bool = False
    last_look: str = ""

    def key(self) -> tuple[Any, ...]:
        """What can still make a difference: everything but the way here, with times counted from now."""
        txn = self.txn
        moments = [txn.apply_until, txn.doubt_until, txn.send_after, txn.undo_until]
        if txn.window:
            moments += [txn.window.began, txn.window.until]
        left_out = {"apply_until", "doubt_until", "send_after", "undo_until", "touched", "began", "window", "writes"}
        return (
            txn.model_dump_json(exclude=left_out),
            txn.window and (txn.window.unknown, txn.window.opening_true, txn.window.opening_unknown),
            tuple((one.n, one.kind, one.result) for one in txn.writes),
            tuple(round(at - self.now, 1) for at in moments),
            json.dumps(self.object, sort_keys=True),
            str((self.evicted, self.late, self.mishaps, self.halted, self.hard, self.touched_by_others, self.changes)),
            (self.cleared, self.unasked, self.unfenced, self.last_look),
        )

    def step(self, name: str, **changes: Any) -> World:
        return replace(self, trace=(*self.trace, name), **changes)

    def fed(self, observation: Observation, name: str, after: float = 1.0, **changes: Any) -> World:
        now = self.now + after
        txn = advance(self.txn, observation, now)
        return self.step(name, txn=txn.model_copy(update={"touched": now}), now=now, **changes)

    def land(self, write: Write) -> World | None:
        """The server takes a write, or None when a test of it fails."""
        if write.kind == "evict":
            return replace(self, evicted=1, changes=(*self.changes, "evict")) if not self.evicted else None
        patch = patch_for(write, transaction_id="T", uid="U", template=TEMPLATE)
        try:
            after = applied(self.object, patch)
        except TestFailed:
            return None
        changed = after["spec"] != self.object["spec"]
        return replace(self, object=after, changes=(*self.changes, write.kind) if changed else self.changes)

    def mark(self) -> str | None:
        value: str | None = self.object["metadata"]["annotations"].get(TXN_ANNOTATION)
        return value

    def seen(self, **fields: Any) -> Seen:
        template = self.object["spec"]["template"]
        ours = template == stamped_template(TEMPLATE, "T")
        return Seen.model_validate(
            {
                "uid": "U",
                "mark": self.mark(),
                "template": "before" if template == TEMPLATE else "ours" if ours else "other",
                "replicas": self.object["spec"]["replicas"],
                "pod_gone": bool(self.evicted),
                "readings": (reading(CheckState.PASSING),),
                "opening": CheckState.PASSING,
                "severity": 0.0,
            }
            | fields
        )


def reading(after: CheckState) -> CheckReading:
    return CheckReading(name="errors", oracle=Oracle.SERVICE_LEVEL, before=CheckState.PASSING, after=after)


def begin(*steps: PlanStep) -> World:
    scale = steps[-1].kind is StepKind.SCALE
    action = RemediationAction.SCALE if scale else RemediationAction.RESTART_WORKLOAD
    txn = Transaction(id="T", order_id="O", action=action, steps=steps)
    spec = {"replicas": 2, "template": copy.deepcopy(TEMPLATE)}
    return World(txn=txn, object={"metadata": {"uid": "U", "annotations": {"a": "b"}}, "spec": spec})


def moves(world: World) -> Iterator[World]:
    """Everything that can happen next."""
    effect = next_effect(world.txn)
    if isinstance(effect, Finish):
        return
    if world.mishaps < MISHAPS:
        yield from mishaps(world)
    match effect:
        case CheckLimits() | RunPreflight():
            yield world.fed(Passed(), "passed")
        case TakeCheckpoint():
            before = Before(uid="U", replicas=2, available=2, severity=1.0, mark=world.mark(), readings=())
            if world.object["spec"] != {"replicas": 2, "template": TEMPLATE}:
                return  # preflight would have refused: the order was for another object
            checkpointed = Checkpointed(before=before, timing=Timing(), mark=world.mark(), steps=world.txn.steps)
            yield world.fed(checkpointed, "checkpointed")
        case AskBrake():
            yield world.fed(Brake(reason="halted" if world.halted else "", hard=world.hard), "brake", cleared=not world.halted)
        case Send(write=write):
            yield from sent(world, write)
        case ReadBack():
            yield world.fed(world.seen(), "read back", after=max(1.0, effect.not_before - world.now))
        case Observe():
            yield from observed(world)
        case AwaitResume():
            for to in ("undo", "settle"):
                yield world.fed(Resumed(to=to), f"resumed to {to}")  # type: ignore[arg-type]


def mishaps(world: World) -> Iterator[World]:
    once = {"mishaps": world.mishaps + 1}
    effect = next_effect(world.txn)
    if not isinstance(effect, CheckLimits | RunPreflight):
        away = world.txn.model_copy()
        yield world.step("crash", txn=resume(away, world.now + 5), now=world.now + 5, **once)
        yield world.step("long crash", txn=resume(away, world.now + 500), now=world.now + 500, **once)
    if not world.halted and not isinstance(effect, CheckLimits | RunPreflight | TakeCheckpoint):
        yield world.step("halt", halted=True, **once)
        yield world.step("hard halt", halted=True, hard=True, **once)
    if not world.touched_by_others and not isinstance(effect, CheckLimits | RunPreflight):
        for name in ("replicas", "template", "mark"):
            found = copy.deepcopy(world.object)
            match name:
                case "replicas":
                    found["spec"]["replicas"] = 7
                case "template":
                    found["spec"]["template"]["spec"]["containers"][0]["image"] = "app:2"
                case _:
                    found["metadata"]["annotations"].pop(TXN_ANNOTATION, None)
            yield world.step(f"foreign {name}", object=found, touched_by_others=True, unfenced=name == "mark", **once)


def sent(world: World, write: Write) -> Iterator[World]:
    if write.kind == "undo" and world.hard and not world.txn.unparked:
        yield world.fed(Brake(reason="halted", hard=True), "hard brake at undo")
        return
    if write.kind in FORWARD:
        world = replace(world, cleared=False, unasked=world.unasked or not world.cleared)
    landed = world.land(write)
    if landed is None:
        eviction = write.kind == "evict"
        answer = Answered(done=False, maybe_fence=not eviction, reason="changed" if eviction else "invalid")
        yield world.fed(answer, f"{write.kind} {write.n} test failed")
    else:
        yield landed.fed(Answered(done=True), f"{write.kind} {write.n} done")
    if world.mishaps >= MISHAPS:
        return
    once = {"mishaps": world.mishaps + 1}
    if landed is not None:
        yield landed.fed(Lost(), f"{write.kind} {write.n} done, answer lost", **once)
    yield world.fed(Lost(), f"{write.kind} {write.n} lost", **once)
    yield world.fed(Lost(), f"{write.kind} {write.n} late", late=(*world.late, write), **once)
    yield world.fed(Answered(done=False, reason="forbidden"), f"{write.kind} {write.n} forbidden", **once)
    yield world.fed(Answered(done=False, retry=True, reason="throttled"), f"{write.kind} {write.n} throttled", **once)


def observed(world: World) -> Iterator[World]:
    if world.late:
        first, *rest = world.late
        yield (world.land(first) or world).step(f"late {first.kind} {first.n} arrives", late=tuple(rest))
    if world.hard and not world.txn.unparked:
        yield world.fed(Brake(reason="halted", hard=True), "hard brake")
        return
    good = {"complete": True, "replaced": bool(world.evicted), "restored": True}
    match world.txn.phase.value:
        case "applying":
            yield world.fed(world.seen(**good), "complete")
            yield world.fed(world.seen(failure="failed_create", old_pods=1), "fails with old pods")
            yield world.fed(world.seen(failure="restarting", old_pods=0), "fails without old pods")
        case "settling":
            looks = {
                "settled": (world.seen(**good), 61.0),
                "regressed": (world.seen(readings=(reading(CheckState.FAILING),)), 1.0),
                "unknown": (world.seen(severity=None), 61.0),
                "no improvement": (world.seen(opening=CheckState.FAILING), 61.0),
            }
            for name, (look, after) in looks.items():
                yield world.fed(look, name, after=after, last_look=name)
        case _:
            yield world.fed(world.seen(**good), "restored")
            yield world.fed(world.seen(), "not restored", after=600.0)


def check(world: World) -> None:
    """The promises, on a path that has ended."""
    txn, told = world.txn, " → ".join(world.trace)
    spec = world.object["spec"]
    forward = [change for change in world.changes if change in ("stamp", "scale")]
    # Who takes our mark off takes the fence away: then a lost write from before the mark can come in again.
    unfenced = world.unfenced
    assert len(forward) <= 1 or unfenced, told
    assert world.changes.count("undo") <= 1, told
    assert world.changes.count("evict") <= 1, told
    assert not world.unasked, f"{told}: a forward write without asking the brake"
    match txn.end:
        case End.REFUSED:
            assert not world.changes, told
        case End.ROLLED_BACK:
            assert world.touched_by_others or spec == {"replicas": 2, "template": TEMPLATE}, told
        case End.COMMITTED:
            assert world.last_look == "settled", told
    if world.touched_by_others:
        kept = spec["replicas"] == 7 or spec["template"]["spec"]["containers"][0]["image"] == "app:2"
        assert kept or world.unfenced, told
    # What was lost may land only where the outcome says so.
    for write in world.late:
        after = world.land(write)
        if after is not None and after.changes != world.changes:
            said = bool(txn.not_undone) or txn.reason == "in_doubt" or "evict" in after.changes or unfenced
            assert said, f"{told}: late {write.kind} {write.n} landed after {txn.end}"
    if txn.end is not None and not world.touched_by_others and txn.end is not End.UNVERIFIED and not txn.not_undone:
        assert (world.mark() or "").startswith(("closed/", "")), told
    annotation = spec["template"]["metadata"].get("annotations", {}).get(RESTART_ANNOTATION)
    assert annotation in (None, "T"), told


PLANS = {
    "approved restart": (PlanStep(kind=StepKind.STAMP),),
    "automatic restart": (
        PlanStep(kind=StepKind.OPEN),
        PlanStep(kind=StepKind.EVICT, pod="web-1-abcde", pod_uid="P"),
        PlanStep(kind=StepKind.STAMP),
    ),
    "scale": (PlanStep(kind=StepKind.SCALE, from_replicas=2, to_replicas=4),),
    "restart pod": (PlanStep(kind=StepKind.OPEN), PlanStep(kind=StepKind.EVICT, pod="web-1-abcde", pod_uid="P")),
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("plan", PLANS)
def test_every_path_ends_and_keeps_the_promises(plan: str) -> None:
    pending, ends, paths = [begin(*PLANS[plan])], set(), 0
    known: set[tuple[Any, ...]] = set()
    while pending:
        world = pending.pop()
        key = world.key()
        if key in known:
            continue
        known.add(key)
        assert len(world.trace) < LONGEST, " → ".join(world.trace)
        following = list(moves(world))
        if isinstance(next_effect(world.txn), Finish):
            paths += 1
            ends.add(world.txn.end)
            check(world)
        pending += following
    assert {End.COMMITTED, End.REFUSED, End.CONFLICT, End.INEFFECTIVE, End.UNVERIFIED} <= ends
    assert len(known) > 500
    assert paths > 100
