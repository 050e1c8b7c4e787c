"""Batches and learning rates that are left to the rule, up to the noise that they let through."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from confide.aggregator.campaigns.planning.plans import make_plan
from confide.client.training.local_round import moved
from confide.protocol.errors import BadInput
from confide.protocol.exact.gaussian import discrete_gaussian
from confide.protocol.exact.lattice import sensitivity
from confide.protocol.exact.sampling import SeededEntropy
from confide.protocol.methods.training.rule import NOISE_LENGTH
from confide.protocol.methods.training.terms import LIMITS, TrainingTerms
from confide.protocol.simulated.settings import ALWAYS
from confide.simulation.defaults import run_defaults

OWNERS, RECORDS, SHARE = 4, 3_000, 0.6


def terms(**changes: Any) -> TrainingTerms:
    """The terms in the plan of the run configuration, but for these settings."""
    given = {"model": "00" * 32, "records": RECORDS, "owners": OWNERS, "train-share": SHARE}
    config = run_defaults() | given | changes
    plan = make_plan("training:federated-averaging", config, title="rule", valid=ALWAYS)
    return TrainingTerms.of(plan.terms)


@pytest.mark.parametrize(
    "changes", [{}, {"clip": 0.1}, {"architecture": "mlp hidden=20"}, {"owners": 1}]
)
def test_noise_alone_moves_the_weights_of_a_plan_as_far_as_the_rule_says(
    changes: dict[str, Any],
) -> None:
    """Averaged over its owners, a step of noise without gradients has the rule's length, whatever
    clip, network and number of owners; the batch is what an average owner draws."""
    found = terms(**changes)
    owners = changes.get("owners", OWNERS)
    assert found.batch == found.sampling_rate * RECORDS * SHARE / owners
    deviation = Fraction(found.noise_multiplier) * sensitivity(found.size)
    variance, entropy = deviation**2, SeededEntropy(5)
    start = np.zeros(found.size)
    steps = [
        moved(found, start, discrete_gaussian(variance, found.size, entropy)) for _ in range(owners)
    ]
    length = np.linalg.norm(np.mean(steps, axis=0))
    # Five standard deviations of the length of so many normal numbers, and the sensitivity's
    # margin over the clip.
    apart = 5 / np.sqrt(2 * found.size) + 0.01
    assert abs(length / NOISE_LENGTH - 1) < apart
    assert LIMITS["learning_rate"][0] <= found.learning_rate <= LIMITS["learning_rate"][1]


def test_numbers_that_are_given_stay() -> None:
    """One of both may be given; the rate then goes with the batch that is given."""
    given = terms(batch=100.0)
    assert (given.batch, given.learning_rate / terms().learning_rate) == (100.0, 100 / 225)
    assert terms(**{"learning-rate": 2.0}).learning_rate == 2.0


def test_without_a_number_of_owners_there_is_no_rule() -> None:
    """The rule needs it; two numbers in its place do not."""
    with pytest.raises(BadInput, match="accepted is the number of owners"):
        terms(owners=0)
    assert terms(owners=0, batch=9.0, **{"learning-rate": 1.0}).batch == 9.0
