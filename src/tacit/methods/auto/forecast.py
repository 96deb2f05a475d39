"""How long a run of `auto` takes, for plans."""

from __future__ import annotations

from tacit.data.ratings import Feedback
from tacit.guarantee import Unit
from tacit.methods.auto.parameters import AutoParameters
from tacit.methods.auto.shared import basis_features
from tacit.methods.auto.specs import ROUNDS
from tacit.methods.context import Context
from tacit.methods.method import Forecast

LEFT_OUT = "Pairs and the vote are left out: at this epsilon and size they would be noise;"


def forecast(parameters: AutoParameters, context: Context) -> Forecast:
    """One round for item means, and ROUNDS each for residuals and for factors."""
    catalogue = context.facts.catalogue
    features = 0 if catalogue is None else basis_features(catalogue).shape[1]
    later = sum(stage in parameters.shares for stage in ("residuals", "factors"))
    return Forecast(1 + ROUNDS * later, sizes={"basis": 3 + features}, notes=_notes(parameters, context))


def _notes(parameters: AutoParameters, context: Context) -> tuple[str, ...]:
    """That the ranking does without pairs, where they were left out because noise would hide them."""
    asked = parameters.objective == "ranking" and context.unit is Unit.USER and context.target is not None
    if not asked or parameters.head:
        return ()
    if context.facts.feedback is Feedback.IMPLICIT:
        return (f"{LEFT_OUT} recommend ranks by popularity.",)
    return (
        f"{LEFT_OUT} recommend ranks by popularity and tastes. For ranking alone, `ease` does better at this size.",
    )
