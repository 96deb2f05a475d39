"""Terms, protections, gates and ledgers of small worlds: what a plan would make of a query, its noise set by hand."""

import math
from dataclasses import replace

from tacit.boundary import Gate
from tacit.boundary.account import epsilon
from tacit.boundary.code import AVERAGED, Floats, Grid
from tacit.boundary.events import Gaussian
from tacit.boundary.ledger import Ledger
from tacit.boundary.protection import Budget, Protection
from tacit.boundary.query import Unbounded
from tacit.boundary.release import Kind
from tacit.boundary.spec import Spec, StepTerms, Terms, event_of, unprotected
from tacit.guarantee import Guarantee, Relation, Trust, Unit
from tacit.secure.quantize import Rounding

DELTA = 1e-6


def grid_of(query, cells, z, bits=32, unit=Unit.USER):
    """The integers that a sum of a query's contributions is made of."""
    times = query.sensitivity(unit, Relation.ZERO_OUT) / query.clip
    return Grid(Rounding.fine(query.clip, cells), times, z, bits)


def step_terms(query, z, kind=Kind.SUM, *, step="tell", releases=1, answers=1, code=None, sealed=False, mean=False,
               unit=Unit.USER, crowd=0, cells=0, event=None):  # fmt: skip
    """One step, its noise z times the sensitivity that its query declares."""
    sensitivity = query.sensitivity(unit, Relation.ZERO_OUT)
    if code is None:
        code = AVERAGED if sealed and kind is Kind.CHAIN else Floats(z * sensitivity)
    event = event_of(query, z, answers, code, crowd) if event is None else event
    spec = Spec(step, query, releases, answers, mean=mean)
    return StepTerms(spec, kind, z, sensitivity, event, code, sealed, cells=cells)


def promise(*steps, delta=DELTA, unit=Unit.USER, relation=Relation.ZERO_OUT, simulated=True, retries=0, stated=None):
    """The terms of a run of these steps, with the ε that they cost, or the one that is `stated`."""
    terms = Terms(None, {step.spec.step: step for step in steps}, unit, relation, retries)
    reached = epsilon(terms.events, delta, relation) if stated is None else stated
    guarantee = Guarantee(reached, delta, unit, relation, Trust.SILO, "everyone", simulated=simulated)
    return replace(terms, guarantee=guarantee)


def nothing_promised(query=None, kind=Kind.SUM, *, step="tell", answers=1):
    """The terms of a NON-PRIVATE run of one step."""
    return unprotected({step: (Spec(step, query or Unbounded(), math.inf, answers), kind)})


def gate_of(folder, terms, budget=100.0, run="run-1", days=None, seed=7, devices=0, how=None, **more):
    """A party's gate with a ledger of its own in `folder`, or the ledger that is given."""
    ledger = folder if isinstance(folder, Ledger) else Ledger(folder / "party-1.sqlite", "party-1")
    delta = terms.guarantee.delta
    protection = Protection(terms, ledger, Budget(budget, delta, days), run)
    return Gate("party-1", seed, {}, devices, protection, aggregation=how, **more)


def deployed(gate):
    """The same gate under a guarantee that does not say SIMULATED."""
    terms = gate.protection.terms
    gate._seeded = False
    gate.protection.terms = gate.terms = replace(terms, guarantee=replace(terms.guarantee, simulated=False))
    return gate


def record(ledger, number=1, **changes):
    """One release in a ledger, of the round `number`."""
    usual = {
        "run": "run-1",
        "round": number,
        "step": "tell",
        "attempt": 0,
        "kind": "sum",
        "sealed": False,
        "request": f"request {number}",
        "event": Gaussian(2.0),
        "body": f"payload {number}".encode(),
        "contributors": 1,
        "present": None,
        "state": f"state {number}".encode(),
    }
    return ledger.record(**{**usual, **changes})
