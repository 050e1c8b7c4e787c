"""Method central: owners count their records' scores; one threshold is released from the sums.

Variant trusted: exact histograms go to an aggregator that is trusted to release one threshold from
them. Variant owner-noised: every owner adds its own discrete Gaussian noise to every count.
"""

import math
import re
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np
from google.protobuf.message import Message
from numpy.typing import NDArray

from confide.protocol.certificate import CentralCertificate
from confide.protocol.errors import BadInput, Refused, check_choice, check_delta, check_probability
from confide.protocol.exact.gaussian import discrete_gaussian
from confide.protocol.exact.grids import bin_indices, check_bins, uniform_grid
from confide.protocol.methods.base import (
    CENTRAL,
    Batch,
    Columns,
    Explanation,
    ReportScores,
    Subjects,
    Tally,
    Terms,
    WholeQuery,
)
from confide.protocol.methods.thresholds import CountEvidence, check_thresholds
from confide.protocol.privacy.zcdp import search_steps, search_variance, zcdp_epsilon
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.columns import I8, Array, column
from confide.protocol.wire.encoding import parse, serialise

TRUSTED, OWNER_NOISED = "trusted", "owner-noised"
# The mechanism of owner-noised campaigns.
SEARCH = "gaussian-search"
# More noise would hide any number of records that an owner may have.
MOST_VARIANCE = 1 << 52
# The number of standard deviations by which a noised count may lie outside the range of counts.
DEVIATIONS = 8


@dataclass(frozen=True)
class HistogramTally(Tally):
    """The summed counts of all owners that answered, and the number of records of each."""

    counts: NDArray[np.int64]
    owners: int
    sizes: tuple[int, ...] = ()

    def owner_sizes(self) -> list[int]:
        return list(self.sizes)


@dataclass(frozen=True)
class CountTally(Tally):
    """Every owner's number of records and noised count, by sender."""

    answers: dict[bytes, tuple[int, int]]

    def owner_sizes(self) -> list[int]:
        return [size for size, _ in self.answers.values()]

    def to_json(self) -> Any:
        return {"owners": {name.hex(): pair for name, pair in self.answers.items()}}


class _Counts(WholeQuery):
    """The part that both count queries share: answers are rows of integers."""

    def pack(self, columns: Columns) -> bytes:
        return serialise(wire.Counts(counts=columns["counts"].astype(I8).tobytes()))

    def unpack(self, body: bytes, n: int) -> Columns:
        message = wire.Counts.FromString(body)
        return {"counts": np.frombuffer(message.counts, dtype=I8).astype(np.int64)[None, :]}


def _check_owned(counts: Array, most: int) -> None:
    """Refuse numbers of records that an owner of at most `most` records cannot have."""
    if counts.min() < 0 or counts.max() > most or int(counts.sum()) > most:
        raise Refused(wire.Code.OUT_OF_ALPHABET)


@dataclass(frozen=True)
class HistogramQuery(_Counts):
    """Ask every owner for the exact counts of its scores on a uniform grid."""

    bins: int

    def to_body(self) -> bytes:
        return serialise(wire.CountQuery())

    def count(self, scores: Array) -> NDArray[np.int64]:
        """Return how many of the scores fall into each bin."""
        return np.bincount(bin_indices(scores, uniform_grid(self.bins)), minlength=self.bins)

    def answer(self, subjects: Subjects) -> Columns:
        return {"counts": self.count(subjects.scores())}

    def check(self, body: bytes, n: int, *, most: int) -> None:
        message = parse(wire.Counts, body)
        _check_owned(column(message.counts, I8, self.bins), most)

    def tally(self, batches: Sequence[Batch], scores: ReportScores) -> HistogramTally:
        total = np.zeros(self.bins, dtype=np.int64)
        for batch in batches:
            total += batch.columns["counts"][0]
        sizes = tuple(int(batch.columns["counts"].sum()) for batch in batches)
        return HistogramTally(total, len(batches), sizes)


@dataclass(frozen=True)
class CountQuery(_Counts):
    """Ask every owner for the noised number of its scores at or below a threshold.

    Every owner adds its own noise.
    """

    threshold: float
    variance: int

    def __post_init__(self) -> None:
        check_thresholds((self.threshold,))
        if self.variance < 1:
            raise BadInput(f"variance is {self.variance}; accepted is at least 1")

    def to_body(self) -> bytes:
        return serialise(wire.CountQuery(threshold=self.threshold))

    def answer(self, subjects: Subjects) -> Columns:
        count = np.count_nonzero(subjects.scores() <= self.threshold)
        noise = discrete_gaussian(Fraction(self.variance), 1, subjects.entropy)[0]
        return {"counts": np.array([len(subjects), count + noise])}

    def check(self, body: bytes, n: int, *, most: int) -> None:
        """Accept a noised count of n records only within [-8 sigma, n + 8 sigma].

        An honest count lies outside with probability below 2 e^-32, 3e-14 (discrete Gaussians are
        sub-Gaussian, Canonne, Kamath, Steinke 2020).
        """
        counts = column(parse(wire.Counts, body).counts, I8, 2)
        _check_owned(counts[:1], most)
        size, count = (int(number) for number in counts)
        beyond = max(-count, count - size, 0)
        if beyond**2 > DEVIATIONS**2 * self.variance:
            raise Refused(wire.Code.OUT_OF_ALPHABET)

    def tally(self, batches: Sequence[Batch], scores: ReportScores) -> CountTally:
        found = {batch.sender: batch.columns["counts"][0] for batch in _in_order(batches)}
        return CountTally({name: (int(pair[0]), int(pair[1])) for name, pair in found.items()})

    def tally_from_json(self, values: Any) -> CountTally:
        pairs = values["owners"].items()
        return CountTally({bytes.fromhex(name): (pair[0], pair[1]) for name, pair in pairs})

    def evidence(self, tally: CountTally | None) -> list[CountEvidence]:
        pairs = list(tally.answers.values()) if tally else []
        n, count = sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)
        return [CountEvidence(self.threshold, n, count, self.variance * len(pairs))]


