"""The law of the threshold that certified labels publish, for known records.

The moments of X at the rungs of the public ladder come from the records themselves, each with one
report drawn from a fixed seed. A campaign's sums over its blocks are then normal, and the test of
campaigns (`confide.aggregator.procedures.labels.betting`) is run on them: its bets, their bounds
and its lower bounds of the capital are the procedure's own. The cost does not depend on n.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from confide.aggregator.procedures.labels.betting import Payoffs, betting_evidence, block_ends
from confide.aggregator.procedures.labels.payoffs import SetValues, x_range
from confide.aggregator.procedures.ladder import public_ladder
from confide.protocol.channels.base import LabelChannel
from confide.protocol.exact.sampling import SeededEntropy
from confide.protocol.methods.labels.terms import LARGEST_SET, MANY_LABELS
from confide.simulation.advice.curves import SizeCurve

Floats = NDArray[np.float64]

CAMPAIGNS = 240
# Rungs that stand for the ladder, and records whose X is looked at.
_RUNGS, _RECORDS = 48, 6_000
_SEED = 9
# Campaigns that are drawn at once, for the memory's sake.
_AT_ONCE = 40


@dataclass(frozen=True, eq=False)
class LabelCase:
    """A campaign of labels whose law is asked for."""

    curve: SizeCurve
    n: int
    channel: LabelChannel
    alpha: float
    delta: float


@dataclass(frozen=True)
class _Moments:
    """Means, a root of the covariance and higher means of payoffs at these rungs, top first."""

    thresholds: Floats
    means: Floats
    root: Floats
    powers: Floats
    most: float


def label_law(asked: LabelCase, *, campaigns: int = CAMPAIGNS) -> Floats:
    """Thresholds of as many campaigns; 1 where nothing is certified."""
    moments = _moments(asked.curve, asked.channel, asked.alpha)
    if not len(moments.thresholds):
        return np.ones(campaigns)
    rng = np.random.default_rng(_SEED)
    parts = [
        _walked(asked, moments, campaigns=min(_AT_ONCE, campaigns - first), rng=rng)
        for first in range(0, campaigns, _AT_ONCE)
    ]
    return np.concatenate(parts)


def _rungs(curve: SizeCurve, alpha: float) -> Floats:
    """Rungs of the public ladder around the target and above it, top first.

    Half are even in set size and half in coverage. The highest is always among them: a walk begins
    there.
    """
    ladder = public_ladder()[:-1]
    ladder = ladder[curve.coverage(ladder) >= 1 - 1.2 * alpha]
    if not len(ladder):
        return ladder
    even = [
        np.searchsorted(steps, np.linspace(steps[0], steps[-1], _RUNGS // 2))
        for steps in (curve.size(ladder), curve.coverage(ladder))
    ]
    last = len(ladder) - 1
    kept = np.unique(np.append(np.minimum(np.concatenate(even), last), last))
    return np.asarray(ladder[kept][::-1])


@lru_cache(maxsize=8)
def _moments(curve: SizeCurve, channel: LabelChannel, alpha: float) -> _Moments:
    k, thresholds = curve.k, _rungs(curve, alpha)
    rows = np.random.default_rng(_SEED).permutation(len(curve))[:_RECORDS]
    # Labels of a scoring aggregator have one more value; its score is 1, so it is in no set.
    every = np.ones((len(rows), channel.k))
    every[:, :k] = curve.every[rows]
    reports = channel.randomize(curve.labels[rows], SeededEntropy("advice", _SEED))
    order = np.argsort(every, axis=1, kind="stable")
    flags = np.take_along_axis(channel.supports(reports), order, axis=1)
    supported = np.zeros((len(rows), every.shape[1] + 1), dtype=np.int64)
    np.cumsum(flags, axis=1, out=supported[:, 1:])
    largest = LARGEST_SET if k >= MANY_LABELS else 0
    low, high = x_range(channel, largest)
    sizes = np.arange(every.shape[1] + 1)[None, :]
    values = np.clip(SetValues(channel, largest).of(sizes, supported), low, high)
    held = np.stack([(every <= q).sum(axis=1) for q in thresholds], axis=1)
    scale = 1 - alpha - low
    d = (np.take_along_axis(values, held, axis=1) - (1 - alpha)) / scale
    # Means are known better from all records than from these reports.
    known = (curve.coverage(thresholds) - (1 - alpha)) / scale
    covariance = np.atleast_2d(np.cov(d.T))
    width, turned = np.linalg.eigh(covariance)
    root = turned * np.sqrt(np.maximum(width, 0.0))
    powers = np.stack([(d**power).mean(axis=0) for power in (2, 3, 4)])
    return _Moments(thresholds, known, root, powers, (high - (1 - alpha)) / scale)


def _walked(
    asked: LabelCase, moments: _Moments, *, campaigns: int, rng: np.random.Generator
) -> Floats:
    """Draw the sums of campaigns, test every rung, and walk down to the first that fails."""
    rungs, blocks = len(moments.thresholds), np.diff(block_ends(asked.n))
    noise = rng.normal(size=(campaigns, len(blocks), rungs)) @ moments.root.T
    first = noise * np.sqrt(blocks)[:, None] + blocks[:, None] * moments.means
    higher = moments.powers[:, :, None] * blocks
    sums = np.empty((4, campaigns * rungs, len(blocks)))
    sums[0] = first.transpose(0, 2, 1).reshape(campaigns * rungs, -1)
    sums[1:] = np.tile(higher, (1, campaigns, 1))
    capital, needed = betting_evidence(Payoffs(sums, blocks, moments.most), delta=asked.delta)
    passed = (capital >= needed).reshape(campaigns, rungs)
    steps = np.where(passed.all(axis=1), rungs, passed.argmin(axis=1))
    return np.append(1.0, moments.thresholds)[steps]
