"""The command line. Heavy imports wait until a command needs them, so that `tacit --help` answers at once."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from tacit.errors import TacitError

EXIT_CODES = (
    "Exit codes: 0 done · 2 bad usage or run file · 3 bad data · 4 privacy refused · 5 a party or peer failed · "
    "6 tampering found · 1 anything else."
)


class _Group(TyperGroup):
    """Commands whose errors are one sentence on stderr and a documented exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except TacitError as error:
            typer.echo(f"tacit: {error}", err=True)
            raise typer.Exit(error.exit_code) from None
        except BrokenPipeError:  # whoever read our output has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None
        except (typer.Exit, typer.Abort, KeyboardInterrupt):
            raise
        except Exception as error:
            if os.environ.get("TACIT_TRACEBACK") or type(error).__module__.split(".")[0] in (
                "click",
                "typer",
            ):
                raise
            typer.echo(
                f"tacit: something unforeseen happened: {type(error).__name__}: {error}. "
                "Set TACIT_TRACEBACK=1 and try again to see where.",
                err=True,
            )
            raise typer.Exit(1) from None


app = typer.Typer(
    cls=_Group,
    name="tacit",
    help="Tacit learns recommendations together and keeps the data apart.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Json = Annotated[bool, typer.Option("--json", help="Print exactly one JSON object on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress line.")]
Changes = Annotated[list[str] | None, typer.Option("--set", metavar="a.b=c", help="Change one value of the run file.")]
Seed = Annotated[int | None, typer.Option("--seed", min=0, help="Use another seed than the run file's.")]


def _version(wanted: bool) -> None:
    if wanted:
        from tacit import __version__

        typer.echo(f"tacit {__version__}")
        raise typer.Exit()


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def demo(
    out: Annotated[Path | None, typer.Option("--out", help="The folder for the three runs and the report.")] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Another seed, another demo.")] = 7,
    quiet: Quiet = False,
) -> None:
    """Train on demo data together, centrally and alone, and compare."""
    from tacit.cli.demo import demo as command

    command(out, seed, quiet)


@app.command()
def new(
    file: Annotated[Path, typer.Argument(help="Where to write it.")] = Path("run.toml"),
    source: Annotated[
        str, typer.Option("--source", help="A file, a folder, a named set, a database, or demo.")
    ] = "demo",
    setting: Annotated[str, typer.Option("--setting", help="horizontal, vertical or device.")] = "horizontal",
) -> None:
    """Write a run file to start from, with every key explained."""
    from tacit.cli.new import new as command

    command(file, source, setting)


@app.command()
def run(
    file: Annotated[Path, typer.Argument(help="The run file.")],
    changes: Changes = None,
    seed: Seed = None,
    out: Annotated[Path | None, typer.Option("--out", help="The run folder; default: a new one under ./runs.")] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            "--resume",
            metavar="RUN",
            help="Go on with this run folder; start it if missing, print it if finished.",
        ),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run one run file: data, split, partition, training, evaluation, report."""
    from tacit.cli.run import run as command

    command(file, changes or [], seed, out, resume, as_json, quiet)


@app.command()
def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="FILE|RUN…", help="Run files (they are run) or run folders.")],
    out: Annotated[Path, typer.Option("--out", help="Where to write the comparison.")] = Path("comparison.html"),
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare runs on the users that they share, with intervals and paired tests."""
    from tacit.cli.compare import compare as command

    command(runs, out, as_json, quiet)


@app.command()
def report(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
) -> None:
    """Write a run's report and privacy card anew, and say where they are."""
    from tacit.cli.report import report as command

    command(run)


@app.command()
def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A finished run's folder.")],
    to: Annotated[
        Path | None, typer.Option("--to", help="A folder that is not there yet; default: the run's name with -model.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a run's shared model as Parquet, with its stamp and guarantee; nothing that a party keeps."""
    from tacit.cli.export import export as command

    command(run, to, as_json)


@app.command()
def plan(
    file: Annotated[Path, typer.Argument(help="The run file.")],
    changes: Changes = None,
    as_json: Json = False,
) -> None:
    """Say what a private run will release, how much noise that takes and what it costs, before any data is touched."""
    from tacit.cli.plan import plan as command

    command(file, changes or [], as_json)


@app.command()
def explain(
    epsilon: Annotated[float, typer.Argument(metavar="EPS", help="ε, such as 1.0.")],
    delta: Annotated[float, typer.Argument(metavar="DELTA", help="δ, such as 1e-6.")],
    as_json: Json = False,
) -> None:
    """Say what an (ε, δ) means for one person, in words and odds."""
    from tacit.cli.explain import explain as command

    command(epsilon, delta, as_json)


ledger = typer.Typer(
    name="ledger",
    help="Look at, verify and export the parties' records of what they released.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(ledger)

Ledgers = Annotated[Path, typer.Argument(metavar="RUN|LEDGER", help="A run folder, a ledger, or a folder of ledgers.")]


@ledger.command("show")
def ledger_show(
    place: Ledgers,
    delta: Annotated[
        float | None, typer.Option("--delta", help="The δ at which ε is reckoned; default: the run's, or 1e-6.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Print every release, what it spent, and the ε reached by then."""
    from tacit.cli.ledger import show as command

    command(place, delta, as_json)


@ledger.command("verify")
def ledger_verify(
    place: Ledgers,
    head: Annotated[
        str | None, typer.Option("--head", metavar="HEX", help="A head that was kept earlier; it must be in the chain.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check that no ledger was changed, cut short or put back, and that all that left in a run is in them."""
    from tacit.cli.ledger import verify as command

    command(place, head, as_json)


@ledger.command("export")
def ledger_export(
    place: Ledgers,
    out: Annotated[
        Path | None, typer.Option("--out", help="A .jsonl, .csv or .parquet file; default: JSON Lines on stdout.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write all rows out, without the answers' bytes and without anything about a party's state."""
    from tacit.cli.ledger import export as command

    command(place, out, as_json)


@app.command()
def doctor(as_json: Json = False) -> None:
    """Check what this machine has: versions, drivers, data, kernels."""
    from tacit.cli.doctor import doctor as command

    sys.exit(command(as_json))
