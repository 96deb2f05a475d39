"""Where means are masked, what is averaged leaves masked or not at all, whatever a coordinator skips.

That is a term of the run, with a guarantee and without one: a coordinator that skips the exchange of keys, or asks
for the same answer under other masks, gets nothing.
"""

from contextlib import closing, contextmanager
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from tacit.aggregation import secagg
from tacit.aggregation.secagg import SecAgg
from tacit.boundary.code import AVERAGED as MEANS
from tacit.boundary.code import SEALED
from tacit.boundary.endpoint import STATE
from tacit.boundary.ledger import Ledger
from tacit.boundary.protection import Budget
from tacit.boundary.wire import decode, encode
from tacit.config import RunFile
from tacit.data.synthetic import demo
from tacit.engine.inprocess import InProcess
from tacit.errors import PrivacyRefused, TacitError
from tacit.federation import Facts, Transcript
from tacit.federation.messages import Request
from tacit.guarantee import NoGuarantee
from tacit.methods.factors import start_factors
from tacit.partition import partition
from tacit.prepare.prepared import Record
from tacit.prepare.run_file import prepared

SHORT = {"factors": 2, "rounds": 1, "local_steps": 2, "sampling": 1.0}
#: By name: the method, how data is divided, the averaged step, and the block that it takes.
AVERAGED = {
    "sgdmf, users divided": ({"name": "sgdmf", **SHORT}, "user", "improve", "items"),
    "sgdmf, items divided": ({"name": "sgdmf", **SHORT}, "item", "improve", "users"),
    "gradient-clipping": ({"name": "gradient-clipping", **SHORT}, "user", "improve", "items"),
    "objective-perturbation": ({"name": "objective-perturbation", "factors": 2}, "user", "solve", "items"),
}
#: The same, and a sum.
STEPS = {"bias": ({"name": "bias"}, "user", "contribute", None), **AVERAGED}
EVERY = pytest.mark.parametrize("name", AVERAGED)
DATA = {"source": "demo", "users": 12, "items": 8, "ratings": 60}
SILOS = 3


@cache
def agreement(name, aggregation="secagg", seeded=True, private=True):
    """The run, and its parties' shares."""
    table, by, *_ = STEPS[name]
    unit = "rating" if table["name"].startswith("obj") else "user"
    file = RunFile.model_validate(
        {
            "data": DATA,
            "partition": {"by": by, "into": SILOS},
            "method": table,
            "aggregation": {"name": aggregation},
            "engine": {"name": "flare", "seeded": seeded},
            **({"privacy": {"epsilon": 4.0, "delta": 1e-4, "unit": unit}} if private else {}),
        }
    )
    shares = partition(demo(users=12, items=8, ratings=60), into=SILOS, by=by)
    return prepared(file, Facts.of(shares, 7), run="run"), shares


@contextmanager
def a_party(folder, agreed, shares, masks=True):
    """The first party of a run, which makes masks unless the roster has a cohort in it."""
    if not masks:
        *others, last = agreed.facts.roster
        agreed = replace(agreed, facts=replace(agreed.facts, roster=(*others, replace(last, devices=2))))
    if not agreed.private:
        yield agreed.party(shares[0]), None
        return
    with closing(Ledger(folder / "party-1.sqlite", "party-1")) as ledger:
        budget = Budget(agreed.plan.terms.guarantee.epsilon + 1, agreed.plan.delta)
        yield agreed.party(shares[0], Record(ledger, budget)), ledger


def asked(agreed, name, step=None, number=1, **others):
    """The coordinator's request for an averaged step, or for an exchange about it."""
    _table, _by, averaged, block = STEPS[name]
    rows = agreed.facts.items if block == "items" else agreed.facts.users
    payload = {block: start_factors(agreed.facts, rows, 2, block)} if block else {}
    payload |= {"t": 0} if averaged == "improve" else {}
    whole = Request(agreed.method.name, agreed.bound, averaged, number, 0, encode({**payload, **others}))
    if step is None:
        return whole
    return Request(agreed.method.name, agreed.bound, f"{step}:{averaged}", number, 0, encode({"context": whole.hash}))


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("kind", ["simulated", "deployed", "non-private"])
def test_before_keys_and_shares_are_exchanged_nothing_leaves_or_is_charged(tmp_path, name, kind):
    """Not without an exchange, and not when keys were advertised and nobody's shares arrived."""
    agreed, shares = agreement(name, seeded=kind != "deployed", private=kind != "non-private")
    assert isinstance(agreed.guarantee, NoGuarantee) == (kind == "non-private")
    with a_party(tmp_path, agreed, shares) as (party, ledger):
        for number in (1, 2):
            with pytest.raises(PrivacyRefused, match="under masks alone") as refusal:
                party.answer(asked(agreed, name))
            assert refusal.value.exit_code == 4
            if ledger is not None:
                assert [row.step for row in ledger.rows()] == [f"advertise:{STEPS[name][2]}"][: number - 1]
                *_earlier, told = ledger.refusals()["told"]
                assert (told["why"], told["step"]) == (str(refusal.value), STEPS[name][2])
            if number == 1:
                party.answer(asked(agreed, name, "advertise"))


