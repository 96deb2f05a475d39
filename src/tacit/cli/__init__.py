"""The command line. A command's module is imported when it is used, so that `tacit --help` answers at once."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from tacit.errors import TacitError

EXIT_CODES = (
    "Exit codes: 0 done · 2 bad usage or run file · 3 bad data · 4 privacy refused · 5 a party or peer failed · "
    "6 tampering found · 130 stopped · 1 anything else."
)

#: By command: its module in `tacit.cli`, and its line in the help. A module has a function of the command's name, or
#: an `app` of several.
COMMANDS = {
    "demo": ("demo", "Train on demo data together, centrally and alone, and compare."),
    "new": ("new", "Write a run file to start from, with every key explained."),
    "run": ("run", "Run a run file: split, partition, train, evaluate, report."),
    "compare": ("compare", "Compare runs on their common users, with paired tests."),
    "report": ("report", "Write a run's report and privacy card again."),
    "export": ("export", "Write a run's shared model and its guarantee as Parquet."),
    "plan": ("plan_command", "Print what a private run will release, its noise and its cost."),
    "explain": ("explain", "Explain what an (ε, δ) means for one person, in words and odds."),
    "up": ("up", "Coordinate a run between sites, or run all sites on this machine."),
    "join": ("join", "Take part in a federation's runs with this site's own data."),
    "status": ("status", "Print what the coordinator and the sites are doing."),
    "doctor": ("doctor", "Check this machine: versions, drivers, data, kernels."),
    "ledger": ("ledger_command", "Show, verify and export the parties' records of what they released."),
    "keys": ("keys", "Make a federation's keys, and invite sites to it with kits."),
}


class LazyGroup(TyperGroup):
    """Commands that are imported on use; an error is one sentence on stderr and a documented exit code."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = dict.fromkeys(COMMANDS)  # type: ignore[assignment]  # names, to suggest for a misspelt one

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"tacit.cli.{COMMANDS[cmd_name][0]}")
        app = getattr(module, "app", None)
        if app is None:
            app = typer.Typer(add_completion=False, rich_markup_mode=None)
            app.command(cmd_name)(getattr(module, cmd_name))
        return typer.main.get_command(app)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, words) for name, (_module, words) in COMMANDS.items()])

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


app = typer.Typer(
    cls=LazyGroup,
    name="tacit",
    help="Tacit learns recommendations together and keeps the data apart.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


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
