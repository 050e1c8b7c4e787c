"""A full-data card that tests vary."""

from confide.aggregator.cards.full_data import FullDataContract, full_data_formal
from confide.aggregator.cards.released import Released
from confide.aggregator.quantiles.rank_exponential import RankExponential
from confide.protocol.cards.card import Card
from confide.protocol.exact.sampling import OPERATING_SYSTEM
from confide.protocol.privacy.losses import SampledGaussian
from confide.protocol.scores.registry import SCORES
from tests.support.cards.cards import KEY, ORIGIN

CONTRACT = FullDataContract("reuse", coverage=0.9, beta=1e-3, epsilon=1.0, delta=1e-5)
TRAINING = SampledGaussian(8.024, 0.0256, 1953)
QUANTILE = RankExponential(bins=1024, beta=1e-3, epsilon=0.5, adjacency="add-remove")
RELEASED = Released(bytes(32), SCORES["hps"], 26, 0.75, OPERATING_SYSTEM)


def made(
    contract: FullDataContract = CONTRACT,
    training: SampledGaussian = TRAINING,
    quantile: RankExponential = QUANTILE,
    *,
    n: int = 10_000,
    released: Released = RELEASED,
) -> Card:
    return Card(
        full_data_formal(contract, training, quantile, n=n, released=released),
        {},
        ORIGIN,
        view="public",
    ).sign(KEY)
