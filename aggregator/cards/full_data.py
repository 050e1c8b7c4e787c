"""The formal layer of a card for training and calibrating on the same records.

It holds the numbers of the training, points of its privacy profile, and the numbers derived from
them: how much of it coverage may use, the rank, the total budget. `n` is the public number of
records that the training was planned for, and the rank is that of a calibration with as many
records; under add-remove adjacency neither is read off the records.
"""

from dataclasses import asdict, dataclass

import numpy as np

from confide.aggregator.cards.released import Released, decision
from confide.aggregator.procedures.full_data.levels import Transfer
from confide.aggregator.quantiles.base import ADD_REMOVE
from confide.aggregator.quantiles.rank_exponential import RankExponential
from confide.protocol.cards.card import Layer
from confide.protocol.certificate import MARGINAL
from confide.protocol.errors import BadInput, check_epsilon, check_probability
from confide.protocol.methods.base import FULL_DATA
from confide.protocol.privacy.losses import Pure, SampledGaussian
from confide.protocol.privacy.profiles import Profile
from confide.protocol.privacy.transfer import best_point

# The points of the profile that are shown besides the deciding one.
_SHOWN = np.linspace(0.0, 3.0, 13).tolist()
# A smaller delta cannot be told from the rounding of the accountants.
LEAST_DELTA = 1e-7


@dataclass(frozen=True)
class FullDataContract:
    """The promises that a full-data calibration must make.

    `beta` is the part of the miss with which its quantile may fail.
    """

    name: str
    coverage: float
    beta: float
    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        check_probability("coverage", self.coverage)
        check_probability("beta", self.beta)
        check_probability("delta", self.delta)
        check_epsilon(self.epsilon)
        if self.delta < LEAST_DELTA:
            raise BadInput(
                f"delta is {self.delta!r}; a full-data card accepts {LEAST_DELTA} or more"
            )
        if self.beta >= 1 - self.coverage:
            raise BadInput(
                f"beta is {self.beta} at coverage {self.coverage}; beta must be below 1 - "
                "coverage, of which it is a part"
            )


def full_data_formal(
    contract: FullDataContract,
    training: SampledGaussian,
    quantile: RankExponential,
    *,
    n: int,
    released: Released,
) -> Layer:
    """Judge the contract for this training and this quantile, clause by clause."""
    if quantile.adjacency != ADD_REMOVE or quantile.beta != contract.beta:
        raise BadInput(
            f"the quantile is for {quantile.adjacency} and beta {quantile.beta}; accepted are "
            f"{ADD_REMOVE} and the contract's beta {contract.beta}"
        )
    alpha, spent = round(1 - contract.coverage, 12), Profile().then(training)
    best, miss = best_point(spent, alpha=alpha, beta=contract.beta)
    transfer = Transfer(max(0.0, miss))
    rank = transfer.rank_at(n)
    total = spent.then(Pure(quantile.epsilon)).epsilon(contract.delta)
    flags = {
        "certified": True,
        "rank": rank <= n,
        "epsilon": total <= contract.epsilon,
        "delta": True,
        **released.flags(),
    }
    failed = [name for name, holds in flags.items() if not holds]
    return {
        "track": FULL_DATA,
        "contract": {"kind": MARGINAL, "adjacency": ADD_REMOVE, "unit": "record"}
        | asdict(contract),
        "training": asdict(training) | {"batch": training.sampling_rate * n},
        "profile": [
            {"epsilon": epsilon, "delta": spent.delta_added(epsilon)}
            for epsilon in sorted({*_SHOWN, best})
        ],
        "calibration": _calibration(quantile, transfer, n),
        "total": {
            "epsilon": total,
            "delta": contract.delta,
            "composition": "privacy loss distributions",
        },
        "released": released.layer(),
        "flags": flags,
        "decision": decision(failed),
        "failed": failed,
        "margin": 0.0,
    }


def _calibration(quantile: RankExponential, transfer: Transfer, n: int) -> Layer:
    rank = transfer.rank_at(n)
    return {
        "mechanism": quantile.name,
        "n": n,
        "bins": quantile.bins,
        "epsilon": quantile.epsilon,
        "miss": transfer.miss,
        "level": transfer.level(n),
        "rank": rank,
        "inflation_ranks": quantile.inflation(n=n, rank=rank),
    }
