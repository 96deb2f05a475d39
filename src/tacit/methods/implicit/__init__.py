"""`implicit`: federated matrix factorisation of implicit feedback, whose item gradients leave as sums or as reports.

Minto, Haller, Haddadi and Livshits. Stronger Privacy for Federated Collaborative Filtering With Implicit Feedback.
RecSys 2021. Its privacy analysis is corrected: what holds is stated for all reports of a device, over all epochs, and
not for one report alone; see tacit.boundary.cell_reports and `specs`.
"""

from tacit.data.ratings import Feedback
from tacit.methods.implicit.coordinator import ImplicitCoordinator
from tacit.methods.implicit.parameters import ImplicitParameters
from tacit.methods.implicit.party import ImplicitParty
from tacit.methods.implicit.specs import forecast, per_report, specs
from tacit.methods.method import Method, Sides
from tacit.partition import Setting

SIDES = Sides(ImplicitCoordinator, ImplicitParty, specs, forecast=forecast)

IMPLICIT = Method(
    name="implicit",
    title="Federated matrix factorisation of implicit feedback",
    what=(
        "Everybody's own factors are solved at home, in closed form, from what they took and the items' factors. The "
        "item gradients leave as a sum over users, or each device reports some random cells of its own by itself; the "
        "coordinator descends along their mean."
    ),
    parameters=ImplicitParameters,
    sides={Setting.HORIZONTAL: SIDES, Setting.DEVICE: SIDES},
    feedback=frozenset({Feedback.IMPLICIT, Feedback.COUNT}),
    claim=per_report,
)
