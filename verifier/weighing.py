"""`weigh`: observations in, evidence out. Pure: stored observations give the same evidence again under the same ratios.

For each family, every prediction that bears on it gives the logarithm of its ratio; in each evidence group only the strongest
counts, since several looks at one fact are one fact. The sums are normalised over the family under test, its rivals (what
triage considered, and whatever the findings themselves make three times likelier than none of these) and "none of these".
Inconclusive answers weigh exactly nothing, so where nothing answered there is no weight at all: None, which is not 0.5.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from catalog.diagnoses import Family
from catalog.documents import VersionVector
from catalog.evidence import Answer, Evidence, EvidenceItem, SourceName
from verifier import VERIFIER_VERSION
from verifier.observations import Observations
from verifier.predictions import NOT_APPLICABLE, Finding, Prediction, predictions
from verifier.ratios import NONE_OF_THESE, Ratios, ratios

SAYS_NOTHING = 0.05
RIVAL_FROM = math.log(3)
REFUTED_WEIGHT_CAP = 0.19


@dataclass(frozen=True)
class _Look:
    prediction: Prediction
    finding: Finding


def weigh(observations: Observations, table: Ratios | None = None) -> Evidence:
    """The evidence on the hypothesis under test. `table`: other ratios than those shipped, for comparison."""
    table = table or ratios()
    looks = [_Look(prediction, prediction.look(observations)) for prediction in predictions()]
    items = tuple(_items(looks, observations.family, table))
    answered = [item for item in items if item.answer is not Answer.INCONCLUSIVE]
    counted = _strongest(answered)
    supporting = sum(1 for item in items if item.answer is Answer.SUPPORTS)
    refuting = sum(1 for item in items if item.answer is Answer.REFUTES)
    posterior = _posterior(looks, observations, table)
    decisive = [item for item in answered if item.log_likelihood_ratio <= math.log(table.decisive) + 1e-9]
    weight = posterior.get(observations.family.value) if answered else None
    refuted = bool(decisive) or (weight is not None and weight < table.refuted_below and refuting > 0)
    if decisive and weight is not None:
        weight = min(weight, REFUTED_WEIGHT_CAP)
    return Evidence(
        versions=VersionVector(verifier=f"{VERIFIER_VERSION}.{table.version}"),
        incident_id=observations.incident_id,
        at=observations.at,
        family=observations.family,
        evidence_weight=None if weight is None else round(weight, 4),
        supporting=supporting,
        refuting=refuting,
        inconclusive=len(items) - len(answered),
        refuted=refuted,
        tainted=observations.tainted,
        posterior=posterior if answered else {},
        items=items,
        sources=_supporting_sources(counted),
        oldest_at=min((item.observed_at for item in answered), default=None),
        took_ms=observations.took_ms,
        note=_note(observations, items, answered, decisive),
    )


def _items(looks: Iterable[_Look], family: Family, table: Ratios) -> Iterable[EvidenceItem]:
    """Answers of all predictions that bear on the family. Left out: what does not apply here, and what says nothing of it."""
    for look in looks:
        prediction, finding = look.prediction, look.finding
        if not table.speaks_of(prediction.id, family) or finding.reason == NOT_APPLICABLE:
            continue
        llr = table.log_ratio(prediction.id, finding.value, family) if finding.value is not None else 0.0
        if finding.value is not None and abs(llr) < SAYS_NOTHING:
            continue
        yield EvidenceItem(
            id=prediction.id,
            group=prediction.group,
            family=family,
            question=prediction.question,
            seen=finding.seen[:300],
            answer=Answer.INCONCLUSIVE if finding.value is None else Answer.SUPPORTS if llr > 0 else Answer.REFUTES,
            log_likelihood_ratio=round(llr, 4),
            source=prediction.source,
            oracle=prediction.oracle,
            observed_at=finding.at,
            link=finding.link,
            reason=finding.reason,
        )


def _strongest(answered: Iterable[EvidenceItem]) -> list[EvidenceItem]:
    """Of each group the item that weighs most, either way."""
    best: dict[str, EvidenceItem] = {}
    for item in answered:
        if item.group not in best or abs(item.log_likelihood_ratio) > abs(best[item.group].log_likelihood_ratio):
            best[item.group] = item
    return list(best.values())


def _posterior(looks: list[_Look], observations: Observations, table: Ratios) -> dict[str, float]:
    """Probability of each family considered and of none of them, summing to 1."""
    sums = {family: _sum(looks, family, table) for family in Family}
    considered = {observations.family, *observations.rivals} | {family for family, total in sums.items() if total > RIVAL_FROM}
    testable = [family for family in Family if family in considered and _testable(family, table)]
    logs = {family.value: math.log(table.prior.family) + sums[family] for family in testable}
    logs[NONE_OF_THESE] = math.log(table.prior.none_of_these)
    top = max(logs.values())
    total = sum(math.exp(value - top) for value in logs.values())
    return {name: round(math.exp(value - top) / total, 6) for name, value in logs.items()}


def _sum(looks: Iterable[_Look], family: Family, table: Ratios) -> float:
    """Log-likelihood ratio of the family: the strongest answer of each group, added up."""
    strongest: dict[str, float] = {}
    for look in looks:
        if look.finding.value is None:
            continue
        llr = table.log_ratio(look.prediction.id, look.finding.value, family)
        if abs(llr) > abs(strongest.get(look.prediction.group, 0.0)):
            strongest[look.prediction.group] = llr
    return sum(strongest.values())


def _testable(family: Family, table: Ratios) -> bool:
    return any(table.speaks_of(prediction, family) for prediction in table.predictions)


def _supporting_sources(counted: Iterable[EvidenceItem]) -> tuple[SourceName, ...]:
    return tuple(sorted({item.source for item in counted if item.answer is Answer.SUPPORTS}))


def _note(
    observations: Observations, items: tuple[EvidenceItem, ...], answered: list[EvidenceItem], decisive: list[EvidenceItem]
) -> str:
    if not items:
        return f"no prediction is declared for {observations.family.value}: it cannot be verified"
    if not answered:
        reasons = sorted({item.reason for item in items if item.reason})
        return f"not verified: nothing answered ({', '.join(reasons)})"
    if decisive:
        return f"refuted: {min(decisive, key=lambda item: item.log_likelihood_ratio).seen}"[:300]
    late = f"{len(observations.late)} reads were late: {', '.join(observations.late)}" if observations.late else ""
    return late[:300]
