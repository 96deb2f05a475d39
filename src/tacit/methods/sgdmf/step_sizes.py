"""Step sizes of SGDMF: rules from public quantities, never from data.

A step multiplies a sum of gradients over sampled ratings by c = γ_t/(η·|Ω|). Without noise the largest useful c is set
by curvature; with noise, by how far the noise of all steps together may carry a factor. How the constants were found:
docs/explanation/sgdmf-private-rates.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from tacit.data.public_facts import PublicFacts
from tacit.federation import Facts
from tacit.methods.initial import linear_decay
from tacit.methods.sgdmf.parameters import StepParameters
from tacit.methods.sgdmf.update_rule import DRIFT

#: The last rate as a part of the first.
LAST = 0.02

#: The drift of the κ last steps of a vertical run, which start from good item factors.
LAST_DRIFT = 0.25


@dataclass(frozen=True)
class Rates:
    """The sizes of a run's steps.

    Parameters
    ----------
    parameters, facts : as everywhere
    steps : how many steps there are
    noise : σ on each cell of an answer; 0 for none
    mixed : how many parties' noise a cell carries in the end
    drift : how far the noise of all steps may carry an entry of a factor, in parts of √(R/p), its size in a row of full
        length
    """

    parameters: StepParameters
    facts: Facts
    steps: int
    noise: float = 0.0
    mixed: int = 1
    drift: float = DRIFT

    def per_rating(self, step: int) -> float:
        """γ_t/(η·|Ω|): what one sampled rating's gradient is multiplied by."""
        return linear_decay(self.first, step, self.steps, LAST) / (self.parameters.eta * max(1, self.facts.ratings))

    def decay(self, step: int) -> float:
        """The part of every row that one step takes away."""
        return min(1.0, linear_decay(self.parameters.regularization, step, self.steps, LAST))

    @cached_property
    def first(self) -> float:
        """γ as given, or the smaller of what curvature and noise allow."""
        if self.parameters.rate is not None:
            return self.parameters.rate
        curved = curvature_limited_rate(self.facts, self.parameters.eta)
        return min(curved, self._drifting()) if self.noise > 0 else curved

    def _drifting(self) -> float:
        """The γ at which the noise of all steps would move an entry by drift·√(R/p).

        A cell moves by c·√s·σ·√steps if all steps are of size c and nothing holds it, since averaging s parties leaves
        √s of each one's noise once their gradients are added up.
        """
        entry = math.sqrt(self.facts.scale.span / self.parameters.factors)
        c = self.drift * entry / (self.noise * math.sqrt(self.mixed * self.steps))
        return c * self.parameters.eta * max(1, self.facts.ratings)


def curvature_limited_rate(facts: Facts, sampling: float) -> float:
    """γ = 4·min(η·n, m)/R.

    A sampled user's factors move by γ/(η·|Ω|) times a sum over her |Ω|/n ratings, of curvature ≤ 2R each; so the
    average user's step is stable for γ < η·n/R, and the average item's for γ < m/R. The first steps are larger than
    that, the last ones far smaller: embedding clipping bounds the first, and their noise is what finds good factors.
    The 4 was chosen on synthetic data and public sets; docs/results/foundation.md says how.
    """
    return 4.0 * min(sampling * facts.users, facts.items) / facts.scale.span


def typical_signal(parameters: StepParameters, facts: PublicFacts, rows: int, parties: int = 1) -> float:
    """The size of one cell of one step's gradient, over all silos: ratings looked at per row times what one adds.

    Looked at are those of sampled users, trimmed, or sampled ratings. One adds to a cell, typically, an error of R/4
    times a factor's entry as they start.
    """
    each, span = facts.ratings / facts.users / parties, facts.scale.span
    kept = each if parameters.trim is None else min(each, parameters.trim)
    looked_at = parameters.eta * facts.users * parties * kept
    return looked_at / rows * 2 * span / 4 * math.sqrt(0.6 * span / parameters.factors)
