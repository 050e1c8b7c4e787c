"""Compute the numbers that a card claims a second time, from the definitions.

None of this code is shared with the code that calibrates. A quantile mechanism adds its verifier
with `register`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import numpy as np

from confide.protocol.cards.verify.counts import averaged
from confide.protocol.cards.verify.counts.tables import WEIGHT, Endless, both_sides, descent, power
from confide.protocol.cards.verify.findings import number

NOT_CERTIFIED: Final = "not certified"
# The word size in which noisy comparisons express probabilities, and the least probability.
WORD, RAREST = 1 << 64, 1 << 24
# The largest variance of a law that is computed number by number.
MOST_SPREAD = 1 << 32
# Absolute error of a mass computed by a Fourier transform of doubles.
FOURIER = 1e-13

Bound = int | None | str


@dataclass(frozen=True)
class Claim:
    """An entry of a card, with the contract's beta and adjacency and the resulting rank."""

    entry: dict[str, Any]
    beta: Fraction
    adjacency: str
    rank: int


Verifier = Callable[[Claim], Bound]
# Verifiers by mechanism: for the aggregator's noise, and for the owners' noise.
INFLATION: dict[str, Verifier] = {}
OWNER_NOISED: dict[str, Verifier] = {}
# The rank of a mechanism whose coverage is averaged over its draws, by entry, alpha and delta.
AVERAGED: dict[str, Callable[..., int | None]] = {}


def register(
    mechanism: str,
    *,
    inflation: Verifier,
    owner_noised: Verifier | None = None,
    averaged_rank: Callable[..., int | None] | None = None,
) -> None:
    """Register a mechanism's verifier, which recomputes its inflation.

    A mechanism without a verifier is never certified.
    """
    INFLATION[mechanism] = inflation
    if owner_noised is not None:
        OWNER_NOISED[mechanism] = owner_noised
    if averaged_rank is not None:
        AVERAGED[mechanism] = averaged_rank


def rank(entry: dict[str, Any], *, alpha: Fraction, beta: float, delta: float | None) -> int | None:
    """The rank that a configuration aims at; None if there is no beta, and its mechanism needs one.

    With a delta the promise is PAC; else it is an average.
    """
    n = entry["n"]
    if beta:
        if delta is None:
            return math.ceil((n + 1) * (1 - alpha))
        return averaged.rare_rank(n, alpha=alpha, delta=number(delta) - number(beta))
    if entry["noised_by"] == "owners" or entry["mechanism"] not in AVERAGED:
        return None
    try:
        return AVERAGED[entry["mechanism"]](entry, alpha=alpha, delta=delta)
    except Endless:
        return None


def inflation(entry: dict[str, Any], *, beta: float, adjacency: str, rank: int) -> Bound:
    """Ranks by which a certified mechanism may exceed the requested one; None without a bound.

    The bound fails with probability at most beta.
    """
    verifiers = OWNER_NOISED if entry["noised_by"] == "owners" else INFLATION
    if entry["mechanism"] not in verifiers:
        return NOT_CERTIFIED
    try:
        return verifiers[entry["mechanism"]](Claim(entry, Fraction(beta), adjacency, rank))
    except Endless:
        return NOT_CERTIFIED


def _distance(ratio: Fraction, bins: int, beta: Fraction) -> int | None:
    """Steps down until all bins but one together weigh at most beta/(1 - beta) of that one."""
    for steps, weight in enumerate(descent(WEIGHT, ratio, 1)):
        if weight * (bins - 1) * (1 - beta) <= beta * WEIGHT:
            return steps
    return None


def _rank_exponential(claim: Claim) -> Bound:
    entry, beta = claim.entry, claim.beta
    if not beta:
        return averaged.mean_inflation(entry, rank=claim.rank)
    low, high = both_sides(entry["epsilon_calibration"])
    down = _distance(low, entry["bins"], beta)
    if down is None:
        return NOT_CERTIFIED
    up = _distance(high, entry["bins"], beta)
    return None if up is None else down + up - 2


