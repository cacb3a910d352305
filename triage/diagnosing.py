"""`diagnose`: symptoms in, diagnosis out. Pure and deterministic: stored symptoms give the same diagnosis again.

Hypotheses are about the incident's own target only. Nothing that a log, an event or an annotation says can name another target
or an action; such text is quoted with a mark where it reads like an order.
"""

from __future__ import annotations

from collections.abc import Sequence

from catalog.actions import Escalate
from catalog.alerts import AlertSeverity
from catalog.diagnoses import AntiAction, Diagnosis, Family, Hypothesis
from catalog.documents import VersionVector
from triage import TRIAGE_VERSION
from triage.cautions import LEAK_WINDOW, family_cautions, standing_cautions
from triage.consensus import Counted, redistribution, scores, votes
from triage.recommending import remedy
from triage.signals import Signal
from triage.specialists import specialists
from triage.symptoms import Symptoms
from triage.vocabulary import priors

CONVINCED = 0.25
KEPT = 5


def diagnose(symptoms: Symptoms) -> Diagnosis:
    """The diagnosis of these symptoms: ranked hypotheses with an action each, votes, anti-actions, and what could not be read."""
    counted: Counted = [(specialist, specialist.vote(symptoms)) for specialist in specialists()]
    ranked = _ranked(symptoms, scores(counted, priors(symptoms.alert_names)))
    standing = standing_cautions(symptoms)
    hypotheses = tuple(_hypothesis(family, score, symptoms, counted, standing) for family, score in ranked)
    best = hypotheses[0].family
    return Diagnosis(
        versions=VersionVector(triage=TRIAGE_VERSION),
        incident_id=symptoms.incident_id,
        at=symptoms.at,
        severity=severity(symptoms),
        hypotheses=hypotheses,
        votes=votes(counted),
        anti_actions=_merged(standing, family_cautions(best, symptoms)),
        degraded=symptoms.degraded,
        notes=_notes(symptoms, counted),
        took_ms=symptoms.took_ms,
    )


def severity(symptoms: Symptoms) -> AlertSeverity:
    """The highest of the firing alerts, or of all when none fires any more."""
    firing = [alert for alert in symptoms.alerts if alert.status == "firing"] or list(symptoms.alerts)
    return max((alert.severity for alert in firing), key=lambda one: one.rank)


def _ranked(symptoms: Symptoms, found: dict[Family, float]) -> list[tuple[Family, float]]:
    """Families by score, best first, with `unknown` before whatever does not convince."""
    if all(alert.status == "resolved" for alert in symptoms.alerts):
        found = {**found, Family.SELF_RESOLVED: 0.97}
        return sorted(found.items(), key=lambda pair: (pair[0] is not Family.SELF_RESOLVED, -pair[1], pair[0].value))[:KEPT]
    ranked = sorted(found.items(), key=lambda pair: (-pair[1], pair[0].value))[:KEPT]
    best = ranked[0][1] if ranked else 0.0
    if best < CONVINCED:
        ranked = [(Family.UNKNOWN, round(1 - best, 4) if symptoms.workload is not None else 0.0), *ranked[: KEPT - 1]]
    return ranked


def _hypothesis(family: Family, score: float, symptoms: Symptoms, counted: Counted, standing: Sequence[AntiAction]) -> Hypothesis:
    found = remedy(family, symptoms, _signals(family, counted))
    action = found.action
    forbidden = next((caution for caution in standing if caution.action is action.action), None)
    if forbidden is not None:
        action = Escalate(reason=f"{action.action.value.replace('_', ' ')} would be next, but {forbidden.reason}"[:500])
    return Hypothesis(family=family, statement=found.statement, confidence=score, action=action, target=symptoms.target)


def _signals(family: Family, counted: Counted) -> list[Signal]:
    found = [signal for _, ballot in counted for signal in ballot.signals if signal.family is family]
    return sorted(found, key=lambda signal: (-signal.score, signal.sentence))


def _merged(*groups: Sequence[AntiAction]) -> tuple[AntiAction, ...]:
    first: dict[str, AntiAction] = {}
    for caution in (caution for group in groups for caution in group):
        first.setdefault(caution.action.value, caution)
    return tuple(first.values())


def _notes(symptoms: Symptoms, counted: Counted) -> tuple[str, ...]:
    notes = [redistribution(counted)]
    notes += [f"instruction-like text in {place}: quoted as data, not followed" for place in symptoms.instructions_in]
    notes += [f"{count} {what} left out to stay compact" for what, count in sorted(symptoms.cut.items())]
    workload = symptoms.workload
    if workload is not None:
        restarted = workload.restarts_since(symptoms.at - LEAK_WINDOW)
        if restarted:
            times = "once" if restarted == 1 else f"{restarted} times"
            notes.append(f"it was already restarted {times} within 6 h: what a restart does not cure is for people")
        unreadable = sorted(part for part in workload.unreadable if part != "pods")
        if unreadable:
            notes.append(f"could not be read: {', '.join(unreadable)}")
        if not workload.exists:
            notes.append(f"{symptoms.target.title} does not exist any more")
    return tuple(note for note in notes if note)
