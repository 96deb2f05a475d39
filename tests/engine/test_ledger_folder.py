"""A folder of kept ledgers, looked at as a whole: nobody's past is left behind, no ledger is an old one."""

import shutil
from contextlib import closing
from itertools import count

import numpy as np
import pytest

import tacit
from tacit.boundary.ledger import Ledger
from tacit.data.ratings import Ratings
from tacit.data.synthetic import demo
from tacit.engine.call_log import CallLog
from tacit.engine.inprocess import InProcess
from tacit.engine.ledger_folder import Heads
from tacit.errors import PeerFailed, PrivacyRefused, TamperingFound, UsageError
from tacit.federation.calls import Logged
from tacit.partition import Share

RATINGS = demo(users=60, items=12, ratings=600)


@pytest.fixture
def fit(tmp_path):
    """Fits `bias` over parties, with the ledgers in `kept`; of the budget three fits are one too many."""
    seeds = count(1)

    def fitted(parties, epsilon=1.0, budget=1.7, unit="user"):
        privacy = tacit.DP(epsilon, 1e-6, unit, ledger=str(tmp_path / "kept"), budget=budget)
        return tacit.Bias(privacy=privacy, seed=next(seeds)).fit(parties)

    return fitted


def divided(into: int, by: str = "user", ratings: Ratings = RATINGS, seed: int = 7):
    return tacit.partition(ratings, into=into, by=by, seed=seed)


def some(first: int, last: int) -> Ratings:
    return RATINGS.select_users(np.arange(first, last))


def releases(folder) -> dict[str, int]:
    found = {}
    for path in sorted(folder.glob("*.sqlite")):
        with closing(Ledger.open(path)) as ledger:
            found[path.stem] = len(ledger.rows())
    return found


def test_users_do_not_get_a_third_release_by_way_of_another_division(fit, tmp_path):
    """Two parties, one, two: each ledger alone would have let all three fits through."""
    fit(divided(2))
    before = releases(tmp_path / "kept")
    with pytest.raises(PrivacyRefused, match=r"party-1 would hold \d+ persons .* the ledger of party-2") as refused:
        fit(divided(1))
    assert "divide the data as before" in str(refused.value)
    assert releases(tmp_path / "kept") == before
    fit(divided(2), epsilon=0.5)
    with pytest.raises(PrivacyRefused):
        fit(divided(2, seed=8), epsilon=0.1)


def by_hand(*spans: tuple[int, int]):
    """Parties with those users each."""
    whole = divided(len(spans))
    shares = tuple(
        Share(f"party-{k}", some(*span), np.arange(*span), whole.shares[0].items, f"party-{k}")
        for k, span in enumerate(spans, start=1)
    )
    return type(whole)(**{**vars(whole), "shares": shares})


def test_one_person_who_moved_is_enough_to_refuse(fit):
    fit(by_hand((0, 30), (30, 60)), epsilon=0.2)
    with pytest.raises(PrivacyRefused, match=r"party-1 would hold 1 person with releases in the ledger of party-2"):
        fit(by_hand((0, 31), (31, 60)), epsilon=0.2)


def test_rosters_may_grow_and_shrink(fit, tmp_path):
    """Whoever joins is bound nowhere, however many they are; whoever leaves is in no party."""
    fit(by_hand((0, 10), (30, 40)), epsilon=0.2)
    fit(by_hand((0, 30), (30, 60)), epsilon=0.2)
    fit(by_hand((25, 30), (30, 60)), epsilon=0.2)
    with closing(Ledger.open(tmp_path / "kept" / "party-1.sqlite")) as ledger:
        assert len(ledger.known_people(map(str, RATINGS.user_ids.ids))) == 30


def test_people_whose_ledger_holds_nothing_that_cost_may_move(fit, tmp_path):
    with closing(Ledger(tmp_path / "kept" / "party-2.sqlite", "party-2")) as ledger:
        ledger.bind_people(str(user) for user in RATINGS.user_ids.ids)
    fit(divided(1))


def test_parties_with_the_same_users_stay_the_same_ones(fit):
    """Every ledger knows all of a user's past, so none may be new among old ones, and none may be left out."""
    fit(divided(2, "item"), epsilon=0.1)
    fit(divided(2, "item", seed=8), epsilon=0.1)
    with pytest.raises(PrivacyRefused, match="party-3 would hold 60 persons"):
        fit(divided(3, "item"), epsilon=0.1)
    with pytest.raises(PrivacyRefused, match=r"party-1 would hold 60 persons .* of party-2"):
        fit(divided(1, "item"), epsilon=0.1)


