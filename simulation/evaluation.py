"""What a method would cost on one's own arrays: repeated calibrations, each on a fresh split."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from confide.protocol.errors import BadInput
from confide.protocol.prediction.predictor import Predictor
from confide.protocol.scores.base import MULTI_LABEL, OWN_LOSS, REGRESSION
from confide.protocol.scores.probabilities import check_labels
from confide.protocol.scores.risk import risk
from confide.protocol.tensors import as_array
from confide.simulation.arrays import ArrayRecords, draw_order, read_records, with_groups
from confide.simulation.calibration import (
    NON_PRIVATE,
    Calibration,
    calibrate_in_order,
    seeded,
)
from confide.simulation.trial import Trial

# What `compare` runs: both local methods, and a trusted curator.
METHODS = ("bits", "labels", "central")


class PartMeasured(NamedTuple):
    """What was measured on the test records of a class or group."""

    records: int
    coverage: float
    size: float


class Measured(NamedTuple):
    """What was measured of a predictor on records that took no part in its calibration.

    `least_class_coverage` is the coverage of the label that is covered least; numbers have none.
    `parts` are those of every class or group, by name, where these have thresholds or are known.
    """

    coverage: float
    size: float
    least_class_coverage: float | None = None
    parts: Mapping[str, PartMeasured] = MappingProxyType({})


@dataclass(frozen=True)
class MeasuredTrial:
    """One calibration, and what was measured of it."""

    calibration: Calibration
    coverage: float
    size: float
    least_class_coverage: float | None = None
    parts: Mapping[str, PartMeasured] = field(default_factory=dict)


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
    size = len(as_array(truth)) // 2 if n is None else n
    rows = []
    for row in measured_trials(
        results,
        truth,
        method=method,
        score=score,
        epsilon=epsilon,
        alpha=alpha,
        n=size,
        trials=trials,
        seed=seed,
        **settings,
    ):
        rows.append(row)
        progress()
    spent = None if method == NON_PRIVATE else epsilon
    return Evaluation(method, rows[0].calibration.score.text, spent, alpha, size, tuple(rows))


def measured_trials(
    results: Any,
    truth: Any,
    *,
    n: int,
    trials: int,
    seed: int | None,
    score: str = "hps",
    groups: Any = None,
    **arguments: Any,
) -> Iterator[MeasuredTrial]:
    """Yield one trial after the other: a fresh split, a calibration, and what was measured.

    The other arguments are those of `calibrate`.
    """
    records = read_records(results, truth, score, groups=groups)
    arguments = with_groups(records, arguments)
    for trial in drawn_trials(len(records.truth), n=n, trials=trials, seed=seed):
        yield measured_trial(records, trial, **arguments)


def drawn_trials(total: int, *, n: int, trials: int, seed: int | None) -> Iterator[Trial]:
    """Fresh splits of so many records, each with a calibration's own order and randomness."""
    if not 1 <= n < total or trials < 1:
        raise BadInput(
            f"n is {n} and trials {trials}; accepted are 1 to {total - 1} of {total} records (the "
            "rest is the test), and at least 1 trial"
        )
    rng = np.random.default_rng(seed)
    for trial in range(trials):
        rows = rng.permutation(total)
        held, rest = rows[:n], rows[n:]
        own, u = None if seed is None else seed * trials + trial, np.empty(total)
        order, drawn = draw_order(n, own)
        u[held[order]], u[rest] = drawn, rng.random(len(rest))
        yield Trial(held[order], rest, seeded(own), u)


def measured_trial(records: ArrayRecords, trial: Trial, **arguments: Any) -> MeasuredTrial:
    """One calibration, measured on the records that took no part in it.

    The other arguments are those of `calibrate`, without the score.
    """
    rows, rest = trial.calibration, trial.test
    assert trial.u is not None, "the uniform numbers of randomised scores"
    made = calibrate_in_order(
        records.taken(rows, u=trial.u[rows]), trial.entropy, presence=trial.presence, **arguments
    )
    results, truth = records.results[rest], records.truth[rest]
    groups = None if records.groups is None else records.groups[rest]
    found = measured_on(made.predictor, results, truth, u=trial.u[rest], groups=groups)
    return MeasuredTrial(made, *found)


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


def measured_on(
    predictor: Predictor, results: Any, truth: Any, *, u: Any, groups: Any = None
) -> Measured:
    """Measure a predictor; `u` holds the uniform numbers of records, for randomised scores.

    Where records have groups, each group is measured too; else each class, if each has a threshold.
    """
    score, threshold = predictor.score, predictor.threshold
    own = groups if predictor.group_thresholds else None
    if score.task in (MULTI_LABEL, OWN_LOSS):
        loss = risk(score).losses(results, truth, threshold).mean()
        size = predictor.sizes(results).mean() if score.task == MULTI_LABEL else threshold
        return Measured(float(1 - loss), float(size))
    if score.task == REGRESSION:
        low, high = predictor.predict_interval(results, groups=own).T
        covered, sizes = (low <= truth) & (truth <= high), np.maximum(high - low, 0)
        parts = _by_part(covered, sizes, groups)
        return Measured(float(covered.mean()), float(sizes.mean()), None, parts)
    drawn = u if predictor.score.randomized else None
    sets = predictor.predict_set(results, u=drawn, groups=own)
    labels = check_labels(truth, n=len(sets), k=sets.shape[1])
    covered = sets[np.arange(len(sets)), labels]
    counts = np.bincount(labels, minlength=sets.shape[1])
    by_class = np.bincount(labels[covered], minlength=sets.shape[1])[counts > 0]
    least = float((by_class / counts[counts > 0]).min())
    by = labels if groups is None and predictor.class_thresholds else groups
    sizes = sets.sum(axis=1)
    return Measured(float(covered.mean()), float(sizes.mean()), least, _by_part(covered, sizes, by))


def _by_part(covered: Any, sizes: Any, by: Any) -> dict[str, PartMeasured]:
    """Coverage and size of every class or group that test records are of."""
    if by is None:
        return {}
    found = {}
    for name in np.unique(by).tolist():
        of = by == name
        found[str(name)] = PartMeasured(
            int(of.sum()), float(covered[of].mean()), float(sizes[of].mean())
        )
    return found
