"""`tacit up`: the coordinator's service, or a whole federation on one machine."""

from __future__ import annotations

import json
from pathlib import Path

import typer
from rich.console import Console

from tacit.cli.changed_files import read_changed
from tacit.cli.display import live, print_summary
from tacit.cli.run import finished
from tacit.cli.signals import stoppable
from tacit.config import EngineSection, RunFile
from tacit.errors import UsageError
from tacit.prepare.run_file import check, setting_in_data


def up(
    file: Path,
    changes: list[str],
    seed: int | None,
    local: int | None,
    keys: Path | None,
    out: Path | None,
    resume: Path | None,
    wait: float,
    listen: str | None,
    health: int | None,
    insecure: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Bring a run up, and see it through."""
    from tacit.engine.cells import check_installed

    check_installed()
    run_file = read_changed(file, changes, seed)
    if out is not None and resume is not None:
        raise UsageError("--out and --resume both name the run folder; give one of them.")
    if (local is None) == (keys is None):
        raise UsageError(
            "Say where the sites are: --local N for processes on this machine, or --keys KEYS for those that were "
            "invited with: tacit keys invite KEYS party-1 …"
        )
    run_file = on_one_machine(run_file, local) if local is not None else run_file
    if keys is not None:
        from tacit.deploy.deployment import for_sites

        run_file = for_sites(run_file)
    summary = finished(resume, run_file) if resume is not None else None
    if summary is None:
        method, _parameters = check(run_file, setting=None if local is None else setting_in_data(run_file))
        budget = None if run_file.privacy is None else run_file.privacy.budget or run_file.privacy.epsilon
        folder = resume if resume is not None else out
        place = "its run folder" if folder is None else f'"{folder}"'
        waiting = "" if keys is None else "sites wait, and "
        stopped = f"tacit: Stopped; {waiting}the run goes on with --resume and {place}."
        with stoppable(stopped, 130), live(method.name, quiet, budget) as watch:
            if keys is None:
                from tacit.experiment import run

                phase, beside = (None, None) if watch is None else (watch.phase, watch.beside)
                summary = run(run_file, folder, watch, phase, beside)
            else:
                from tacit.deploy.deployment import CoordinatorOptions
                from tacit.deploy.deployment import up as coordinate
                from tacit.deploy.keyring import Keyring

                keyring = Keyring.open(keys)
                if keyring.insecure and not insecure:
                    raise UsageError(
                        "These keys were made with --insecure, so nothing would be encrypted; type --insecure here too "
                        "if that is meant, or make new ones."
                    )
                see, tell = (watch, watch.say) if watch is not None else (_nothing, _nothing)
                summary = coordinate(run_file, keyring, folder, CoordinatorOptions(wait, listen, health), see, tell)
    if as_json:
        typer.echo(json.dumps(summary, ensure_ascii=False, allow_nan=False))
    else:
        print_summary(summary, Console(highlight=False))


def on_one_machine(file: RunFile, parties: int) -> RunFile:
    """The run file with every party in a process of its own here; the number must be the file's."""
    into = file.partition.into
    if into is not None and into != parties:
        raise UsageError(f"--local {parties} and [partition] into = {into} are not the same number; make them so.")
    engine = EngineSection.model_validate({**file.engine.model_dump(), "name": "flare"})
    division = file.partition.model_copy(update={"into": parties})
    return file.model_copy(update={"engine": engine, "partition": division})


def _nothing(_what: object) -> None:
    """Nobody looks on."""
