"""`Fitted`: what a party predicts with at home."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tacit.model import forms
from tacit.model.forms import Form


@dataclass(frozen=True, eq=False)
class Fitted:
    """A form, and the state of every user; states: (n, k). Rows and columns are those of the training ratings."""

    form: Form
    states: np.ndarray

    @classmethod
    def alike(cls, form: Form, users: int) -> Fitted:
        """So many users of a form in which they have no state of their own."""
        return cls(form, np.zeros((users, 0), dtype=form.dtype))

    @property
    def rates(self) -> bool:
        """Whether predictions lie on the rating scale, or only rank."""
        return forms.rates(self.form)

    def predict(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        """The rating of each pair; where the form only ranks, the score that it ranks by. (k,) float32."""
        rated = self.form.rate(self.states, users, items)
        if rated is not None:
            return rated
        some, rows = np.unique(users, return_inverse=True)
        return self.form.rank(self.states, some)[rows, items]

    def scores(self, users: np.ndarray) -> np.ndarray:
        """What every item is ranked by, one row per user; (len(users), m) float32."""
        return self.form.rank(self.states, users)
