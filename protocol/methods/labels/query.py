"""The query of method labels, and the tally of its answers."""

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from confide.protocol.certificate import BY_OWNER, LocalCertificate
from confide.protocol.channels.base import LabelChannel
from confide.protocol.errors import BadInput, Refused
from confide.protocol.methods.base import Batch, Columns, Query, ReportScores
from confide.protocol.methods.labels.in_clear import InClear, Probabilities
from confide.protocol.methods.partition import GROUPS, Division, by_owner
from confide.protocol.methods.parts import PartedTally, joined, senders_of
from confide.protocol.methods.subjects import Subjects
from confide.protocol.methods.thresholds import check_slice
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.columns import F4, rows
from confide.protocol.wire.encoding import parse, serialise

# Reports that are scored at once.
_BLOCK = 1 << 17


@dataclass(frozen=True)
class LabelTally(PartedTally):
    """The reports of a label query and the scores of every label for their features.

    Their order is independent of both. `places` says for every report which of the `parts`, owners
    or groups, it belongs to; without parts nothing is kept apart.
    """

    scores: NDArray[Any]
    reports: NDArray[Any]
    parts: tuple[bytes, ...] = ()
    places: NDArray[np.int64] | None = None
    senders: Mapping[bytes, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.scores.ndim != 2 or len(self.scores) != len(self.reports):
            raise BadInput(
                f"scores of shape {self.scores.shape} with {len(self.reports)} reports; accepted "
                "is a row a report"
            )
        if self.parts and (self.places is None or len(self.places) != len(self.reports)):
            raise BadInput("reports of parts without a place each; accepted is one a report")

    @property
    def keys(self) -> tuple[bytes, ...]:
        return tuple(sorted(self.parts))

    def of(self, key: bytes) -> Self:
        mine: Any = slice(0)
        if key in self.parts and self.places is not None:
            mine = self.places == self.parts.index(key)
        return replace(
            self,
            scores=self.scores[mine],
            reports=self.reports[mine],
            parts=(),
            places=None,
            senders={},
        )

    @property
    def size(self) -> int:
        return len(self.reports)

    def lower_bound(self, query: Query, threshold: float, *, delta: float) -> float | None:
        """The empirical Bernstein bound of X (Maurer and Pontil 2009, theorem 4), once through."""
        channel = getattr(query, "channel", None)
        if not isinstance(channel, LabelChannel) or self.size < 2:
            return None
        kept = self.scores[:, : channel.k] <= np.float64(threshold)
        x = (channel.weights(self.reports)[:, : kept.shape[1]] * kept).sum(axis=1)
        sizes = [channel.support_range(size) for size in range(channel.k + 1)]
        scale, spill = float(channel.hit - channel.spill), float(channel.spill)
        ends = [(c - spill * size) / scale for size, pair in enumerate(sizes) for c in pair]
        term = math.log(2 / delta)
        slack = math.sqrt(2 * float(x.var(ddof=1)) * term / self.size)
        slack += 7 * (max(ends) - min(ends)) * term / (3 * (self.size - 1))
        return min(1.0, max(0.0, float(x.mean()) - slack))


@dataclass(frozen=True)
class LabelQuery(Query):
    """Ask the records of a slice for their randomised label, and for what is sent in clear."""

    channel: LabelChannel
    start: float = 0.0
    stop: float = 1.0
    # What is sent in clear; without it, the probabilities of the labels that the channel has.
    shown: InClear | None = None
    # What its tally keeps apart.
    division: Division = by_owner

    def __post_init__(self) -> None:
        check_slice(self.start, self.stop)

    @property
    def kept_apart(self) -> str:
        return self.division.by

    @property
    def clear(self) -> InClear:
        return self.shown or Probabilities(self.channel.k)

    def to_body(self) -> bytes:
        return serialise(wire.LabelQuery(start=self.start, stop=self.stop))

    def answer(self, subjects: Subjects) -> Columns:
        """Draw a randomised label for each record, also where its label is not in the plan."""
        rows_, labels = self.clear.of(subjects), subjects.labels
        known = (labels >= 0) & (labels < self.clear.labels)
        reported = np.where(known, labels, self.clear.foreign(rows_))
        reports = self.channel.randomize(reported, subjects.entropy)
        own = {"reports": reports, self.clear.name: rows_}
        return own | self.division.columns(subjects)

    def pack(self, columns: Columns) -> bytes:
        reports = self.channel.pack(columns["reports"])
        clear = {self.clear.name: columns[self.clear.name].astype(F4).tobytes()}
        clear |= self.division.packed(columns)
        return serialise(wire.LabelReports(reports=reports, **clear))

    def check(self, body: bytes, n: int, *, most: int) -> None:
        message = parse(wire.LabelReports, body)
        self.channel.check(message.reports, n)
        known = {"reports", self.clear.name, GROUPS}
        if {field.name for field, _ in message.ListFields()} - known:
            raise Refused(wire.Code.MALFORMED)
        self.division.check(message, n)
        try:
            self.clear.check(self._rows(message, n))
        except BadInput:
            raise Refused(wire.Code.OUT_OF_ALPHABET) from None

    def unpack(self, body: bytes, n: int) -> Columns:
        message = wire.LabelReports.FromString(body)
        reports = self.channel.unpack(message.reports, n)
        own = {"reports": reports, self.clear.name: self._rows(message, n)}
        return own | self.division.unpack(message, n)

    def _rows(self, message: wire.LabelReports, n: int) -> NDArray[Any]:
        return rows(getattr(message, self.clear.name), n, self.clear.width)

    def tally(self, batches: Sequence[Batch], scores: ReportScores) -> LabelTally:
        """Sort reports by the first words of their ids; randomised scores use the second words.

        Ids are keyed hashes, fixed before a report is drawn, so their words are uniform and
        independent of each other and of the record. A test that bets on reports one after the other
        needs an order that is independent of their scores, so the random number of a score must not
        come from the words that the reports are sorted by.
        """
        if not batches:
            return LabelTally(np.empty((0, self.channel.k)), self.channel.unpack(b"", 0))
        names = np.concatenate([batch.ids for batch in batches]).view(">u8")
        # Equal first words, one pair in 2^64, are ordered by the second: any rule that does not
        # depend on arrival will do.
        order = np.lexsort((names[:, 1], names[:, 0]))
        u = (names[order, 1] >> np.uint64(11)).astype(np.float64)
        u *= 2.0**-53
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        # What is long goes before what is longer comes.
        del names, order
        shown, reports = (
            _placed([batch.columns[name] for batch in batches], place)
            for name in (self.clear.name, "reports")
        )
        parts, places = joined(self.division(batch) for batch in batches)
        own = _placed([places], place)
        del place, places
        senders = {} if self.kept_apart == BY_OWNER else senders_of(batches)
        return LabelTally(self._scored(shown, u, scores), reports, parts, own, senders)

    def _scored(
        self, shown: NDArray[Any], u: NDArray[np.float64], scores: ReportScores
    ) -> NDArray[Any]:
        """Return the scores of all reports.

        They overwrite the numbers that were sent, if type and shape allow it: two such arrays would
        not fit into memory.
        """
        first = self.clear.complete(scores(shown[:_BLOCK], u[:_BLOCK]))
        if len(shown) <= _BLOCK:
            return first
        same = (first.dtype, first.shape[1:]) == (shown.dtype, shown.shape[1:])
        found = shown if same else np.empty((len(shown), *first.shape[1:]), dtype=first.dtype)
        found[:_BLOCK] = first
        for start in range(_BLOCK, len(shown), _BLOCK):
            part = slice(start, start + _BLOCK)
            found[part] = self.clear.complete(scores(shown[part], u[part]))
        return found


def _placed(parts: Sequence[NDArray[Any]], place: NDArray[np.int64]) -> NDArray[Any]:
    """Return the rows of all parts, each at its place."""
    found = np.empty((len(place), *parts[0].shape[1:]), dtype=parts[0].dtype)
    start = 0
    for part in parts:
        found[place[start : start + len(part)]] = part
        start += len(part)
    return found


LabelProcedure = Generator[LabelQuery, LabelTally, LocalCertificate]
