"""`tacit up`: coordinate a run between sites, or run a whole federation on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tacit.cli.display import Live, live, read_run_file, stoppable
from tacit.cli.run import finished, print_result, run_folder, simulate
from tacit.config import EngineSection, RunFile
from tacit.engine.cells import check_installed
from tacit.errors import UsageError
from tacit.prepare.run_file import check, setting_in_data


def up(
    file: Path,
    local: int | None,
    keys: Path | None,
    changes: list[str] | None,
    seed: int | None,
    out: Path | None,
    resume: Path | None,
    wait: float,
    listen: str | None,
    health: int | None,
    insecure: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Coordinate a run between sites, or run a whole federation on this machine."""
    from tacit.deploy.deployment import for_sites

    check_installed()
    run_file = read_run_file(file, changes, seed)
    folder = run_folder(out, resume)
    if (local is None) == (keys is None):
        raise UsageError(
            "Name the sites: --local N for processes on this machine, or --keys KEYS for sites that were invited with: "
            "tacit keys invite KEYS party-1 …"
        )
    run_file = on_one_machine(run_file, local) if local is not None else for_sites(run_file)
    summary = finished(resume, run_file) if resume is not None else None
    if summary is None:
        method, _parameters = check(run_file, setting=None if local is None else setting_in_data(run_file))
        place = "its run folder" if folder is None else f'"{folder}"'
        waiting = "" if keys is None else "sites wait, and "
        stopped = f"tacit: Stopped; {waiting}the run goes on with --resume and {place}."
        with stoppable(stopped, 130), live(method.name, quiet, run_file) as line:
            if keys is None:
                summary = simulate(run_file, folder, line)
            else:
                summary = _coordinate(run_file, keys, folder, (wait, listen, health), insecure, line)
    print_result(summary, as_json)


def _coordinate(
    file: RunFile,
    keys: Path,
    folder: Path | None,
    terms: tuple[float, str | None, int | None],
    insecure: bool,
    line: Live | None,
) -> dict[str, Any]:
    """Coordinate a run between the sites that `keys` invited; `terms` are wait, listen and health."""
    from tacit.deploy.deployment import CoordinatorOptions
    from tacit.deploy.deployment import up as coordinate
    from tacit.deploy.keyring import Keyring

    keyring = Keyring.open(keys)
    if keyring.insecure and not insecure:
        raise UsageError(
            "These keys were made with --insecure, so nothing would be encrypted; add --insecure here too to accept "
            "that, or make new keys."
        )
    watch, say = (_ignore, _ignore) if line is None else (line, line.say)
    return coordinate(file, keyring, folder, CoordinatorOptions(*terms), watch, say)


def on_one_machine(file: RunFile, parties: int) -> RunFile:
    """The run file with every party in its own process here; the number must be the file's."""
    into = file.partition.into
    if into is not None and into != parties:
        raise UsageError(f"--local {parties} and [partition] into = {into} differ; make them the same number.")
    engine = EngineSection.model_validate({**file.engine.model_dump(), "name": "flare"})
    division = file.partition.model_copy(update={"into": parties})
    return file.model_copy(update={"engine": engine, "partition": division})


def _ignore(_what: object) -> None:
    """Print no progress."""
