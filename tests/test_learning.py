from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from aggregator.campaigns import TooFewReports, run_training
from client.clipping import make_clipper
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
LEARNS = replace(POLICY, methods=frozenset({"training"}), delta_per_record=1e-5, delta_per_campaign=1e-5)


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
    ],
)  # fmt: skip
def test_terms_that_cost_more_than_they_say_are_refused(plan: Plan, policy: Policy, code: int, tmp_path: Path) -> None:
    """The owner computes the cost of the terms itself; policy, features and labels must fit as well."""
    terms = plan.training
    assert terms is not None
    assert answer(learner(tmp_path, 1, policy), plan, first_weights(terms), 0).code == code


def rows(n: int, features: Any, labels: Any, folder: Path, policy: Policy = LEARNS, secret: int = 1) -> Respondent:
    folder.mkdir(exist_ok=True)
    return Respondent(
        records=Records(tuple(str(i).encode() for i in range(n)), None, labels, None, features), policy=policy,
        ledger=Ledger(folder / "ledger.sqlite"), secret=bytes([secret]) * 32, entropy=SeededEntropy(1), now=lambda: NOW,
    )  # fmt: skip


def test_a_label_nobody_expects_is_not_told(tmp_path: Path) -> None:
    """A record whose label the model has no output for takes no part; a refusal would tell that it is there."""
    features, labels = people(50, 1)
    plan = replace(TRAINING, labels=2, training=replace(TERMS, layers=(4, 2)))
    terms = plan.training
    assert terms is not None
    for most in (1, 2, 50):
        one = rows(50, features, np.minimum(labels * most, 60), tmp_path / str(most))
        assert answer(one, plan, first_weights(terms), 0).code == wire.Code.OK
    strange = rows(50, features, np.full(50, 9), tmp_path / "none")
    assert answer(strange, plan, first_weights(terms), 0).code == wire.Code.OK


@pytest.mark.parametrize("size", [3e38, 1e19, 1e30])
def test_hostile_weights_get_an_answer_like_any_other(size: float, tmp_path: Path) -> None:
    """Weights that overflow on some records, and not on others, must not make the owner fail on them."""
    terms = replace(TERMS, layers=(4, 4, 3))
    plan = replace(TRAINING, training=terms)
    weights = np.full(terms.size, size, dtype=np.float32)
    codes = set()
    for seed, value in enumerate((0.0, 1.0, 0.3)):
        one = rows(40, np.full((40, 4), value), np.zeros(40, dtype=np.int64), tmp_path / str(value), secret=seed + 1)
        codes.add(answer(one, plan, weights, 0).code)
    assert codes == {wire.Code.OK}


@pytest.mark.filterwarnings("ignore:Full backward hook:UserWarning")
def test_no_gradient_escapes_clipping() -> None:
    """Inputs so large and signals so small that their squares vanish in single precision: the sum still stays within clip."""
    clip = 1e-6
    for engine in ("stack", "opacus"):
        layer = nn.Linear(4, 2)
        with torch.no_grad():
            layer.weight.zero_()
            layer.bias.copy_(torch.tensor([53.0, 0.0]))
        clipped = make_clipper(layer, nn.CrossEntropyLoss(reduction="none"), clip, engine)
        clipped(torch.full((1, 4), 1e19), torch.tensor([0]))
        assert layer.weight.grad is not None
        assert layer.bias.grad is not None
        total = torch.linalg.vector_norm(torch.cat([layer.weight.grad.ravel(), layer.bias.grad]).double())
        assert 0 < float(total) <= clip * 1.0001
        clipped(torch.tensor([[3e38, 3e38, 3e38, 3e38], [0.1, 0.2, 0.3, 0.4]]), torch.tensor([1, 0]))
        assert torch.isfinite(layer.weight.grad).all()


def test_a_one_round_plan_answers_one_query(tmp_path: Path) -> None:
    """Records that were added later would answer a second query with the noise of the first; they do not."""
    terms = replace(TERMS, rounds=1, local_steps=ROUNDS * LOCAL)
    plan = replace(TRAINING, training=terms)
    features, labels = people(60, 1)
    start = first_weights(terms)
    assert answer(rows(30, features[:30], labels[:30], tmp_path), plan, start, 0).code == wire.Code.OK
    assert answer(rows(60, features, labels, tmp_path), plan, start + 1e-30, 0).code == wire.Code.ALREADY_SPENT


def test_few_records_train_like_many(tmp_path: Path) -> None:
    """How many records an owner has is not told by a refusal either."""
    features, labels = people(2, 1)
    one = rows(2, features, labels, tmp_path)
    assert LEARNS.minimum_group > 2
    assert answer(one, TRAINING, first_weights(TERMS), 0).code == wire.Code.OK


def test_nobody_training_is_a_failure_with_its_cause(tmp_path: Path) -> None:
    """When every owner refuses, the run says which codes came back."""
    with pytest.raises(TooFewReports, match="METHOD_NOT_ALLOWED"):
        run_training(TRAINING, asking(signed(TRAINING), [learner(tmp_path, 1, POLICY)]))


def test_noise_is_what_keeps_two_neighbours_apart() -> None:
    """With the same key a step is the same; with another, weights differ by the noise, and by little where that is small."""
    features, labels = people(200, 3)
    start = first_weights(TERMS)
    once, again, other = (learn(TERMS, start, features, labels, key=bytes([k]) * 32, round_=0) for k in (1, 1, 2))
    assert np.array_equal(once, again)
    assert np.abs(once - other).max() > 0.01
    quiet = replace(TERMS, noise_multiplier=0.2, sampling_rate=1.0, batch=1e4)
    still = [learn(quiet, start, features, labels, key=bytes([k]) * 32, round_=0) for k in (1, 2)]
    assert 0 < np.abs(still[0] - still[1]).max() < 1e-2


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
        {"learning_rate": float("nan")}, {"noise_multiplier": 0.1}, {"layers": (10_000, 10_000)},
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
