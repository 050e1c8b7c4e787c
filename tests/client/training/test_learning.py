"""Rounds of federated training, asked of owners through policy, ledger and wire."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from confide.aggregator.campaigns.driver import TooFewReports, run_training
from confide.client.ledger.ledger import Ledger
from confide.client.policy import Policy
from confide.client.respond import Respondent
from confide.client.training.local_round import moved
from confide.client.training.randomness import poisson_batch
from confide.protocol.errors import BadInput
from confide.protocol.exact.gaussian import discrete_gaussian
from confide.protocol.exact.lattice import MOST_BATCH, sensitivity
from confide.protocol.exact.sampling import Entropy, SeededEntropy, os_entropy
from confide.protocol.methods.training.mean_weights import WEIGHT_BOUND
from confide.protocol.methods.training.terms import TrainingTerms
from confide.protocol.plan import Plan
from confide.protocol.wire import wire_pb2 as wire
from tests.support.networks.stacks import first_weights, layered, learn, predict, stack_at
from tests.support.owners.owners import POLICY, asking, changed, signed
from tests.support.training.learners import (
    DELTA,
    LEARNS,
    LOCAL,
    OWNERS,
    ROUNDS,
    TERMS,
    TRAINING,
    answer,
    learner,
    people,
    rows,
)


def test_owners_train_a_model_together(tmp_path: Path) -> None:
    """Through policy, ledger and wire the average learns what no owner shows, within the plan's
    budget."""
    owners = [learner(tmp_path / str(seed), seed) for seed in range(OWNERS)]
    learned, received = run_training(TRAINING, asking(signed(TRAINING), owners))
    features, labels = people(2_000, 99)
    assert np.mean(predict(TERMS, learned.weights, features).argmax(axis=1) == labels) > 0.8
    assert (learned.owners, received) == ((OWNERS,) * ROUNDS, {"OK": OWNERS * ROUNDS})
    assert 3.9 < TERMS.spent(DELTA) <= 4.0
    assert Ledger(tmp_path / "0" / "ledger.sqlite").spent_by_record() == (400, 4.0)


def test_a_round_is_answered_once(tmp_path: Path) -> None:
    """The same question gets the same bytes; the same round from other weights is not paid for, and
    is refused."""
    one = learner(tmp_path, 1)
    start = first_weights(TERMS)
    first = answer(one, TRAINING, start, 0)
    assert first.code == wire.Code.OK
    assert answer(one, TRAINING, start, 0) == first
    assert answer(one, TRAINING, start + 1, 0).code == wire.Code.ALREADY_SPENT
    assert answer(one, TRAINING, start, 1).code == wire.Code.OK
    assert answer(one, TRAINING, start, ROUNDS).code == wire.Code.MALFORMED
    assert answer(one, TRAINING, start * np.nan, 2).code == wire.Code.OUT_OF_ALPHABET


@pytest.mark.parametrize(
    ("plan", "policy", "code"),
    [
        (TRAINING, replace(LEARNS, epsilon_per_campaign=3.0), wire.Code.EPSILON_PER_CAMPAIGN),
        (TRAINING, replace(LEARNS, delta_per_campaign=1e-6), wire.Code.DELTA_PER_CAMPAIGN),
        (TRAINING, POLICY, wire.Code.METHOD_NOT_ALLOWED),
        (changed(TRAINING, **layered(5, 3)), LEARNS, wire.Code.MODEL_NOT_ALLOWED),
    ],
)
def test_training_beyond_policy_or_records_is_refused(
    plan: Plan, policy: Policy, code: int, tmp_path: Path
) -> None:
    """Policy, features and labels must fit."""
    assert isinstance(plan.terms, TrainingTerms)
    assert answer(learner(tmp_path, 1, policy), plan, first_weights(plan.terms), 0).code == code


def test_a_label_nobody_expects_is_not_told(tmp_path: Path) -> None:
    """A record whose label the model has no output for takes no part; a refusal would tell that it
    is there."""
    features, labels = people(50, 1)
    terms = replace(TERMS, **layered(4, 2))
    plan = replace(TRAINING, labels=2, terms=terms)
    for most in (1, 2, 50):
        one = rows(50, features, np.minimum(labels * most, 60), tmp_path / str(most))
        assert answer(one, plan, first_weights(terms), 0).code == wire.Code.OK
    strange = rows(50, features, np.full(50, 9), tmp_path / "none")
    assert answer(strange, plan, first_weights(terms), 0).code == wire.Code.OK


@pytest.mark.parametrize("size", [3e38, 1e19, 1e30])
def test_hostile_weights_get_an_answer_like_any_other(size: float, tmp_path: Path) -> None:
    """Weights that overflow on some records, and not on others, must not make the owner fail on
    them."""
    terms = replace(TERMS, **layered(4, 4, 3))
    plan = replace(TRAINING, terms=terms)
    weights = np.full(terms.size, size, dtype=np.float32)
    codes = set()
    for seed, value in enumerate((0.0, 1.0, 0.3)):
        one = rows(
            40,
            np.full((40, 4), value),
            np.zeros(40, dtype=np.int64),
            tmp_path / str(value),
            secret=seed + 1,
        )
        codes.add(answer(one, plan, weights, 0).code)
    assert codes == {wire.Code.OK}


def test_a_one_round_plan_answers_one_query(tmp_path: Path) -> None:
    """Records that were added later do not make room for a second query."""
    terms = replace(TERMS, rounds=1, local_steps=ROUNDS * LOCAL)
    plan = replace(TRAINING, terms=terms)
    features, labels = people(60, 1)
    start = first_weights(terms)
    assert (
        answer(rows(30, features[:30], labels[:30], tmp_path), plan, start, 0).code == wire.Code.OK
    )
    assert (
        answer(rows(60, features, labels, tmp_path), plan, start + 1e-30, 0).code
        == wire.Code.ALREADY_SPENT
    )


def test_a_policy_that_was_tightened_stops_later_rounds(tmp_path: Path) -> None:
    """Records spent 4 on a training and 4 elsewhere, and their owner now allows 5: no round leaves,
    new or old, until it allows 8 again. Fewer records than the policy now wants answer none."""
    present = [replace(LEARNS, epsilon_per_record=8.0, delta_per_record=2e-5)]
    one = learner(tmp_path, 1, lambda: present[-1])
    start = first_weights(TERMS)

    def code(plan: Plan, round_: int) -> int:
        return answer(one, plan, start, round_).code

    assert code(TRAINING, 0) == code(replace(TRAINING, campaign="another"), 0) == wire.Code.OK
    for change, refusal in (
        ({"epsilon_per_record": 5.0}, wire.Code.EPSILON_PER_RECORD),
        ({"minimum_group": 401}, wire.Code.GROUP_TOO_SMALL),
    ):
        present.append(replace(present[0], **change))
        assert {code(TRAINING, round_) for round_ in range(1, ROUNDS)} == {refusal}
        assert code(TRAINING, 0) == wire.Code.EPSILON_PER_RECORD
    present.append(present[0])
    assert {code(TRAINING, round_) for round_ in range(ROUNDS)} == {wire.Code.OK}
    assert Ledger(tmp_path / "ledger.sqlite").spent_by_record() == (400, 8.0)


def test_nobody_training_is_a_failure_with_its_cause(tmp_path: Path) -> None:
    """When every owner refuses, the run says which codes came back."""
    with pytest.raises(TooFewReports, match="METHOD_NOT_ALLOWED"):
        run_training(TRAINING, asking(signed(TRAINING), [learner(tmp_path, 1, POLICY)]))


def test_answers_are_drawn_afresh_and_from_no_secret(tmp_path: Path) -> None:
    """Owners with the same records and secret draw different answers; with the same chance, another
    secret changes nothing."""
    features, labels = people(50, 1)
    start = first_weights(TERMS)

    def weights(name: str, secret: int, entropy: Entropy) -> NDArray[np.float32]:
        one = rows(50, features, labels, tmp_path / name, secret=secret, entropy=entropy)
        return released(one, TRAINING, start)

    fresh = [weights(f"fresh {i}", 1, os_entropy) for i in range(2)]
    assert (fresh[0] != fresh[1]).mean() > 0.9
    one, other = (weights(f"seeded {secret}", secret, SeededEntropy(5)) for secret in (1, 2))
    assert np.array_equal(one, other)


def released(one: Respondent, plan: Plan, weights: Any) -> NDArray[np.float32]:
    """The weights that leave an owner in the first round."""
    found = answer(one, plan, weights, 0)
    assert found.code == wire.Code.OK
    return np.frombuffer(wire.Weights.FromString(found.batch.body).weights, dtype="<f4")


def test_what_leaves_is_a_public_function_of_noisy_integers(tmp_path: Path) -> None:
    """Replayed from the same chance: integer sums plus integer noise, then float64 arithmetic on
    public numbers alone."""
    terms = replace(TERMS, **layered(4, 5, 3), clip=0.7, local_steps=3)
    features, labels = people(60, 1)
    one = rows(60, features, labels, tmp_path, entropy=SeededEntropy(8))
    found = released(one, replace(TRAINING, terms=terms), first_weights(terms))
    chance = SeededEntropy(8)
    weights = first_weights(terms).astype(np.float64)
    for _ in range(3):
        batch = poisson_batch(60, 0.2, chance)
        noise = discrete_gaussian(
            (Fraction(terms.noise_multiplier) * sensitivity(terms.size)) ** 2, terms.size, chance
        )
        sums = stack_at(terms, weights).clipped_sum(features[batch], labels[batch])
        assert sums.dtype == noise.dtype == np.int64
        weights = moved(terms, weights, sums + noise)
    assert np.array_equal(found, weights.astype(np.float32))


def test_weights_stay_finite_whatever_the_terms() -> None:
    """The largest steps that terms allow end at the public bound of the weights, and so do weights
    beyond it."""
    terms = replace(TERMS, noise_multiplier=1e3, clip=1e6, batch=1.0, learning_rate=1e3)
    features, labels = people(20, 1)
    for start in (first_weights(terms), np.full(terms.size, 3e38, dtype=np.float32)):
        found = learn(terms, start, features, labels, entropy=SeededEntropy(1))
        assert np.abs(found).max() == WEIGHT_BOUND


def test_too_many_records_are_refused() -> None:
    """The bound on what float64 loses in a sum is for so many; how many records there are is
    public."""
    many = MOST_BATCH + 1
    with pytest.raises(BadInput, match="at most 1048576"):
        learn(
            TERMS,
            first_weights(TERMS),
            np.zeros((many, 4)),
            np.zeros(many, dtype=np.int64),
            entropy=SeededEntropy(1),
        )
