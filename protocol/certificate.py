"""What a calibration guarantees, with enough detail to verify it from the tallies."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

from confide.protocol.errors import narrowed

PAC = "PAC"
MARGINAL = "marginal"
# PAC at many levels of coverage at once, for thresholds that are chosen later.
BAND = "band"
# The kind of a result that promises nothing: an alarm, or none.
WATCH = "watch"
NOT_STATED = "not stated"

IID = "records are independent draws from the population the guarantee speaks of"
MIXTURE = (
    "per-record weighting: the guarantee is for the mixture of owners the reports were drawn from"
)
PLANNED_MIXTURE = (
    "planned mixture: the guarantee is for owners in the shares in which they answered the first "
    "round, whoever answered later"
)
# Where owners count alike, records of all of them are no draws from one population.
IID_OWNERS = "records of an owner are independent draws from what that owner will meet"
EQUAL_OWNERS = (
    "equal owners: the guarantee is for an owner that is drawn at random from those that answered "
    "the first round, and then a record of it, whoever answered later"
)
# Where every part of the records is tested on reports of its own.
IID_PARTS = (
    "records of a part are independent draws from what that part will meet; how parts are mixed "
    "does not matter"
)
DROPOUTS = "whether a report is missing does not depend on the record"
# Where a campaign of bits allows for lies: thresholds are placed by answers, false ones among them.
LIARS = (
    "what a false report says does not depend on honest reports of its own round or of later rounds"
)
# Where a campaign of labels allows for lies: the size of a bet knows the reports before it.
LIARS_IN_ORDER = (
    "what a false report says does not depend on honest reports that are bet on after it"
)
EXCHANGEABLE = "calibration records and test record are exchangeable, owners taken together"
HONEST_COUNTS = "owners count as the protocol says"
HONEST_TRAINING = "owners trained as the protocol says, with all of their noise"
# Fixed numbers of records of the owners would be another assumption: docs/full-data.md.
PAIRS = (
    "each record, together with the owner that holds it, is exchangeable with the test record and "
    "the owner that would hold it"
)
FRESH = "records that answer are fresh: they took no part in the calibration of the threshold"
DPCP_ASSUMPTIONS = "DPCP Assumptions 1 and 2, which cannot be checked"
# What counts promise on average, and what they promise of one calibration, rest on these.
MARGINAL_ASSUMPTIONS = (EXCHANGEABLE, DROPOUTS, HONEST_COUNTS)
PAC_ASSUMPTIONS = (IID, MIXTURE, DROPOUTS, HONEST_COUNTS)
LARGE_N = "so many records that noise and training change no rank that matters"


def mixture_of(assumptions: Sequence[str]) -> str | None:
    """The mixture of owners that was planned, if one of these assumptions names it."""
    return next((one for one in assumptions if one in (PLANNED_MIXTURE, EQUAL_OWNERS)), None)


def promise_of(levels: Sequence[Any], delta: float) -> str:
    """The kind of promise: PAC without levels; else a band if there is a delta, or an average."""
    return PAC if not levels else BAND if delta else MARGINAL


@dataclass(frozen=True)
class BitRung:
    """One stage of a certification by bits: a threshold, its tally and the level of the test.

    `ones` of `n` answers at the threshold were one; the stage was tested at `level` with `rest`
    answers still to come. `level_after` is the level left for the stages that follow: 1 certifies
    the threshold, 0 ends the search.
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
    """One threshold tested in a certification by labels.

    It holds the largest log-capital that the betting test reached and the log-capital it had to
    reach.
    """

    threshold: float
    log_capital: float
    needed: float

    @property
    def passed(self) -> bool:
        return self.log_capital >= self.needed


# What divides the records of a certificate with a threshold for each part.
BY_CLASS, BY_OWNER, BY_GROUP = "class", "owner", "group"


@dataclass(frozen=True, kw_only=True)
class RecordPart:
    """A part of the records and its own threshold; a threshold of 1 has a reason.

    A part that is not `covered` had too few reports to be tested, by a rule of the plan, and
    nothing is claimed of it.
    """

    name: str
    threshold: float
    reason: str | None = None
    covered: bool = True


@dataclass(frozen=True, kw_only=True)
class CountedPart(RecordPart):
    """A part whose threshold was released from its own counts.

    Where the number `n` of its records is public, it has a rank and an inflation as certificates
    do. That of a class is private, and so are these.
    """

    bin: int
    n: int | None = None
    rank: int | None = None
    inflation: int | None = None


