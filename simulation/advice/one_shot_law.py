"""The law of the threshold that one-shot bits publish, for known records.

It is that of `confide.aggregator.procedures.bits.one_shot` in the normal limit, for many campaigns
at once: fits to the planning third of the answers, the run of rungs that promises most for every
rung, and the walk down the ladder.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, ndtri

from confide.aggregator.procedures.bit_search import aim_for
from confide.aggregator.procedures.bits import ONE_SHOT_RUNGS
from confide.aggregator.procedures.ladder import public_ladder
from confide.simulation.advice.bit_law import BitCase

Floats = NDArray[np.float64]

CAMPAIGNS = 200
_SEED = 8


def one_shot_law(asked: BitCase, *, campaigns: int = CAMPAIGNS) -> Floats:
    """Thresholds of as many campaigns; 1 where nothing is certified."""
    ladder = public_ladder(ONE_SHOT_RUNGS)
    u = np.broadcast_to(logit(ladder[ladder < 1]), (campaigns, int((ladder < 1).sum())))
    each = asked.n / (3 * u.shape[1])
    if asked.hopeless(2 * asked.n // 3) or each < 1:
        return np.ones(campaigns)
    rng = np.random.default_rng(_SEED)
    aim = aim_for(asked.null, asked.channel, alpha=asked.alpha, answers=asked.n // 8)
    fits = asked.fits(aim, campaigns)
    fits.add(u, each, asked.ones(u, each, rng))
    fits.climb(passes=3, steps=4)
    gains = fits.predict(u)[0] - (1 - asked.alpha)
    tested = 2 * each
    ones = asked.ones(u, tested, rng) - tested * asked.null
    return _walked(u, gains, ones, spread=tested * asked.null * (1 - asked.null), asked=asked)


def _walked(u: Floats, gains: Floats, ones: Floats, *, spread: float, asked: BitCase) -> Floats:
    """Walk down: at every rung the run of most promise is tested, until one fails."""
    count, rungs = u.shape
    rows, certified = np.arange(count), np.full(count, np.inf)
    going, needed = np.ones(count, dtype=np.bool_), -float(ndtri(asked.delta))
    lengths = np.sqrt(np.arange(1, rungs + 1))
    for j in range(rungs - 1, -1, -1):
        runs = (np.cumsum(gains[:, j::-1], axis=1) / lengths[: j + 1]).argmax(axis=1)
        shown = np.cumsum(ones[:, j::-1], axis=1)[rows, runs] / np.sqrt((runs + 1) * spread)
        going &= shown >= needed
        if not going.any():
            break
        certified = np.where(going, u[:, j], certified)
    return np.where(np.isinf(certified), 1.0, expit(certified))
