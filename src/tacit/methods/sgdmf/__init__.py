"""SGDMF: federated matrix factorization by stochastic gradient descent with embedding clipping.

Li, Ding, Zhang, Li, Zhou: Federated Matrix Factorization with Privacy Guarantee. PVLDB 15(4), 2022: algorithms FMF,
VFL-SGDMF, HFL-SGDMF and LFL-SGDMF. Its privacy analysis is corrected: see tacit.boundary.clipped_gradients,
`horizontal`, `vertical`, `device` and tacit.secure.noise_shares.
"""

from tacit.methods.method import RATED, Method, Sides
from tacit.methods.sgdmf import device, horizontal, vertical
from tacit.methods.sgdmf.parameters import SGDMFParameters
from tacit.partition import Setting

#: The two sides on silos; a variant brings parameters with another update rule.
ON_SILOS = {
    Setting.HORIZONTAL: Sides(horizontal.HorizontalCoordinator, horizontal.HorizontalSilo, horizontal.specs),
    Setting.VERTICAL: Sides(vertical.VerticalCoordinator, vertical.VerticalSilo, vertical.specs),
}

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
    sides={**ON_SILOS, Setting.DEVICE: Sides(device.DeviceCoordinator, device.DeviceCohort, device.specs)},
    feedback=RATED,
    claim=horizontal.proposition_3,
)
