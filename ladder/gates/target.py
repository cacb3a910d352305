"""Gate 2: the target is real, named as Kubernetes names things, not protected, and it is the one the alert leads to."""

from __future__ import annotations

from catalog.decisions import GateResult
from catalog.names import is_dns_label, is_dns_subdomain
from catalog.targets import Provenance, TargetKind
from ladder.questions import Question, first_objection


def ask(question: Question) -> GateResult:
    """Valid names, exists, not protected; own, or derived through a named edge for a proposal."""
    found = first_objection(question, (_invalid, _protected, _missing, _another, _owned, _provenance, _kind))
    if found is not None:
        return found
    target = question.case.target
    if question.case.provenance is Provenance.DERIVED:
        return question.passed(f"{target.title} was derived through {question.case.edge}.")
    return question.passed(f"{target.title} is the alert's own target.")


def _invalid(question: Question) -> GateResult | None:
    target = question.case.target
    why = question.case.target_invalid
    if why is None and not is_dns_subdomain(target.name):
        why = "its name is not one that Kubernetes accepts"
    if why is None and not is_dns_label(target.namespace):
        why = "it has no namespace that Kubernetes accepts"
    if why is None:
        return None
    return question.blocked(f"The target is invalid: {why}.", unblock="correct the labels of the alerting rule")


def _protected(question: Question) -> GateResult | None:
    namespace = question.case.target.namespace
    if not question.policy.is_protected(namespace):
        return None
    return question.blocked(
        f"Namespace {namespace} is protected.", setting="protected:", unblock="people only; it cannot be opted in"
    )


def _missing(question: Question) -> GateResult | None:
    facts = question.case.facts
    if facts is None:
        return question.unknown(f"{question.case.target.title} could not be read.", unblock="the Kubernetes API must answer")
    if not facts.exists:
        return question.blocked(f"{question.case.target.title} does not exist.")
    return None


def _another(question: Question) -> GateResult | None:
    facts, target = question.case.facts, question.case.target
    if facts is None or facts.target.key != target.key:
        return question.blocked(f"What was read is not {target.title}.")
    if facts.target.uid is None:
        return question.unknown(f"The UID of {target.title} is not known.")
    if target.uid is not None and target.uid != facts.target.uid:
        return question.blocked(
            f"{target.title} was re-created since the alert was resolved to it.", unblock="a new alert about the new object"
        )
    return None


def _owned(question: Question) -> GateResult | None:
    owner = question.case.facts.custom_owner if question.case.facts else None
    if owner is None:
        return None
    return question.blocked(
        f"A custom resource ({owner}) owns it and would revert or redo a change.", unblock=f"act on the {owner}, by hand"
    )


def _provenance(question: Question) -> GateResult | None:
    if question.case.provenance is Provenance.OWN:
        return None
    if question.auto:
        return question.blocked(f"The target was derived ({question.case.edge or 'edge not named'}), not the alert's own.")
    if not (question.case.edge or "").strip():
        return question.blocked("The target was derived, and no evidence edge is named.")
    return None


def _kind(question: Question) -> GateResult | None:
    kind = question.case.target.kind
    if question.auto and kind is not TargetKind.DEPLOYMENT:
        return question.blocked(f"Only Deployments are changed without a person; this is a {kind.value}.")
    return None
