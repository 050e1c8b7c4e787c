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

from confide.protocol.certificate import MARGINAL, PAC
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
    CENTRAL,
    Explanation,
    Terms,
)
from confide.protocol.methods.counts.queries import CountQuery, HistogramQuery
from confide.protocol.methods.thresholds import calibrates
from confide.protocol.privacy.zcdp import search_steps, search_variance, zcdp_epsilon
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.encoding import parse

TRUSTED, OWNER_NOISED = "trusted", "owner-noised"
# The mechanism of owner-noised campaigns.
SEARCH = "gaussian-search"
# More noise would hide any number of records that an owner may have.
MOST_VARIANCE = 1 << 52


def planned_edges(settings: Mapping[str, Any]) -> tuple[float, ...]:
    """The edges of a grid that stand in the plan, as they were read from the operator's files."""
    if settings["grid"] not in PLANNED_GRIDS:
        return ()
    edges = settings.get("edges", ())
    if not edges:
        needs = "provider-data" if settings["grid"] == EVEN else "edges-file"
        raise BadInput(f"grid is {settings['grid']}; accepted is this with {needs}")
    return tuple(float(edge) for edge in edges)


@dataclass(frozen=True, kw_only=True)
class CentralTerms(Terms):
    """The terms of a campaign of counts, from which `mechanism` releases the threshold.

    The threshold is on the safe side of the true quantile except with probability `beta`, which is
    a part of alpha. A `beta` of 0 leaves no part of it to the mechanism of a trusted aggregator:
    coverage is then averaged over the mechanism's draws. `delta` is the probability, over
    calibration, that a PAC promise fails, of which `beta` is then a part; 0 promises an average.
    """

    mechanism: str
    bins: int
    beta: float
    privacy_delta: float = 0.0
    noise_variance: int = 0
    grid: str = UNIFORM
    delta: float = 0.0
    given_edges: tuple[float, ...] = ()

    method: ClassVar[str] = "central"
    of_risks: ClassVar[bool] = True
    variants: ClassVar[tuple[str, ...]] = (TRUSTED, OWNER_NOISED)
    message: ClassVar[type[Message]] = wire.CentralTerms
    track: ClassVar[str | None] = CENTRAL
    settings: ClassVar[dict[str, tuple[str, ...]]] = {
        "mechanism": (TRUSTED,),
        "bins": (),
        "grid": (),
        "edges-file": (),
        "provider-data": (),
        "beta": (),
        "privacy-delta": (),
        "guarantee": (),
        "failure-probability": (PAC,),
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
        edges = planned_edges(settings)
        bins = len(edges) or int(settings["bins"])
        delta = float(settings["privacy-delta"])
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
            grid=str(settings["grid"]),
            given_edges=edges,
            delta=float(settings["failure-probability"]) if settings["guarantee"] == PAC else 0.0,
        )

    @property
    def guarantee(self) -> str:
        """What is promised: coverage on average, or of this calibration but for `delta`."""
        return PAC if self.delta else MARGINAL

    @property
    def edges(self) -> Floats:
        """The thresholds to choose from."""
        return grid_edges(self.grid, self.bins, self.given_edges)

    @property
    def histogram_query(self) -> HistogramQuery:
        """The question for exact counts on the plan's grid."""
        return HistogramQuery(self.bins, self.grid, self.given_edges)

    @property
    def shows_exact_counts(self) -> bool:
        return self.variant == TRUSTED

    @property
    def averages(self) -> bool:
        """Whether the coverage of a release may be averaged over the draws of the mechanism."""
        return self.shows_exact_counts

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
            return self.histogram_query
        return CountQuery(message.threshold, self.noise_variance)

    def explain(self, *, labels: int, alpha: float) -> Explanation:
        purpose = calibrates(labels=labels, alpha=alpha)
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
