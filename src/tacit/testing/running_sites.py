"""Parties in processes of their own, kept up for all tests of one test process: what engines must agree on is cheap."""

import secrets
import shutil
import tempfile
from functools import cache
from pathlib import Path

from tacit.config import RunFile
from tacit.deploy.local_sites import LocalSites, train
from tacit.federation import Facts
from tacit.partition import Parties
from tacit.prepare.run_file import prepared
from tacit.prepare.simulate import train as simulate
from tacit.prepare.simulated_ledgers import Records

#: How many sites are kept up; a run may have fewer.
MOST = 3


@cache
def sites() -> LocalSites:
    """Three sites, up until `stop`."""
    folder = Path(tempfile.mkdtemp(prefix="tacit-sites-"))
    kept = LocalSites(folder, tuple(f"party-{k}" for k in range(1, MOST + 1)))
    kept.start_all()
    return kept


def stop() -> None:
    """Stop the sites that are kept up, if there are any: a process can hold one coordinator at a time."""
    if sites.cache_info().currsize:
        sites().stop()
        shutil.rmtree(sites().folder, ignore_errors=True)
        sites.cache_clear()


def digests(file: RunFile, parties: Parties) -> tuple[str, str]:
    """The digest of one run in this process, and with every party in a process of its own."""
    made = prepared(file, Facts.of(parties, file.seed), run=secrets.token_hex(16))
    with tempfile.TemporaryDirectory() as folder:
        here = simulate(made, parties, records=Records.unlimited(made, Path(folder)))
    for ledger in sites().folder.glob("party-*/ledger"):  # every run is the first of its ledgers
        shutil.rmtree(ledger)
    for role in made.roles:
        if not sites().started(role):
            sites().start(role)
    apart = train(sites(), file, made, parties)
    return here.transcript.digest, apart.transcript.digest
