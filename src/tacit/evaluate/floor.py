"""The floor of a run: what `bias` reaches on the same parties, at the same guarantee, on the same test ratings.

A model with factors that does not beat item and user biases has learned nothing from its noise but noise, so every run
is drawn beside its floor. The floor is the experimenter's, who holds all parties' data in a simulation: its ledgers are
in a folder that is removed, no budget is charged, nothing of it is released, and a deployment has none.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import numpy as np

from tacit.boundary.protection import Budget
from tacit.config import PrivacySection, RunFile
from tacit.data.ratings import Ratings
from tacit.engine.simulate import Phase, Safeguards, Trained, train, with_newcomers
from tacit.errors import TacitError
from tacit.evaluate.evaluation import Evaluation, evaluate_as_asked
from tacit.evaluate.paired import compare_paired
from tacit.methods import Method, chosen
from tacit.methods.plan import Plan, make_plan
from tacit.partition import Parties, Setting


class Prepared(Protocol):
    """What a run had at hand: its file and method, its parties, the parts of its data, and its plan."""

    @property
    def file(self) -> RunFile: ...
    @property
    def method(self) -> Method: ...
    @property
    def parties(self) -> Parties: ...
    @property
    def train(self) -> Ratings: ...
    @property
    def test(self) -> Ratings: ...
    @property
    def support(self) -> Ratings | None: ...
    @property
    def plan(self) -> Plan | None: ...


def bias_floor(
    prepared: Prepared, evaluation: Evaluation | None = None, phase: Phase | None = None
) -> dict[str, Any] | None:
    """The floor of a run, for about.json; None for `bias` itself and for feedback that it cannot learn from.

    Parameters
    ----------
    prepared : the run
    evaluation : of the run's final model; with it the two are compared user by user
    phase : hears what is being done, and which part of that is done

    Returns
    -------
    `method`, `metrics`, `intervals` and `guarantee` as in a summary; `user_means`, the means over users of every
    metric; `paired`, by metric, the run minus the floor. Where the floor could not be had, `missing` says why.
    """
    method, _parameters = chosen({"name": "bias"})
    if prepared.method.name == method.name or prepared.parties.feedback not in method.feedback:
        return None
    try:
        if phase is not None:
            phase("training bias, to compare with", None)
        trained, plan = _trained(prepared, method)
        mine = _judged(prepared, trained, None if phase is None else partial(phase, "evaluating bias"))
    except TacitError as error:
        return {"method": method.name, "metrics": {}, "missing": str(error)}
    return {
        "method": method.name,
        "metrics": mine.metrics,
        "intervals": {name: list(interval) for name, interval in mine.intervals.items()},
        "guarantee": None if plan is None else plan.terms.guarantee.to_json(),
        "user_means": {name: float(np.nanmean(values)) for name, values in mine.per_user.items()},
        "paired": {} if evaluation is None else _paired(evaluation, mine, prepared.test),
    }


def _trained(prepared: Prepared, method: Method) -> tuple[Trained, Plan | None]:
    """`bias` over the run's parties, under the run's guarantee if it has one."""
    file, parameters = prepared.file, method.parameters()
    plan = _plan(prepared, method)
    with TemporaryDirectory(prefix="tacit-floor-") as folder:
        guards = None
        if plan is not None:
            guards = Safeguards(
                plan=plan,
                run=secrets.token_hex(16),
                ledgers=Path(folder),
                budget=Budget(math.inf, plan.delta),
            )
        dropout = file.aggregation.dropout
        trained = train(method, parameters, prepared.parties, seed=file.seed, dropout=dropout, safeguards=guards)
    return trained, plan


def _plan(prepared: Prepared, method: Method) -> Plan | None:
    """The same ε, δ and unit, soundly accounted; None for a run without privacy.

    Where a run asked for a paper's formulas, the floor gets the ε that truly holds. Where items are divided, `bias` has
    no sum to protect, and every silo's noise is its own whatever the run's aggregation.
    """
    if prepared.plan is None or prepared.file.privacy is None:
        return None
    asked, stated = prepared.file.privacy, prepared.plan.terms.guarantee
    other = stated.claimed_epsilon is not None and math.isfinite(stated.epsilon)
    privacy = PrivacySection(epsilon=stated.epsilon if other else asked.epsilon, delta=stated.delta, unit=asked.unit)
    here = prepared.plan.situation
    situation = replace(here, sealed=here.sealed and here.setting is not Setting.VERTICAL)
    facts, parameters = prepared.plan.facts, method.parameters()
    return make_plan(method.name, method.schedule, parameters, privacy, facts, situation, stated.simulated)


def _judged(prepared: Prepared, trained: Trained, progress: Callable[[float], None] | None) -> Evaluation:
    predictor = with_newcomers(trained, prepared.support, prepared.test.n_users)
    file = prepared.file
    return evaluate_as_asked(predictor, prepared.test, prepared.train, file.evaluate, file.seed, progress)


def _paired(run: Evaluation, floor: Evaluation, test: Ratings) -> dict[str, Mapping[str, Any]]:
    """The run against the floor, user by user: run − floor by squared error, or by NDCG where a run only ranks."""
    both = [metric for metric in run.per_user if metric in floor.per_user]
    name = "mse" if "mse" in both else next((metric for metric in both if metric.startswith("ndcg")), None)
    if name is None:
        return {}
    weights = test.counts.astype(np.float64) if name == "mse" else None
    result = compare_paired(run.per_user[name], floor.per_user[name], metric=name, weights=weights)
    interval = None if np.isnan(result.interval).any() else list(result.interval)
    return {
        name: {
            "users": result.users,
            "difference": result.difference,
            "interval": interval,
            "p_value": result.p_value,
            "share_better": result.share_better,
            "share_worse": result.share_worse,
        }
    }
