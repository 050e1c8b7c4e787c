"""The in-process driver: a population held in arrays answers the queries of a procedure."""

from collections.abc import Callable, Generator
from dataclasses import KW_ONLY, dataclass, replace
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from confide.aggregator.campaigns.driver import run_procedure
from confide.protocol.certificate import Certificate
from confide.protocol.channels.base import LabelChannel
from confide.protocol.channels.bit import Bit
from confide.protocol.errors import BadInput
from confide.protocol.exact.gaussian import discrete_gaussian
from confide.protocol.exact.sampling import Entropy, randomness
from confide.protocol.methods.bits import BitQuery
from confide.protocol.methods.counts.noised_parts import PartCountQuery, PartCountTally
from confide.protocol.methods.counts.queries import (
    CountQuery,
    CountTally,
    HistogramQuery,
    HistogramTally,
)
from confide.protocol.methods.labels.pairs import PairQuery, PairTally
from confide.protocol.methods.labels.query import LabelQuery, LabelTally
from confide.protocol.methods.partition import spelled
from confide.protocol.methods.parts import BitTally, PartCounter
from confide.simulation.presence import Presence

# Users by their places, all in a row or one by one.
Places = slice | NDArray[np.int64]

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
    present in a round do not answer it. `parts` are their owners or groups, if tallies shall keep
    them apart.
    """

    scores: NDArray[Any]
    entropy: Entropy
    parts: NDArray[Any] | None = None
    _: KW_ONLY
    presence: Presence | None = None

    def __call__(self, query: BitQuery) -> BitTally:
        places = _answering(len(self.scores), query, self.presence)
        numbers = _numbers(places)
        divided = None
        if self.parts is not None:
            divided = query.division.divided(self.parts[places])
        groups = None if divided is None else divided.places
        part = query.part((numbers + 0.5) / len(self.scores), groups)
        bits = self.scores[places] <= np.asarray(query.thresholds, dtype=np.float64)[part]
        reports = self.reports(bits, query.channel, places)
        count = len(query.thresholds)
        answers = np.bincount(part, minlength=count)
        ones = np.bincount(part[reports], minlength=count)
        counter = PartCounter()
        if divided is not None:
            counter.add(divided, part, reports)
        return BitTally(tuple(answers.tolist()), tuple(ones.tolist()), counter.parts())

    def reports(self, bits: NDArray[np.bool_], channel: Bit, asked: Places) -> NDArray[np.bool_]:
        """What the users at these places say whose true bits are these."""
        return channel.randomize(bits, self.entropy)


@dataclass(frozen=True)
class LabelUsers:
    """Users who show their features (here: scores of every label) and keep their label private.

    Those that are not present in a round do not answer it. `parts` are their owners or groups, if
    tallies shall keep them apart.
    """

    scores: NDArray[Any]
    labels: NDArray[Any]
    entropy: Entropy
    parts: NDArray[Any] | None = None
    _: KW_ONLY
    presence: Presence | None = None

    def __post_init__(self) -> None:
        if len(self.scores) != len(self.labels):
            raise BadInput(
                f"{len(self.scores)} rows of scores with {len(self.labels)} labels; accepted is a "
                "label a row"
            )

    def __call__(self, query: LabelQuery) -> LabelTally:
        places = _answering(len(self.labels), query, self.presence)
        reports = self.reports(query.channel, places)
        if self.parts is None:
            return LabelTally(self.scores[places], reports)
        return LabelTally(self.scores[places], reports, *query.division.divided(self.parts[places]))

    def reports(self, channel: LabelChannel, asked: Places) -> NDArray[Any]:
        """What the users at these places say."""
        return channel.randomize(self.labels[asked], self.entropy)


@dataclass(frozen=True)
class PairUsers:
    """Users who keep label, features and score private, and answer with one symbol."""

    scores: NDArray[Any]
    labels: NDArray[Any]
    entropy: Entropy
    _: KW_ONLY
    presence: Presence | None = None

    def __call__(self, query: PairQuery) -> PairTally:
        places = _answering(len(self.labels), query, self.presence)
        parts = query.part((_numbers(places) + 0.5) / len(self.labels))
        symbols = query.symbols(self.labels[places], self.scores[places], parts)
        return PairTally(parts, query.channel.randomize(symbols, self.entropy))


@dataclass(frozen=True)
class CountingOwner:
    """One owner of the records, who trusts the aggregator with exact counts of their scores.

    Records that are not present are not counted. `truth` holds their labels, and `groups` the value
    of the public column by which they are grouped, if they are counted apart by these.
    """

    scores: NDArray[Any]
    truth: NDArray[Any] | None = None
    groups: NDArray[Any] | None = None
    _: KW_ONLY
    presence: Presence | None = None

    @property
    def labels(self) -> NDArray[Any]:
        assert self.truth is not None, "counts by class need labels"
        return self.truth

    def public(self, column: str) -> NDArray[np.str_]:
        assert self.groups is not None, "counts by group need groups"
        return spelled(self.groups.tolist())

    def __call__(self, query: HistogramQuery) -> HistogramTally:
        every = slice(0, len(self.scores))
        there = every if self.presence is None else self.presence(every)
        scores = self.scores[there]
        parts = None if query.key is None else query.key.places(self)[there]
        return HistogramTally(query.shaped(query.count(scores, parts)), 1, (len(scores),))


@dataclass(frozen=True)
class NoisingOwners:
    """Owners who deal the records out evenly, and each add noise of their own to every count.

    `places` says for every record which part of a plan it is in, where parts are counted apart.
    """

    scores: NDArray[Any]
    owners: int
    entropy: Entropy
    places: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.owners <= len(self.scores):
            raise BadInput(
                f"owners is {self.owners} for {len(self.scores):,} records; accepted are 1 to as "
                "many as records"
            )

    def __call__(self, query: Any) -> Any:
        return self._whole(query) if self.places is None else self._apart(query, self.places)

    def _apart(self, query: PartCountQuery, places: NDArray[np.int64]) -> PartCountTally:
        dealt = (np.array_split(given, self.owners) for given in (self.scores, places))
        answers = (
            query.read(query.counted(scores, parts, self.entropy))
            for scores, parts in zip(*dealt, strict=True)
        )
        return PartCountTally({i.to_bytes(8): one for i, one in enumerate(answers)})

    def _whole(self, query: CountQuery) -> CountTally:
        noise = discrete_gaussian(Fraction(query.variance), self.owners, self.entropy).tolist()
        answers = {}
        for i, part in enumerate(np.array_split(self.scores, self.owners)):
            count = int(np.count_nonzero(part <= query.threshold))
            answers[i.to_bytes(8)] = (len(part), count + noise[i])
        return CountTally(answers)


def _answering(
    n: int, query: BitQuery | LabelQuery | PairQuery, presence: Presence | None
) -> Places:
    """The users whose position lies in the query's slice, and who are present."""
    first, last = (int(np.ceil(n * edge - 0.5)) for edge in (query.start, query.stop))
    asked = slice(first, last)
    return asked if presence is None else np.arange(first, last)[presence(asked)]


def _numbers(places: Places) -> NDArray[np.int64]:
    """The places one by one."""
    return np.arange(places.start, places.stop) if isinstance(places, slice) else places
