"""The query of method training: the weights of a round, and the tally of owners' answers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from confide.protocol.architectures.base import Weights
from confide.protocol.errors import Refused
from confide.protocol.methods.base import Batch, Columns, ReportScores, WholeQuery
from confide.protocol.methods.subjects import Subjects
from confide.protocol.methods.training.mean_weights import WEIGHT_BOUND, TrainingTally, packed
from confide.protocol.methods.training.noised_errors import check_errors
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.columns import F4, column
from confide.protocol.wire.encoding import parse, serialise


class RoundTerms(Protocol):
    """What a round needs of the terms: the number of weights, and whether errors are counted."""

    @property
    def size(self) -> int: ...
    @property
    def loss_share(self) -> float: ...
    @property
    def loss_noise(self) -> float: ...


@dataclass(frozen=True, eq=False)
class TrainingQuery(WholeQuery):
    """Ask every owner to continue from these weights for its steps of the round."""

    terms: RoundTerms
    weights: Weights

    def to_body(self) -> bytes:
        return serialise(wire.TrainingQuery(weights=packed(self.weights)))

    def answer(self, subjects: Subjects) -> Columns:
        found = {"weights": subjects.train(self.weights)}
        if self.terms.loss_share:
            found["errors"] = np.array([len(subjects), subjects.noised_errors(self.weights)])
        return found

    def pack(self, columns: Columns) -> bytes:
        records, errors = (int(number) for number in columns.get("errors", (0, 0)))
        weights = packed(columns["weights"])
        return serialise(wire.Weights(weights=weights, records=records, errors=errors))

    def check(self, body: bytes, n: int, *, most: int) -> None:
        message = parse(wire.Weights, body)
        weights = finite_weights(message.weights, self.terms.size)
        check_errors(
            message.records,
            message.errors,
            noise=self.terms.loss_noise,
            most=most if self.terms.loss_share else 0,
        )
        # No owner's steps leave this range, so a single owner moves the mean by little.
        if np.abs(weights).max() > WEIGHT_BOUND:
            raise Refused(wire.Code.OUT_OF_ALPHABET)

    def unpack(self, body: bytes, n: int) -> Columns:
        message = wire.Weights.FromString(body)
        return {
            "weights": np.frombuffer(message.weights, dtype=F4)[None, :],
            "errors": np.array([[message.records, message.errors]], dtype=np.int64),
        }

    def tally(self, batches: Sequence[Batch], scores: ReportScores) -> TrainingTally:
        counts = np.zeros(2, dtype=np.int64)

        def answers() -> Iterator[Weights]:
            for batch in batches:
                counts[:] += batch.columns["errors"][0]
                yield batch.columns["weights"][0]

        found = TrainingTally.of(answers())
        return replace(found, records=int(counts[0]), errors=int(counts[1]))

    def tally_from_bytes(self, data: bytes) -> TrainingTally:
        return TrainingTally.from_bytes(data)


def finite_weights(data: bytes, size: int) -> Weights:
    """Read weights that were sent; refuse those that are not all finite."""
    weights: Weights = column(data, F4, size)
    if not np.isfinite(weights).all():
        raise Refused(wire.Code.OUT_OF_ALPHABET)
    return weights
