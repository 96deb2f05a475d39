"""In whatever order a coordinator asks, nothing that a silo fine-tuned for itself gets into a later answer."""

from dataclasses import replace

import numpy as np
import pytest

from tacit.boundary import Gate
from tacit.boundary.wire import decode, encode
from tacit.config import PrivacySection
from tacit.data.synthetic import synthesize
from tacit.federation import Facts
from tacit.federation.messages import Request
from tacit.guarantee import Unit
from tacit.methods import chosen
from tacit.methods.factors import start_factors
from tacit.partition import partition
from tacit.prepare.prepared import PreparedRun

PARTIES = partition(synthesize(40, 15, 300, seed=3).ratings, into=2)
MODES = {"pretrained": Unit.USER, "together": Unit.USER, "noised": Unit.RATING}


def answers(users: str, order: list[str]) -> list[dict[str, np.ndarray]]:
    """What a silo without noise says to `order`; equal requests are equal, whatever came between."""
    method, parameters = chosen({"name": "sgdmf", "factors": 3, "users": users, "sampling": 0.5, "rate": 1.0})
    privacy = PrivacySection(epsilon=4.0, delta=1e-6, unit=str(MODES[users]))
    run = PreparedRun.of(method, parameters, Facts.of(PARTIES, 7), privacy=privacy)
    silent = {name: replace(terms, multiplier=0.0) for name, terms in run.plan.terms.steps.items()}
    gate, facts = Gate("party-1", 7, {}, terms=replace(run.plan.terms, steps=silent)), run.facts
    silo = run.sides.party(PARTIES[0], run.parameters, facts, gate)
    V, heard = start_factors(facts, facts.items, 3, "items"), []
    for step in order:
        payload = {"items": V, "t": 0} if step == "improve" else {"items": V}
        heard.append(decode(silo.answer(Request("sgdmf", "", step, 1, 0, encode(payload))).body))
    return heard


@pytest.mark.parametrize("users", MODES)
@pytest.mark.parametrize("before", [[], ["pretrain"], ["improve"]])
def test_fine_tuning_changes_no_later_answer(users, before):
    plain = answers(users, [*before, "improve"])
    tuned = answers(users, [*before, "finish", "improve"])
    np.testing.assert_array_equal(plain[-1]["items"], tuned[-1]["items"])
    again = answers(users, [*before, "pretrain", "improve"])
    between = answers(users, [*before, "finish", "pretrain", "improve"])
    np.testing.assert_array_equal(again[-1]["items"], between[-1]["items"])


@pytest.mark.parametrize("users", MODES)
def test_an_answer_does_depend_on_users_factors(users):
    """So the test above could fail: other factors at home give another answer."""
    first = answers(users, ["improve"])[-1]["items"]
    assert (first != answers(users, ["pretrain", "improve"])[-1]["items"]).any()
