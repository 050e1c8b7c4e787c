"""The interface of a method: its terms in a plan, its queries and tallies; no name is compared."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from types import MappingProxyType
from typing import Any, ClassVar, Self

from google.protobuf.message import Message

from confide.protocol.certificate import BY_OWNER, MARGINAL
from confide.protocol.errors import check_choice, check_epsilon, narrowed
from confide.protocol.methods.subjects import Subjects
from confide.protocol.methods.thresholds import Alarm, Evidence
from confide.protocol.wire.columns import Array
from confide.protocol.wire.encoding import parse, plain_values, serialise

Columns = dict[str, Array]
# The scores of every label, from what reports came with in clear and a uniform number each.
ReportScores = Callable[[Array, Array], Array]
MOST_RECORDS = 10**9  # of one owner, and of all owners that a campaign counts
# The tracks of cards: private reports; counts; counts of records that trained; bits that watch.
LOCAL, CENTRAL, FULL_DATA, MONITOR = "local", "central", "full-data", "monitor"
AUTOMATIC = "auto"  # the setting of an operator that leaves a number to a rule


@dataclass(frozen=True)
class Explanation:
    """What a plan means for a data owner, in plain words; `epsilon` is the cost of a record."""

    epsilon: float
    purpose: str
    leaves: str
    caveats: tuple[str, ...] = ()


@dataclass(frozen=True)
class Batch:
    """An owner's unpacked answer to a query: one row per report, or one row for the whole owner.

    `sender` is the owner that the transport authenticated, independent of the ids.
    """

    ids: Array
    columns: Columns
    seeded: bool = False
    sender: bytes = b""

    def __len__(self) -> int:
        return len(self.ids)

    def only(self, places: Array | list[int]) -> "Batch":
        """Return the batch with only the reports at these places."""
        kept = {name: values[places] for name, values in self.columns.items()}
        return Batch(self.ids[places], kept, self.seeded, self.sender)


class Tally:
    """The sum of the answers to a query, independent of the order in which they arrived.

    `senders` are the reports of every owner, of a tally that counts them beside what it keeps apart
    itself; there are none if owners are too many.
    """

    senders: Mapping[bytes, int] = MappingProxyType({})

    def crowd(self) -> int:
        """Return the number of reports that a shuffler could hide among each other; 0: none."""
        return 0

    def owner_sizes(self) -> list[int]:
        """Return the records of every owner that answered as a whole; empty for reports."""
        return []

    def to_json(self) -> Any:
        """Return JSON values; None if the tally, large or exact, is recounted from batches."""
        return None

    def to_bytes(self) -> bytes | None:
        """Return the bytes of a large tally that replaces its answers, which are then deleted."""
        return None


class Query(ABC):
    """One request to owners, which packs, checks and adds up its own answers."""

    # Whether an owner answers once for all its records, or once for each record of the slice.
    whole: ClassVar[bool] = False
    # The slice of positions in [0, 1) whose records are asked.
    start: float
    stop: float

    @property
    def kept_apart(self) -> str:
        """What the parts are that a tally keeps apart, if it keeps any."""
        return BY_OWNER

    @abstractmethod
    def to_body(self) -> bytes:
        """Return the method's part of the query message."""

    @abstractmethod
    def answer(self, subjects: Subjects) -> Columns:
        """Draw the answers of these records now; no other method reads records."""

    @abstractmethod
    def pack(self, columns: Columns) -> bytes:
        """Return the method's part of the message with these answers."""

    @abstractmethod
    def check(self, body: bytes, n: int, *, most: int) -> None:
        """Refuse, with a code, a body that is not n answers of an owner of <= `most` records."""

    @abstractmethod
    def unpack(self, body: bytes, n: int) -> Columns:
        """Return the columns of a body that passed the check."""

    @abstractmethod
    def tally(self, batches: Sequence[Batch], scores: ReportScores) -> Any:
        """Add up these batches; no report occurs in two of them."""

    def tally_from_json(self, values: Any) -> Any:
        """Read a tally from the values of `Tally.to_json`, if it returns values."""
        raise NotImplementedError

    def tally_from_bytes(self, data: bytes) -> Any:
        """Read a tally from the bytes of `Tally.to_bytes`."""
        raise NotImplementedError

    def evidence(self, tally: Any | None) -> Sequence[Evidence]:
        """Return what a tally, if there is one, says of each threshold asked about, if any is."""
        return ()


class WholeQuery(Query):
    """A query that an owner answers once, for all its records together."""

    whole: ClassVar[bool] = True
    start, stop = 0.0, 1.0


