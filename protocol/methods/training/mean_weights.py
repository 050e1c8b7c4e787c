"""The tally of a round of training: the mean of the weights that owners sent."""

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from confide.protocol.methods.base import Tally
from confide.protocol.wire.columns import F4

# An owner keeps its weights within +-WEIGHT_BOUND.
WEIGHT_BOUND = 32.0
# Weights are added up in whole multiples of this, so that a mean does not depend on their order;
# 2^18 owners fit into 64 bits.
_UNIT = 2.0**-40
# Owners, and the sums of their records and of their noised numbers of wrong predictions.
HEAD = struct.Struct("<QQq")


@dataclass(frozen=True, eq=False)
class TrainingTally(Tally):
    """The mean weights of the owners that answered, and how many they are; None if nobody did.

    With a loss in the plan, also their records and how many of them were wrong, noised.
    """

    mean: NDArray[np.float32] | None
    owners: int
    records: int = 0
    errors: int = 0

    @classmethod
    def of(cls, answers: Iterable[NDArray[np.float32]]) -> Self:
        """Add up answers one by one, so that one at a time is in memory."""
        total, owners = np.zeros(0, dtype=np.int64), 0
        for weights in answers:
            units = np.clip(weights, -WEIGHT_BOUND, WEIGHT_BOUND, dtype=np.float64)
            units /= _UNIT
            np.rint(units, out=units)
            total = total if owners else np.zeros(len(weights), dtype=np.int64)
            # Cast while adding: millions of weights need no further copy.
            np.add(total, units, out=total, casting="unsafe", dtype=np.int64)
            owners += 1
        mean = (total / owners * _UNIT).astype(np.float32) if owners else None
        return cls(mean, owners)

    def to_bytes(self) -> bytes:
        head = HEAD.pack(self.owners, self.records, self.errors)
        return head + (b"" if self.mean is None else packed(self.mean))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        owners, records, errors = HEAD.unpack_from(data)
        mean = np.frombuffer(data, F4, offset=HEAD.size) if owners else None
        return cls(mean, owners, records, errors)


def packed(weights: NDArray[Any]) -> bytes:
    """Return weights as float32, little endian."""
    return weights.astype(F4).tobytes()
