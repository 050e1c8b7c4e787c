"""What a method would cost on one's own arrays: repeated calibrations, each on a fresh split."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from confide.protocol.certificate import BY_CLASS, BY_OWNER
from confide.protocol.errors import BadInput
from confide.protocol.tensors import as_array
from confide.simulation.arrays.calibrate import (
    NON_PRIVATE,
    Calibration,
    calibrate_in_order,
    seeded,
)
from confide.simulation.arrays.calibration_settings import EvaluationSettings
from confide.simulation.arrays.measured import (
    Measured,
    PartMeasured,
    measured_on,
    of_groups,
    of_owners,
)
from confide.simulation.arrays.records import ArrayRecords, draw_order, read_records, with_groups
from confide.simulation.arrays.trial import Trial

# What `compare` runs: both local methods, and a trusted curator.
METHODS = ("bits", "labels", "central")


@dataclass(frozen=True)
class MeasuredTrial:
    """One calibration, and what was measured of it.

    `parts` are labels if the promise is for each of them, else groups or owners if they are known.
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
        """What is promised: PAC, except with the failure probability; or marginal, on average."""
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
    **settings: Unpack[EvaluationSettings],
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
    first = rows[0].calibration
    spent = None if first.plan is None else epsilon
    return Evaluation(method, first.score.text, spent, alpha, size, tuple(rows))


def measured_trials(
    results: Any,
    truth: Any,
    *,
    n: int,
    trials: int,
    seed: int | None,
    score: str = "hps",
    owners: Any = None,
    groups: Any = None,
    **arguments: Any,
) -> Iterator[MeasuredTrial]:
    """Yield one trial after the other: a fresh split, a calibration, and what was measured.

    The other arguments are those of `calibrate`.
    """
    records = read_records(results, truth, score, groups=groups)
    arguments = with_groups(records, arguments)
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
    groups = None if records.groups is None else records.groups[rest]
    own = groups if made.certificate.group_thresholds else None
    results, truth = records.results[rest], records.truth[rest]
    found = measured_on(made.predictor, results, truth, u=trial.u[rest], groups=own)
    if made.certificate.by == BY_CLASS:
        reasons = {one.name: one.reason for one in made.certificate.strata}
        parts = tuple(one._replace(reason=reasons.get(one.name)) for one in found.parts)
        return MeasuredTrial(made, *found[:3], parts)
    if groups is not None:
        return MeasuredTrial(made, *found[:3], of_groups(made, records, trial, names=groups))
    parts = of_owners(made, records, trial)
    if parts and made.certificate.by == BY_OWNER and not made.certificate.together:
        weights = np.array([one.records for one in parts]) / len(rest)
        coverage = float(weights @ [one.coverage for one in parts])
        found = Measured(coverage, float(weights @ [float(one.size or 0) for one in parts]))
    return MeasuredTrial(made, *found[:3], parts)


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
