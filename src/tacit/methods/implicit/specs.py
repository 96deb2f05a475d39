"""What `implicit` releases: one release of gradients an epoch, as a sum or as k reports of every device.

ε of the reports. A report of ε₀ by itself is one of k an epoch and k·T a run: a device that sends all of them has
k·T·ε₀-local DP. The paper states k·ε₀, which is one epoch's. Through a shuffler each of the k·T indices of a report is
one shuffle among all honest devices (Feldman, McMillan and Talwar 2021), and these compose.
"""

import math
from collections.abc import Sequence

from tacit.boundary.cell_reports import CellReports
from tacit.boundary.item_gradients import ItemGradients
from tacit.boundary.spec import Spec
from tacit.methods.context import Context
from tacit.methods.implicit.parameters import ImplicitParameters
from tacit.methods.method import Forecast


def specs(parameters: ImplicitParameters, context: Context) -> Sequence[Spec]:
    """T sums, in each of which a user's part has length 1 where something is promised; or T times k reports.

    Forecast: an item's sum over users whose parts have length 1 is Σ 1/√n_u over those who took it, about √(|Ω|·n)/m.
    Of reports: a cell of the summed gradient, in units in which its noise is √n/ε₀: those of 2√(m·F/k), as
    long as ε₀ is not much above 1. An item's cell is about half of what everybody who took it would add.
    """
    facts, p = context.facts, parameters
    if p.reports is None:
        signal = math.sqrt(facts.ratings * facts.users) / facts.items
        query = ItemGradients(p.confidence, bounded=context.target is not None)
        return [Spec("gradients", query, releases=p.rounds, signal=signal / math.sqrt(p.factors))]
    reported = CellReports((facts.items, p.factors), p.confidence, p.reports, p.mechanism)
    cell = facts.ratings / facts.items * (1 + p.confidence) / 4
    signal = cell / (2 * math.sqrt(reported.cells / p.reports))
    return [Spec("report", reported, releases=p.rounds, answers=p.reports, signal=signal)]


def forecast(parameters: ImplicitParameters, context: Context) -> Forecast:
    """A device's message holds all of its reports."""
    return Forecast(sizes={"any": parameters.reports or 1})


def per_report(parameters: ImplicitParameters, context: Context) -> float | None:
    """The paper's ε is that of one report, whatever k and T are: z = 1/ε₀. It has none for sums."""
    if parameters.reports is None or context.target is None:
        return None
    return 1 / context.target.epsilon
