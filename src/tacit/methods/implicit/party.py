"""`implicit` at home: a user's factors in closed form, and what of the item gradients leaves."""

import numpy as np

from tacit.boundary import Release
from tacit.boundary.release import Kind
from tacit.federation import Floats, Party, Schema, step
from tacit.federation.messages import Ints
from tacit.methods.implicit.parameters import ImplicitParameters
from tacit.model import Fitted, Implicit

ITEMS = Schema(items=Floats("items", "factors"))


class ImplicitParty(Party):
    """A silo, or a cohort of devices; x_u = (VᵀC_uV + λI)⁻¹VᵀC_u·p_u is solved anew for every epoch's V (eq. 4)."""

    parameters: ImplicitParameters

    @step(
        Kind.SUM,
        takes=ITEMS,
        gives=Schema(items=Floats("items", "factors"), whole=Floats("triangle")),
        what="per item, how its factors should move for the users who took it, and how users' factors vary in all",
    )
    def gradients(self, items: np.ndarray) -> Release:
        """Eq. (5), summed over users."""
        return self.gate.sum(self.ratings, self._states(items), items)

    @step(
        Kind.REPORT,
        takes=ITEMS,
        gives=Schema(report=Ints("any")),
        what="some random cells of the device's item gradient, each with a randomised report of the number in it",
    )
    def report(self, items: np.ndarray) -> Release:
        """Eq. (5), by Algorithm 1."""
        return self.gate.report(self.ratings, self._states(items), items)

    @step(Kind.PUBLIC, takes=ITEMS, what="the word that the items' factors have arrived")
    def finish(self, items: np.ndarray) -> Release:
        self.home["items"] = items
        self.gate.store_private("users", self._states(items))
        return self.gate.public("done")

    def at_home(self, **shared: np.ndarray) -> Fitted:
        items = self._latest("items", shared)
        return Fitted(form(self.parameters, items), self._states(items) if shared else self.home["users"])

    def _states(self, items: np.ndarray) -> np.ndarray:
        """Every user's factors, from their own history alone."""
        ratings = self.ratings
        return form(self.parameters, items).fold_in(ratings.indptr, ratings.items, ratings.values)


def form(parameters: ImplicitParameters, items: np.ndarray) -> Implicit:
    """The model with these item factors."""
    return Implicit(items, parameters.confidence, parameters.regularization)
