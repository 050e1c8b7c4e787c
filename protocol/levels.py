"""Levels of coverage that are certified together, and what they promise together.

Level i certifies from the same answers a threshold c_i that covers less than 1 - alpha_i with
probability at most delta_i. Levels are fixed by the plan, before any report.

- *Band*: if the deltas add up to at most delta, coverage at every q is at least L(q), the largest
  1 - alpha_i with c_i <= q, for all q at once but for delta.
- *Marginal*: let q be the largest c_i. If q misses more than t, with alpha_i <= t < alpha_(i+1),
  then so does c_i, which is no larger, and it misses more than alpha_i. So P(miss > t) <= delta_i,
  and the mean of the miss, the integral of P(miss > t) over t, is at most alpha_1 + sum of delta_i
  (alpha_(i+1) - alpha_i), where the last alpha is followed by 1. If that is at most alpha, the test
  record is covered with probability at least 1 - alpha.
"""

from fractions import Fraction
from itertools import pairwise
from statistics import NormalDist

# Pairs of alpha and delta, by rising alpha.
Levels = tuple[tuple[float, float], ...]

MOST_LEVELS = 64
# The shares not covered at the levels of a band, besides that of the plan: about evenly in logit.
BAND_ALPHAS = (
    *(0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08),
    *(0.1, 0.125, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5),
)
# The levels of a marginal promise reach from so many standard errors below their centre to where
# delta is a standard error times this: the last delta weighs as much as all coverage beyond it.
BELOW, LAST_DELTA = 1.0, 0.02
# Kept back for what rounding adds.
_ROUNDING = 1e-9
_NORMAL = NormalDist()


def most_missed(levels: Levels) -> Fraction:
    """The bound on the mean share that the largest of the thresholds misses, exactly."""
    ends = [*(Fraction(alpha) for alpha, _ in levels), Fraction(1)]
    steps = zip(levels, pairwise(ends), strict=True)
    return ends[0] + sum(Fraction(delta) * (high - low) for (_, delta), (low, high) in steps)


def marginal_levels(alpha: float, *, error: float, count: int) -> Levels:
    """Levels whose mean miss is bounded by alpha, for tests with this standard error of coverage.

    Level c + u error has the upper tail of the normal law at u as its delta, so that all levels
    would certify the same threshold, the one that misses c. The bound is linear in c.
    """
    # However few the records, the levels lie between 0 and 1.
    error = min(error, alpha / 2, (1 - alpha) / 8)
    above = -_NORMAL.inv_cdf(LAST_DELTA * error)
    places = [-BELOW + (BELOW + above) * i / (count - 1) for i in range(count)]
    deltas = [_NORMAL.cdf(-u) for u in places]
    steps = zip(deltas[:-1], pairwise(places), strict=True)
    spent = sum(delta * (high - low) for delta, (low, high) in steps)
    spent += places[0] - deltas[-1] * places[-1]
    centre = (alpha * (1 - _ROUNDING) - deltas[-1] - error * spent) / (1 - deltas[-1])
    return tuple((centre + error * u, delta) for u, delta in zip(places, deltas, strict=True))


def band_levels(alpha: float, delta: float) -> Levels:
    """Levels that share delta evenly, from half of all records to nearly all."""
    alphas = sorted({*BAND_ALPHAS, alpha})
    return tuple((one, delta / len(alphas) * (1 - _ROUNDING)) for one in alphas)
