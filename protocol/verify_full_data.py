"""Deciding a full-data card again: the training's privacy profile from first principles, and all that follows from it."""

import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from protocol import recompute
from protocol.card import Layer
from protocol.findings import Finding, number, same

# How far the two computations of a profile may be apart: the card's is rounded up on a grid, this one is rounded to the middle.
_RELATIVE, _ABSOLUTE = 5e-3, 1e-9
_POINTS = 1 << 18
_WIDEST = 12.0


def full_data(formal: Layer) -> Iterator[Finding]:
    """Every clause of a full-data card."""
    contract, found = formal["contract"], formal["calibration"]
    alpha, beta = 1 - number(contract["coverage"]), number(contract["beta"])
    training = Training(**formal["training"])
    for i, point in enumerate(formal["profile"]):
        least = training.delta(point["epsilon"], added=True)
        holds = point["delta"] >= least * (1 - _RELATIVE) - _ABSOLUTE
        yield Finding(f"profile/{i}", holds, f"delta at epsilon {point['epsilon']} is at least {least:.6g}")
    miss = max(math.exp(-point["epsilon"]) * (float(alpha - beta) - point["delta"]) for point in formal["profile"])
    yield Finding("calibration/miss", found["miss"] <= miss * (1 + 1e-9), f"at most {miss}, by the points of the profile")
    n, rank = found["n"], math.ceil((1 - Fraction(found["miss"])) * (found["n"] + 1)) + 1
    yield same("calibration/level", found["level"], found["miss"] - 1 / (n + 1))
    yield same("calibration/rank", found["rank"], rank)
    entry = {
        "mechanism": "rank-exponential",
        "noised_by": "aggregator",
        "bins": found["bins"],
        "epsilon_calibration": found["epsilon"],
        "n": n,
    }
    bound = recompute.inflation(entry, beta=contract["beta"], adjacency="add-remove", rank=rank)
    certified = bound is not recompute.NOT_CERTIFIED
    yield same("calibration/inflation_ranks", found["inflation_ranks"], bound if certified else None)
    spent = max(training.with_pure(formal["total"]["epsilon"], found["epsilon"], added=added) for added in (True, False))
    holds = spent <= formal["total"]["delta"] * (1 + _RELATIVE) + _ABSOLUTE
    yield Finding("total", holds, f"delta at epsilon {formal['total']['epsilon']} is {spent:.6g}")
    flags = {
        "certified": certified,
        "rank": rank <= n,
        "epsilon": formal["total"]["epsilon"] <= contract["epsilon"],
        "delta": formal["total"]["delta"] <= contract["delta"],
    }
    yield same("flags", formal["flags"], flags)
    yield same("decision", formal["decision"], "feasible" if all(flags.values()) else "infeasible")
    yield same("failed", formal["failed"], [name for name, value in flags.items() if not value])
    yield same("margin", formal["margin"], 0.0)


class Training:
    """Steps of DP-SGD with Poisson sampling: the law of their privacy loss, by Fourier transform of one step's."""

    def __init__(self, noise_multiplier: float, sampling_rate: float, steps: int) -> None:
        self._sigma, self._rate, self._steps = noise_multiplier, sampling_rate, steps
        self._laws: dict[bool, tuple[NDArray[np.float64], NDArray[np.float64]]] = {}

    def delta(self, epsilon: float, *, added: bool) -> float:
        """E[(1 - e^(epsilon - loss))+]; added: the law without the record over the one with it, else the other way round."""
        losses, masses = self._law(added)
        return float(masses @ np.maximum(0.0, -np.expm1(np.minimum(epsilon - losses, 0.0))))

    def with_pure(self, epsilon: float, pure: float, *, added: bool) -> float:
        """Delta after one more mechanism that is pure-DP: at worst a randomised bit, whose loss is +pure or -pure."""
        keep = 1 / (1 + math.exp(-pure))
        return keep * self.delta(epsilon - pure, added=added) + (1 - keep) * self.delta(epsilon + pure, added=added)

    def _law(self, added: bool) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Losses of all steps and their masses. A step's loss is shared between the two nearest points, mean kept."""
        if added not in self._laws:
            x = np.linspace(-_WIDEST, _WIDEST, 200_001) * self._sigma + 0.5
            without = np.diff(ndtr(x / self._sigma))
            with_it = (1 - self._rate) * without + self._rate * np.diff(ndtr((x - 1) / self._sigma))
            middle = (x[1:] + x[:-1]) / 2
            ratio = -np.logaddexp(
                math.log1p(-self._rate) if self._rate < 1 else -math.inf,
                math.log(self._rate) + (2 * middle - 1) / (2 * self._sigma**2),
            )
            loss, mass = (ratio, without) if added else (-ratio, with_it)
            mean, spread = mass @ loss, math.sqrt(float(mass @ (loss - mass @ loss) ** 2))
            half = abs(self._steps * mean) + 12 * math.sqrt(self._steps) * spread + float(np.abs(loss).max())
            spacing = 2 * half / _POINTS
            at = loss / spacing + _POINTS // 2
            low = np.floor(at).astype(np.int64)
            one = np.bincount(low, mass * (low + 1 - at), _POINTS) + np.bincount(low + 1, mass * (at - low), _POINTS)
            rolled = np.fft.rfft(np.roll(one, -(_POINTS // 2)))
            together = np.roll(np.fft.irfft(rolled**self._steps, _POINTS), _POINTS // 2)
            self._laws[added] = (np.arange(_POINTS) - _POINTS // 2) * spacing, np.maximum(together, 0.0)
        return self._laws[added]
