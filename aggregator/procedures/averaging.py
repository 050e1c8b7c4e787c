"""Federated averaging: owners train by local DP-SGD, and the aggregator averages their weights.

The averaged weights are sent out again in the next round. The aggregator sees nothing but weights
that each owner has noised; its averages and its momentum are post-processing. Owners count alike,
because no answer says how many records they have.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.protocol.architectures.base import Weights
from confide.protocol.methods.training.mean_weights import WEIGHT_BOUND, TrainingTally
from confide.protocol.methods.training.noised_errors import ErrorRate
from confide.protocol.methods.training.query import TrainingQuery
from confide.protocol.methods.training.terms import TrainingTerms
from confide.protocol.plan import Plan


@dataclass(frozen=True)
class Learned:
    """The common weights, how many owners took part in each round, and the error rates.

    The rate of a round is that of the weights that owners were sent, if the plan has a loss.
    """

    weights: Weights
    owners: tuple[int, ...]
    errors: tuple[ErrorRate | None, ...] = ()


def federated_averaging(terms: TrainingTerms) -> Generator[TrainingQuery, TrainingTally, Learned]:
    """Average the weights that arrive in each round; a round without answers changes nothing.

    With w the common weights and a the average of the answers to them, the next ones are

        w' = a + momentum (w - v),

    v being the weights before w (heavy ball; Hsu, Qi, Brown 2019 for federated averaging). The
    result is the average of the common weights after the last `averaged_rounds`.
    """
    weights, owners, errors = terms.network().first_weights(), [], []
    movement, total = np.zeros(terms.size), np.zeros(terms.size)
    for round_ in range(terms.rounds):
        tally = yield TrainingQuery(terms, weights)
        owners.append(tally.owners)
        errors.append(error_rate(terms, tally))
        if tally.mean is not None:
            following = _within(tally.mean + terms.momentum * movement)
            movement = following - weights
            weights = following.astype(np.float32)
        if round_ >= terms.rounds - terms.averaged_rounds:
            total += weights
    last = (total / terms.averaged_rounds).astype(np.float32)
    return Learned(last, tuple(owners), tuple(errors) if terms.loss_share else ())


def error_rate(terms: TrainingTerms, tally: TrainingTally) -> ErrorRate | None:
    """The noised error rate of a round; nothing without a loss in the plan."""
    return ErrorRate.of(tally.records, tally.errors, owners=tally.owners, noise=terms.loss_noise)


def _within(weights: NDArray[Any]) -> NDArray[Any]:
    return np.clip(weights, -WEIGHT_BOUND, WEIGHT_BOUND)


def of_plan(plan: Plan) -> Generator[TrainingQuery, TrainingTally, Learned]:
    """Make the procedure of a plan of this method."""
    return federated_averaging(TrainingTerms.of(plan.terms))
