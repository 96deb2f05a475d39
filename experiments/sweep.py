"""Many runs of one run file, each with some changes and several seeds, into one long table.

    python -m experiments.sweep clipping --data ml-1m --out docs/results/p0.csv

A sweep that was interrupted goes on where it stopped: rows that are in the table are not run again.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from os import SEEK_END
from pathlib import Path
from statistics import fmean
from time import perf_counter
from types import MappingProxyType
from typing import Any

import numpy as np

from tacit.boundary.release import Kind
from tacit.config import RunFile
from tacit.experiment import recorded
from tacit.guarantee import Guarantee
from tacit.partition import Setting
from tacit.prepare.loaded import LoadedRun, prepare
from tacit.prepare.plan import Plan
from tacit.prepare.simulate import Trained, train
from tacit.report.folder import RunFolder

HERE = Path(__file__).parent
COLUMNS = (
    *("sweep", "data", "setting", "variant", "unit", "epsilon", "parties", "rounds", "local_steps", "seed"),
    *("mse", "mse_shared", "true_epsilon", "multiplier", "sigma", "signal_to_noise", "rate", "seconds"),
    *("mse_start", "delta", "contributors", "noise", "void", "bytes_up"),
)

#: What stands for each data set: the sets at hand, and synthetic ratings of the shape of one that is not.
DATA: Mapping[str, Sequence[str]] = {
    "ml-1m": ("data.source=ml-1m",),
    "jester-1": ("data.source=jester-1",),
    "ml-10m-shape": ("data.source=demo", "data.users=69878", "data.items=10677", "data.ratings=10000000"),
}


@dataclass(frozen=True)
class Sweep:
    """One claim: a run file, the variants that are compared, what else is varied, and what stands for each data set."""

    file: str
    variants: Mapping[str, Sequence[str]]
    axes: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    data: Mapping[str, Sequence[str]] = field(default_factory=lambda: DATA)

    def points(self, data: str, seeds: Sequence[int]) -> Iterator[tuple[str, RunFile]]:
        """Every run of the sweep: the variant's name and the resolved run file."""
        for (variant, changes), seed in itertools.product(self.variants.items(), seeds):
            for values in itertools.product(*self.axes.values()):
                axes = [f"{key}={value}" for key, value in zip(self.axes, values, strict=True)]
                yield variant, RunFile.read(HERE / f"{self.file}.toml", [*self.data[data], *axes, *changes], seed)