def _pps(claim: Claim) -> Bound:
    """The proof is for replace-one adjacency and ranks from n/2 on."""
    entry, beta, rank = claim.entry, claim.beta, claim.rank
    epsilon, bins, n = entry["epsilon_calibration"], entry["bins"], entry["n"]
    if claim.adjacency != "replace-one" or 2 * rank < n:
        return NOT_CERTIFIED
    down = _distance(power(epsilon / 2), bins, beta)
    if down is None:
        return NOT_CERTIFIED
    target = rank + max(down - 1, math.ceil(2 / epsilon * math.log(bins / beta)))
    if target >= n:
        return n + 1 - rank
    slope = epsilon / 2 * (n - target) / target
    for steps, weight in enumerate(descent(WEIGHT, power(slope), 1)):
        if steps > n - target:
            break
        if weight * (bins - 1) * (1 - beta) <= beta * WEIGHT:
            return target + steps - rank
    return n + 1 - rank


def _rarity(ratio: Fraction) -> list[int]:
    """2^64 P(Z >= x) for x = 1, 2, ...: about 1/(1 + ratio), falling by the ratio."""
    return list(descent(math.ceil(Fraction(WORD) / (ratio + 1)), ratio, RAREST))


def _laplace_counts(claim: Claim) -> Bound:
    entry, beta = claim.entry, claim.beta
    bins = entry["bins"]
    tails = _rarity(power(entry["epsilon_calibration"] / bins))
    if tails[-1] * (bins - 1) > beta * WORD:
        return NOT_CERTIFIED
    together = next(x for x, tail in enumerate(tails) if tail * (bins - 1) <= beta * WORD)
    alone = next(x for x, tail in enumerate(tails) if tail <= beta * WORD)
    return together + alone


def _above_threshold(claim: Claim) -> Bound:
    """Bound the probability that k bins one short of the rank stay silent.

    The bound is summed over the noise of the threshold.
    """
    entry, beta = claim.entry, claim.beta
    bins = entry["bins"]
    ratio = power(entry["epsilon_calibration"] / 2)
    tails = np.array(_rarity(ratio), dtype=np.float64) / WORD
    reach = len(tails) + 1
    p = math.ceil(Fraction(WORD) / ratio) / WORD
    shift = np.arange(-reach, reach + 1)
    mass = (1 - p) / (1 + p) * p ** np.abs(shift)
    mass[[0, -1]] += p ** (reach + 1) / (1 + p)

    def fails(count: int, offset: int) -> float:
        x = offset + 1 + shift
        rare = tails[np.clip(np.abs(np.where(x >= 1, x, 1 - x)) - 1, 0, len(tails) - 1)]
        on = np.where(x >= 1, rare, 1 - rare)
        some = 1 - (1 - np.minimum(on, 1 - 1e-16)) ** count
        some[0] = 1.0
        return float(mass @ some)

    def least(count: int) -> int:
        return first(lambda offset: fails(count, offset) <= float(beta) * (1 - 1e-9), 2 * reach)

    if fails(bins - 1, 2 * reach) > float(beta):
        return NOT_CERTIFIED
    return least(bins - 1) + least(1)


def _gaussian_search(claim: Claim) -> Bound:
    """Twice the offset that all comparisons stay within, from a normal tail on the integers."""
    entry, beta = claim.entry, claim.beta
    if entry["delta_calibration"] <= 0:
        return NOT_CERTIFIED
    steps = math.ceil(math.log2(entry["bins"]))
    rho = zcdp(entry["epsilon_calibration"], entry["delta_calibration"])
    if rho < 1e-9:
        return NOT_CERTIFIED
    variance = steps / (2 * rho)
    x = np.arange(math.ceil(12 * math.sqrt(variance)) + 3)
    weights = np.exp(-(x**2) / (2 * variance))
    above = np.append(np.cumsum(weights[:0:-1])[::-1], 0.0) / (2 * weights.sum() - 1)
    rare = steps * above[:-1] * (1 + 1e-9) <= float(beta)
    if rare.any():
        return 2 * int(np.argmax(rare))
    return 2 * math.ceil(math.sqrt(2 * variance * math.log(steps / float(beta))) * (1 + 1e-9))


