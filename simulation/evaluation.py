"""What a method would cost on one's own arrays: repeated calibrations, each on a fresh split."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from confide.protocol.certificate import BY_CLASS, BY_OWNER
from confide.protocol.errors import BadInput
from confide.protocol.prediction.predictor import Predictor
from confide.protocol.scores.base import MULTI_LABEL, OWN_LOSS, REGRESSION
from confide.protocol.scores.probabilities import check_labels
from confide.protocol.scores.risk import risk
from confide.protocol.tensors import as_array
from confide.simulation.arrays import ArrayRecords, draw_order, read_records
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
    """What was measured of an owner or a label on its test records; labels have no size."""

    name: str
    records: int
    threshold: float
    coverage: float
    size: float | None = None
    reason: str | None = None


class Measured(NamedTuple):
    """What was measured of a predictor on records that took no part in its calibration.

    `least_class_coverage` is the coverage of the label that is covered least; numbers have none.
    `parts` are the labels, or the owners where they are known.
    """

    coverage: float
    size: float
    least_class_coverage: float | None = None
    parts: tuple[PartMeasured, ...] = ()


@dataclass(frozen=True)
class MeasuredTrial:
    """One calibration, and what was measured of it.

    `parts` are labels if the promise is for each of them, else owners if they are known.
    """

    calibration: Calibration
    coverage: float
    size: float
    least_class_coverage: float | None = None
    parts: tuple[PartMeasured, ...] = ()


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
    numbers of labels, or widths of intervals; of `own-loss` they are thresholds. Trials also
    measure every owner, if `owners` names that of each record, or every label, if the promise is
    for each.
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
    owners: Any = None,
    **arguments: Any,
) -> Iterator[MeasuredTrial]:
    """Yield one trial after the other: a fresh split, a calibration, and what was measured.

    The other arguments are those of `calibrate`.
    """
    records = read_records(results, truth, score)
    total, counted = len(records.truth), isinstance(owners, int)
    named = None if owners is None or counted else np.array([str(one) for one in owners])
    if counted:
        arguments["owners"] = owners
    for trial in drawn_trials(total, n=n, trials=trials, seed=seed, owners=named):
        yield measured_trial(records, trial, **arguments)


def drawn_trials(
    total: int, *, n: int, trials: int, seed: int | None, owners: NDArray[Any] | None = None
) -> Iterator[Trial]:
    """Fresh splits of so many records, each with a calibration's own order and randomness.

    `owners` names that of every record, if they are known.
    """
    if owners is not None and len(owners) != total:
        raise BadInput(f"{len(owners)} owners with {total} truths; accepted is one each")
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
        asked, tested = (None, None) if owners is None else (owners[held[order]], owners[rest])
        yield Trial(held[order], rest, seeded(own), u, owners=asked, tested=tested)


def measured_trial(records: ArrayRecords, trial: Trial, **arguments: Any) -> MeasuredTrial:
    """One calibration, measured on the records that took no part in it.

    The other arguments are those of `calibrate`, without the score.
    """
    rows, rest = trial.calibration, trial.test
    assert trial.u is not None, "the uniform numbers of randomised scores"
    asked: dict[str, Any] = {} if trial.owners is None else {"owners": trial.owners}
    made = calibrate_in_order(
        records.taken(rows, u=trial.u[rows]),
        trial.entropy,
        presence=trial.presence,
        **asked,
        **arguments,
    )
    found = measured_on(made.predictor, records.results[rest], records.truth[rest], u=trial.u[rest])
    if made.certificate.by == BY_CLASS:
        reasons = {one.name: one.reason for one in made.certificate.strata}
        parts = tuple(one._replace(reason=reasons.get(one.name)) for one in found.parts)
        return MeasuredTrial(made, *found[:3], parts)
    parts = _owners(made, records, trial)
    if parts and made.certificate.by == BY_OWNER and not made.certificate.together:
        weights = np.array([one.records for one in parts]) / len(rest)
        coverage = float(weights @ [one.coverage for one in parts])
        found = Measured(coverage, float(weights @ [float(one.size or 0) for one in parts]))
    return MeasuredTrial(made, *found[:3], parts)


def _owners(made: Calibration, records: ArrayRecords, trial: Trial) -> tuple[PartMeasured, ...]:
    """What was measured of every owner, at its own threshold if it has one; none if unknown."""
    if trial.tested is None or trial.owners is None or trial.u is None:
        return ()
    certificate, parts = made.certificate, []
    # As cards number owners: in the order of their names, of those that answered.
    names = sorted({str(one).encode() for one in trial.owners.tolist()})
    found = dict(zip(names, certificate.strata, strict=True)) if certificate.strata else {}
    for name in np.unique(trial.tested).tolist():
        rows = trial.test[trial.tested == name]
        own = found.get(str(name).encode())
        threshold, reason = made.threshold, None
        if certificate.strata and not certificate.together:
            threshold = 1.0 if own is None else own.threshold
        if own is not None:
            reason = own.reason
        predictor = replace(made.predictor, threshold=threshold)
        coverage, size, *_ = measured_on(
            predictor, records.results[rows], records.truth[rows], u=trial.u[rows]
        )
        parts.append(PartMeasured(str(name), len(rows), threshold, coverage, size, reason))
    return tuple(parts)


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


def measured_on(predictor: Predictor, results: Any, truth: Any, *, u: Any) -> Measured:
    """Measure a predictor; `u` holds the uniform numbers of records, for randomised scores."""
    score, threshold = predictor.score, predictor.threshold
    if score.task in (MULTI_LABEL, OWN_LOSS):
        loss = risk(score).losses(results, truth, threshold).mean()
        size = predictor.sizes(results).mean() if score.task == MULTI_LABEL else threshold
        return Measured(float(1 - loss), float(size))
    if score.task == REGRESSION:
        low, high = predictor.predict_interval(results).T
        covered = (low <= truth) & (truth <= high)
        return Measured(float(covered.mean()), float(np.maximum(high - low, 0).mean()))
    sets = predictor.predict_set(results, u=u if predictor.score.randomized else None)
    labels = check_labels(truth, n=len(sets), k=sets.shape[1])
    covered = sets[np.arange(len(sets)), labels]
    counts = np.bincount(labels, minlength=sets.shape[1])
    by_class = np.bincount(labels[covered], minlength=sets.shape[1]) / np.maximum(counts, 1)
    limits = predictor.class_thresholds or (threshold,) * len(counts)
    rows = zip(counts.tolist(), limits, by_class.tolist(), strict=True)
    parts = tuple(PartMeasured(str(y), *row) for y, row in enumerate(rows) if row[0])
    least = min(one.coverage for one in parts)
    return Measured(float(covered.mean()), float(sets.sum(axis=1).mean()), least, parts)
