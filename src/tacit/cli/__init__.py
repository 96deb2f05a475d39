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
    "6 tampering found · 130 stopped · 1 anything else."
)


class _Group(TyperGroup):
    """Commands whose errors are one sentence on stderr and a documented exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except TacitError as error:
            typer.echo(f"tacit: {_shown(error)}", err=True)
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
                f"tacit: something unforeseen happened: {type(error).__name__}: {_shown(error)}. "
                "Set TACIT_TRACEBACK=1 and try again to see where.",
                err=True,
            )
            raise typer.Exit(1) from None


def _shown(error: Exception) -> str:
    """An error's sentence for a terminal: some of its words may be a peer's, and could command one."""
    from tacit.deploy.logs import one_line

    return one_line(error, 4000)


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
    as_json: Json = False,
) -> None:
    """Write a run's report and privacy card anew, and say where they are."""
    from tacit.cli.report import report as command

    command(run, as_json)


@app.command()
def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A finished run's folder.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="A folder that is not there yet; default: the run's name with -model.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a run's shared model as Parquet, with its stamp and guarantee; nothing that a party keeps."""
    from tacit.cli.export import export as command

    command(run, out, as_json)


@app.command()
def plan(
    file: Annotated[Path, typer.Argument(help="The run file.")],
    changes: Changes = None,
    as_json: Json = False,
) -> None:
    """Say what a private run will release, how much noise that takes and what it costs, before any data is touched."""
    from tacit.cli.plan_command import plan as command

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
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write it as one page that needs nothing else.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Print every release, what it spent, and the ε reached by then."""
    from tacit.cli.ledger_command import show as command

    command(place, delta, as_json, html)


@ledger.command("verify")
def ledger_verify(
    place: Ledgers,
    head: Annotated[
        str | None, typer.Option("--head", metavar="HEX", help="A head that was kept earlier; it must be in the chain.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check that no ledger was changed, cut short or put back, and that all that left in a run is in them."""
    from tacit.cli.ledger_command import verify as command

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
    from tacit.cli.ledger_command import export as command

    command(place, out, as_json)


