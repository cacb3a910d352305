"""Orders: made only from what is stored, and only while nothing that was read at the decision has changed."""

from __future__ import annotations

import ast
from datetime import timedelta
from pathlib import Path

import pytest
from phases_setting import ANA, BO, CY, POLICY, UID, WEB, Story, scale_up
from sqlalchemy.exc import IntegrityError
from sqlmodel import select

from catalog.actions import Scale
from catalog.cases import Rung
from catalog.decisions import Decision, Route
from catalog.diagnoses import Family
from catalog.documents import canonical, digest
from catalog.ids import new_id
from catalog.orders import Order, Signed
from catalog.outcomes import End
from catalog.signatures import key_id, verified_body
from incidents.blocks import block_after
from incidents.leading import Candidate, Term
from incidents.mint import Mint, Withheld
from incidents.phases.situations import locked_incident
from incidents.switches import STORM, freeze, halt
from incidents.tables import ApprovalRow, DocumentRow, IncidentRow, OrderRow, SwitchRow
from ladder.policy import parse_policy

ROOT = Path(__file__).parents[2]


async def decided(story: Story) -> None:
    """An incident whose stored decision is `auto` and not yet ordered."""
    await story.earned()
    await story.fires()
    term = story.term or await _term(story)
    (incident_id,) = await story.reconciler._claim(term, limit=1)
    for _ in range(10):
        step = await story.reconciler._step(term, incident_id)
        if step.look is not None:
            await story.reconciler._look(term, step.look)
        row = await story.incident()
        if row.phase == "decided":
            assert row.route == "auto"
            return
    raise AssertionError("was never decided")


async def _term(story: Story) -> Term:
    story.term = await Candidate(story.ctx.database, story.ctx.clock, story.ctx.replica).acquire()
    assert story.term is not None
    return story.term


async def ordered(story: Story) -> OrderRow | Withheld:
    """What the mint says to incident 1 now."""
    row = await story.incident()
    async with story.ctx.database.transaction() as session:
        held = await locked_incident(session, row.id)
        assert held is not None
        return await story.mint.order(session, story.policy, held, story.now)


async def test_an_order_is_signed_complete_and_stored_as_signed(story: Story) -> None:
    await decided(story)
    made = await ordered(story)
    assert isinstance(made, OrderRow)
    public = story.order_key.public_key()
    body = verified_body(Signed(body=made.body, key_id=made.key_id, signature=made.signature), {key_id(public): public})
    order = Order.model_validate_json(body)
    assert canonical(order) == body
    assert (order.audience, order.mode, order.attempt, order.approvals) == (UID, "auto", 1, ())
    assert (order.target.uid, order.template_hash, order.scope) == ("uid-web", "hash-1", "shop")
    assert order.expires_at - order.minted_at == timedelta(seconds=60)
    assert {check.oracle.value for check in order.checks} == {"alert", "service_level", "component"}
    assert [check.name for check in order.checks if check.opened] == ["alert PodWedged"]
    assert (order.deadlines.scrape_interval, order.policy_hash) == (5.0, story.policy.hash)


async def test_G29_halt_between_decision_and_order_withholds_it(story: Story) -> None:
    await decided(story)
    await halt(story.ctx, CY, "network work")
    made = await ordered(story)
    assert isinstance(made, Withheld)
    assert (made.rule, made.sentence) == ("halted", "Halted by cy: network work.")


async def test_G29_halt_between_approval_and_order_withholds_it_and_the_card_says_who(story: Story) -> None:
    proposal = await story.proposed()
    await story.desk.approve(proposal.id, ANA, "web")
    await halt(story.ctx, CY, "network work")
    await story.settle()
    assert await story.orders() == []
    stored = await story.stored(proposal.id)
    assert (stored.state, stored.state_reason) == ("withheld", "Halted by cy: network work.")
    withheld = [event for event in await story.events() if event.kind.value == "order_withheld"]
    assert withheld[0].payload is not None
    assert withheld[0].payload["rule"] == "halted"
    row = await story.incident()
    assert row.phase == "notified"


