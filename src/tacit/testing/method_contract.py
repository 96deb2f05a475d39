"""What every method must do, as tests to inherit."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from tacit.boundary.release import Kind
from tacit.boundary.wire import decode
from tacit.config import RunFile
from tacit.data.ratings import Ratings
from tacit.data.synthetic import demo
from tacit.errors import PrivacyRefused, UsageError
from tacit.federation import Facts
from tacit.federation.role import all_steps
from tacit.methods import Sides, chosen
from tacit.model import Model
from tacit.partition import Parties, Setting, partition
from tacit.prepare.prepared import PreparedRun
from tacit.prepare.run_file import prepared
from tacit.prepare.simulate import Trained, train
from tacit.testing.worlds import lonely

BY = {Setting.HORIZONTAL: ("user", 3), Setting.VERTICAL: ("item", 3), Setting.DEVICE: ("device", 2)}

#: What `refused` is for a method that promises nothing.
NO_GUARANTEE = dict.fromkeys(product(BY, ("plain", "secagg")), "carries no guarantee")


class Contract:
    """One method, quick parameters for it, and small worlds to try it on: what contracts of methods are made of."""

    name: ClassVar[str]
    parameters: ClassVar[dict[str, Any]] = {}
    seeded: ClassVar[bool] = True
    never: ClassVar[dict[str, tuple[str, ...]]] = {}
    private: ClassVar[dict[str, dict[str, Any]]] = {}
    refused: ClassVar[dict[tuple[str, str], str]] = {}

    def ratings(self) -> Ratings:
        return demo(users=60, items=40, ratings=900)

    def parties(self, setting: Setting, ratings: Ratings | None = None, seed: int = 7) -> Parties:
        by, into = BY[setting]
        return partition(self.ratings() if ratings is None else ratings, by=by, into=into, seed=seed)

    def sides(self) -> Mapping[Setting, Sides]:
        """By setting, the two sides of `fit`, which has no privacy, for feedback as the contract's."""
        (method, parameters), feedback = chosen({"name": self.name, **self.parameters}), self.ratings().feedback
        return method.run_with(parameters, feedback, private=False)[0].sides_for(feedback)

    def fit(self, parties: Parties, seed: int = 7, **options: Any) -> Trained:
        made = PreparedRun.of(*chosen({"name": self.name, **self.parameters}), Facts.of(parties, seed))
        return train(made, parties, **options)

    def pytest_generate_tests(self, metafunc: Any) -> None:
        """Every test that takes a setting runs in those that the method knows."""
        if "setting" in metafunc.fixturenames:
            metafunc.parametrize("setting", list(self.sides()))

    def file(self, setting: Setting, **sections: Any) -> RunFile:
        """A run file of this method over the contract's own ratings."""
        by, into = BY[setting]
        feedback = str(self.ratings().feedback)
        data = {"source": "demo", "users": 60, "items": 40, "ratings": 900, "feedback": feedback}
        method = {"name": self.name, **self.parameters}
        return RunFile.model_validate(
            {"data": data, "partition": {"by": by, "into": into}, "method": method, **sections}
        )

    def private_file(self, setting: Setting, aggregation: str) -> RunFile:
        """The same with seeded noise."""
        table = {"name": self.name, **self.private.get(setting, self.parameters)}
        privacy = {"privacy": {"epsilon": 8.0, "delta": 1e-4}, "aggregation": {"name": aggregation}}
        return self.file(setting, engine={"name": "flare", "seeded": True}, method=table, **privacy)


