"""All commands with their options. What a command does is in another module, which is imported when it is called.

So `tacit COMMAND --help` answers at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from tacit.errors import TacitError

EXIT_CODES = (
    "Exit codes: 0 done · 2 bad usage or run file · 3 bad data · 4 privacy refused · 5 a party or peer failed · "
    "6 tampering found · 130 stopped · 1 anything else."
)

Json = Annotated[bool, typer.Option("--json", help="Print exactly one JSON object on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress line.")]
Changes = Annotated[list[str] | None, typer.Option("--set", metavar="a.b=c", help="Change one value of the run file.")]
Seed = Annotated[int | None, typer.Option("--seed", min=0, help="Use another seed than the run file's.")]
File = Annotated[Path, typer.Argument(help="The run file.")]
Out = Annotated[Path | None, typer.Option("--out", help="The run folder; default: a new one under ./runs.")]
Resume = Annotated[
    Path | None,
    typer.Option("--resume", metavar="RUN", help="Resume this run folder; start it if missing, print it if finished."),
]
Wait = Annotated[float, typer.Option("--wait", metavar="SECONDS", min=0, help="How long to wait for the others.")]
Health = Annotated[
    int | None, typer.Option("--health", metavar="PORT", min=0, max=65535, help="Serve /health and /status here.")
]
Keys = Annotated[Path, typer.Argument(metavar="KEYS", help="The folder of the federation's keys.")]
Days = Annotated[int, typer.Option("--days", help="How long they are valid.")]
Place = Annotated[Path, typer.Argument(metavar="RUN|LEDGER", help="A run folder, a ledger, or a folder of ledgers.")]


class CommandGroup(TyperGroup):
    """Commands whose errors are one sentence on stderr and a documented exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except TacitError as error:
            typer.echo(f"tacit: {_printable(error)}", err=True)
            raise typer.Exit(error.exit_code) from None
        except BrokenPipeError:  # the reader of our output has closed it
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None
        except (typer.Exit, typer.Abort, KeyboardInterrupt):
            raise
        except Exception as error:
            if os.environ.get("TACIT_TRACEBACK") or type(error).__module__.split(".")[0] in ("click", "typer"):
                raise
            typer.echo(
                f"tacit: an unexpected error, {type(error).__name__}: {_printable(error)}. "
                "Set TACIT_TRACEBACK=1 and try again to see where it happened.",
                err=True,
            )
            raise typer.Exit(1) from None


def _printable(error: Exception) -> str:
    """An error's sentence without control characters: a peer may have written some of it."""
    from tacit.deploy.logs import one_line

    return one_line(error, 4000)


def _group(name: str, words: str, **settings: Any) -> typer.Typer:
    settings |= {"no_args_is_help": True, "add_completion": False, "rich_markup_mode": None}
    return typer.Typer(name=name, help=words, short_help=words, **settings)


app = _group(
    "tacit",
    "Train one recommender with others, without sharing ratings.",
    cls=CommandGroup,
    epilog=EXIT_CODES,
    pretty_exceptions_enable=False,
)
ledger = _group("ledger", "Show, verify and export the parties' records of what they released.")
keys = _group("keys", "Make a federation's keys, and invite sites to it with kits.")
app.add_typer(ledger)
app.add_typer(keys)


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


def _command(group: typer.Typer, module: str, words: str | None = None) -> Callable[[Callable[..., None]], None]:
    """Register a command of a group; the function of its name in a module of `tacit.cli` does the work."""

    def register(options: Callable[..., None]) -> None:
        name = options.__name__.removeprefix(f"{module.partition('_')[0]}_")

        @wraps(options)
        def call(**values: Any) -> None:
            getattr(import_module(f"tacit.cli.{module}"), name)(**values)

        group.command(name, short_help=words)(call)

    return register


@_command(app, "demo", "Train on demo data together, centrally and alone, and compare.")
def demo(
    out: Annotated[Path | None, typer.Option("--out", help="The folder for the three runs and the report.")] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="The seed of data and training.")] = 7,
    quiet: Quiet = False,
) -> None:
    """Train on demo data together, centrally and alone, and compare."""


@_command(app, "new", "Write a private run file to start from, with every key explained.")
def new(
    file: Annotated[Path, typer.Argument(help="Where to write it.")] = Path("run.toml"),
    source: Annotated[
        str, typer.Option("--source", help="A file, a folder, a named set, a database, or demo.")
    ] = "demo",
    items: Annotated[
        Path | None, typer.Option("--items", help="The public list of items, with their attributes (CSV, Parquet).")
    ] = None,
    setting: Annotated[str, typer.Option("--setting", help="horizontal, vertical or device.")] = "horizontal",
) -> None:
    """Write a private run file to start from, with every key explained."""


