"""Method labels (LDP-CP-L): one randomised label per record, and something in clear beside it.

That is the model's probabilities, which the owner computes, or the record's features, which the
aggregator scores with a model of its own (Penso et al. 2025, Algorithm 1).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Self

from google.protobuf.message import Message

from confide.protocol.certificate import BAND, MARGINAL
from confide.protocol.channels.base import MOST_LABELS, LabelChannel
from confide.protocol.channels.registry import AUTO, LABEL_CHANNELS, auto
from confide.protocol.errors import BadInput, check_choice
from confide.protocol.methods.base import (
    Explanation,
)
from confide.protocol.methods.labels.in_clear import (
    AGGREGATOR,
    MOST_SENT_FEATURES,
    OWNER,
    SCORING,
    Features,
    InClear,
    Probabilities,
    check_any_labels,
)
from confide.protocol.methods.labels.query import LabelQuery
from confide.protocol.methods.local import LeveledTerms, LocalTerms
from confide.protocol.methods.owner_terms import (
    EACH,
    FOR_EVERY_GROUP,
    FOR_EVERY_OWNER,
    PART_SETTINGS,
    PART_VARIANTS,
    PER_GROUP,
    PER_OWNER,
    check_groups,
    in_clear,
    part_settings,
)
from confide.protocol.methods.thresholds import calibrates, check_thresholds
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.encoding import parse

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
CLASS_CONDITIONAL = "class-conditional"
# The variants that test whole sets, and all that test the thresholds of a ladder. A class is
# tested by its own label alone, so that no set is counted.
OF_SETS = ("certified", *PART_VARIANTS)
LADDERED = (*OF_SETS, CLASS_CONDITIONAL)
# Whose coverage a variant calibrates, in words.
OF_EACH = {
    CLASS_CONDITIONAL: " of every label",
    FOR_EVERY_OWNER: " at every owner",
    PER_OWNER: " at each owner",
    FOR_EVERY_GROUP: " in every group",
    PER_GROUP: " in each group",
}
# The levels of a marginal promise; more cost time and hardly win any coverage.
MARGINAL_LEVELS = 24
# The labels of a set whose noise those levels allow for.
PASSED_SET = 6.0
# The labels of a set, as expected where nothing is known of the model.
USUAL_SET = 2.0
# The records of a class, estimated, from which on a threshold below 1 is looked for.
CLASS_FLOOR = 100


@dataclass(frozen=True, kw_only=True)
class LabelTerms(LeveledTerms):
    """The terms of a campaign of labels.

    With `sent_features` owners send so many features of a record and the aggregator scores; without
    any they score and send probabilities. The thresholds of `ladder`, ascending to 1, are tested;
    without any, those that every campaign has. In the test, a set that holds more than
    `largest_set` labels, and lacks more, counts as its `largest_set` best labels; 0 is no bound.

    Variant class-conditional gives every label its own threshold: 1 where the records of the label,
    estimated from reports, are fewer than `class_floor`. `delta` is for each label, or for all
    together if `joint`. Variants of owners and groups test each part of `part_floor` reports or
    more on its own; `joint` divides delta among parts with a threshold each.
    """

    channel: str
    sent_features: int = 0
    ladder: tuple[float, ...] = ()
    largest_set: int = 0
    joint: bool = False
    class_floor: int = 0
    part_floor: int = 0
    group_column: str = ""
    groups: tuple[str, ...] = ()

    method: ClassVar[str] = "labels"
    variants: ClassVar[tuple[str, ...]] = (
        "certified",
        CLASS_CONDITIONAL,
        *PART_VARIANTS,
        "published",
        "published-star",
    )
    guarantees: ClassVar[Mapping[str, tuple[str, ...]]] = {"certified": (MARGINAL, BAND)}
    message: ClassVar[type[Message]] = wire.LabelTerms
    reports_message: ClassVar[type[Message]] = wire.LabelReports
    settings: ClassVar[dict[str, tuple[str, ...]]] = {
        **LocalTerms.settings,
        "channel": (),
        "scoring": (),
        "sent-features": (),
        "provider-data": LADDERED,
        "largest-set": OF_SETS,
        "guarantee": ("certified",),
        "joint": (CLASS_CONDITIONAL, *EACH),
        **PART_SETTINGS,
        "class-floor": (CLASS_CONDITIONAL,),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("channel of labels", self.channel, LABEL_CHANNELS)
        check_groups(self.variant, self.group_column, self.groups)
        if not 0 <= self.sent_features <= MOST_SENT_FEATURES:
            raise BadInput(
                f"a record sends {self.sent_features} features; accepted are 0 to "
                f"{MOST_SENT_FEATURES}"
            )
        if not 0 <= self.largest_set <= MOST_LABELS:
            raise BadInput(f"largest_set is {self.largest_set}; accepted are 0 to {MOST_LABELS}")
        if self.largest_set and self.variant not in OF_SETS:
            raise BadInput(
                f"largest_set is {self.largest_set} for labels:{self.variant}; accepted is 0, but "
                f"for {', '.join(OF_SETS)}"
            )
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
        if self.variant not in LADDERED:
            raise BadInput(
                f"a ladder is given for labels:{self.variant}; only {' and '.join(LADDERED)} of "
                "labels test one"
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
        own: dict[str, Any] = {"delta": float(settings["failure-probability"])}
        if variant in LADDERED:
            own["ladder"] = tuple(settings.get("ladder", ()))
        if variant in OF_SETS:
            own["largest_set"] = _largest(settings)
        if variant == "certified":
            own |= cls._at_levels(channel, settings)
        if variant == CLASS_CONDITIONAL:
            own |= {
                "joint": bool(settings.get("joint", False)),
                "class_floor": int(settings.get("class-floor", CLASS_FLOOR)),
            }
        if variant in PART_VARIANTS:
            made = LABEL_CHANNELS[channel](k=int(settings["labels"]), epsilon=epsilon)
            deviation = math.sqrt(made.variance(min(USUAL_SET, made.k)))
            own |= part_settings(variant, settings, deviation=deviation, tested=1.0)
        return cls(
            variant=variant,
            channel=channel,
            epsilon=epsilon,
            max_corrupt=int(settings["max-corrupt"]),
            sent_features=_sent(settings),
            **own,
        )

    @classmethod
    def _at_levels(cls, channel: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of the guarantee: all reports together test every level."""
        check_choice("channel of labels", channel, LABEL_CHANNELS)
        made = LABEL_CHANNELS[channel](k=int(settings["labels"]), epsilon=settings["epsilon"])
        # The walk passes larger sets first; where they hold most labels, the others are counted.
        variance = made.variance(min(PASSED_SET, made.k / 2))

        def error(alpha: float) -> float:
            return math.sqrt(variance + alpha * (1 - alpha))

        return cls.leveled("certified", settings, error=error, count=MARGINAL_LEVELS)

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
        """Return the query to the records of a slice."""
        clear = self.clear(labels=labels)
        channel = self.make_channel(labels=labels)
        return LabelQuery(channel, start, stop, clear, self.division)

    def explain(self, *, labels: int, alpha: float) -> Explanation:
        channel = self.make_channel(labels=labels)
        of_each = OF_EACH.get(self.variant, "")
        shown = "the model's probabilities for it IN CLEAR."
        if self.sent_features:
            shown = f"ITS FEATURES, ALL {self.sent_features} NUMBERS OF THE RECORD, IN CLEAR."
        return Explanation(
            channel.epsilon,
            f"{calibrates(labels=labels, alpha=alpha)}{of_each}",
            f"From each record, at most once, leaves its label through the channel {self.channel} "
            f"(the true label is supported with probability {float(channel.hit):.1%}), and "
            f"{shown}",
            (FEATURES_CAVEAT if self.sent_features else CAVEAT)
            + in_clear(self.group_column, self.groups),
        )

    def row_bits(self, *, labels: int) -> dict[str, int]:
        clear = self.clear(labels=labels)
        return {
            "reports": self.make_channel(labels=labels).report_bits,
            clear.name: 32 * clear.width,
            **self.division.row_bits,
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
    """Return the largest set whose size the test uses unchanged; by the rule if none is given."""
    given = int(settings.get("largest-set", 0))
    return given or (LARGEST_SET if int(settings["labels"]) >= MANY_LABELS else 0)