def _in_order(batches: Sequence[Batch]) -> list[Batch]:
    """Sort batches by the ids that owners give, so that the order does not depend on arrival."""
    return sorted(batches, key=lambda batch: (batch.ids.tobytes(), batch.sender))


@dataclass(frozen=True, kw_only=True)
class CentralTerms(Terms):
    """The terms of a campaign of counts, from which `mechanism` releases the threshold.

    The threshold is on the safe side of the true quantile except with probability `beta`, which is
    a part of alpha.
    """

    mechanism: str
    bins: int
    beta: float
    privacy_delta: float = 0.0
    noise_variance: int = 0

    method: ClassVar[str] = "central"
    variants: ClassVar[tuple[str, ...]] = (TRUSTED, OWNER_NOISED)
    message: ClassVar[type[Message]] = wire.CentralTerms
    track: ClassVar[str | None] = CENTRAL
    settings: ClassVar[dict[str, tuple[str, ...]]] = {
        "mechanism": (TRUSTED,),
        "bins": (),
        "beta": (),
        "privacy-delta": (),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if not re.fullmatch("[a-z0-9-]{1,64}", self.mechanism):
            raise BadInput(
                f"mechanism is {self.mechanism[:64]!r}; accepted is the name of one, in small "
                "letters, digits and hyphens"
            )
        check_delta(self.privacy_delta)
        check_probability("beta", self.beta)
        check_bins(self.bins)
        if self.shows_exact_counts:
            if self.noise_variance:
                raise BadInput(f"noise_variance is {self.noise_variance}; exact counts have none")
            return
        check_choice(f"mechanism of {self.variant}", self.mechanism, (SEARCH,))
        if not 1 <= self.noise_variance <= MOST_VARIANCE:
            raise BadInput(
                f"noise_variance is {self.noise_variance}; owners add noise of variance 1 to "
                f"{MOST_VARIANCE}"
            )
        spent = zcdp_epsilon(self.rounds / (2 * self.noise_variance), self.privacy_delta)
        if spent > self.epsilon:
            raise BadInput(
                f"{self.rounds} counts with noise of variance {self.noise_variance} cost epsilon "
                f"{spent:.6g} at delta {self.privacy_delta}; the plan says {self.epsilon}"
            )

    def check(self, *, labels: int, alpha: float) -> None:
        if self.beta >= alpha:
            raise BadInput(
                f"beta is {self.beta} and alpha {alpha}; beta must be below alpha, of which it is "
                "a part"
            )

    @classmethod
    def from_settings(cls, variant: str, settings: Mapping[str, Any]) -> Self:
        """A trusted mechanism that needs no delta is requested with a privacy-delta of 0."""
        bins, delta = int(settings["bins"]), float(settings["privacy-delta"])
        epsilon, noised = float(settings["epsilon"]), variant == OWNER_NOISED
        variance = search_variance(bins=bins, epsilon=epsilon, delta=delta) if noised else 0
        return cls(
            variant=variant,
            mechanism=SEARCH if noised else str(settings["mechanism"]),
            epsilon=epsilon,
            privacy_delta=delta,
            bins=bins,
            beta=float(settings["beta"]),
            noise_variance=variance,
        )

    @property
    def shows_exact_counts(self) -> bool:
        return self.variant == TRUSTED

    @property
    def rounds(self) -> int:
        return 1 if self.shows_exact_counts else search_steps(self.bins)

    @property
    def answer_bytes(self) -> int:
        return 8 * self.bins if self.shows_exact_counts else 0

    def read_query(self, body: bytes, *, labels: int) -> HistogramQuery | CountQuery:
        message = parse(wire.CountQuery, body)
        if message.HasField("threshold") == self.shows_exact_counts:
            raise Refused(wire.Code.MALFORMED)
        if self.shows_exact_counts:
            return HistogramQuery(self.bins)
        return CountQuery(message.threshold, self.noise_variance)

    def explain(self, *, labels: int, alpha: float) -> Explanation:
        purpose = f"calibrates prediction sets at {1 - alpha:.0%} coverage"
        if self.shows_exact_counts:
            return Explanation(
                self.epsilon,
                purpose,
                f"Once leave the EXACT counts of your records' scores in {self.bins:,} bins. The "
                f"aggregator promises to publish one threshold, drawn by {self.mechanism}.",
                (
                    "That bound is for what the aggregator publishes. The aggregator itself sees "
                    "your exact counts.",
                ),
            )
        return Explanation(
            self.epsilon,
            purpose,
            f"Up to {self.rounds} times leaves the number of your records whose score is below a "
            "threshold, each time with fresh noise of standard deviation "
            f"{math.sqrt(self.noise_variance):.1f} added here; and, once, how many records you "
            "have.",
        )


HistogramProcedure = Generator[HistogramQuery, HistogramTally, CentralCertificate]
CountProcedure = Generator[CountQuery, CountTally, CentralCertificate]
