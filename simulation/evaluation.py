"""What a method would cost on one's own arrays: repeated calibrations, each on a fresh split."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from confide.protocol.errors import BadInput
from confide.protocol.scores.base import MULTI_LABEL, OWN_LOSS, REGRESSION
from confide.protocol.scores.probabilities import check_labels
from confide.protocol.scores.risk import risk
from confide.protocol.tensors import as_array
from confide.simulation.calibration import NON_PRIVATE, Calibration, calibrate

# What `compare` runs: both local methods, and a trusted curator.
METHODS = ("bits", "labels", "central")


@dataclass(frozen=True)
class MeasuredTrial:
    """One calibration, and what was measured on the records that took no part in it."""

    calibration: Calibration
    coverage: float
    size: float


@dataclass(frozen=True)
class Evaluation:
    """Trials of one method at one epsilon; `size` is in labels, or the width of intervals."""

    method: str
    score: str
    epsilon: float | None
    alpha: float
    n: int
    trials: tuple[MeasuredTrial, ...]

    @property
    def coverage(self) -> float:
        """The mean coverage over the trials."""
        return float(np.mean([trial.coverage for trial in self.trials]))

    @property
    def size(self) -> float:
        """The mean size over the trials; infinite if an interval was."""
        return float(np.mean([trial.size for trial in self.trials]))

    @property
    def trivial(self) -> float:
        """The share of trials that could certify no threshold below 1."""
        return float(np.mean([trial.calibration.certificate.trivial for trial in self.trials]))

    @property
    def kind(self) -> str:
        """What is promised: PAC, but for the failure probability; or marginal, on average."""
        return self.trials[0].calibration.certificate.kind

    def __str__(self) -> str:
        cost = "no privacy" if self.epsilon is None else f"epsilon {self.epsilon:g}"
        return (
            f"{self.method}, {cost}: coverage {self.coverage:.3f} (promised {1 - self.alpha:g}, "
            f"{self.kind}), size {self.size:.2f}, trivial {self.trivial:.0%}"
        )


def evaluate(
    results: Any,
    truth: Any,
    *,
    method: str = "bits",
    score: str = "hps",
    epsilon: float = 1.0,
    alpha: float = 0.1,
    n: int | None = None,
    trials: int = 20,
    seed: int | None = None,
    progress: Callable[[], None] = lambda: None,
    **settings: Any,
) -> Evaluation:
    """Calibrate on n of the records, measure on the others, and repeat on fresh splits.

    The arguments are those of `calibrate`; n is half of the records unless it is given. Sizes are
    numbers of labels, or widths of intervals; of `own-loss` they are thresholds.
    """
    observed = as_array(truth)
    found = np.empty((len(observed), 0)) if results is None else as_array(results)
    size = len(observed) // 2 if n is None else n
    if not 1 <= size < len(observed) or trials < 1:
        raise BadInput(
            f"n is {size} and trials {trials}; accepted are 1 to {len(observed) - 1} of "
            f"{len(observed)} records (the rest is the test), and at least 1 trial"
        )
    rng, rows = np.random.default_rng(seed), []
    for trial in range(trials):
        order = rng.permutation(len(observed))
        held, rest = order[:size], order[size:]
        made = calibrate(
            found[held],
            observed[held],
            method=method,
            score=score,
            epsilon=epsilon,
            alpha=alpha,
            seed=None if seed is None else seed * trials + trial,
            **settings,
        )
        rows.append(_measured(made, found[rest], observed[rest], u=rng.random(len(rest))))
        progress()
    spent = None if method == NON_PRIVATE else epsilon
    return Evaluation(method, rows[0].calibration.score.text, spent, alpha, size, tuple(rows))


def compare(
    results: Any,
    truth: Any,
    *,
    methods: Iterable[str] = METHODS,
    epsilons: Iterable[float] = (0.5, 1.0, 2.0, 4.0),
    **arguments: Any,
) -> list[Evaluation]:
    """Evaluate several methods at several epsilons, after calibration without privacy.

    The other arguments are those of `evaluate`.
    """
    asked, budgets = list(methods), list(epsilons)
    plain = evaluate(results, truth, method=NON_PRIVATE, **arguments)
    return [
        plain,
        *(
            evaluate(results, truth, method=method, epsilon=epsilon, **arguments)
            for method in asked
            for epsilon in budgets
        ),
    ]


def _measured(made: Calibration, results: Any, truth: Any, *, u: Any) -> MeasuredTrial:
    predictor = made.predictor
    if made.score.task in (MULTI_LABEL, OWN_LOSS):
        loss = risk(made.score).losses(results, truth, made.threshold).mean()
        of_sets = made.score.task == MULTI_LABEL
        size = predictor.sizes(results).mean() if of_sets else made.threshold
        return MeasuredTrial(made, float(1 - loss), float(size))
    if made.score.task == REGRESSION:
        low, high = predictor.predict_interval(results).T
        covered = (low <= truth) & (truth <= high)
        return MeasuredTrial(made, float(covered.mean()), float(np.maximum(high - low, 0).mean()))
    sets = predictor.predict_set(results, u=u if made.score.randomized else None)
    labels = check_labels(truth, n=len(sets), k=sets.shape[1])
    covered = sets[np.arange(len(sets)), labels]
    return MeasuredTrial(made, float(covered.mean()), float(sets.sum(axis=1).mean()))
