"""A loss that leaves owners during a training: noised numbers of wrong predictions, paid for."""

import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from confide.aggregator.campaigns.planning.plans import make_plan
from confide.aggregator.cards.issue import campaign_card
from confide.client.explain import explain
from confide.client.training.computing import Computing
from confide.client.training.local_round import Trainer
from confide.client.training.networks import count_errors
from confide.protocol.errors import BadInput, Refused
from confide.protocol.exact.sampling import SeededEntropy
from confide.protocol.methods.training.noised_errors import loss_epsilon, loss_noise
from confide.protocol.methods.training.query import TrainingQuery
from confide.protocol.methods.training.terms import TrainingTerms
from confide.protocol.plan import digest
from confide.protocol.wire import wire_pb2 as wire
from tests.support.cards.cards import broken, edited
from tests.support.owners.owners import KEY, NOW
from tests.support.training.federated_trainings import (
    LEARNS,
    SETTINGS,
    in_process,
    spent,
    terms_of,
    training_plan,
)
from tests.support.training.learners import people
from tests.support.training.trained_chain import COUNTS, SPLIT, chain

LOSS = {"loss-share": 0.25}


def terms(**settings: Any) -> TrainingTerms:
    return TrainingTerms.from_settings("federated-averaging", SETTINGS | LOSS | settings)


def exact_delta(noise: float, rounds: int, epsilon: float) -> float:
    """The delta of `rounds` discrete Gaussians whose means differ by 1, from their laws.

    The privacy loss of all rounds depends on the sum of what came out only.
    """
    reach = math.ceil(12 * noise)
    x = np.arange(-reach, reach + 1)
    mass = np.exp(-(x**2) / (2 * noise**2))
    law = total = mass / mass.sum()
    for _ in range(rounds - 1):
        total = np.convolve(total, law)
    sums = np.arange(-reach * rounds, reach * rounds + 1)
    losses = (rounds - 2 * sums) / (2 * noise**2)
    return float((total * np.clip(1 - np.exp(epsilon - losses), 0, None)).sum())


@pytest.mark.parametrize(("epsilon", "rounds"), [(0.4, 20), (1.0, 4), (0.1, 1)])
def test_the_counts_cost_what_they_are_said_to(epsilon: float, rounds: int) -> None:
    """By the exact laws; half of the noise, planted, costs more."""
    noise = loss_noise(epsilon=epsilon, delta=1e-6, rounds=rounds)
    assert loss_epsilon(noise=noise, rounds=rounds, delta=1e-6) <= epsilon
    assert exact_delta(noise, rounds, epsilon) <= 1e-6
    assert exact_delta(noise / 2, rounds, epsilon) > 1e-6


def test_steps_and_loss_share_one_budget() -> None:
    """The steps get what the loss leaves, and a plan that says less than both cost is refused."""
    found, plain = terms(), terms(**{"loss-share": 0.0})
    assert plain.spent_on_loss(1e-5) == plain.loss_noise == 0.0
    assert found.noise_multiplier > plain.noise_multiplier
    assert 0.24 * 4 < found.spent_on_loss(1e-5) <= 0.25 * 4
    assert 3.9 < found.spent(1e-5) <= 4.0
    assert TrainingTerms.from_bytes(found.to_bytes()) == found
    impossible: list[dict[str, Any]] = [
        {"noise_multiplier": plain.noise_multiplier},
        {"loss_noise": found.loss_noise / 2},
        {"loss_noise": 0.0},
        {"loss_share": 0.0},
        {"loss_share": 0.6},
        {"loss_share": math.nan},
    ]
    for changes in impossible:
        with pytest.raises(BadInput, match=r"cost epsilon|loss_share"):
            replace(found, **changes)
    said = explain(training_plan(**LOSS), LEARNS)
    assert "25% of the budget pays for it" in said


def rows(n: int) -> tuple[NDArray[Any], NDArray[Any]]:
    features, labels = people(n, 3)
    return np.tile(features, (1, 4)), labels


@pytest.mark.parametrize("text", ["linear", "mlp hidden=8", "cnn image=1,4,4 channels=4"])
@pytest.mark.parametrize("size", [1.0, 1e-9, 30.0])
def test_a_record_counts_for_one_whatever_its_company(text: str, size: float) -> None:
    """The number of a batch is the sum over its records alone, also at weights so small that
    outputs differ in their last bits, or so large; a label without an output is wrong."""
    network = terms(architecture=text, features=16).network()
    rng = np.random.default_rng(4)
    features, labels = rows(40)
    labels[:5] = (-1, 3, 70, 0, 1)
    weights = rng.normal(size=network.size) * size
    given: dict[str, Any] = {"centre": 0.5}
    alone = [
        count_errors(network, weights, (features[i : i + 1], labels[i : i + 1]), **given)
        for i in range(40)
    ]
    assert set(alone) <= {0, 1}
    assert alone[:3] == [1, 1, 1]
    assert count_errors(network, weights, (features, labels), **given) == sum(alone)
    assert count_errors(network, weights, (features[:0], labels[:0]), **given) == 0