async def test_a_proposal_withheld_by_a_halt_does_not_run_when_it_ends(story: Story) -> None:
    from incidents.switches import resume

    proposal = await story.proposed()
    await story.desk.approve(proposal.id, ANA, "web")
    await halt(story.ctx, CY, "network work")
    await story.settle()
    await resume(story.ctx, ANA, "done")
    story.pass_time(seconds=5)
    await story.settle()
    assert await story.orders() == []
    assert (await story.desk.approve(proposal.id, BO, "web")).rule == "withheld"


async def test_a_freeze_withholds(story: Story) -> None:
    await decided(story)
    await freeze(story.ctx, ANA, "shop", timedelta(hours=1), "release day")
    made = await ordered(story)
    assert isinstance(made, Withheld)
    assert made.rule == "gate:switches"


async def test_a_storm_withholds(story: Story) -> None:
    await decided(story)
    async with story.ctx.database.transaction() as session:
        session.add(SwitchRow(id=new_id(story.now), kind=STORM, cluster_uid=UID, reason="many", set_by="bot", set_at=story.now))
    made = await ordered(story)
    assert isinstance(made, Withheld)
    assert made.rule == "storm"


async def test_a_block_on_the_target_withholds(story: Story) -> None:
    await decided(story)
    async with story.ctx.database.transaction() as session:
        block_after(session, WEB, End.ROLLED_BACK, incident_id="other", reason="it was undone", now=story.now)
    made = await ordered(story)
    assert isinstance(made, Withheld)
    assert made.rule == "blocked"


async def test_a_person_who_took_over_withholds(story: Story) -> None:
    await decided(story)
    await story.desk.take((await story.incident()).id, ANA, "web")
    made = await ordered(story)
    assert isinstance(made, Withheld)
    assert made.rule == "taken_over"


async def test_G49_a_policy_edited_between_decision_and_order_is_asked_again(story: Story) -> None:
    await decided(story)
    story.change_policy("restart_workload: R5, ", "restart_workload: R4, ")
    made = await ordered(story)
    assert isinstance(made, Withheld)
    assert made.rule == "gate:scope"
    assert "The rules changed since it was decided" in made.sentence


async def test_G49_an_edit_that_still_allows_it_is_stored_as_what_the_order_rests_on(story: Story) -> None:
    await decided(story)
    story.change_policy("step: 4}", "step: 3}")
    made = await ordered(story)
    assert isinstance(made, OrderRow)
    assert Order.model_validate_json(made.body).policy_hash == story.policy.hash
    first, second = await story.documents("decision")
    assert made.decision_id == second.id != first.id


async def test_a_budget_spent_since_the_decision_withholds(story: Story) -> None:
    await decided(story)
    async with story.ctx.database.transaction() as session:
        for n in range(3):
            session.add(spent(story, f"other-{n}"))
    made = await ordered(story)
    assert isinstance(made, Withheld)
    assert made.rule == "gate:budget"


async def test_G31_what_was_never_delivered_or_refused_gives_its_budget_back(story: Story) -> None:
    await decided(story)
    async with story.ctx.database.transaction() as session:
        for n in range(3):
            row = spent(story, f"other-{n}")
            if n % 2:
                row.state, row.end = "expired", None
            else:
                row.end = "refused"
            session.add(row)
    assert isinstance(await ordered(story), OrderRow)


async def test_one_open_order_per_target_whoever_made_it(story: Story) -> None:
    await decided(story)
    async with story.ctx.database.transaction() as session:
        session.add(spent(story, "web", state="delivered"))
    made = await ordered(story)
    assert isinstance(made, Withheld)
    assert made.rule == "open_on_target"


