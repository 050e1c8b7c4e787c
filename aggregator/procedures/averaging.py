"""Federated averaging: owners train by local DP-SGD, and the aggregator averages their weights.

The averaged weights are sent out again in the next round. The aggregator sees nothing but weights
that each owner has noised; its average is post-processing. Owners count alike, because no answer
says how many records they have.
"""

from collections.abc import Generator
from dataclasses import dataclass

from confide.protocol.methods.mean_weights import TrainingTally
from confide.protocol.methods.training import (
    TrainingQuery,
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
        owners.append(tally.owners)
        if tally.mean is not None:
            weights = tally.mean
    return Learned(weights, tuple(owners))


def of_plan(plan: Plan) -> Generator[TrainingQuery, TrainingTally, Learned]:
    """Make the procedure of a plan of this method."""
    assert isinstance(plan.terms, TrainingTerms)
    return federated_averaging(plan.terms)