def test_noise_has_the_plans_variance() -> None:
    """Of 2,000 draws; a variance of a fifth off would be seen, chance alone is that far off with
    probability below 1e-9 (the sample's deviation is 3.2 %)."""
    found = terms()
    trainer, entropy = Trainer(found, computing=Computing("cpu")), SeededEntropy("noise of a loss")
    weights, (features, labels) = found.network().first_weights(), people(50, 1)
    exact = count_errors(found.network(), weights.astype(float), (features, labels), centre=0.5)
    drawn = [
        trainer.noised_errors(weights, features, labels, entropy=entropy) - exact
        for _ in range(2_000)
    ]
    variance = float(Fraction(found.loss_noise) ** 2)
    assert abs(np.var(drawn) / variance - 1) < 0.2
    assert abs(np.mean(drawn)) < 6 * math.sqrt(variance / 2_000)


def test_owners_answer_with_a_loss_and_pay_once(tmp_path: Path) -> None:
    """Rates fall as the model learns, records are charged the plan's epsilon for both, and a plan
    without a loss says nothing."""
    plan = training_plan(**LOSS | {"rounds": 6})
    learned, received = in_process(plan, tmp_path / "loss", owners=3)
    assert received == {"OK": 18}
    assert len(learned.errors) == 6
    rates = [one for one in learned.errors if one is not None]
    assert len(rates) == 6
    assert all(0 <= one.rate <= 1 for one in rates)
    expected = terms_of(plan).loss_noise * math.sqrt(3) / 600
    assert rates[0].deviation == pytest.approx(expected)
    assert rates[-1].rate < rates[0].rate
    assert spent(tmp_path / "loss" / "0") == (200, 4.0)
    silent, _ = in_process(training_plan(), tmp_path / "none", owners=1)
    assert silent.errors == ()


@pytest.mark.parametrize(
    ("settings", "records", "errors", "accepted"),
    [
        (LOSS, 200, 100, True),
        (LOSS, 200, -60, True),
        (LOSS, 300, 100, False),
        (LOSS, 200, -4_000, False),
        (LOSS, 200, 4_000, False),
        ({}, 0, 0, True),
        ({}, 1, 0, False),
        ({}, 0, 1, False),
    ],
)
def test_impossible_counts_are_refused(
    settings: dict[str, Any], records: int, errors: int, accepted: bool
) -> None:
    """As any other number that an owner of so many records cannot have."""
    found = terms_of(training_plan(**settings))
    query = TrainingQuery(found, found.network().first_weights())
    columns = {"weights": query.weights, "errors": np.array([records, errors])}
    body = query.pack(columns)
    if accepted:
        query.check(body, 1, most=250)
        assert query.unpack(body, 1)["errors"].tolist() == [[records, errors]]
    else:
        with pytest.raises(Refused) as refused:
            query.check(body, 1, most=250)
        assert refused.value.code == wire.Code.OUT_OF_ALPHABET


def test_the_card_of_a_chain_says_what_the_loss_cost() -> None:
    """It is part of the training's epsilon; a card that says less fails. The transfer of full data
    knows the steps only, so such a calibration is refused."""
    training = replace(training_plan(**LOSS), share=(0.0, SPLIT), issued=NOW)
    plan = chain().plan(COUNTS, training=digest(training.to_bytes()))
    outcome = chain().outcome(chain().plan(COUNTS))
    card = campaign_card(plan, outcome, diagnostic={}, issued=NOW, training=training).sign(KEY)
    assert broken(card) == []
    found = card.formal["chain"]
    assert found["epsilon_loss"] == terms_of(training).spent_on_loss(1e-5)
    assert found["epsilon_train"] == terms_of(training).spent(1e-5)
    lie = edited(card.formal, ("chain", "epsilon_loss"))
    assert "chain/epsilon_loss" in broken(replace(card, formal=lie).sign(KEY))
    less = found | {"epsilon_train": found["epsilon_train"] - found["epsilon_loss"]}
    less["epsilon"] = less["epsilon_train"]
    lie = card.formal | {"chain": less}
    assert broken(replace(card, formal=lie).sign(KEY)) == ["chain/epsilon_train"]
    settings = {"score": "hps", "labels": 3, "alpha": 0.1, "records": 600, "epsilon": 1.0}
    settings |= {"privacy-delta": 1e-6}
    with pytest.raises(BadInput, match="accepted is a training without a loss"):
        make_plan(
            "full-data:certified",
            settings | {"mechanism": "rank-exponential", "bins": 64, "beta": 0.002},
            title="full data",
            valid=(training.issued, training.expires),
            training=training,
        )