@_command(app, "run", "Run a run file: split, partition, train, evaluate, report.")
def run(
    file: File,
    changes: Changes = None,
    seed: Seed = None,
    out: Out = None,
    resume: Resume = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run a run file: data, split, partition, training, evaluation, report."""


@_command(app, "compare", "Compare runs on their common users, with paired tests.")
def compare(
    runs: Annotated[
        list[Path] | None, typer.Argument(metavar="FILE|RUN…", help="Run files (they are run) or run folders.")
    ] = None,
    sweep: Annotated[
        Path | None, typer.Option("--frontier", metavar="SWEEP", help="A sweep: many methods at many ε, one page.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Where to write the comparison.")] = Path("comparison.html"),
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare runs on their common users, with intervals and paired tests."""


@_command(app, "run", "Write a run's report and privacy card again.")
def report(run: Annotated[Path, typer.Argument(help="A run folder.")], as_json: Json = False) -> None:
    """Write a run's report and privacy card again, and print where they are; a run that was changed gets none."""


@_command(app, "export", "Write a run's shared model and its guarantee as Parquet.")
def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A finished run's folder.")],
    to: Annotated[Path | None, typer.Option("--out", help="A new folder; default: the run's name with -model.")] = None,
    as_json: Json = False,
) -> None:
    """Write a run's shared model as Parquet, with its stamp and guarantee; nothing that a party stores."""


@_command(app, "plan_command", "Print what a private run will release, its noise and its cost.")
def plan(
    file: Annotated[Path, typer.Argument(help="The run file.")], changes: Changes = None, as_json: Json = False
) -> None:
    """Print what a private run will release, its noise and its cost. Reads no ratings."""


@_command(app, "explain", "Explain what an (ε, δ) means for one person, in words and odds.")
def explain(
    epsilon: Annotated[float, typer.Argument(metavar="EPS", help="ε, such as 1.0.")],
    delta: Annotated[float, typer.Argument(metavar="DELTA", help="δ; far below one over the number of users.")] = 1e-6,
    as_json: Json = False,
) -> None:
    """Explain what an (ε, δ) means for one person, in words and odds."""