@dataclass(frozen=True, kw_only=True)
class Stratum(RecordPart):
    """A part of the records, its own threshold, and the reports that certify that.

    With probability at least 1 - `delta`, coverage of the records of this part is at least the
    level of the certificate. `n` is the number of reports that its test used. `rungs` are those
    that decide: the lowest threshold that passed, and the one below it that did not. `reports` are
    those of every round, if it is tested in stages: what it answered in each tells which stages it
    was asked, and those of the search say for how many reports the stages were planned.
    """

    n: int
    delta: float
    rungs: tuple[BitRung | LabelRung, ...] = ()
    reports: tuple[int, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Level:
    """A level of a certificate that holds at several, from the same reports.

    The threshold covers less than 1 - `alpha` with probability at most `delta`. `rungs` are those
    that decide it.
    """

    alpha: float
    delta: float
    threshold: float
    rungs: tuple[BitRung | LabelRung, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """A threshold and its guarantee, common to all methods.

    kind `PAC`: with probability at least 1 - delta over calibration and mechanism, coverage is at
    least `level`. kind `marginal`: coverage is at least `level` on average over calibration,
    mechanism and test point. kind `band`: PAC, and at further levels together, each with its
    threshold. `epsilon` with `privacy_delta` is the privacy loss of a record, for
    the privacy unit and adjacency named.

    With `strata`, which are `by` class, owner or group, every one has its threshold, and the
    `threshold` is the largest of them, which covers each of them. If `joint`, delta is the
    probability that any of them fails; else it is that of each on its own. If `together`, the
    threshold, the largest of the covered ones, is that of all, and delta the probability that it
    fails any of them.
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
    by: str | None = None
    joint: bool = False
    together: bool = False
    strata: tuple[RecordPart, ...] = ()

    @classmethod
    def of(cls, certificate: "Certificate") -> Self:
        """Return a certificate as one of this class; refuse that of another kind of method."""
        found = f"certificate is a {type(certificate).__name__} of method {certificate.method!r}"
        return narrowed(certificate, cls, found=found, accepted=f"is a {cls.__name__}")

    @property
    def trivial(self) -> bool:
        """Whether no threshold is below 1: useless sets that hold every label, for any model."""
        each = [] if self.together else [one.threshold for one in self.strata]
        return min(each or [self.threshold]) >= 1.0

    @property
    def group_thresholds(self) -> dict[str, float]:
        """The threshold of every group by its name, if each has its own."""
        own = {} if self.together else {one.name: one.threshold for one in self.strata}
        return own if self.by == BY_GROUP else {}

    @property
    def class_thresholds(self) -> tuple[float, ...]:
        """The threshold of every label, if each has its own."""
        return tuple(one.threshold for one in self.strata) if self.by == BY_CLASS else ()

    @property
    def band(self) -> tuple[tuple[float, float], ...]:
        """The coverages of a band, descending, each with its threshold; empty without a band."""
        return ()

    @property
    def mechanism(self) -> str | None:
        """The channel or mechanism that provides the privacy, or None."""
        return None


@dataclass(frozen=True, kw_only=True)
class LocalCertificate(Certificate):
    """The certificate of a campaign in which every report is private by itself.

    `epsilon` is the exact local epsilon of the channel; `slack` is the Delta of the published
    variants; `planned` is the number of records that the stages of a search were planned for.
    `levels`, by rising alpha, are those of a band or of a marginal promise, which follow from them;
    the `delta` of a marginal one is 0.
    """

    delta: float
    channel: str
    slack: float | None = None
    max_corrupt: int = 0
    planned: int | None = None
    rungs: tuple[BitRung | LabelRung, ...] = ()
    strata: tuple[Stratum, ...] = ()
    levels: tuple[Level, ...] = ()

    @property
    def band(self) -> tuple[tuple[float, float], ...]:
        levels = self.levels if self.kind == BAND else ()
        return tuple((float(1 - Fraction(repr(one.alpha))), one.threshold) for one in levels)

    @property
    def mechanism(self) -> str:
        return self.channel


@dataclass(frozen=True, kw_only=True)
class CentralCertificate(Certificate):
    """The certificate of a threshold released from counts.

    `rank` is the rank that the release aimed at, and `inflation` is the number of ranks by which it
    may be too high; each side fails with probability at most `beta`. `bin` is the released one of
    `bins` of the public `grid`, and `owners` is the number of owners counted. `delta` is the
    probability with which a PAC promise fails. With `strata`, bin, rank and inflation are those of
    the largest threshold, and of a part that had all records.
    """

    release: str
    beta: float
    bins: int
    grid: str
    bin: int
    rank: int | None = None
    inflation: int | None = None
    owners: int
    delta: float | None = None
    strata: tuple[CountedPart, ...] = ()
    assumptions: tuple[str, ...] = MARGINAL_ASSUMPTIONS

    @property
    def mechanism(self) -> str:
        return self.release
