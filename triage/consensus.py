"""Ballots become one score per family, and it is said whose weight went where.

A specialist that abstains gives its weight to those that voted. One that is configured but could not be read does not: its
weight stays in the divisor, so that half the eyes closed means half the confidence. Per family only the specialists that can
see it are asked. The alert's name breaks ties; alone it never goes far.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from catalog.diagnoses import Family, Vote
from triage.signals import Ballot
from triage.specialists import Specialist

PRIOR_SHARE = 0.10
NAME_ONLY_SHARE = 0.40
SEEN_NOTHING_SHARE = 0.15

Counted = Sequence[tuple[Specialist, Ballot]]


def votes(counted: Counted) -> tuple[Vote, ...]:
    """The ballots with the weights in force: those of abstentions redistributed over the votes."""
    shares = _shares(counted)
    return tuple(
        Vote(
            specialist=specialist.name,
            state=ballot.state,
            weight=round(shares[specialist.name], 4),
            scores=ballot.scores,
            findings=ballot.findings,
            note=ballot.note,
        )
        for specialist, ballot in counted
    )


def redistribution(counted: Counted) -> str:
    """In words, whose weight was given to whom; '' when all voted."""
    silent = [specialist for specialist, ballot in counted if ballot.state == "abstained"]
    voted = [specialist.name for specialist, ballot in counted if ballot.state == "voted"]
    if not silent or not voted:
        return ""
    names = " and ".join(specialist.name for specialist in silent)
    share = sum(specialist.weight for specialist in silent)
    return f"{names} abstained: their weight ({share:.0%}) went to {' and '.join(voted)}"


def scores(counted: Counted, priors: Mapping[Family, float]) -> dict[Family, float]:
    """One score in [0, 1] per family that anything speaks for, in no order."""
    found: dict[Family, float] = {}
    for family in Family:
        seen = _seen(counted, family)
        prior = priors.get(family, 0.0)
        if seen is None:
            value = NAME_ONLY_SHARE * prior
        elif seen == 0:
            value = SEEN_NOTHING_SHARE * prior
        else:
            value = seen + PRIOR_SHARE * prior * (1 - seen)
        if value > 0:
            found[family] = round(value, 4)
    return found


def _seen(counted: Counted, family: Family) -> float | None:
    """Weighted mean over the specialists that can see the family, with the unreadable ones in the divisor. None: nobody can."""
    voiced = [(specialist.weight, ballot.scores[family]) for specialist, ballot in counted if family in ballot.scores]
    if not voiced:
        return None
    blind = sum(specialist.weight for specialist, ballot in counted if ballot.state == "fault")
    return sum(weight * score for weight, score in voiced) / (sum(weight for weight, _ in voiced) + blind)


def _shares(counted: Counted) -> dict[str, float]:
    """Weights after redistribution: votes share what abstentions left; a fault keeps its own share, unused."""
    present = {specialist.name: specialist.weight for specialist, ballot in counted if ballot.state != "abstained"}
    total = sum(present.values())
    return {
        specialist.name: present[specialist.name] / total if ballot.state == "voted" and total else 0.0
        for specialist, ballot in counted
    }
