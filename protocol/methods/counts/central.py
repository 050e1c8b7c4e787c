"""Method central: owners count their records' scores; one threshold is released from the sums.

Variant trusted: exact histograms go to an aggregator that is trusted to release one threshold from
them. Variant owner-noised: every owner adds its own discrete Gaussian noise to every count.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from google.protobuf.message import Message

from confide.protocol.certificate import BY_CLASS, MARGINAL, PAC
from confide.protocol.errors import BadInput, Refused, check_choice, check_delta, check_probability
from confide.protocol.exact.grids import (
    EVEN,
    GRID_NAMES,
    PLANNED_GRIDS,
    UNIFORM,
    Floats,
    check_bins,
    check_edges,
    grid_edges,
)
from confide.protocol.methods.base import (
    AUTOMATIC,
    CENTRAL,
    Explanation,
    Terms,
)
from confide.protocol.methods.counts.noised_parts import PartCountQuery
from confide.protocol.methods.counts.parts import MOVED, check_parts, parts_of
from confide.protocol.methods.counts.queries import CountQuery, HistogramQuery
from confide.protocol.methods.owner_terms import counted_by
from confide.protocol.methods.partition import Classes, Groups, Partition
from confide.protocol.methods.thresholds import calibrates
from confide.protocol.privacy.zcdp import search_rounds, search_variance, zcdp_epsilon
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.encoding import parse

TRUSTED, OWNER_NOISED = "trusted", "owner-noised"
# The mechanism of owner-noised campaigns.
SEARCH = "gaussian-search"
# More noise would hide any number of records that an owner may have.
MOST_VARIANCE = 1 << 52
# The settings of every campaign that counts scores on a grid.
GRID_SETTINGS: dict[str, tuple[str, ...]] = dict.fromkeys(
    ("bins", "grid", "edges-file", "provider-data", "beta", "privacy-delta"), ()
)
CountingQuery = HistogramQuery | CountQuery | PartCountQuery


def planned_edges(settings: Mapping[str, Any]) -> tuple[float, ...]:
    """The edges of a grid that the plan holds, as they were read from the operator's files."""
    if settings["grid"] not in PLANNED_GRIDS:
        return ()
    edges = settings.get("edges", ())
    if not edges:
        needs = "provider-data" if settings["grid"] == EVEN else "edges-file"
        raise BadInput(f"grid is {settings['grid']}; accepted is this with {needs}")
    return tuple(float(edge) for edge in edges)


def counted(
    settings: Mapping[str, Any], *, delta: float, noised: bool, moved: int = 1
) -> dict[str, Any]:
    """The budget, the grid and the owners' noise of terms, as an operator's settings ask for."""
    edges, epsilon = planned_edges(settings), float(settings["epsilon"])
    bins, variance = len(edges) or int(settings["bins"]), 0
    if noised:
        variance = search_variance(bins=bins, epsilon=epsilon, delta=delta, moved=moved)
    return {
        "epsilon": epsilon,
        "privacy_delta": delta,
        "bins": bins,
        "beta": float(settings["beta"]),
        "noise_variance": variance,
        "grid": str(settings["grid"]),
        "given_edges": edges,
    }


