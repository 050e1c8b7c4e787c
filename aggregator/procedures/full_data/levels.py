"""Levels, ranks and floors for scores of the records that a model was trained on.

All of it is arithmetic on public numbers, decided before any data is seen.

A model knows its own records, so its scores on them are too good. What privacy says about the
difference:

    certified     the whole privacy profile of the training carries coverage from n + 1 records to n
    (`confide.protocol.privacy.transfer`)
    DPCP          the same with one point (epsilon, delta) of the profile, and a quantile nobody
    bounds
    DP-SCP        the nominal level and a buffer; of its coverage only the floors below are known

`profile` is always that of the training alone, under add-remove adjacency.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

from confide.aggregator.quantiles.histogram import check_rank
from confide.protocol.errors import BadInput, check_probability
from confide.protocol.privacy.profiles import Profile
from confide.protocol.privacy.transfer import best_point, miss_bound

CONDITIONAL = "conditional on assumptions"
HEURISTIC_BUFFER = "heuristic buffer"
# What SCP's experiments use in place of the buffer of their Theorem 3.
PUBLISHED_BUFFER = 10


@dataclass(frozen=True)
class Transfer:
    """The rank of in-sample scores for a `miss` that the training carries to at most alpha - beta.

    With a' = miss - 1/(n+1) it is ceil((1 - a')(n+1)) = ceil((1 - miss)(n+1)) + 1: one more record
    raises it by 0 or 1, in exact arithmetic, which is what quantile mechanisms ask of a rank that
    follows n.
    """

    miss: float

    @classmethod
    def of(cls, profile: Profile, *, alpha: float, beta: float) -> "Transfer":
        return cls(best_point(profile, alpha=alpha, beta=beta)[1])

    def level(self, n: int) -> float:
        """a', the share of in-sample scores that may lie above the threshold."""
        return self.miss - 1 / (n + 1)

    def rank_at(self, n: int) -> int:
        """The rank, whether n records have it or not."""
        return math.ceil((n + 1) * (1 - Fraction(self.miss))) + 1

    def rank(self, n: int) -> int:
        return check_rank(self.rank_at(n), n)


def dpcp_level(*, alpha: float, epsilon: float, delta: float) -> float:
    """e^-epsilon (alpha - delta), for a training that is (epsilon, delta)-DP (DPCP section 3.2)."""
    check_probability("alpha", alpha)
    if not 0 <= delta < alpha:
        raise BadInput(
            f"delta is {delta!r}; it must be below alpha = {alpha!r}, of which it is a part"
        )
    return math.exp(-epsilon) * (alpha - delta)


def differential_rank(*, n: int, level: float) -> int:
    """ceil((n + 1)(1 - level)), the exact quantile of differential CP (DPCP equation 5)."""
    return check_rank(math.ceil((n + 1) * (1 - Fraction(level))), n)


def black_box_floor(profile: Profile, *, alpha: float, beta: float) -> float:
    """f(a0), a0 = alpha + beta - alpha beta, rounded down (SCP Corollary 1).

    f is the trade-off function of the training.

    SCP takes f of training and calibration together. Training alone suffices: given the model, the
    quantile fails with probability at most beta whatever the records, so coverage is at least (1 -
    beta) f(alpha) >= f(a0), f being convex with f(1) = 0.
    """
    return max(0.0, 1 - miss_bound(profile, alpha + beta - alpha * beta))


def never_selected_bound(
    *, alpha: float, beta: float, n: int, sampling_rate: float, steps: int
) -> float:
    """SCP's Regime I (SCP Lemma 3): the test record would never have been drawn.

    That fails with probability 1 - (1 - q)^T.
    """
    selected = -math.expm1(steps * math.log1p(-sampling_rate)) if sampling_rate < 1 else 1.0
    return max(0.0, (1 - beta) * (1 - alpha - 3 * selected - 1 / (n + 1)))


@dataclass(frozen=True)
class Stability:
    """Constants of SCP Assumptions 1, 2 and 4, which the user vouches for.

    Scores are `lipschitz` in the parameters and have density at most `density` near the quantile;
    one record moves the trained parameters by more than `distance` with probability at most
    `probability`.
    """

    lipschitz: float
    density: float
    distance: float
    probability: float

    def __post_init__(self) -> None:
        check_probability("the probability of stability", self.probability)
        for name in ("lipschitz", "density", "distance"):
            if not 0 <= getattr(self, name) < math.inf:
                raise BadInput(
                    f"{name} is {getattr(self, name)!r}; it must be a finite number of 0 or more"
                )

    @property
    def shift(self) -> float:
        return self.density * self.lipschitz * self.distance

    def buffer(self, n: int) -> int:
        """ceil(n f L u / delta), the buffer that Theorem 3 needs."""
        return math.ceil(n * self.shift / self.probability)

    def bound(self, *, alpha: float, beta: float, n: int) -> float:
        """(1 - beta)(1 - alpha - 2 f L u - 3 delta - 1/(n+1)) (SCP Theorem 3)."""
        return max(
            0.0, (1 - beta) * (1 - alpha - 2 * self.shift - 3 * self.probability - 1 / (n + 1))
        )