async def test_the_database_itself_refuses_a_second_open_order_of_one_target(story: Story) -> None:
    async def both() -> None:
        async with story.ctx.database.transaction() as session:
            session.add(spent(story, "web", state="minted"))
            session.add(spent(story, "web", state="delivered"))

    with pytest.raises(IntegrityError):
        await both()


async def test_a_bounded_number_of_orders_is_open_in_a_cluster(story: Story) -> None:
    await decided(story)
    async with story.ctx.database.transaction() as session:
        for n in range(16):
            session.add(spent(story, f"other-{n}", mode="approved", state="delivered", namespace="elsewhere"))
    made = await ordered(story)
    assert isinstance(made, Withheld)
    assert made.rule == "open_in_cluster"


def spent(story: Story, name: str, *, mode: str = "auto", state: str = "ended", namespace: str = "shop") -> OrderRow:
    ended = story.now if state == "ended" else None
    return OrderRow(
        id=new_id(story.now),
        incident_id="another",
        decision_id="another",
        cluster_uid=UID,
        namespace=namespace,
        kind="Deployment",
        name=name,
        scope="shop",
        match_digest="",
        family="wedged",
        action="restart_workload",
        mode=mode,
        state=state,
        key_id="k",
        signature="s",
        minted_at=story.now - timedelta(minutes=20),
        expires_at=story.now,
        ended_at=ended,
        end="committed" if ended else None,
    )


# what it rests on ----------------------------------------------------------------------------------------------------------------


async def test_evidence_that_grew_old_withholds(story: Story) -> None:
    await decided(story)
    story.ctx.clock.advance(121)  # type: ignore[attr-defined]
    made = await ordered(story)
    assert isinstance(made, Withheld)
    assert made.rule == "gate:evidence"


async def test_a_decision_that_was_tampered_with_stands_behind_nothing(story: Story) -> None:
    await story.earned(Rung.R3)
    await story.fires()
    await story.settle()
    async with story.ctx.database.transaction() as session:
        row = (await session.exec(select(IncidentRow))).one()
        document = await session.get(DocumentRow, row.decision_id)
        assert document is not None
        assert document.body is not None
        decision = Decision.model_validate_json(document.body).model_copy(update={"route": Route.AUTO})
        document.body = decision.to_json()
        row.phase, row.route = "decided", "auto"
        session.add(document)
        session.add(row)
    made = await ordered(story)
    assert isinstance(made, Withheld)
    assert made.rule == "decision"
    async with story.ctx.database.transaction() as session:
        stored = await session.get(DocumentRow, document.id)
        assert stored is not None
        stored.digest = digest(decision)
        session.add(stored)
    again = await ordered(story)
    assert isinstance(again, Withheld)
    assert again.rule == "gate:scope"


async def test_no_order_without_the_stored_quorum(story: Story) -> None:
    story.change_policy("    ceiling:", "    quorum: 2\n    ceiling:")
    proposal = await story.proposed()
    await story.desk.approve(proposal.id, ANA, "web")
    async with story.ctx.database.transaction() as session:
        stored = await session.get(type(proposal), proposal.id)
        assert stored is not None
        stored.state = "approved"
        session.add(stored)
    made = await ordered(story)
    assert isinstance(made, Withheld)
    assert (made.rule, made.sentence) == ("quorum", "1 of 2 approvals are stored.")


async def test_no_order_for_a_proposal_that_nobody_approved(story: Story) -> None:
    await story.proposed()
    made = await ordered(story)
    assert isinstance(made, Withheld)
    assert made.rule == "decision"


async def test_an_approver_who_lost_the_role_since_does_not_count(story: Story) -> None:
    proposal = await story.proposed()
    await story.desk.approve(proposal.id, BO, "web")
    story.ctx.policies.current = parse_policy(POLICY.replace("[person:ana, person:bo]", "[person:ana]"))
    made = await ordered(story)
    assert isinstance(made, Withheld)
    assert (made.rule, "bo" in made.sentence) == ("approver", True)


