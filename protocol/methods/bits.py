"""Method bits (LDP-CP-S): features and labels private, one randomised bit 1{S <= q} per record.

A record's position in [0, 1) is fixed by its owner (by a keyed hash in a federation, by a shuffle
in simulation). A query addresses a slice of positions; the slices of one campaign never overlap, so
every record answers at most once.
"""

from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from google.protobuf.message import Message
from numpy.typing import NDArray

from confide.protocol.certificate import BAND, BY_OWNER, MARGINAL, LocalCertificate
from confide.protocol.channels.bit import Bit
from confide.protocol.errors import BadInput, Refused
from confide.protocol.methods.base import Batch, Columns, Explanation, ReportScores
from confide.protocol.methods.bit_rounds import PUBLISHED_ROUNDS, check_smallest_owner, rounds_for
from confide.protocol.methods.local import LeveledTerms, LocalTerms
from confide.protocol.methods.owner_terms import (
    EACH,
    PART_SETTINGS,
    PART_VARIANTS,
    check_groups,
    in_clear,
    mixture_settings,
    part_settings,
)
from confide.protocol.methods.partition import GROUPS, Division, by_owner
from confide.protocol.methods.parts import BitTally, PartBits, PartCounter, senders_of
from confide.protocol.methods.sealed import SealableQuery
from confide.protocol.methods.subjects import Subjects
from confide.protocol.methods.thresholds import (
    BitEvidence,
    calibrates,
    check_slice,
    check_thresholds,
    slice_part,
)
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.columns import U2, Array, check_numbers, column
from confide.protocol.wire.encoding import parse, serialise

MOST_THRESHOLDS = 1 << 16
# The standard error that tests are expected to have, in units of that of all records at one
# threshold.
ERRORS = {"certified": 1.8, "one-shot": 8.0}
MARGINAL_LEVELS = 12
# A report by itself: the index of its threshold, 2 bytes, little endian, and its bit.
ROW_BYTES = 3


