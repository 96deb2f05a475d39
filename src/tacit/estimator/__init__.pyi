"""Written by `make stubs` from the methods' parameters: change those."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, overload

from tacit.estimator.base import DP as DP
from tacit.estimator.base import Estimator as Estimator
from tacit.methods import Method

@dataclass(kw_only=True, eq=False)
class Auto(Estimator):
    """Item means and tastes: see help(Auto)."""

    method: ClassVar[str]
    objective: Literal["rating", "ranking", "liked"] = "ranking"
    directions: int | None = None
    corrections: int | None = None
    head: int | None = None
    summary_share: float | None = None
    means_share: float | None = None
    prior_share: float | None = None
    tastes_share: float | None = None
    residuals_share: float | None = None
    factors_share: float | None = None
    together_share: float | None = None
    vote_share: float | None = None
    privacy: DP | None = None
    aggregation: str | Mapping[str, Any] = "plain"
    seed: int = 7

@dataclass(kw_only=True, eq=False)
class ALS(Estimator):
    """Bayesian alternating least squares: see help(ALS)."""

    method: ClassVar[str]
    factors: int | None = None
    sweeps: int | None = None
    confidence: float = 1.0
    regularization: float = 20.0
    privacy: DP | None = None
    aggregation: str | Mapping[str, Any] = "plain"
    seed: int = 7

@dataclass(kw_only=True, eq=False)
class EASE(Estimator):
    """Items that occur together: see help(EASE)."""

    method: ClassVar[str]
    head: int | None = None
    regularization: float | None = None
    denoising: float = 0.5
    privacy: DP | None = None
    aggregation: str | Mapping[str, Any] = "plain"
    seed: int = 7

@dataclass(kw_only=True, eq=False)
class Implicit(Estimator):
    """Federated matrix factorisation of implicit feedback: see help(Implicit)."""

    method: ClassVar[str]
    factors: int = 5
    rounds: int = 20
    steps: int = 20
    reports: int | None = None
    mechanism: Literal["one-bit", "piecewise"] | None = None
    confidence: float = 1.0
    regularization: float = 1.0
    rate: float | None = None
    privacy: DP | None = None
    aggregation: str | Mapping[str, Any] = "plain"
    seed: int = 7

@dataclass(kw_only=True, eq=False)
class SGDMF(Estimator):
    """Federated matrix factorization by stochastic gradient descent: see help(SGDMF)."""

    method: ClassVar[str]
    factors: int = 20
    rounds: int | None = None
    sampling: float | None = None
    trim: int | None = None
    rate: float | None = None
    regularization: float = 0.0
    users: Literal["together", "pretrained", "noised"] | None = None
    pretraining: int = 30
    fine_tuning: int | None = None
    local_steps: int = 10
    final_steps: int | None = None
    send: Literal["all", "rating", "record"] | None = None
    start: Literal["paper", "bias"] = "paper"
    privacy: DP | None = None
    aggregation: str | Mapping[str, Any] = "plain"
    seed: int = 7

@dataclass(kw_only=True, eq=False)
class GradientClipping(Estimator):
    """Federated matrix factorization with gradient clipping: see help(GradientClipping)."""

    method: ClassVar[str]
    factors: int = 20
    rounds: int | None = None
    sampling: float | None = None
    trim: int | None = None
    rate: float | None = None
    regularization: float = 0.0
    users: Literal["together", "pretrained", "noised"] | None = None
    pretraining: int = 30
    fine_tuning: int | None = None
    local_steps: int = 10
    final_steps: int | None = None
    threshold: float = 10.0
    projected: bool = False
    privacy: DP | None = None
    aggregation: str | Mapping[str, Any] = "plain"
    seed: int = 7

@dataclass(kw_only=True, eq=False)
class DPSGLD(Estimator):
    """Private Langevin dynamics: see help(DPSGLD)."""

    method: ClassVar[str]
    factors: int = 20
    rounds: int | None = None
    sampling: float | None = None
    trim: int | None = None
    rate: float | None = None
    regularization: float = 0.0
    users: Literal["together", "pretrained", "noised"] | None = None
    pretraining: int = 30
    fine_tuning: int | None = None
    local_steps: int = 10
    final_steps: int | None = None
    spread: float = 0.25
    privacy: DP | None = None
    aggregation: str | Mapping[str, Any] = "plain"
    seed: int = 7

@dataclass(kw_only=True, eq=False)
class ObjectivePerturbation(Estimator):
    """Objective perturbation: see help(ObjectivePerturbation)."""

    method: ClassVar[str]
    factors: int = 20
    trim: int | None = None
    pretraining: int = 30
    regularization: float = 1.0
    privacy: DP | None = None
    aggregation: str | Mapping[str, Any] = "plain"
    seed: int = 7

@dataclass(kw_only=True, eq=False)
class AMDPSGD(Estimator):
    """Alternating minimisation by private gradient steps with adaptive weights: see help(AMDPSGD)."""

    method: ClassVar[str]
    factors: int | None = None
    rounds: int | None = None
    rate: float = 0.2
    clip: float = 0.85
    skew: float = 0.35
    counts_share: float = 0.1
    privacy: DP | None = None
    aggregation: str | Mapping[str, Any] = "plain"
    seed: int = 7

@dataclass(kw_only=True, eq=False)
class SynSGD(Estimator):
    """Noisy gradients, averaged at every step: see help(SynSGD)."""

    method: ClassVar[str]
    factors: int = 20
    rounds: int = 1000
    sampling: float | None = None
    trim: int | None = None
    rate: float | None = None
    regularization: float = 0.0
    users: Literal["together", "pretrained"] | None = None
    pretraining: int = 30
    fine_tuning: int | None = None
    privacy: DP | None = None
    aggregation: str | Mapping[str, Any] = "plain"
    seed: int = 7

@dataclass(kw_only=True, eq=False)
class GDDR(Estimator):
    """One randomised bit of a projected gradient from every device: see help(GDDR)."""

    method: ClassVar[str]
    factors: int = 20
    rounds: int = 10
    projection: int | None = None
    rate: float | None = None
    pretraining: int = 30
    local_steps: int = 10
    privacy: DP | None = None
    aggregation: str | Mapping[str, Any] = "plain"
    seed: int = 7

@dataclass(kw_only=True, eq=False)
class LocalPrivate(Estimator):
    """Everybody alone, with noise: see help(LocalPrivate)."""

    method: ClassVar[str]
    factors: int = 20
    rounds: int | None = None
    sampling: float | None = None
    trim: int | None = None
    rate: float | None = None
    regularization: float = 0.0
    local_steps: int = 10
    privacy: DP | None = None
    aggregation: str | Mapping[str, Any] = "plain"
    seed: int = 7

@dataclass(kw_only=True, eq=False)
class DPALS(Estimator):
    """Private alternating least squares: see help(DPALS)."""

    method: ClassVar[str]
    factors: int | None = None
    rounds: int | None = None
    head: int | None = None
    budget: float = 20.0
    factor_clip: float = 1.0
    target_clip: float = 1.0
    item_weights: float = 0.25
    means_share: float | None = None
    privacy: DP | None = None
    aggregation: str | Mapping[str, Any] = "plain"
    seed: int = 7

@dataclass(kw_only=True, eq=False)
class DPLCF(Estimator):
    """Item similarities from randomised interactions: see help(DPLCF)."""

    method: ClassVar[str]
    neighbours: int = 50
    privacy: DP | None = None
    aggregation: str | Mapping[str, Any] = "plain"
    seed: int = 7

@dataclass(kw_only=True, eq=False)
class Bias(Estimator):
    """Item and user biases: see help(Bias)."""

    method: ClassVar[str]
    count_weight: float = 0.7
    shrinkage: float = 5.0
    privacy: DP | None = None
    aggregation: str | Mapping[str, Any] = "plain"
    seed: int = 7

@dataclass(kw_only=True, eq=False)
class Central(Estimator):
    """Central training, all ratings in one place: see help(Central)."""

    method: ClassVar[str]
    factors: int | None = None
    sweeps: int | None = None
    head: int | None = None
    regularization: float | None = None
    denoising: float = 0.5
    seed: int = 7

@dataclass(kw_only=True, eq=False)
class CentralSgd(Estimator):
    """Central training by SGD: see help(CentralSgd)."""

    method: ClassVar[str]
    factors: int = 20
    epochs: int = 40
    rate: float = 0.32
    regularization: float = 0.0125
    start: Literal["random", "flat"] = "random"
    seed: int = 7

@dataclass(kw_only=True, eq=False)
class Local(Estimator):
    """Local training, each party alone: see help(Local)."""

    method: ClassVar[str]
    factors: int | None = None
    sweeps: int | None = None
    head: int | None = None
    regularization: float | None = None
    denoising: float = 0.5
    seed: int = 7

@dataclass(kw_only=True, eq=False)
class LocalSgd(Estimator):
    """Local training by SGD, everybody alone: see help(LocalSgd)."""

    method: ClassVar[str]
    factors: int = 20
    epochs: int = 40
    rate: float = 0.32
    regularization: float = 0.0125
    start: Literal["random", "flat"] = "random"
    seed: int = 7

@dataclass(kw_only=True, eq=False)
class GlobalMean(Estimator):
    """The mean of all ratings: see help(GlobalMean)."""

    method: ClassVar[str]
    seed: int = 7

@dataclass(kw_only=True, eq=False)
class ItemMean(Estimator):
    """Item means: see help(ItemMean)."""

    method: ClassVar[str]
    shrinkage: float = 5.0
    seed: int = 7

@dataclass(kw_only=True, eq=False)
class Popularity(Estimator):
    """Popularity: see help(Popularity)."""

    method: ClassVar[str]
    seed: int = 7

@dataclass(kw_only=True, eq=False)
class Random(Estimator):
    """Random order: see help(Random)."""

    method: ClassVar[str]
    seed: int = 7

@overload
def estimator(method: Literal["auto"]) -> type[Auto]: ...
@overload
def estimator(method: Literal["als"]) -> type[ALS]: ...
@overload
def estimator(method: Literal["ease"]) -> type[EASE]: ...
@overload
def estimator(method: Literal["implicit"]) -> type[Implicit]: ...
@overload
def estimator(method: Literal["sgdmf"]) -> type[SGDMF]: ...
@overload
def estimator(method: Literal["gradient-clipping"]) -> type[GradientClipping]: ...
@overload
def estimator(method: Literal["dp-sgld"]) -> type[DPSGLD]: ...
@overload
def estimator(method: Literal["objective-perturbation"]) -> type[ObjectivePerturbation]: ...
@overload
def estimator(method: Literal["am-dpsgd"]) -> type[AMDPSGD]: ...
@overload
def estimator(method: Literal["synsgd"]) -> type[SynSGD]: ...
@overload
def estimator(method: Literal["gd-dr"]) -> type[GDDR]: ...
@overload
def estimator(method: Literal["local-private"]) -> type[LocalPrivate]: ...
@overload
def estimator(method: Literal["dpals"]) -> type[DPALS]: ...
@overload
def estimator(method: Literal["dplcf"]) -> type[DPLCF]: ...
@overload
def estimator(method: Literal["bias"]) -> type[Bias]: ...
@overload
def estimator(method: Literal["central"]) -> type[Central]: ...
@overload
def estimator(method: Literal["central-sgd"]) -> type[CentralSgd]: ...
@overload
def estimator(method: Literal["local"]) -> type[Local]: ...
@overload
def estimator(method: Literal["local-sgd"]) -> type[LocalSgd]: ...
@overload
def estimator(method: Literal["global-mean"]) -> type[GlobalMean]: ...
@overload
def estimator(method: Literal["item-mean"]) -> type[ItemMean]: ...
@overload
def estimator(method: Literal["popularity"]) -> type[Popularity]: ...
@overload
def estimator(method: Literal["random"]) -> type[Random]: ...
@overload
def estimator(method: str | Method) -> Callable[..., Estimator]: ...
