"""What every engine does at a party: serve one request, and hand on nothing that the party's gate did not make."""

from __future__ import annotations

import numpy as np

from tacit.boundary import Release
from tacit.boundary.protection import BudgetSpent
from tacit.boundary.release import Kind
from tacit.boundary.wire import Array
from tacit.errors import PeerFailed, TacitError, UngatedRelease
from tacit.federation.messages import Answer, Request
from tacit.federation.peer import Peer
from tacit.secure.secagg_protocol import VoidRound


def kind_of(party: Peer, request: Request) -> Kind:
    """What kind of answer a request is for; a step that is not known has none of its own."""
    step = party.step(request.step)
    return Kind.PUBLIC if step is None else step.kind


def served(party: Peer, request: Request, survivors: Array | None = None) -> Answer:
    """One party's answer; `survivors` are those devices of a simulated cohort whose answers arrive.

    A spent budget is an answer too, and the ledger keeps that it was given; every other refusal and failure is raised.
    """
    kind = kind_of(party, request)
    try:
        release = party.answer(request, survivors if party.member.devices > 1 else None)
    except BudgetSpent as refusal:
        if (guard := party.gate.protection) is not None:
            guard.ledger.refuse(guard.run, request.round, request.step, request.hash, str(refusal))
        return Answer(party.name, "refused", kind, why=str(refusal))
    except VoidRound:  # it heard too few neighbours, and leaves this sum
        return Answer(party.name, "lost", kind)
    except TacitError:
        raise
    except Exception as error:
        raise PeerFailed(
            f'{party.name} failed in step "{request.step}" of round {request.round}: '
            f"{type(error).__name__}{'' if party.gate.protection else f': {error}'}."
        ) from error
    if type(release) is not Release or not party.gate.made(release):
        raise UngatedRelease(f"What {party.name} returned was not made by its gate; nothing was sent.")
    if survivors is not None and not np.any(survivors):
        return Answer(party.name, "lost", kind)
    return Answer.of(release)
