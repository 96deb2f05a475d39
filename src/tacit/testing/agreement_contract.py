"""Engines agree: a method's every message is the same in one process and with each party in a process of its own."""

from __future__ import annotations

import pytest

from tacit.methods import known
from tacit.partition import Setting
from tacit.testing.method_contract import Contract
from tacit.testing.running_sites import digests


class AgreementContract(Contract):
    """Subclass it as `MethodContract`, with the same attributes; it starts three real sites."""

    @classmethod
    def of(cls, contract: type[Contract]) -> type[AgreementContract]:
        """The agreement of a method whose other contract is given."""
        names = ("name", "parameters", "private", "refused", "ratings", "sides", "pytest_generate_tests")
        return type(contract.__name__, (cls,), {name: getattr(contract, name) for name in names})

    def test_parties_in_processes_of_their_own_give_the_same_digest(self, setting: Setting) -> None:
        self.need_installed()
        here, apart = digests(self.file(setting), self.parties(setting))
        assert here == apart

    def test_so_they_do_with_seeded_noise(self, setting: Setting) -> None:
        self.need_installed()
        for aggregation in ("plain", "secagg"):
            if (setting, aggregation) in self.refused:  # which MethodContract holds the method to
                continue
            here, apart = digests(self.private_file(setting, aggregation), self.parties(setting))
            assert here == apart, aggregation

    def need_installed(self) -> None:
        """Other processes know only what is installed, and not a method that a test has just made up."""
        if known().origin(self.name) == "this process":
            pytest.skip(f'sites run installed methods only, and "{self.name}" is not installed')
