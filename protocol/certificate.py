"""What a calibration proves, in enough detail to decide it again from the tallies."""

from dataclasses import dataclass

PAC = "PAC"
MARGINAL = "marginal"
NOT_STATED = "not stated"

IID = "records are independent draws from the population the guarantee speaks of"
MIXTURE = (
    "per-record weighting: the guarantee is for the mixture of owners the reports were drawn from"
)
DROPOUTS = "whether a report is missing does not depend on the record"
EXCHANGEABLE = "calibration records and test record are exchangeable, owners taken together"
HONEST_COUNTS = "owners count as the protocol says"


@dataclass(frozen=True)
class BitRung:
    """One stage of a certification by bits: `ones` of `n` answers at a threshold, tested at `level`
    with `rest` to come.

    `level_after` is what is left for the stages that follow: 1 certifies the threshold, 0 ends the
    search.
    """

    threshold: float
    n: int
    ones: int
    rest: int
    level: float
    level_after: float

    @property
    def passed(self) -> bool:
        return self.level_after == 1.0


@dataclass(frozen=True)
class LabelRung:
    """One rung of a certification by labels: the largest log-capital the betting test reached, and
    what it had to reach."""

    threshold: float
    log_capital: float
    needed: float

    @property
    def passed(self) -> bool:
        return self.log_capital >= self.needed


@dataclass(frozen=True)
class Certificate:
    """A threshold and what is guaranteed of it.

    kind `PAC`: with probability at least 1 - delta over calibration and mechanism, coverage is at
    least `level`. kind `marginal`: coverage is at least `level` on average over calibration,
    mechanism and test point. `epsilon` is the exact local epsilon of the channel used, for the
    privacy unit and adjacency named; `slack` is the Delta of the published variants; `planned` is
    the number of records the stages of a search were planned for. Of a central calibration,
    `epsilon` with `privacy_delta` is what the release costs, `rank` what it aimed at, `inflation`
    by how many ranks it may be too high, each side except with probability `beta`, and `owners` how
    many were counted.
    """

    method: str
    variant: str
    kind: str
    threshold: float
    level: float
    alpha: float
    delta: float | None
    n: int
    channel: str | None
    epsilon: float | None
    slack: float | None = None
    max_corrupt: int = 0
    planned: int | None = None
    unit: str = "record"
    adjacency: str = "replace-one"
    randomness: str = NOT_STATED
    rungs: tuple[BitRung | LabelRung, ...] = ()
    reason: str | None = None
    assumptions: tuple[str, ...] = (IID, MIXTURE, DROPOUTS)
    privacy_delta: float = 0.0
    beta: float | None = None
    bins: int | None = None
    rank: int | None = None
    inflation: int | None = None
    owners: int | None = None

    @property
    def trivial(self) -> bool:
        """Threshold 1 holds every label: true of any model, and useless."""
        return self.threshold >= 1.0
