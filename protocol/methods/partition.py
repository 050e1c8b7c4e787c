"""What divides the records of a campaign: their owners, their classes, or groups that a plan names.

The group of a record is public: the value of a column that its owner lets out in clear. It travels
with the record's report. The class of a record is its label, which is private: only an owner that
counts its records as a whole knows it.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from confide.protocol.certificate import BY_CLASS, BY_GROUP, BY_OWNER
from confide.protocol.errors import BadInput, Refused
from confide.protocol.methods.base import Batch, Columns
from confide.protocol.methods.subjects import Subjects
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.columns import U2, check_numbers, column

MOST_GROUPS = 1_000
MOST_NAME = 100
# The column of reports in which groups travel, by their numbers in the plan.
GROUPS = "groups"
# A record that is in no part.
NO_PART = -1


class Divided(NamedTuple):
    """The parts that occur in a batch, and for every report the place of its part among them."""

    keys: tuple[bytes, ...]
    places: NDArray[np.int64]


class Division(ABC):
    """Says which part every report of a batch belongs to."""

    by: ClassVar[str]

    @property
    def parts(self) -> int:
        """How many parts a plan names; 0 if it names none."""
        return 0

    @abstractmethod
    def __call__(self, batch: Batch) -> Divided:
        """Return the part of every report."""

    @abstractmethod
    def divided(self, names: NDArray[Any]) -> Divided:
        """Return the part of every record, given the names of their owners or groups."""

    @abstractmethod
    def named(self, keys: Iterable[bytes]) -> list[tuple[str, bytes]]:
        """Return name and key of every part that a card lists, given those that answered."""

    def columns(self, subjects: Subjects) -> Columns:
        """Return what these records send in clear for it; nothing if the sender tells the part."""
        return {}

    def packed(self, columns: Columns) -> dict[str, bytes]:
        """Return the fields of a message that hold these columns."""
        return {}

    def check(self, message: Any, n: int) -> None:
        """Refuse, with a code, a message that holds something else than `packed` writes."""
        if message.groups:
            raise Refused(wire.Code.MALFORMED)

    def unpack(self, message: Any, n: int) -> Columns:
        """Return the columns of a message that passed the check."""
        return {}

    @property
    def row_bits(self) -> dict[str, int]:
        """Bits per report of every column."""
        return {}


class _ByOwner(Division):
    """The sender that the transport authenticated, for every report of its batch.

    Cards number owners from 1 in the order of their keys.
    """

    by = BY_OWNER

    def __call__(self, batch: Batch) -> Divided:
        # A sender without a report is nobody's part: cards count owners by their reports.
        return Divided((batch.sender,) if len(batch) else (), np.zeros(len(batch), dtype=np.int64))

    def divided(self, names: NDArray[Any]) -> Divided:
        known, places = np.unique(names, return_inverse=True)
        return Divided(
            tuple(str(name).encode() for name in known.tolist()), places.astype(np.int64)
        )

    def named(self, keys: Iterable[bytes]) -> list[tuple[str, bytes]]:
        return [(str(number), key) for number, key in enumerate(sorted(keys), start=1)]


by_owner = _ByOwner()


class Labelled(Protocol):
    """Records that are counted, as far as their parts are concerned."""

    @property
    def labels(self) -> NDArray[Any]: ...
    def public(self, column: str) -> NDArray[np.str_]: ...


class Partition(Protocol):
    """Divides the records that an owner counts as a whole."""

    @property
    def by(self) -> str: ...
    @property
    def public(self) -> bool:
        """Whether the number of records of each part is public."""

    @property
    def names(self) -> tuple[str, ...]: ...
    def places(self, subjects: Labelled) -> NDArray[np.int64]:
        """Return the number of every record's part, or NO_PART."""


@dataclass(frozen=True)
class Classes:
    """Every label of a plan is a part; a record with another label is in no part."""

    labels: int

    by: ClassVar[str] = BY_CLASS
    public: ClassVar[bool] = False

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(map(str, range(self.labels)))

    def places(self, subjects: Labelled) -> NDArray[np.int64]:
        labels = subjects.labels
        return np.where((labels >= 0) & (labels < self.labels), labels, NO_PART).astype(np.int64)


@dataclass(frozen=True)
class Groups(Division):
    """The groups of a plan: a public column of records, and the values it may have, in order."""

    column: str
    names: tuple[str, ...]

    by = BY_GROUP
    public: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_name("group-column", self.column)
        for name in self.names:
            check_name("a group", name)
        if not 2 <= len(self.names) <= MOST_GROUPS or len({*self.names}) != len(self.names):
            raise BadInput(
                f"{len(self.names)} groups, {len({*self.names})} of them different; accepted are 2 "
                f"to {MOST_GROUPS:,} different values of column {self.column!r}"
            )

    def places(self, subjects: Labelled) -> NDArray[np.int64]:
        return numbers(subjects.public(self.column), self.names)

    @property
    def parts(self) -> int:
        return len(self.names)

    def __call__(self, batch: Batch) -> Divided:
        found, places = np.unique(batch.columns[GROUPS], return_inverse=True)
        return Divided(tuple(map(group_key, found.tolist())), places.astype(np.int64))

    def divided(self, names: NDArray[Any]) -> Divided:
        places = numbers(spelled(names.tolist()), self.names)
        return Divided(tuple(map(group_key, range(len(self.names)))), places)

    def named(self, keys: Iterable[bytes]) -> list[tuple[str, bytes]]:
        """All groups of the plan, also those that no report came of."""
        return [(name, group_key(number)) for number, name in enumerate(self.names)]

    def columns(self, subjects: Subjects) -> Columns:
        return {GROUPS: self.places(subjects)}

    def packed(self, columns: Columns) -> dict[str, bytes]:
        return {GROUPS: columns[GROUPS].astype(U2).tobytes()}

    def check(self, message: Any, n: int) -> None:
        check_numbers(message.groups, n, below=len(self.names))

    def unpack(self, message: Any, n: int) -> Columns:
        return {GROUPS: column(message.groups, U2, n)}

    @property
    def row_bits(self) -> dict[str, int]:
        return {GROUPS: 16}


def group_key(number: int) -> bytes:
    """The key under which tallies keep the group of this number apart."""
    return number.to_bytes(2, "big")


def check_name(what: str, name: str) -> None:
    """Refuse a name of a column or group that a card, a table or a terminal could not show."""
    if not (0 < len(name) <= MOST_NAME and name.isprintable() and name == name.strip()):
        raise BadInput(
            f"{what} is {name[:MOST_NAME]!r}; accepted are 1 to {MOST_NAME} printable characters "
            "without a space at either end"
        )


def spelled(values: Iterable[Any]) -> NDArray[np.str_]:
    """Values of a public column as plans name them: text without spaces around, whole numbers."""
    whole = (
        str(int(value)) if isinstance(value, float) and value.is_integer() else str(value).strip()
        for value in values
    )
    return np.array([*whole], dtype=np.str_)


def numbers(values: NDArray[np.str_], names: tuple[str, ...]) -> NDArray[np.int64]:
    """The index of every value among the names; NO_PART for a value that is not among them."""
    found, places = np.unique(values, return_inverse=True)
    known = {name: number for number, name in enumerate(names)}
    own = np.array([known.get(str(value), NO_PART) for value in found], dtype=np.int64)
    return own[places.reshape(-1)] if len(values) else np.empty(0, dtype=np.int64)