class MethodContract(Contract):
    """Subclass it under a name that starts with Test, name the method and give quick parameters.

    class TestSGDMF(MethodContract):
        name = "sgdmf"
        parameters = {"factors": 4, "rounds": 3, "local_steps": 2}

    Attributes
    ----------
    name, parameters : the method, and parameters that make it quick
    seeded : False where another seed changes no message
    never : names of blocks at home that may never leave, by setting
    private : by setting, the parameters of a private run, where it needs others
    refused : by setting and aggregation, why a private run cannot be: words of the refusal. All others must work
    ranks_by_rating : False where items are ranked by something else than the ratings that are predicted
    """

    ranks_by_rating: ClassVar[bool] = True

    # -- results ----------------------------------------------------------------------------------------------

    def test_it_predicts_every_pair_with_finite_numbers_on_the_scale(self, setting: Setting) -> None:
        ratings, predictor = self.ratings(), self.fit(self.parties(setting)).predictor
        scores = np.asarray(predictor.scores(np.arange(ratings.n_users)))
        assert scores.shape == (ratings.n_users, ratings.n_items)
        assert np.isfinite(scores).all()
        pairs = predictor.predict(ratings.users, ratings.items)
        assert np.isfinite(pairs).all()
        for rated in [scores] * self.ranks_by_rating + [pairs] if predictor.rates else []:
            assert ratings.scale.low - 1e-3 <= rated.min() <= rated.max() <= ratings.scale.high + 1e-3
        if self.ranks_by_rating:
            np.testing.assert_allclose(pairs, scores[ratings.users, ratings.items], atol=1e-4)

    def test_the_same_seed_gives_the_same_run(self, setting: Setting) -> None:
        first, second = (self.fit(self.parties(setting)) for _ in range(2))
        assert first.transcript.digest == second.transcript.digest
        every = np.arange(self.ratings().n_users)
        np.testing.assert_array_equal(first.predictor.scores(every), second.predictor.scores(every))

    def test_another_seed_gives_another_run(self, setting: Setting) -> None:
        parties = self.parties(setting)
        digests = {self.fit(parties, seed=seed).transcript.digest for seed in (7, 8)}
        assert len(digests) == (2 if self.seeded else 1)

    def test_the_order_of_the_input_does_not_matter(self, setting: Setting) -> None:
        ratings = self.ratings()
        back = np.arange(ratings.n_ratings)[::-1]
        table = ratings.to_arrow().take(back)
        turned = Ratings.from_columns(
            table["user"],
            table["item"],
            table["rating"],
            table["timestamp"],
            scale=ratings.scale,
            user_ids=ratings.user_ids,
            item_ids=ratings.item_ids,
            feedback=ratings.feedback,
        )
        digests = {self.fit(self.parties(setting, r)).transcript.digest for r in (ratings, turned)}
        assert len(digests) == 1

    def test_lonely_users_and_items_are_handled(self, setting: Setting) -> None:
        ratings = lonely(feedback=self.ratings().feedback)
        trained = self.fit(self.parties(setting, ratings))
        assert np.isfinite(np.asarray(trained.predictor.scores(np.arange(ratings.n_users)))).all()

    def test_one_user_is_a_party(self) -> None:
        ratings = demo(users=3, items=12, ratings=24, feedback=str(self.ratings().feedback))
        sides = self.sides()
        if Setting.HORIZONTAL not in sides and Setting.DEVICE not in sides:
            pytest.skip("this method divides items only")
        trained = self.fit(partition(ratings, into=3, by="user" if Setting.HORIZONTAL in sides else "device"))
        assert [member.member.users for member in trained.parties] == [1, 1, 1]
        assert np.isfinite(np.asarray(trained.predictor.scores(np.arange(3)))).all()

    def test_one_party_is_enough(self) -> None:
        by = "user" if Setting.HORIZONTAL in self.sides() else "item"
        assert self.fit(partition(self.ratings(), into=1, by=by)).rounds >= 1

    # -- what crosses -----------------------------------------------------------------------------------------

    def test_only_declared_steps_cross_and_each_says_what_it_is(self, setting: Setting) -> None:
        trained = self.fit(self.parties(setting))
        sides = self.sides()[setting]
        steps = all_steps(sides.party.steps, sides.roles)
        crossed = {entry.step for entry in trained.transcript.entries}
        assert crossed <= steps.keys()
        assert all(len(step.what) > 10 for step in steps.values())

    def test_what_must_stay_at_home_stays(self, setting: Setting, tmp_path: Path) -> None:
        trained = self.fit(self.parties(setting), payloads=tmp_path)
        kept = [
            np.ascontiguousarray(member.home[block]).tobytes()
            for member in trained.parties
            for block in self.never.get(setting, ())
        ]
        messages = [path.read_bytes() for path in tmp_path.iterdir()]
        assert messages
        assert not any(block in message for block in kept for message in messages)

    def test_no_user_id_crosses(self, setting: Setting, tmp_path: Path) -> None:
        ratings = self.ratings()
        self.fit(self.parties(setting), payloads=tmp_path)
        ids = [str(i).encode() for i in ratings.user_ids.ids if len(str(i)) > 2]
        assert ids
        headers = [_header(path.read_bytes()) for path in tmp_path.iterdir()]
        assert not any(b'"' + i + b'"' in header for i in ids for header in headers)

    def test_a_party_speaks_of_its_own_ratings_alone(self, setting: Setting, tmp_path: Path) -> None:
        """In the first exchange, changing one party's ratings changes nothing in what the others send."""
        parties = self.parties(setting)
        first = parties[0].ratings
        changed = replace(first, values=(first.scale.low + first.scale.high - first.values).astype(np.float32))
        others = replace(parties, shares=(replace(parties[0], ratings=changed), *parties[1:]))
        sent = []
        for number, these in enumerate((parties, others)):
            self.fit(these, payloads=tmp_path / str(number))
            paths = sorted((tmp_path / str(number)).glob("*-up-*"))
            call = paths[0].name.split("-")[0]
            sent.append({p.name: p.read_bytes() for p in paths if p.name.startswith(call)})
        assert sent[0].keys() == sent[1].keys()
        same = [name for name in sent[0] if not name.endswith("-up-party-1.tct")]
        assert same
        assert all(sent[0][name] == sent[1][name] for name in same)

    def test_nothing_claims_a_guarantee_without_a_mechanism(self, setting: Setting) -> None:
        assert self.fit(self.parties(setting)).model.stamp == "NON-PRIVATE"

    def test_data_that_leaves_as_it_is_says_so(self, setting: Setting, tmp_path: Path) -> None:
        """A step that is declared public sends no array."""
        trained = self.fit(self.parties(setting), payloads=tmp_path)
        steps = self.sides()[setting].party.steps
        public = {name for name, step in steps.items() if step.kind is Kind.PUBLIC}
        calls = {entry.call for entry in trained.transcript.entries if entry.step in public}
        for path in tmp_path.glob("*-up-*"):
            if int(path.name.split("-")[0]) in calls:
                assert decode(path.read_bytes()) == {"done": True}

    # -- manners ----------------------------------------------------------------------------------------------

    def test_the_shared_model_survives_the_disk(self, setting: Setting, tmp_path: Path) -> None:
        model = self.fit(self.parties(setting)).model
        loaded = Model.load(model.save(tmp_path / "model"))
        values = self.ratings().values
        history = {model.item_ids[0].item(): float(values.max()), model.item_ids[3].item(): float(values.min())}
        assert loaded.recommend(history, n=5) == model.recommend(history, n=5)
        assert loaded.item_ids == model.item_ids

    def test_unknown_parameters_are_refused_before_data_is_touched(self) -> None:
        with pytest.raises(UsageError, match="no_such_parameter"):
            chosen({"name": self.name, **self.parameters, "no_such_parameter": 1})

    def test_parameters_round_trip_and_are_frozen(self) -> None:
        method, parameters = chosen({"name": self.name, **self.parameters})
        again = method.parameters.model_validate(parameters.model_dump())
        assert again == parameters
        assert again.hash == parameters.hash
        for name in type(parameters).model_fields:
            with pytest.raises(ValueError, match="frozen"):
                setattr(parameters, name, getattr(parameters, name))

    # -- privacy --------------------------------------------------------------------------------------------------

    def test_private_runs_that_cannot_be_are_refused_for_the_listed_reason(self, setting: Setting) -> None:
        listed = {how: why for (where, how), why in self.refused.items() if where == setting}
        for aggregation, why in listed.items():
            file, facts = self.private_file(setting, aggregation), Facts.of(self.parties(setting), 7)
            with pytest.raises((PrivacyRefused, UsageError), match=why):
                prepared(file, facts)
        assert all(why for why in listed.values())


def _header(message: bytes) -> bytes:
    return message[8 : 8 + int.from_bytes(message[4:8], "little")]