def test_a_ledger_that_is_bound_and_holds_less_than_another_does_not_know_the_past(fit, tmp_path, monkeypatch):
    """A run that ended before its first release binds ledgers; other divisions then charge some of them alone."""
    with monkeypatch.context() as cut:
        cut.setattr(InProcess, "deliver", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fit(divided(3, "item"), budget=1.0)
    fit(divided(1, "item"), budget=1.0)
    before = releases(tmp_path / "kept")
    with pytest.raises(PrivacyRefused, match="holds releases about the same users that the one of party-2 does not"):
        fit(divided(3, "item"), budget=1.0)
    assert releases(tmp_path / "kept") == before


def interrupted(*_request):
    raise KeyboardInterrupt


@pytest.mark.parametrize("by", ["user", "device"])
def test_ratings_that_were_charged_to_their_users_are_not_charged_anew_by_item(fit, by):
    fit(divided(1, by), unit="rating", epsilon=1.0, budget=1.0)
    with pytest.raises(PrivacyRefused, match="would hold 60 persons with releases in the ledger"):
        fit(divided(2, "item"), unit="rating", epsilon=1.0, budget=1.0)


def test_a_rating_stays_with_the_ledger_of_its_item(fit):
    fit(divided(2, "item"), epsilon=0.1, unit="rating")
    fit(divided(2, "item"), epsilon=0.1, unit="rating")
    with pytest.raises(PrivacyRefused, match=r"would hold \d items? with releases in the ledger"):
        fit(divided(2, "item", seed=8), epsilon=0.1, unit="rating")


@pytest.mark.parametrize("what", ["the folder", "one ledger"])
def test_an_old_copy_that_was_put_back_is_found_at_the_next_run(fit, tmp_path, what):
    kept, old = tmp_path / "kept", tmp_path / "old"
    fit(divided(2), epsilon=0.2)
    shutil.copytree(kept, old)
    fit(divided(2), epsilon=0.2)
    if what == "the folder":
        shutil.rmtree(kept)
        shutil.copytree(old, kept)
    else:
        shutil.copy(old / "party-2.sqlite", kept)
    with pytest.raises(TamperingFound, match="an old ledger was put back"):
        fit(divided(2), epsilon=0.2)


def test_an_old_copy_that_was_put_back_during_a_run_is_not_believed_after_it(fit, tmp_path, monkeypatch):
    from tacit.prepare import simulate

    kept, old, train = tmp_path / "kept", tmp_path / "old", simulate.train
    fit(divided(2), epsilon=0.2)
    shutil.copytree(kept, old)
    fit(divided(2), epsilon=0.2)

    def disturbed(*what, **how):
        shutil.copy(old / "party-2.sqlite", kept)
        return train(*what, **how)

    monkeypatch.setattr(simulate, "train", disturbed)
    fit(divided(2), epsilon=0.2)  # the coordinator of this run has no log of the one before
    monkeypatch.undo()
    with pytest.raises(TamperingFound, match="an old ledger was put back"):
        fit(divided(2), epsilon=0.2)


def test_a_ledger_that_is_gone_is_missed(fit, tmp_path):
    fit(divided(2), epsilon=0.2)
    (tmp_path / "kept" / "party-2.sqlite").unlink()
    (tmp_path / "kept" / "party-2.key").unlink()
    with pytest.raises(TamperingFound, match=r"ledger of party-2 is missing.*kept\.heads\.json"):
        fit(divided(2), epsilon=0.2)
    (tmp_path / "kept.heads.json").unlink()
    fit(divided(2), epsilon=0.2)


def test_a_ledger_that_held_nothing_is_not_missed(fit, tmp_path):
    Ledger(tmp_path / "kept" / "party-9.sqlite", "party-9").close()
    fit(divided(2), epsilon=0.2)
    (tmp_path / "kept" / "party-9.sqlite").unlink()
    fit(divided(2), epsilon=0.2)


def test_after_a_kill_the_log_of_the_run_knows_the_heads(tmp_path):
    log = tmp_path / "log.sqlite"
    with closing(CallLog(log)) as calls:  # an answer of party-2 was lost in the second call
        for number, told in enumerate(({"party-1": "a", "party-2": "b"}, {"party-1": "c"})):
            calls.keep(str(number), "request", Logged(b"", (), told))
    CallLog(tmp_path / "another.sqlite").close()
    heads = Heads(tmp_path / "heads.json")
    assert heads.known() == {}
    heads.begin(log, {"party-1": "key of party-1"})  # and nothing came after it
    assert Heads(heads.path).known() == {"key of party-1": "c", "party-2": "b"}
    heads.begin(tmp_path / "another.sqlite")
    assert heads.known() == {"key of party-1": "c", "party-2": "b"}
    heads.end({"party-2": "d"})
    assert heads.known() == {"key of party-1": "c", "party-2": "d"}
    assert heads.path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"heads": 3, "who": {}, "log": null}', "\0"])
def test_heads_that_cannot_be_read_are_tampering(tmp_path, text):
    (tmp_path / "heads.json").write_text(text)
    with pytest.raises(TamperingFound, match="was damaged or changed"):
        Heads(tmp_path / "heads.json").known()


def test_a_damaged_log_is_tampering_and_a_place_to_write_is_needed(tmp_path):
    CallLog(tmp_path / "log.sqlite").close()
    heads = Heads(tmp_path / "heads.json")
    heads.begin(tmp_path / "log.sqlite")
    (tmp_path / "log.sqlite").write_bytes(b"no database" * 100)
    with pytest.raises(TamperingFound, match="damaged"):
        heads.known()
    (tmp_path / "log.sqlite").unlink()
    with pytest.raises(TamperingFound, match="is missing, so an old copy"):
        heads.known()
    with pytest.raises(UsageError, match="cannot be stored"):
        Heads(tmp_path / "nowhere" / "heads.json").end({})


def test_two_runs_at_once_do_not_share_ledgers(fit, tmp_path):
    from tacit.boundary.lock import exclusive

    with (
        exclusive(tmp_path / "kept", "the ledgers", "go away"),
        pytest.raises(PeerFailed, match="Another process is at work on the ledgers"),
    ):
        fit(divided(2))
    fit(divided(2))
