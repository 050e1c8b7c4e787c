"""Answers of owners, packed by hand."""

import os
from dataclasses import replace

import numpy as np

from confide.protocol.channels.bit import Bit
from confide.protocol.methods.base import Batch, Query
from confide.protocol.methods.bits import BitQuery
from confide.protocol.methods.counts.central import CentralTerms
from confide.protocol.methods.counts.queries import HistogramQuery
from confide.protocol.plan import Plan, digest
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.columns import Array
from confide.protocol.wire.encoding import VERSION, serialise
from confide.protocol.wire.packing import write_batch
from tests.support.owners.owners import PLAN

NAME = digest(PLAN.to_bytes())
QUERY = BitQuery(Bit(epsilon=4.0), 0.25, 0.5, (0.5, 0.75))


def bit_batch(n: int, *, first: int = 0) -> Batch:
    ids = (
        np.arange(16 * first, 16 * (first + n), dtype=np.int64)
        .astype(np.uint8)
        .reshape(n, 16)
        .copy()
    )
    ids[:, :8] = np.arange(first, first + n, dtype="<u8")[:, None].view(np.uint8)
    return Batch(ids, {"reports": np.arange(n) % 3 == 0, "parts": np.arange(n) % 2})


def one_part(batch: Batch) -> Batch:
    """The same reports, all about the first threshold."""
    nothing = np.zeros(len(batch), dtype=np.int64)
    return replace(batch, columns=batch.columns | {"parts": nothing})


def answer(batch: Batch, *, round_: int = 0, plan: bytes = NAME, query: Query = QUERY) -> bytes:
    packed = write_batch(batch, query=query, plan=plan, round_=round_)
    return serialise(wire.Answer(version=VERSION, batch=packed))


def reports(plan: Plan, names: list[int]) -> bytes:
    """A batch with one report for each of these names."""
    batch = bit_batch(max(names) + 1)
    parts = np.zeros(len(names), dtype=np.int64)
    chosen = Batch(batch.ids[names], {"reports": batch.columns["reports"][names], "parts": parts})
    return answer(chosen, plan=digest(plan.to_bytes()))


def counts(plan: Plan, n: int, count: int, *, name: bytes = b"o" * 16, round_: int = 0) -> bytes:
    """An owner's number of records and its noised count."""
    return _counts(plan, np.array([n, count], dtype=np.int64), name, round_)


def owner_counts(plan: Plan, count: int) -> bytes:
    """An owner's exact histogram with all its records in one bin."""
    assert isinstance(plan.terms, CentralTerms)
    counts = np.zeros(plan.terms.bins, dtype=np.int64)
    counts[plan.terms.bins // 2] = count
    return _counts(plan, counts, os.urandom(16), 0)


def _counts(plan: Plan, counts: Array, name: bytes, round_: int) -> bytes:
    batch = Batch(np.frombuffer(name, dtype=np.uint8)[None, :], {"counts": counts})
    return answer(
        batch, query=HistogramQuery(len(counts)), plan=digest(plan.to_bytes()), round_=round_
    )