@dataclass(frozen=True)
class BitQuery(SealableQuery):
    """Ask the records of a slice for one randomised bit 1{S <= q} each.

    The slice is cut into equal parts, one for each threshold. With `each`, every group has
    thresholds of its own, as many as the others, one group after the other.
    """

    channel: Bit
    start: float
    stop: float
    thresholds: tuple[float, ...]
    # What its tally keeps apart.
    division: Division = by_owner
    each: bool = False

    row_bytes = ROW_BYTES

    def __post_init__(self) -> None:
        check_slice(self.start, self.stop)
        check_thresholds(self.thresholds)
        if self.each and (not self.division.parts or len(self.thresholds) % self.division.parts):
            raise BadInput(
                f"{len(self.thresholds)} thresholds for {self.division.parts} groups; accepted are "
                "as many for each"
            )

    @property
    def cuts(self) -> int:
        """The parts that the slice is cut into."""
        return len(self.thresholds) // (self.division.parts if self.each else 1)

    @property
    def kept_apart(self) -> str:
        return self.division.by

    def part(
        self, positions: NDArray[np.float64], groups: NDArray[np.int64] | None = None
    ) -> NDArray[np.int64]:
        """Return the index of the threshold that each record of the slice is asked about.

        Positions, and groups if each has its own thresholds, are those of the records.
        """
        found = slice_part(positions, self.start, self.stop, count=self.cuts)
        return found + groups * self.cuts if self.each and groups is not None else found

    def to_body(self) -> bytes:
        message = wire.BitQuery(start=self.start, stop=self.stop, thresholds=self.thresholds)
        message.each = self.each
        return serialise(message)

    def answer(self, subjects: Subjects) -> Columns:
        beside = self.division.columns(subjects)
        parts = self.part(subjects.positions, beside.get(GROUPS))
        bits = subjects.scores() <= np.asarray(self.thresholds, dtype=np.float64)[parts]
        own = {"parts": parts, "reports": self.channel.randomize(bits, subjects.entropy)}
        return own | beside

    def pack(self, columns: Columns) -> bytes:
        parts, reports = columns["parts"].astype(U2), self.channel.pack(columns["reports"])
        beside = self.division.packed(columns)
        return serialise(wire.BitReports(parts=parts.tobytes(), reports=reports, **beside))

    def check(self, body: bytes, n: int, *, most: int) -> None:
        message = parse(wire.BitReports, body)
        self.channel.check(message.reports, n)
        check_numbers(message.parts, n, below=len(self.thresholds))
        self.division.check(message, n)
        if self.each:
            found = self.unpack(body, n)
            if (found["parts"] // self.cuts != found[GROUPS]).any():
                raise Refused(wire.Code.OUT_OF_ALPHABET)

    def unpack(self, body: bytes, n: int) -> Columns:
        message = wire.BitReports.FromString(body)
        reports = self.channel.unpack(message.reports, n)
        own = {"parts": column(message.parts, U2, n), "reports": reports}
        return own | self.division.unpack(message, n)

    def to_rows(self, columns: Columns) -> Array:
        parts = np.ascontiguousarray(columns["parts"], dtype=U2)
        bits = columns["reports"].astype(np.uint8)
        return np.column_stack([parts.view(np.uint8).reshape(-1, 2), bits])

    def from_rows(self, rows: Array) -> Columns:
        parts = np.ascontiguousarray(rows[:, :2]).view(U2).ravel()
        known = (parts < len(self.thresholds)) & (rows[:, 2] <= 1)
        return {"parts": parts[known], "reports": rows[known, 2] == 1}

    def tally(self, batches: Sequence[Batch], scores: ReportScores) -> BitTally:
        count = len(self.thresholds)
        answers, ones = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
        counter = PartCounter()
        for batch in batches:
            asked, bits = batch.columns["parts"], batch.columns["reports"]
            answers += np.bincount(asked, minlength=count)
            ones += np.bincount(asked[bits], minlength=count)
            counter.add(self.division(batch), asked, bits)
        senders = {} if self.kept_apart == BY_OWNER else senders_of(batches)
        return BitTally(tuple(answers.tolist()), tuple(ones.tolist()), counter.parts(), senders)

    def tally_from_json(self, values: Any) -> BitTally:
        # Tallies that an earlier version stored have no parts.
        stored = values.get("parts", {}).items()
        parts = {bytes.fromhex(key): PartBits.from_json(rows) for key, rows in stored}
        senders = {bytes.fromhex(key): n for key, n in values.get("senders", {}).items()}
        return BitTally(tuple(values["answers"]), tuple(values["ones"]), parts, senders)

    def evidence(self, tally: BitTally | None) -> list[BitEvidence]:
        """A query may contain a threshold several times; its answers are pooled.

        Those of groups with thresholds of their own say nothing of all records.
        """
        if self.each:
            return []
        answers, ones = Counter(dict.fromkeys(self.thresholds, 0)), Counter[float]()
        if tally is not None:
            for q, n, k in zip(self.thresholds, tally.answers, tally.ones, strict=True):
                answers[q] += n
                ones[q] += k
        return [BitEvidence(q, n, ones[q], self.channel) for q, n in answers.items()]


@dataclass(frozen=True, kw_only=True)
class BitTerms(LeveledTerms):
    """The terms of a campaign of bits.

    Variants of owners and groups test each part of `part_floor` answers or more on its own; `joint`
    divides delta among parts with a threshold each. With `planned_mixture`, what the variant
    certified claims is for the owners in the shares in which they answered its first round, or,
    with `equal_owners`, for these in equal shares.
    Its rounds are made so that an owner of `smallest_owner` records can answer each.
    """

    joint: bool = False
    part_floor: int = 0
    planned_mixture: bool = False
    equal_owners: bool = False
    smallest_owner: int = 0
    group_column: str = ""
    groups: tuple[str, ...] = ()

    method: ClassVar[str] = "bits"
    of_risks: ClassVar[bool] = True
    variants: ClassVar[tuple[str, ...]] = (
        "certified",
        *PART_VARIANTS,
        "published",
        "published-star",
        "one-shot",
    )
    settings: ClassVar[dict[str, tuple[str, ...]]] = {
        **LocalTerms.settings,
        "joint": EACH,
        **PART_SETTINGS,
        "guarantee": tuple(ERRORS),
        "mixture": ("certified",),
        "smallest-owner": ("certified",),
        "shuffler": (),
        "crowd": (),
    }
    guarantees: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "certified": (MARGINAL,),
        "one-shot": (MARGINAL, BAND),
    }
    message: ClassVar[type[Message]] = wire.BitTerms
    reports_message: ClassVar[type[Message]] = wire.BitReports

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.planned_mixture and self.levels:
            raise BadInput(
                f"mixture is planned and the guarantee {self.guarantee}; accepted is PAC, whose "
                "tests allow for answers of a planned mixture"
            )
        if self.equal_owners and not self.planned_mixture:
            raise BadInput("equal_owners is given; accepted is a planned_mixture with it")
        check_groups(self.variant, self.group_column, self.groups)
        check_smallest_owner(self.smallest_owner)

    @classmethod
    def from_settings(cls, variant: str, settings: Mapping[str, Any]) -> Self:
        own: dict[str, Any] = {"delta": float(settings["failure-probability"])}
        channel = Bit(epsilon=float(settings["epsilon"]))
        if variant in PART_VARIANTS:
            # Answers at coverage 1 - alpha, of which a third plan.
            deviation = channel.deviation(1 - float(settings["alpha"]))
            own |= part_settings(variant, settings, deviation=deviation, tested=2 / 3)
        if variant in ERRORS:
            own |= cls.leveled(
                variant,
                settings,
                error=lambda alpha: ERRORS[variant] * channel.deviation(1 - alpha),
                count=MARGINAL_LEVELS,
            )
        if variant == "certified":
            own |= mixture_settings(settings)
            own["smallest_owner"] = int(settings.get("smallest-owner", 0))
        return cls(
            variant=variant,
            epsilon=float(settings["epsilon"]),
            max_corrupt=int(settings["max-corrupt"]),
            **own,
        )

    @property
    def row_bytes(self) -> int:
        """Tests of single owners or groups need to know whose reports they are."""
        return 0 if self.variant in PART_VARIANTS or self.planned_mixture else ROW_BYTES

    @property
    def most_rounds(self) -> int:
        if not self.row_bytes or self.variant == "one-shot":
            return min(1, self.row_bytes)
        certified = sum(map(len, rounds_for(self.smallest_owner)))
        return certified if self.variant == "certified" else PUBLISHED_ROUNDS

    def make_channel(self, *, labels: int) -> Bit:
        return Bit(epsilon=self.epsilon)

    def read_query(self, body: bytes, *, labels: int) -> BitQuery:
        message = parse(wire.BitQuery, body)
        if len(message.thresholds) > MOST_THRESHOLDS:
            raise Refused(wire.Code.MALFORMED)
        channel = self.make_channel(labels=labels)
        asked, own = tuple(message.thresholds), (self.division, message.each)
        return BitQuery(channel, message.start, message.stop, asked, *own)

    def explain(self, *, labels: int, alpha: float) -> Explanation:
        channel = self.make_channel(labels=labels)
        return Explanation(
            channel.epsilon,
            calibrates(labels=labels, alpha=alpha),
            "From each record, at most once, leaves one bit: whether the record's score is below a "
            f"threshold, told truly with probability {float(channel.hit):.1%}.",
            in_clear(self.group_column, self.groups),
        )

    def row_bits(self, *, labels: int) -> dict[str, int]:
        return {"parts": 16, "reports": 1, **self.division.row_bits}


BitProcedure = Generator[BitQuery, BitTally, LocalCertificate]
