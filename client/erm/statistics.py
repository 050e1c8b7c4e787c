"""Noise on the sums that determine a least squares solution: exact integers throughout.

Plain least squares and the plain lasso are not strongly convex, so one record may move their
solution any distance, and noise on the solution has no scale. Their solution is a function of X'X
and X'y. Each is a sum over records, and its noise has a scale without any assumption.

**Integers.** Each number of a row and each target, within [-1, 1], is rounded to a multiple of
2^-16: a function of one record. Products are integers of at most 2^32 and sums over at most 2^20
records stay below 2^53, so float64 adds them without any rounding, in any order.

**Sensitivity.** One record adds x_i x_j for i <= j (each pair once) and x_i y: p(p + 1)/2 + p
integers of at most 2^32 each. So the sums move by at most D = ceil(2^32 sqrt(p(p + 3)/2)) in norm,
and a record whose numbers are all 1 attains it. With sigma = z D this is a step of DP-SGD in which
every record joins (`confide.protocol.privacy.losses.SampledGaussian(z, 1, 1)`).

What follows (symmetry, raised eigenvalues, penalties) is a function of noisy sums and public
numbers.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from confide.client.erm.objective import LEAST_PENALTY, MOST_PENALTY, Floats, check_rows
from confide.client.erm.solver import shrunk
from confide.protocol.errors import BadInput
from confide.protocol.exact.gaussian import MOST_VARIANCE, discrete_gaussian
from confide.protocol.exact.lattice import MOST_BATCH
from confide.protocol.exact.sampling import Entropy, Integers

_BITS = 16
_SWEEPS = 2_000


@dataclass(frozen=True, kw_only=True)
class SufficientStatistics:
    """The release of X'X and X'y, and the weights that follow.

    Weights minimise |y - X t|^2/(2n) + ridge/2 |t|^2 + lasso |t|_1; both penalties may be 0.
    """

    n: int
    columns: int
    ridge: float = 0.0
    lasso: float = 0.0

    def __post_init__(self) -> None:
        if not 1 <= self.n <= MOST_BATCH:
            raise BadInput(f"n is {self.n}; accepted is 1 to {MOST_BATCH}")
        for name in ("ridge", "lasso"):
            value = getattr(self, name)
            if not (value == 0 or LEAST_PENALTY <= value <= MOST_PENALTY):
                raise BadInput(
                    f"the {name} penalty is {value!r}; accepted is 0, or {LEAST_PENALTY:g} to "
                    f"{MOST_PENALTY:g}"
                )

    @property
    def sensitivity(self) -> int:
        """D: how far one record moves the sums, in norm."""
        p = self.columns
        return math.isqrt((p * (p + 3) // 2 << 4 * _BITS) - 1) + 1

    def sums(self, rows: Floats, targets: Floats) -> Integers:
        """The upper triangle of X'X and all of X'y; they must not leave without noise."""
        check_rows(rows, targets)
        joined = np.rint(np.column_stack([rows, targets]) * 2.0**_BITS)
        products = (joined[:, :-1].T @ joined).astype(np.int64)
        return np.concatenate([products[self._triangle], products[:, -1]])

    def release(
        self, rows: Floats, targets: Floats, *, noise_multiplier: float, entropy: Entropy
    ) -> Floats:
        """Weights from sums with noise of `noise_multiplier` sensitivities.

        0 is for comparison only.
        """
        drawn, deviation = self.sums(rows, targets), 0.0
        if noise_multiplier:
            variance = (Fraction(noise_multiplier) * self.sensitivity) ** 2
            if variance > MOST_VARIANCE:
                raise BadInput(
                    f"{self.columns} columns need noise of {math.isqrt(int(variance)):.2g} units; "
                    f"accepted are fewer features or a larger epsilon (at most 2^42 units)"
                )
            drawn = drawn + discrete_gaussian(variance, len(drawn), entropy)
            deviation = noise_multiplier * self.sensitivity
        return self._weights(np.ldexp(drawn.astype(np.float64), -2 * _BITS) / self.n, deviation)

    def _weights(self, sums: Floats, deviation: float) -> Floats:
        """Minimise the quadratic of noisy sums, its curvature raised above the noise.

        A symmetric matrix of p x p noises of deviation s has eigenvalues within about 2 s sqrt(p);
        where the least eigenvalue is below s sqrt(p), all are raised until it is not.
        """
        p, half = self.columns, sums[: -self.columns]
        curvature = np.zeros((p, p))
        curvature[self._triangle] = half
        curvature = np.triu(curvature) + np.triu(curvature, 1).T + self.ridge * np.eye(p)
        floor = max(math.ldexp(deviation, -2 * _BITS) / self.n * math.sqrt(p), 1e-9)
        lowest = float(np.linalg.eigvalsh(curvature)[0])
        curvature += max(0.0, floor - lowest) * np.eye(p)
        slope = sums[-p:]
        weights: Floats = np.asarray(np.linalg.solve(curvature, slope), dtype=np.float64)
        return _descended(curvature, slope, weights, lasso=self.lasso) if self.lasso else weights

    @property
    def _triangle(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        i, j = np.triu_indices(self.columns)
        return i, j


def _descended(curvature: Floats, slope: Floats, weights: Floats, *, lasso: float) -> Floats:
    """Coordinate descent on t'At/2 - b't + lasso |t|_1, until it converges."""
    weights = weights.copy()
    for _ in range(_SWEEPS):
        before = weights.copy()
        for j in range(len(weights)):
            rest = slope[j] - curvature[j] @ weights + curvature[j, j] * weights[j]
            weights[j] = shrunk(rest, lasso) / curvature[j, j]
        if np.abs(weights - before).max() <= 1e-12 * (1 + np.abs(weights).max()):
            break
    return weights
