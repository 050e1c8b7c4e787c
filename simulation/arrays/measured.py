"""What is measured of a predictor on records that took no part: in all, and part by part."""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from confide.protocol.methods.partition import spelled
from confide.protocol.prediction.predictor import Predictor
from confide.protocol.scores.probabilities import check_labels
from confide.protocol.scores.risk import risk
from confide.simulation.arrays.calibrate import Calibration
from confide.simulation.arrays.records import ArrayRecords
from confide.simulation.arrays.trial import Trial


class PartMeasured(NamedTuple):
    """What was measured of an owner, group or label on its test records; labels have no size."""

    name: str
    records: int
    threshold: float
    coverage: float
    size: float | None = None
    reason: str | None = None


class Measured(NamedTuple):
    """What was measured of a predictor on records that took no part in its calibration.

    `least_class_coverage` is the coverage of the label that is covered least; numbers have none.
    `parts` are the labels, or the owners or groups where they are known.
    """

    coverage: float
    size: float
    least_class_coverage: float | None = None
    parts: tuple[PartMeasured, ...] = ()


def of_owners(made: Calibration, records: ArrayRecords, trial: Trial) -> tuple[PartMeasured, ...]:
    """What was measured of every owner, at its own threshold if it has one; none if unknown."""
    if trial.tested is None or trial.u is None:
        return ()
    certificate, parts = made.certificate, []
    numbers = enumerate(made.owners, start=1)
    of_number = {one.name: one for one in certificate.strata}
    found = {name: of_number.get(str(number)) for number, name in numbers}
    for name in np.unique(trial.tested).tolist():
        rows = trial.test[trial.tested == name]
        own = found.get(name)
        threshold, reason = made.threshold, None
        if certificate.strata and not certificate.together:
            threshold = 1.0 if own is None else own.threshold
        if own is not None:
            reason = own.reason
        coverage, size, *_ = _at(threshold, made, records=records, trial=trial, rows=rows)
        parts.append(PartMeasured(name, len(rows), threshold, coverage, size, reason))
    return tuple(parts)


def of_groups(
    made: Calibration, records: ArrayRecords, trial: Trial, *, names: Any
) -> tuple[PartMeasured, ...]:
    """What was measured of every group, at its own threshold if it has one."""
    own, parts = {one.name: one for one in made.certificate.strata}, []
    for name in np.unique(names).tolist():
        rows, reason = trial.test[names == name], own[name].reason if name in own else None
        threshold = made.certificate.group_thresholds.get(name, made.threshold)
        coverage, size, *_ = _at(threshold, made, records=records, trial=trial, rows=rows)
        parts.append(PartMeasured(name, len(rows), threshold, coverage, size, reason))
    return tuple(parts)


def _at(
    threshold: float, made: Calibration, *, records: ArrayRecords, trial: Trial, rows: Any
) -> Measured:
    """What is measured of these records at a threshold."""
    assert trial.u is not None
    predictor = replace(made.predictor, threshold=threshold, group_thresholds={})
    return measured_on(predictor, records.results[rows], records.truth[rows], u=trial.u[rows])


def measured_on(
    predictor: Predictor, results: Any, truth: Any, *, u: Any, groups: Any = None
) -> Measured:
    """Measure a predictor; `u` holds the uniform numbers of records, for randomised scores.

    With `groups`, each record is predicted with the threshold of its group.
    """
    score, threshold = predictor.score, predictor.threshold
    if score.task.of_risk:
        each, own = predictor.group_thresholds, np.full(len(truth), threshold)
        if groups is not None:
            own = np.array([each[name] for name in spelled(groups).tolist()])
        loss = risk(score).losses(results, truth, own).mean()
        size = predictor.sizes(results, groups=groups) if score.task.of_labels else own
        return Measured(float(1 - loss), float(size.mean()))
    if score.task.of_numbers:
        low, high = predictor.predict_interval(results, groups=groups).T
        covered = (low <= truth) & (truth <= high)
        return Measured(float(covered.mean()), float(np.maximum(high - low, 0).mean()))
    drawn = u if predictor.score.randomized else None
    sets = predictor.predict_set(results, u=drawn, groups=groups)
    labels = check_labels(truth, n=len(sets), k=sets.shape[1])
    covered = sets[np.arange(len(sets)), labels]
    counts = np.bincount(labels, minlength=sets.shape[1])
    by_class = np.bincount(labels[covered], minlength=sets.shape[1]) / np.maximum(counts, 1)
    limits = predictor.class_thresholds or (threshold,) * len(counts)
    rows = zip(counts.tolist(), limits, by_class.tolist(), strict=True)
    parts = tuple(PartMeasured(str(y), *row) for y, row in enumerate(rows) if row[0])
    least = min(one.coverage for one in parts)
    return Measured(float(covered.mean()), float(sets.sum(axis=1).mean()), least, parts)
