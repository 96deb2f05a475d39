"""Written by `make stubs` from the methods' parameters: change those."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, overload

from tacit.estimator.base import DP as DP
from tacit.estimator.base import Estimator as Estimator
from tacit.methods import Method

class SGDMF(Estimator):
    """Federated matrix factorization by stochastic gradient descent.

    Every party improves a copy of the shared factors on its own ratings for a few steps and sends the copy; the
    coordinator averages the copies and sends the mean back. Users' factors stay with their party where users are
    divided, items' factors where items are; a device sends a gradient instead of a copy. Factors are kept
    non-negative and short (embedding clipping).

        horizontal   U_k ← Π(U_k − γ (n_k/n) g_U)    V^(k) ← Π(V^(k) − γ g_V)          V ← Σ (n_k/n) V^(k)
        vertical     U^(k) ← Π(U^(k) − γ g_U)        V_k ← Π(V_k − γ (m_k/m) g_V)      U ← Σ (m_k/m) U^(k)

    Parameters
    ----------
    factors : p, columns of both factor blocks
    rounds : T; 100, or 10 on devices with privacy
    sampling : η, the rate at which each step samples users, or ratings where these are the unit; 0.1, or 0.01 with
        privacy
    trim : θ, ratings kept of a user in a step; with privacy per user 10 where she is in one party, else 5, or 2 where
        there are more than ten
    rate : γ, the first step's size for the mean gradient; default a rule from public quantities
    regularization : the first step's weight decay, once per row and step; it falls with the rate
    users : how a horizontal silo treats its users' factors: "together" with the item factors, "pretrained" before the
        first round and fixed, or "noised" like the item factors although they never leave. Default "together"; with
        privacy per user "pretrained", per rating "noised"
    pretraining : steps of each user on her own factors before the first round
    fine_tuning : passes over its own ratings in which a horizontal silo improves both blocks for itself after the last
        round, never released; 20 with privacy, else 0
    local_steps : T', steps of a silo between two messages
    final_steps : κ, last steps of a vertical run on item factors alone; with privacy three tenths of T·T'
    send : what a device adds to a sum: the gradient of one "rating", drawn anew each round, that of its whole
        "record", clipped, or without privacy that of "all" its ratings as it is; default "all", with privacy "rating"
    privacy : DP(…), or None
    aggregation : a name such as "plain", "ideal" or "secagg", or a table as in a run file's [aggregation]
    seed : of everything

    Attributes
    ----------
    model_ : Model, the shared part of what was learned
    predictor_ : Predictor over all parties' users, as an experimenter who holds them all sees it
    parties_ : the parties that took part
    guarantee_ : what is promised about everything that left a party
    history_ : one entry a round
    transcript_ : what crossed

    Guarantee
    ---------
    Without privacy there is none: NON-PRIVATE. With it, what is asked for, over everything that leaves a party.
    Per user a step moves item factors by at most √θ·2R^1.5 and both blocks by 2R^1.5·√(θ² + θ), per rating by 2R^1.5
    and 2√2·R^1.5; all T·T' steps compose, in the vertical setting over all parties. Proofs:
    `tacit.boundary.clipped_gradients`,
    `tacit.methods.sgdmf.horizontal` and `.vertical`.

    References
    ----------
    Li, Ding, Zhang, Li, Zhou: Federated Matrix Factorization with Privacy Guarantee. PVLDB 15(4), 2022.

    >>> import tacit
    >>> tacit.SGDMF(factors=4, rounds=3).fit(tacit.partition(tacit.load("demo"), into=3)).model_.item_factors.shape
    (500, 4)
    """

    method: ClassVar[str]
    factors: int
    rounds: int | None
    sampling: float | None
    trim: int | None
    rate: float | None
    regularization: float
    users: Literal["together", "pretrained", "noised"] | None
    pretraining: int
    fine_tuning: int | None
    local_steps: int
    final_steps: int | None
    send: Literal["all", "rating", "record"] | None
    privacy: DP | None
    aggregation: str | Mapping[str, Any]
    seed: int

    def __init__(
        self,
        *,
        factors: int = 20,
        rounds: int | None = None,
        sampling: float | None = None,
        trim: int | None = None,
        rate: float | None = None,
        regularization: float = 0.0,
        users: Literal["together", "pretrained", "noised"] | None = None,
        pretraining: int = 30,
        fine_tuning: int | None = None,
        local_steps: int = 10,
        final_steps: int | None = None,
        send: Literal["all", "rating", "record"] | None = None,
        privacy: DP | None = None,
        aggregation: str | Mapping[str, Any] = "plain",
        seed: int = 7,
    ) -> None: ...

class GradientClipping(Estimator):
    """Federated matrix factorization with gradient clipping.

    As SGDMF, but each rating's gradient is clipped to a length, as DP-SGD does it, and the factors themselves are
    not kept short.

    Parameters
    ----------
    factors : p, columns of both factor blocks
    rounds : T; 100, or 10 on devices with privacy
    sampling : η, the rate at which each step samples users, or ratings where these are the unit; 0.1, or 0.01 with
        privacy
    trim : θ, ratings kept of a user in a step; with privacy per user 10 where she is in one party, else 5, or 2 where
        there are more than ten
    rate : γ, the first step's size for the mean gradient; default a rule from public quantities
    regularization : the first step's weight decay, once per row and step; it falls with the rate
    users : how a horizontal silo treats its users' factors: "together" with the item factors, "pretrained" before the
        first round and fixed, or "noised" like the item factors although they never leave. Default "together"; with
        privacy per user "pretrained", per rating "noised"
    pretraining : steps of each user on her own factors before the first round
    fine_tuning : passes over its own ratings in which a horizontal silo improves both blocks for itself after the last
        round, never released; 20 with privacy, else 0
    local_steps : T', steps of a silo between two messages
    final_steps : κ, last steps of a vertical run on item factors alone; with privacy three tenths of T·T'
    threshold : C, the norm that one rating's gradient is clipped to
    projected : whether the factors are kept short as well, by Π after every step; the noise is C's all the same
    privacy : DP(…), or None
    aggregation : a name such as "plain", "ideal" or "secagg", or a table as in a run file's [aggregation]
    seed : of everything

    Attributes
    ----------
    model_ : Model, the shared part of what was learned
    predictor_ : Predictor over all parties' users, as an experimenter who holds them all sees it
    parties_ : the parties that took part
    guarantee_ : what is promised about everything that left a party
    history_ : one entry a round
    transcript_ : what crossed
    """

    method: ClassVar[str]
    factors: int
    rounds: int | None
    sampling: float | None
    trim: int | None
    rate: float | None
    regularization: float
    users: Literal["together", "pretrained", "noised"] | None
    pretraining: int
    fine_tuning: int | None
    local_steps: int
    final_steps: int | None
    threshold: float
    projected: bool
    privacy: DP | None
    aggregation: str | Mapping[str, Any]
    seed: int

    def __init__(
        self,
        *,
        factors: int = 20,
        rounds: int | None = None,
        sampling: float | None = None,
        trim: int | None = None,
        rate: float | None = None,
        regularization: float = 0.0,
        users: Literal["together", "pretrained", "noised"] | None = None,
        pretraining: int = 30,
        fine_tuning: int | None = None,
        local_steps: int = 10,
        final_steps: int | None = None,
        threshold: float = 10.0,
        projected: bool = False,
        privacy: DP | None = None,
        aggregation: str | Mapping[str, Any] = "plain",
        seed: int = 7,
    ) -> None: ...

class DPSGLD(Estimator):
    """Private Langevin dynamics.

    As SGDMF, with enough noise on each step to draw factors from a posterior instead of finding the best ones;
    where privacy needs more noise than that, its noise serves.

    Parameters
    ----------
    factors : p, columns of both factor blocks
    rounds : T; 100, or 10 on devices with privacy
    sampling : η, the rate at which each step samples users, or ratings where these are the unit; 0.1, or 0.01 with
        privacy
    trim : θ, ratings kept of a user in a step; with privacy per user 10 where she is in one party, else 5, or 2 where
        there are more than ten
    rate : γ, the first step's size for the mean gradient; default a rule from public quantities
    regularization : the first step's weight decay, once per row and step; it falls with the rate
    users : how a horizontal silo treats its users' factors: "together" with the item factors, "pretrained" before the
        first round and fixed, or "noised" like the item factors although they never leave. Default "together"; with
        privacy per user "pretrained", per rating "noised"
    pretraining : steps of each user on her own factors before the first round
    fine_tuning : passes over its own ratings in which a horizontal silo improves both blocks for itself after the last
        round, never released; 20 with privacy, else 0
    local_steps : T', steps of a silo between two messages
    final_steps : κ, last steps of a vertical run on item factors alone; with privacy three tenths of T·T'
    spread : s, how far ratings are taken to lie from what factors say, in parts of the scale's span
    privacy : DP(…), or None
    aggregation : a name such as "plain", "ideal" or "secagg", or a table as in a run file's [aggregation]
    seed : of everything

    Attributes
    ----------
    model_ : Model, the shared part of what was learned
    predictor_ : Predictor over all parties' users, as an experimenter who holds them all sees it
    parties_ : the parties that took part
    guarantee_ : what is promised about everything that left a party
    history_ : one entry a round
    transcript_ : what crossed
    """

    method: ClassVar[str]
    factors: int
    rounds: int | None
    sampling: float | None
    trim: int | None
    rate: float | None
    regularization: float
    users: Literal["together", "pretrained", "noised"] | None
    pretraining: int
    fine_tuning: int | None
    local_steps: int
    final_steps: int | None
    spread: float
    privacy: DP | None
    aggregation: str | Mapping[str, Any]
    seed: int

    def __init__(
        self,
        *,
        factors: int = 20,
        rounds: int | None = None,
        sampling: float | None = None,
        trim: int | None = None,
        rate: float | None = None,
        regularization: float = 0.0,
        users: Literal["together", "pretrained", "noised"] | None = None,
        pretraining: int = 30,
        fine_tuning: int | None = None,
        local_steps: int = 10,
        final_steps: int | None = None,
        spread: float = 0.25,
        privacy: DP | None = None,
        aggregation: str | Mapping[str, Any] = "plain",
        seed: int = 7,
    ) -> None: ...

class ObjectivePerturbation(Estimator):
    """Objective perturbation.

    Each silo fits its users at home and then solves one least-squares problem per item, exactly and once, with
    noise added to the problem instead of to the answer.

    Parameters
    ----------
    factors : p, columns of both factor blocks
    trim : θ, ratings kept of a user; 10 with privacy, else all
    pretraining : steps of each user on her own factors, before the items' problems and again after them
    regularization : the least weight λ of an item's start factors; privacy asks for more
    privacy : DP(…), or None
    aggregation : a name such as "plain", "ideal" or "secagg", or a table as in a run file's [aggregation]
    seed : of everything

    Attributes
    ----------
    model_ : Model, the shared part of what was learned
    predictor_ : Predictor over all parties' users, as an experimenter who holds them all sees it
    parties_ : the parties that took part
    guarantee_ : what is promised about everything that left a party
    history_ : one entry a round
    transcript_ : what crossed
    """

    method: ClassVar[str]
    factors: int
    trim: int | None
    pretraining: int
    regularization: float
    privacy: DP | None
    aggregation: str | Mapping[str, Any]
    seed: int

    def __init__(
        self,
        *,
        factors: int = 20,
        trim: int | None = None,
        pretraining: int = 30,
        regularization: float = 1.0,
        privacy: DP | None = None,
        aggregation: str | Mapping[str, Any] = "plain",
        seed: int = 7,
    ) -> None: ...

class SynSGD(Estimator):
    """Noisy gradients, averaged at every step.

    Every silo sends one noisy gradient of the item factors at every step, and the coordinator descends. It is SGDMF
    with one local step: more messages, and users' factors follow at home.

    Parameters
    ----------
    factors : p, columns of both factor blocks
    rounds : T; 100, or 10 on devices with privacy
    sampling : η, the rate at which each step samples users, or ratings where these are the unit; 0.1, or 0.01 with
        privacy
    trim : θ, ratings kept of a user in a step; with privacy per user 10 where she is in one party, else 5, or 2 where
        there are more than ten
    rate : γ, the first step's size for the mean gradient; default a rule from public quantities
    regularization : the first step's weight decay, once per row and step; it falls with the rate
    users : how a horizontal silo treats its users' factors: "together" with the item factors, "pretrained" before the
        first round and fixed, or "noised" like the item factors although they never leave. Default "together"; with
        privacy per user "pretrained", per rating "noised"
    pretraining : steps of each user on her own factors before the first round
    fine_tuning : passes over its own ratings in which a horizontal silo improves both blocks for itself after the last
        round, never released; 20 with privacy, else 0
    privacy : DP(…), or None
    aggregation : a name such as "plain", "ideal" or "secagg", or a table as in a run file's [aggregation]
    seed : of everything

    Attributes
    ----------
    model_ : Model, the shared part of what was learned
    predictor_ : Predictor over all parties' users, as an experimenter who holds them all sees it
    parties_ : the parties that took part
    guarantee_ : what is promised about everything that left a party
    history_ : one entry a round
    transcript_ : what crossed
    """

    method: ClassVar[str]
    factors: int
    rounds: int
    sampling: float | None
    trim: int | None
    rate: float | None
    regularization: float
    users: Literal["together", "pretrained"] | None
    pretraining: int
    fine_tuning: int | None
    privacy: DP | None
    aggregation: str | Mapping[str, Any]
    seed: int

    def __init__(
        self,
        *,
        factors: int = 20,
        rounds: int = 1000,
        sampling: float | None = None,
        trim: int | None = None,
        rate: float | None = None,
        regularization: float = 0.0,
        users: Literal["together", "pretrained"] | None = None,
        pretraining: int = 30,
        fine_tuning: int | None = None,
        privacy: DP | None = None,
        aggregation: str | Mapping[str, Any] = "plain",
        seed: int = 7,
    ) -> None: ...

class GDDR(Estimator):
    """One randomised bit of a projected gradient from every device.

    Every device fits its own factors at home and, in each round, reports one randomised bit about one random
    coordinate of its item gradient, which a random projection has made short. The coordinator estimates the mean
    gradient from all bits and descends. Each report protects its device by itself.

    Parameters
    ----------
    factors : p, columns of both factor blocks
    rounds : T; a device reports once in each
    projection : q, rows of the random projection; half as many as there are items, and at most 1,000, by default
    rate : the first step's size for the gradient of one rating; default a rule from public quantities
    pretraining : steps of each device on its own factors before it reports first
    local_steps : the same before every later report
    privacy : DP(…), or None
    aggregation : a name such as "plain", "ideal" or "secagg", or a table as in a run file's [aggregation]
    seed : of everything

    Attributes
    ----------
    model_ : Model, the shared part of what was learned
    predictor_ : Predictor over all parties' users, as an experimenter who holds them all sees it
    parties_ : the parties that took part
    guarantee_ : what is promised about everything that left a party
    history_ : one entry a round
    transcript_ : what crossed
    """

    method: ClassVar[str]
    factors: int
    rounds: int
    projection: int | None
    rate: float | None
    pretraining: int
    local_steps: int
    privacy: DP | None
    aggregation: str | Mapping[str, Any]
    seed: int

    def __init__(
        self,
        *,
        factors: int = 20,
        rounds: int = 10,
        projection: int | None = None,
        rate: float | None = None,
        pretraining: int = 30,
        local_steps: int = 10,
        privacy: DP | None = None,
        aggregation: str | Mapping[str, Any] = "plain",
        seed: int = 7,
    ) -> None: ...

class LocalPrivate(Estimator):
    """Everybody alone, with noise.

    Each silo makes noisy steps on its own ratings and lets its own factors out; nobody learns from anybody.

    Parameters
    ----------
    factors : p, columns of both factor blocks
    rounds : T; 100, or 10 on devices with privacy
    sampling : η, the rate at which each step samples users, or ratings where these are the unit; 0.1, or 0.01 with
        privacy
    trim : θ, ratings kept of a user in a step; with privacy per user 10 where she is in one party, else 5, or 2 where
        there are more than ten
    rate : γ, the first step's size for the mean gradient; default a rule from public quantities
    regularization : the first step's weight decay, once per row and step; it falls with the rate
    local_steps : T'; a silo makes T·T' steps by itself
    privacy : DP(…), or None
    aggregation : a name such as "plain", "ideal" or "secagg", or a table as in a run file's [aggregation]
    seed : of everything

    Attributes
    ----------
    model_ : Model, the shared part of what was learned
    predictor_ : Predictor over all parties' users, as an experimenter who holds them all sees it
    parties_ : the parties that took part
    guarantee_ : what is promised about everything that left a party
    history_ : one entry a round
    transcript_ : what crossed
    """

    method: ClassVar[str]
    factors: int
    rounds: int | None
    sampling: float | None
    trim: int | None
    rate: float | None
    regularization: float
    local_steps: int
    privacy: DP | None
    aggregation: str | Mapping[str, Any]
    seed: int

    def __init__(
        self,
        *,
        factors: int = 20,
        rounds: int | None = None,
        sampling: float | None = None,
        trim: int | None = None,
        rate: float | None = None,
        regularization: float = 0.0,
        local_steps: int = 10,
        privacy: DP | None = None,
        aggregation: str | Mapping[str, Any] = "plain",
        seed: int = 7,
    ) -> None: ...

class Bias(Estimator):
    """Item and user biases.

    Every user sends, once, how far her ratings lie from her own mean, scaled to length one; from the sum it is
    estimated how far each item lies from its users' means. Where items are divided, each silo does so for its own.
    Users fit their own level at home. Where single ratings are protected, each is sent as it is, less the middle of
    the scale.

    Parameters
    ----------
    count_weight : s, how much of a contribution tells that an item was rated, beside how
    shrinkage : how many ratings' worth of the middle of the scale a user's own level starts with
    privacy : DP(…), or None
    aggregation : a name such as "plain", "ideal" or "secagg", or a table as in a run file's [aggregation]
    seed : of everything

    Attributes
    ----------
    model_ : Model, the shared part of what was learned
    predictor_ : Predictor over all parties' users, as an experimenter who holds them all sees it
    parties_ : the parties that took part
    guarantee_ : what is promised about everything that left a party
    history_ : one entry a round
    transcript_ : what crossed
    """

    method: ClassVar[str]
    count_weight: float
    shrinkage: float
    privacy: DP | None
    aggregation: str | Mapping[str, Any]
    seed: int

    def __init__(
        self,
        *,
        count_weight: float = 0.7,
        shrinkage: float = 5.0,
        privacy: DP | None = None,
        aggregation: str | Mapping[str, Any] = "plain",
        seed: int = 7,
    ) -> None: ...

class Central(Estimator):
    """Central training, all ratings in one place.

    Every party hands its ratings to the coordinator, who trains on all of them. It protects nothing; it shows what
    could be had.

    Parameters
    ----------
    factors : p
    epochs : passes over the ratings
    rate : the first step's size, for a scale with a span of 1; it falls linearly over the first 80 % of the passes
    regularization : weight decay per rating, for a scale with a span of 1
    start : "random", all factors alike, or "flat": every row nearly the same, so that what the first passes learn are
        levels, and tastes only where ratings speak of them; better for whoever has few ratings
    seed : of everything

    Attributes
    ----------
    model_ : Model, the shared part of what was learned
    predictor_ : Predictor over all parties' users, as an experimenter who holds them all sees it
    parties_ : the parties that took part
    guarantee_ : what is promised about everything that left a party
    history_ : one entry a round
    transcript_ : what crossed
    """

    method: ClassVar[str]
    factors: int
    epochs: int
    rate: float
    regularization: float
    start: Literal["random", "flat"]
    seed: int

    def __init__(
        self,
        *,
        factors: int = 20,
        epochs: int = 40,
        rate: float = 0.32,
        regularization: float = 0.0125,
        start: Literal["random", "flat"] = "random",
        seed: int = 7,
    ) -> None: ...

class Local(Estimator):
    """Local training, everybody alone.

    Each party trains on its own ratings and shares nothing. It is what a party has without the others.

    Parameters
    ----------
    factors : p
    epochs : passes over the ratings
    rate : the first step's size, for a scale with a span of 1; it falls linearly over the first 80 % of the passes
    regularization : weight decay per rating, for a scale with a span of 1
    start : "random", all factors alike, or "flat": every row nearly the same, so that what the first passes learn are
        levels, and tastes only where ratings speak of them; better for whoever has few ratings
    seed : of everything

    Attributes
    ----------
    model_ : Model, the shared part of what was learned
    predictor_ : Predictor over all parties' users, as an experimenter who holds them all sees it
    parties_ : the parties that took part
    guarantee_ : what is promised about everything that left a party
    history_ : one entry a round
    transcript_ : what crossed
    """

    method: ClassVar[str]
    factors: int
    epochs: int
    rate: float
    regularization: float
    start: Literal["random", "flat"]
    seed: int

    def __init__(
        self,
        *,
        factors: int = 20,
        epochs: int = 40,
        rate: float = 0.32,
        regularization: float = 0.0125,
        start: Literal["random", "flat"] = "random",
        seed: int = 7,
    ) -> None: ...

class GlobalMean(Estimator):
    """The mean of all ratings.

    One number for everyone, from one sum.

    Parameters
    ----------
    seed : of everything

    Attributes
    ----------
    model_ : Model, the shared part of what was learned
    predictor_ : Predictor over all parties' users, as an experimenter who holds them all sees it
    parties_ : the parties that took part
    guarantee_ : what is promised about everything that left a party
    history_ : one entry a round
    transcript_ : what crossed
    """

    method: ClassVar[str]
    seed: int

    def __init__(
        self,
        *,
        seed: int = 7,
    ) -> None: ...

class ItemMean(Estimator):
    """Item means.

    Each item's mean rating, shrunk towards the mean of all, from one sum.

    Parameters
    ----------
    shrinkage : how many ratings' worth of the global mean every item mean starts with
    seed : of everything

    Attributes
    ----------
    model_ : Model, the shared part of what was learned
    predictor_ : Predictor over all parties' users, as an experimenter who holds them all sees it
    parties_ : the parties that took part
    guarantee_ : what is promised about everything that left a party
    history_ : one entry a round
    transcript_ : what crossed
    """

    method: ClassVar[str]
    shrinkage: float
    seed: int

    def __init__(
        self,
        *,
        shrinkage: float = 5.0,
        seed: int = 7,
    ) -> None: ...

class Popularity(Estimator):
    """Popularity.

    Items in the order of how often they were rated, from one sum.

    Parameters
    ----------
    seed : of everything

    Attributes
    ----------
    model_ : Model, the shared part of what was learned
    predictor_ : Predictor over all parties' users, as an experimenter who holds them all sees it
    parties_ : the parties that took part
    guarantee_ : what is promised about everything that left a party
    history_ : one entry a round
    transcript_ : what crossed
    """

    method: ClassVar[str]
    seed: int

    def __init__(
        self,
        *,
        seed: int = 7,
    ) -> None: ...

class Random(Estimator):
    """Random order.

    A random order of items for each user; nothing leaves a party.

    Parameters
    ----------
    seed : of everything

    Attributes
    ----------
    model_ : Model, the shared part of what was learned
    predictor_ : Predictor over all parties' users, as an experimenter who holds them all sees it
    parties_ : the parties that took part
    guarantee_ : what is promised about everything that left a party
    history_ : one entry a round
    transcript_ : what crossed
    """

    method: ClassVar[str]
    seed: int

    def __init__(
        self,
        *,
        seed: int = 7,
    ) -> None: ...

@overload
def estimator(method: Literal["sgdmf"]) -> type[SGDMF]: ...
@overload
def estimator(method: Literal["gradient-clipping"]) -> type[GradientClipping]: ...
@overload
def estimator(method: Literal["dp-sgld"]) -> type[DPSGLD]: ...
@overload
def estimator(method: Literal["objective-perturbation"]) -> type[ObjectivePerturbation]: ...
@overload
def estimator(method: Literal["synsgd"]) -> type[SynSGD]: ...
@overload
def estimator(method: Literal["gd-dr"]) -> type[GDDR]: ...
@overload
def estimator(method: Literal["local-private"]) -> type[LocalPrivate]: ...
@overload
def estimator(method: Literal["bias"]) -> type[Bias]: ...
@overload
def estimator(method: Literal["central"]) -> type[Central]: ...
@overload
def estimator(method: Literal["local"]) -> type[Local]: ...
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