def run_sweep(
    name: str,
    sweep: Sweep,
    data: str,
    seeds: Sequence[int],
    table: Path,
    only: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> None:
    """Run what is missing of what `only` asks for, in an order in which data is loaded once."""
    done = {key(row) for row in read(table)}
    for variant, file in sorted(sweep.points(data, seeds), key=lambda point: _division(point[1])):
        row = {"sweep": name, "data": data, "variant": variant, **described(file)}
        if key(row) in done or any(row[column] not in wanted for column, wanted in only.items()):
            continue
        row.update(measured(file))
        append(table, row)
        print(
            f"{name} {data} {variant} ε={row['epsilon']} seed {row['seed']}: mse {row['mse']} ({row['seconds']} s)",
            flush=True,
        )


def described(file: RunFile) -> dict[str, Any]:
    """What is known of a run before it starts."""
    privacy = file.privacy
    return {
        "setting": file.partition.by,
        "unit": "" if privacy is None else privacy.unit,
        "epsilon": "" if privacy is None else f"{privacy.epsilon:g}",
        "parties": "" if file.partition.into is None else str(file.partition.into),
        "rounds": str(file.method.get("rounds", "")),
        "local_steps": str(file.method.get("local_steps", "")),
        "seed": str(file.seed),
    }


def measured(file: RunFile) -> dict[str, Any]:
    """One run: its error on the test set, before and after fine-tuning, and what its noise was."""
    began = perf_counter()
    prepared = _prepared(_division(file), file)
    own = _with(prepared, file)
    with (
        tempfile.TemporaryDirectory() as folder,
        RunFolder.make(Path(folder) / "run", own.run.method.name, file) as place,
    ):
        trained = train(
            own.run.named(place.run_id),
            own.parties,
            records=recorded(own, place),
            test=own.test if own.parties.setting is Setting.DEVICE else None,
        )
    test = own.test

    def error(predictor: Any) -> str:
        missed = predictor.predict(test.users, test.items) - test.values
        return f"{np.mean(np.square(missed, dtype=np.float64)):.5f}"

    row = {"mse": error(trained.predictor), "mse_shared": "", "seconds": f"{perf_counter() - began:.1f}"}
    if trained.before_fine_tuning is not None:
        row["mse_shared"] = error(trained.before_fine_tuning)
    plan, promised = own.run.plan, own.run.guarantee
    if isinstance(promised, Guarantee):
        first, terms = next(iter(plan.terms.steps.items()))
        row.update(
            true_epsilon=f"{promised.epsilon:.4f}",
            multiplier=f"{terms.multiplier:.5g}",
            sigma=f"{terms.sigma:.5g}",
            signal_to_noise=f"{plan.signal_to_noise()[first]:.4g}",
        )
        row.update(_watched(plan, trained))
    return row


def _watched(plan: Plan, trained: Trained) -> dict[str, str]:
    """What else the experimenter saw: the error before the first release, who stayed, what the sums carried."""
    (first, terms), entries = next(iter(plan.terms.steps.items())), trained.transcript.entries
    answered = [entry for entry in entries if entry.step == first and entry.direction == "up" and entry.copies]
    sums = {entry.round for entry in entries if entry.step == first and entry.party == "sum"}
    stayed = Counter[int]()
    for entry in answered:
        stayed[entry.round] += entry.copies if entry.status == "ok" else 0
    row = {"delta": f"{plan.delta:.3g}", "bytes_up": str(trained.transcript.meter.bytes_up)}
    starts = [glance.mse for glance in trained.history if glance.round == 0 and glance.mse is not None]
    if starts:
        row["mse_start"] = f"{starts[0]:.5f}"
    if terms.kind is Kind.SUM and stayed:
        kept = [count for round, count in stayed.items() if round in sums or not terms.sealed]
        noise = [plan.how.noise(terms.sigma, count) for count in kept]
        row["contributors"] = f"{fmean(stayed.values()):.1f}"
        row["void"] = str(len(stayed) - len(kept))
        row["noise"] = f"{fmean(noise):.5g}" if noise else ""
    return row


def _division(file: RunFile) -> str:
    """What decides who holds which ratings."""
    return repr((file.seed, file.data, file.split, file.partition))


@lru_cache(maxsize=1)
def _cached(division: str) -> list[LoadedRun]:
    return []


def _prepared(division: str, file: RunFile) -> LoadedRun:
    """Data, split and parties; the last ones are kept."""
    kept = _cached(division)
    if not kept:
        kept.append(prepare(file))
    return kept[0]


def _with(prepared: LoadedRun, file: RunFile) -> LoadedRun:
    """The same parties under another method or promise."""
    from dataclasses import replace

    from tacit.federation import Facts
    from tacit.prepare.run_file import prepared as prepared_run

    return replace(prepared, file=file, run=prepared_run(file, Facts.of(prepared.parties, file.seed)))


def key(row: Mapping[str, Any]) -> tuple[str, ...]:
    """What makes two rows the same run."""
    return tuple(str(row[name]) for name in COLUMNS[:10])


def read(table: Path) -> list[dict[str, str]]:
    """All rows of a table; none where there is no table yet."""
    if not table.exists():
        return []
    with table.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def append(table: Path, row: Mapping[str, Any]) -> None:
    """One more row, on disk before the next run starts; a table keeps the columns that it began with."""
    with table.open("a+", newline="", encoding="utf-8") as file:
        file.seek(0)
        begun = next(csv.reader(file), None)
        file.seek(0, SEEK_END)
        writer = csv.DictWriter(file, begun or COLUMNS, restval="", extrasaction="ignore", lineterminator="\n")
        if begun is None:
            writer.writeheader()
        writer.writerow(row)


def main() -> None:
    from experiments.p0 import SWEEPS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", choices=sorted(SWEEPS), help="which claims")
    parser.add_argument("--data", choices=sorted(DATA), default="ml-1m")
    parser.add_argument("--seeds", type=int, nargs="+", default=[7, 8, 9])
    parser.add_argument("--out", type=Path, default=Path("docs/results/p0.csv"))
    parser.add_argument("--only", nargs="+", default=[], metavar="COLUMN=A,B", help="as in unit=rating epsilon=1,4")
    asked = parser.parse_args()
    only = {column: values.split(",") for column, _, values in (text.partition("=") for text in asked.only)}
    for name in asked.names:
        run_sweep(name, SWEEPS[name], asked.data, asked.seeds, asked.out, only)


if __name__ == "__main__":
    main()
