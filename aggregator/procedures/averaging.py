"""Federated averaging: owners train by local DP-SGD, and the aggregator averages their weights.

The averaged weights are sent out again in the next round. The aggregator sees nothing but weights
that each owner has noised; its average is post-processing. Owners count alike, because no answer
says how many records they have.
"""

from collections.abc import Generator
from dataclasses import dataclass

import numpy as np

from confide.protocol.methods.training import (
    TrainingQuery,
    TrainingTally,
    TrainingTerms,
    Weights,
    first_weights,
)
from confide.protocol.plan import Plan


@dataclass(frozen=True)
class Learned:
    """The common weights, and how many owners took part in each round."""

    weights: Weights
    owners: tuple[int, ...]


def federated_averaging(terms: TrainingTerms) -> Generator[TrainingQuery, TrainingTally, Learned]:
    """Average the weights that arrive in each round; a round without answers changes nothing."""
    weights, owners = first_weights(terms), []
    for _ in range(terms.rounds):
        tally = yield TrainingQuery(terms, weights)
        owners.append(len(tally.weights))
        if tally.weights:
            weights = np.stack(tally.weights).mean(axis=0, dtype=np.float64).astype(np.float32)
    return Learned(weights, tuple(owners))


def of_plan(plan: Plan) -> Generator[TrainingQuery, TrainingTally, Learned]:
    """Make the procedure of a plan of this method."""
    return federated_averaging(TrainingTerms.of(plan.terms))
