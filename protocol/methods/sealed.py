"""Queries of shuffled campaigns: each report is sealed to the aggregator, which alone opens it."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from confide.protocol.errors import BadInput, Refused
from confide.protocol.methods.base import Batch, Columns, Query, ReportScores
from confide.protocol.methods.subjects import Subjects
from confide.protocol.sealing import AROUND, seal, unseal
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.columns import Array
from confide.protocol.wire.encoding import parse, serialise


class SealableQuery(Query):
    """A query whose reports differ only by what one channel drew, so that a crowd hides each.

    The whole report is the output of the channel: which threshold it answers is drawn from the
    owner's secret, whatever the record says.
    """

    # The bytes of a report by itself; every report has as many.
    row_bytes: int

    @abstractmethod
    def to_rows(self, columns: Columns) -> Array:
        """Return a row of bytes for every report."""

    @abstractmethod
    def from_rows(self, rows: Array) -> Columns:
        """Return the columns of those rows that are reports of this query; others are left out."""


@dataclass(frozen=True)
class SealedQuery(Query):
    """A query as owners answer it, and as a shuffler sees the answers: sealed reports.

    The aggregator tallies what it opens by the query inside.
    """

    inner: SealableQuery
    recipient: bytes
    plan: bytes
    round: int

    @classmethod
    def of(cls, query: Query, *, recipient: bytes, plan: bytes, round_: int) -> "SealedQuery":
        """Return the query whose reports are sealed to the recipient for this round."""
        if not isinstance(query, SealableQuery):
            raise BadInput(
                f"a {type(query).__name__} is asked in a shuffled campaign; accepted are queries "
                "whose reports a crowd can hide"
            )
        return cls(query, recipient, plan, round_)

    @property
    def start(self) -> float:  # type: ignore[override]
        return self.inner.start

    @property
    def stop(self) -> float:  # type: ignore[override]
        return self.inner.stop

    @property
    def sealed_bytes(self) -> int:
        """The bytes of a sealed report."""
        return self.inner.row_bytes + AROUND

    def to_body(self) -> bytes:
        return self.inner.to_body()

    def answer(self, subjects: Subjects) -> Columns:
        return self.inner.answer(subjects)

    def pack(self, columns: Columns) -> bytes:
        recipient = X25519PublicKey.from_public_bytes(self.recipient)
        sealed = [
            seal(row.tobytes(), recipient, plan=self.plan, round_=self.round)
            for row in self.inner.to_rows(columns)
        ]
        return serialise(wire.SealedReports(sealed=b"".join(sealed)))

    def check(self, body: bytes, n: int, *, most: int) -> None:
        if len(parse(wire.SealedReports, body).sealed) != n * self.sealed_bytes:
            raise Refused(wire.Code.MALFORMED)

    def unpack(self, body: bytes, n: int) -> Columns:
        sealed = np.frombuffer(wire.SealedReports.FromString(body).sealed, dtype=np.uint8)
        return {"sealed": sealed.reshape(n, self.sealed_bytes)}

    def opened(self, sealed: Array, key: X25519PrivateKey) -> Columns:
        """Return the columns of those sealed reports that open for this key and are reports."""
        found = [unseal(row.tobytes(), key, plan=self.plan, round_=self.round) for row in sealed]
        data = b"".join(row for row in found if row is not None)
        rows = np.frombuffer(data, dtype=np.uint8).reshape(-1, self.inner.row_bytes)
        return self.inner.from_rows(rows)

    def tally(self, batches: Sequence[Batch], scores: ReportScores) -> Any:
        raise BadInput("sealed reports cannot be added up; accepted are opened ones")
