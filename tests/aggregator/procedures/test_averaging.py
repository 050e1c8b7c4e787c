from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.aggregator.campaigns.driver import run_procedure
from confide.aggregator.procedures.averaging import Learned, federated_averaging
from confide.protocol.methods.training.mean_weights import WEIGHT_BOUND, TrainingTally
from confide.protocol.methods.training.query import TrainingQuery
from confide.protocol.methods.training.terms import TrainingTerms
from tests.support.networks.stacks import first_weights, stack_terms

Array = NDArray[Any]
Owner = Callable[[Array], Array]

TERMS = stack_terms(4, 3, rounds=12)


def run(terms: TrainingTerms, owners: list[Owner], seen: list[Array] | None = None) -> Learned:
    """Run the procedure with owners that map the common weights to their answers."""

    def answer(query: TrainingQuery, _: int) -> TrainingTally:
        if seen is not None:
            seen.append(query.weights)
        return TrainingTally.of([owner(query.weights).astype(np.float32) for owner in owners])

    return run_procedure(federated_averaging(terms), answer)


def towards(target: float, rate: float = 0.1) -> Owner:
    """An owner whose round takes a part of the way to a target."""
    return lambda weights: weights + rate * (target - weights)


def test_without_momentum_the_next_weights_are_the_average() -> None:
    """Two owners that disagree: bit for bit the mean of their answers, in every round."""
    seen: list[Array] = []
    learned = run(TERMS, [towards(1.0), towards(-3.0)], seen)
    assert np.array_equal(seen[0], first_weights(TERMS))
    for now, after in zip(seen, [*seen[1:], learned.weights], strict=True):
        sent = [owner(now).astype(np.float32) for owner in (towards(1.0), towards(-3.0))]
        assert np.array_equal(after, np.mean(sent, axis=0, dtype=np.float64).astype(np.float32))
    assert learned.owners == (2,) * 12


def test_momentum_repeats_a_part_of_the_last_movement() -> None:
    """The common weights follow w' = a + momentum (w - v), computed here in float64, and are closer
    to the owners' target than without."""
    terms, seen = replace(TERMS, momentum=0.6), list[Array]()
    learned = run(terms, [towards(2.0)], seen)
    before = now = first_weights(terms).astype(np.float64)
    for found in [*seen[1:], learned.weights]:
        before, now = now, towards(2.0)(now) + 0.6 * (now - before)
        assert np.allclose(found, now, atol=1e-5)
    plain = run(TERMS, [towards(2.0)])
    assert np.abs(learned.weights - 2).max() < 0.5 * np.abs(plain.weights - 2).max()


def test_the_result_averages_the_last_rounds() -> None:
    """The weights after the last five rounds count, the ones before do not; questions are the
    same."""
    once: list[Array] = []
    often: list[Array] = []
    last = run(TERMS, [towards(1.0)], once)
    learned = run(replace(TERMS, averaged_rounds=5), [towards(1.0)], often)
    assert all(np.array_equal(a, b) for a, b in zip(once, often, strict=True))
    assert np.allclose(learned.weights, np.mean([*once[-4:], last.weights], axis=0), atol=1e-6)
    assert not np.allclose(learned.weights, last.weights, atol=1e-3)


def test_averages_take_the_noise_of_rounds_out() -> None:
    """Owners whose answers are noise around a target: the average of 10 rounds is closer to it."""
    rng = np.random.default_rng(1)

    def noisy(weights: Array) -> Array:
        return 0.1 * weights + 0.9 + rng.normal(size=len(weights))

    off = {
        rounds: np.mean(
            [
                np.abs(run(replace(TERMS, averaged_rounds=rounds), [noisy]).weights - 1).mean()
                for _ in range(20)
            ]
        )
        for rounds in (1, 10)
    }
    assert off[10] < 0.6 * off[1]


def test_no_answer_throws_the_weights_out_of_their_bound() -> None:
    """Answers of 3e38 count as the bound that honest owners keep, with momentum too, and what is
    asked next is finite."""
    seen: list[Array] = []
    learned = run(
        replace(TERMS, momentum=0.99),
        [lambda weights: np.full_like(weights, 3e38), towards(0.0)],
        seen,
    )
    assert max(float(np.abs(weights).max()) for weights in [*seen, learned.weights]) <= WEIGHT_BOUND


def test_a_round_without_answers_changes_nothing() -> None:
    """The weights stay, with momentum too; what was in motion goes on with the next answer."""
    terms, seen = replace(TERMS, momentum=0.5, rounds=4), list[Array]()

    def answer(query: TrainingQuery, round_: int) -> TrainingTally:
        seen.append(query.weights)
        return TrainingTally.of([] if round_ == 1 else [query.weights + np.float32(1)])

    learned = run_procedure(federated_averaging(terms), answer)
    assert np.array_equal(seen[1], seen[2])
    assert np.allclose(seen[3] - seen[2], 1.5, atol=1e-5)
    assert learned.owners == (1, 0, 1, 1)
