"""What is varied for the tables and figures of docs/results/p0.md: P0's Figures 4 to 9, corrected."""

from __future__ import annotations

from collections.abc import Mapping

from experiments.sweep import Sweep

EPSILONS = (0.5, 1, 2, 4, 8)
UNITS = ("rating", "user")
SGDMF, BIAS = ("method={name='sgdmf'}",), ("method={name='bias'}",)


def _clip(threshold: float) -> tuple[str, ...]:
    return (f"method={{name='gradient-clipping', threshold={threshold}}}",)


def _synchronised(rounds: int) -> tuple[str, ...]:
    return (f"method={{name='sgdmf', rounds={rounds}, local_steps={1000 // rounds}}}",)


SWEEPS: Mapping[str, Sweep] = {
    "clipping": Sweep(
        "p0-clipping",
        {
            "embedding": SGDMF,
            "gradient C=10": _clip(10.0),
            "gradient C=50": _clip(50.0),
            "both C=5": ("method={name='gradient-clipping', threshold=5.0, projected=true}",),
            "both C=10": ("method={name='gradient-clipping', threshold=10.0, projected=true}",),
            "bias": BIAS,
        },
        {"privacy.unit": UNITS, "privacy.epsilon": EPSILONS},
    ),
    "methods": Sweep(
        "p0-methods",
        {
            "sgdmf": SGDMF,
            "dp-sgld": ("method={name='dp-sgld'}",),
            "objective perturbation": ("method={name='objective-perturbation'}",),
            "bias": BIAS,
        },
        {"privacy.epsilon": EPSILONS},
    ),
    "rounds": Sweep(
        "p0-rounds",
        {
            **{f"T={rounds}": _synchronised(rounds) for rounds in (1, 20, 100, 1000)},
            "alone": ("method={name='local-private'}",),
            "bias": BIAS,
        },
        {"partition.into": (5, 18), "privacy.unit": UNITS, "privacy.epsilon": (1, 4)},
    ),
    "genre": Sweep(
        "p0-rounds",
        {
            "random": SGDMF,
            "genre": (*SGDMF, "partition={by='genre'}"),
            "random, alone": ("method={name='local-private'}",),
            "genre, alone": ("method={name='local-private'}", "partition={by='genre'}"),
        },
        {"privacy.unit": UNITS, "privacy.epsilon": (1, 4)},
    ),
    "parties": Sweep(
        "p0-parties",
        {"together": SGDMF, "alone": ("method={name='local-private'}",), "bias": BIAS},
        {"partition.into": (2, 5, 10), "privacy.unit": UNITS, "privacy.epsilon": EPSILONS},
    ),
    "pretrain": Sweep(
        "p0-pretrain",
        {
            "pretrained": ("method={name='sgdmf', users='pretrained'}",),
            "together": ("method={name='sgdmf', users='together'}",),
            "bias": BIAS,
        },
        {"partition.into": (2, 10, 40), "privacy.epsilon": (1, 4, 8)},
    ),
    "per-rating": Sweep(
        "p0-pretrain",
        {
            "noised": ("method={name='sgdmf', users='noised'}", "privacy.unit=rating"),
            "pretrained": ("method={name='sgdmf', users='pretrained'}", "privacy.unit=rating"),
            "together": ("method={name='sgdmf', users='together'}", "privacy.unit=rating"),
            "bias": (*BIAS, "privacy.unit=rating"),
        },
        {"privacy.epsilon": (1, 4, 8)},
    ),
    "synsgd": Sweep(
        "p0-synsgd",
        {"sgdmf": SGDMF, "synsgd": ("method={name='synsgd'}",), "bias": BIAS},
        {"partition.into": (10, 40), "privacy.epsilon": EPSILONS},
    ),
    "alone": Sweep(
        "ml-1m-horizontal-local",
        {
            "local, without privacy": ("method={name='local-sgd'}",),
            "local, flat start": ("method={name='local-sgd', start='flat', epochs=20}",),
        },
        {"partition.into": (2, 10, 40)},
    ),
    "noise": Sweep(
        "p0-noise",
        {"corrected": SGDMF, "paper": (*SGDMF, "privacy.accounting=paper", "privacy.budget=1000.0")},
        {"privacy.epsilon": EPSILONS},
    ),
}
