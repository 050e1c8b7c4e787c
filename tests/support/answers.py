"""Answers of owners, packed by hand."""

import os

import numpy as np

from confide.protocol.channels.base import Channel
from confide.protocol.channels.kinds import Bit
from confide.protocol.methods.queries import BitQuery
from confide.protocol.plan import VERSION, Plan, digest
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.packing import Batch, OwnerAnswer, write_batch, write_owner_answer
from tests.support.owners import PLAN

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
    return Batch(ids, np.arange(n) % 3 == 0, parts=np.arange(n) % 2)


def answer(
    batch: Batch, *, round_: int = 0, plan: bytes = NAME, channel: Channel = QUERY.channel
) -> bytes:
    packed = write_batch(batch, channel=channel, plan=plan, round_=round_)
    return wire.Answer(version=1, batch=packed).SerializeToString(deterministic=True)


def counts(plan: Plan, n: int, count: int, *, name: bytes = b"o" * 16, round_: int = 0) -> bytes:
    """An owner's number of records and its noised count."""
    made = OwnerAnswer(name, np.array([n, count], dtype=np.int64))
    batch = write_owner_answer(made, plan=digest(plan.to_bytes()), round_=round_)
    return wire.Answer(version=VERSION, code=wire.Code.OK, batch=batch).SerializeToString()


def owner_counts(plan: Plan, count: int) -> bytes:
    """An owner's exact histogram with all its records in one bin."""
    counts = np.zeros(plan.bins, dtype=np.int64)
    counts[plan.bins // 2] = count
    batch = write_owner_answer(
        OwnerAnswer(os.urandom(16), counts), plan=digest(plan.to_bytes()), round_=0
    )
    return wire.Answer(version=VERSION, code=wire.Code.OK, batch=batch).SerializeToString()
