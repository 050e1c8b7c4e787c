from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aggregator.campaigns import TooFewReports, run_training
from client.explain import explain
from client.learning import learn
from client.ledger import Ledger
from client.policy import Policy
from client.records import Records
from client.respond import Respondent
from protocol import wire_pb2 as wire
from protocol.budget import Budget, noise_multiplier
from protocol.campaign import Plan, digest, open_plan, parse
from protocol.errors import BadInput
from protocol.messages import write_query
from protocol.queries import TrainingQuery
from protocol.sampling import SeededEntropy
from protocol.training import Terms, first_weights, predict, split
from tests.owners import NOW, PLAN, POLICY, PUBLIC, asking, signed

ROUNDS, LOCAL, OWNERS = 6, 8, 3
BUDGET = Budget(4.0, 1e-5)
TERMS = Terms(
    layers=(4, 3), noise_multiplier=noise_multiplier(BUDGET, sampling_rate=0.2, steps=ROUNDS * LOCAL), sampling_rate=0.2,
    rounds=ROUNDS, local_steps=LOCAL, clip=1.0, batch=80.0, learning_rate=4.0,
)  # fmt: skip
TRAINING = replace(
    PLAN, method="training", variant="federated-averaging", channel="dp-sgd", labels=3, epsilon=4.0, delta=0.0,
    privacy_delta=1e-5, training=TERMS,
)  # fmt: skip
LEARNS = replace(POLICY, methods=frozenset({"training"}), delta_per_campaign=1e-5)


def people(n: int, seed: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Three labels, each with a feature of its own that is high."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(3, size=n)
    features = rng.random((n, 4)) * 0.5
    features[np.arange(n), labels] += 0.5
    return features, labels


def learner(folder: Path, seed: int, policy: Policy = LEARNS) -> Respondent:
    folder.mkdir(exist_ok=True)
    features, labels = people(400, seed)
    names = tuple(f"{seed}/{i}".encode() for i in range(400))
    return Respondent(
        records=Records(names, None, labels, None, features), policy=policy, ledger=Ledger(folder / "ledger.sqlite"),
        secret=bytes([seed]) * 32, entropy=SeededEntropy(seed), now=lambda: NOW,
    )  # fmt: skip


def answer(one: Respondent, plan: Plan, weights: Any, round_: int) -> wire.Answer:
    query = write_query(TrainingQuery(weights), plan=digest(plan.to_bytes()), round_=round_)
    return parse(wire.Answer, one.answer(signed(plan), query))


def test_owners_train_a_model_together(tmp_path: Path) -> None:
    """Through policy, ledger and wire the average learns what no owner shows, within the plan's budget."""
    owners = [learner(tmp_path / str(seed), seed) for seed in range(OWNERS)]
    learned, received = run_training(TRAINING, asking(signed(TRAINING), owners))
    features, labels = people(2_000, 99)
    assert np.mean(predict(TERMS, learned.weights, features).argmax(axis=1) == labels) > 0.8
    assert (learned.owners, received) == ((OWNERS,) * ROUNDS, {"OK": OWNERS * ROUNDS})
    assert BUDGET.allows(TERMS.profile())
    assert Ledger(tmp_path / "0" / "ledger.sqlite").spent_by_record() == (400, 4.0)


def test_a_round_is_answered_once(tmp_path: Path) -> None:
    """The same question gets the same bytes; the same round from other weights would repeat its noise, and is refused."""
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
        (replace(TRAINING, epsilon=3.0), LEARNS, wire.Code.EPSILON_PER_CAMPAIGN),
        (TRAINING, replace(LEARNS, epsilon_per_campaign=3.0), wire.Code.EPSILON_PER_CAMPAIGN),
        (TRAINING, replace(LEARNS, delta_per_campaign=1e-6), wire.Code.DELTA_PER_CAMPAIGN),
        (TRAINING, POLICY, wire.Code.METHOD_NOT_ALLOWED),
        (replace(TRAINING, training=replace(TERMS, layers=(5, 3))), LEARNS, wire.Code.MODEL_NOT_ALLOWED),
        (replace(TRAINING, labels=2, training=replace(TERMS, layers=(4, 2))), LEARNS, wire.Code.MODEL_NOT_ALLOWED),
    ],
)  # fmt: skip
def test_terms_that_cost_more_than_they_say_are_refused(plan: Plan, policy: Policy, code: int, tmp_path: Path) -> None:
    """The owner computes the cost of the terms itself; policy, features and labels must fit as well."""
    terms = plan.training
    assert terms is not None
    assert answer(learner(tmp_path, 1, policy), plan, first_weights(terms), 0).code == code


def test_nobody_training_is_a_failure_with_its_cause(tmp_path: Path) -> None:
    """When every owner refuses, the run says which codes came back."""
    with pytest.raises(TooFewReports, match="METHOD_NOT_ALLOWED"):
        run_training(TRAINING, asking(signed(TRAINING), [learner(tmp_path, 1, POLICY)]))


def test_noise_is_what_keeps_two_neighbours_apart() -> None:
    """With the same key a step is the same; with another, weights differ by the noise, and by none without it."""
    features, labels = people(200, 3)
    start = first_weights(TERMS)
    once, again, other = (learn(TERMS, start, features, labels, key=bytes([k]) * 32, round_=0) for k in (1, 1, 2))
    assert np.array_equal(once, again)
    assert np.abs(once - other).max() > 0.01
    quiet = replace(TERMS, noise_multiplier=1e-9, sampling_rate=1.0)
    still = [learn(quiet, start, features, labels, key=bytes([k]) * 32, round_=0) for k in (1, 2)]
    assert np.abs(still[0] - still[1]).max() < 1e-4


def test_weights_keep_their_places() -> None:
    """Splitting gives matrices and biases of the right shapes, and prediction is the stack they spell."""
    terms = replace(TERMS, layers=(4, 6, 3))
    weights = first_weights(terms)
    assert [(matrix.shape, bias.shape) for matrix, bias in split(terms, weights)] == [((6, 4), (6,)), ((3, 6), (3,))]
    assert len(weights) == terms.size == 4 * 6 + 6 + 6 * 3 + 3
    assert np.allclose(predict(terms, weights, np.zeros((2, 4))).sum(axis=1), 1)


def test_a_training_plan_travels_and_explains_itself() -> None:
    """Terms survive the wire to the last bit, and the owner reads what would leave."""
    plan, _ = open_plan(signed(TRAINING), trusted={PUBLIC}, now=NOW)
    assert plan == TRAINING
    page = explain(plan, LEARNS)
    assert "trains a model" in page
    assert "6 times leave the weights" in page
    assert "floating point" in page


@pytest.mark.parametrize(
    "changes",
    [
        {"layers": (4,)}, {"layers": (4, 0)}, {"rounds": 0}, {"clip": 0.0}, {"noise_multiplier": 0.0}, {"sampling_rate": 2.0},
        {"learning_rate": float("nan")}, {"layers": (10_000, 10_000)},
    ],
)  # fmt: skip
def test_impossible_terms_are_refused(changes: dict[str, Any]) -> None:
    """With what was found and what is accepted."""
    with pytest.raises(BadInput):
        replace(TERMS, **changes)


def test_terms_belong_to_training_alone() -> None:
    """A calibration with terms, a training without, and a last layer of other labels are no plans."""
    for wrong in ({"training": None}, {"labels": 4}, {"method": "bits", "variant": "certified", "channel": "bit"}):
        with pytest.raises(BadInput):
            replace(TRAINING, **wrong)
