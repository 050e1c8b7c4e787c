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


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """A threshold and what is guaranteed of it, whatever the method.

    kind `PAC`: with probability at least 1 - delta over calibration and mechanism, coverage is at
    least `level`. kind `marginal`: coverage is at least `level` on average over calibration,
    mechanism and test point. `epsilon` with `privacy_delta` is what a record has paid, for the
    privacy unit and adjacency named.
    """

    method: str
    variant: str
    kind: str
    threshold: float
    level: float
    alpha: float
    n: int
    epsilon: float | None
    privacy_delta: float = 0.0
    unit: str = "record"
    adjacency: str = "replace-one"
    randomness: str = NOT_STATED
    reason: str | None = None
    assumptions: tuple[str, ...] = (IID, MIXTURE, DROPOUTS)

    @property
    def trivial(self) -> bool:
        """Threshold 1 holds every label: true of any model, and useless."""
        return self.threshold >= 1.0

    @property
    def mechanism(self) -> str | None:
        """The channel or mechanism that the privacy comes from; None without any."""
        return None


@dataclass(frozen=True, kw_only=True)
class LocalCertificate(Certificate):
    """Of reports that are private one by one.

    `epsilon` is the exact local one of the channel; `slack` is the Delta of the published variants;
    `planned` is the number of records the stages of a search were planned for.
    """

    delta: float
    channel: str
    slack: float | None = None
    max_corrupt: int = 0
    planned: int | None = None
    rungs: tuple[BitRung | LabelRung, ...] = ()

    @property
    def mechanism(self) -> str:
        return self.channel


@dataclass(frozen=True, kw_only=True)
class CentralCertificate(Certificate):
    """Of a threshold released from counts.

    `rank` is what the release aimed at, `inflation` by how many ranks it may be too high, each side
    except with probability `beta`; `bin` is the released one of `bins`, and `owners` how many were
    counted.
    """

    release: str
    beta: float
    bins: int
    bin: int
    rank: int | None = None
    inflation: int | None = None
    owners: int
    assumptions: tuple[str, ...] = (EXCHANGEABLE, DROPOUTS, HONEST_COUNTS)

    @property
    def mechanism(self) -> str:
        return self.release
