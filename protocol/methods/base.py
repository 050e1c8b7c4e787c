"""What a method is: its terms in a plan, the queries it asks, and the tallies it is told.

A method is one module that defines a `Terms`, its `Query` classes and their `Tally` classes, and
registers the terms in `confide.protocol.methods.registry`. Clients and aggregators ask these
objects; they never compare method names.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from google.protobuf.message import Message
from numpy.typing import NDArray

from confide.protocol.channels.base import Channel
from confide.protocol.errors import BadInput, check_choice, check_epsilon, check_probability
from confide.protocol.exact.sampling import Entropy
from confide.protocol.scores.base import Score
from confide.protocol.wire.columns import Array
from confide.protocol.wire.encoding import parse, serialise

Columns = dict[str, Array]

# Records of one owner, and of all that a campaign counts.
MOST_RECORDS = 10**9
# The tracks of cards that campaigns end in: reports that are private one by one, and counts that a
# mechanism releases from.
LOCAL, CENTRAL = "local", "central"


@dataclass(frozen=True)
class Explanation:
    """What a plan means for a data owner, in plain words; `epsilon` is what a record pays."""

    epsilon: float
    purpose: str
    leaves: str
    caveats: tuple[str, ...] = ()


class Subjects(Protocol):
    """The records that answer a query, as their owner shows them to the method."""

    @property
    def entropy(self) -> Entropy:
        """Where the chance of an answer comes from."""

    def __len__(self) -> int: ...
    @property
    def labels(self) -> Array:
        """The true labels, which may lie outside those of the plan."""

    @property
    def positions(self) -> NDArray[np.float64]:
        """Where the records stand in [0, 1)."""

    def scores(self) -> Array:
        """The scores of the true labels; a label that the plan does not have scores 1."""

    def probabilities(self) -> Array:
        """The model's probabilities of every label."""

    def train(self, terms: Any, weights: Array) -> Array:
        """The weights after this owner's private steps."""


@dataclass(frozen=True)
class Batch:
    """What one owner answers to one query, unpacked: a row a report, or one row of the owner as a
    whole.

    `sender` is who the transport says it came from, whatever the ids say.
    """

    ids: Array
    columns: Columns
    seeded: bool = False
    sender: bytes = b""

    def __len__(self) -> int:
        return len(self.ids)

    def only(self, places: Array | list[int]) -> "Batch":
        """The reports at these places."""
        kept = {name: values[places] for name, values in self.columns.items()}
        return Batch(self.ids[places], kept, self.seeded, self.sender)


class Tally:
    """What the answers to a query add up to, whatever order they came in."""

    def crowds(self) -> list[int]:
        """How many reports answered each question together, of those that got any."""
        return []

    def owner_sizes(self) -> list[int]:
        """The records of every owner that answered as a whole; of reports, nothing."""
        return []

    def to_json(self) -> Any:
        """The tally as values of JSON; None where it is large or exact, and is counted again from
        the batches."""
        return None


class Query(ABC):
    """A question to owners. It packs, checks and adds up its own answers."""

    # Whether an owner answers once for all its records, or each record of the slice by itself.
    whole: ClassVar[bool] = False
    # The slice of positions in [0, 1) that is asked.
    start: float
    stop: float

    @abstractmethod
    def to_body(self) -> bytes:
        """The method's part of the query message."""

    @abstractmethod
    def answer(self, subjects: Subjects) -> Columns:
        """What these records answer, drawn now: the only place that reads them."""

    @abstractmethod
    def pack(self, columns: Columns) -> bytes:
        """The method's part of the message with these answers."""

    @abstractmethod
    def check(self, body: bytes, n: int, *, most: int) -> None:
        """Refuse, with a code, what cannot be n answers of an owner with at most so many
        records."""

    @abstractmethod
    def unpack(self, body: bytes, n: int) -> Columns:
        """The columns of a body that passes the check."""

    @abstractmethod
    def tally(self, batches: Sequence[Batch], score: Score) -> Any:
        """What these batches add up to. No report stands in two of them."""

    def tally_from_json(self, values: Any) -> Any:
        """The tally that `Tally.to_json` made values of."""
        raise NotImplementedError

    @property
    def answer_bytes(self) -> int:
        """How many bytes one answer takes at least, where answers cannot be split."""
        return 0

    @property
    def asked(self) -> tuple[float, ...]:
        """The thresholds that are asked about."""
        return ()


