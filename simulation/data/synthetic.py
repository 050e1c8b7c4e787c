"""Synthetic records: clusters around corners of a cube, and a location with truncated noise."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from confide.client.training.scaling import Scaling
from confide.protocol.errors import BadInput

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Clusters:
    """Gaussian clusters of random shape around corners of a cube, several for each label.

    The cube is [-separation, separation]^d.

    The problem of SCP section S6.3.2: five labels, ten features, all of them informative,
    separation 0.6, one label in a hundred drawn anew.
    """

    centres: Floats
    shapes: Floats
    labels: int
    flipped: float

    @classmethod
    def drawn(
        cls,
        rng: np.random.Generator,
        *,
        labels: int = 5,
        features: int = 10,
        each: int = 2,
        separation: float = 0.6,
        flipped: float = 0.01,
    ) -> "Clusters":
        count = labels * each
        if not 1 <= count <= 1 << features:
            raise BadInput(
                f"{count} clusters at the corners of a cube of {features} dimensions, which has "
                f"{1 << features}"
            )
        corners = rng.choice(1 << features, count, replace=False)
        centres = separation * (2.0 * ((corners[:, None] >> np.arange(features)) & 1) - 1.0)
        return cls(
            centres.astype(np.float64),
            rng.uniform(-1, 1, (count, features, features)),
            labels,
            flipped,
        )

    @property
    def scaling(self) -> Scaling:
        """By the spread that features have on average over all such problems: a public number."""
        d = self.centres.shape[1]
        width = math.sqrt(d / 3 + float(self.centres[0, 0] ** 2))
        return Scaling(
            np.full(d, -5 * width), np.full(d, 5 * width), np.zeros(d), np.full(d, width)
        )

    def draw(self, n: int, rng: np.random.Generator) -> tuple[Floats, Integers]:
        """Features and labels of n records."""
        at = rng.integers(0, len(self.centres), n)
        features = (
            np.einsum("ni,nij->nj", rng.normal(size=(n, self.centres.shape[1])), self.shapes[at])
            + self.centres[at]
        )
        anew = rng.random(n) < self.flipped
        return features, np.where(anew, rng.integers(0, self.labels, n), at % self.labels)


def located(
    n: int, rng: np.random.Generator, *, location: float = 5.0, sigma: float = 5.0
) -> Floats:
    """y - x of DPCP section 5.1: a location and normal noise cut at three standard deviations."""
    noise = rng.normal(size=n)
    while (outside := np.abs(noise) > 3).any():
        noise[outside] = rng.normal(size=int(outside.sum()))
    return location + sigma * noise


# Logits of `softmax_records`: of ten labels HPS sets that cover 0.9 hold 1.85.
SPREAD = 3.53


def softmax_records(
    n: int, rng: np.random.Generator, *, labels: int = 10, spread: float = SPREAD
) -> tuple[Floats, Integers]:
    """Probabilities and labels of a calibrated model: softmax of independent normal logits."""
    logits = rng.normal(0, spread, (n, labels))
    probs = np.exp(logits - logits.max(axis=1, keepdims=True))
    probs /= probs.sum(axis=1, keepdims=True)
    truth = (probs.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    return probs, np.minimum(truth, labels - 1)


# Residuals of `line` around the truth are within 1.5; a model that is half-way there stays within
# this.
LINE_BOUND = 4.0
# The deviation of the noise, which is cut at three of them.
LINE_NOISE = 0.5
# Targets of `line` with five features lie within these: 3 for the line and 1.5 for the noise.
LINE_TARGETS = (-4.5, 4.5)


def line(n: int, rng: np.random.Generator, *, features: int = 5) -> tuple[Floats, Floats, Floats]:
    """Features in [-1, 1], targets, and the line that the targets scatter around.

    The noise is cut at three deviations of `LINE_NOISE`.
    """
    x = rng.uniform(-1, 1, (n, features))
    truth = x @ np.linspace(-1, 1, features)
    return x, truth + located(n, rng, location=0.0, sigma=LINE_NOISE), truth
