"""Campaigns of bits at the level of tallies, on curves F that are hard for some reason."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from confide.protocol.certificate import LocalCertificate
from confide.protocol.methods.bits import BitProcedure
from confide.simulation.curve_users import CurveUsers
from confide.simulation.driver import drive

Curve = Callable[[NDArray[Any]], NDArray[Any]]


def drawn(scores: NDArray[Any]) -> Curve:
    """The curve of draws with replacement from these scores."""
    ordered = np.sort(scores)
    return lambda q: np.searchsorted(ordered, q, side="right") / len(ordered)


def steep(q: NDArray[Any]) -> NDArray[Any]:
    """A logistic curve of slope 1,000 in logit(q)."""
    return np.asarray(expit(1_000 * (logit(np.clip(q, 1e-12, 1 - 1e-12)) - logit(0.6))))


def five_classes() -> Curve:
    """The true-label scores of a linear model of five classes, each of two clusters."""
    rng = np.random.default_rng(0)
    clusters, n = rng.choice([-2.0, 2.0], (10, 8)), 40_000
    cluster = rng.integers(0, 10, n)
    features, label = clusters[cluster] + rng.normal(size=(n, 8)), cluster % 5
    means = np.array([features[label == k].mean(axis=0) for k in range(5)])
    inverse = np.linalg.inv(np.cov((features - means[label]).T))
    logits = features @ inverse @ means.T - 0.5 * np.einsum("kd,de,ke->k", means, inverse, means)
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    return drawn(1 - odds[np.arange(n), label] / odds.sum(axis=1))


POPULATIONS: dict[str, Curve] = {
    "uniform": lambda q: np.clip(q, 0.0, 1.0),
    # A hair below the target over most of the range.
    "plateau": lambda q: np.where(q < 0.2, 4.4995 * q, np.where(q < 0.97, 0.8999, 1.0 * (q > 0))),
    "jump": lambda q: np.where(q < 0.7, 0.89 * q / 0.7, 0.97 + 0.03 * (q - 0.7) / 0.3),
    "tied": lambda q: 1.0 * (q >= 0.37),
    "steep": steep,
    "heavy tail": lambda q: 1 - (1 - np.clip(q, 0.0, 1.0)) ** 0.2,
    "mixture": lambda q: 0.85 * (1 - np.exp(-60 * q)) + 0.15 * np.clip(q, 0.0, 1.0) ** 8,
    "five classes": five_classes(),
}


def campaign(made: BitProcedure, curve: Curve, *, n: int, seed: Any) -> LocalCertificate:
    """Drive a procedure on n records whose scores have this curve."""
    certificate: LocalCertificate = drive(made, CurveUsers(n, curve, np.random.default_rng(seed)))
    return certificate
