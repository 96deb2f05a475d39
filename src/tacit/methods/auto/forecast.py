"""How long a run of `auto` takes, for plans."""

from __future__ import annotations

from tacit.methods.auto.parameters import AutoParameters
from tacit.methods.auto.shared import basis_features
from tacit.methods.auto.specs import ROUNDS
from tacit.methods.context import Context
from tacit.methods.method import Forecast


def forecast(parameters: AutoParameters, context: Context) -> Forecast:
    """One round for item means, and ROUNDS each for residuals and for factors."""
    catalogue = context.facts.catalogue
    features = 0 if catalogue is None else basis_features(catalogue).shape[1]
    later = sum(stage in parameters.shares for stage in ("residuals", "factors"))
    return Forecast(rounds=1 + ROUNDS * later, sizes={"basis": 3 + features})
