"""What a simulation measures on records that were dealt to nobody, because it knows all records."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.aggregator.campaigns.summary import Row
from confide.aggregator.procedures.nonprivate import split_conformal
from confide.protocol.architectures.base import Weights
from confide.protocol.architectures.export import predict_file, to_onnx
from confide.protocol.certificate import BY_OWNER, Certificate
from confide.protocol.errors import BadInput
from confide.protocol.methods.training.terms import TrainingTerms
from confide.protocol.models.model_file import Model
from confide.protocol.models.results import TASK_RESULTS
from confide.protocol.models.scorer import score as run_model
from confide.protocol.scores.base import SetScore
from confide.protocol.scores.registry import find_score
from confide.protocol.scores.regression import Residual, residual
from confide.protocol.scores.risk import risk
from confide.protocol.simulated.records import dealt, simulated_data

Array = NDArray[Any]


# Coverage, and the mean size of sets or width of intervals, which is None if one is unbounded.
Measured = dict[str, float | None]


class Measurements:
    """Coverage and size of a threshold on the test records, overall and by owner.

    Results are of the model of the configuration, unless those of another model are given.
    """

    def __init__(
        self, config: Mapping[str, Any], *, owners: int, model: bytes | None = None
    ) -> None:
        self._data, self._dealt = simulated_data(config), dealt(config, owners=owners)
        self._score, self._labels = find_score(str(config["score"])), int(config["labels"])
        self._model = model
        self._u = np.random.default_rng(max(int(config["seed"]), 0)).random(len(self._data))

    @cached_property
    def _own_results(self) -> Array:
        """The results that came with the records, or those of the model for their features."""
        data = self._data
        if self._model is not None and data.features is not None:
            width = self._score.width(self._labels)
            return run_model(
                Model.of(self._model),
                data.features,
                labels=width,
                vetted=True,
                kind=TASK_RESULTS[self._score.task],
                flat=True,
            )
        given = data.results_for(self._score)
        if given is None:
            raise BadInput(f"{data.name} holds no results of a model, and no model is given")
        return given

    def predictions(self, model: bytes) -> Array:
        """Return the results of a trained model for all records."""
        assert self._data.features is not None
        return predict_file(model, self._data.features)

    def _on(
        self, rows: Array, certificate: Certificate, *, results: Array | None, each: Array
    ) -> Measured:
        """Measure some records; `each` holds the threshold of every record."""
        found = (self._own_results if results is None else results)[rows]
        u, truth, limits = self._u[rows], self._data.truth[rows], each[rows]
        own, task = self._score.owned_scores(found, truth, u=u), self._score.task
        most = limits[:, None]
        if certificate.class_thresholds:
            # That of each label; labels that the plan does not have score 1.
            most = np.array(certificate.class_thresholds)
            limits = most[np.clip(truth, 0, len(most) - 1)]
        coverage = float(np.mean(own <= limits))
        if task.of_numbers:
            width = _mean_width(residual(self._score), found, limits)
            return {"coverage": coverage, "mean_width": width}
        if task.of_risk:
            coverage = 1 - float(risk(self._score).losses(found, truth, limits).mean())
        size = None
        if task.of_labels:
            every = SetScore.of(self._score).all_scores(found, u=u)
            size = float((every <= most).sum(axis=1).mean())
        return {"coverage": coverage, "mean_size": size}

    def _each(self, certificate: Certificate, numbered: Sequence[int | None]) -> Array:
        """The threshold of every record: that of its group or owner, if these have one each.

        Records of no group of the plan have the largest, and those of owners that the certificate
        does not name have 1. `numbered` are the owners, by the place of their share, in the order
        of the certificate; None is one that is not known.
        """
        each, found = certificate.group_thresholds, np.full(len(self._data), certificate.threshold)
        if each:
            (groups,) = self._data.public.values()
            found[:] = [each.get(str(name), certificate.threshold) for name in groups.tolist()]
        elif certificate.by == BY_OWNER and not certificate.together:
            found[:] = 1.0
            of_number = {one.name: one.threshold for one in certificate.strata}
            for number, place in enumerate(numbered, start=1):
                if place is not None:
                    found[self._dealt.tested[place]] = of_number.get(str(number), 1.0)
        return found

    def of(
        self,
        certificate: Certificate,
        results: Array | None = None,
        *,
        numbered: Sequence[int | None] = (),
    ) -> Measured:
        """Measure a threshold on all test records, of owners with their own if these have one."""
        each = self._each(certificate, numbered)
        return self._on(self._dealt.test, certificate, results=results, each=each)

    def by_owner(
        self,
        certificate: Certificate,
        results: Array | None = None,
        *,
        numbered: Sequence[int | None] = (),
    ) -> list[Row]:
        """Measure a threshold on the test records of every owner: a diagnostic, not a promise."""
        rows: list[Row] = []
        each = self._each(certificate, numbered)
        pairs = zip(self._dealt.shares, self._dealt.tested, strict=True)
        for number, (share, test) in enumerate(pairs):
            name = self._data.owners[number] if self._data.owners else f"owner {number}"
            measured = self._on(test, certificate, results=results, each=each) if len(test) else {}
            rows.append(
                {"owner": name, "records": len(share), "test_records": len(test), **measured}
            )
        return rows

    def few(self, count: int) -> tuple[Array, Array]:
        """Return the results and the truth of the first test records."""
        rows = self._dealt.test[:count]
        return self._own_results[rows], self._data.truth[rows]

    def trained(self, terms: TrainingTerms, weights: Weights) -> dict[str, float]:
        """Measure a training on the test records: accuracy, or the error of numbers.

        The error is the root of the mean square, in the target's unit.
        """
        data, rest = self._data, self._dealt.test
        assert data.features is not None
        file = to_onnx(terms.network(), weights, centre=terms.centre, span=terms.span)
        found, truth = predict_file(file, data.features[rest]), data.truth[rest]
        if terms.span is not None:
            known = np.isfinite(truth)
            return {"rmse": float(np.sqrt(np.mean((found[known, 0] - truth[known]) ** 2)))}
        return {"accuracy": float(np.mean(found.argmax(axis=1) == truth))}

    def non_private(self, *, alpha: float) -> Row:
        """A row for split conformal prediction without privacy, on the records that are dealt."""
        rows = np.concatenate(self._dealt.shares)
        own = self._score.owned_scores(
            self._own_results[rows], self._data.truth[rows], u=self._u[rows]
        )
        certificate = split_conformal(own, alpha=alpha)
        measured = {**self.of(certificate), "owners": self.by_owner(certificate)}
        return {"campaign": "non-private", **asdict(certificate), "channel": None, **measured}


def _mean_width(score: Residual, results: Array, threshold: float | Array) -> float | None:
    """Return the mean width of intervals in the target's unit, of records that have results."""
    known = np.isfinite(results).all(axis=1)
    limits = np.broadcast_to(threshold, len(results))[known]
    width, results = np.zeros(len(limits)), results[known]
    for limit in np.unique(limits).tolist():
        low, high = score.interval(results[limits == limit], limit)
        width[limits == limit] = np.maximum(high - low, 0)
    found = float(width.mean()) if len(width) else math.inf
    return found if math.isfinite(found) else None
