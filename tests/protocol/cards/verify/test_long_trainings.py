from dataclasses import replace

import numpy as np
import pytest

from confide.protocol.cards.card import parse_card
from confide.protocol.cards.verify.profiles import Training
from confide.protocol.privacy.losses import SampledGaussian
from confide.protocol.privacy.profiles import gaussian_delta
from tests.support.cards.campaign_cards import forged
from tests.support.cards.cards import broken
from tests.support.cards.full_data import CONTRACT as FULL_DATA
from tests.support.cards.full_data import QUANTILE, made


@pytest.mark.parametrize(
    ("training", "epsilon"),
    [
        ((0.5, 1e-4, 1_000_000), 8.0),
        ((1.0, 1e-5, 10_000_000), 2.0),
        ((0.8, 1e-3, 100_000), 8.0),
        ((0.7, 1e-4, 50), 2.0),
    ],
)
def test_cards_of_long_trainings_verify(training: tuple[float, float, int], epsilon: float) -> None:
    """Millions of steps at tiny sampling rates: the verifier's law of the losses is fine enough,
    and its rounding small."""
    contract = replace(FULL_DATA, epsilon=epsilon)
    card = made(contract, SampledGaussian(*training), QUANTILE, n=1_000_000)
    assert not broken(parse_card(card.to_json()))
    assert card.formal["decision"] == "feasible"
    less = forged(card, (("total", "epsilon"), card.formal["total"]["epsilon"] * 0.98))
    assert broken(less) == ["total"]
    noisier = forged(card, (("training", "noise_multiplier"), training[0] * 1.02))
    assert not any(clause.startswith(("profile", "total")) for clause in broken(noisier))
    assert any(
        clause.startswith("profile")
        for clause in broken(forged(card, (("training", "steps"), training[2] * 2)))
    )


def test_the_law_of_ten_million_steps_is_that_of_a_gaussian() -> None:
    """With q sqrt(T) fixed and T large the profile is a Gaussian one with mu = q sqrt(T
    (e^(1/sigma^2) - 1)), by the central limit theorem of Dong, Roth and Su (2022, Corollary 5.4);
    at q = 1e-5 and T = 1e7 to within three parts in a thousand.
    """
    training = Training(1.0, 1e-5, 10_000_000)
    mu = 1e-5 * (1e7 * np.expm1(1.0)) ** 0.5
    for epsilon in (-0.02, 0.0, 0.03, 0.06):
        for added in (True, False):
            assert training.delta(epsilon, added=added) == pytest.approx(
                gaussian_delta(mu, epsilon), rel=3e-3
            )
