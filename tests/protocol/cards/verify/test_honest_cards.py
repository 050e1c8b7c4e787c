"""Cards of honest writers verify, in every track."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from confide.aggregator.cards.contracts.contract import Configuration, Contract
from confide.aggregator.cards.full_data import FullDataContract
from confide.protocol.cards.card import Card, parse_card
from confide.protocol.privacy.losses import SampledGaussian
from confide.protocol.privacy.zcdp import search_variance
from tests.support.cards.campaign_cards import counted, issued, reported
from tests.support.cards.cards import KEY, broken, make_card
from tests.support.cards.central import NOISED, TRUSTED
from tests.support.cards.full_data import QUANTILE, RELEASED, TRAINING, made
from tests.support.cards.monitors import WATCHING, watched_card
from tests.support.owners.owners import LABEL_PLAN, PLAN, changed

HONEST = 100
# Few, because composing one takes seconds: what else a full-data card has is drawn anew for each.
# Those with little noise have wide losses, which take longest: every tenth card has them.
TRAININGS = (TRAINING, SampledGaussian(1.1, 0.01, 600), SampledGaussian(4.0, 0.08, 50))
SHARES = (0.45, 0.1, 0.45)


def bits_card(rng: np.random.Generator) -> Card:
    variant = str(rng.choice(["certified", "one-shot", "published", "published-star"]))
    n = int(rng.integers(50, 4_000))
    plan = changed(
        PLAN,
        variant=variant,
        epsilon=float(rng.uniform(0.5, 6)),
        alpha=round(float(rng.uniform(0.05, 0.4)), 3),
        delta=round(float(rng.uniform(0.001, 0.3)), 4),
        expected_records=n,
        minimum_reports=0,
        max_corrupt=int(rng.integers(0, 4)),
    )
    return issued(plan, reported(plan, rng, n=int(n * rng.uniform(0.5, 1.2))))


def labels_card(rng: np.random.Generator) -> Card:
    variant = str(rng.choice(["certified", "published", "published-star"]))
    channel = "k-rr" if variant != "certified" else str(rng.choice(["k-rr", "subset", "unary"]))
    plan = changed(
        LABEL_PLAN,
        variant=variant,
        channel=channel,
        epsilon=float(rng.uniform(0.5, 6)),
        labels=int(rng.integers(2, 12)),
        alpha=round(float(rng.uniform(0.05, 0.4)), 3),
        delta=round(float(rng.uniform(0.001, 0.3)), 4),
        minimum_reports=0,
        max_corrupt=int(rng.integers(0, 20)),
    )
    return issued(plan, reported(plan, rng, n=int(rng.integers(1, 3_000))))


def trusted_card(rng: np.random.Generator) -> Card:
    mechanism = str(rng.choice(["rank-exponential", "laplace-counts", "pps", "above-threshold"]))
    plan = changed(
        TRUSTED,
        mechanism=mechanism,
        bins=int(rng.choice([8, 16, 100, 256])),
        epsilon=round(float(rng.uniform(0.2, 4)), 3),
        beta=round(float(rng.uniform(0.001, 0.02)), 4),
        alpha=round(float(rng.uniform(0.05, 0.4)), 3),
        minimum_reports=0,
    )
    return issued(
        plan, counted(plan, rng, n=int(rng.integers(5, 9_000)), owners=int(rng.integers(1, 5)))
    )


def averaged_card(rng: np.random.Generator) -> Card:
    plan = changed(
        TRUSTED,
        bins=int(rng.choice([2, 16, 256])),
        epsilon=round(float(rng.uniform(0.05, 8)), 3),
        beta=0.0,
        alpha=round(float(rng.uniform(0.02, 0.6)), 3),
        minimum_reports=0,
    )
    return issued(plan, counted(plan, rng, n=int(rng.integers(1, 9_000)), owners=1))


def pac_card(rng: np.random.Generator) -> Card:
    """With and without a beta, and with owners' noise."""
    kind = int(rng.integers(3))
    changes = {"beta": 0.0} if kind == 0 else {"beta": 0.003, "mechanism": "above-threshold"}
    plan = changed(
        NOISED if kind == 2 else TRUSTED,
        **({"beta": 0.003} if kind == 2 else changes),
        delta=round(float(rng.uniform(0.01, 0.3)), 3),
        alpha=round(float(rng.uniform(0.02, 0.6)), 3),
        minimum_reports=0,
    )
    return issued(plan, counted(plan, rng, n=int(rng.integers(1, 9_000)), owners=2))


