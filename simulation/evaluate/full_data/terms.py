"""What a pipeline that trains and calibrates is asked for, what it promises, and its parts."""

from dataclasses import KW_ONLY, dataclass, replace

from confide.aggregator.procedures.full_data.levels import PUBLISHED_BUFFER, Stability
from confide.aggregator.procedures.full_data.published_bounds import ConditionalBound, Smoothness
from confide.aggregator.quantiles.base import Mechanism
from confide.aggregator.quantiles.histogram import conformal_rank
from confide.protocol.errors import BadInput, check_probability
from confide.protocol.exact.grids import check_bins
from confide.protocol.privacy.budgets import Budget
from confide.protocol.privacy.losses import AccountedMechanism, Pure
from confide.protocol.privacy.profiles import Profile

# DPCP's quantile needs a public n, DP-SGD is accounted for under add-remove; no proof combines
# the two.
MIXED = "training: add-remove; quantile: replace-one"
NOT_PRIVATE = "not private"
# Scores of an overconfident model crowd near 1, and exponential mechanisms pay for the logarithm of
# the bins only.
BINS = 1 << 14


@dataclass(frozen=True)
class PipelineTerms:
    """What is asked of every method alike.

    `n`, the records to train and calibrate on, is a public number. `share` of epsilon goes to
    training (full-data methods); `buffer` is DP-SCP-F's, unless `stability` gives Theorem 3's, or
    `smoothness` the constants from which SCP Theorem 4 derives it. `scaling` is the epsilon of
    bounds of the features that were released before training, on the records that train; `failure`
    is that of DPCP Theorem 15.
    """

    n: int
    budget: Budget
    alpha: float = 0.1
    beta: float = 1e-3
    share: float = 0.5
    bins: int = BINS
    buffer: int = PUBLISHED_BUFFER
    stability: Stability | None = None
    smoothness: Smoothness | None = None
    failure: float | None = None
    scaling: float = 0.0

    def __post_init__(self) -> None:
        check_probability("alpha", self.alpha)
        check_probability("beta", self.beta)
        check_probability("share", self.share)
        check_bins(self.bins)
        if self.beta >= self.alpha:
            raise BadInput(
                f"beta is {self.beta} and alpha {self.alpha}; beta must be below alpha, of which "
                "it is a part"
            )
        if self.n < 2:
            raise BadInput(f"n is {self.n}; at least 2 records are needed")
        if self.buffer < 0:
            raise BadInput(f"buffer is {self.buffer}; it must be 0 or more")
        if not 0 <= self.scaling < self.budget.epsilon:
            raise BadInput(
                f"the epsilon of scaling is {self.scaling!r}; accepted is 0 or more, and below the "
                f"{self.budget.epsilon!r} for all"
            )

    @property
    def scaled(self) -> Profile:
        """What private scaling has cost the records that train."""
        return Profile().then(Pure(self.scaling)) if self.scaling else Profile()

    def part(self, share: float) -> Budget:
        """This share of the epsilon that private scaling leaves."""
        return replace(self.budget, epsilon=share * (self.budget.epsilon - self.scaling))

    def nominal_rank(self, n: int) -> int:
        return conformal_rank(n=n, level=round(1 - self.alpha, 12))


@dataclass(frozen=True)
class Promise:
    """What is known of coverage beforehand: a marginal `level`, floors only, or nothing."""

    certificate: str
    level: float | None = None
    black_box_floor: float | None = None
    never_selected_bound: float | None = None
    stability_bound: float | None = None
    buffer_is: str | None = None
    conditional: tuple[ConditionalBound, ...] = ()


@dataclass(frozen=True)
class Pipeline:
    """Training on some rows, then a quantile of the scores of some rows.

    Both use all rows, or training uses the first half and the quantile the second. Without a
    training mechanism training is not private; without a quantile mechanism the quantile is exact.
    """

    method: str
    rank: int
    promise: Promise
    _: KW_ONLY
    training: AccountedMechanism | None = None
    quantile: Mechanism | None = None
    halves: bool = False
    profile: Profile | None = None
    adjacency: str = NOT_PRIVATE

    @property
    def private(self) -> bool:
        return self.profile is not None
