"""Users who lie, in the in-process driver: populations in arrays, some of whom say what they like.

A lie replaces the report, so it is not bound by the channel. Who lies may be chosen by what would
have been reported: a colluding share is the records that sets miss.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.protocol.channels.base import LabelChannel
from confide.protocol.channels.bit import Bit
from confide.protocol.errors import check_choice
from confide.protocol.methods.bits import BitTerms
from confide.protocol.methods.labels.terms import LabelTerms
from confide.simulation.driver import BitUsers, LabelUsers, Places

Array = NDArray[Any]
Flags = NDArray[np.bool_]

FLIPPED, ALWAYS_ONE, POISONED, COLLUDING = "flipped", "always-one", "poisoned-label", "colluding"
# What each kind says of itself.
KINDS = {
    FLIPPED: "report the opposite bit, or a label that is not theirs",
    ALWAYS_ONE: "report that they are covered, whatever is asked",
    POISONED: "have the label that is covered least, and say it is the one the model predicts",
    COLLUDING: "are the records that sets miss, and report that they are covered",
}
# A report that supports a label is drawn again at most so often.
_DRAWS = 200


@dataclass(frozen=True)
class LyingBitUsers(BitUsers):
    """Users of bits; those in `liars` say the opposite, or always one."""

    liars: Flags = field(kw_only=True)
    flipped: bool = field(default=False, kw_only=True)

    def reports(self, bits: Flags, channel: Bit, asked: Places) -> Flags:
        honest = super().reports(bits, channel, asked)
        lies = ~honest if self.flipped else np.ones_like(honest)
        return np.where(self.liars[asked], lies, honest)


@dataclass(frozen=True)
class LyingLabelUsers(LabelUsers):
    """Users of labels; those in `liars` report a set that holds the label they claim."""

    liars: Flags = field(kw_only=True)
    claims: NDArray[np.int64] = field(kw_only=True)

    def reports(self, channel: LabelChannel, asked: Places) -> Array:
        reports = super().reports(channel, asked).copy()
        lying = np.flatnonzero(self.liars[asked])
        claims = self.claims[asked][lying]
        for _ in range(_DRAWS):
            if not len(lying):
                break
            drawn = channel.randomize(claims, self.entropy)
            kept = channel.supports(drawn)[np.arange(len(lying)), claims]
            reports[lying[kept]] = drawn[kept]
            lying, claims = lying[~kept], claims[~kept]
        return reports


@dataclass(frozen=True)
class ScoredRecords:
    """Records in the order in which they are asked: scores of every label, and labels."""

    every: Array
    labels: Array

    @property
    def own(self) -> Array:
        return self.every[np.arange(len(self.labels)), self.labels]


def liars(kind: str, records: ScoredRecords, count: int) -> Flags:
    """Return who lies: the records that sets miss, those of the hardest label, or any.

    Users who are any are spread evenly over the order in which records are asked.
    """
    check_choice("attack", kind, KINDS)
    chosen = np.zeros(len(records.labels), dtype=np.bool_)
    if kind == COLLUDING:
        chosen[np.argsort(-records.own, kind="stable")[:count]] = True
    elif kind == POISONED:
        labels = np.unique(records.labels)
        means = [records.own[records.labels == label].mean() for label in labels]
        hardest = np.flatnonzero(records.labels == labels[int(np.argmax(means))])
        chosen[hardest[:count]] = True
    else:
        # Spread over the order of asking, as any records are.
        chosen[np.linspace(0, len(chosen) - 1, count).astype(np.int64)] = True
    return chosen


def lying_bits(kind: str, records: ScoredRecords, count: int, *, entropy: Any) -> BitUsers:
    """Users of bits, `count` of whom lie in this way."""
    found = liars(kind, records, count)
    return LyingBitUsers(records.own, entropy, liars=found, flipped=kind == FLIPPED)


def lying_labels(kind: str, records: ScoredRecords, count: int, *, entropy: Any) -> LabelUsers:
    """Users of labels, `count` of whom lie in this way.

    A flipped lie claims the label after the true one, any other the label that scores best.
    """
    k = records.every.shape[1]
    claims = (records.labels + 1) % k if kind == FLIPPED else records.every.argmin(axis=1)
    found = liars(kind, records, count)
    return LyingLabelUsers(records.every, records.labels, entropy, liars=found, claims=claims)


LYING: dict[str, Callable[..., Any]] = {
    BitTerms.method: lying_bits,
    LabelTerms.method: lying_labels,
}
