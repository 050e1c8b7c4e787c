"""The in-process driver: a population held in arrays answers the queries of a procedure."""

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from confide.aggregator.campaigns.driver import run_procedure
from confide.protocol.certificate import Certificate
from confide.protocol.errors import BadInput
from confide.protocol.exact.sampling import Entropy, randomness
from confide.protocol.methods.bits import BitQuery, BitTally
from confide.protocol.methods.counts import HistogramQuery, HistogramTally
from confide.protocol.methods.label_query import LabelQuery, LabelTally
from confide.simulation.presence import Presence

AnyQuery = TypeVar("AnyQuery")
AnyTally = TypeVar("AnyTally")
AnyCertificate = TypeVar("AnyCertificate", bound=Certificate)


def drive(
    procedure: Generator[AnyQuery, AnyTally, AnyCertificate],
    answer: Callable[[AnyQuery], AnyTally],
) -> AnyCertificate:
    """Run a procedure to its certificate, answering each query as it comes.

    If `answer` has an `entropy`, the certificate states the randomness that it stands for.
    """
    certificate = run_procedure(procedure, lambda query, _: answer(query))
    entropy = getattr(answer, "entropy", None)
    return certificate if entropy is None else replace(certificate, randomness=randomness(entropy))


@dataclass(frozen=True)
class BitUsers:
    """Users who know the score of their record.

    User i of n has position (i + 1/2)/n, so the users must be shuffled first. Those that are not
    present in a round do not answer it.
    """

    scores: NDArray[Any]
    entropy: Entropy
    presence: Presence | None = None

    def __call__(self, query: BitQuery) -> BitTally:
        asked, first = _slice(len(self.scores), query.start, query.stop)
        scores = self.scores[asked]
        places = np.arange(len(scores))
        if self.presence is not None:
            places = places[self.presence(asked)]
            scores = scores[places]
        part = query.part((places + first + 0.5) / len(self.scores))
        reports = query.channel.randomize(
            scores <= np.asarray(query.thresholds, dtype=np.float64)[part], self.entropy
        )
        count = len(query.thresholds)
        answers = np.bincount(part, minlength=count)
        ones = np.bincount(part[reports], minlength=count)
        return BitTally(tuple(answers.tolist()), tuple(ones.tolist()))


@dataclass(frozen=True)
class LabelUsers:
    """Users who show their features (here: scores of every label) and keep their label private."""

    scores: NDArray[Any]
    labels: NDArray[Any]
    entropy: Entropy
    presence: Presence | None = None

    def __post_init__(self) -> None:
        if len(self.scores) != len(self.labels):
            raise BadInput(
                f"{len(self.scores)} rows of scores with {len(self.labels)} labels; accepted is a "
                "label a row"
            )

    def __call__(self, query: LabelQuery) -> LabelTally:
        asked, _ = _slice(len(self.labels), query.start, query.stop)
        scores, labels = self.scores[asked], self.labels[asked]
        if self.presence is not None:
            here = self.presence(asked)
            scores, labels = scores[here], labels[here]
        return LabelTally(scores, query.channel.randomize(labels, self.entropy))


@dataclass(frozen=True)
class CountingOwner:
    """One owner of all records, who trusts the aggregator with exact counts of their scores."""

    scores: NDArray[Any]

    def __call__(self, query: HistogramQuery) -> HistogramTally:
        return HistogramTally(query.count(self.scores), 1, (len(self.scores),))


def _slice(n: int, start: float, stop: float) -> tuple[slice, int]:
    """The users whose position lies in [start, stop), and the index of the first."""
    first, last = (int(np.ceil(n * edge - 0.5)) for edge in (start, stop))
    return slice(first, last), first