def noised_card(rng: np.random.Generator) -> Card:
    bins, epsilon = int(rng.choice([16, 64, 256])), round(float(rng.uniform(0.3, 4)), 3)
    plan = changed(
        NOISED,
        bins=bins,
        epsilon=epsilon,
        noise_variance=search_variance(bins=bins, epsilon=epsilon, delta=1e-6),
        beta=round(float(rng.uniform(0.001, 0.02)), 4),
        alpha=round(float(rng.uniform(0.05, 0.4)), 3),
        minimum_reports=0,
    )
    return issued(
        plan, counted(plan, rng, n=int(rng.integers(5, 9_000)), owners=int(rng.integers(1, 5)))
    )


def full_data_card(rng: np.random.Generator) -> Card:
    coverage, epsilon = (
        round(float(rng.uniform(0.6, 0.95)), 3),
        round(float(rng.uniform(0.5, 3)), 3),
    )
    contract = FullDataContract("any", coverage, 1e-3, epsilon, float(10 ** rng.uniform(-7, -3)))
    training = TRAININGS[int(rng.choice(len(TRAININGS), p=SHARES))]
    quantile = replace(QUANTILE, epsilon=float(rng.choice([0.25, 1.0])))
    n = int(rng.integers(100, 100_000))
    card = made(contract, training, quantile, n=n)
    if "rank" not in card.formal["failed"]:
        return card
    return made(contract, training, quantile, n=n, released=replace(RELEASED, threshold=1.0))


def monitor_card(rng: np.random.Generator) -> Card:
    plan = changed(
        WATCHING,
        variant=str(rng.choice(["e-process", "e-detector"])),
        epsilon=float(rng.uniform(0.5, 6)),
        alpha=round(float(rng.uniform(0.05, 0.4)), 3),
        delta=round(float(rng.uniform(0.001, 0.3)), 4),
        max_corrupt=int(rng.integers(0, 4)),
    )
    counts = [
        (n, int(rng.binomial(n, rng.uniform(0.4, 0.95))))
        for n in rng.integers(0, 200, size=int(rng.integers(0, 12))).tolist()
    ]
    return watched_card(counts, plan)


def searched_card(rng: np.random.Generator) -> Card:
    contract = Contract(
        "any",
        coverage=round(float(rng.uniform(0.5, 0.95)), 3),
        beta=1e-3,
        epsilon_train=1.0,
        epsilon_calibration=round(float(rng.uniform(0.2, 4)), 2),
        delta=1e-5,
        max_inflation=None if rng.random() < 0.5 else round(float(rng.uniform(0.005, 0.2)), 3),
    )
    bins = int(rng.choice([8, 16, 64]))
    grid = [
        Configuration(
            mechanism,
            round(float(rng.uniform(0.5, 0.97)), 3),
            int(rng.integers(20, 9_000)),
            bins,
            1.0,
            0.0,
            epsilon,
        )
        for mechanism in ("rank-exponential", "laplace-counts", "pps")
        for epsilon in (0.5, round(float(rng.uniform(0.2, 4)), 2))
    ]
    return make_card(contract, grid)


MAKERS: dict[str, Callable[[np.random.Generator], Card]] = {
    "bits": bits_card,
    "labels": labels_card,
    "trusted": trusted_card,
    "averaged": averaged_card,
    "PAC": pac_card,
    "owner-noised": noised_card,
    "full-data": full_data_card,
    "monitor": monitor_card,
    "searched": searched_card,
}


@pytest.mark.parametrize("track", MAKERS)
def test_a_hundred_honest_cards_of_every_track_verify(track: str) -> None:
    """Whatever the parameters, feasible or not: what an honest writer wrote holds, clause by
    clause."""
    decisions = set()
    for seed in range(HONEST):
        card = parse_card(MAKERS[track](np.random.default_rng([seed, len(track)])).to_json())
        assert broken(card, key=KEY.public_key().public_bytes_raw()) == [], (track, seed)
        decisions.add(card.formal["decision"])
    assert decisions == {"feasible", "infeasible"}


@pytest.mark.parametrize("variant", ["certified", "published", "published-star"])
def test_the_aggregator_asks_for_as_much_as_the_verifier(variant: str) -> None:
    """However many reports may be lies, slack and capital of an honest card are at or above what
    the verifier computes."""
    for liars in (0, 1, 25, 400, 3_000):
        plan = changed(LABEL_PLAN, variant=variant, max_corrupt=liars, minimum_reports=0)
        assert not broken(issued(plan, reported(plan, np.random.default_rng(liars), n=2_000))), (
            liars
        )
