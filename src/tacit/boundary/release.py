"""`Release`: what leaves a party. Only a gate makes one, in `BaseGate._release`."""

from dataclasses import dataclass, field
from enum import StrEnum

from tacit.errors import UngatedRelease
from tacit.guarantee import Guarantee, NoGuarantee


class Kind(StrEnum):
    """How a release came about."""

    CHAIN = "chain"  # noisy queries with a pure update between them
    SUM = "sum"  # a linear contribution
    REPORT = "report"  # single reports, to be shuffled
    PUBLIC = "public"  # a fact that no data went into
    DISCLOSE = "disclose"  # data as it is, with no protection


class _Seal:
    """Without it no `Release` can be made; only the gate's module uses it."""


_SEAL = _Seal()


@dataclass(frozen=True)
class Release:
    """Bytes that may leave a party, and what is promised about them.

    Attributes
    ----------
    body : the payload in the wire format; bytes, so that nobody can change it after it was recorded
    contributors : how many parties or devices contributed
    event, payload, head : what it spent, the payload's hash, and the ledger's head with its row; empty without a ledger
    digest : the body's SHA-256 if it was computed already, else empty
    """

    party: str
    kind: Kind
    body: bytes
    guarantee: Guarantee | NoGuarantee
    contributors: int
    event: str = ""
    payload: str = ""
    head: str = ""
    digest: str = field(default="", repr=False, compare=False)
    seal: object = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.seal is not _SEAL:
            raise UngatedRelease(
                f"A release of {self.party} was made outside its gate; "
                "end the step in gate.chain, gate.sum or gate.public."
            )
