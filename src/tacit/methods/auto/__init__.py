"""`auto`: item means, tastes at home, residual means and item factors from a few noised sums: the best private model.

r̂_uj = base_j + v_j·z_u,    V = [1, popularity, base, public features]·metric + corrections

Without privacy there is no noise to economise on, and `auto` is `als` for ratings and `ease` for the ranking
(`methods.als_and_ease`).
"""

from tacit.data.ratings import Feedback
from tacit.methods.als_and_ease import ALS_AND_EASE, EASE_ALONE
from tacit.methods.auto import implicit
from tacit.methods.auto.coordinator import AutoCoordinator
from tacit.methods.auto.forecast import forecast
from tacit.methods.auto.parameters import AutoParameters
from tacit.methods.auto.party import AutoParty
from tacit.methods.auto.specs import specs
from tacit.methods.method import Method, Sides
from tacit.partition import Setting

__all__ = ["AUTO", "AutoCoordinator", "AutoParameters", "AutoParty"]

SIDES = Sides(AutoCoordinator, AutoParty, specs, forecast=forecast)
AUTO = Method(
    name="auto",
    title="Item means and tastes",
    what=(
        "A few noised sums over users give each item's mean, its popularity and, where there is budget for it, factors "
        "of its own; users fit tastes along public item features at home. Without privacy it is als for ratings, and "
        "ease for the ranking."
    ),
    parameters=AutoParameters,
    sides={Setting.HORIZONTAL: SIDES, Setting.DEVICE: SIDES},
    implicit={Setting.HORIZONTAL: implicit.SIDES, Setting.DEVICE: implicit.SIDES},
    without_privacy={
        Feedback.EXPLICIT: ALS_AND_EASE,
        Feedback.COUNT: ALS_AND_EASE,
        Feedback.IMPLICIT: EASE_ALONE,
    },
)