@dataclass(frozen=True, kw_only=True)
class CentralTerms(Terms):
    """The terms of a campaign of counts, from which `mechanism` releases the threshold.

    The threshold is on the safe side of the true quantile except with probability `beta`, which is
    a part of alpha. A `beta` of 0 leaves no part of it to the mechanism of a trusted aggregator:
    coverage is then averaged over the mechanism's draws. `delta` is the probability, over
    calibration, that a PAC promise fails, of which `beta` is then a part; 0 promises an average.

    With `by` every class, or every group that the plan names, has a threshold of its own; `parts`
    is their number. Replacing a record by another may move it to another class, and so two of the
    thresholds: each is then released at half of epsilon and delta, as one record more or less. The
    group of a record is public, so replacing a record moves one threshold, at the whole epsilon.
    """

    mechanism: str
    bins: int
    beta: float
    privacy_delta: float = 0.0
    noise_variance: int = 0
    grid: str = UNIFORM
    delta: float = 0.0
    given_edges: tuple[float, ...] = ()
    by: str = ""
    parts: int = 0
    group_column: str = ""
    groups: tuple[str, ...] = ()

    method: ClassVar[str] = "central"
    of_risks: ClassVar[bool] = True
    variants: ClassVar[tuple[str, ...]] = (TRUSTED, OWNER_NOISED)
    noised_variants: ClassVar[tuple[str, ...]] = (OWNER_NOISED,)
    message: ClassVar[type[Message]] = wire.CentralTerms
    track: ClassVar[str] = CENTRAL
    settings: ClassVar[dict[str, tuple[str, ...]]] = {
        "mechanism": (TRUSTED,),
        **GRID_SETTINGS,
        "guarantee": (),
        "failure-probability": (PAC,),
        "by": (),
        "group-column": (),
        "groups": (),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if not re.fullmatch("[a-z0-9-]{1,64}", self.mechanism):
            raise BadInput(
                f"mechanism is {self.mechanism[:64]!r}; accepted is the name of one, in small "
                "letters, digits and hyphens"
            )
        check_delta(self.privacy_delta)
        if self.beta or not self.averages:
            check_probability("beta", self.beta)
        if self.delta:
            check_probability("delta", self.delta)
        check_bins(self.bins)
        check_choice("grid", self.grid, GRID_NAMES)
        check_edges(self.grid, self.bins, self.given_edges)
        check_parts(self)
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
        spent = self.noise_epsilon
        if spent > self.epsilon:
            raise BadInput(
                f"{self.moved * self.rounds} counts with noise of variance {self.noise_variance} "
                f"cost epsilon {spent:.6g} at delta {self.privacy_delta}; the plan says "
                f"{self.epsilon}"
            )

    def check(self, *, labels: int, alpha: float) -> None:
        if self.by == BY_CLASS and (self.parts != labels or not labels):
            raise BadInput(
                f"by is class with {self.parts} classes, and the plan has {labels} labels; "
                "accepted is a score of labels, and a class for each"
            )
        whole = {"delta": self.delta} if self.delta else {"alpha": alpha}
        for name, value in whole.items():
            if self.beta >= value:
                raise BadInput(
                    f"beta is {self.beta} and {name} {value}; beta must be below {name}, of which "
                    "it is a part"
                )

    @classmethod
    def from_settings(cls, variant: str, settings: Mapping[str, Any]) -> Self:
        """A trusted mechanism that needs no delta is requested with a privacy-delta of 0."""
        own, noised = parts_of(settings), variant == OWNER_NOISED
        guarantee = str(settings["guarantee"])
        check_choice("guarantee", guarantee, (AUTOMATIC, MARGINAL, PAC))
        return cls(
            variant=variant,
            mechanism=SEARCH if noised else str(settings["mechanism"]),
            delta=float(settings["failure-probability"]) if guarantee == PAC else 0.0,
            **counted(
                settings,
                delta=float(settings["privacy-delta"]),
                noised=noised,
                moved=MOVED.get(own["by"], 1),
            ),
            **own,
        )

    @property
    def guarantee(self) -> str:
        """What is promised: average coverage, or that of this calibration but for `delta`."""
        return PAC if self.delta else MARGINAL

    @property
    def edges(self) -> Floats:
        """The thresholds to choose from."""
        return grid_edges(self.grid, self.bins, self.given_edges)

    @property
    def key(self) -> Partition | None:
        """What has a threshold each; None if there is one for all records."""
        if self.by == BY_CLASS:
            return Classes(self.parts)
        return Groups(self.group_column, self.groups) if self.groups else None

    @property
    def moved(self) -> int:
        """How many thresholds a record may move when another takes its place."""
        return MOVED.get(self.by, 1)

    @property
    def shares(self) -> int:
        """How many releases the budget pays for; noise of owners pays for all counts together."""
        return self.moved if self.shows_exact_counts else 1

    @property
    def noise_epsilon(self) -> float:
        """The epsilon that all noised counts together cost a record that is replaced by another."""
        rho = self.moved * self.rounds / (2 * self.noise_variance)
        return zcdp_epsilon(rho, self.privacy_delta)

    @property
    def histogram_query(self) -> HistogramQuery:
        """The query for exact counts on the plan's grid."""
        return HistogramQuery(self.bins, self.grid, self.given_edges, self.key)

    @property
    def by_label(self) -> bool:
        return self.by == BY_CLASS

    @property
    def shows_exact_counts(self) -> bool:
        return self.variant == TRUSTED

    @property
    def averages(self) -> bool:
        """Whether the coverage of a release may be averaged over the draws of the mechanism."""
        return self.shows_exact_counts

    @property
    def rounds(self) -> int:
        return 1 if self.shows_exact_counts else search_rounds(self.bins, moved=self.moved)

    @property
    def answer_bytes(self) -> int:
        return 8 * self.histogram_query.rows * self.bins if self.shows_exact_counts else 0

    def read_query(self, body: bytes, *, labels: int) -> CountingQuery:
        message = parse(wire.CountQuery, body)
        asked = len(message.thresholds), message.HasField("threshold")
        if self.shows_exact_counts and asked == (0, False):
            return self.histogram_query
        if not self.shows_exact_counts and self.key is None and asked == (0, True):
            return CountQuery(message.threshold, self.noise_variance)
        if not self.shows_exact_counts and self.key is not None and asked == (self.parts, False):
            return PartCountQuery(tuple(message.thresholds), self.noise_variance, self.key)
        raise Refused(wire.Code.MALFORMED)

    def explain(self, *, labels: int, alpha: float) -> Explanation:
        purpose = calibrates(labels=labels, alpha=alpha)
        if self.shows_exact_counts:
            return Explanation(
                self.epsilon,
                purpose,
                f"Once leave the EXACT counts of your records' scores in {self.bins:,} bins"
                f"{f', for every {self.by}' if self.by else ''}. The aggregator promises to "
                f"publish {'a threshold for each, all' if self.by else 'one threshold,'} drawn by "
                f"{self.mechanism}.",
                (
                    "That bound is for what the aggregator publishes. The aggregator itself sees "
                    "your exact counts.",
                    *counted_by(self.group_column, self.groups),
                ),
            )
        return Explanation(
            self.epsilon,
            purpose,
            f"Up to {self.rounds} times leaves the number of your records "
            f"{f'of every {self.by} ' if self.by else ''}whose score is below a threshold, each "
            f"time with fresh noise of standard deviation {math.sqrt(self.noise_variance):.1f} "
            "added here; and, once, how many records you have"
            f"{', of every group' if self.groups else ''}.",
            counted_by(self.group_column, self.groups),
        )