class WholeQuery(Query):
    """A question that an owner answers once, for all its records together."""

    whole: ClassVar[bool] = True
    start, stop = 0.0, 1.0


@dataclass(frozen=True, kw_only=True)
class Terms(ABC):
    """A method's part of a plan. Every field is public and covered by the plan's signature."""

    variant: str
    epsilon: float

    method: ClassVar[str]
    variants: ClassVar[tuple[str, ...]]
    # The protobuf message that holds the fields, one by one.
    message: ClassVar[type[Message]]
    # The track of its cards; None where a campaign ends in something else.
    track: ClassVar[str | None]
    # Whether the model's probabilities leave in clear.
    shows_probabilities: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_choice(f"variant of {self.method}", self.variant, self.variants)
        check_epsilon(self.epsilon)

    # The settings that an operator makes for this method and not for every one; of those that only
    # some variants have, their names.
    settings: ClassVar[dict[str, tuple[str, ...]]] = {}

    @classmethod
    @abstractmethod
    def from_settings(cls, variant: str, settings: Mapping[str, Any]) -> Self:
        """The terms that an operator's settings ask for."""

    @abstractmethod
    def check(self, *, labels: int, alpha: float) -> None:
        """Refuse terms that do not go with the rest of the plan."""

    @property
    def privacy_delta(self) -> float:
        """The delta of (epsilon, delta)-differential privacy."""
        return 0.0

    @property
    def max_corrupt(self) -> int:
        """How many reports may be lies without breaking the certificate."""
        return 0

    @property
    def shows_exact_counts(self) -> bool:
        """Whether exact counts leave, to an aggregator that is trusted with them."""
        return False

    @property
    def rounds(self) -> int:
        """In how many rounds an owner answers as a whole, at one epsilon for all of them; 0 where
        each record answers once."""
        return 0

    @property
    def features(self) -> int | None:
        """How many features the method itself takes from a record; None where a model scores
        it."""
        return None

    @abstractmethod
    def read_query(self, body: bytes, *, labels: int) -> Query:
        """The query in a message body; `BadInput` or `Refused` where there is none."""

    @abstractmethod
    def explain(self, *, labels: int, alpha: float) -> Explanation:
        """What the plan means for an owner."""

    def row_bits(self, *, labels: int) -> dict[str, int]:
        """Bits a report in every column of `reports_message`; empty where answers are not split."""
        return {}

    # The message whose columns `row_bits` names.
    reports_message: ClassVar[type[Message] | None] = None

    def to_bytes(self) -> bytes:
        return serialise(self.message(**asdict(self)))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        message = parse(cls.message, data)
        values = {field.name: getattr(message, field.name) for field in fields(cls)}
        # A repeated field is a container of protobuf's.
        plain: dict[str, Any] = {
            name: value if isinstance(value, (str, int, float, bytes)) else tuple(value)
            for name, value in values.items()
        }
        return cls(**plain)


@dataclass(frozen=True, kw_only=True)
class LocalTerms(Terms):
    """The terms of a method whose reports each go through a channel: private one by one.

    The promise fails with probability `delta` over calibration; `max_corrupt` reports may be lies.
    """

    delta: float
    max_corrupt: int = 0

    track: ClassVar[str | None] = LOCAL
    settings: ClassVar[dict[str, tuple[str, ...]]] = {"failure-probability": (), "max-corrupt": ()}

    def __post_init__(self) -> None:
        super().__post_init__()
        check_probability("delta", self.delta)

    def check(self, *, labels: int, alpha: float) -> None:
        self.make_channel(labels=labels)

    @abstractmethod
    def make_channel(self, *, labels: int) -> Channel:
        """The channel that every report goes through."""


def check_slice(start: float, stop: float) -> None:
    """Accept a slice of positions."""
    if not 0 <= start < stop <= 1:
        raise BadInput(f"slice is [{start}, {stop}); accepted is 0 <= start < stop <= 1")


def check_thresholds(thresholds: Sequence[float]) -> None:
    """Accept at least one threshold."""
    if not thresholds or not all(0 <= q <= 1 for q in thresholds):
        raise BadInput(
            f"thresholds are {tuple(thresholds)}; accepted is at least one number, all in [0, 1]"
        )
