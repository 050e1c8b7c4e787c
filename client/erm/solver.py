"""Minimise a regularised risk to a proved distance from the minimiser."""

import math

import numpy as np
from numpy.typing import NDArray

from confide.client.erm.objective import Floats, Objective
from confide.protocol.errors import BadInput

_ROUNDS, _GRADIENT_STEPS = 400, 50


def solve(objective: Objective, rows: Floats, targets: Floats, *, within: float) -> Floats:
    """Weights at most `within` from the minimiser, by `Objective.distance`.

    A Newton step is taken where it comes nearer, else some proximal gradient steps, which always
    converge. Records for which the distance is not reached are an error, which their owner alone
    sees.
    """
    weights = np.zeros(objective.columns)
    found = objective.distance(rows, targets, weights)
    gradient = _Gradient.of(objective, rows)
    for _ in range(_ROUNDS):
        if found <= within:
            return weights
        tried = _newton(objective, rows, targets, at=weights)
        distance = objective.distance(rows, targets, tried)
        if not distance < found:
            tried = gradient.steps(rows, targets, weights)
            distance = objective.distance(rows, targets, tried)
        weights, found = tried, distance
    raise BadInput(
        f"the minimum is not reached within {within:.3g}, but within {found:.3g}; accepted are a "
        "larger ridge penalty or fewer records"
    )


def _newton(objective: Objective, rows: Floats, targets: Floats, *, at: Floats) -> Floats:
    """One Newton step on the weights that the lasso leaves free.

    A weight that would change its sign becomes 0.
    """
    slope = objective.subgradient(rows, targets, at)
    free = (at != 0) | (slope != 0)
    if not free.any():
        return at
    inner = rows[np.abs(targets - rows @ at) <= objective.limit][:, free]
    curvature = inner.T @ inner / objective.n + objective.ridge * np.eye(inner.shape[1])
    moved = at.copy()
    moved[free] -= np.linalg.solve(curvature, slope[free])
    if objective.lasso:
        sign = np.where(at != 0, np.sign(at), -np.sign(slope))
        moved[moved * sign < 0] = 0.0
    return moved


class _Gradient:
    """Accelerated proximal gradient steps, for a known smoothness and strong convexity."""

    def __init__(self, objective: Objective, smoothness: float) -> None:
        self._objective, self._rate = objective, 1 / smoothness
        root = math.sqrt(objective.ridge / smoothness)
        self._momentum = (1 - root) / (1 + root)

    @classmethod
    def of(cls, objective: Objective, rows: Floats) -> "_Gradient":
        largest = float(np.linalg.norm(rows.T @ rows, ord=2)) if len(rows) else 0.0
        return cls(objective, 1.001 * largest / objective.n + objective.ridge)

    def steps(self, rows: Floats, targets: Floats, weights: Floats) -> Floats:
        one, before = self._objective, weights
        for _ in range(_GRADIENT_STEPS):
            ahead = weights + self._momentum * (weights - before)
            pulled = np.clip(targets - rows @ ahead, -one.limit, one.limit)
            smooth = one.ridge * ahead - rows.T @ pulled / one.n
            before, weights = weights, shrunk(ahead - self._rate * smooth, self._rate * one.lasso)
        return weights


def shrunk(values: NDArray[np.float64], by: float) -> Floats:
    """Every value moved towards 0 by this much, and not beyond."""
    return np.asarray(np.sign(values) * np.maximum(np.abs(values) - by, 0.0))