@_command(app, "up", "Coordinate a run between sites, or run all sites on this machine.")
def up(
    file: File,
    local: Annotated[
        int | None, typer.Option("--local", metavar="N", min=1, help="Run N sites as processes on this machine.")
    ] = None,
    keys: Annotated[Path | None, typer.Option("--keys", help="The federation's keys; its sites join.")] = None,
    changes: Changes = None,
    seed: Seed = None,
    out: Out = None,
    resume: Resume = None,
    wait: Wait = 600.0,
    listen: Annotated[str | None, typer.Option("--listen", help="The address to listen at, such as 0.0.0.0.")] = None,
    health: Health = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Use keys that were made without TLS.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Coordinate a run between sites, or run a whole federation on this machine."""


@_command(app, "join", "Take part in a federation's runs with this site's own data.")
def join(
    kit: Annotated[Path, typer.Argument(metavar="KIT", help="The kit that this site was given.")],
    data: Annotated[
        str | None,
        typer.Option("--data", metavar="SOURCE", help="Ratings: a file, a folder, a database; a role's: its items."),
    ] = None,
    query: Annotated[str | None, typer.Option("--query", help="What to select from a database.")] = None,
    columns: Annotated[
        list[str] | None, typer.Option("--column", metavar="user=NAME", help="The name of a column in this data.")
    ] = None,
    items: Annotated[
        Path | None, typer.Option("--items", help="The public list of items; vertical runs: this site's.")
    ] = None,
    feedback: Annotated[
        str | None, typer.Option("--feedback", help="explicit, implicit or count; default: as in --run, or explicit.")
    ] = None,
    duplicates: Annotated[
        str | None, typer.Option("--duplicates", help="error, last or mean; default: as in --run, or error.")
    ] = None,
    bad_rows: Annotated[
        str | None, typer.Option("--bad-rows", help="error or drop; default: as in --run, or error.")
    ] = None,
    state: Annotated[
        Path | None, typer.Option("--state", help="The folder of the site's ledger and factors; default: site-NAME.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Only check kit, TLS, clock, run and data.")] = False,
    run: Annotated[Path | None, typer.Option("--run", metavar="FILE", help="Take part only in this run file.")] = None,
    max_epsilon: Annotated[
        float | None, typer.Option("--max-epsilon", metavar="E", help="The most ε that this site's ledger may reach.")
    ] = None,
    delta: Annotated[float | None, typer.Option("--delta", metavar="D", help="The δ of --max-epsilon.")] = None,
    days: Annotated[
        float | None,
        typer.Option("--days", min=1, help="Count --max-epsilon over this many days by this site's clock."),
    ] = None,
    unit: Annotated[
        str, typer.Option("--unit", metavar="user|rating", help="What every run must protect, for this site.")
    ] = "user",
    non_private: Annotated[
        bool, typer.Option("--non-private", help="Take part even if the run carries no guarantee at all.")
    ] = False,
    share_metrics: Annotated[
        bool, typer.Option("--share-metrics", help="Send the coordinator the model's metrics on this site's test set.")
    ] = False,
    peers: Annotated[
        Path | None,
        typer.Option("--peers", help="The other sites' signing keys: for signed secure sums, and to fix who joins."),
    ] = None,
    align_key: Annotated[
        Path | None, typer.Option("--align-key", help="Vertical runs: the sites' own key for hashes of user ids.")
    ] = None,
    identity: Annotated[bool, typer.Option("--identity", help="Print this site's signing key.")] = False,
    insecure: Annotated[bool, typer.Option("--insecure", help="Use a kit that was made without TLS.")] = False,
    stay: Annotated[bool, typer.Option("--stay", help="Wait for further runs when one has ended.")] = False,
    wait: Wait = 3600.0,
    health: Health = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Take part in a federation's runs with this site's own data."""


@_command(app, "proxy", "Shuffle devices' sealed reports, so that nobody sees whose they are.")
def proxy(
    kit: Annotated[Path, typer.Argument(metavar="KIT", help="The kit that this proxy was given.")],
    state: Annotated[
        Path | None, typer.Option("--state", help="The folder of its log and keys; default: site-proxy.")
    ] = None,
    listen: Annotated[str | None, typer.Option("--listen", help="The address to listen at, such as 0.0.0.0.")] = None,
    crowd: Annotated[
        int, typer.Option("--crowd", metavar="N", min=1, help="Forward no batch of fewer devices than this.")
    ] = 1,
    quiet: Quiet = False,
) -> None:
    """Shuffle the sealed reports of a federation's devices until it is stopped. It stores none, and can read none."""


@_command(app, "status", "Print what the coordinator and the sites are doing.")
def status(
    place: Annotated[
        Path | None, typer.Argument(metavar="PLACE", help="A run folder or a site's folder; default: the newest here.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Print what the coordinator and the sites are doing. Exit code 5: one died, failed or is absent; 4: refused."""


@_command(app, "doctor", "Check this machine: versions, drivers, data, kernels.")
def doctor(as_json: Json = False) -> None:
    """Check this machine: versions, drivers, data, kernels."""


@_command(ledger, "ledger_command")
def ledger_show(
    place: Place,
    delta: Annotated[
        float | None, typer.Option("--delta", help="The δ at which ε is computed; default: the run's, or 1e-6.")
    ] = None,
    as_json: Json = False,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write it as one offline page.")] = None,
) -> None:
    """Print every release, what it spent, to whom it went, and the ε reached by then."""


@_command(ledger, "ledger_command")
def ledger_verify(
    place: Place,
    head: Annotated[
        str | None,
        typer.Option("--head", metavar="HEX", help="A head that you noted earlier; it must be in the chain."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check that no ledger was changed, cut short or replaced, and that it holds all that left in a run."""


@_command(ledger, "ledger_command")
def ledger_export(
    place: Place,
    out: Annotated[
        Path | None, typer.Option("--out", help="A .jsonl, .csv or .parquet file; default: JSON Lines on stdout.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write all rows, without the answers' bytes and without anything about a party's state."""


@_command(keys, "keys")
def keys_init(
    folder: Keys,
    federation: Annotated[str, typer.Option("--federation", help="Its name, as its sites will see it.")],
    host: Annotated[str, typer.Option("--host", help="Where sites reach the coordinator: a name or an address.")],
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="The port it listens at.")] = 8102,
    days: Days = 365,
    insecure: Annotated[bool, typer.Option("--insecure", help="No TLS: for trials on one machine.")] = False,
    as_json: Json = False,
) -> None:
    """Make the keys of a new federation."""


@_command(keys, "keys")
def keys_invite(
    folder: Keys,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME…", help="party-1, party-2, …; catalogue, decrypter-1, ….")
    ] = None,
    role: Annotated[str | None, typer.Option("--role", metavar="ROLE", help="A role to invite, such as proxy.")] = None,
    at: Annotated[
        str | None, typer.Option("--at", metavar="HOST:PORT", help="Where devices reach the proxy that is invited.")
    ] = None,
    devices: Annotated[
        bool, typer.Option("--devices", help="The kits are for devices that take part through the proxy.")
    ] = False,
    out: Annotated[Path | None, typer.Option("--out", help="The folder for the kits; default: here.")] = None,
    days: Days = 365,
    as_json: Json = False,
) -> None:
    """Write a kit for every site named; one that was invited before gets a new certificate, and its old one ends."""


@_command(keys, "keys")
def keys_revoke(folder: Keys, name: Annotated[str, typer.Argument(metavar="NAME")], as_json: Json = False) -> None:
    """End a site's invitation: the coordinator refuses its certificate from now on."""


@_command(keys, "keys")
def keys_show(folder: Keys, as_json: Json = False) -> None:
    """Print who is invited, until when, and which sites have connected."""