@EVERY
@pytest.mark.parametrize("private", [True, False], ids=["private", "non-private"])
def test_a_coordinator_that_skips_the_exchanges_gets_nothing_from_anybody(tmp_path, monkeypatch, name, private):
    """In process, by its own federation: it takes single answers for a mean, as under plain."""
    agreed, shares = agreement(name, private=private)
    ledgers = {share.name: Ledger(tmp_path / f"{share.name}.sqlite", share.name) for share in shares}
    record = {name: Record(ledger, Budget(5.0, 1e-4)) for name, ledger in ledgers.items() if private}
    line = InProcess([agreed.party(share, record.get(share.name)) for share in shares], workers=1)
    federation = agreed.federation(line, transcript=(transcript := Transcript()))
    monkeypatch.setattr(SecAgg, "mean", lambda self, talk: super(SecAgg, self).mean(talk))
    averaged, payload = STEPS[name][2], decode(asked(agreed, name).body)
    next(federation.rounds(1))
    with pytest.raises(TacitError):
        federation.mean(averaged, **payload)
    assert transcript.meter.bytes_up == 0
    assert all(ledger.rows() == [] for ledger in ledgers.values())
    with pytest.raises(PrivacyRefused, match="ask for their sum or mean"):
        federation.ask(averaged, **payload)


@EVERY
@pytest.mark.parametrize("private", [True, False], ids=["private", "non-private"])
def test_planted_a_mask_that_is_skipped_would_be_noticed(tmp_path, monkeypatch, name, private):
    """A party that does not ask whether keys were exchanged releases its own factors, in the clear."""
    monkeypatch.setattr(SecAgg, "ready", lambda self, terms, endpoint: None)
    monkeypatch.setattr(SecAgg, "seal", lambda self, vector, terms, endpoint: terms.code.payload(vector))
    agreed, shares = agreement(name, private=private)
    with a_party(tmp_path, agreed, shares) as (party, _ledger):
        body = decode(party.answer(asked(agreed, name)).body)
        size = np.prod(np.shape(decode(asked(agreed, name).body)[STEPS[name][3]]))
        (block,) = MEANS.blocks(body, {"x": (int(size),)}).values()
        assert np.abs(block).max() < 100  # under masks nearly all would be beyond


@EVERY
def test_a_party_that_makes_no_masks_refuses_in_a_deployment_alone(tmp_path, name):
    """As where a roster is told that has cohorts in it, which are simulated: the run's terms say masked even so."""
    for seeded in (True, False):
        (folder := tmp_path / str(seeded)).mkdir()
        agreed, shares = agreement(name, seeded=seeded)
        with a_party(folder, agreed, shares, masks=False) as (party, ledger):
            if seeded:
                assert SEALED not in decode(party.answer(asked(agreed, name)).body)
            else:
                with pytest.raises(PrivacyRefused, match="only a simulation may do"):
                    party.answer(asked(agreed, name))
            assert len(ledger.rows()) == seeded


class Watched:
    """An engine that keeps what party-1 was asked and said."""

    def __init__(self, engine):
        self.engine, self.asked, self.said = engine, {}, {}

    def deliver(self, requests, participants):
        answers = self.engine.deliver(requests, participants)
        for answer in answers:
            if answer.party == "party-1":
                name = requests["party-1"].step.partition(":")[0]
                self.asked[name], self.said[name] = requests["party-1"], answer.body
        return answers


def sealed_once(tmp_path, name, private):
    """A run one of whose sums, or means, was made; party-1 as it is then, and all that it was asked."""
    agreed, shares = agreement(name, private=private)
    record = {s.name: Record(Ledger(tmp_path / f"{s.name}.sqlite", s.name), Budget(5.0, 1e-4)) for s in shares}
    parties = [agreed.party(share, record[share.name] if private else None) for share in shares]
    watched = Watched(InProcess(parties, workers=1))
    federation = agreed.federation(watched)
    _table, _by, step, _block = STEPS[name]
    payload = decode(asked(agreed, name).body)
    for _ in federation.rounds(1):
        federation.sum(step) if step == "contribute" else federation.mean(step, **payload)

    def restored():
        """The same party after a restart: what is at home is all that it has, where there is no ledger."""
        if private:
            return agreed.party(shares[0], record["party-1"])
        again = agreed.party(shares[0])
        again.home.update({key: np.array(value) for key, value in parties[0].home.items()})
        return again

    return parties[0], restored, watched


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("private", [True, False], ids=["private", "non-private"])
@pytest.mark.parametrize("kill", [False, True], ids=["same process", "restored home"])
def test_a_party_seals_no_two_answers_for_one_request(tmp_path, name, private, kill):
    """Two vectors under the same masks show their difference; so does one under masks that were drawn twice."""
    party, restored, watched = sealed_once(tmp_path, name, private)
    party = restored() if kill else party
    step = STEPS[name][2]
    request, begin = watched.asked[step], watched.asked["advertise"]
    try:
        body = party.answer(request).body
    except PrivacyRefused:
        body = watched.said[step]
    assert body == watched.said[step]  # the same bytes, or none
    other = replace(begin, round=2, body=encode({"context": "ab" * 32}))
    party.answer(other)  # another sum, so that the first is not the one under way
    with pytest.raises(PrivacyRefused, match=r"seals nothing twice|begins none twice"):
        party.answer(replace(begin, round=3))
    with pytest.raises(PrivacyRefused):
        party.answer(replace(request, round=1))
    if not private:
        party.home.pop(STATE)
        with pytest.raises(PrivacyRefused, match="begins none twice"):
            party.answer(replace(begin, round=4))


@pytest.mark.parametrize("name", ["bias", "sgdmf, users divided"])
def test_planted_a_home_that_forgets_what_it_sealed_would_be_noticed(monkeypatch, tmp_path, name):
    """Without a ledger nothing else remembers: new masks would be drawn for the same answer."""
    party, _restored, watched = sealed_once(tmp_path, name, private=False)
    monkeypatch.setattr(secagg, "_sealed_before", lambda endpoint: b"")
    party.home.pop(STATE)
    assert party.answer(replace(watched.asked["advertise"], round=4)).body != watched.said["advertise"]
