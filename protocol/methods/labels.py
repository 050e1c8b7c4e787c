"""Method labels (LDP-CP-L): one randomised label per record, and something in clear beside it.

That is the model's probabilities, which the owner computes, or the record's features, which the
aggregator scores with a model of its own (Penso et al. 2025, Algorithm 1).
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np
from google.protobuf.message import Message
from numpy.typing import NDArray

from confide.protocol.certificate import LocalCertificate
from confide.protocol.channels.base import MOST_LABELS, LabelChannel
from confide.protocol.channels.registry import AUTO, LABEL_CHANNELS, auto
from confide.protocol.errors import BadInput, Refused, check_choice
from confide.protocol.methods.base import (
    Batch,
    Columns,
    Explanation,
    Query,
    ReportScores,
    Subjects,
    Tally,
)
from confide.protocol.methods.in_clear import (
    AGGREGATOR,
    MOST_SENT_FEATURES,
    OWNER,
    SCORING,
    Features,
    InClear,
    Probabilities,
    check_any_labels,
)
from confide.protocol.methods.local import LocalTerms
from confide.protocol.methods.thresholds import calibrates, check_slice, check_thresholds
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.columns import F4, rows
from confide.protocol.wire.encoding import parse, serialise

BITS_INSTEAD = (
    "A campaign of bits would hide all of it, and at small epsilon needs fewer records.",
)
CAVEAT = (
    "That bound is for the label only: the probabilities are not protected. Whoever made the model "
    "decides what its",
    '"probabilities" say: they may spell out the features of the record.',
    *BITS_INSTEAD,
)
FEATURES_CAVEAT = (
    "That bound is for the label only: NOTHING PROTECTS THE FEATURES. Whoever runs the aggregator, "
    "or reads its database,",
    "knows them, and may guess the label from them as well as any model can.",
    "The model is the aggregator's secret, and none runs on this machine. If you may hold the "
    "model, ask for a campaign of",
    "bits instead: it hides features and label, and at small epsilon needs fewer records.",
)
# The most thresholds of a plan's own ladder.
MOST_PLANNED_RUNGS = 4096
# From so many labels on, the largest set that the test counts as it is: the noise of a report grows
# with the set, and the walk down the ladder passes all sizes.
MANY_LABELS, LARGEST_SET = 500, 50


@dataclass(frozen=True)
class LabelTally(Tally):
    """The reports of a label query and the scores of every label for their features.

    Their order is independent of both.
    """

    scores: NDArray[Any]
    reports: NDArray[Any]

    def __post_init__(self) -> None:
        if self.scores.ndim != 2 or len(self.scores) != len(self.reports):
            raise BadInput(
                f"scores of shape {self.scores.shape} with {len(self.reports)} reports; accepted "
                "is a row a report"
            )


@dataclass(frozen=True)
class LabelQuery(Query):
    """Ask the records of a slice for their randomised label, and for what is sent in clear."""

    channel: LabelChannel
    start: float = 0.0
    stop: float = 1.0
    # What is sent in clear; without it, the probabilities of the labels that the channel has.
    shown: InClear | None = None

    def __post_init__(self) -> None:
        check_slice(self.start, self.stop)

    @property
    def clear(self) -> InClear:
        return self.shown or Probabilities(self.channel.k)

    def to_body(self) -> bytes:
        return serialise(wire.LabelQuery(start=self.start, stop=self.stop))

    def answer(self, subjects: Subjects) -> Columns:
        """Draw a randomised label for each record, also for one that the plan does not have."""
        rows_, labels = self.clear.of(subjects), subjects.labels
        known = (labels >= 0) & (labels < self.clear.labels)
        reported = np.where(known, labels, self.clear.foreign(rows_))
        reports = self.channel.randomize(reported, subjects.entropy)
        return {"reports": reports, self.clear.name: rows_}

    def pack(self, columns: Columns) -> bytes:
        reports = self.channel.pack(columns["reports"])
        clear = {self.clear.name: columns[self.clear.name].astype(F4).tobytes()}
        return serialise(wire.LabelReports(reports=reports, **clear))

    def check(self, body: bytes, n: int, *, most: int) -> None:
        message = parse(wire.LabelReports, body)
        self.channel.check(message.reports, n)
        if {field.name for field, _ in message.ListFields()} - {"reports", self.clear.name}:
            raise Refused(wire.Code.MALFORMED)
        try:
            self.clear.check(self._rows(message, n))
        except BadInput:
            raise Refused(wire.Code.OUT_OF_ALPHABET) from None

    def unpack(self, body: bytes, n: int) -> Columns:
        message = wire.LabelReports.FromString(body)
        reports = self.channel.unpack(message.reports, n)
        return {"reports": reports, self.clear.name: self._rows(message, n)}

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
        shown, reports = (
            np.concatenate([batch.columns[name] for batch in batches])[order]
            for name in (self.clear.name, "reports")
        )
        u = (names[order, 1] >> np.uint64(11)).astype(np.float64) * 2.0**-53
        return LabelTally(self.clear.complete(scores(shown, u)), reports)


@dataclass(frozen=True, kw_only=True)
class LabelTerms(LocalTerms):
    """The terms of a campaign of labels.

    With `sent_features` owners send so many features of a record and the aggregator scores; without
    any they score and send probabilities. The thresholds of `ladder`, ascending to 1, are tested;
    without any, those that every campaign has. In the test, a set that holds more than
    `largest_set` labels, and lacks more, counts as its `largest_set` best labels; 0 is no bound.
    """

    channel: str
    sent_features: int = 0
    ladder: tuple[float, ...] = ()
    largest_set: int = 0

    method: ClassVar[str] = "labels"
    variants: ClassVar[tuple[str, ...]] = ("certified", "published", "published-star")
    message: ClassVar[type[Message]] = wire.LabelTerms
    reports_message: ClassVar[type[Message]] = wire.LabelReports
    settings: ClassVar[dict[str, tuple[str, ...]]] = {
        **LocalTerms.settings,
        "channel": (),
        "scoring": (),
        "sent-features": (),
        "provider-data": ("certified",),
        "largest-set": ("certified",),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("channel of labels", self.channel, LABEL_CHANNELS)
        if not 0 <= self.sent_features <= MOST_SENT_FEATURES:
            raise BadInput(
                f"a record sends {self.sent_features} features; accepted are 0 to "
                f"{MOST_SENT_FEATURES}"
            )
        if not 0 <= self.largest_set <= MOST_LABELS:
            raise BadInput(f"largest_set is {self.largest_set}; accepted are 0 to {MOST_LABELS}")
        if self.ladder:
            self._check_ladder()

    def _check_ladder(self) -> None:
        """Refuse a ladder that does not ascend to 1, or that no variant would test."""
        check_thresholds(self.ladder)
        rungs = len(self.ladder)
        ascends = all(low < high for low, high in pairwise(self.ladder))
        if not (2 <= rungs <= MOST_PLANNED_RUNGS and ascends and self.ladder[-1] == 1):
            raise BadInput(
                f"a ladder of {rungs} thresholds; accepted are 2 to {MOST_PLANNED_RUNGS} that "
                "ascend strictly and end at 1"
            )
        if self.variant != "certified":
            raise BadInput(
                f"a ladder is given for labels:{self.variant}; only labels:certified tests one"
            )

    @property
    def shows_probabilities(self) -> bool:
        return not self.sent_features

    @property
    def scoring(self) -> str:
        """Who scores records: the owner, or the aggregator."""
        return AGGREGATOR if self.sent_features else OWNER

    def clear(self, *, labels: int) -> InClear:
        """Return what is sent in clear beside a randomised label."""
        return Features(labels, self.sent_features) if self.sent_features else Probabilities(labels)

    @classmethod
    def from_settings(cls, variant: str, settings: Mapping[str, Any]) -> Self:
        """Make the terms; channel auto is the best one.

        Published variants are defined for uniform noise only.
        """
        channel, epsilon = str(settings["channel"]), float(settings["epsilon"])
        check_any_labels(int(settings["labels"]))
        if channel == AUTO:
            uniform = variant.startswith("published")
            channel = auto(k=int(settings["labels"]), epsilon=epsilon, uniform_noise=uniform).name
        return cls(
            variant=variant,
            channel=channel,
            epsilon=epsilon,
            delta=float(settings["failure-probability"]),
            max_corrupt=int(settings["max-corrupt"]),
            sent_features=_sent(settings),
            ladder=tuple(settings.get("ladder", ())) if variant == "certified" else (),
            largest_set=_largest(settings) if variant == "certified" else 0,
        )

    def check(self, *, labels: int, alpha: float) -> None:
        check_any_labels(labels)
        super().check(labels=labels, alpha=alpha)

    def make_channel(self, *, labels: int) -> LabelChannel:
        alphabet = self.clear(labels=labels).alphabet
        return LABEL_CHANNELS[self.channel](k=alphabet, epsilon=self.epsilon)

    def read_query(self, body: bytes, *, labels: int) -> LabelQuery:
        message = parse(wire.LabelQuery, body)
        return self.query(labels=labels, start=message.start, stop=message.stop)

    def query(self, *, labels: int, start: float = 0.0, stop: float = 1.0) -> LabelQuery:
        """Return the question to the records of a slice."""
        clear = self.clear(labels=labels)
        return LabelQuery(self.make_channel(labels=labels), start, stop, clear)

    def explain(self, *, labels: int, alpha: float) -> Explanation:
        channel = self.make_channel(labels=labels)
        shown = "the model's probabilities for it IN CLEAR."
        if self.sent_features:
            shown = f"ITS FEATURES, ALL {self.sent_features} NUMBERS OF THE RECORD, IN CLEAR."
        return Explanation(
            channel.epsilon,
            calibrates(labels=labels, alpha=alpha),
            f"From each record, at most once, leaves its label through the channel {self.channel} "
            f"(the true label is supported with probability {float(channel.hit):.1%}), and "
            f"{shown}",
            FEATURES_CAVEAT if self.sent_features else CAVEAT,
        )

    def row_bits(self, *, labels: int) -> dict[str, int]:
        clear = self.clear(labels=labels)
        return {
            "reports": self.make_channel(labels=labels).report_bits,
            clear.name: 32 * clear.width,
        }


def _sent(settings: Mapping[str, Any]) -> int:
    """Return the number of features that leave, which only scoring at the aggregator needs."""
    scoring, sent = str(settings.get("scoring", OWNER)), int(settings.get("sent-features", 0))
    check_choice("scoring", scoring, SCORING)
    if (scoring == AGGREGATOR) != (sent > 0):
        raise BadInput(
            f"scoring is {scoring!r} and sent-features {sent}; accepted is {AGGREGATOR!r} with the "
            f"numbers of a record that owners send, or {OWNER!r} with 0"
        )
    return sent


def _largest(settings: Mapping[str, Any]) -> int:
    """Return the largest set that the test counts as it is; without one, that of the rule."""
    given = int(settings.get("largest-set", 0))
    return given or (LARGEST_SET if int(settings["labels"]) >= MANY_LABELS else 0)


LabelProcedure = Generator[LabelQuery, LabelTally, LocalCertificate]
