"""`als` where items are divided: the mirror image. Items' posteriors stay at home, and sums over items leave.

Per user, the sums over a party's items of E[y·yᵀ] and r·E[y] determine, added up over parties, the user's posterior;
the sum of E[h·hᵀ] with h = (f_i, b_i, q_i) determines the items' prior. The coordinator finds users' posteriors and
both priors, parties their items' posteriors: sweep by sweep the same numbers as where users are divided. At the end
every party hands out the factors of its items, which the shared model consists of.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from tacit.boundary import Release
from tacit.boundary.release import Kind
from tacit.boundary.spec import Spec
from tacit.errors import PrivacyRefused
from tacit.federation import Federation, Floats, Party, Schema, step
from tacit.kernels.posteriors import moment_sums, posteriors
from tacit.methods.als.learner import ITEMS, items_joint, payload_of, started, users_updated
from tacit.methods.als.parameters import ALSParameters
from tacit.methods.als.priors import Prior, how_often, standardised
from tacit.methods.als.statistics import ByItem, Totals, Users, from_middle
from tacit.methods.context import Context
from tacit.methods.method import Coordinator
from tacit.model import Fitted, Model
from tacit.model.bayesian import Bayesian, History
from tacit.rng import derive

#: f_i begins with so many columns that counts determine: 1, log n_i and its square.
COUNTED = 3
#: Each sum of totals: ratings, their values, and log n_i to the powers 1, 2 and 4.
TOTALS = 5

PER_USER = {
    "moments": Floats("users", "pairs"),
    "targets": Floats("users", "factors"),
    "counts": Floats("users"),
    "squares": Floats("users"),
}
#: J = Σ_i E[h·hᵀ] in blocks: h = (what counts determine, public features, factors).
JOINT = {
    "counted": Floats(COUNTED, COUNTED),
    "counted_public": Floats(COUNTED, "features"),
    "counted_factors": Floats(COUNTED, "free"),
    "public_factors": Floats("features", "free"),
    "factors": Floats("free", "free"),
}
FINAL = Schema(
    states=Floats("users", "factors"),
    coefficients=Floats("user_features", "free"),
    precision=Floats("free", "free"),
    numbers=Floats(3),
)


class VerticalCoordinator(Coordinator):
    """Users' posteriors from everybody's sums, then items' at home, as often as there are sweeps."""

    parameters: ALSParameters

    def run(self, federation: Federation) -> Model:
        facts, n, d = self.facts, self.facts.users, (self.parameters.factors or 1) + 2
        width = facts.catalogue.width
        numbers = standard(federation.sum("count")["totals"].astype(np.float64), facts.items)
        form = started(facts.scale, float(numbers[0]), np.zeros(0), np.zeros(0), np.zeros((0, d - 2)))
        prior = Prior.unknown(COUNTED + width, d - 1, ITEMS)
        total = federation.sum("begin", numbers=numbers)
        noise = np.full(n, form.noise)
        for _t in federation.rounds(self.parameters.sweeps):
            users = self._users(form, total.blocks, noise)
            noise, weights = users.found.noise, (1 / users.found.noise).astype(np.float32)[:, None]
            found = {"means": users.found.states * weights, "moments": users.found.moments * weights}
            total = federation.sum("sweep", **found, **payload(prior))
            form = users_updated(form, users.about_priors(np.ones(n)), n)
            prior = Prior.fitted(self._joint(total.blocks), COUNTED + width, facts.items)
            federation.show(states=users.found.states)
        states = form.settled(self._users(form, total.blocks, noise).history)
        sent = {name: array for name, array in payload_of(form).items() if name in FINAL.fields}
        items, moments = np.empty((facts.items, d), np.float32), np.empty((facts.items, d * (d + 1) // 2), np.float32)
        for party, answer in federation.ask("finish", to=None, states=states, **sent).items():
            here = facts.member(party).columns
            items[here], moments[here] = answer["items"], answer["moments"]
        form = replace(form, items=items, moments=moments)
        return Model("als", facts.scale, facts.item_ids, form, states=states)

    def _users(self, form: Bayesian, total: Mapping[str, np.ndarray], noise: np.ndarray) -> Users:
        counts, sums = np.rint(total["counts"]).astype(np.int64), total["moments"]
        squares, features = total["squares"].astype(np.float64), form.features(counts, sums[:, 1 : form.width])
        history = History(counts, squares, sums, total["targets"], features)
        return Users(form, history, form.posterior(history, noise))

    def _joint(self, total: Mapping[str, np.ndarray]) -> np.ndarray:
        """J of all items; public features times each other are known."""
        blocks = {name: total[name].astype(np.float64) for name in JOINT}
        public = public_features(self.facts.catalogue.features())
        left, right = blocks["counted_public"], blocks["counted_factors"]
        return np.block(
            [
                [blocks["counted"], left, right],
                [left.T, public.T @ public, blocks["public_factors"]],
                [right.T, blocks["public_factors"].T, blocks["factors"]],
            ]
        )


@dataclass(frozen=True, eq=False)
class Sums:
    """Arrays as a party adds them up; who is absent from a sum over items is a party as a whole."""

    blocks: dict[str, np.ndarray]

    def totals(self, present: np.ndarray | None) -> dict[str, np.ndarray]:
        return self.blocks


class VerticalParty(Party):
    """A silo that holds some of the items, and finds their posteriors."""

    parameters: ALSParameters

    @cached_property
    def _by_item(self) -> ByItem:
        return ByItem.of(self.ratings)

    @cached_property
    def _counts(self) -> np.ndarray:
        return np.diff(self._by_item.indptr)

    @step(
        Kind.SUM,
        takes=Schema(),
        gives=Schema(totals=Floats(TOTALS)),
        what="how many ratings there are, their sum, and how unevenly they are divided among items, in three numbers",
    )
    def count(self) -> Release:
        v, often = from_middle(self.ratings.values, self.facts.scale), how_often(self._counts)
        sums = [len(v), v.sum(dtype=np.float64), often[:, 0].sum(), often[:, 1].sum(), np.square(often[:, 1]).sum()]
        return self.gate.sum(Sums({"totals": np.array(sums)}))

    @step(
        Kind.SUM,
        takes=Schema(numbers=Floats(TOTALS)),
        gives=Schema(**PER_USER),
        what="per user, how many ratings, and sums over rated items of products of the items' first factors",
    )
    def begin(self, numbers: np.ndarray) -> Release:
        facts, here, scale = self.facts, self.member.columns, self.facts.scale
        values = from_middle(self.ratings.values, scale)
        sums = np.bincount(self.ratings.items, weights=values, minlength=self.member.items)
        shape = (facts.items, self.parameters.factors or 1)
        normals = derive(facts.seed, "start", "items").standard_normal(shape)[here]
        form = started(scale, float(np.clip(numbers[0], -2, 2)), self._counts, sums, normals)
        self.gate.store_private("items", form.items)
        self.gate.store_private("moments", form.moments)
        self.home["numbers"] = numbers.copy()
        return self.gate.sum(Sums(self._per_user(form)))

    @step(
        Kind.SUM,
        takes=Schema(
            means=Floats("users", "factors"),
            moments=Floats("users", "pairs"),
            counted=Floats(COUNTED, "free"),
            public=Floats("features", "free"),
            precision=Floats("free", "free"),
        ),
        gives=Schema(**PER_USER, **JOINT),
        what=(
            "per user, the sums over their items of the items' second moments and of their ratings times the items' "
            "factors; and how items' factors and counts vary"
        ),
    )
    def sweep(self, **shared: np.ndarray) -> Release:
        by_item, features = self._by_item, self._features
        v = self._form.in_units(self.ratings.values)[by_item.entries]
        sums = moment_sums(by_item.indptr, by_item.users, v, shared["moments"], shared["means"])
        priors = features @ np.concatenate([shared["counted"], shared["public"]]).astype(np.float64)
        found = posteriors(*sums, np.ones(len(features)), 0, priors, shared["precision"])
        for name, array in zip(("items", "moments"), found, strict=True):
            self.gate.store_private(name, array)
        J, f = items_joint(features, *found), features.shape[1]
        c, p, z = slice(0, COUNTED), slice(COUNTED, f), slice(f, None)
        places = ((c, c), (c, p), (c, z), (p, z), (z, z))
        joint = {name: J[place] for name, place in zip(JOINT, places, strict=True)}
        return self.gate.sum(Sums({**self._per_user(self._form), **joint}))

    @step(
        Kind.DISCLOSE,
        takes=FINAL,
        gives=Schema(items=Floats("items", "factors"), moments=Floats("items", "pairs")),
        what="the factors of the party's items with their uncertainty, which the shared model consists of",
    )
    def finish(self, **shared: np.ndarray) -> Release:
        self.home.update({f"final_{name}": array.copy() for name, array in shared.items()})
        return self.gate.disclose(items=self.home["items"], moments=self.home["moments"])

    def at_home(self, **shared: np.ndarray) -> Fitted:
        if "final_states" not in self.home:
            return Fitted(self._form, shared["states"])
        centre, noise, doubt = (float(number) for number in self.home["final_numbers"])
        last = {name: self.home[f"final_{name}"] for name in ("coefficients", "precision")}
        form = replace(self._form, centre=centre, noise=noise, doubt=doubt, **last)
        return Fitted(form, self.home["final_states"])

    @property
    def _form(self) -> Bayesian:
        """The party's items, as users' sums and predictions need them."""
        none = np.zeros((0, self.home["items"].shape[1] - 2))
        form = started(self.facts.scale, float(self.home["numbers"][0]), np.zeros(0), np.zeros(0), none)
        return replace(form, items=self.home["items"], moments=self.home["moments"])

    @property
    def _features(self) -> np.ndarray:
        """f_i of the party's items, standardised over all items."""
        mean, deviation = self.home["numbers"][1:].astype(np.float64).reshape(2, 2)
        counted = standardised(how_often(self._counts), mean, deviation)
        public = public_features(self.facts.catalogue.features())[self.member.columns]
        return np.concatenate([np.ones((len(counted), 1)), counted, public], axis=1)

    def _per_user(self, form: Bayesian) -> dict[str, np.ndarray]:
        history = form.history(self.ratings.indptr, self.ratings.items, self.ratings.values)
        blocks = {"moments": history.sums, "targets": history.targets, "counts": history.counts}
        return {name: np.asarray(x, dtype=np.float32) for name, x in {**blocks, "squares": history.squares}.items()}


def public_features(features: np.ndarray) -> np.ndarray:
    """The whole catalogue's features, standardised; (m, d) float64."""
    wide = features.astype(np.float64)
    return standardised(wide, wide.mean(axis=0), wide.std(axis=0))


def standard(totals: np.ndarray, items: int) -> np.ndarray:
    """The ratings' centre, and means and deviations of log n_i and of its square; float32."""
    mean, fourth = totals[2:4] / items, totals[4] / items
    variance = np.maximum([mean[1] - mean[0] ** 2, fourth - mean[1] ** 2], 0)
    centre = np.clip(totals[1] / max(totals[0], 1.0), -2, 2)
    return np.array([centre, *mean, *np.sqrt(variance)], dtype=np.float32)


def payload(prior: Prior) -> dict[str, Any]:
    """The items' prior, as it travels."""
    coefficients, precision = prior.coefficients.astype(np.float32), prior.precision.astype(np.float32)
    return {"counted": coefficients[:COUNTED], "public": coefficients[COUNTED:], "precision": precision}


def specs(parameters: ALSParameters, context: Context) -> Sequence[Spec]:
    """Three kinds of sums, without noise."""
    if context.target is not None:
        raise PrivacyRefused(
            'Where items are divided, what leaves a party in "als" are sums of one user each, and noise that hides the '
            'user would leave nothing of them, so [privacy] cannot be kept; divide users, or choose "bias" or "sgdmf".'
        )
    return [Spec("count", Totals()), Spec("begin", Totals()), Spec("sweep", Totals(), releases=parameters.sweeps)]
