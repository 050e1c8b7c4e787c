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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from statistics import NormalDist
from typing import Any

from confide.protocol.certificate import BAND, MARGINAL, PAC
from confide.protocol.errors import BadInput, check_choice, check_probability
from confide.protocol.methods.base import AUTOMATIC
from confide.protocol.methods.local import LocalTerms

# Pairs of alpha and delta, by rising alpha.
Levels = tuple[tuple[float, float], ...]

MOST_LEVELS = 64
# The shares not covered at the levels of a band, besides that of the plan: about evenly in logit.
BAND_ALPHAS = (
    *(0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08),
    *(0.1, 0.125, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5),
)
# The levels of a marginal promise reach from so many standard errors below their centre to so many
# above it. The last delta weighs as much as all coverage beyond it, so it is tiny.
BELOW, ABOVE = 1.2, 3.7
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
    error = min(error, alpha / 2, (1 - alpha) / (2 * ABOVE))
    places = [-BELOW + (BELOW + ABOVE) * i / (count - 1) for i in range(count)]
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


@dataclass(frozen=True, kw_only=True)
class LeveledTerms(LocalTerms):
    """Terms whose certificate may hold at several levels.

    Without levels the promise is PAC. With levels it is a band, which fails with probability
    `delta`, or, where delta is 0, coverage on average.
    """

    level_alphas: tuple[float, ...] = ()
    level_deltas: tuple[float, ...] = ()

    @property
    def levels(self) -> Levels:
        return tuple(zip(self.level_alphas, self.level_deltas, strict=True))

    def __post_init__(self) -> None:
        counts = len(self.level_alphas), len(self.level_deltas)
        rise = all(low < high for low, high in pairwise(self.level_alphas))
        if len({*counts}) > 1 or counts[0] > MOST_LEVELS or not rise:
            raise BadInput(
                f"{counts[0]} levels with {counts[1]} deltas; accepted are up to {MOST_LEVELS} "
                "that rise, with a delta each"
            )
        for alpha, delta in self.levels:
            check_probability("alpha of a level", alpha)
            check_probability("delta of a level", delta)
        super().__post_init__()

    def check(self, *, labels: int, alpha: float) -> None:
        super().check(labels=labels, alpha=alpha)
        if self.guarantee == MARGINAL and most_missed(self.levels) > Fraction(repr(alpha)):
            raise BadInput(
                f"the levels bound the mean miss by {float(most_missed(self.levels)):.6g}; "
                f"accepted is at most alpha, {alpha:g}"
            )
        if self.guarantee == BAND:
            spent = sum(map(Fraction, self.level_deltas))
            if spent > Fraction(repr(self.delta)) or alpha not in self.level_alphas:
                raise BadInput(
                    f"the levels spend {float(spent):.6g} of delta, {self.delta:g}; accepted is at "
                    f"most that, with alpha, {alpha:g}, among the levels"
                )

    @staticmethod
    def leveled(
        settings: Mapping[str, Any], *, accepted: Sequence[str], error: float, count: int
    ) -> dict[str, Any]:
        """The fields of terms with the guarantee that an operator chose among those accepted.

        `error` is the standard error of coverage that tests on all records are expected to have.
        """
        asked, alpha = str(settings.get("guarantee", AUTOMATIC)), float(settings["alpha"])
        check_choice("guarantee", asked, (AUTOMATIC, PAC, *accepted))
        delta = float(settings["failure-probability"])
        if asked in (AUTOMATIC, PAC):
            return {"delta": delta}
        check_probability("alpha", alpha)
        levels = (
            band_levels(alpha, delta)
            if asked == BAND
            else marginal_levels(alpha, error=error, count=count)
        )
        alphas, deltas = zip(*levels, strict=True)
        own = {"level_alphas": alphas, "level_deltas": deltas}
        return own | {"delta": delta if asked == BAND else 0.0}