keyring = typer.Typer(
    name="keys",
    help="Make a federation's keys, and invite sites to it by kits.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(keyring)

Keys = Annotated[Path, typer.Argument(metavar="KEYS", help="The folder of the federation's keys.")]
Days = Annotated[int, typer.Option("--days", help="How long they are valid.")]
Wait = Annotated[float, typer.Option("--wait", metavar="SECONDS", min=0, help="How long to wait for the others.")]
Probe = Annotated[
    int | None, typer.Option("--health", metavar="PORT", min=0, max=65535, help="Answer /health and /status here.")
]


@keyring.command("init")
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
    from tacit.cli.keys import init as command

    command(folder, federation, host, port, days, insecure, as_json)


@keyring.command("invite")
def keys_invite(
    folder: Keys,
    names: Annotated[list[str], typer.Argument(metavar="NAME…", help="party-1, party-2, …; catalogue, proxy, ….")],
    out: Annotated[Path | None, typer.Option("--out", help="The folder for the kits; default: here.")] = None,
    days: Days = 365,
    as_json: Json = False,
) -> None:
    """Write a kit for every site named; one that was invited before gets a new certificate, and its old one ends."""
    from tacit.cli.keys import invite as command

    command(folder, names, out, days, as_json)


@keyring.command("revoke")
def keys_revoke(folder: Keys, name: Annotated[str, typer.Argument(metavar="NAME")], as_json: Json = False) -> None:
    """End a site's invitation: the coordinator refuses its certificate from now on."""
    from tacit.cli.keys import revoke as command

    command(folder, name, as_json)


@keyring.command("show")
def keys_show(folder: Keys, as_json: Json = False) -> None:
    """Say who is invited, until when, and who has said hello."""
    from tacit.cli.keys import show as command

    command(folder, as_json)


@app.command()
def up(
    file: Annotated[Path, typer.Argument(help="The run file.")],
    local: Annotated[
        int | None, typer.Option("--local", metavar="N", min=1, help="A whole federation here: N sites as processes.")
    ] = None,
    keys: Annotated[Path | None, typer.Option("--keys", help="The federation's keys; its sites join.")] = None,
    changes: Changes = None,
    seed: Seed = None,
    out: Annotated[Path | None, typer.Option("--out", help="The run folder; default: a new one under ./runs.")] = None,
    resume: Annotated[Path | None, typer.Option("--resume", metavar="RUN", help="Go on with this run folder.")] = None,
    wait: Wait = 600.0,
    listen: Annotated[str | None, typer.Option("--listen", help="The address to listen at, such as 0.0.0.0.")] = None,
    health: Probe = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Use keys that were made without TLS.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Coordinate a run between sites, or show a whole federation on this machine."""
    from tacit.cli.up import up as command

    where = (local, keys, out, resume, wait, listen, health, insecure)
    command(file, changes or [], seed, *where, as_json, quiet)


@app.command()
def join(
    kit: Annotated[Path, typer.Argument(metavar="KIT", help="The kit that this site was given.")],
    data: Annotated[
        str | None,
        typer.Option("--data", metavar="SOURCE", help="Ratings: a file, a folder, a database; a role's: its items."),
    ] = None,
    query: Annotated[str | None, typer.Option("--query", help="What to select from a database.")] = None,
    columns: Annotated[
        list[str] | None, typer.Option("--column", metavar="user=NAME", help="How a column is called here.")
    ] = None,
    items: Annotated[
        Path | None, typer.Option("--items", help="The public list of items; vertical runs: this site's.")
    ] = None,
    feedback: Annotated[
        str | None, typer.Option("--feedback", help="explicit, implicit or count; default: as --run says, or explicit.")
    ] = None,
    duplicates: Annotated[
        str | None, typer.Option("--duplicates", help="error, last or mean; default: as --run says, or error.")
    ] = None,
    bad_rows: Annotated[
        str | None, typer.Option("--bad-rows", help="error or drop; default: as --run says, or error.")
    ] = None,
    state: Annotated[
        Path | None, typer.Option("--state", help="Where the site keeps its ledger and factors; default: site-NAME.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Only look: kit, TLS, clock, run, data.")] = False,
    run: Annotated[
        Path | None, typer.Option("--run", metavar="FILE", help="Take part in this very run file and no other.")
    ] = None,
    max_epsilon: Annotated[
        float | None, typer.Option("--max-epsilon", metavar="E", help="The most ε that this site's ledger may reach.")
    ] = None,
    delta: Annotated[float | None, typer.Option("--delta", metavar="D", help="The δ of --max-epsilon.")] = None,
    days: Annotated[
        float | None,
        typer.Option(
            "--days", min=1, help="Count --max-epsilon over so many days by this site's own clock, not for ever."
        ),
    ] = None,
    unit: Annotated[
        str, typer.Option("--unit", metavar="user|rating", help="What every run must protect, for this site.")
    ] = "user",
    non_private: Annotated[
        bool, typer.Option("--non-private", help="Take part even if the run carries no guarantee at all.")
    ] = False,
    share_metrics: Annotated[
        bool, typer.Option("--share-metrics", help="Tell the coordinator how good the model is on this site's test.")
    ] = False,
    peers: Annotated[
        Path | None,
        typer.Option(
            "--peers", help="The other sites' signing keys: for signed secure sums, and to pin who takes part."
        ),
    ] = None,
    align_key: Annotated[
        Path | None, typer.Option("--align-key", help="Vertical runs: the sites' own key for hashes of user ids.")
    ] = None,
    identity: Annotated[bool, typer.Option("--identity", help="Print this site's signing key.")] = False,
    insecure: Annotated[bool, typer.Option("--insecure", help="Use a kit that was made without TLS.")] = False,
    stay: Annotated[bool, typer.Option("--stay", help="Wait for further runs when one has ended.")] = False,
    wait: Wait = 3600.0,
    health: Probe = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Take part in a federation's runs with this site's own data."""
    from tacit.cli.join import join as command

    command(
        kit,
        data,
        query,
        columns or [],
        items,
        feedback,
        duplicates,
        bad_rows,
        state,
        check,
        run,
        max_epsilon,
        delta,
        days,
        unit,
        non_private,
        share_metrics,
        peers,
        align_key,
        identity,
        insecure,
        stay,
        wait,
        health,
        as_json,
        quiet,
    )


@app.command()
def status(
    place: Annotated[
        Path | None, typer.Argument(metavar="PLACE", help="A run folder or a site's folder; default: the newest here.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say what coordinator and sites are doing."""
    from tacit.cli.status import status as command

    sys.exit(command(place, as_json))


@app.command()
def doctor(as_json: Json = False) -> None:
    """Check what this machine has: versions, drivers, data, kernels."""
    from tacit.cli.doctor import doctor as command

    sys.exit(command(as_json))