@dataclass(frozen=True, kw_only=True)
class Terms(ABC):
    """A method's part of a plan. Every field is public and covered by the plan's signature."""

    variant: str
    epsilon: float

    method: ClassVar[str]
    variants: ClassVar[tuple[str, ...]]
    # The protobuf message that holds the fields.
    message: ClassVar[type[Message]]
    # The track of its cards; empty if its campaigns end in none.
    track: ClassVar[str]
    # Whether its campaigns train a model, and end in its weights instead of a card.
    trains: ClassVar[bool] = False
    # Whether a threshold is found from reports that are private one by one, so that cards may say
    # what every round received, and from whom.
    calibrates_by_reports: ClassVar[bool] = False
    # The variants in which owners add noise to what they answer as a whole.
    noised_variants: ClassVar[tuple[str, ...]] = ()
    # The guarantee where operators leave it to the method.
    usual_guarantee: ClassVar[str] = MARGINAL
    # Whether coverage may be one minus an expected loss: answers are of scores alone.
    of_risks: ClassVar[bool] = False
    # Whether the records are those that trained the model, and pay for both. Elsewhere records that
    # trained a model do not calibrate it.
    on_training_records: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_choice(f"variant of {self.method}", self.variant, self.variants)
        check_epsilon(self.epsilon)

    # The operator's settings that only this method has, each with the names of the variants, or of
    # the guarantee, that have it if not all do.
    settings: ClassVar[dict[str, tuple[str, ...]]] = {}

    @classmethod
    def of(cls, terms: "Terms") -> Self:
        """Return a plan's terms as terms of this class; refuse those of another method."""
        found = f"terms are {type(terms).__name__} of method {terms.method!r}"
        return narrowed(terms, cls, found=found, accepted=f"are {cls.__name__}")

    @classmethod
    @abstractmethod
    def from_settings(cls, variant: str, settings: Mapping[str, Any]) -> Self:
        """Make the terms from an operator's settings."""

    @abstractmethod
    def check(self, *, labels: int, alpha: float) -> None:
        """Refuse terms that contradict the rest of the plan."""

    @property
    def privacy_delta(self) -> float:
        """The delta of (epsilon, delta)-differential privacy."""
        return 0.0

    @property
    def max_corrupt(self) -> int:
        """The number of false reports that the certificate withstands."""
        return 0

    @property
    def shows_probabilities(self) -> bool:
        """Whether the model's probabilities leave the owner in clear."""
        return False

    @property
    def sent_features(self) -> int:
        """How many numbers of a record leave in clear, for the aggregator to score; 0: none."""
        return 0

    @property
    def group_column(self) -> str:
        """The column of records whose value leaves in clear, as the record's group; empty: none."""
        return ""

    @property
    def groups(self) -> tuple[str, ...]:
        """The values of the group column whose records take part."""
        return ()

    @property
    def by_label(self) -> bool:
        """Whether owners divide their records by label; each record then has exactly one."""
        return False

    @property
    def shows_exact_counts(self) -> bool:
        """Whether exact counts leave the owner, for an aggregator that is trusted with them."""
        return False

    @property
    def rounds(self) -> int:
        """The rounds that owners answer as a whole, at one epsilon; 0 if records answer once."""
        return 0

    @property
    def features(self) -> int | None:
        """How many numbers of a record the method trains on; None if it trains no network."""
        return None

    @property
    def uses_model(self) -> bool:
        """Whether the plan's model runs at owners: to score records, or to make a head's inputs."""
        return self.features is None and not self.sent_features

    @property
    def answer_bytes(self) -> int:
        """The most bytes of what an owner answers as a whole, which may be sent in pieces."""
        return 0

    @property
    def code(self) -> tuple[str, str, bytes] | None:
        """The installed code that it runs: name, arguments (canonical JSON), its files' digest."""
        return None

    @abstractmethod
    def read_query(self, body: bytes, *, labels: int) -> Query:
        """Read the query in a message body; raise `BadInput` or `Refused` if there is none."""

    @abstractmethod
    def explain(self, *, labels: int, alpha: float) -> Explanation:
        """Explain the plan to an owner."""

    def alarm(self, tallies: Sequence[Any], *, alpha: float) -> Alarm | None:
        """Return what the rounds so far say against coverage 1 - alpha, if the method watches."""
        return None

    def row_bits(self, *, labels: int) -> dict[str, int]:
        """Bits per report of every column of `reports_message`; empty if answers are not split."""
        return {}

    # The message whose columns `row_bits` names.
    reports_message: ClassVar[type[Message] | None] = None

    @property
    def row_bytes(self) -> int:
        """The bytes of a report that a shuffler can mix among others; 0 if it can hide none."""
        return 0

    @property
    def most_rounds(self) -> int:
        """The most rounds that a shuffler collects one after the other; 0 where none can help."""
        return 0

    def to_bytes(self) -> bytes:
        return serialise(self.message(**asdict(self)))

    def to_values(self) -> dict[str, Any]:
        """Return the fields as JSON values; bytes are hexadecimal."""
        return {
            name: value.hex() if isinstance(value, bytes) else value
            for name, value in asdict(self).items()
        }

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        names = (field.name for field in fields(cls))
        return cls(**plain_values(parse(cls.message, data), names))
