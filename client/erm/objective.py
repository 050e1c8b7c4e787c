"""The regularised risk of a linear model, and how far one record can move its minimiser.

A row x has p numbers within [-1, 1], of which the last is 1 (the intercept); a target y lies within
[-1, 1]. With public numbers n, ridge, lasso and limit, and one term for every record there is,

    J(t) = (1/n) sum of loss(y - x.t) + ridge/2 |t|^2 + lasso |t|_1,
    loss(r) = r^2/2 where |r| <= limit, limit |r| - limit^2/2 beyond.

The loss is convex, and its gradient psi(r) x, with psi the residual clipped to +-limit, has norm at
most limit sqrt(p): squares alone are Lipschitz nowhere far out, and no noise would do. Where no
residual at the minimum passes the limit, the minimum is that of plain least squares with the same
penalties, because J is convex and has the same subgradient there. Only a ridge above 0 makes J
strongly convex, whatever the records: the lasso's penalty does not, so a plain lasso or plain least
squares has no sensitivity, and their noise goes on sums instead (`confide.client.erm.statistics`).

**Sensitivity.** Let a minimise J and b minimise J + g, where g is the term of one more record, of
Lipschitz constant K = limit sqrt(p) / n. There are subgradients v of J and w of g at b with v + w =
0, and 0 is a subgradient of J at a. Subgradients of a ridge-strongly convex function satisfy

    ridge |a - b|^2 <= <v - 0, b - a> = <-w, b - a> <= K |a - b|,    so |a - b| <= K / ridge.

This is DPCP's Lemma 8 without its factor 2, for one record added or removed. The sum is divided by
a public n, as there, so that a data set of another size has the same K.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.protocol.errors import BadInput
from confide.protocol.exact.lattice import MOST_BATCH

Floats = NDArray[np.float64]

MOST_COLUMNS = 1_000
# Smaller or larger numbers would leave the range in which the solver's error is bounded.
LEAST_PENALTY, MOST_PENALTY = 1e-9, 1e9


@dataclass(frozen=True, kw_only=True)
class Objective:
    """The public numbers of J: `n` and the penalties, the limit of residuals, and p."""

    n: int
    columns: int
    ridge: float
    lasso: float = 0.0
    limit: float = 2.0

    def __post_init__(self) -> None:
        if not 1 <= self.n <= MOST_BATCH:
            raise BadInput(f"n is {self.n}; accepted is 1 to {MOST_BATCH}")
        if not 1 <= self.columns <= MOST_COLUMNS:
            raise BadInput(
                f"rows have {self.columns} numbers, the intercept included; accepted are 1 to "
                f"{MOST_COLUMNS}"
            )
        if not LEAST_PENALTY <= self.ridge <= MOST_PENALTY:
            raise BadInput(
                f"the ridge penalty is {self.ridge!r}; noise on a solution needs one from "
                f"{LEAST_PENALTY:g} to {MOST_PENALTY:g}. Without one, accepted is noise on sums"
            )
        if not (self.lasso == 0 or LEAST_PENALTY <= self.lasso <= MOST_PENALTY):
            raise BadInput(
                f"the lasso penalty is {self.lasso!r}; accepted is 0, or {LEAST_PENALTY:g} to "
                f"{MOST_PENALTY:g}"
            )
        if not 1e-3 <= self.limit <= 1e3:
            raise BadInput(f"the limit of residuals is {self.limit!r}; accepted is 0.001 to 1000")

    @property
    def squared_sensitivity(self) -> Fraction:
        """(limit sqrt(p) / (n ridge))^2, exactly."""
        return Fraction(self.limit) ** 2 * self.columns / (self.n * Fraction(self.ridge)) ** 2

    def distance(self, rows: Floats, targets: Floats, weights: Floats) -> float:
        """An upper bound on |weights - minimiser|, rounding included.

        J is strongly convex, so any subgradient s at t proves |t - minimiser| <= |s| / ridge. What
        the float64 value of s may lack: with u = 2^-53 and gamma(k) = k u/(1 - k u), a product of k
        numbers is off by at most gamma(k) times that of their magnitudes, in any order of adding
        (Higham 2002, section 3.1). So a residual is off by at most eta = gamma(p + 1) (sqrt(p) |t|
        + 1), its clipped value by no more, and the sum over m records by at most m sqrt(p)
        (gamma(m) limit + (1 + gamma(m)) eta). The last few operations are off by u each,
        relatively. Nothing here comes near underflow; 1e-290 stands for it.
        """
        s, total = self._subgradient(rows, targets, weights)
        m, root, norm = len(rows), math.sqrt(self.columns), float(np.linalg.norm(weights))
        eta = _gamma(self.columns + 1) * (root * norm + 1)
        summed = m * root * (_gamma(m) * self.limit + 2 * eta) / self.n
        parts = float(np.linalg.norm(total)) / self.n + self.ridge * norm + self.lasso * root
        error = summed + 8 * 2.0**-53 * parts + 1e-290
        # The norm of s and this line are off by much less than the last factor.
        return (float(np.linalg.norm(s)) + error) / self.ridge * (1 + 2.0**-40)

    def subgradient(self, rows: Floats, targets: Floats, weights: Floats) -> Floats:
        """The subgradient of least norm at these weights."""
        return self._subgradient(rows, targets, weights)[0]

    def _subgradient(
        self, rows: Floats, targets: Floats, weights: Floats
    ) -> tuple[Floats, NDArray[Any]]:
        total = rows.T @ np.clip(targets - rows @ weights, -self.limit, self.limit)
        smooth = self.ridge * weights - total / self.n
        at_zero = np.sign(smooth) * np.maximum(np.abs(smooth) - self.lasso, 0.0)
        return np.where(weights != 0, smooth + self.lasso * np.sign(weights), at_zero), total


def _gamma(terms: int) -> float:
    return terms * 2.0**-53 / (1 - terms * 2.0**-53)


def check_rows(rows: NDArray[Any], targets: NDArray[Any]) -> None:
    """Accept rows and targets within [-1, 1], with an intercept: the bounds rest on it."""
    if rows.ndim != 2 or targets.shape != rows.shape[:1]:
        raise BadInput(
            f"rows have shape {rows.shape}, targets {targets.shape}; accepted are (m, p) and (m,)"
        )
    if len(rows) > MOST_BATCH:
        raise BadInput(f"there are {len(rows)} records; accepted are at most {MOST_BATCH}")
    # NaN compares false.
    if not (
        (np.abs(rows) <= 1).all() and (np.abs(targets) <= 1).all() and (rows[:, -1] == 1).all()
    ):
        raise BadInput(
            "rows or targets leave [-1, 1], or a row does not end in 1; accepted are numbers "
            "scaled by public limits, and an intercept"
        )
