"""Without privacy too, sites accept nothing between organisations that only a simulation may do to what is hidden."""

from dataclasses import replace

import numpy as np
import pytest
from one_site import NAMES, offer_of, run_file
from stated import gate_of, promise, step_terms

from tacit.aggregation.secagg import SecAgg
from tacit.boundary import Gate
from tacit.boundary.clipped_sums import Clipped
from tacit.boundary.code import Fixed
from tacit.boundary.endpoint import PartySide
from tacit.boundary.events import NonPrivate
from tacit.boundary.release import Kind
from tacit.boundary.spec import Spec, StepTerms, Terms
from tacit.deploy.offer import _possible
from tacit.deploy.policy import Policy
from tacit.errors import PrivacyRefused
from tacit.federation.facts import Member
from tacit.guarantee import NON_PRIVATE
from tacit.kernels.rounding import round_and_add, round_and_add_numpy

QUERY = Clipped(("x",), 1.0)


@pytest.mark.parametrize("name", ["ideal", "shuffle"])
@pytest.mark.parametrize("seeded", [True, None])
def test_a_site_refuses_an_aggregation_that_only_simulations_have(name, seeded):
    engine = {"name": "flare"} if seeded is None else {"name": "flare", "seeded": seeded}
    offer = offer_of(run_file(privacy=None, aggregation={"name": name}, engine=engine))
    with pytest.raises(PrivacyRefused, match="exists in simulations only"):
        Policy(non_private=True).check(offer, "party-1")


@pytest.mark.parametrize(("how", "possible"), [("plain", True), ("secagg", False)])
def test_a_site_believes_in_no_cohort_where_contributions_are_hidden(how, possible):
    """A cohort runs no protocol, so that a made-up one would take everybody's masks off."""
    offer = offer_of(run_file(privacy=None, partition={"by": "device"}, aggregation={"name": how}))
    cohort = Member(NAMES[1], 2, 12, np.arange(12), 2)
    assert bool(_possible(cohort, offer, 12)) is possible
    assert _possible(replace(cohort, users=1, devices=1), offer, 12)


class Willing(PartySide):
    """Hides what it is given, and is always ready."""

    def seals(self, terms):
        return terms.sealed


def test_what_is_hidden_is_released_no_oftener_than_planned_without_a_ledger_too():
    """Two sums over different parties, subtracted, would show one of them."""
    spec, code = Spec("tell", QUERY, releases=2), Fixed.of(1.0, 4)
    step = StepTerms(spec, Kind.SUM, 0.0, 1.0, NonPrivate(), code, sealed=True, cells=3)
    gate = Gate("party-1", 7, {}, terms=Terms(NON_PRIVATE, {"tell": step}), aggregation=Willing(), users=4)

    def tell(attempt):
        with gate.serving("tell", 1, attempt, f"{attempt:064x}"):
            return gate.sum({"x": np.ones((4, 3))}, np.ones(4))

    tell(0)
    tell(1)
    with pytest.raises(PrivacyRefused, match="2 were planned"):
        tell(2)
    again = Gate("party-1", 7, dict(gate.home), terms=gate.terms, aggregation=Willing(), users=4)
    gate = again
    with pytest.raises(PrivacyRefused, match="2 were planned"):
        tell(3)


def test_a_cohort_makes_no_chains_whose_noise_would_be_one_devices(tmp_path):
    gate = gate_of(tmp_path, promise(step_terms(QUERY, 4.0, Kind.CHAIN)), devices=30)
    with gate.serving("tell", 1, 0, "0" * 64), pytest.raises(PrivacyRefused, match="30 simulated devices"):
        gate.chain({"x": np.ones((30, 3))}, np.ones(30))
    assert gate.protection.ledger.rows() == []


@pytest.mark.parametrize("kernel", [round_and_add, round_and_add_numpy])
def test_a_piece_that_meets_a_cell_twice_adds_nothing(kernel):
    """Its numbers would add up there, to more than its length."""
    starts, cells = np.array([0, 2, 4]), np.array([1, 1, 0, 2])
    total = np.zeros(3, dtype=np.int64)
    too_long = kernel(starts, cells, np.array([0.7, 0.7, 0.5, 0.5]), np.zeros(4), 0.1, 1e9, 1e9, total)
    assert too_long.tolist() == [True, False]
    assert total.tolist() == [5, 0, 5]


def test_secagg_itself_is_possible_between_organisations():
    assert not SecAgg.only_simulated
