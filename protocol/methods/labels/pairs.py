"""Method pairs: the label and one bit 1{S <= q} of a record, as one symbol of a label channel.

Label, features and bit are private together. The threshold may be another for every label, so the
answers certify a threshold for each label (class-conditional coverage).
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from google.protobuf.message import Message
from numpy.typing import NDArray

from confide.protocol.certificate import LocalCertificate
from confide.protocol.channels.base import MOST_LABELS, LabelChannel
from confide.protocol.channels.registry import AUTO, LABEL_CHANNELS, auto
from confide.protocol.errors import BadInput, Refused, check_choice
from confide.protocol.methods.base import Batch, Columns, Explanation, Query, ReportScores, Tally
from confide.protocol.methods.labels.in_clear import check_any_labels
from confide.protocol.methods.labels.terms import CLASS_CONDITIONAL, CLASS_FLOOR
from confide.protocol.methods.local import LocalTerms
from confide.protocol.methods.parts import senders_of
from confide.protocol.methods.subjects import Subjects
from confide.protocol.methods.thresholds import (
    calibrates,
    check_slice,
    check_thresholds,
    slice_part,
)
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.columns import U2, check_numbers, column
from confide.protocol.wire.encoding import parse, serialise

# The most thresholds of a query, over all its parts and labels.
MOST_THRESHOLDS = 1 << 16
# A record is a label and a bit, or has a label that the plan does not have.
MOST_PAIR_LABELS = (MOST_LABELS - 1) // 2


def alphabet(labels: int) -> int:
    """The number of symbols: a label with a bit each, and one for labels that a plan lacks."""
    return 2 * labels + 1


@dataclass(frozen=True)
class PairTally(Tally):
    """The reports of a query and the part that each answers, in an order independent of both."""

    parts: NDArray[np.int64]
    reports: NDArray[Any]
    senders: Mapping[bytes, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.parts) != len(self.reports):
            raise BadInput(
                f"{len(self.parts)} parts of {len(self.reports)} reports; accepted is one each"
            )

    @property
    def size(self) -> int:
        """The number of reports."""
        return len(self.reports)


@dataclass(frozen=True)
class PairQuery(Query):
    """Ask the records of a slice for their label and bit, through the channel.

    The slice is cut into equal parts. `thresholds` has a row for each part, with a threshold for
    each label.
    """

    channel: LabelChannel
    start: float
    stop: float
    thresholds: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        check_slice(self.start, self.stop)
        check_thresholds([q for row in self.thresholds for q in row])
        if any(alphabet(len(row)) != self.channel.k for row in self.thresholds):
            raise BadInput(
                f"a channel of {self.channel.k} symbols with {[*map(len, self.thresholds)]} "
                "thresholds a part; accepted is one a label"
            )

    @property
    def labels(self) -> int:
        return len(self.thresholds[0])

    def part(self, positions: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the index of the part that each position of the slice is in."""
        return slice_part(positions, self.start, self.stop, count=len(self.thresholds))

    def symbols(
        self, labels: NDArray[Any], scores: NDArray[Any], parts: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return what the channel randomises: 2 label + bit, or the last symbol."""
        known = (labels >= 0) & (labels < self.labels)
        own = np.where(known, labels, 0)
        bits = scores <= np.array(self.thresholds)[parts, own]
        return np.where(known, 2 * own + bits, 2 * self.labels)

    def to_body(self) -> bytes:
        flat = [q for row in self.thresholds for q in row]
        return serialise(
            wire.PairQuery(start=self.start, stop=self.stop, thresholds=flat, labels=self.labels)
        )

    def answer(self, subjects: Subjects) -> Columns:
        parts = self.part(subjects.positions)
        symbols = self.symbols(subjects.labels, subjects.scores(), parts)
        return {"parts": parts, "reports": self.channel.randomize(symbols, subjects.entropy)}

    def pack(self, columns: Columns) -> bytes:
        parts, reports = columns["parts"].astype(U2), self.channel.pack(columns["reports"])
        return serialise(wire.PairReports(parts=parts.tobytes(), reports=reports))

    def check(self, body: bytes, n: int, *, most: int) -> None:
        message = parse(wire.PairReports, body)
        self.channel.check(message.reports, n)
        check_numbers(message.parts, n, below=len(self.thresholds))

    def unpack(self, body: bytes, n: int) -> Columns:
        message = wire.PairReports.FromString(body)
        reports = self.channel.unpack(message.reports, n)
        return {"parts": column(message.parts, U2, n), "reports": reports}

    def tally(self, batches: Sequence[Batch], scores: ReportScores) -> PairTally:
        """Sort reports by their ids, keyed hashes that were fixed before a report was drawn.

        A test that bets on reports one after the other needs such an order.
        """
        if not batches:
            return PairTally(np.empty(0, dtype=np.int64), self.channel.unpack(b"", 0))
        names = np.concatenate([batch.ids for batch in batches]).view(">u8")
        order = np.lexsort((names[:, 1], names[:, 0]))
        parts, reports = (
            np.concatenate([batch.columns[name] for batch in batches])[order]
            for name in ("parts", "reports")
        )
        return PairTally(parts.astype(np.int64), reports, senders_of(batches))


@dataclass(frozen=True, kw_only=True)
class PairTerms(LocalTerms):
    """The terms of a campaign of pairs.

    A label whose records, estimated from reports, are fewer than `class_floor` keeps threshold 1.
    `delta` is for each label, or for all together if `joint`.
    """

    channel: str
    joint: bool = False
    class_floor: int = 0

    method: ClassVar[str] = "pairs"
    variants: ClassVar[tuple[str, ...]] = (CLASS_CONDITIONAL,)
    message: ClassVar[type[Message]] = wire.PairTerms
    reports_message: ClassVar[type[Message]] = wire.PairReports
    settings: ClassVar[dict[str, tuple[str, ...]]] = {
        **LocalTerms.settings,
        "channel": (),
        "joint": (),
        "class-floor": (),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("channel of pairs", self.channel, LABEL_CHANNELS)

    @classmethod
    def from_settings(cls, variant: str, settings: Mapping[str, Any]) -> Self:
        """Make the terms; channel auto is the best one."""
        labels, channel = int(settings["labels"]), str(settings["channel"])
        _check_labels(labels)
        epsilon = float(settings["epsilon"])
        if channel == AUTO:
            channel = auto(k=alphabet(labels), epsilon=epsilon).name
        return cls(
            variant=variant,
            channel=channel,
            epsilon=epsilon,
            delta=float(settings["failure-probability"]),
            max_corrupt=int(settings["max-corrupt"]),
            joint=bool(settings.get("joint", False)),
            class_floor=int(settings.get("class-floor", CLASS_FLOOR)),
        )

    def check(self, *, labels: int, alpha: float) -> None:
        _check_labels(labels)
        super().check(labels=labels, alpha=alpha)

    def make_channel(self, *, labels: int) -> LabelChannel:
        return LABEL_CHANNELS[self.channel](k=alphabet(labels), epsilon=self.epsilon)

    def read_query(self, body: bytes, *, labels: int) -> PairQuery:
        message = parse(wire.PairQuery, body)
        flat = message.thresholds
        if message.labels != labels or not flat or len(flat) > MOST_THRESHOLDS:
            raise Refused(wire.Code.MALFORMED)
        if len(flat) % labels:
            raise Refused(wire.Code.MALFORMED)
        rows = tuple(tuple(flat[i : i + labels]) for i in range(0, len(flat), labels))
        return PairQuery(self.make_channel(labels=labels), message.start, message.stop, rows)

    def explain(self, *, labels: int, alpha: float) -> Explanation:
        channel = self.make_channel(labels=labels)
        return Explanation(
            channel.epsilon,
            f"{calibrates(labels=labels, alpha=alpha)} of every label",
            "From each record, at most once, leaves one symbol for its label together with whether "
            f"its score is below a threshold, through the channel {self.channel} (the true symbol "
            f"is supported with probability {float(channel.hit):.1%}).",
        )

    def row_bits(self, *, labels: int) -> dict[str, int]:
        return {"parts": 16, "reports": self.make_channel(labels=labels).report_bits}


def _check_labels(labels: int) -> None:
    check_any_labels(labels)
    if labels > MOST_PAIR_LABELS:
        raise BadInput(
            f"labels is {labels} with method pairs; accepted are at most {MOST_PAIR_LABELS}"
        )


PairProcedure = Generator[PairQuery, PairTally, LocalCertificate]
