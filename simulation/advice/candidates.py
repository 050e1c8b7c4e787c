"""The methods that advice chooses among: what each needs, shows, and how its law is computed."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from confide.aggregator.quantiles.registry import DEFAULT
from confide.protocol.channels.base import LabelChannel
from confide.protocol.channels.bit import Bit
from confide.protocol.channels.registry import auto
from confide.simulation.advice.bit_law import BitCase, bit_law
from confide.simulation.advice.central_law import CountCase, central_law
from confide.simulation.advice.curves import SizeCurve
from confide.simulation.advice.label_law import LabelCase, label_law
from confide.simulation.advice.question import ROUNDS, AdviceQuestion

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Case:
    """A question at one number of records and one epsilon, on one curve."""

    curve: SizeCurve
    asked: AdviceQuestion
    n: int
    epsilon: float

    @property
    def label_channel(self) -> LabelChannel:
        """One value more than labels where owners cannot tell which label is last."""
        values = self.curve.k if self.asked.owner_has_model else self.curve.k + 1
        return auto(k=values, epsilon=self.epsilon)

    @property
    def bits(self) -> BitCase:
        channel, delta = Bit(epsilon=self.epsilon), self.asked.failure_probability
        return BitCase(self.curve, self.n, channel, self.asked.alpha, delta)

    @property
    def labels(self) -> LabelCase:
        delta = self.asked.failure_probability
        return LabelCase(self.curve, self.n, self.label_channel, self.asked.alpha, delta)

    @property
    def counts(self) -> CountCase:
        delta = self.asked.failure_probability
        return CountCase(self.curve, self.n, self.epsilon, self.asked.alpha, delta)


# Maps a case to so many equally likely thresholds.
Law = Callable[[Case, int], Floats]


@dataclass(frozen=True)
class Candidate:
    """A method with what owners must be able and willing to do for it."""

    name: str
    rounds: int
    shows: str
    law: Law
    channel: Callable[[Case], str]
    # The most thresholds that stand for the law in advice, and while a size is sought.
    campaigns: int
    few: int
    needs_model: bool = False
    needs_features: bool = False
    needs_trust: bool = False

    def refusal(self, asked: AdviceQuestion) -> str | None:
        """Why the method is not allowed; None if it is."""
        if self.needs_trust and not asked.trusted_aggregator:
            return "exact counts would leave, and the aggregator is not trusted with them"
        if self.needs_model and not asked.owner_has_model:
            return "owners would have to score their records, and have no model"
        if self.needs_features and not asked.features_may_leave:
            return "features, or the model's probabilities for them, would leave in clear"
        if self.rounds > asked.rounds:
            return f"takes {self.rounds} rounds, and {asked.rounds} are possible"
        return None


CANDIDATES = (
    Candidate(
        "bits:certified",
        ROUNDS,
        "one randomised bit of a record leaves; label and features stay hidden",
        lambda case, campaigns: bit_law(case.bits, "certified", campaigns=campaigns),
        lambda _: Bit.name,
        campaigns=200,
        few=12,
        needs_model=True,
    ),
    Candidate(
        "bits:one-shot",
        1,
        "one randomised bit of a record leaves, in a single round; label and features stay hidden",
        lambda case, campaigns: bit_law(case.bits, "one-shot", campaigns=campaigns),
        lambda _: Bit.name,
        campaigns=200,
        few=12,
        needs_model=True,
    ),
    Candidate(
        "labels:certified",
        1,
        "the randomised label leaves, with the features or the model's probabilities in clear",
        lambda case, campaigns: label_law(case.labels, campaigns=campaigns),
        lambda case: case.label_channel.name,
        campaigns=240,
        few=60,
        needs_features=True,
    ),
    Candidate(
        "central:trusted",
        1,
        "exact counts leave; only the published threshold is private",
        lambda case, campaigns: central_law(case.counts, campaigns=campaigns),
        lambda _: DEFAULT,
        campaigns=400,
        few=100,
        needs_model=True,
        needs_trust=True,
    ),
)
