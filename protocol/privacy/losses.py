"""Central mechanisms as values, for accounting.

Each answers its cost as a Renyi divergence and as a privacy loss distribution.

    Gaussian            mu-GDP, exactly: any number of adaptive Gaussian queries with sum of
    (sensitivity / sigma)^2 = mu^2
    DiscreteGaussian    integer counts of sensitivity 1 with discrete Gaussian noise
    SampledGaussian     steps of DP-SGD: Poisson sampling, clipping, discrete Gaussian noise on a
    lattice
    Pure                anything epsilon-DP, at its worst

Adjacency is add-remove throughout. Privacy loss distributions are Google's dp_accounting with
pessimistic rounding, so every divergence read from them is an upper bound up to the rounding of
doubles, which `Profile` adds. DP-SGD is computed as if its noise were continuous; what that leaves
out is `lattice_slack`, which `Profile` adds too.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.protocol.errors import BadInput, check_epsilon
from confide.protocol.exact.lattice import CLIP_UNITS, MOST_WEIGHTS

ADD_REMOVE = "add-remove"

# Spacing of the privacy losses: finer costs time and memory, coarser costs tightness; never
# validity.
_FINEST, _COARSEST = 2.0**-17, 2.0**-10
# A step's losses spread over this many grid points at least, so that thousands of steps stay within
# 0.1% of the truth.
_POINTS = 20
# What a mechanism used once may lose to the grid.
_ONCE = 2.0**-12


def losses() -> ModuleType:
    """The library of privacy loss distributions, which comes with the `train` extra."""
    try:
        from dp_accounting.pld import privacy_loss_distribution
    except ModuleNotFoundError:
        raise BadInput(
            "accounting of training needs the package dp-accounting; install confide[train]"
        ) from None
    return privacy_loss_distribution


@dataclass(frozen=True)
class Gaussian:
    """A mechanism that is mu-GDP.

    For example N queries of sensitivity 1 with noise sigma = sqrt(N) / mu.
    """

    mu: float

    def __post_init__(self) -> None:
        _positive("mu", self.mu)

    @classmethod
    def of(cls, *, sigma: float, sensitivity: float = 1.0, queries: int = 1) -> "Gaussian":
        """`queries` adaptive releases, each of L2 sensitivity `sensitivity` with noise `sigma`."""
        _positive("sigma", sigma)
        return cls(math.sqrt(queries) * sensitivity / sigma)

    @property
    def spacing(self) -> float:
        return _ONCE

    def renyi(self, orders: NDArray[np.float64]) -> NDArray[np.float64]:
        return orders * self.mu**2 / 2

    def loss(self, spacing: float) -> Any:
        return losses().from_gaussian_mechanism(1 / self.mu, value_discretization_interval=spacing)


@dataclass(frozen=True)
class DiscreteGaussian:
    """`queries` adaptive counts of sensitivity 1 with discrete Gaussian noise.

    The noise has P(x) proportional to exp(-x^2 / (2 sigma^2)) on the integers.

    Not mu-GDP (its losses are atoms), but queries/(2 sigma^2)-zCDP: Canonne, Kamath, Steinke 2020,
    Theorem 14.
    """

    sigma: float
    queries: int = 1

    def __post_init__(self) -> None:
        _positive("sigma", self.sigma)
        _whole("queries", self.queries)

    @property
    def spacing(self) -> float:
        return _ONCE

    def renyi(self, orders: NDArray[np.float64]) -> NDArray[np.float64]:
        return orders * self.queries / (2 * self.sigma**2)

    def loss(self, spacing: float) -> Any:
        one = losses().from_discrete_gaussian_mechanism(
            self.sigma, value_discretization_interval=spacing, use_connect_dots=True
        )
        return one.self_compose(self.queries)


@dataclass(frozen=True)
class SampledGaussian:
    """`steps` of DP-SGD.

    Each record joins a step with probability `sampling_rate`, independently of all others.

    `noise_multiplier` is the sigma of the noise over the sensitivity of the sum, both on the
    integers of `confide.protocol.exact.lattice`. Divergences and losses are those of continuous
    noise of the same sigma; `slack` is what discrete noise may cost beyond. Other ways to choose
    batches (shuffling, fixed sizes) are not covered by this value.
    """

    noise_multiplier: float
    sampling_rate: float
    steps: int

    def __post_init__(self) -> None:
        _positive("noise_multiplier", self.noise_multiplier)
        if not 0.0 < self.sampling_rate <= 1.0:
            raise BadInput(
                f"sampling_rate is {self.sampling_rate!r}; it must lie above 0 and be at most 1"
            )
        _whole("steps", self.steps)

    @property
    def spacing(self) -> float:
        exponent = min(self.noise_multiplier**-2, 50.0)
        return self.sampling_rate * math.sqrt(math.expm1(exponent)) / _POINTS

    def renyi(self, orders: NDArray[np.float64]) -> NDArray[np.float64]:
        losses()
        from dp_accounting import dp_event, rdp

        event = dp_event.PoissonSampledDpEvent(
            self.sampling_rate, dp_event.GaussianDpEvent(self.noise_multiplier)
        )
        return np.asarray(rdp.RdpAccountant(orders).compose(event, self.steps).rdp)

    def loss(self, spacing: float) -> Any:
        return _one_step(self.noise_multiplier, self.sampling_rate, spacing).self_compose(
            self.steps
        )

    def slack(self, tail: float) -> tuple[float, float]:
        """`lattice_slack` for as many weights as a model may have."""
        return lattice_slack(
            sigma=self.noise_multiplier * CLIP_UNITS,
            steps=self.steps,
            weights=MOST_WEIGHTS,
            tail=tail,
        )


def lattice_slack(*, sigma: float, steps: int, weights: int, tail: float) -> tuple[float, float]:
    """(b1, b2) with which the profile of discrete Gaussian noise follows from that of continuous
    noise of the same sigma:

        delta_discrete(epsilon) <= e^b1 delta_continuous(epsilon - b1 - b2) + e^(epsilon - b2 -
        tail).

    Let G be the discrete Gaussian and R the law of N(0, sigma^2) rounded to the nearest integer.
    With w uniform on [-1/2, 1/2],

        R(x)/G(x) = k E[exp(-x w/sigma^2 - w^2/(2 sigma^2))],    1 <= k <= 1 + theta,    theta = 3
        exp(-2 pi^2 sigma^2),

    where k = sum over integers of exp(-y^2/(2 sigma^2)) / (sigma sqrt(2 pi)) is bounded by Poisson
    summation, sigma >= 1. So

        -1/(24 sigma^2)  <=  log(R(x)/G(x))  <=  x^2/(24 sigma^4) + theta,

    by Jensen's inequality on the left, and on the right by sinh(a)/a <= exp(a^2/6) at a = x/(2
    sigma^2).

    The sums that get the noise are integers, so noise R is continuous noise and then rounding,
    which is post-processing: it has at most the continuous profile. Let P and P' be a training on
    neighbouring data, N = steps * weights, and E any event. Given the batches, the laws of all that
    is released with noise R and with noise G differ by the product of R/G over N noises, whatever a
    step takes from earlier ones; batches are drawn alike. So P_G(E) <= e^b1 P_R(E) with b1 = N/(24
    sigma^2); and P'_R(E) <= e^b2 P'_G(E) + e^-tail with b2 = r^2/(24 sigma^4) + N theta, because
    the N noises of R have a norm of at most

        r = sigma sqrt(N + 2 sqrt(N tail) + 2 tail) + sqrt(N)/2

    except with probability e^-tail (Laurent, Massart 2000, Lemma 1; rounding moves a coordinate by
    at most 1/2). In between, P_R(E) <= e^c P'_R(E) + delta_continuous(c) with c = epsilon - b1 -
    b2. Other mechanisms in a composition change nothing.
    """
    if sigma < 1:
        return math.inf, math.inf
    noises, unit = steps * weights, 24 * sigma**2
    norm = math.sqrt(noises + 2 * math.sqrt(noises * tail) + 2 * tail) + math.sqrt(noises) / (
        2 * sigma
    )
    return noises / unit, norm**2 / unit + noises * 3 * math.exp(-2 * (math.pi * sigma) ** 2)


@lru_cache(maxsize=8)
def _one_step(noise_multiplier: float, sampling_rate: float, spacing: float) -> Any:
    return losses().from_gaussian_mechanism(
        noise_multiplier, sampling_prob=sampling_rate, value_discretization_interval=spacing
    )


@dataclass(frozen=True)
class Pure:
    """Anything epsilon-DP, at its worst: randomised response on one bit.

    Kairouz, Oh, Viswanath 2015.
    """

    epsilon: float

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)

    @property
    def spacing(self) -> float:
        return _ONCE

    def renyi(self, orders: NDArray[np.float64]) -> NDArray[np.float64]:
        keep = -np.logaddexp(0.0, -self.epsilon)
        flip = keep - self.epsilon
        total = np.logaddexp(
            orders * keep + (1 - orders) * flip, orders * flip + (1 - orders) * keep
        )
        return np.asarray(total / (orders - 1))

    def loss(self, spacing: float) -> Any:
        library = losses()
        from dp_accounting.pld import common

        return library.from_privacy_parameters(
            common.DifferentialPrivacyParameters(self.epsilon, 0),
            value_discretization_interval=spacing,
        )


AccountedMechanism = Gaussian | DiscreteGaussian | SampledGaussian | Pure


def spacing(mechanisms: tuple[AccountedMechanism, ...]) -> float:
    """The grid on which these mechanisms compose.

    It is a power of two, fine enough for the narrowest of them.
    """
    narrowest = min((mechanism.spacing for mechanism in mechanisms), default=_COARSEST)
    return 2.0 ** math.floor(math.log2(min(max(narrowest, _FINEST), _COARSEST)))


def _positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise BadInput(f"{name} is {value!r}; it must be a finite number above 0")


def _whole(name: str, value: int) -> None:
    if value < 1 or value != int(value):
        raise BadInput(f"{name} is {value!r}; it must be a whole number of at least 1")