def _owner_noised_search(claim: Claim) -> Bound:
    """Like the Gaussian search, with the summed noise of all owners.

    The law of the sum is convolved with itself by doubling; a law too wide for that is bounded as a
    sub-Gaussian one. The proof is for replace-one adjacency.
    """
    entry, beta = claim.entry, float(claim.beta)
    moved = entry.get("moved", 1)
    # Private parts: one more round counts their records, and its noise moves the rank as well.
    steps, ends = math.ceil(math.log2(entry["bins"])) + (moved > 1), 4 if moved > 1 else 2
    variance = entry["noise_variance"]
    if claim.adjacency != "replace-one" or not 0 < entry["delta_calibration"] < 1:
        return NOT_CERTIFIED
    if not variance:
        rho = zcdp(entry["epsilon_calibration"], entry["delta_calibration"])
        variance = math.ceil(moved * steps / (2 * rho) * (1 - 1e-12)) if rho >= 1e-9 else 0
    if (
        not variance
        or zcdp_cost(moved * steps / (2 * variance), entry["delta_calibration"])
        > entry["epsilon_calibration"]
    ):
        return NOT_CERTIFIED
    owners, each = entry["owners"], beta / steps
    loose = ends * math.ceil(math.sqrt(2 * owners * variance * math.log(1 / each)))
    if owners * variance > MOST_SPREAD:
        return loose
    # This part of scipy takes longer to load than most cards to verify.
    from scipy.signal import fftconvolve

    reach = math.ceil(12 * math.sqrt(variance * owners)) + 4
    x = np.arange(-reach, reach + 1)
    power = np.exp(-(x**2) / (2 * variance))
    power, total, left = power / power.sum(), None, owners
    while left:
        if left % 2:
            total = power if total is None else fftconvolve(total, power, "same")
        power, left = fftconvolve(power, power, "same"), left // 2
    assert total is not None
    above = np.append(np.cumsum(total[:reach:-1])[::-1], 0.0) + FOURIER * reach
    rare = above <= each
    if rare[:-1].any():
        return ends * int(np.argmax(rare))
    return loose


def zcdp_cost(rho: float, delta: float) -> float:
    """Return the least epsilon at delta over Renyi orders."""
    orders = 1 + np.logspace(-3, 9, 4000)
    bounds = orders * rho + np.log1p(-1 / orders) - np.log(orders * delta) / (orders - 1)
    return max(0.0, float(bounds.min()) * (1 + 1e-9))


def zcdp(epsilon: float, delta: float) -> float:
    """The largest rho whose best conversion over Renyi orders is at most epsilon at delta."""
    low, high = 0.0, 1000.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if zcdp_cost(middle, delta) <= epsilon else (low, middle)
    return low


register("rank-exponential", inflation=_rank_exponential, averaged_rank=averaged.averaged_rank)
register("pps", inflation=_pps)
register("laplace-counts", inflation=_laplace_counts)
register("above-threshold", inflation=_above_threshold)
register("gaussian-search", inflation=_gaussian_search, owner_noised=_owner_noised_search)


def first(holds: Callable[[int], bool], most: int) -> int:
    """The least integer from 0 at which a monotone property holds; `most` if none below does."""
    low, high = -1, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def shuffle_divergence(epsilon: float, *, local: float, n: int) -> float:
    """The hockey-stick divergence at e^epsilon of Feldman, McMillan and Talwar's pair, by cells."""
    from scipy.stats import binom

    p, rate = 1 / (1 + math.exp(-local)), 2 / (math.exp(local) + 1)
    total, low, high = 0.0, *(int(find(1e-13, n - 1, rate)) for find in (binom.ppf, binom.isf))
    sizes = range(low, high + 1)
    for c, chance in zip(sizes, binom.pmf(sizes, n - 1, rate).tolist(), strict=True):
        reach = 8 * math.sqrt(c) + 8
        least, most = max(0, int(c / 2 - reach)), min(c + 1, int(c / 2 + reach))
        masses = binom.pmf(np.arange(least - 1, most + 1), c, 0.5)
        with_one, without = masses[:-1], masses[1:]
        excess = (
            p * with_one
            + (1 - p) * without
            - math.exp(epsilon) * ((1 - p) * with_one + p * without)
        )
        total += chance * float(np.maximum(excess, 0).sum())
    return total
