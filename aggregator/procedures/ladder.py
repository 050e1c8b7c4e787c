"""Public ladders of thresholds, ascending to 1. A ladder is fixed before any report is seen.

Scores of good classifiers crowd towards 0 and 1, where steps even in q are blind, so the default
takes half its rungs evenly in q and half evenly in logit(q). A model provider with data of its own
does better with `even_in_size`.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from confide.protocol.errors import BadInput

Ladder = NDArray[np.float64]

LOGIT_REACH = 16.0
MOST_RUNGS = (1 << 16) - 1


def public_ladder(rungs: int = 800) -> Ladder:
    """About `rungs` thresholds that depend on nothing."""
    if rungs < 4:
        raise BadInput(f"a ladder of {rungs} rungs; at least 4 are needed")
    tails = expit(np.linspace(-LOGIT_REACH, LOGIT_REACH, rungs - rungs // 2))
    return np.unique(np.concatenate([np.linspace(0, 1, rungs // 2 + 1)[1:], tails]))


def even_in_size(scores: NDArray[Any], rungs: int = 800) -> Ladder:
    """Thresholds between which the mean set size grows in equal steps.

    `scores` (m, K) are of records that the model's provider holds and that take no part.
    """
    flat = np.sort(np.asarray(scores, dtype=np.float64), axis=None)
    picked = flat[np.linspace(0, flat.size - 1, rungs).astype(np.int64)]
    return np.unique(np.append(picked, 1.0))


def check_ladder(ladder: Ladder) -> Ladder:
    """Refuse a ladder that does not ascend to exactly 1.

    Thresholds above its top would never be tested, and would be taken as covered.
    """
    fits = (
        ladder.ndim == 1 and 2 <= ladder.size <= MOST_RUNGS and ladder[0] >= 0 and ladder[-1] == 1
    )
    if not (fits and (np.diff(ladder) > 0).all()):
        raise BadInput(
            f"a ladder must be 2 to {MOST_RUNGS} thresholds in [0, 1] that ascend strictly and end "
            "at 1"
        )
    return ladder
