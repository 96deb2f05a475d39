"""A kill at every write of a site's service: it goes on, forgets nothing, and finds no tampering."""

import numpy as np
import pytest
from killpoints import states_of
from one_site import BIAS, CHAIN, Sites, costly, home_of, item_sources, offer_of, rows_of, run_file

from tacit.boundary.ledger import ledgers_in
from tacit.deploy.policy import Policy
from tacit.deploy.site_files import read_predictor
from tacit.deploy.site_run import SiteRun


def whole_run(folder, tmp_path, monkeypatch, offer, policy):
    """A whole run; what a kill would leave of the first site, and how many requests it had answered by then."""
    home_of(folder)
    sites = []

    def work():
        sites.append(Sites(folder, offer, policy))
        sites[0].begin()
        sites[0].conduct()
        sites[0].parts["party-1"].save(sites[0].shared)
        sites[0].leave()

    def answered():
        return sum(answer.party == "party-1" for answer in sites[0].answers) if sites else 0

    states = states_of(folder / "party-1", tmp_path / "killed", monkeypatch, work, answered)
    return sites[0], states


@pytest.mark.parametrize(
    ("method", "aggregation", "private"),
    [(CHAIN, "plain", True), (BIAS, "secagg", True), (CHAIN, "plain", False), (BIAS, "secagg", False)],
    ids=["chain", "secagg", "non-private", "non-private secagg"],
)
def test_a_site_that_was_killed_at_any_write_goes_on(tmp_path, monkeypatch, method, aggregation, private):
    sections = {"method": method, "aggregation": {"name": aggregation}, **({} if private else {"privacy": None})}
    offer, policy = offer_of(run_file(**sections)), Policy(non_private=not private)
    (tmp_path / "whole").mkdir()
    sites, states = whole_run(tmp_path / "whole", tmp_path, monkeypatch, offer, policy)
    asks = [ask for name, ask in sites.asked if name == "party-1"]
    answers = [answer for answer in sites.answers if answer.party == "party-1"]
    whole = sites.homes["party-1"]
    assert len(states) > (20 if private else 10)
    for state, done in states:
        home = home_of(state.parent, policy=policy)
        recorded = {row.request for path in ledgers_in(home.ledgers) for row in rows_of(home)}
        part = SiteRun(home, offer.run, offer.content())
        part.sizes()
        part.begin(sites.begin_content)
        for ask, answer in zip(asks[done:], answers[done:], strict=True):
            kept = ask.request.hash in recorded or part._memory.answered(ask.request.hash) is not None
            given = part.answer(ask)
            assert given.status == "ok"
            if kept or not (private or aggregation == "secagg"):
                assert given == answer
            elif aggregation == "secagg":  # what the others sent goes with the keys and shares that were lost
                break
        part.save(sites.shared)
        part.leave()
        read_predictor(home.folder / "home" / "predictor.tct")
        charged = [(row.step, row.event) for row in costly(home)]
        assert charged == [(row.step, row.event) for row in costly(whole)][: len(charged)]
        assert len(charged) == len(costly(whole)) or aggregation == "secagg"


def test_a_site_that_was_killed_at_any_write_of_its_alignment_goes_on(tmp_path, monkeypatch):
    """The secret with which ids were blinded is gone in the end, whenever the site was killed."""
    sections = {"by": "item", "into": 3, "align": "psi", "keep": "shared"}
    learns = {"name": "sgdmf", "factors": 2, "rounds": 1, "local_steps": 1, "sampling": 1.0, "fine_tuning": 0}
    offer, policy = offer_of(run_file(partition=sections, privacy=None, method=learns)), Policy(non_private=True)
    sources = item_sources(tmp_path)
    (tmp_path / "whole").mkdir()
    sites = Sites(tmp_path / "whole", offer, policy, sources)
    said = []

    def say(name, _about, content):
        reply = sites.parts[name].align(content)
        said.extend([content] if name == "party-1" else [])
        return reply

    def work():
        sites.align(tmp_path / "aligned.tct", say)

    states = states_of(tmp_path / "whole" / "party-1", tmp_path / "killed", monkeypatch, work, lambda: len(said))
    expected = sites.parts["party-1"].data.share.ratings
    assert len(states) > 10
    for state, done in states:
        home = home_of(state.parent, policy=policy, source=sources["party-1"])
        part = SiteRun(home, offer.run, offer.content())
        for content in said[done:]:
            part.align(content)
        kept = {path.suffix: path.stat().st_mode & 0o777 for path in (home.folder / "aligned").glob("[!.]*")}
        assert kept == dict.fromkeys((".place", ".rows", ".blinded"), 0o600)
        if done:
            np.testing.assert_array_equal(part.data.share.ratings.values, expected.values)
