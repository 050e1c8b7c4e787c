"""The privacy profile of DP-SGD, computed a second time for the verification of cards."""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

Floats = NDArray[np.float64]

# The relative error allowed to this computation of a profile. The card's profile is rounded up by
# more than the rounding here.
RELATIVE = 1e-4
# Below this value a delta cannot be distinguished from rounding: neither computation could tell a
# false value from a true one.
LEAST_DELTA = 1e-7
_CELLS, _POINTS = 400_000, 1 << 20
_WIDEST = 12.0
# Losses of one step beyond this probability, over all steps, are left out of the range of losses.
_RAREST = 1e-18
# A law that is at least this many grid points wide is smooth on the grid.
_SMOOTH = 50


class Training:
    """Steps of DP-SGD with Poisson sampling and continuous noise.

    The law of their privacy loss is computed by Fourier transform.

    One step's loss is shared among neighbouring points of a grid so that moments are kept: the
    first moment if the composed law is narrow, the first three if it is smooth, because a variance
    added by sharing would add up over millions of steps. The transform is applied to the step's law
    less a unit mass at 0, and its power is taken as exp(steps log1p(.)): the law of a step with
    very small losses differs little from that mass, and the difference is kept to its last digits.
    """

    def __init__(self, noise_multiplier: float, sampling_rate: float, steps: int) -> None:
        self._sigma, self._rate, self._steps = noise_multiplier, sampling_rate, steps

    def delta(self, epsilon: float, *, added: bool) -> float:
        """E[(1 - e^(epsilon - loss))+], for one direction.

        `added`: the law without the record over the one with it; otherwise the reverse.
        """
        return _law_delta(self._sigma, self._rate, self._steps, epsilon=epsilon, added=added)

    def with_pure(self, epsilon: float, pure: float, *, added: bool) -> float:
        """Delta after one more pure-DP mechanism.

        The worst one is a randomised bit, whose loss is +pure or -pure.
        """
        keep = 1 / (1 + math.exp(-pure))
        return keep * self.delta(epsilon - pure, added=added) + (1 - keep) * self.delta(
            epsilon + pure, added=added
        )


# The cards of one training show the same points of its profile.
@lru_cache(maxsize=1024)
def _law_delta(sigma: float, rate: float, steps: int, *, epsilon: float, added: bool) -> float:
    losses, masses = _law(sigma, rate, steps, added=added)
    above = np.searchsorted(losses, epsilon)
    return max(0.0, float(masses[above:] @ -np.expm1(epsilon - losses[above:])))


@lru_cache(maxsize=8)
def _law(sigma: float, rate: float, steps: int, *, added: bool) -> tuple[Floats, Floats]:
    """Return the losses of all steps, ascending, and their masses."""
    loss, mass = _step(sigma, rate, added)
    mean = float(mass @ loss)
    spread = math.sqrt(steps * float(mass @ (loss - mean) ** 2))
    spacing = 2 * (abs(steps * mean) + 12 * spread + _reach(loss, mass, _RAREST / steps)) / _POINTS
    at = np.clip(loss / spacing, -_POINTS // 2 + 2, _POINTS // 2 - 3)
    low = np.floor(at)
    law = np.zeros(_POINTS)
    for offset, weight in (_cubic if spread > _SMOOTH * spacing else _linear)(at - low).items():
        # Negative losses are at the end, as in the output of a Fourier transform.
        law += np.bincount((low.astype(np.int64) + offset) % _POINTS, mass * weight, _POINTS)
    law[0] -= mass.sum()
    together = np.fft.irfft(np.exp(steps * np.log1p(np.fft.rfft(law))), _POINTS)
    return np.arange(-_POINTS // 2, _POINTS // 2, dtype=np.float64) * spacing, np.fft.fftshift(
        together
    )


def _step(sigma: float, rate: float, added: bool) -> tuple[Floats, Floats]:
    """Return one step's losses and their masses, for each cell of the noise."""
    x = np.linspace(-_WIDEST, _WIDEST, _CELLS + 1) * sigma + 0.5
    without = _cells(x / sigma)
    middle = (x[1:] + x[:-1]) / 2
    stays = math.log1p(-rate) if rate < 1 else -math.inf
    gain = np.asarray(
        np.logaddexp(stays, math.log(rate) + (2 * middle - 1) / (2 * sigma**2)), dtype=np.float64
    )
    return (
        (-gain, without) if added else (gain, (1 - rate) * without + rate * _cells((x - 1) / sigma))
    )


def _cells(edges: Floats) -> Floats:
    """Return standard normal masses between edges, each computed from the nearer tail.

    Differences of values near 1 would lose their digits.
    """
    return np.where(edges[1:] > 0, -np.diff(ndtr(-edges)), np.diff(ndtr(edges)))


def _reach(loss: Floats, mass: Floats, rare: float) -> float:
    """Return the least magnitude that one step's loss exceeds with probability at most `rare`."""
    order = np.argsort(-np.abs(loss))
    beyond = np.cumsum(mass[order])
    return float(np.abs(loss)[order][min(int(np.searchsorted(beyond, rare)), len(order) - 1)])


def _linear(u: Floats) -> dict[int, Floats]:
    return {0: 1 - u, 1: u}


def _cubic(u: Floats) -> dict[int, Floats]:
    """Return Lagrange's weights of the four points around u; some are negative.

    They reproduce polynomials up to degree three.
    """
    return {
        -1: -u * (u - 1) * (u - 2) / 6,
        0: (u * u - 1) * (u - 2) / 2,
        1: -u * (u + 1) * (u - 2) / 2,
        2: u * (u * u - 1) / 6,
    }
