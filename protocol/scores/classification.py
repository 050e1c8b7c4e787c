"""The built-in scores of labels: their functions, and the `LabelScore` values made of them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.protocol.scores.label_score import LabelScore
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


# A larger penalty would leave no digits of single precision for the probabilities.
_PENALTY = (0.0, 100.0)

BUILT_IN = (
    LabelScore("hps", hps),
    LabelScore("aps", aps),
    LabelScore("aps-randomized", aps_randomized, randomized=True),
    LabelScore(
        "raps",
        raps,
        parameters={"penalty": 0.01, "free_ranks": 5},
        limits={"penalty": _PENALTY, "free_ranks": (0, 1e6)},
    ),
    LabelScore("saps", saps, parameters={"penalty": 0.1}, limits={"penalty": _PENALTY}),
    LabelScore("top-k", top_k),
)
