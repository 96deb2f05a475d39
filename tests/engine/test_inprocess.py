"""The in-process engine keeps the engine contract, and threads change nothing."""

from collections.abc import Sequence

import numpy as np
import pytest

from tacit.engine import InProcess
from tacit.federation import Party
from tacit.testing.engine_contract import EngineContract


class TestInProcess(EngineContract):
    def make(self, parties: Sequence[Party], timeout: float | None = None) -> InProcess:
        return InProcess(parties, timeout=timeout)


class TestOneThread(EngineContract):
    def make(self, parties: Sequence[Party], timeout: float | None = None) -> InProcess:
        return InProcess(parties, timeout=timeout, workers=1)


@pytest.mark.parametrize("workers", [1, 2, 7])
def test_results_do_not_depend_on_threads(workers):
    class Threads(EngineContract):
        def make(self, parties, timeout=None):
            return InProcess(parties, workers=workers)

    federation, _members = Threads().federation()
    start = np.zeros(25, dtype=np.float32)
    for t in federation.rounds(4):
        start = federation.mean("walk", vector=start, t=t)
    alone, _members = TestOneThread().federation()
    other = np.zeros(25, dtype=np.float32)
    for t in alone.rounds(4):
        other = alone.mean("walk", vector=other, t=t)
    assert federation.transcript.digest == alone.transcript.digest
    np.testing.assert_array_equal(start, other)
