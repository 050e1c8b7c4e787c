"""Method labels (LDP-CP-L): one randomised label per record, the model's probabilities in clear."""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from google.protobuf.message import Message
from numpy.typing import NDArray

from confide.protocol.certificate import LocalCertificate
from confide.protocol.channels.base import LabelChannel
from confide.protocol.channels.registry import AUTO, LABEL_CHANNELS, auto
from confide.protocol.errors import BadInput, Refused, check_choice
from confide.protocol.methods.base import (
    Batch,
    Columns,
    Explanation,
    Query,
    Subjects,
    Tally,
    check_slice,
)
from confide.protocol.methods.local import LocalTerms
from confide.protocol.scores.base import Score
from confide.protocol.scores.label_score import LabelScore
from confide.protocol.scores.probabilities import check_probabilities
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.columns import F4, rows
from confide.protocol.wire.encoding import parse, serialise

CAVEAT = (
    "That bound is for the label only: the probabilities are not protected. Whoever made the model "
    "decides what its",
    '"probabilities" say: they may spell out the features of the record.',
)


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
    """Ask the records of a slice for their randomised label and their features."""

    channel: LabelChannel
    start: float = 0.0
    stop: float = 1.0

    def __post_init__(self) -> None:
        check_slice(self.start, self.stop)

    def to_body(self) -> bytes:
        return serialise(wire.LabelQuery(start=self.start, stop=self.stop))

    def answer(self, subjects: Subjects) -> Columns:
        """Draw a randomised label for each record.

        A label that the plan does not have is reported as the one that the model finds least
        likely, the last to be covered.
        """
        probs, labels = subjects.probabilities(), subjects.labels
        known = (labels >= 0) & (labels < self.channel.k)
        reported = np.where(known, labels, probs.argmin(axis=1))
        reports = self.channel.randomize(reported, subjects.entropy)
        return {"reports": reports, "probabilities": probs}

    def pack(self, columns: Columns) -> bytes:
        reports = self.channel.pack(columns["reports"])
        probabilities = columns["probabilities"].astype(F4).tobytes()
        return serialise(wire.LabelReports(reports=reports, probabilities=probabilities))

    def check(self, body: bytes, n: int, *, most: int) -> None:
        message = parse(wire.LabelReports, body)
        self.channel.check(message.reports, n)
        try:
            check_probabilities(rows(message.probabilities, n, self.channel.k))
        except BadInput:
            raise Refused(wire.Code.OUT_OF_ALPHABET) from None

    def unpack(self, body: bytes, n: int) -> Columns:
        message = wire.LabelReports.FromString(body)
        reports = self.channel.unpack(message.reports, n)
        return {
            "reports": reports,
            "probabilities": rows(message.probabilities, n, self.channel.k),
        }

    def tally(self, batches: Sequence[Batch], score: Score) -> LabelTally:
        """Sort reports by the first words of their ids; randomised scores use the second words.

        Ids are keyed hashes, fixed before a report is drawn, so their words are uniform and
        independent of each other and of the record. A test that bets on reports one after the other
        needs an order that is independent of their scores, so the random number of a score must not
        come from the words that the reports are sorted by.
        """
        if not batches:
            return LabelTally(np.empty((0, self.channel.k)), np.empty(0, dtype=np.int64))
        names = np.concatenate([batch.ids for batch in batches]).view(">u8")
        # Equal first words, one pair in 2^64, are ordered by the second: any rule that does not
        # depend on arrival will do.
        order = np.lexsort((names[:, 1], names[:, 0]))
        probs, reports = (
            np.concatenate([batch.columns[name] for batch in batches])[order]
            for name in ("probabilities", "reports")
        )
        u = (names[order, 1] >> np.uint64(11)).astype(np.float64) * 2.0**-53
        return LabelTally(LabelScore.of(score).all_scores(probs, u=u), reports)


@dataclass(frozen=True, kw_only=True)
class LabelTerms(LocalTerms):
    """The terms of a campaign of labels."""

    channel: str

    method: ClassVar[str] = "labels"
    variants: ClassVar[tuple[str, ...]] = ("certified", "published", "published-star")
    message: ClassVar[type[Message]] = wire.LabelTerms
    reports_message: ClassVar[type[Message]] = wire.LabelReports
    shows_probabilities: ClassVar[bool] = True
    settings: ClassVar[dict[str, tuple[str, ...]]] = {**LocalTerms.settings, "channel": ()}

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("channel of labels", self.channel, LABEL_CHANNELS)

    @classmethod
    def from_settings(cls, variant: str, settings: Mapping[str, Any]) -> Self:
        """Make the terms; channel auto is the best one.

        Published variants are defined for uniform noise only.
        """
        channel, epsilon = str(settings["channel"]), float(settings["epsilon"])
        if channel == AUTO:
            uniform = variant.startswith("published")
            channel = auto(k=int(settings["labels"]), epsilon=epsilon, uniform_noise=uniform).name
        return cls(
            variant=variant,
            channel=channel,
            epsilon=epsilon,
            delta=float(settings["failure-probability"]),
            max_corrupt=int(settings["max-corrupt"]),
        )

    def check(self, *, labels: int, alpha: float) -> None:
        if not labels:
            raise BadInput(
                "method labels has a score of numbers; accepted are scores of labels, or the "
                "methods bits and central"
            )
        super().check(labels=labels, alpha=alpha)

    def make_channel(self, *, labels: int) -> LabelChannel:
        return LABEL_CHANNELS[self.channel](k=labels, epsilon=self.epsilon)

    def read_query(self, body: bytes, *, labels: int) -> LabelQuery:
        message = parse(wire.LabelQuery, body)
        return LabelQuery(self.make_channel(labels=labels), message.start, message.stop)

    def explain(self, *, labels: int, alpha: float) -> Explanation:
        channel = self.make_channel(labels=labels)
        return Explanation(
            channel.epsilon,
            f"calibrates prediction sets at {1 - alpha:.0%} coverage",
            f"From each record, at most once, leaves its label through the channel {self.channel} "
            f"(the true label is supported with probability {float(channel.hit):.1%}), and the "
            "model's probabilities for it IN CLEAR.",
            CAVEAT,
        )

    def row_bits(self, *, labels: int) -> dict[str, int]:
        return {
            "reports": self.make_channel(labels=labels).report_bits,
            "probabilities": 32 * labels,
        }


LabelProcedure = Generator[LabelQuery, LabelTally, LocalCertificate]
