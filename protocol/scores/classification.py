"""The built-in classification scores: their functions, and the `Score` values made from them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.protocol.scores.base import Score
from confide.protocol.scores.ranking import Ranking

Array = NDArray[Any]


def hps(r: Ranking) -> Array:
    """1 - p_y (HPS of Vovk et al. 2005, LAC of Sadinle et al. 2019)."""
    return 1 - r.own


def aps(r: Ranking) -> Array:
    """Probability mass ranked at or above y (Romano et al. 2020, not randomised)."""
    return r.above + r.own


def aps_randomized(r: Ranking) -> Array:
    """Probability mass of larger probabilities plus u p_y (Romano et al. 2020).

    The label's own mass is counted once, so the score is at most 1.
    """
    return r.larger + r.u * r.own


def raps(r: Ranking, *, penalty: float, free_ranks: int) -> Array:
    """APS plus a penalty for every rank beyond the free ones, divided by its largest value.

    Angelopoulos et al. 2021.
    """
    extra = np.maximum(r.rank + 1 - free_ranks, 0)
    return (r.above + r.own + penalty * extra) / (1 + penalty * max(r.labels - free_ranks, 0))


def saps(r: Ranking, *, penalty: float) -> Array:
    """Largest probability plus a penalty per rank, divided by its largest value.

    Huang et al. 2024, with u = 1.
    """
    return (r.top + penalty * r.rank) / (1 + penalty * (r.labels - 1))


def top_k(r: Ranking) -> Array:
    """Rank of y, from 1/K for the first to 1 for the last."""
    return (r.rank + 1) / r.labels


BUILT_IN = (
    Score("hps", hps),
    Score("aps", aps),
    Score("aps-randomized", aps_randomized, randomized=True),
    Score("raps", raps, parameters={"penalty": 0.01, "free_ranks": 5}),
    Score("saps", saps, parameters={"penalty": 0.1}),
    Score("top-k", top_k),
)
