"""What tests of the ladder share."""

from __future__ import annotations

import pytest
from ladder_cases import POLICY, CaseMaker, case_maker

from ladder.policy import Policy, parse_policy


@pytest.fixture
def policy() -> Policy:
    return parse_policy(POLICY)


@pytest.fixture
def make_case(policy: Policy) -> CaseMaker:
    """A case that `decide` lets go by itself, with changes."""
    return case_maker(policy)
