"""The bounds that examples/plugin states, attacked: a few lines by a method's author, who writes no search.

A planted mistake shows that the search would find one.
"""

from dataclasses import replace

import pytest
from plugged import plugged
from tacit_slopes import FEATURE_SLOPES, SlopesParty

from tacit.guarantee import Unit
from tacit.methods import known
from tacit.partition import Setting
from tacit.testing.privacy_contract import PrivacyContract


@pytest.fixture(autouse=True)
def method():
    with plugged():
        yield


class TestFeatureSlopes(PrivacyContract):
    name = "feature-slopes"
    parameters = {"directions": 2}
    within = {("device", "rating"): 0.4}

    def pytest_generate_tests(self, metafunc):
        with plugged():
            super().pytest_generate_tests(metafunc)


class Centred(SlopesParty):
    """States are measured from the party's own mean, so that one user moves what every other one adds."""

    def at_home(self, base, slopes):
        fitted = super().at_home(base, slopes)
        return replace(fitted, states=fitted.states - fitted.states.mean(axis=0))


def test_a_party_that_lets_users_move_each_others_numbers_is_found_out():
    sides = {setting: replace(both, party=Centred) for setting, both in FEATURE_SLOPES.sides.items()}
    known()["feature-slopes"] = replace(FEATURE_SLOPES, sides=sides)
    with pytest.raises(AssertionError, match="times as far apart as the noise covers"):
        TestFeatureSlopes().test_no_neighbour_moves_an_answer_further_than_stated(Setting.HORIZONTAL, Unit.USER)