async def test_an_undelivered_order_is_made_again_from_a_living_approval(story: Story) -> None:
    proposal = await story.proposed()
    await story.desk.approve(proposal.id, ANA, "web")
    await story.settle()
    story.pass_time(seconds=61)
    await story.settle()
    first, second = await story.orders()
    assert (first.state, second.state, second.attempt) == ("expired", "minted", 2)
    order = Order.model_validate_json(second.body)
    assert (order.mode, order.parent) == ("approved", first.id)
    story.pass_time(minutes=15)
    await story.settle()
    assert len(await story.orders()) == 2
    assert (await story.stored(proposal.id)).state == "expired"


async def test_a_delivered_order_uses_its_approval_up(story: Story) -> None:
    proposal = await story.proposed()
    await story.desk.approve(proposal.id, ANA, "web")
    await story.settle()
    (signed,) = (await story.claim()).orders
    order = Order.model_validate_json(signed.body)
    await story.ends(order, End.REFUSED)
    await story.settle()
    assert len(await story.orders()) == 1
    assert (await story.stored(proposal.id)).state == "carried_out"
    fresh = await story.proposal()
    assert (fresh.id != proposal.id, fresh.state) == (True, "pending")


async def test_an_irreversible_action_needs_two_people_whatever_the_scope_says(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    from types import MappingProxyType

    from catalog.registry import CATALOGUE
    from incidents import mint

    proposal = await story.proposed()
    await story.desk.approve(proposal.id, ANA, "web")
    action = next(iter([one for one in CATALOGUE if one.value == "restart_workload"]))
    dangerous = {**CATALOGUE, action: CATALOGUE[action].model_copy(update={"irreversible": True})}
    monkeypatch.setattr(mint, "CATALOGUE", MappingProxyType(dangerous))
    made = await ordered(story)
    assert isinstance(made, Withheld)
    assert made.rule == "quorum"
    async with story.ctx.database.transaction() as session:
        session.add(ApprovalRow(proposal_id=proposal.id, person="bo", via="web", at=story.now))
    assert isinstance(await ordered(story), OrderRow)


async def test_a_scale_says_from_and_to(story: Story) -> None:
    story.outside.action, story.outside.family = scale_up(), Family.CAPACITY
    story.outside.write()
    await decided(story)
    made = await ordered(story)
    assert isinstance(made, OrderRow)
    order = Order.model_validate_json(made.body)
    assert isinstance(order.action, Scale)
    assert (order.from_replicas, order.to_replicas, order.mode) == (4, 6, "auto")


# nothing else makes orders -------------------------------------------------------------------------------------------------------


def _modules() -> list[Path]:
    rooms = ("bot", "incidents", "ladder", "sources", "triage", "verifier", "catalog")
    return [path for room in rooms for path in (ROOT / room).rglob("*.py")]


def test_no_other_module_builds_an_order_its_row_or_loads_the_order_key() -> None:
    builders: dict[str, set[str]] = {}
    for path in _modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
                if name in ("Order", "OrderRow", "Mint"):
                    builders.setdefault(name, set()).add(str(path.relative_to(ROOT)))
    assert builders.get("Order") == {"incidents/mint.py"}
    assert builders.get("OrderRow") == {"incidents/mint.py"}


def test_only_what_puts_a_replica_together_and_the_reconciler_import_the_mint() -> None:
    importing = set()
    for path in _modules():
        for node in ast.walk(ast.parse(path.read_text())):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                modules = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
            if "incidents.mint" in modules:
                importing.add(str(path.relative_to(ROOT)))
    assert importing == {"incidents/reconciling.py", "incidents/phases/acting.py", "incidents/replica.py"}


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    from catalog.signatures import KeyUnreadable, write_key_pair

    private = tmp_path / "order.pem"
    write_key_pair(private, tmp_path / "order.pub")
    assert Mint.load(private).key_id
    private.chmod(0o644)
    with pytest.raises(KeyUnreadable):
        Mint.load(private)
