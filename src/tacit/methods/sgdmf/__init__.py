"""SGDMF: federated matrix factorization by stochastic gradient descent with embedding clipping.

Li, Ding, Zhang, Li, Zhou: Federated Matrix Factorization with Privacy Guarantee. PVLDB 15(4), 2022: algorithms FMF,
VFL-SGDMF, HFL-SGDMF and LFL-SGDMF. Its privacy analysis is corrected: see tacit.boundary.gradients, `horizontal`,
`vertical`, `private_device` and tacit.secure.shares.
"""

from __future__ import annotations

from tacit.data.ratings import Feedback
from tacit.methods.base import Method, Sides
from tacit.methods.sgdmf.device import DeviceCohort, DeviceCoordinator
from tacit.methods.sgdmf.horizontal import HorizontalCoordinator, HorizontalSilo
from tacit.methods.sgdmf.parameters import SGDMFParameters
from tacit.methods.sgdmf.private_device import PrivateDeviceCohort, PrivateDeviceCoordinator
from tacit.methods.sgdmf.schedule import schedule
from tacit.methods.sgdmf.vertical import VerticalCoordinator, VerticalSilo
from tacit.partition import Setting

SGDMF = Method(
    name="sgdmf",
    title="Federated matrix factorization by stochastic gradient descent",
    what=(
        "Every party improves a copy of the shared factors on its own ratings for a few steps and sends the copy; the "
        "coordinator averages the copies and sends the mean back. Users' factors stay with their party where users are "
        "divided, items' factors where items are; a device sends a gradient instead of a copy. Factors are kept "
        "non-negative and short (embedding clipping)."
    ),
    parameters=SGDMFParameters,
    sides={
        Setting.HORIZONTAL: Sides(HorizontalCoordinator, HorizontalSilo),
        Setting.VERTICAL: Sides(VerticalCoordinator, VerticalSilo),
        Setting.DEVICE: Sides(DeviceCoordinator, DeviceCohort),
    },
    feedback=frozenset({Feedback.EXPLICIT, Feedback.COUNT}),
    schedule=schedule,
    private={Setting.DEVICE: Sides(PrivateDeviceCoordinator, PrivateDeviceCohort)},
)
