"""SCP Figure S1: two runs of DP-SGD that share batches and noise, with and without one record."""

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from confide.protocol.privacy.budgets import Budget, noise_multiplier
from confide.simulation.reproduce.target import Row, RunOptions

Floats = NDArray[np.float64]

RECORDS, FEATURES, DELTA = 1_000, 10, 1e-5
EPSILONS = (0.5, 1.0, 2.0)
# The paper does not state these.
RATE, CLIP, SAMPLING_RATE, STEPS = 0.1, 3.0, 0.1, 200
SHOWN_STEPS = range(0, STEPS + 1, 10)
RUNS = 30


def coupled(asked: RunOptions) -> list[Row]:
    """Distance of the weights to the truth, and of the two runs to each other, step by step."""
    truth = (-1.0) ** np.arange(FEATURES) / (np.arange(FEATURES) + 1)
    rows = []
    for epsilon in EPSILONS:
        noise = noise_multiplier(Budget(epsilon, DELTA), sampling_rate=SAMPLING_RATE, steps=STEPS)
        runs = np.array(
            [
                _run(truth, noise, np.random.default_rng([asked.seed, number]))
                for number in range(asked.trials)
            ]
        )
        for step in SHOWN_STEPS:
            error, gap = runs[:, 0, step], runs[:, 1, step]
            rows.append(
                {
                    "epsilon": epsilon,
                    "step": step,
                    "estimation error": float(error.mean()),
                    "estimation error sd": float(error.std()),
                    "stability gap": float(gap.mean()),
                    "stability gap sd": float(gap.std()),
                }
            )
    return rows


def _run(truth: Floats, noise: float, rng: np.random.Generator) -> Floats:
    """Errors and gaps after every step, from 0 on; the last record is the one that is added."""
    x = rng.normal(size=(RECORDS + 1, FEATURES))
    y = rng.random(RECORDS + 1) < expit(x @ truth)
    both = np.zeros((2, FEATURES))
    kept = np.ones((2, RECORDS + 1))
    kept[0, -1] = 0
    shown = np.zeros((2, STEPS + 1))
    for step in range(STEPS + 1):
        shown[:, step] = (
            np.linalg.norm(both[0] - truth),
            np.linalg.norm(both[0] - both[1]),
        )
        drawn = rng.random(RECORDS + 1) < SAMPLING_RATE
        added = noise * CLIP * rng.normal(size=FEATURES)
        slopes = (expit(x[drawn] @ both.T) - y[drawn, None]).T[:, :, None] * x[drawn]
        lengths = np.linalg.norm(slopes, axis=2, keepdims=True)
        clipped = slopes / np.maximum(1.0, lengths / CLIP) * kept[:, drawn, None]
        both -= RATE / (RECORDS * SAMPLING_RATE) * (clipped.sum(axis=1) + added)
    return shown
