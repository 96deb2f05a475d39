"""The floor of a run: the metrics of `bias` on the same parties, at the same guarantee, on the same test ratings.

A model that does not beat item and user biases has learned nothing, so every run is shown with its floor. The floor is
for simulations, where the experimenter holds all data: its ledgers are temporary, no budget is charged, nothing of it
is released, and a deployment has no floor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from tacit.data.ratings import Ratings
from tacit.errors import TacitError
from tacit.evaluate.evaluation import Evaluation, evaluate_as_configured
from tacit.evaluate.paired import compare_paired
from tacit.methods import find
from tacit.prepare.loaded import LoadedRun
from tacit.prepare.progress import ProgressLine
from tacit.prepare.simulate import Trained, train, with_newcomers
from tacit.prepare.simulated_ledgers import Records


def bias_floor(
    prepared: LoadedRun, evaluation: Evaluation | None = None, make_line: Callable[[], ProgressLine] | None = None
) -> dict[str, Any] | None:
    """The floor of a run, for about.json; None for `bias` itself and for feedback that it cannot learn from.

    `evaluation` is of the run's final model, to compare the two user by user; `make_line` makes a progress line.

    Returns
    -------
    `method`, `metrics`, `intervals` and `guarantee` as in a summary; `user_means`, the means over users of every
    metric; `paired`, by metric, the run minus the floor. If the floor failed, `missing` has the reason.
    """
    method = find("bias")
    if prepared.run.method.name == method.name or prepared.parties.feedback not in method.feedback:
        return None
    try:
        line = None if make_line is None else make_line()
        if line is not None:
            line.phase("training")
        floor = prepared.run.comparison(method.name)
        with TemporaryDirectory(prefix="tacit-floor-") as folder:
            records = Records.unlimited(floor, Path(folder))
            shown = None if line is None else prepared.test
            trained = train(floor, prepared.parties, records=records, test=shown, watch=line)
        mine = _judged(prepared, trained, None if line is None else partial(line.phase, "evaluating"))
    except TacitError as error:
        return {"method": method.name, "metrics": {}, "missing": str(error)}
    return {
        "method": method.name,
        "metrics": mine.metrics,
        "intervals": {name: list(interval) for name, interval in mine.intervals.items()},
        "guarantee": floor.guarantee.to_json(),
        "user_means": {name: float(np.nanmean(values)) for name, values in mine.per_user.items()},
        "paired": {} if evaluation is None else _paired(evaluation, mine, prepared.test),
    }


def _judged(prepared: LoadedRun, trained: Trained, progress: Callable[[float], None] | None) -> Evaluation:
    predictor = with_newcomers(trained, prepared.support, prepared.test.n_users)
    file = prepared.file
    return evaluate_as_configured(predictor, prepared.test, prepared.train, file.evaluate, file.seed, progress)


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
